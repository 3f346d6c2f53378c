"""Both reports in Chromium. Skipped, with the reason, where Playwright or a browser is missing:
`apt-get install chromium`.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.report.test_analysis_sections import report
from tests.report.test_public import facts, public
from tests.report.test_report import GRAPH_SVG, HOSTILE, content

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LONG = (
    "a_column_with_a_very_long_name_without_any_space_in_it_that_no_screen_is_wide_enough_for",
    "kind",
    "size",
)


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The two reports, with all their sections, names that do not fit, and names that try to
    run.
    """
    from dataclasses import replace

    from synthdp.report import render, render_public

    folder = tmp_path_factory.mktemp("pages")
    whole = content([*LONG, HOSTILE[1]])
    assert whole.evaluation is not None
    judged = replace(
        report(),
        fidelity=whole.evaluation.fidelity,
        floor=whole.evaluation.floor,
        utility=whole.evaluation.utility,
    )
    texts = {
        "internal": render(replace(whole, evaluation=judged)),
        "public": render_public(
            public(
                LONG,
                facts=facts(title=HOSTILE[1], unit_meaning=LONG[0]),
                graph=replace(public().graph, svg=GRAPH_SVG),
            )
        ),
    }
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in texts}


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    api = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is not installed: pip install playwright"
    )
    path = next((p for p in map(shutil.which, BROWSERS) if p), None)
    with api.sync_playwright() as playwright:
        if path is None and not os.path.exists(playwright.chromium.executable_path):
            pytest.skip("no Chromium: apt-get install chromium")
        # Without the sandbox, which needs rights that containers lack; the pages are our own.
        started = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu"]
        )
        yield started
        started.close()
