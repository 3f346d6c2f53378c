"""Both reports on persons with visits in Chromium: they fit screens, and axe finds no fault."""

from pathlib import Path
from typing import Any

import pytest

from tests.browser.test_reports import SIDEWAYS, WIDTHS, opened
from tests.release.linked.conftest import run, write_spec, write_tables

pytestmark = pytest.mark.slow  # half a minute of a browser

NAMES = ("internal", "public")


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The pages of a small release, whose title does not fit and tries to run."""
    folder = tmp_path_factory.mktemp("visits")
    write_tables(folder)
    change = {
        "dataset": {"title": "<script>alert(1)</script>" + "a_long_title" * 9},
        "evaluation": {"enabled": True, "targets": ["stays[+1].stage"]},
    }
    done = run(write_spec(folder, change))
    assert done.report is not None
    return {"internal": done.report, "public": done.bundle / "report.html"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", NAMES)
def test_it_fits_the_screen_and_asks_for_nothing(
    browser: Any, visits: dict[str, Path], name: str, width: int, scheme: str
) -> None:
    with opened(browser, visits[name], width=width, scheme=scheme, unfold=True) as (page, asked):
        assert page.evaluate(SIDEWAYS) == [0, []] and asked == []


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "light"), (1280, "dark")])
@pytest.mark.parametrize("name", NAMES)
def test_axe_finds_no_fault(
    browser: Any, visits: dict[str, Path], name: str, width: int, scheme: str
) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright",
        reason="axe is not installed: pip install axe-playwright-python",
    )
    with opened(browser, visits[name], width=width, scheme=scheme, unfold=True) as (page, _):
        found = axe.Axe().run(page).response["violations"]
        assert {v["id"]: [n["html"][:120] for n in v["nodes"]][:3] for v in found} == {}


@pytest.mark.parametrize("name", NAMES)
def test_the_first_screen_says_what_it_is_good_for(
    browser: Any, visits: dict[str, Path], name: str
) -> None:
    with opened(browser, visits[name]) as (page, _):
        seen = page.evaluate(
            "[...document.querySelectorAll('.card .figure')].filter(e =>"
            " e.getBoundingClientRect().bottom < 900).length"
        )
        assert seen >= 4
