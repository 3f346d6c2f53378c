"""A release on simulated rows: what answers and the synthetic table would be like.

The rows come from a random network over the declared columns and arrows
(`audit.plan.simulated_twin`): no real row is read, no ledger is opened, nothing is written. They
take the whole road of a release with noise as it will be, except constraints, which random rows
seldom fulfil.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from synthdp.audit.plan import simulated_twin
from synthdp.data.column_domain import ColumnDomain
from synthdp.data.domain import Domain
from synthdp.data.encoding import decode, operand_values
from synthdp.errors import GateError, OutputError, QueryError
from synthdp.evaluate.fidelity import fidelity
from synthdp.graph.level_groups import groups_of
from synthdp.inference.answer import answer_tables
from synthdp.inference.estimands import estimand_results, exact_sums
from synthdp.inference.figures import Figure, Rows
from synthdp.model.estimands import estimand_name, tables_and_sums
from synthdp.model.fit import fit
from synthdp.model.planning import plan_for
from synthdp.model.sampling import sample
from synthdp.privacy.calibration import expected_fit_rows
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.plan import ReleasePlan
from synthdp.privacy.session import Rehearsal
from synthdp.privacy.table import Table
from synthdp.progress import advance, unheard
from synthdp.release.played import with_noise
from synthdp.release.tracked import graph_figures
from synthdp.spec.expressions.parsed import quoted
from synthdp.spec.expressions.query import parse_query
from synthdp.spec.model import ReleaseSpec

Values = Mapping[str, npt.NDArray[np.float64]]


@dataclass(frozen=True)
class Answers:
    """Answers of one kind, held against the simulated rows that were counted.

    Of `asked` questions, none of dates, the tables answer `answered`. `bias` is the mean of
    estimate less truth, and `error` of its size: in shares of rows, for means in shares of the
    column's range. `covered` is how many 95% intervals of the counted rows hold the truth.
    """

    kind: str
    asked: int
    answered: int
    bias: float | None
    error: float | None
    covered: int


def rehearse(spec: ReleaseSpec) -> dict[str, Any]:
    """Facts of one release on simulated rows, in plain JSON.

    `graph` counts arrows by provenance, or what was validated by status. `tv1` and `tv2` are the
    mean total variation of one-way and of two-way tables between the
    released and the simulated rows, on the groups of levels that the tables use. `answers` are of
    columns alone and of pairs, as `synthdp answer` gives them (`Answers`); `estimands` are what the
    spec pays for (`rehearsed_estimands`). `refused` says why, if the graph of the spec is refuted
    by rows that have it, and holds nothing else.

    Raises:
        BudgetError: the plan cannot be made.
    """
    spec = spec.model_copy(update={"constraints": ()})
    domain, rng = Domain.from_spec(spec.columns), np.random.default_rng(0)  # of simulated rows
    codes = simulated_twin(spec, domain, bundle=None, rng=rng)[: round(expected_fit_rows(spec))]
    frame = decode(domain, codes, rng=rng)
    plan, table = plan_for(spec, domain), Table(codes, frame, np.zeros(len(codes), bool), {})
    rehearsal = Rehearsal(codes, domain, plan, frame=frame)
    try:
        fitted = fit(rehearsal, spec, domain, progress=advance)
    except GateError as error:
        return {"rows": len(codes), "refused": error.message}
    tables, drawn = fitted.tables.value, sample(fitted, spec, rng=rng, progress=unheard).value
    groups = groups_of(tables, domain)
    near = fidelity(groups.of(codes), groups.of(drawn), groups.coarse, triples=0)
    values = {
        column.name: operand_values(
            column, codes[:, i], frame[column.name] if column.ranged else None
        )
        for i, column in enumerate(domain.columns)
    }
    graph = fitted.graph
    return {
        "rows": len(codes),
        "graph": graph_figures(graph.graph, graph.validation),
        "tv1": near.tv1,
        "tv2": near.tv2,
        "answers": [asdict(found) for found in _answers(spec, domain, tables, values)],
        "estimands": rehearsed_estimands(spec, domain, plan, table, rng),
    }


def _answers(
    spec: ReleaseSpec, domain: Domain, tables: Sequence[NoisyTable], values: Values
) -> Iterator[Answers]:
    undated = [column for column in domain.columns if column.step_seconds is None]
    conditions = {c.name: _condition(c, values[c.name]) for c in undated}
    pairs = list(combinations(conditions, 2))
    asked = pairs[:: max(1, math.ceil(len(pairs) / 200))]  # at most so many
    numeric = [column.name for column in undated if column.ranged]
    kinds = {
        "means": [f"mean({quoted(name)})" for name in numeric],
        "shares": [f"share({condition})" for condition in conditions.values()],
        "pair shares": [f"share({conditions[a]} and {conditions[b]})" for a, b in asked],
    }
    for kind, questions in kinds.items():
        judged = [j for q in questions if (j := _judged(q, spec, domain, tables, values))]
        errors = [error for error, _ in judged]
        yield Answers(
            kind,
            asked=len(questions),
            answered=len(judged),
            bias=float(np.mean(errors)) if errors else None,
            error=float(np.mean(np.abs(errors))) if errors else None,
            covered=sum(inside for _, inside in judged),
        )


def _judged(
    text: str, spec: ReleaseSpec, domain: Domain, tables: Sequence[NoisyTable], values: Values
) -> tuple[float, bool] | None:
    """Estimate less truth, and whether the interval holds the truth; None without an answer."""
    found: Figure | None = None
    with suppress(QueryError, OutputError):
        query = parse_query(text, spec.columns)
        answer = answer_tables(query, spec, domain, tables)
        found = answer.figures[0]
    if found is None or found.estimate is None or found.of_rows is None:
        return None
    span = 1.0
    if query.column is not None:
        column = domain[query.column]
        truth, span = float(np.nanmean(values[query.column])), column.upper - column.lower
    else:
        assert query.condition is not None  # of every share
        true, false = query.condition.truth(values)
        truth = true.sum() / max(1, true.sum() + false.sum())
    low, high = (float(end) for end in found.of_rows)
    return (float(found.estimate) - truth) / span, bool(low <= truth <= high)


def _condition(column: ColumnDomain, values: npt.NDArray[np.float64]) -> str:
    """Some of the rows in the words of a question: of a number about half, from an edge on."""
    if column.truth:
        return quoted(column.name)
    if not column.ranged:
        return f"{quoted(column.name)} in ({column.labels[0]!r},)"
    known = values[~np.isnan(values)]
    middle = float(np.median(known)) if len(known) else column.lower
    edge = min(column.edges, key=lambda e: abs(e - middle))
    return f"{quoted(column.name)} >= {edge:.12g}"


# --- estimands ---


def rehearsed_estimands(
    spec: ReleaseSpec, domain: Domain, plan: ReleasePlan, table: Table, rng: np.random.Generator
) -> list[dict[str, Any]]:
    """For each figure of each estimand but tables: its `text`, `group` and `truth`, and of 100
    draws of the noise the share `answered`, the `bias` (estimate less truth), the share `covered`
    of intervals of the counted rows that hold the truth, and the median `width` of the intervals of
    the population, all None where nothing was answered.

    Sums of `table` are taken without noise, whatever the plan: for simulated rows only.
    """
    exact, per_unit = exact_sums(spec, domain, table), Rows.of_spec(spec).per_unit
    asked = {estimand_name(i): estimand for i, estimand in enumerate(spec.estimands)}
    planned = tables_and_sums(plan.estimands)[1]
    truths = estimand_results(spec, domain, exact, Rows(per_unit=per_unit))
    drawn = [
        estimand_results(
            spec,
            domain,
            {n: with_noise(sums, asked[n], planned[n], rng) for n, sums in exact.items()},
            Rows(per_unit=per_unit),
        )
        for _ in range(100)
    ]
    return [
        {"name": estimand_name(i), "text": truth.text, "statistic": truth.statistic}
        | _judged_estimand(figure, [results[i].figures[at] for results in drawn])
        for i, truth in enumerate(truths)
        for at, figure in enumerate(truth.figures)
    ]


def _judged_estimand(truth: Figure, drawn: Sequence[Figure]) -> dict[str, Any]:
    """The figures of all draws against the exact one."""
    told = [f for f in drawn if isinstance(f.estimate, float) and f.interval and f.of_rows]
    found: dict[str, Any] = {"group": truth.group, "truth": truth.estimate}
    found |= {"answered": len(told) / len(drawn)}
    if not told or not isinstance(truth.estimate, float):
        return found | dict.fromkeys(("bias", "covered", "width"))
    estimates = np.array([f.estimate for f in told], dtype=np.float64)
    ends = np.array([f.of_rows for f in told], dtype=np.float64)
    wide = np.array([f.interval for f in told], dtype=np.float64)
    inside = (ends[:, 0] <= truth.estimate) & (truth.estimate <= ends[:, 1])
    return found | {
        "bias": float(estimates.mean() - truth.estimate),
        "covered": float(inside.mean()),
        "width": float(np.median(wide[:, 1] - wide[:, 0])),
    }
