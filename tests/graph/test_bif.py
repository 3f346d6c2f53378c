"""Reading Bayesian networks and sampling from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from synthdp.errors import SynthdpError
from synthdp.graph.formats.bif import BayesianNetwork, read_bif

TEXT = """network n { }
variable a { type discrete [ 2 ] { yes, no }; }
variable b { type discrete [ 3 ] { x, y, z }; }
probability ( a ) { table 0.25, 0.75; }
probability ( b | a ) { default 0.2, 0.3, 0.5; (yes) 1.0, 0.0, 0.0; }
"""


def test_structure_and_tables(network: Callable[[str], BayesianNetwork]) -> None:
    net = network("cancer")
    assert net.parents["Cancer"] == ("Pollution", "Smoker") and net.levels["Pollution"] == (
        "low",
        "high",
    )
    assert net.tables["Cancer"][1, 0].tolist() == pytest.approx([0.05, 0.95])
    assert net.graph().parents("Cancer") == ("Pollution", "Smoker")
    assert net.domain()["Xray"].labels == ("positive", "negative")


def test_defaults_and_samples(tmp_path: Path) -> None:
    path = tmp_path / "n.bif"
    path.write_text(TEXT)
    net = read_bif(path)
    codes = net.sample(40_000, rng=np.random.default_rng(1))
    assert codes.shape == (40_000, 2) and codes.dtype == np.uint16
    assert (codes[:, 0] == 0).mean() == pytest.approx(0.25, abs=0.01)
    assert set(codes[codes[:, 0] == 0, 1].tolist()) == {0}
    assert np.bincount(codes[codes[:, 0] == 1, 1]) / (codes[:, 0] == 1).sum() == pytest.approx(
        [0.2, 0.3, 0.5], abs=0.015
    )


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("variable a", "node a", "n.bif:2:1: got 'node' where a block must stand"),
        ("table 0.25, 0.75", "table 0.25", "1 numbers where 2"),
        ("table 0.25, 0.75", "table 0.5, 0.75", "sum to 1"),
        ("table 0.25, 0.75", "table 0.25, many", "not a list of numbers"),
        ("(yes)", "(maybe)", "not a combination"),
        ("default 0.2, 0.3, 0.5;", "", "has no row"),
        ("probability ( a ) { table 0.25, 0.75; }", "", "no probability block for a"),
        (
            "probability ( a ) { table 0.25, 0.75; }",
            "probability ( a | b ) { default 0.5, 0.5; }",
            "cycle",
        ),
    ],
)
def test_mistakes_are_named(old: str, new: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "n.bif"
    path.write_text(TEXT.replace(old, new))
    with pytest.raises(SynthdpError, match=words):
        read_bif(path)


def test_not_a_network(tmp_path: Path) -> None:
    path = tmp_path / "n.bif"
    path.write_text("network n { }")
    with pytest.raises(SynthdpError, match="no discrete variable"):
        read_bif(path)
