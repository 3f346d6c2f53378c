"""MLflow's pages over a store with two releases, as reviewers steer by them: the view, a run, its
report, and both side by side.

The pages are MLflow's own, so neither their accessibility nor their looks are judged here. Set
SYNTHDP_SCREENSHOTS to a folder to keep pictures.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from synthdp.privacy import plan
from synthdp.spec import load_spec, up
from synthdp.tracking import VIEW_COLUMNS
from synthdp.tracking.server import USER, Pages, latest_runs, serving, store_of
from tests.release.conftest import Tiny

pytestmark = pytest.mark.slow  # two releases, a server and a browser

PATIENCE = 60_000  # ms, for pages of some megabytes on a busy machine
GATE = [{"metric": "tv1_noisy", "at_most": 0.5}]
ESTIMANDS: dict[str, Any] = {
    "estimands": [{"kind": "question", "ask": "share(sex == 'male')"}],
    "privacy": {"shares": {"measure": 0.2, "estimands": 0.1, "train": 0.7}},
}
ATTACK = {"membership": {"enabled": True, "rows": 40, "pairs": 4, "steps": 2}}


@dataclass(frozen=True)
class Reviewed:
    """The reviewers' pages, the names of a published and of a withheld release, and the epsilon
    of the first, as MLflow has it.
    """

    pages: Pages
    published: str
    withheld: str
    epsilon: float


@pytest.fixture(scope="module")
def reviewed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reviewed]:
    """Two releases of one table, and a server over their store."""
    tiny = Tiny(tmp_path_factory.mktemp("reviewed"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "GROUP_SIZES", (1, 2))
        first = tiny.write(
            tracking={"enabled": True}, attacks=ATTACK, gates=GATE, **ESTIMANDS
        ).release()
        second = tiny.write(
            tracking={"enabled": True},
            privacy={"epsilon": 0.5},
            gates=[{"metric": "tv1_noisy", "at_most": 0}],
        ).release(force=True)
    assert first.warnings == second.warnings == () and second.bundle is None
    uri, experiment = store_of(load_spec(tiny.spec), tiny.folder)
    with serving(uri, port=None, experiment=experiment) as pages:
        epsilon = float(up(first.job.plan.epsilon_spent))
        yield Reviewed(pages, "tiny - released - eps 1", "tiny - withheld - eps 0.5", epsilon)


@pytest.fixture
def page(browser: Any, reviewed: Reviewed) -> Iterator[Any]:
    """The reviewers' view in a wide window; nothing may be asked of any other host."""
    login = {"username": USER, "password": str(reviewed.pages.password)}
    size = {"width": 1920, "height": 1080}
    context = browser.new_context(viewport=size, http_credentials=login)
    opened, asked = context.new_page(), []
    opened.set_default_timeout(PATIENCE)
    opened.on("request", lambda request: asked.append(request.url))
    opened.goto(reviewed.pages.address)
    opened.get_by_text(reviewed.published).first.wait_for()
    with_assistant = opened.get_by_text("MLflow Assistant")
    if with_assistant.count():  # it takes a quarter of the window on the first visit
        with_assistant.first.locator("xpath=ancestor::div[.//button][1]").locator(
            "button"
        ).last.click()
    yield opened
    host = reviewed.pages.base
    assert [url for url in asked if not url.startswith((host, "data:", "blob:"))] == []
    context.close()


def picture(page: Any, name: str) -> None:
    """Keep what the window shows, where someone wants to look at it."""
    if folder := os.environ.get("SYNTHDP_SCREENSHOTS"):
        page.wait_for_timeout(1500)  # for what fades in
        page.screenshot(path=Path(folder) / f"mlflow-{name}.png")


def open_run(page: Any, run: str) -> None:
    page.get_by_role("link", name=re.compile(run)).first.click()
    page.get_by_text("About this run").wait_for()


