"""Checks of `compute.engine`: what it reads, and what of a spec would ask it for more than counts
and sums.
"""

from __future__ import annotations

from collections.abc import Iterator

from synthdp.spec.addresses import is_pattern, is_url
from synthdp.spec.checks.problem import CrossProblem
from synthdp.spec.model import IdUnit, ParquetSource, ReleaseSpec, SqlSource, TableEstimand
from synthdp.spec.model.rules import engine_of, tables_only

ENGINE = ("compute", "engine")


def engine(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """The engine reads the source, and units of it as they are."""
    source, name = spec.dataset.source, engine_of(spec.dataset.source, spec.compute)
    path = getattr(source, "path", "")
    if name == "memory":
        if isinstance(source, ParquetSource) and (is_url(path) or is_pattern(path)):
            message = "memory reads a local file or folder, and the source is elsewhere"
            yield CrossProblem(ENGINE, message, "set it to arrow or dask")
        return
    if not isinstance(source, SqlSource if name == "sql" else ParquetSource):
        kind = "sql" if name == "sql" else "parquet"
        yield CrossProblem(
            ENGINE,
            f"{name} counts a source of kind {kind}, and this one is of kind {source.kind}",
            f"leave it out, or declare a source of kind {kind}",
        )
    elif getattr(source, "levels_only", False):
        message = f"levels_only keeps levels in memory, and engine {name} keeps nothing"
        yield CrossProblem(("dataset", "source", "levels_only"), message, "leave one of them out")
    if name == "arrow" and isinstance(spec.dataset.privacy_unit, IdUnit):
        yield CrossProblem(
            ("dataset", "privacy_unit"),
            "arrow counts each part of the table by itself, and the rows of an id may lie in many",
            "set compute.engine: dask, which brings the rows of an id together, or memory",
        )


def values(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """Nothing asks an engine for values; nor one that gives counts alone for sums or rows."""
    name = engine_of(spec.dataset.source, spec.compute)
    if name == "memory":
        return
    message, elsewhere = f"engine {name} gives no values", "or compute.engine: memory"
    searched = spec.graph.mode == "learn" and spec.graph.algorithm == "rcit_pc"
    if searched and spec.graph.orient_share:
        yield CrossProblem(
            ("graph", "orient_share"),
            f"{message}, and rcit_pc orients links by them",
            f"set it to 0, use measured_pc, {elsewhere}",
        )
    if name == "sql":
        yield from _sums(spec)
        yield from _rows(spec)


def _sums(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """What would have a database add up values."""
    for i, estimand in enumerate(spec.estimands):
        if not isinstance(estimand, TableEstimand):
            yield CrossProblem(
                ("estimands", i, "kind"),
                "engine sql counts levels, and this estimand adds up values",
                "use kind: table; or export the rows to Parquet for engine arrow or dask, which"
                " add them up; or set compute.engine: memory",
            )


def _rows(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """What would fetch the levels of all rows from a database that is to give counts."""
    message = "engine sql gives counts, and no rows"
    if spec.evaluation.enabled:
        yield CrossProblem(
            ("evaluation", "enabled"),
            f"{message}, and judging reads some",
            "set it to false; or export the rows to Parquet for engine arrow or dask, which draw"
            " some; or set compute.engine: memory",
        )
    if not tables_only(spec) and _trains_on_all(spec):
        yield CrossProblem(
            ENGINE,
            f"{message}, and this spec trains on all rows",
            "let noisy tables be the model: graph.mode: predict, without a share for train",
        )
    if spec.attacks.membership.enabled:
        yield CrossProblem(
            ("attacks", "membership", "enabled"),
            f"{message}, and the attack reads them",
            "set attacks.membership.enabled: false",
        )
    if spec.graph.mode == "learn" and spec.graph.algorithm != "measured_pc":
        yield CrossProblem(
            ("graph", "algorithm"),
            f"{message}, and {spec.graph.algorithm} looks at them",
            "use measured_pc, or compute.engine: memory",
        )


def _trains_on_all(spec: ReleaseSpec) -> bool:
    """Whether a training sees every row, and not a secret sample of them."""
    wanted = spec.synthesizer.sample
    return wanted is None or wanted >= spec.dataset.rows.value
