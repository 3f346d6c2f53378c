"""The proof in `ledger.ledger`, by exact enumeration: reservations chosen in the light of earlier
results stay under the cap.

A steward asks for one (epsilon, delta) after another, each chosen from all that was released
before. Each granted request is spent in full by the worst mechanism there is, which tells with
chance delta which table it saw, and else answers one bit by randomised response at epsilon
[Kairouz, Oh, Viswanath, "The Composition Theorem for Differential Privacy", arXiv:1311.0776v4,
Theorem 3.4 and its dominating mechanism]. All transcripts are listed with their exact chances on
both tables.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from synthdp.errors import BudgetError
from synthdp.ledger import Ledger

CAP = (1.2, 0.05)
ROUNDS = 3

Transcript = tuple[tuple[str, float, float], ...]  # answers, and what was asked for each
Steward = Callable[[Transcript], tuple[float, float]]
Laws = Iterator[tuple[float, float]]


def worst(epsilon: float, delta: float) -> dict[str, tuple[float, float]]:
    """Chances of each answer on the two tables."""
    high, low = ((1 - delta) * math.exp(e) / (1 + math.exp(epsilon)) for e in (epsilon, 0))
    return {
        "the first": (delta, 0.0),
        "1": (high, low),
        "2": (low, high),
        "the second": (0.0, delta),
    }


def transcripts(
    steward: Steward, granted: Callable[[Transcript, float, float], bool], past: Transcript = ()
) -> Laws:
    """Chances of every transcript of `ROUNDS` requests; a refused request releases a constant."""
    if len(past) == ROUNDS:
        yield 1.0, 1.0
        return
    epsilon, delta = steward(past)
    answers = worst(epsilon, delta) if granted(past, epsilon, delta) else {"refused": (1.0, 1.0)}
    for answer, (first, second) in answers.items():
        if max(first, second) > 0:
            for later in transcripts(steward, granted, (*past, (answer, epsilon, delta))):
                yield first * later[0], second * later[1]


def leaked(laws: Laws, epsilon: float) -> float:
    """The delta of those transcripts at `epsilon`, the larger of both directions."""
    first, second = np.array(list(laws)).T
    assert first.sum() == pytest.approx(1) and second.sum() == pytest.approx(1)
    return float(
        max(
            np.maximum(a - math.exp(epsilon) * b, 0).sum()
            for a, b in ((first, second), (second, first))
        )
    )


def rest(past: Transcript) -> tuple[float, float]:
    """What is left of the cap."""
    paid = [(e, d) for answer, e, d in past if answer != "refused"]
    return CAP[0] - sum(e for e, _ in paid), CAP[1] - sum(d for _, d in paid)


STEWARDS: dict[str, Steward] = {
    "the same each time": lambda past: (0.7, 0.03),
    "all that is left, half by half": lambda past: (rest(past)[0] / 2, rest(past)[1] / 2),
    "more after one answer than after the other": lambda past: (
        (0.7, 0.03) if past and past[-1][0] == "1" else (0.4, 0.01)
    ),
    "all that is left once an answer repeats": lambda past: (
        rest(past) if len(past) > 1 and past[-1][0] == past[-2][0] else (0.15, 0.01)
    ),
    "greedy after a refusal": lambda past: (
        (0.9, 0.0) if not past or past[-1][0] == "1" else (0.5, 0.04)
    ),
    "epsilon or delta, as the last answer says": lambda past: (
        (0.5, 0.0) if not past or past[-1][0] == "2" else (0.0, 0.025)
    ),
}


@pytest.mark.parametrize("name", STEWARDS)
def test_adaptively_chosen_reservations_leak_no_more_than_the_cap(
    name: str, ledger: Ledger
) -> None:
    runs: dict[Transcript, str] = {}

    def granted(past: Transcript, epsilon: float, delta: float) -> bool:
        """Each course of events is a dataset of its own, with all its reservations made anew."""
        dataset = runs.setdefault((*past, ("?", epsilon, delta)), f"course-{len(runs)}")
        wanted = [(e, d) for answer, e, d in past if answer != "refused"] + [(epsilon, delta)]
        try:
            for i, (e, d) in enumerate(wanted):
                ledger.check(dataset, epsilon=e, delta=d, cap=CAP)
                if i < len(wanted) - 1:
                    ledger.reserve(dataset, f"{dataset}-{i}", epsilon=e, delta=d, cap=CAP, body={})
        except BudgetError:
            assert i == len(wanted) - 1, "refused what it granted before"
            return False
        return True

    assert leaked(transcripts(STEWARDS[name], granted), CAP[0]) <= CAP[1] * (1 + 1e-9)


def all_granted(past: Transcript, epsilon: float, delta: float) -> bool:
    return True


def each_within_the_cap(past: Transcript, epsilon: float, delta: float) -> bool:
    """A ledger that forgets what was spent before."""
    return epsilon <= CAP[0] and delta <= CAP[1]


def charged_by_averages(past: Transcript, epsilon: float, delta: float) -> bool:
    """A ledger that counts half of what is spent."""
    paid = [(e, d) for answer, e, d in past if answer != "refused"] + [(epsilon, delta)]
    return sum(e for e, _ in paid) / 2 <= CAP[0] and sum(d for _, d in paid) / 2 <= CAP[1]


@pytest.mark.parametrize("granted", [all_granted, each_within_the_cap, charged_by_averages])
def test_a_ledger_that_grants_more_leaks_more(
    granted: Callable[[Transcript, float, float], bool],
) -> None:
    assert leaked(transcripts(STEWARDS["the same each time"], granted), CAP[0]) > 1.2 * CAP[1]