def test_the_view_shows_gate_epsilon_and_attack_of_each_release(
    page: Any, reviewed: Reviewed
) -> None:
    picture(page, "view")
    for column in VIEW_COLUMNS:
        heading = page.locator(f'.ag-header-cell[col-id="{column}"]').get_by_text(
            column.split("`")[1], exact=True
        )
        heading.wait_for()
    cells = page.locator("[role=gridcell]").all_inner_texts()
    assert {"passed", "withheld", "no"} <= set(cells) and str(reviewed.epsilon) in cells
    assert page.get_by_text(
        "figures were computed on real rows"
    ).is_visible()  # the note's first line, without opening it
    assert (
        page.get_by_text("Agent versions").count() == 0
    )  # the menus are those for models of tables


def test_a_run_shows_verdict_epsilon_and_its_attacks(page: Any, reviewed: Reviewed) -> None:
    open_run(page, reviewed.published)
    picture(page, "run")
    assert page.get_by_role("heading", name="Released: no gate withheld the bundle").is_visible()
    assert page.get_by_text(f"{reviewed.epsilon:g} of 1").is_visible()
    assert page.get_by_role("row", name=f"epsilon_spent {reviewed.epsilon}").is_visible()
    page.get_by_role("link", name="attack: membership", exact=True).wait_for()
    page.go_back()
    open_run(page, reviewed.withheld)
    picture(page, "withheld")
    assert page.get_by_role(
        "heading", name="Withheld: a gate failed; the budget is spent"
    ).is_visible()


def test_printed_links_open_runs_and_no_pages_for_language_models(
    page: Any, reviewed: Reviewed
) -> None:
    latest = latest_runs(reviewed.pages, "synthdp")
    assert [name for name, _ in latest] == [reviewed.withheld, reviewed.published]
    page.goto("about:blank")
    page.goto(latest[1][1])
    page.get_by_role("heading", name=reviewed.published).wait_for()
    page.locator('a[href$="/models/tiny-synthetic/versions/1"]').wait_for()
    picture(page, "run-link")
    menu = page.locator("nav").first.inner_text()
    assert "Runs" in menu and "Judges" not in menu and "Playground" not in menu


def test_reports_and_descriptions_can_be_previewed(page: Any, reviewed: Reviewed) -> None:
    open_run(page, reviewed.published)
    page.get_by_role("tab", name="Artifacts").click()
    page.get_by_text("internal.html").click()
    report = page.frame_locator("iframe")
    report.get_by_role("heading", level=1).wait_for()
    picture(page, "internal-report")
    assert (
        "epsilon" in report.locator("main").inner_text()
        and report.locator("figure svg").count() >= 5
    )
    page.get_by_text("bundle", exact=True).click()
    page.get_by_text("report.html", exact=True).click()
    report.get_by_text("public report").first.wait_for()
    picture(page, "public-report")
    page.get_by_text("DATACARD.md").click()
    page.get_by_role("heading", name=re.compile("Data card", re.IGNORECASE)).first.wait_for()
    picture(page, "datacard")
    listed = page.locator("body").inner_text()
    assert {"croissant.json", "datapackage.json", "model.safetensors", "model.json"} <= set(
        listed.split("\n")
    )
    assert "synthetic.csv" not in listed and "synthetic.parquet" not in listed


def test_two_releases_are_compared(page: Any, reviewed: Reviewed) -> None:
    for run in (reviewed.published, reviewed.withheld):
        row = (
            page.get_by_role("row").filter(has=page.get_by_role("link", name=re.compile(run))).first
        )
        row.get_by_role("checkbox").first.check()
    page.get_by_role("button", name="Compare").click()
    page.get_by_text("Comparing 2 Runs from 1 Experiment").wait_for()
    page.get_by_text("epsilon_planned").first.wait_for()
    picture(page, "compare")
    text = page.locator("body").inner_text()
    assert (
        "passed" in text
        and "withheld" in text
        and reviewed.published in text
        and reviewed.withheld in text
    )
