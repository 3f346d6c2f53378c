"""The house stays as it was moved into: rooms, arrows, lengths, and no old prefix of a constant."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.house import measures, product

pytestmark = pytest.mark.check


def test_no_measure_of_the_house_grows_back() -> None:
    found = measures()
    for what, most in {
        "loose modules": 6,
        "rooms": 20,
        "arrows between rooms": 110,
        "layers of the import contract": 14,
        "decisions per 100 lines": 14.4,
    }.items():
        assert float(found[what]) <= most, what
    assert found["modules over 350 lines"] == found["functions over 60 lines"] == "none"


def test_bounds_are_named_max_and_min() -> None:
    old = re.compile(r"\b_?(MOST|LEAST)_")
    assert [str(m.path) for m in product() if old.search(m.text)] == []


def test_nothing_says_to_install_synthdp_by_its_name() -> None:
    """Nobody owns the name on a package index: whoever took it would run code."""
    by_name = re.compile(r"""pip install\b[^\n`]*?[ '"]synthdp(\[|[ '"`\n]|$)""")
    assert by_name.search("pip install --no-cache-dir 'synthdp[release]'")
    root = Path(__file__).parents[1]
    files = [root / "README.md"]
    for folder in ("synthdp", "attacks", "benchmarks", "docs"):
        files += [p for p in (root / folder).rglob("*") if p.suffix in (".py", ".md", ".j2")]
    told = [p.name for p in files if by_name.search(p.read_text(encoding="utf-8"))]
    assert len(files) > 400 and told == []
