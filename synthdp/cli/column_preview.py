"""The levels that a spec makes of each column, before any row is read."""

from __future__ import annotations

from typing import Any

from synthdp.data.domain import Domain
from synthdp.spec.model import ReleaseSpec

MAX_LABELS = 8  # of a column, in text


def column_facts(spec: ReleaseSpec) -> list[dict[str, Any]]:
    """Name, type and levels of each column, in order."""
    return [
        {"column": c.name, "type": c.type, "levels": c.levels, "labels": list(c.labels)}
        for c in Domain.from_spec(spec.columns).columns
    ]


def column_rows(facts: list[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    """The facts as rows of text; of many levels the first and the last are shown."""
    return [(f["column"], f["type"], str(f["levels"]), _some(f["labels"])) for f in facts]


def _some(labels: list[str]) -> str:
    if len(labels) <= MAX_LABELS:
        return " | ".join(labels)
    return " | ".join([*labels[: MAX_LABELS - 4], "...", *labels[-3:]])
