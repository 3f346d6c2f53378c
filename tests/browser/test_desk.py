"""The desk as its user meets it: by keyboard, by paste, small and dark, and with hostile names.

Set SYNTHDP_SCREENSHOTS to a folder to keep pictures.
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.api.test_reviews import make_finished
from tests.browser.test_reports import SIDEWAYS
from tests.desk.test_draft import CLINIC, OPEN
from tests.desk.test_serve import Running, started
from tests.malicious.test_names import HOSTILE

pytestmark = pytest.mark.check
PATIENCE = 180_000  # ms, on a busy machine


@contextmanager
def on_page(
    browser: Any, tmp_path: Path, text: str, *, width: int = 1280, scheme: str = "light"
) -> Iterator[tuple[Any, Running]]:
    """The page of a spec, or of a finished release: nothing else is asked for, no fault is told."""
    spec = tmp_path / ("spec.yaml" if text else HOSTILE[1])
    _ = spec.write_text(text) if text else make_finished(spec)
    with started(spec, *([] if text else ["--ledger", str(spec / "ledger.db")])) as desk:
        size = {"width": width, "height": 900}
        context = browser.new_context(viewport=size, color_scheme=scheme)
        page, asked = context.new_page(), []
        page.set_default_timeout(PATIENCE)
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: asked.append(f"console: {message.text}"))
        page.on("dialog", lambda dialog: asked.append(f"dialog: {dialog.message}"))
        page.goto(desk.way_in.as_uri())
        page.locator("section").first.wait_for()
        yield page, desk
        page.evaluate("clearTimeout(timer)")
        if folder := os.environ.get("SYNTHDP_SCREENSHOTS"):
            name = f"desk-{os.environ['PYTEST_CURRENT_TEST'].split('::')[1][5:25]}"
            page.screenshot(path=f"{folder}/{name}-{width}-{scheme}.png", full_page=True)
        context.close()
        own = (f"http://127.0.0.1:{desk.port}/", desk.way_in.as_uri(), "data:,")
        assert [url for url in asked if not url.startswith(own)] == []


def settled(page: Any) -> None:
    """The forecast is whole."""
    page.locator("#status").get_by_text("guessing: 50%").wait_for()
    page.locator("progress").wait_for(state="detached")


def check_by_axe(page: Any) -> None:
    """By the browser's own protocol, since the page's policy runs no script of others."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page.evaluate(Path(axe.__file__).with_name("axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("() => axe.run()")["violations"]
    assert [(v["id"], [n["html"][:90] for n in v["nodes"][:3]]) for v in found] == []


def cell(page: Any, column: str, field: str) -> Any:
    return page.get_by_label(f"{column}: {field}", exact=True)


def test_a_draft_is_filled_in_by_keyboard(browser: Any, tmp_path: Path) -> None:
    with on_page(browser, tmp_path, OPEN) as (page, desk):
        assert page.url == f"http://127.0.0.1:{desk.port}/"  # without the token
        assert page.get_by_text("First say who is protected.").first.is_visible()
        page.get_by_label("each row").focus()
        page.keyboard.press("Space")
        page.get_by_label("What is one unit?").fill("one stay")
        page.keyboard.press("Tab")
        page.get_by_label("Is it exact (public)").focus()
        page.keyboard.press("ArrowDown")
        cell(page, "age", "type").focus()
        page.keyboard.type("integer")
        page.keyboard.press("Tab")
        cell(page, "age", "lower").fill("0")
        page.keyboard.press("Tab")  # which writes, and the page is shown anew meanwhile
        page.keyboard.type("110")
        page.keyboard.press("Enter")
        settled(page)
        assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "age: upper"
        text = desk.spec.read_text()
        assert re.search(r"lower: 0\b", text) and re.search(r"upper: 110\b", text)
        assert "fill_in" not in text and "# of the code book" in text
        page.get_by_role("button", name="undo").click()
        page.get_by_text("upper: missing").wait_for()
        assert "upper" not in desk.spec.read_text()


def test_a_block_of_a_spreadsheet_fills_cells(browser: Any, tmp_path: Path) -> None:
    with on_page(browser, tmp_path, CLINIC.read_text()) as (page, desk):
        for column in ("age", "bmi"):
            cell(page, column, "lower").wait_for()
        block = '20\t99\t8\t\t\tx\r\n\t\t\t\tyes\t"1=girl\n2 = boy"\r\n'
        page.evaluate(
            "([id, text]) => { const data = new DataTransfer(); data.setData('text', text);"
            " document.getElementById(id).dispatchEvent(new ClipboardEvent('paste',"
            " {clipboardData: data, bubbles: true, cancelable: true})); }",
            ['at:["columns","age","lower"]', block],
        )
        page.get_by_text("+   age: {type: integer, lower: 20, upper: 99").wait_for()
        told = desk.spec.read_text()
        assert "lower: 20, upper: 99, unit: years, bins: 8" in told
        assert 'missing: true, value_labels: {"1": girl, "2": boy}' in told


