"""`make pictures`, second part: three releases, and the first screen of each in docs/images.

A good one (Adult), a poor one (few rows, little budget), and one that its gate withheld. Both small
tables are the quickstart's, which is simulated: their internal reports may be shown.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import Any

import yaml
from playwright.sync_api import Browser

import synthdp
from synthdp.errors import GateError

DOCS = Path(__file__).parents[1]
IMAGES = DOCS / "images"
WIDTH, HEIGHT = 1280, 1000  # pixels
PAID = {"disclosure": "private"}
FITTED = {"metric": "tv1_noisy", "at_most": 0.5}  # hardly ever fails
STRICT = {"metric": "tv1_dp", "at_most": 0.001}  # always fails
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
    """Release all three, and take the first screen of each."""
    with tempfile.TemporaryDirectory() as temporary:
        for name, path in releases(Path(temporary)).items():
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            page.goto(path.as_uri())
            page.screenshot(path=IMAGES / f"gallery-{name}.png")
