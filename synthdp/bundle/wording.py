"""Words and numbers of the bundle's texts."""

from __future__ import annotations

import re

from synthdp.spec.model import Column, Dataset, derived_of


def plain(text: str) -> str:
    """A steward's words on one line, safe inside a Markdown table or sentence.

    No markup, link or picture in them is drawn.
    """
    words = " ".join(text.split()).replace("\\", "\\\\").replace("<", "&lt;").replace("`", "'")
    return re.sub(r"([|*_\[\]~])", r"\\\1", words)


def code(text: str) -> str:
    """A line of a Markdown code block, where nothing is markup."""
    return "    " + " ".join(text.split())


def title_of(dataset: Dataset) -> str:
    """The synthetic table's title, which says once that it is synthetic."""
    title = dataset.title or dataset.id
    return title if title.rstrip(" .)").lower().endswith("synthetic") else f"{title} (synthetic)"


def about_column(column: Column) -> str:
    """What a column holds, and what it is computed from; empty where neither was stated."""
    derived = derived_of(column)
    said = [
        column.description,
        None if derived is None else f"computed from other columns: {derived}",
    ]
    return "; ".join(s for s in said if s)
