"""What `synthdp plan` shows: spends, the ledger before and after, expected cost and quality.

No row is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from synthdp.errors import BudgetError
from synthdp.ledger.connect import ledger_facts
from synthdp.ledger.entries import Balance
from synthdp.report.prose import say_of_plan
from synthdp.spec.checks.checks import traps
from synthdp.spec.model import ATTACK_METRICS, ReleaseSpec
from synthdp.spec.model.rules import engine_of, tables_only

if TYPE_CHECKING:
    from synthdp.privacy.plan import ReleasePlan
    from synthdp.release.expectations import ColumnProspect, ExpectedQuality

SECONDS_A_VALUE = {"arrow": 2e-8, "dask": 7e-8}
"""CPU seconds of this process for a value of a pass (benchmarks/results/engines.csv)."""


def spec_warnings(spec: ReleaseSpec) -> list[str]:
    """What is valid in a spec and will disappoint: `validate` tells it. `plan` tells more."""
    found = traps(spec)
    if spec.graph.mode in ("learn", "validate"):
        with suppress(BudgetError):  # `plan` says so
            found += _quality(spec, _plan(spec)).warnings
    return found


def plan_facts(
    spec: ReleaseSpec,
    balance: Balance,
    *,
    warnings: Sequence[str] = (),
    plan: ReleasePlan | None = None,
    counted: Callable[[ColumnProspect], object] | None = None,
) -> dict[str, Any]:
    """The plan, what the ledger has (`balance`) and will have, and about what a release costs and
    how good it will be. `warnings` are told with those of the spec; `plan` is its own, if known;
    `counted` hears of each column before all else is known.

    Raises:
        BudgetError: the accountant cannot resolve the spec's budget.
        SpecError: no row of the domain fulfils a constraint.
    """
    from synthdp.data.domain import Domain
    from synthdp.release.expectations import gate_warnings
    from synthdp.release.played import played_estimands

    plan = _plan(spec) if plan is None else plan
    quality, power = _quality(spec, plan, counted), None
    if spec.attacks.membership.enabled:
        from synthdp.audit.folder import attack_power

        power = attack_power(spec, Domain.from_spec(spec.columns), plan)
    rows = spec.sampling.rows or spec.dataset.rows.value
    estimands = played_estimands(spec, Domain.from_spec(spec.columns), plan)
    drawn = say_of_plan("many_rows", rows=rows)
    costs = {"expected": _expected(spec, plan), "attack": power.to_json() if power else None}
    ledger = ledger_facts(spec, balance, plan.bound)
    return _planned_spends(plan) | {
        "dataset": spec.dataset.id,
        "ledger": ledger,
        "expected": costs["expected"],
        "quality": quality.to_json(),
        "estimands": estimands,
        "attack": costs["attack"],
        "rows_of_one": _rows_of_one(spec),
        "notes": [
            *_engine(spec, plan),
            *_moments(spec, plan),
            *_notes(spec, plan),
            *([say_of_plan("waves", waves=spec.waves, ledger=ledger)] if "waves" in ledger else []),
            *coin_notes(plan),
            *([attack_left_out(spec, costs) or str(power)] if power else []),
        ],
        "warnings": [
            *warnings,
            *traps(spec),
            *((drawn,) if spec.sampling.rows is None and rows > 50_000_000 else ()),
            *quality.warnings,
            *gate_warnings(spec, plan, quality.tv1),
            *(say_of_plan("estimand_refused", told=e) for e in estimands if e["likely_refused"]),
        ],
    }


def coin_notes(plan: ReleasePlan) -> list[str]:
    """What epsilon counts on where units are held out."""
    return [] if plan.epsilon_told is None else [say_of_plan("secret_coin", plan=plan)]


def attack_left_out(spec: ReleaseSpec, facts: Mapping[str, Any]) -> str | None:
    """Says that a release leaves out the attack, by the `facts` of its plan: one that nobody asked
    for, and that takes longer than the release.
    """
    attack, seconds = facts["attack"], facts["expected"]["cpu_seconds"]
    asked = "membership" in spec.attacks.model_fields_set
    asked |= any(gate.metric in ATTACK_METRICS for gate in spec.gates)
    if asked or attack is None or attack["cpu_seconds"] <= seconds:
        return None
    return say_of_plan("attack_left_out", attack=attack["cpu_seconds"], release=seconds)


def forecast(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What of a plan is held against what came, as a ledger keeps it: in four digits."""
    from synthdp.bundle.certificate import MAX_EXPECTED

    figures = [
        {"estimand": told["name"], "group": figure["group"]}
        | {name: _short(figure[name]) for name in ("half_width", "refused")}
        for told in facts["estimands"]
        if told["statistic"] != "table"
        for figure in told["figures"]
    ]
    return {"tv1": _short(facts["quality"]["tv1"]), "figures": figures[:MAX_EXPECTED]}


