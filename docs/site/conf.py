"""The documentation as a site: `make site` builds it in build/site, and fails at a broken link.

The pages are Markdown that a code host shows, too. So this file alone knows their order, and what
becomes of links to files outside `docs/`: files are copied into the site, folders are named.
"""

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1]
project = html_title = "synthdp"
extensions = ["myst_parser", "sphinx_copybutton"]
root_doc = "index"
exclude_patterns = ["site"]
html_theme = "furo"
html_show_copyright = False
html_copy_source = False
html_show_sphinx = False
myst_heading_anchors = 4  # headings are linked as on a code host
NAVIGATION = {
    "Start": "quickstart commands python",
    "Hold a table": "steward running publishing guides/one-question guides/epsilon guides/graphs"
    " guides/size guides/several-rows guides/visits guides/waves guides/gates guides/pipelines"
    " guides/desk reference/spec",
    "Judge a release": "reviewer privacy-model threat-model known-limits advisories papers symbols",
    "Use a bundle": "consumer inference gallery",
    "Evidence": "benchmarks benchmarks/tables benchmarks/graphs benchmarks/answers"
    " benchmarks/speed dashboard",
    "Inside": "architecture extending",
}
TREES = "\n".join(
    f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{pages.replace(' ', chr(10))}\n```\n"
    for caption, pages in NAVIGATION.items()
)


def as_in_the_site(app: Any, page: str, source: list[str]) -> None:
    """Mend links that leave `docs/`, and put the navigation below the first page."""
    folder = (DOCS / page).parent

    def mended(link: re.Match[str]) -> str:
        target = (folder / link["path"]).resolve()
        if target.is_dir():
            return f"`{target.name}/`"
        return (
            link[0] if target.is_relative_to(DOCS) else f"[{link['text']}](<path:{link['path']}>)"
        )

    links = r"(?<!!)\[(?P<text>[^\]]+)\]\((?P<path>(?:\.\./)+[^)\s#]*?(?:\.md|/[a-z]+))\)"
    source[0] = re.sub(links, mended, source[0]) + ("\n" + TREES if page == root_doc else "")


def setup(app: Any) -> None:
    """Sphinx asks for it."""
    app.connect("source-read", as_in_the_site)
