"""What `synthdp plan` shows of persons with visits: spends, the ledger, expected cost and quality.

No row is read, and nothing slow is imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from synthdp.audit.folder import MEASUREMENTS, TARGETS, AttackPower, power_of, table_releases
from synthdp.bundle.linked import as_one, expected_noise, foreseen, persons_of
from synthdp.bundle.linked_files import linked_files
from synthdp.data.visits import PERSONS, VisitFrame
from synthdp.errors import BudgetError
from synthdp.inference.answer import Answer
from synthdp.inference.visit_effects import check_queries, paid_results
from synthdp.ledger.connect import ledger_facts
from synthdp.ledger.entries import Balance
from synthdp.model.visits.effects import MeasuredEffect
from synthdp.model.visits.laws import SETTINGS
from synthdp.model.visits.planning import (
    Measured,
    arrows_of,
    measured_estimands,
    plan_linked,
    stand_in_pairs,
)
from synthdp.privacy.calibration import expected_fit_rows
from synthdp.privacy.linked import OnView
from synthdp.privacy.mechanisms.marginals import NoisyMarginals
from synthdp.privacy.mechanisms.sums import ProductSums
from synthdp.privacy.plan import ESTIMAND, ReleasePlan, estimand_purpose
from synthdp.release.plan_view import coin_notes
from synthdp.release.played import told_of_plays
from synthdp.report.prose import say_of_plan
from synthdp.report.sections import shares
from synthdp.spec.checks.linked import linked_traps
from synthdp.spec.model import LinkedSpec
from synthdp.spec.model.rules import linked_engine
from synthdp.verify.at_hand import standing

READ_SECONDS = {"memory": 1e-6, "arrow": 6e-7, "sql": 9e-7}
"""CPU seconds of a value that is read."""
MEMORY = {"memory": (700, 57e-6), "arrow": (1050, 8e-6), "sql": (1050, 8e-6)}
"""Megabytes at all times, and of a value that is read (benchmarks/results/linked_engines.csv)."""


def planned_linked(spec: LinkedSpec, spec_path: Path) -> tuple[dict[str, Any], Balance]:
    """`linked_facts`, whether or not the ledger allows the release, and what the ledger says."""
    out = Path("releases") / spec.dataset.id
    balance, others = standing(as_one(spec), spec_path, out)
    facts = linked_facts(spec, balance)
    return facts | {"warnings": [*others, *facts["warnings"]]}, balance


def linked_facts(
    spec: LinkedSpec, balance: Balance, *, plan: ReleasePlan | None = None
) -> dict[str, Any]:
    """Every look with its share of epsilon, its noise in persons, and the most rows of a person
    that it counts; what the ledger has; which files there will be.

    Raises:
        BudgetError: the accountant cannot resolve the spec's budget.
    """
    frame = VisitFrame.from_spec(spec)
    plan = plan_linked(spec, frame) if plan is None else plan
    check_queries(spec, frame)
    facts, known = plan.to_json(), spec.graph.mode != "predict"
    pairs = arrows_of(spec, frame).tables(frame)
    parts = shares([s["epsilon_alone"] for s in facts["spends"]], delta=plan.delta)
    spends = []
    for told, part, planned in zip(facts["spends"], parts, plan.spends, strict=True):
        look = planned.mechanism
        if isinstance(look, ProductSums):
            told |= {"share": part, "view": PERSONS, "rows_of_a_person": 1}
            spends.append(told | {"tables": look.size, "noise": look.sigma})
            continue
        assert isinstance(look, OnView)
        if isinstance(look.inner, NoisyMarginals):
            tables, noise = len(look.inner.tables), min(look.inner.sigmas)
        else:  # mode predict chooses later: noise of one table alone
            tables = len(pairs.get(planned.purpose, ())) if known else 0
            tables = 1 if planned.purpose.startswith(ESTIMAND) else tables
            noise = look.inner.noise_multiplier * max(1, tables) ** 0.5
        spends.append(
            told
            | {"share": part, "view": look.view, "rows_of_a_person": look.rows}
            | {"tables": tables or None, "noise": noise}
        )
    files, expected = [*linked_files(spec), "SHA256SUMS"], expected_noise(spec, plan)
    played = played_visits(spec, frame, plan)
    power = _power(spec, frame, plan) if spec.attacks.membership.enabled else None
    return facts | {
        "dataset": spec.dataset.id,
        "spends": spends,
        "at_most": spec.dataset.visits.at_most,
        "persons": persons_of(spec),
        "ledger": ledger_facts(as_one(spec), balance, plan.bound),
        "score_noise": expected,
        "estimands": played,
        "expected": _expected(spec, frame),
        "attack": power.to_json() if power else None,
        "notes": [
            *coin_notes(plan),
            *_moments(spec, frame, plan),
            *([power.told("persons")] if power else []),
        ],
        "files": files,
        "warnings": [*linked_traps(spec), *_doubtful(spec, expected, played)],
    }


def _moments(spec: LinkedSpec, frame: VisitFrame, plan: ReleasePlan) -> Iterator[str]:
    """How far noise moves means of numbers, where persons have half of the visits that are kept."""
    if plan.moments is not None:
        persons = expected_fit_rows(as_one(spec))
        each = 2.0 if frame.added[1] else 1.0
        alone = 1.96 * plan.moments.sigma / 2 * each / persons
        yield say_of_plan("moments", alone=alone, grouped=alone, names=())


def _values(spec: LinkedSpec, frame: VisitFrame, persons: int) -> float:
    """Values of both tables of so many persons, each with half of the visits that are kept."""
    visits = persons * frame.most / 2
    return persons * len(frame.modelled) + visits * (len(frame.of_visits) + 2)


def _fit_seconds(spec: LinkedSpec, frame: VisitFrame, persons: int) -> float:
    """Of the fit of a model of so many persons: its rounds draw persons, and fit laws on them. Of
    six fits, on the sets of `benchmarks.visits`, it said .8 to 1.9 times what they took.
    """
    fewest, most = SETTINGS.generated
    drawn = (SETTINGS.rounds + 1) * _values(spec, frame, min(max(persons, fewest), most))
    return 1.5 + 9e-7 * drawn


def _expected(spec: LinkedSpec, frame: VisitFrame) -> dict[str, float]:
    """Time and memory of this process, without evaluation and attacks."""
    persons, engine = spec.dataset.persons.rows.value, linked_engine(spec)
    read, written = (_values(spec, frame, n) for n in (persons, persons_of(spec)))
    seconds, (base, megabytes) = READ_SECONDS[engine], MEMORY[engine]
    fitted = _fit_seconds(spec, frame, persons)
    return {
        "cpu_seconds": round(seconds * read + fitted + 3e-7 * written + 5, 1),
        "memory_mb": round(base + megabytes * read + 24e-6 * written),
    }


def _power(spec: LinkedSpec, frame: VisitFrame, plan: ReleasePlan) -> AttackPower:
    """The membership attack of a spec, before it runs: models of so many persons, and tables."""
    attack, chosen = spec.attacks.membership, stand_in_pairs(spec, frame)
    tables = 0
    for planned in plan.spends:
        look = planned.mechanism
        if not isinstance(look, OnView):  # no attack reads sums
            continue
        known = look.inner.tables if isinstance(look.inner, NoisyMarginals) else None
        tables += len(chosen[planned.purpose] if known is None else known)
    each, releases = (
        _fit_seconds(spec, frame, attack.rows),
        table_releases(attack.pairs, tables=tables),
    )
    seconds = 2 * attack.pairs * TARGETS * each + 2 * releases * each / MEASUREMENTS
    return power_of(spec, tables=tables, cpu_seconds=seconds)


def _doubtful(
    spec: LinkedSpec, noise: Mapping[str, float], played: Iterable[Mapping[str, Any]]
) -> Iterator[str]:
    """A warning for each gate that noise alone is likely to fail, and for each estimand that plays
    often refuse.
    """
    for gate in spec.gates:
        if gate.at_most is not None and (made := noise.get(gate.metric, 0.0)) >= gate.at_most:
            yield (
                f"the gate on {gate.metric}, at most {gate.at_most:g}, is likely to withhold the"
                f" bundle after the budget is spent: noise alone is expected to make {made:.2g},"
                " and the upper end of the interval lies above it; declare fewer bins, or a larger"
                " epsilon"
            )
    for told in played:
        if told["likely_refused"]:
            yield (
                f"estimand {told['name']} is likely to be paid for and refused, in"
                f" {told['refused']:.0%} of plays on even tables: {told['why']}"
            )


# --- estimands, played before a release ---
#
# No row is read. Tables are even, of as many persons as are declared, each with half of the visits
# after the first that are kept, but that half of the outcomes of several steps stay as they are;
# the planned noise is added, and the functions that answer after a release look at them. The draws
# are public, and have a seed.
#
# Real tables are less even. Several steps need every stratum of both arms, and none is larger than
# where all are even: what is refused then is hopeless. Others may be told where rows crowd
# together.


def played_visits(spec: LinkedSpec, frame: VisitFrame, plan: ReleasePlan) -> list[dict[str, Any]]:
    """What plays say of each estimand, in plain JSON, as `played.played_estimands` does. What would
    have a hopelessly wide interval after several steps counts as refused, too.
    """
    if not spec.estimands:
        return []
    rng, plays = np.random.default_rng(0), list[tuple[Any, ...]]()
    known = measured_estimands(spec, frame)
    even = {p: own for p, own in foreseen(spec, plan).items() if p.startswith(ESTIMAND)}
    for purpose in (estimand_purpose(str(i + 1)) for i, e in enumerate(known) if _several(e)):
        (table,) = even[purpose]
        levels = table.counts.shape[1]
        stay = (np.eye(levels) * levels + 1) / 2  # outcome by outcome before
        stay = stay.reshape(1, levels, levels, *[1] * (table.counts.ndim - 3))
        even[purpose] = (replace(table, counts=table.counts * stay),)
    for _ in range(SETTINGS.plays):
        noisy = {
            purpose: tuple(
                replace(t, counts=t.counts + rng.normal(0, t.sigma, t.counts.shape)) for t in own
            )
            for purpose, own in even.items()
        }
        plays.append(paid_results(spec, frame, noisy, known))
    found = []
    for i, same in enumerate(zip(*plays, strict=True)):
        query, told = same[0].query, told_of_plays([result.figures for result in same])
        statistic = query.statistic if isinstance(same[0], Answer) else "effect"
        wide = max((f["half_width"] or 0.0 for f in told["figures"]), default=0.0)
        if _several(known[i]) and wide > 2 * SETTINGS.hopeless:
            why = f"an interval of ± {wide:.2f} tells nothing of shares that differ by 1 at most"
            told |= {"refused": 1.0, "likely_refused": True, "why": why}
        hopeless = _several(known[i]) and told["refused"] > 0.5
        head = {"name": str(i + 1), "text": query.text, "statistic": statistic}
        found.append(head | told | {"hopeless": hopeless})
    return found


def _several(measured: Measured) -> bool:
    return isinstance(measured, MeasuredEffect) and measured.steps > 1


def check_hopeless(played: Iterable[Mapping[str, Any]]) -> None:
    """Refuse to pay for several steps that even tables do not tell (`BudgetError`)."""
    for told in played:
        if told["hopeless"]:
            raise BudgetError(
                f"estimand {told['name']}, {told['text']}: refused in {told['refused']:.0%} of"
                f" plays on even tables: {told['why']}; nothing was read or spent",
                hint="ask of fewer steps, or of one, with fewer levels; keep fewer visits, or raise"
                " privacy.shares.estimands",
            )