def _short(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.4g}")


def _expected(spec: ReleaseSpec, plan: ReleasePlan) -> dict[str, float]:
    """Time and memory of this process, without evaluation and attacks: 10 ms for a step of training
    and more by its size, 7 us to draw a row of 14 columns (predict: 3), and 6.4 s for all the rest,
    beside what `_modelling` takes. It was .74 to 1.24 of what ten specs of all modes took, by which
    it was chosen. `SECONDS_A_VALUE` is measured on tables of 20 columns.
    """
    columns, steps = len(spec.modelled), spec.synthesizer.steps if spec.privacy.shares.train else 0
    size = spec.synthesizer.batch * columns * spec.synthesizer.hidden
    training = steps * (0.01 + 1.2e-8 * size)
    rows = spec.sampling.rows or spec.dataset.rows.value
    drawn = rows * spec.sampling.oversample * columns
    engine = engine_of(spec.dataset.source, spec.compute)
    looked_at = spec.dataset.rows.value * columns * _passes(spec, plan)
    counting = looked_at * SECONDS_A_VALUE.get(engine, 0.0)
    drawing = drawn * (2e-7 if spec.graph.mode == "predict" else 5e-7)
    return {
        "cpu_seconds": round(training + drawing + counting + 6.4 + _modelling(spec, plan), 1),
        "memory_mb": round(700 + drawn * 24e-6),
    }


def _modelling(spec: ReleaseSpec, plan: ReleasePlan) -> float:
    """CPU seconds of mode predict for smoothing tables, fitting their model and choosing rows:
    measured on generated tables of 10 to 80 columns.
    """
    from synthdp.data.domain import Domain
    from synthdp.graph.discovery.measuring import SCREEN
    from synthdp.graph.predict import PREDICTED, planned_pairs
    from synthdp.privacy.plan import INTERACTIONS
    from synthdp.release.expectations import counted_domain

    if spec.graph.mode != "predict":
        return 0.0
    fine = Domain.from_spec(spec.columns)
    domain = counted_domain(fine, plan)
    pairs = len(planned_pairs(domain, plan, spec.evaluation.targets))
    bins = sum(0.01 + 1.3e-4 * column.levels for column in fine.columns if column.ranged)
    smoothing = bins * (2 + (SCREEN in plan.graph))
    smoothing += 8e-4 * pairs * sum(name in plan.graph for name in PREDICTED)
    parents = min(5.0, pairs / len(domain))  # of more pairs fewer show a dependence
    fitting = 1e-3 * sum(domain.sizes) * (2 + parents) + 1.2 * (INTERACTIONS in plan.graph)
    rows = spec.sampling.rows or spec.dataset.rows.value
    tables = min(math.comb(len(domain), 2), 512 + pairs) * min(1.0, rows / 8000)
    choosing = 2.4e-3 * tables * spec.sampling.balance + 7e-7 * rows * len(domain)
    return smoothing + fitting + choosing


def _engine(spec: ReleaseSpec, plan: ReleasePlan) -> Iterator[str]:
    """Where the table is counted, and what that takes by the declared number of rows."""
    from synthdp.graph.discovery.measuring import SCREEN

    name = engine_of(spec.dataset.source, spec.compute)
    if name == "memory":
        return
    rows, columns = spec.dataset.rows.value, len(spec.modelled)
    passes = _passes(spec, plan)
    yield say_of_plan("passes", name=name, passes=passes, rows=rows, columns=columns)
    screens = SCREEN in plan.graph
    if _fetches(spec) or screens:
        wide = max(column.level_count for column in spec.modelled.values()) > 256
        who = "the screen of pairs" if screens else "training"
        yield say_of_plan("fetches", who=who, gigabytes=rows * columns * (1 + wide) * 1e-9)


def _moments(spec: ReleaseSpec, plan: ReleasePlan) -> Iterator[str]:
    """How far noise moves the means of numbers: of all rows, and of the smallest average group."""
    from synthdp.privacy.calibration import expected_fit_rows
    from synthdp.privacy.mechanisms.sums import NUMBER

    if plan.moments is None:
        return
    levels = {part for product in plan.moments.products for part in product if part[1] != NUMBER}
    names = sorted({name for name, _ in levels})
    most = max((sum(name == own for own, _ in levels) for name in names), default=1)
    alone = 1.96 * plan.moments.sigma / 2 / expected_fit_rows(spec)
    yield say_of_plan("moments", alone=alone, grouped=alone * most, names=names)


