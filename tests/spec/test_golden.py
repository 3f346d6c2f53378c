"""Bad specs and exactly what is said about them. Run with SYNTHDP_UPDATE_GOLDEN=1 to write the
texts anew, then read them.
"""

import os
import re
from pathlib import Path

import pytest

from synthdp.errors import SpecError
from synthdp.spec import parse_spec

FOLDER = Path(__file__).parents[1] / "golden" / "specs"
SPECS = sorted(FOLDER.glob("*.yaml"))


@pytest.mark.parametrize("spec", SPECS, ids=lambda p: p.stem)
def test_every_mistake_is_told(spec: Path) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(spec.read_bytes().decode(), path=spec.name)
    expected = spec.with_suffix(".txt")
    if os.environ.get("SYNTHDP_UPDATE_GOLDEN") == "1":
        expected.write_text(f"{caught.value}\n", encoding="utf-8")
    assert f"{caught.value}\n" == expected.read_text(encoding="utf-8")


def test_no_golden_is_left_over() -> None:
    assert len(SPECS) >= 34
    assert {p.stem for p in FOLDER.glob("*.txt")} == {p.stem for p in SPECS}


def test_no_jargon() -> None:
    told = "\n".join(p.read_text(encoding="utf-8") for p in FOLDER.glob("*.txt"))
    for word in (
        "pydantic",
        "https://",
        "Input should",
        "NoneType",
        "ValueError",
        "dict",
        "tuple",
        "Extra inputs",
    ):
        assert not re.search(rf"\b{word}\b", told)
