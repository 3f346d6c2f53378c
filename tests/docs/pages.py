"""Markdown pages as tests need them: their code blocks, links, headings, and the text that
remains.
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    ROOT / "attacks" / "README.md",
    ROOT / "specs" / "data" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
_FENCE = re.compile(
    r"(?:^<!-- slow: (?P<slow>[^\n]+) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A code block: its language, its text, the line where it begins, and whether only slow tests
    run it.
    """

    page: Path
    language: str
    text: str
    line: int
    slow: bool

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line} ({self.language})"


def blocks(page: Path) -> list[Block]:
    """Every fenced block of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            page,
            m["language"],
            m["text"],
            text.count("\n", 0, m.start("text")),
            m["slow"] is not None,
        )
        for m in _FENCE.finditer(text)
    ]


def prose(page: Path) -> str:
    """The page without its blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def inline_code(page: Path) -> list[str]:
    """What stands between backticks in the text."""
    return re.findall(r"(?<!`)`([^`\n]+)`(?!`)", prose(page))


def links(page: Path) -> list[str]:
    """Targets of links and pictures."""
    return re.findall(
        r"\]\(([^)\s]+)\)",
        re.sub(r"`[^`\n]*`", "", prose(page).replace("[`", "[").replace("`]", "]")),
    )


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
