"""The index of a folder of releases, as a reader meets it: at a desk, on a phone, in the dark, on
paper.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from synthdp.report import (
    COLUMNS,
    ROUGH,
    IndexContent,
    IndexedBundle,
    IndexedDataset,
    ReportTable,
    State,
    Verdict,
    distance,
    guarantee,
    noisy,
    render_index,
    say,
)
from tests.browser.conftest import LONG
from tests.browser.test_reports import SIDEWAYS, opened

pytestmark = pytest.mark.slow  # a browser


def bundle(place: str, checked: State, *, high: float = 0.106, hidden: int = 3) -> IndexedBundle:
    """One of which noise moves `hidden` columns, and may be off by `high`."""
    score = {"value": 0.0134, "low": 0.0, "high": high}
    parts = {f"{LONG[0]}_{k}" if k else "visits per year": 0.5 - 0.02 * k for k in range(hidden)}
    asked, figures = "; no figure of effect on visits: smoker against all other rows", "2 of 3"
    return IndexedBundle(
        place=place,
        day="2026-05-04",
        run="20260504-0123456789ab",
        rows="48,842",
        gates=(
            "tv1_noisy at most 0.1: passed",
            f"tv1_dp at most 0.1: 0.0134 (0 to {high}), passed{'; noise decided' * (high > 0.1)}",
        ),
        signed="signed by ed25519:01234567…; whose key that is was not checked",
        decision="nobody has decided on it"
        if checked == "good"
        else "decided: no, by A. Reviewer on 2026-05-04: for teaching; the board did not agree",
        checked=checked,
        checks="verified; its entries are in the ledger",
        links=(("public report", "a/report.html"), ("data card", "a/DATACARD.md")),
        verdicts=(
            replace(distance("Teaching and code", score, ROUGH, say("off_by")), use=True),
            Verdict("Coefficients", "by copies alone", say("coefficients"), use=True),
            guarantee(0.9994 + 50 * high, 1e-5, advantage=0.1),
            Verdict("Questions answered", figures, say("questions") + asked, "fair"),
            distance("Single columns", score, COLUMNS, say("columns_bound"), floor=0.015),
            noisy("Columns whose shape is noise", say("noisy_shapes"), parts | {"age": 0.01}),
        ),
        differs=("epsilon 0.5 -> 0.9994: worse", f"keys of the spec: columns.{LONG[0]}.bins 8 -> 4")
        if high != 0.04
        else (),
        difference=comparison(place) if high != 0.04 else None,
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
            bundles=(
                bundle(f"{name[:8]}/first", "good", high=0.04, hidden=0),
                bundle(f"{name}/{LONG[0]}", "bad"),
                bundle(f"{name[:8]}/third", "plain", high=0.14, hidden=30),
                bundle(f"{name[:8]}/fourth", "good", high=0.2),
                bundle(f"{name[:8]}/fifth", "good", hidden=1),
            ),
            withheld=1,
            without=ReportTable(
                f"Runs of {name}",
                ("date", "run", "what became of it"),
                (("2026-05-04", "20260504-0", "withheld: no, by the gates of its spec"),),
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
