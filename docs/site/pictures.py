"""`make pictures`: screens of the quickstart and the gallery. Needs Chromium and Playwright.

The table of the quickstart is simulated, so its internal report may be shown.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from gallery import take_pictures
from playwright.sync_api import sync_playwright
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

DOCS = Path(__file__).parents[1]
IMAGES = DOCS / "images"
WIDTH = 100  # characters of a terminal
NO_NETWORK = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
SCREENS = {  # picture: command
    "plan": "plan clinic.yaml",
    "release": "release clinic.yaml",
    "answer": "answer releases/clinic/bundle \"share(smoker) where sex == 'female'\"",
}
PAGES = {  # picture: page
    "internal": "releases/clinic/internal/internal.html",
    "public": "releases/clinic/bundle/report.html",
}


def screen(name: str, command: str, folder: Path) -> None:
    """What a terminal shows of a command."""
    done = subprocess.run(
        f"{sys.executable} -m synthdp {command}",
        shell=True,
        cwd=folder,
        env=os.environ | {"COLUMNS": str(WIDTH), "FORCE_COLOR": "1"},
        check=True,
        capture_output=True,
        text=True,
    )
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    console.print(f"$ synthdp {command}", highlight=False)
    console.print(Text.from_ansi(done.stdout))
    console.save_svg(str(IMAGES / f"{name}.svg"), title="synthdp", code_format=NO_NETWORK)


def main() -> None:
    """Release the example, and take every picture anew."""
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        folder = Path(temporary) / "clinic"
        shutil.copytree(DOCS / "example", folder)
        for name, command in SCREENS.items():
            screen(name, command, folder)
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for name, path in PAGES.items():
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.goto((folder / path).as_uri())
            page.screenshot(path=IMAGES / f"{name}.png")
        take_pictures(browser)


if __name__ == "__main__":
    main()
