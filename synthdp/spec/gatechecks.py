"""Checks of gates: that their figure is computed at all, and that so few models could both pass and fail them.

A gate that nothing could fail protects nobody, and one that chance alone fails costs a whole budget: both are mistakes in a spec.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf, log, sqrt

from synthdp.spec.crossproblem import CrossProblem
from synthdp.spec.models import Boolean, Categorical, Gate, Ordinal, ReleaseSpec

JUDGED = ("tv1", "tv2", "tv3", "tstr_auc", "tstr_ratio")
CLASSIFIED = ("tstr_auc", "tstr_ratio")
TPR_MODELS = 100  # without the target, that it takes to see a false-positive rate of 1%
TAIL, DECLARED = 0.025, 3  # of one side of a 95% interval; attacks that share the 5% of error of bounds on epsilon


def computed(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """Gates on figures that are never computed."""
    evaluation = spec.evaluation
    for i, gate in enumerate(spec.gates):
        where = ("gates", i, "metric")
        if gate.metric in JUDGED and not evaluation.enabled:
            yield CrossProblem(
                where, f"{gate.metric} is never computed: evaluation is not enabled", "set evaluation.enabled: true, or delete the gate"
            )
        elif gate.metric in JUDGED and evaluation.holdout == 0:
            yield CrossProblem(where, f"{gate.metric} needs test rows, and evaluation.holdout is 0", "e.g. holdout: 0.2")
        elif gate.metric in CLASSIFIED and not evaluation.targets:
            yield CrossProblem(
                where, f"{gate.metric} needs classifiers, and evaluation.targets is empty", "name at least one column in evaluation.targets"
            )
        if gate.attacked and not spec.attacks.membership.enabled:
            yield CrossProblem(where, f"{gate.metric} is never computed: the membership attack is not enabled", "enable it, or delete the gate")


def charged(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """Gates on scores that are not paid for, or that this spec has not."""
    categories = [t for t in spec.evaluation.targets if isinstance(spec.columns.get(t), Boolean | Categorical | Ordinal)]
    for i, gate in enumerate(spec.gates):
        where = ("gates", i, "metric")
        if gate.charged and not spec.evaluation.charged:
            yield CrossProblem(where, f"{gate.metric} is never computed: no score is charged", "set evaluation.disclosure: charged")
        elif gate.metric == "tstr_accuracy_charged" and not categories:
            hint = "name a categorical, ordinal or boolean column in evaluation.targets"
            yield CrossProblem(where, f"{gate.metric} needs a target with categories, and evaluation.targets names none", hint)
        elif gate.metric == "tv2_charged" and len(spec.columns) < 2:
            yield CrossProblem(where, f"{gate.metric} needs two columns, and there is one", "bound tv1_charged")


def decidable(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """Gates on an attack that so few models cannot decide."""
    pairs = spec.attacks.membership.pairs
    for i, gate in enumerate(spec.gates):
        if not gate.attacked or not spec.attacks.membership.enabled:
            continue
        problem = _undecidable(gate, pairs - pairs // 2, spec)
        if problem:
            yield CrossProblem(("gates", i, "at_most"), *problem)


def _undecidable(gate: Gate, models: int, spec: ReleaseSpec) -> tuple[str, str] | None:
    """What is wrong with a gate on an attack with `models` test models in each world, and what to do."""
    bound, told = gate.at_most or 0.0, f"{models} test models in each world (half of attacks.membership.pairs)"
    if gate.attacked == "epsilon_lower":
        claim, most = spec.privacy.epsilon, provable(models, spec.privacy.delta)
        if bound > claim:
            return f"got {bound:g}, above the claim of epsilon {claim:g}", f"a lower bound above the claim refutes it: at most {claim:g}"
        if most <= bound:
            need = _least_pairs(lambda n: provable(n, spec.privacy.delta) > bound)
            return f"nothing can fail it: {told} prove at most epsilon {most:.2f}", _raise(need)
    if gate.attacked == "advantage_upper" and bound < (least := chance_upper(models)):
        need = _least_pairs(lambda n: chance_upper(n) <= bound)
        return f"chance fails it: of no leak at all {told} say up to {least:.2f}", f"allow more; {_raise(need)}"
    if gate.attacked == "tpr_upper":
        if models < TPR_MODELS:
            message = f"a true-positive rate at 1% false positives needs {TPR_MODELS} test models in each world, there are {models}"
            return message, f"set attacks.membership.pairs: {2 * TPR_MODELS}"
        if bound < (least := 1 - TAIL ** (1 / models)):
            return f"nothing can pass it: of no hit at all {told} say up to {least:.3f}", "allow more, or set more attacks.membership.pairs"
    return None


def provable(models: int, delta: float) -> float:
    """The largest lower bound on epsilon from so many models, by attacks that are always right (limits of Clopper and Pearson)."""
    rate = (TAIL / DECLARED) ** (1 / models)
    return log((rate - delta) / (1 - rate)) if rate > delta else -inf


def chance_upper(models: int) -> float:
    """Upper limit of the advantage of an attack that guesses and was neither lucky nor unlucky: two shares of a half, normal approximation."""
    return sqrt(2) * 1.96 * sqrt(0.25 / models)


def _raise(pairs: int | None) -> str:
    return "no number of pairs is enough" if pairs is None else f"set attacks.membership.pairs to at least {pairs}"


def _least_pairs(enough: Callable[[int], bool]) -> int | None:
    """The fewest pairs, in steps of twenty, whose test models are `enough`; None where no allowed number is."""
    return next((2 * models for models in range(10, 5001, 10) if enough(models)), None)
