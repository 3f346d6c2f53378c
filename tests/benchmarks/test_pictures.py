"""Every committed picture of the benchmarks can be drawn from the file beside it."""

from pathlib import Path

import pytest

from benchmarks import look
from benchmarks.pictures import PICTURES, RESULTS
from synthdp.report import template

BEFORE_DARK = template("_style.css.j2").render().split("@media")[0]


def test_no_picture_is_left_out() -> None:
    assert {p.stem for p in RESULTS.glob("*.png")} == {*PICTURES}


@pytest.mark.slow
@pytest.mark.parametrize("name", PICTURES)
def test_it_is_drawn(name: str, tmp_path: Path) -> None:
    PICTURES[name](tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 20_000


def test_reports_have_the_same_colours() -> None:
    for name, colour in (
        ("real", look.REAL),
        ("synthetic", look.SYNTHETIC),
        ("bound", look.BOUND),
        ("muted", look.GREY),
        ("line", look.LINE),
    ):
        assert f"--{name}: {colour};" in BEFORE_DARK
