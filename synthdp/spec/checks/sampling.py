"""Checks of the sampling section: columns that are drawn again after rows were chosen."""

from __future__ import annotations

from collections.abc import Iterator

from synthdp.spec.checks.problem import CrossProblem
from synthdp.spec.expressions.expressions import parse
from synthdp.spec.model import ReleaseSpec


def even(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """A column that is drawn again is read by no constraint."""
    read = {
        name
        for text in spec.constraints
        for e in [parse(text, spec.columns)[0]]
        if e
        for name in e.columns
    }
    for i, name in enumerate(spec.sampling.even):
        if name in read:
            yield CrossProblem(
                ("sampling", "even", i),
                f"a constraint reads column {name!r}, and rows are held to it as a whole",
                f"leave {name!r} out",
            )


def even_unused(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """Columns are drawn again only where rows were chosen."""
    if spec.sampling.even and not (spec.sampling.rake and spec.sampling.balance):
        off = "rake" if not spec.sampling.rake else "balance"
        yield CrossProblem(
            ("sampling", "even"),
            f"columns are drawn again after rows were chosen, which {off}: false turns off",
            f"delete {off}",
        )
