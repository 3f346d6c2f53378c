"""What a spec would give at other budgets: noise, quality, training and attacks.

No row is read, nothing is spent, and the ledger is not asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from synthdp.data.domain import Domain
from synthdp.errors import BudgetError, OutputError
from synthdp.model.planning import plan_for
from synthdp.privacy.dpsgd import DpSgd
from synthdp.privacy.mechanisms.marginals import AdaptiveMarginals, NoisyMarginals
from synthdp.privacy.plan import ReleasePlan
from synthdp.progress import advance
from synthdp.release.expectations import NONE_SEEN, expected_quality
from synthdp.release.played import noise_for, played_estimands
from synthdp.spec.load.loader import with_epsilon
from synthdp.spec.load.wording import up
from synthdp.spec.model import ReleaseSpec

MAX_EPSILONS = 8


def what_if(text: str, epsilons: Sequence[float]) -> list[dict[str, Any]]:
    """Facts of the spec in `text`, which has no mistakes, at each of `epsilons`, in plain JSON.

    Each has `epsilon`, and `refused` or all others: `right_at_most`, the most probable that anyone
    who knows every other row says rightly whether one unit was in the table, where either is as
    likely; `noise`, the least and the most of each purpose's tables; `noise_multipliers` of tables
    that are chosen later: k of them have noise of that times the root of k; `training`, its steps
    and noise multipliers; `quality`, as `ExpectedQuality` has it; and `estimands`, as they are
    played. What the spec leaves out is filled in for each epsilon.

    Raises:
        OutputError: epsilons that no spec may have, or too many of them.
    """
    check(epsilons)
    found = []
    for i, epsilon in enumerate(epsilons):
        advance(i, len(epsilons), f"epsilon {epsilon:g}")
        found.append({"epsilon": epsilon} | _at(with_epsilon(text, epsilon)))
    return found


def check(epsilons: Sequence[float], option: str = "what if") -> None:
    """Refuse epsilons of an option that no spec may have, and too many.

    Raises:
        OutputError: it names the first that is wrong, and what is allowed.
    """
    least, most = 0.01, 100.0  # of a spec
    allowed = f"give 1 to {MAX_EPSILONS} numbers from {least:g} to {most:g}, such as 0.5,1,2,4"
    for epsilon in epsilons:
        if not least <= epsilon <= most:
            raise OutputError(f"{option}: epsilon {epsilon:g} is not allowed", hint=allowed)
    if not 1 <= len(epsilons) <= MAX_EPSILONS:
        raise OutputError(f"{option}: {len(epsilons)} epsilons", hint=allowed)


def _at(spec: ReleaseSpec) -> dict[str, Any]:
    domain = Domain.from_spec(spec.columns)
    try:
        plan = plan_for(spec, domain)
    except BudgetError as error:
        return {"refused": error.message}
    trained = [(s.purpose, s.mechanism) for s in plan.spends if isinstance(s.mechanism, DpSgd)]
    return {
        "right_at_most": right_at_most(plan),
        "noise": {
            s.purpose: [min(s.mechanism.sigmas), max(s.mechanism.sigmas)]
            for s in plan.spends
            if isinstance(s.mechanism, NoisyMarginals)
        },
        "noise_multipliers": {
            s.purpose: s.mechanism.noise_multiplier
            for s in plan.spends
            if isinstance(s.mechanism, AdaptiveMarginals)
        },
        "training": [
            {"purpose": purpose, "steps": sgd.steps, "noise_multiplier": sgd.noise_multiplier}
            for purpose, sgd in trained
        ],
        "quality": expected_quality(spec, domain, plan).to_json(),
        "estimands": played_estimands(spec, domain, plan),
    }


def reaching(text: str, spec: ReleaseSpec, half_width: float) -> list[dict[str, Any]]:
    """What would make half of each estimand's widest 95% interval `half_width` at most, in plain
    JSON: its `name`, `text`, whether the plan has `reached` it, the `least` half width of the rows
    without noise, the `epsilon` with the same shares, and the `share` of estimands at the same
    epsilon; None where there is none. A contingency table has no intervals, and is left out.

    `text` is that of the `spec`. Stand-in rows are played (`release.played`).
    """
    domain = Domain.from_spec(spec.columns)
    plan, found = plan_for(spec, domain), list[dict[str, Any]]()
    for told, estimand in zip(played_estimands(spec, domain, plan), spec.estimands, strict=True):
        planned: Any = plan.estimands[told["name"]]
        if estimand.table:
            continue
        factor, least = noise_for(spec, domain, estimand, planned, half_width)
        said = {"name": told["name"], "text": told["text"], "least": least}
        said |= {"reached": factor is not None and factor >= 1, "epsilon": None, "share": None}
        if factor is not None and factor < 1:
            wanted, share = factor * planned.sigma, spec.privacy.shares.estimands
            ways: list[tuple[str, float, float, Callable[[float], ReleaseSpec]]] = [
                ("epsilon", spec.privacy.epsilon, 100.0, lambda e: with_epsilon(text, e)),
                ("share", share, 0.95, lambda s: _with_share(spec, s)),
            ]
            for what, now, most, changed in ways:
                said[what] = _at_noise(told["name"], wanted, now / factor, most, changed)
        found.append(said)
    return found


def _at_noise(
    name: str, wanted: float, value: float, most: float, changed: Callable[[float], ReleaseSpec]
) -> float | None:
    """The least value, to two digits, with which an estimand has the noise `wanted` or less."""
    for _ in range(4):  # noise goes nearly by 1 / value
        if value > most:
            return None
        spec = changed(value)
        try:
            planned: Any = plan_for(spec, Domain.from_spec(spec.columns)).estimands[name]
        except BudgetError:
            return None
        value *= planned.sigma / wanted
    digit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return min(most, round(math.ceil(value / digit - 0.01) * digit, 10))


def _with_share(spec: ReleaseSpec, share: float) -> ReleaseSpec:
    """The spec with another share of estimands, which all others make room for."""
    shares = spec.privacy.shares
    room = (1 - share) / (1 - shares.estimands)
    others = {n: x * room for n, x in shares.model_dump().items() if n != "estimands"}
    shares = shares.model_copy(update={**others, "estimands": share})
    privacy = spec.privacy.model_copy(update={"shares": shares})
    return spec.model_copy(update={"privacy": privacy})


def right_at_most(plan: ReleasePlan) -> float:
    """The highest probability that someone who knows every other row is right about one unit.

    The plan's delta at epsilon 0 bounds the advantage, true less false positive rate, of any test;
    of two equally likely worlds it then tells the right one with (1 + advantage) / 2.
    """
    (_, advantage), *_ = plan.profile
    return min(1.0, (1 + advantage) / 2)


def figures_table(options: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """The facts of `what_if` as a table in words: its head, with a column for each epsilon, and a
    row for each figure that any of them has.
    """
    columns = [dict(_figures(option)) for option in options]
    names = dict.fromkeys(name for column in columns for name in column)
    head = ["what if: epsilon", *(f"{option['epsilon']:g}" for option in options)]
    return head, [[name, *(column.get(name, "-") for column in columns)] for name in names]


def _figures(option: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if "refused" in option:
        yield "can be planned", "no"
    if "right_at_most" not in option:
        return
    yield (
        "right about one unit, all others known, at most",
        f"{up(100 * option['right_at_most'], digits=1)}%",
    )
    for purpose, (least, most) in option["noise"].items():
        yield f"noise: {purpose}", f"{least:.3g}" + (f"-{most:.3g}" if most > least else "")
    for purpose, multiplier in option["noise_multipliers"].items():
        yield f"noise multiplier: {purpose}", f"{multiplier:.3g}"
    for stage in option["training"]:
        name = f"noise multiplier: {stage['purpose']}, {stage['steps']} steps"
        yield name, f"{stage['noise_multiplier']:.3g}"
    quality = option["quality"]
    yield "single columns off by (TV)", f"{quality['tv1']:.2g}"
    hidden = max(c["hidden_rows"] for c in quality["columns"])
    yield "most rows of a hidden level", f"{hidden:.0f}"
    if quality["weakest_correlation"] is not None:
        weakest = quality["weakest_correlation"]
        yield "weakest correlation seen", "none" if weakest >= NONE_SEEN else f"{weakest:.2g}"
    for told in option["estimands"]:
        if told["statistic"] != "table":  # whose noise stands above
            yield from _of_figures(f"estimand {told['name']}", told)
    if quality["open_pairs"]:
        decidable = f"{quality['decidable_pairs']} of {quality['open_pairs']}"
        yield "pairs with a medium dependence that is seen", decidable


def _of_figures(name: str, told: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Of each of a few figures, or of the widest of many, and whether all are refused."""
    figures, many = told["figures"], len(told["figures"]) > 3
    widths = [figure["half_width"] or 0.0 for figure in figures]
    if many:
        figures = [{"group": None, "half_width": max(widths), "refused": told["refused"]}]
    for figure in figures:
        of = name if len(figures) == 1 else f"{name}, {figure['group'] or 'over all rows'}"
        wide = f"{figure['half_width']:.2g}" if figure["half_width"] else "-"
        wide += " [{:.2g} to {:.2g}]".format(*ends) if (ends := figure.get("between")) else ""
        yield f"{of}: 95% interval, ±" + (f" of the widest of {len(widths)}" if many else ""), wide
        yield f"{of}: refused{' as a whole' if many else ''}, in plays", f"{figure['refused']:.0%}"
