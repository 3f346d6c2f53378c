"""One-run audit of DP-SGD: canaries that are in or out by independent coins, in one training.

Each canary is a row whose clipped gradient has exactly the clipping norm, along a direction that no
other row uses (`directions`). The canaries are added to whatever other rows are trained on. The
adversary sees the noisy gradients and scores every canary by its likelihood ratio. It guesses "in"
for the best scores and "out" for the worst, and abstains on the others. `one_run` gives the
conclusion from the number of right guesses.

The number of guesses is chosen beforehand, on simulated canaries. Two statements are made, each
wrong with probability at most 2.5%: the (epsilon, delta) bound, and the p-value under the claimed
curve. The alarm is raised when the bound exceeds the claim or the p-value is below 2.5%. The
probability of a false alarm is therefore at most 5%.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from synthdp.audit.mechanisms import directions
from synthdp.audit.mechanisms.f_curve import AuditResult, CurveClaim, Scores
from synthdp.audit.mechanisms.games import HALF_NOISE
from synthdp.audit.mechanisms.one_run import curve_allows, epsilon_lower_bound
from synthdp.data.encoding import Codes
from synthdp.privacy.dpsgd.settings import DpSgd
from synthdp.privacy.dpsgd.training import PerExampleLoss, Progress
from synthdp.privacy.noise import Randomness, Streams, fresh_generator

CANARIES = 5000
SIGNIFICANCE = 0.025  # of each of the two statements
SHARES = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)  # of the canaries that may be guessed
SIMULATED, REPEATS = 20_000, 100  # scores in each world, and audits made of them

Coins = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Guesses:
    """Numbers of guesses, for the bound on epsilon and for the test of the curve."""

    bound: int
    curve: int


def audit_canaries(
    settings: DpSgd,
    *,
    canaries: int = CANARIES,
    rows: Codes | None = None,
    module: PerExampleLoss | None = None,
    delta: float = 1e-5,
    progress: Progress = lambda done, total: None,
    fresh: Callable[[], Randomness] = Streams.fresh,
) -> AuditResult:
    """Train once with `canaries` canaries among `rows` `[rows, columns]` and test the claim.

    The claim is that of one row under add/remove. `module` gives the rows their losses; without one
    they have no gradient. If `rows` are private, so is the result: the caller keeps it
    Confidential. `progress` gets the number of steps done and of all steps.

    Raises:
        ValueError: too few canaries to guess any, or more than there are directions.
    """
    begun = time.monotonic()
    if canaries < round(1 / SHARES[0]):
        raise ValueError(f"{canaries} canaries; at least {round(1 / SHARES[0])} are needed")
    claim = CurveClaim.of([settings.event(1)], delta=delta, adjacency="add_remove")
    honest, faulty = (SimulatedCanaries.of(settings, noise_factor=factor) for factor in (1.0, 0.5))
    guesses = choose_guesses(claim, canaries, honest=honest, faulty=faulty)
    coins = fresh_generator().random(canaries) < 0.5
    others = np.zeros((0, 0), dtype=np.uint16) if rows is None else rows
    scores = _train(settings, coins, others, module, fresh(), progress)
    lower, alarm = judge_canaries(scores, coins, claim, guesses)
    return AuditResult(
        mechanism=settings.name,
        method=f"one run, {canaries} canaries in the gradient",
        unit_rows=1,
        runs=canaries,
        epsilon_claimed=claim.epsilon,
        delta=delta,
        epsilon_lower=lower,
        epsilon_provable=_bound(canaries, guesses.bound, guesses.bound, delta),
        fault=HALF_NOISE,
        detects_fault=faulty.detection_rate(claim, canaries, guesses),
        alarm=alarm,
        seconds=time.monotonic() - begun,
    )


def judge_canaries(
    scores: Scores, coins: Coins, claim: CurveClaim, guesses: Guesses
) -> tuple[float, bool]:
    """Lower bound on epsilon, and whether to raise the alarm; scores and coins are `[canaries]`."""
    canaries = len(coins)
    right = right_guesses(scores, coins, guesses.bound)
    lower = _bound(canaries, guesses.bound, right, claim.delta)
    right = right_guesses(scores, coins, guesses.curve)
    possible = _possible(claim, canaries, guesses.curve, right)
    return lower, lower > claim.epsilon or not possible


def right_guesses(scores: Scores, coins: Coins, guesses: int) -> int:
    """Number of right ones among `guesses` guesses: the better half "in", the worse half "out"."""
    order = np.argsort(scores, kind="stable")
    half = guesses // 2
    guessed_out, guessed_in = order[:half], order[len(order) - (guesses - half) :]
    return int(np.sum(~coins[guessed_out]) + np.sum(coins[guessed_in]))


@dataclass(frozen=True)
class SimulatedCanaries:
    """Scores of canaries that are out and in, as the accountant models them."""

    out: Scores
    inside: Scores

    @classmethod
    def of(cls, settings: DpSgd, *, noise_factor: float) -> SimulatedCanaries:
        """Canaries of a training whose noise is multiplied by `noise_factor`."""

        def ratio(seen: Scores) -> Scores:
            return directions.log_likelihood(seen, settings=settings, rows=1)

        rng = fresh_generator()
        out, inside = (
            directions.simulate(
                settings,
                rows=rows,
                sign=1,
                runs=SIMULATED,
                noise_factor=noise_factor,
                rng=rng,
                ratio=ratio,
            )
            for rows in (0, 1)
        )
        return cls(out, inside)

    def draw(self, canaries: int) -> tuple[Scores, Coins]:
        """Scores and coins of one audit."""
        rng = fresh_generator()
        coins = rng.random(canaries) < 0.5
        inside, out = rng.choice(self.inside, canaries), rng.choice(self.out, canaries)
        return np.where(coins, inside, out), coins

    def detection_rate(
        self, claim: CurveClaim, canaries: int, guesses: Guesses, *, repeats: int = REPEATS
    ) -> float:
        """Share of simulated audits that raise the alarm."""
        alarms = 0
        for _ in range(repeats):
            _, alarm = judge_canaries(*self.draw(canaries), claim, guesses)
            alarms += alarm
        return alarms / repeats


def choose_guesses(
    claim: CurveClaim, canaries: int, *, honest: SimulatedCanaries, faulty: SimulatedCanaries
) -> Guesses:
    """The best numbers of guesses on simulated canaries.

    The bound is maximized under the true noise, the detection of the curve under half the noise.
    """
    choices = sorted({int(share * canaries) for share in SHARES})
    bounds, detected = np.zeros(len(choices)), np.zeros(len(choices))
    for _ in range(REPEATS // 2):
        true, half = honest.draw(canaries), faulty.draw(canaries)
        bounds += [_bound(canaries, r, right_guesses(*true, r), claim.delta) for r in choices]
        detected += [not _possible(claim, canaries, r, right_guesses(*half, r)) for r in choices]
    return Guesses(choices[_best(bounds)], choices[_best(detected)])


def _best(worth: npt.NDArray[np.float64]) -> int:
    """Position of the greatest value; of several the middle one."""
    return int(np.median(np.flatnonzero(worth == worth.max())))


@lru_cache(maxsize=10_000)  # simulated audits ask for the same few counts again and again
def _bound(canaries: int, guesses: int, right: int, delta: float) -> float:
    """The lower bound on epsilon that `right` of `guesses` guesses prove."""
    return epsilon_lower_bound(
        canaries=canaries, guesses=guesses, right=right, delta=delta, significance=SIGNIFICANCE
    )


@lru_cache(maxsize=10_000)
def _possible(claim: CurveClaim, canaries: int, guesses: int, right: int) -> bool:
    """Whether the claimed curve allows `right` of `guesses` guesses."""
    return curve_allows(claim, SIGNIFICANCE, canaries=canaries, guesses=guesses, right=right)


def _train(
    settings: DpSgd,
    coins: Coins,
    rows: Codes,
    module: PerExampleLoss | None,
    randomness: Randomness,
    progress: Progress,
) -> Scores:
    """Scores `[canaries]` of one training on `rows` and the canaries that are in."""
    inserted = directions.row_of(np.flatnonzero(coins))
    codes = np.zeros((len(rows) + len(inserted), rows.shape[1] + 1), dtype=np.uint16)
    codes[: len(rows), :-1] = rows
    codes[len(rows) :, -1] = inserted
    scores, done = np.zeros(len(coins)), 0

    def observe(seen: Scores) -> None:
        nonlocal scores, done
        scores, done = scores + directions.log_likelihood(seen, settings=settings, rows=1), done + 1
        progress(done, settings.steps)

    directions.train(
        settings,
        codes,
        directions.DirectionLoss(len(coins), clip=settings.clip, inner=module),
        randomness,
        observe,
    )
    return scores