def test_what_another_program_wrote_is_kept(browser: Any, tmp_path: Path) -> None:
    with on_page(browser, tmp_path, CLINIC.read_text()) as (page, desk):
        other = CLINIC.read_text().replace("upper: 60", "upper: 70")
        desk.spec.write_text(other)
        cell(page, "age", "upper").fill("99")
        page.keyboard.press("Enter")
        page.get_by_text("changed by another program; nothing was written").wait_for()
        assert cell(page, "age", "upper").get_attribute("aria-errormessage") == "said"
        assert desk.spec.read_text() == other
        page.get_by_role("button", name="read it again").click()
        page.get_by_role("button", name="read it again").wait_for(state="detached")
        assert cell(page, "bmi", "upper").input_value() == "70"


@pytest.mark.parametrize(
    ("text", "width", "scheme"),
    [(CLINIC.read_text(), 1280, "light"), (CLINIC.read_text(), 390, "dark"), (OPEN, 1280, "dark"),
     (OPEN, 390, "light")],
    ids=["wide", "small and dark", "draft, dark", "draft, small"],
)  # fmt: skip
def test_axe_is_content(browser: Any, tmp_path: Path, text: str, width: int, scheme: str) -> None:
    with on_page(browser, tmp_path, text, width=width, scheme=scheme) as (page, _):
        if text == OPEN:
            page.get_by_label("all rows of one id").check()
            cell(page, "age", "type").select_option("integer")
            page.get_by_text("lower: missing").wait_for()
        else:
            settled(page)
        assert page.evaluate(SIDEWAYS)[0] <= 0, page.evaluate(SIDEWAYS)
        check_by_axe(page)


def test_hostile_names_are_text(browser: Any, tmp_path: Path) -> None:
    wrong = "{type: integer, lower: 9, upper: 5}"
    columns = "".join(f"  {json.dumps(name)}: {wrong}\n" for name in HOSTILE)
    text = CLINIC.read_text().replace("  bmi:", f"{columns}  bmi:", 1)
    with on_page(browser, tmp_path, text) as (page, _):
        heads = page.locator("#columns tbody th").all_text_contents()
        assert [name for name in HOSTILE if name not in heads] == []
        cell(page, HOSTILE[0], "upper").fill("10")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="undo").wait_for()
        assert page.locator("script, img, iframe").count() == 1  # the page's own script


def test_arrows_are_drawn_by_keyboard_alone(browser: Any, tmp_path: Path) -> None:
    with on_page(browser, tmp_path, CLINIC.read_text()) as (page, desk):
        page.get_by_role("button", name="age acts on sex", exact=True).focus()
        page.keyboard.press("ArrowDown")  # over sex itself, which no arrow leads to
        page.keyboard.press("ArrowRight")
        held = "document.activeElement.getAttribute('aria-label')"
        assert page.evaluate(held) == "smoker acts on bmi"
        page.keyboard.press("ArrowUp")
        page.keyboard.press("Space")
        page.get_by_text("+     - sex -> bmi").wait_for()
        assert page.evaluate(held) == "sex acts on bmi"
        page.get_by_role("button", name="bmi acts on age", exact=True).focus()
        page.keyboard.press("Space")
        page.get_by_text("the graph has a cycle: age -> bmi -> age").wait_for()
        assert "bmi -> age" not in desk.spec.read_text()
        page.locator("#causes img").wait_for()
        check_by_axe(page)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark"), (390, "light"),
                                               (1280, "dark")])  # fmt: skip
def test_a_release_is_decided_on(browser: Any, tmp_path: Path, width: int, scheme: str) -> None:
    """Names and texts of it are hostile, its report is shown in a frame that runs nothing, and axe
    finds no fault.
    """
    with on_page(browser, tmp_path, "", width=width, scheme=scheme) as (page, desk):
        write = page.get_by_role("button", name="write the decision")
        write.wait_for()
        assert page.locator("#banner").is_visible() and write.get_attribute("aria-disabled")
        page.frame_locator("iframe").get_by_text("Confidential").first.wait_for()
        text = "one of 2 runs: chosen by how its figures look?"
        assert page.locator("legend").filter(has_text=text).is_visible()
        assert page.get_by_text(f"Unit that is protected: {HOSTILE[1]}").is_visible()
        page.get_by_label("Decided by").focus()
        page.keyboard.type("A. Reviewer")
        page.keyboard.press("Tab")
        page.keyboard.type("the board agreed")
        page.keyboard.press("Tab")
        page.keyboard.press("Space", delay=1000)  # publish; while it is down, an answer comes
        page.get_by_text("Still open: red line not answered: audits").wait_for()
        for name in ("audits", "unit", "declarations", "same table", "selection"):
            page.locator(f"fieldset:has(legend:text-matches('^{name}:')) input").first.focus()
            page.keyboard.press("Space")
            page.get_by_text(f"red line not answered: {name}").wait_for(state="detached")
        assert page.evaluate(SIDEWAYS)[0] <= 0, page.evaluate(SIDEWAYS)
        check_by_axe(page)
        write.focus()
        page.keyboard.press("Enter")
        page.get_by_text("decided: yes, by A. Reviewer on").wait_for()
        assert "A. Reviewer" in (desk.spec / "decision.md").read_text()
        assert page.locator("script, img, iframe").count() == 2  # the page's own, and the report
