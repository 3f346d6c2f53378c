"""The index of a folder of releases, as a reader meets it: at a desk, on a phone, in the dark, on
paper.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from synthdp.report.index import (
    IndexContent,
    IndexedBundle,
    IndexedDataset,
    IndexedDifference,
    render_index,
)
from synthdp.report.sections import ReportTable
from tests.browser.conftest import LONG
from tests.browser.test_reports import SIDEWAYS, opened

pytestmark = pytest.mark.slow  # a browser


def bundle(place: str, checked: str) -> IndexedBundle:
    return IndexedBundle(
        place=place,
        day="2026-05-04",
        run="20260504-0123456789ab",
        rows="48,842",
        epsilon="0.9994 at delta 1e-05",
        scores="tv1_dp 0.0134 (0 to 0.106)",
        gates="tv1_noisy at most 0.1: passed; tv1_dp at most 0.1: passed; noise decided",
        signed="signed by ed25519:01234567…; whose key that is was not checked",
        decision="decided: yes, by A. Reviewer on 2026-05-04: for teaching; the board agreed",
        checked=checked,
        checks="verified; its entries are in the ledger",
        links=(("public report", "a/report.html"), ("data card", "a/DATACARD.md")),
    )


def comparison(name: str) -> ReportTable:
    rows = (
        ("budget", "epsilon", "0.5", "1", "worse", ""),
        ("table", LONG[0], "-", "1", "different", LONG[0]),
    )
    headings = ("topic", "what", "before", "after", "verdict", "why")
    return ReportTable(f"b of {name} compared with a", headings, rows)


@pytest.fixture(scope="module")
def page_of_all(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with every part, and names that do not fit."""
    datasets = tuple(
        IndexedDataset(
            name=name,
            title=name,
            budget="The ledger says: epsilon 2 spent of a cap of 3; 1 is left.",
            over=name == "clinic",
            bundles=(bundle("first/bundle", "good"), bundle(f"{LONG[0]}/bundle", "bad")),
            differences=(
                IndexedDifference(summary="b after a: epsilon worse", table=comparison(name)),
            ),
            without=ReportTable(
                f"Runs of {name}", ("date", "run"), (("2026-05-04", "20260504-0"),)
            ),
        )
        for name in ("clinic", LONG[0])
    )
    content = IndexContent(
        folder="releases",
        made="2026-05-04 03:02 UTC",
        verified=True,
        ledger=".synthdp/ledger.db",
        datasets=datasets,
        damaged=(("spoilt", ("privacy/certificate.json: was changed", LONG[0])),),
    )
    path = tmp_path_factory.mktemp("index") / "index.html"
    path.write_text(render_index(content), encoding="utf-8")
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_and_axe_finds_nothing(
    browser: Any, page_of_all: Path, width: int, scheme: str
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    with opened(browser, page_of_all, width=width, scheme=scheme) as (page, asked):
        for fold in page.locator("details summary").all():
            fold.click()
        assert page.evaluate(SIDEWAYS) == [0, []] and asked == []
        found = axe.Axe().run(page).response["violations"]
        assert {v["id"]: [n["html"][:120] for n in v["nodes"]] for v in found} == {}


def test_it_prints_with_its_folded_parts(browser: Any, page_of_all: Path) -> None:
    with opened(browser, page_of_all, width=718) as (page, _):
        page.emulate_media(media="print")
        assert page.get_by_text("different", exact=True).first.is_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 718
        assert page.pdf(format="A4").startswith(b"%PDF")
