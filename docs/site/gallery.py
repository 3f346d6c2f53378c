"""`make pictures`, second part: three releases, and their first screens in docs/images.

A good one (Adult), a poor one (few rows, little budget), and one that its gate withheld. Both small
tables are the quickstart's, which is simulated: their internal reports may be shown.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import tempfile
from pathlib import Path
from typing import Any

import yaml
from PIL import Image
from playwright.sync_api import Browser

import synthdp
from synthdp.errors import GateError

DOCS = Path(__file__).parents[1]
IMAGES = DOCS / "images"
WIDTH, HEIGHT = 1280, 1000  # pixels
PAID = {"disclosure": "private"}
FITTED = {"metric": "tv1_noisy", "at_most": 0.5}  # hardly ever fails
STRICT = {"metric": "tv1_dp", "at_most": 0.001}  # always fails
VIEWS: tuple[dict[str, Any], ...] = (
    {"color_scheme": "dark"},
    {"width": 390},
    {"width": 794, "paper": True},  # A4
)
NO_ATTACK = {"membership": {"enabled": False}}


def _adult(folder: Path) -> dict[str, Any]:
    shutil.copytree(DOCS.parent / "specs" / "data", folder / "data")
    content: dict[str, Any] = yaml.safe_load((DOCS.parent / "specs" / "adult.yaml").read_text())
    return content | {"attacks": NO_ATTACK}


def _clinic(folder: Path, *, rows: int, epsilon: float, gate: dict[str, Any]) -> dict[str, Any]:
    lines = (DOCS / "example" / "clinic.csv").read_text().splitlines(keepends=True)
    (folder / "clinic.csv").write_text("".join(lines[: rows + 1]))
    content: dict[str, Any] = yaml.safe_load((DOCS / "example" / "clinic.yaml").read_text())
    content["dataset"]["rows"]["value"] = rows
    content["privacy"] |= {"epsilon": epsilon}
    content["evaluation"] |= PAID
    return content | {
        "graph": {"mode": "predict"},
        "gates": [gate],
    }


def releases(folder: Path) -> dict[str, Path]:
    """The three releases: the name of a picture, and the page that it shows."""
    for name in ("good", "poor", "withheld"):
        (folder / name).mkdir()
    contents = {
        "good": _adult(folder / "good"),
        "poor": _clinic(folder / "poor", rows=600, epsilon=0.5, gate=FITTED),
        "withheld": _clinic(folder / "withheld", rows=5000, epsilon=1, gate=STRICT),
    }
    for name, content in contents.items():
        with contextlib.suppress(GateError):  # which is what the third one shows
            synthdp.Spec.from_dict(content, folder=folder / name).release(out=folder / name / "out")
    shown = {name: folder / name / "out" / "bundle" / "report.html" for name in ("good", "poor")}
    return shown | {"withheld": folder / "withheld" / "out" / "internal" / "internal.html"}


def take_pictures(browser: Browser) -> None:
    """Release all three, and take the first screen of each, of both kinds of page also as it is
    in the dark, on a telephone and on paper.
    """
    with tempfile.TemporaryDirectory() as temporary:
        pages = releases(Path(temporary))
        for name, path in pages.items():
            _save([_screen(browser, path)], name)
            if name != "poor":
                _save([_screen(browser, path, **view) for view in VIEWS], f"{name}-views")


def _screen(
    browser: Browser, path: Path, width: int = WIDTH, paper: bool = False, **more: Any
) -> Image.Image:
    """The first screen of a page."""
    page = browser.new_page(viewport={"width": width, "height": HEIGHT}, **more)
    page.emulate_media(media="print" if paper else "screen")
    page.goto(path.as_uri())
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB")


def _save(screens: list[Image.Image], name: str) -> None:
    """Screens beside each other in few colours, which text and charts are drawn in."""
    sheet = Image.new("RGB", (sum(s.width + 8 for s in screens) - 8, HEIGHT), "grey")
    for i, screen in enumerate(screens):
        sheet.paste(screen, (sum(s.width + 8 for s in screens[:i]), 0))
    few = sheet.quantize(192, dither=Image.Dither.NONE)
    few.save(IMAGES / f"gallery-{name}.png", optimize=True)