def _notes(spec: ReleaseSpec, plan: ReleasePlan) -> Iterator[str]:
    from synthdp.data.domain import Domain
    from synthdp.graph.discovery.measuring import SCREEN
    from synthdp.graph.predict import planned_pairs
    from synthdp.model.interactions import SETTINGS as INTERACTION_SETTINGS
    from synthdp.model.interactions import screened_targets
    from synthdp.privacy.calibration import sample_rate
    from synthdp.release.expectations import counted_domain

    if spec.dataset.privacy_unit.whom:
        yield spec.dataset.privacy_unit.whom
    if spec.prior is not None:
        yield say_of_plan("prior", name=spec.prior.name)
    if spec.graph.mode == "predict":
        yield say_of_plan("predicts")
        domain = counted_domain(Domain.from_spec(spec.columns), plan)
        counted = len(planned_pairs(domain, plan, spec.evaluation.targets))
        if (pairs := math.comb(len(domain), 2)) > counted:
            screens = SCREEN in plan.graph
            yield say_of_plan("left_out", counted=counted, pairs=pairs, screens=screens)
        trained = "noisy tables make the model, and DP-SGD trains it further"
        alone = "noisy tables alone make the model: nothing is trained by DP-SGD"
        yield alone if tables_only(spec) else trained
        if targets := screened_targets(spec):
            yield say_of_plan("interactions", targets=targets, share=INTERACTION_SETTINGS.share)
    rate = sample_rate(spec)
    if rate < 1 and not tables_only(spec):
        yield say_of_plan("secret_sample", rate=rate, rows=spec.synthesizer.sample)


def _rows_of_one(
    spec: ReleaseSpec, means: Sequence[int] = (2, 4, 8), most: Sequence[int] = (1, 2, 3, 5, 10)
) -> list[dict[str, Any]]:
    """What `max_rows` costs where ids are the unit: the noise of tables over that of 1, and where
    ids have a mean of so many rows, the part of rows that stays.

    Rows of an id are taken to be geometric: of a mean of m, the first k hold 1 - (1 - 1/m)^k. The
    spec does not tell how many rows an id has, and the table is not asked.
    """
    unit = spec.dataset.privacy_unit
    return [
        {"max_rows": k, "noise": k, "kept": {str(m): 1 - (1 - 1 / m) ** k for m in means}}
        for k in sorted({*most, unit.max_rows})
        if unit.kind == "id"
    ]


def _passes(spec: ReleaseSpec, plan: ReleasePlan) -> int:
    """How often an engine reads the table."""
    judged = (1 + len(spec.estimands)) * spec.evaluation.enabled
    together = max(0, len(spec.estimands) + (plan.moments is not None) - 1)
    return 1 + len(plan.spends) - _fetches(spec) - together + judged


def _fetches(spec: ReleaseSpec) -> bool:
    trains, sample = spec.privacy.shares.train > 0, getattr(spec.synthesizer, "sample", None)
    engine = engine_of(spec.dataset.source, spec.compute)
    return trains and sample is None and engine not in ("memory", "sql")


def _plan(spec: ReleaseSpec) -> ReleasePlan:
    from synthdp.data.domain import Domain
    from synthdp.model.planning import plan_for

    return plan_for(spec, Domain.from_spec(spec.columns))


def _quality(
    spec: ReleaseSpec,
    plan: ReleasePlan,
    counted: Callable[[ColumnProspect], object] | None = None,
) -> ExpectedQuality:
    from synthdp.data.domain import Domain
    from synthdp.release.expectations import expected_quality

    return expected_quality(spec, Domain.from_spec(spec.columns), plan, counted)


def _planned_spends(plan: ReleasePlan) -> dict[str, Any]:
    """Every planned spend with its event, its epsilon alone, its part in the cost of all, and what
    it serves.
    """
    from synthdp.report.sections import shares

    facts = plan.to_json()
    parts = shares([s["epsilon_alone"] for s in facts["spends"]], delta=plan.delta)
    return facts | {
        "spends": [
            s | {"share": part, "serves": list(spend.serves)}
            for s, part, spend in zip(facts["spends"], parts, plan.spends, strict=True)
        ]
    }
