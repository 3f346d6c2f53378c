"""Checks of derived columns: they are computed from modelled columns of their kind.

No part of the spec that looks at rows of the source may name them.
"""

from __future__ import annotations

from collections.abc import Iterator

from synthdp.spec.checks.problem import CrossProblem
from synthdp.spec.expressions.operands import calculation
from synthdp.spec.model import Column, ReleaseSpec, Unread, derived_of


def derived(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """What is wrong with a derived column."""
    for name, column in spec.columns.items():
        if (text := derived_of(column)) is not None:
            yield from _problems(name, column, text, spec)


def _problems(name: str, column: Column, text: str, spec: ReleaseSpec) -> Iterator[CrossProblem]:
    where = ("columns", name)
    computed, mistakes = calculation(text, spec.columns)
    yield from (
        CrossProblem((*where, "derived"), f"character {m.at}: {m.message}", m.hint)
        for m in mistakes
    )
    for field in {"bins", "edges", "spikes"} & column.model_fields_set:
        if getattr(column, field):
            yield CrossProblem(
                (*where, field),
                f"{field} say how a column is modelled, and {name!r} is computed",
                f"delete {field}",
            )
    if computed is None or any(isinstance(spec.columns[n], Unread) for n in computed.columns):
        return
    if computed.kind != column.operand:
        message = (
            f"computes a {computed.kind}, and a column of type {column.type} holds"
            f" {column.operand}s"
        )
        yield CrossProblem(
            (*where, "derived"),
            message,
            f"use type {'datetime' if computed.kind == 'date' else 'number'}",
        )
    absent = [n for n in computed.columns if spec.columns[n].missing]
    if not column.missing and (absent or computed.divides):
        why = f"{absent[0]!r} may be missing" if absent else "it divides by what may be 0"
        yield CrossProblem(
            (*where, "derived"),
            f"{why}, and {name!r} is then missing too",
            f"set columns.{name}.missing: true",
        )
