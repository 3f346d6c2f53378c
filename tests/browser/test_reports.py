"""Both reports as a reader meets them: no network, no script, no sideways scrolling, readable in
the dark, by keyboard and by ear.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow  # half a minute of a browser

NAMES = ("internal", "public")
WIDTHS = (360, 800, 1440)
# The corner of the page that a reader would have to scroll sideways for, and parts that stick out
# of what holds them.
SIDEWAYS = """() => [document.documentElement.scrollWidth - document.documentElement.clientWidth,
  [...document.querySelectorAll('figure svg, figure img, .card, p, h1, h2, h3')].filter(e => {
    const box = e.getBoundingClientRect(), holder = e.closest('.scroll, figure.wide');
    return !holder && box.width > 0 && box.right > document.documentElement.clientWidth + 1;
  }).map(e => e.tagName + ' ' + (e.textContent || e.alt || '').slice(0, 40))]"""
CLIPPED = """() => [...document.querySelectorAll('figure svg')].flatMap(svg => { const frame = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].filter(t => { const b = t.getBoundingClientRect();
    return b.width && (b.left < frame.left - 2 || b.right > frame.right + 2 || b.top < frame.top - 2 || b.bottom > frame.bottom + 2); })
    .map(t => t.textContent); })"""  # noqa: E501


@contextmanager
def opened(
    browser: Any,
    path: Path,
    *,
    width: int = 1280,
    scheme: str = "light",
    scripts: bool = True,
    unfold: bool = False,
) -> Iterator[tuple[Any, list[str]]]:
    """The page in a window, and every address that it asked for beside its own."""
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
        java_script_enabled=scripts,
        bypass_csp=scripts,
    )
    page, asked = context.new_page(), []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: asked.append(f"console: {message.text}"))
    page.goto(path.as_uri())
    page.wait_for_load_state("networkidle")
    if unfold:
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    yield page, [url for url in asked if url != path.as_uri() and not url.startswith("data:")]
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", NAMES)
def test_it_fits_the_screen_and_asks_for_nothing(
    browser: Any, pages: dict[str, Path], name: str, width: int, scheme: str
) -> None:
    with opened(browser, pages[name], width=width, scheme=scheme, unfold=True) as (page, asked):
        beyond, sticking_out = page.evaluate(SIDEWAYS)
        assert beyond <= 0 and sticking_out == []
        assert page.evaluate(CLIPPED) == []
        assert asked == []
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (dark == "rgb(255, 255, 255)") == (scheme == "light")


@pytest.mark.parametrize("name", NAMES)
def test_it_is_whole_without_scripts(browser: Any, pages: dict[str, Path], name: str) -> None:
    with opened(browser, pages[name], scripts=False) as (page, asked):
        text = page.locator("main").inner_text()
        assert (
            "Appendix: every number" in text
            and page.locator("figure svg").count() >= 5
            and asked == []
        )
        assert page.locator("table").count() > 8 and page.locator("script").count() == 0


@pytest.mark.parametrize("name", NAMES)
def test_headings_landmarks_and_names(browser: Any, pages: dict[str, Path], name: str) -> None:
    with opened(browser, pages[name]) as (page, _):
        assert (
            page.locator("h1").count()
            == page.locator("main").count()
            == page.locator("header").count()
            == 1
        )
        levels = [
            int(tag[1])
            for tag in page.evaluate(
                "[...document.querySelectorAll('h1,h2,h3,h4')].map(h => h.tagName)"
            )
        ]
        assert levels[0] == 1 and all(b - a <= 1 for a, b in pairwise(levels))
        for selector in ("svg[role=img]", "img"):
            names = page.evaluate(
                f"[...document.querySelectorAll('{selector}')].map(e =>"
                " e.getAttribute('aria-label') || e.getAttribute('alt') || '')"
            )
            assert names and all(len(n) > 20 for n in names)
        links = page.evaluate(
            "[...document.querySelectorAll('nav a')].map(a =>"
            " document.querySelector(a.getAttribute('href')) !== null)"
        )
        assert len(links) >= 9 and all(links)
        assert page.evaluate("document.documentElement.lang") == "en" and page.title().endswith(
            f"{name} report"
        )


@pytest.mark.parametrize("name", NAMES)
def test_the_keyboard_reaches_links_and_whatever_scrolls(
    browser: Any, pages: dict[str, Path], name: str
) -> None:
    with opened(browser, pages[name], width=360, unfold=True) as (page, _):
        unreachable = page.evaluate(
            "[...document.querySelectorAll('*')].filter(e => ['auto',"
            " 'scroll'].includes(getComputedStyle(e).overflowX) && e.scrollWidth > e.clientWidth &&"
            " e.tabIndex < 0).map(e => e.outerHTML.slice(0, 80))"
        )
        assert unreachable == []
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.matches('nav a')")
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none"


@pytest.mark.parametrize("unfold", [False, True])
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "light"), (1280, "dark")])
@pytest.mark.parametrize("name", NAMES)
def test_axe_finds_no_fault(
    browser: Any, pages: dict[str, Path], name: str, width: int, scheme: str, unfold: bool
) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright",
        reason="axe is not installed: pip install axe-playwright-python",
    )
    with opened(browser, pages[name], width=width, scheme=scheme, unfold=unfold) as (page, _):
        found = axe.Axe().run(page).response["violations"]
        assert {v["id"]: [n["html"][:120] for n in v["nodes"]][:3] for v in found} == {}


@pytest.mark.parametrize("name", NAMES)
def test_it_prints(browser: Any, pages: dict[str, Path], name: str) -> None:
    with opened(browser, pages[name], scheme="dark") as (page, _):
        page.emulate_media(media="print")
        assert (
            page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        )
        assert not page.locator("nav").is_visible()
        pdf = page.pdf(format="A4")
        assert pdf.startswith(b"%PDF") and 2 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 8
        for mark in (".key i", ".card"):  # browsers print no backgrounds unless they are told to
            kept = f"getComputedStyle(document.querySelector('{mark}')).printColorAdjust"
            assert page.evaluate(kept) == "exact"


def test_bad_news_that_is_folded_on_a_screen_is_open_on_paper(
    browser: Any, pages: dict[str, Path]
) -> None:
    with opened(browser, pages["public"]) as (page, _):
        news = [page.locator(f"#{fold} p").first for fold in ("small", "pairs", "learning")]
        assert not any(part.is_visible() for part in news)
        page.emulate_media(media="print")
        assert all(part.is_visible() for part in news)
        assert page.locator("#words dt").first.is_visible()
        assert not page.locator("#appendix td").first.is_visible()
        assert page.get_by_text("On paper:").is_visible()


@pytest.mark.parametrize("name", NAMES)
def test_the_first_screen_has_the_verdicts(browser: Any, pages: dict[str, Path], name: str) -> None:
    with opened(browser, pages[name]) as (page, _):
        seen = page.evaluate(
            "[...document.querySelectorAll('.card .figure')].filter(e =>"
            " e.getBoundingClientRect().bottom < 900).length"
        )
        assert seen >= 4
        open_figures = page.evaluate(
            "[...document.querySelectorAll('figure')].filter(e => !e.closest('details')).length"
        )
        assert open_figures <= 9
