"""One-run audit of DP-SGD: canaries that are in or out by independent coins, in one training.

Each canary is a row whose clipped gradient has exactly the clipping norm, along a direction that no
other row uses (`DirectionLoss`). The canaries are added to whatever other rows are trained on. The
adversary sees the noisy gradients and scores every canary by its likelihood ratio. It guesses "in"
for the best scores and "out" for the worst, and abstains on the others. `epsilon_lower_bound` and
`curve_allows` draw the conclusion from the number of right guesses.

The number of guesses is chosen beforehand, on simulated canaries. Two statements are made, each
wrong with probability at most 2.5%: the (epsilon, delta) bound, and the p-value under the claimed
curve. The alarm is raised when the bound exceeds the claim or the p-value is below 2.5%. The
probability of a false alarm is therefore at most 5%.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, lru_cache, partial

import dp_accounting
import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy.special import expit
from scipy.stats import binom
from torch import Tensor

from synthdp.bundle.audit_record import Audit
from synthdp.data.encoding import Codes
from synthdp.privacy import accounting
from synthdp.privacy.dpsgd import DpSgd, layers
from synthdp.privacy.dpsgd.training import PerExampleLoss, Progress, Training
from synthdp.privacy.events import Adjacency
from synthdp.privacy.noise import Randomness, Streams, fresh_generator
from synthdp.privacy.table import Table

HALF_NOISE = "half the noise"
PROFILE_POINTS = 80
SIGNIFICANCE = 0.025  # of each of the two statements
SHARES = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)  # of the canaries that may be guessed
SIMULATED, REPEATS = 20_000, 100  # scores in each world, and audits made of them

Coins = npt.NDArray[np.bool_]
Scores = npt.NDArray[np.float64]


@dataclass(frozen=True)
class CurveClaim:
    """(epsilon, delta) and the profile on which it lies.

    `profile` has pairs (eps, delta(eps)) that all hold, in both directions.
    """

    epsilon: float
    delta: float
    profile: tuple[tuple[float, float], ...]

    @classmethod
    def of(
        cls, events: Iterable[dp_accounting.DpEvent], *, delta: float, adjacency: Adjacency
    ) -> CurveClaim:
        """The accountant's curve of `events` on a finite grid.

        The grid claims no more than the accountant does.
        """
        composed = accounting.compose(events, adjacency)
        epsilon = float(composed.get_epsilon_for_delta(delta))
        if math.isfinite(epsilon):
            grid = np.append(np.linspace(0, max(epsilon, 0.1), PROFILE_POINTS), epsilon)
        else:
            grid = np.linspace(0, 30.0, PROFILE_POINTS)
        profile = tuple(
            (float(e), max(0.0, float(composed.get_delta_for_epsilon(e)))) for e in np.unique(grid)
        )
        return cls(epsilon, delta, profile)


@dataclass(frozen=True)
class Guesses:
    """Numbers of guesses, for the bound on epsilon and for the test of the curve."""

    bound: int
    curve: int


def audit_canaries(
    settings: DpSgd,
    *,
    canaries: int = 5000,
    rows: Codes | None = None,
    module: PerExampleLoss | None = None,
    delta: float = 1e-5,
    progress: Progress = lambda done, total: None,
    fresh: Callable[[], Randomness] = Streams.fresh,
) -> Audit:
    """Train once with `canaries` canaries among `rows` `[rows, columns]` and test the claim.

    The claim is that of one row under add/remove. `module` gives the rows their losses; without one
    they have no gradient. If `rows` are private, so is the result: the caller keeps it
    Confidential. `progress` gets the number of steps done and of all steps.

    Raises:
        ValueError: too few canaries to guess any, or more than there are directions.
    """
    if canaries < round(1 / SHARES[0]):
        raise ValueError(f"{canaries} canaries; at least {round(1 / SHARES[0])} are needed")
    claim = CurveClaim.of([settings.event(1)], delta=delta, adjacency="add_remove")
    honest, faulty = (SimulatedCanaries.of(settings, noise_factor=factor) for factor in (1.0, 0.5))
    guesses = choose_guesses(claim, canaries, honest=honest, faulty=faulty)
    coins = fresh_generator().random(canaries) < 0.5
    others = np.zeros((0, 0), dtype=np.uint16) if rows is None else rows
    scores = _train(settings, coins, others, module, fresh(), progress)
    lower, alarm = judge_canaries(scores, coins, claim, guesses)
    return Audit(
        mechanism=settings.name,
        method=f"one run, {canaries} canaries in the gradient",
        unit_rows=1,
        runs=canaries,
        epsilon=claim.epsilon if math.isfinite(claim.epsilon) else None,
        delta=delta,
        epsilon_lower=lower,
        epsilon_provable=_bound(canaries, guesses.bound, guesses.bound, delta),
        fault=HALF_NOISE,
        power=faulty.detection_rate(claim, canaries, guesses),
        refuted=alarm,
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
        ratio = partial(log_likelihood, settings=settings, rows=1)
        rng = fresh_generator()
        out, inside = (
            simulate(
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
    inserted = row_of(np.flatnonzero(coins))
    codes = np.zeros((len(rows) + len(inserted), rows.shape[1] + 1), dtype=np.uint16)
    codes[: len(rows), :-1] = rows
    codes[len(rows) :, -1] = inserted
    scores, done = np.zeros(len(coins)), 0

    def observe(seen: Scores) -> None:
        nonlocal scores, done
        scores, done = scores + log_likelihood(seen, settings=settings, rows=1), done + 1
        progress(done, settings.steps)

    losses = DirectionLoss(len(coins), clip=settings.clip, inner=module)
    train(settings, codes, losses, randomness, observe)
    return scores


# --- what one run proves ---
#
# m random coins are inserted into the data, and r of them are guessed.
#
# v of the guesses are right. Both bounds need fair and independent coins, one unit of data for
# each, and r fixed before looking at the output.
#
# For (epsilon, delta): Steinke, Nasr, Jagielski, "Privacy Auditing with One (1) Training Run",
# arXiv:2305.08846v1, Theorem 5.2 in the form of Corollary 5.4 (guesses in, out or abstain, at most
# r of them). With f(v) = P[Binomial(r, e^eps / (1 + e^eps)) >= v],
#
#     P[at least v right] <= f(v) + 2 m delta max_{1 <= i <= v} (f(v - i) - f(v)) / i,
#
# and the lower bound is the largest epsilon that this refutes (Lemma 4.7 there).
#
# For a whole trade-off curve: Mahloujifar, Melis, Chaudhuri, "Auditing f-Differential Privacy in
# One Run", arXiv:2410.22235v1, Section 3 (the bound for an adversary with a limited number of
# guesses, and the algorithm that follows from it). Derived again here: let C be the number of
# right guesses, p_j = P[C = j], and let g = 1 - f be the curve seen from above: for every event E
# and the worlds of one coin, P(E) <= g(P'(E)), g increasing and concave. Fix coin i and the
# others' values u. "Guess i says b, and the number of other right guesses lies in T - 1" is an
# event of the output. Its probability when coin i is b is at most g of its probability when coin i
# is 1 - b, where guess i is wrong and C lies in T - 1. Averaging over b, u and i, with Jensen's
# inequality for the concave g,
#
#     sum_{j in T} j p_j / m  <=  g( sum_{j in T} (r - j + 1) p_{j-1} / m ).            (1)
#
# `curve_allows` takes T = {i, i+1, ...}: given P[C >= v] = p, (1) forces mass below v, at i =
# v-1, v-2, ...; where all that mass exceeds 1, p is impossible. The largest possible p is the
# p-value.


def epsilon_p_value(
    *, canaries: int, guesses: int, right: int, epsilon: float, delta: float
) -> float:
    """Greatest probability of `right` or more right guesses under (epsilon, delta)-DP.

    `guesses` of the `canaries` coins are guessed.
    """
    _check(canaries, guesses, right)
    # f(v - i) for i = 0 .. v
    tail = binom.sf(right - np.arange(right + 1) - 1, guesses, expit(epsilon))
    slope = np.max((tail[1:] - tail[0]) / np.arange(1, right + 1), initial=0.0)
    return float(min(1.0, tail[0] + 2 * canaries * delta * slope))


def epsilon_lower_bound(
    *, canaries: int, guesses: int, right: int, delta: float, significance: float
) -> float:
    """Largest epsilon refuted at `significance`; 0 where none is.

    For 2 canaries delta <= 1, so that the p-value grows with epsilon.
    """

    def refuted(epsilon: float) -> bool:
        p_value = epsilon_p_value(
            canaries=canaries, guesses=guesses, right=right, epsilon=epsilon, delta=delta
        )
        return p_value < significance

    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while refuted(high):
        low, high = high, 2 * high
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def curve_allows(
    claim: CurveClaim, probability: float, *, canaries: int, guesses: int, right: int
) -> bool:
    """Whether P[C >= right] = `probability` leaves a total mass of at most 1; see (1)."""
    _check(canaries, guesses, right)
    profile = np.array(claim.profile)
    delta, grown = profile[:, 1], np.exp(np.minimum(profile[:, 0], 700.0))
    # Sums of (1): `hit` over j >= i of j p_j / m, `miss` of (r - j) p_j / m. The mass is least
    # where the whole tail is at `right`.
    hit, miss = probability * right / canaries, probability * (guesses - right) / canaries
    for i in range(right - 1, -1, -1):
        # Inverse of g by the lines x -> e^eps x + delta. Its other lines bind where hit is near 1,
        # too late to matter. Leaving them out could only weaken the bound, and the tests' linear
        # programme, which has them, gives the same bound.
        least = float(np.max((hit - delta) / grown))
        if least <= miss:
            break  # no more mass is forced here, nor further down, where `hit` does not change
        hit, miss = hit + (least - miss) * i / (guesses - i), least
        if (hit + miss) * canaries > guesses:
            break  # the mass exceeds 1
    return (hit + miss) * canaries <= guesses


def _check(canaries: int, guesses: int, right: int) -> None:
    if not 0 <= right <= guesses <= canaries:
        raise ValueError(
            f"{right} right of {guesses} guesses of {canaries} canaries; needs right <= guesses <="
            " canaries"
        )


# --- the worst case: a row's clipped gradient is the clipping norm along one direction ---
#
# `DirectionLoss` is an ordinary module for `dpsgd.training.Training`. Hooks, clipping, noise,
# batches and optimizer are those of a release. A row's loss is linear in one weight, with a slope
# far above the clipping norm. Its clipped gradient is therefore +clip or -clip along that weight,
# whatever the weights are. The adversary sees what the optimizer is given at every step: the
# noisy gradient. Along one direction that is a Gaussian around the number of its rows in the
# batch. The log likelihood ratio is therefore a sum over steps of the logarithm of a mixture.

# Gets each step's noisy sum along each direction, in units of the sensitivity.
Observer = Callable[[Scores], None]

ORDINARY = 0  # in the last column: a row of the inner module, or one without a gradient
# A weight's gradient is INPUT times the bias's. The bias has then 1e-6 of the squared norm.
INPUT = 1000.0
MAX_DIRECTIONS = (np.iinfo(np.uint16).max - 1) // 2


def row_of(direction: npt.ArrayLike, *, sign: int = 1) -> Codes:
    """Codes of rows whose gradients are +clip or -clip (`sign`) along `direction`."""
    return (1 + 2 * np.asarray(direction) + (sign < 0)).astype(np.uint16)


class DirectionLoss(PerExampleLoss):
    """Losses of codes `[batch, columns]`; the last column names the direction of the gradient.

    Rows marked `ORDINARY` have the loss of `inner` on the other columns, or no gradient where there
    is no `inner`.
    """

    def __init__(
        self, directions: int, *, clip: float, inner: PerExampleLoss | None = None
    ) -> None:
        super().__init__()
        if not 1 <= directions <= MAX_DIRECTIONS:
            raise ValueError(f"{directions} directions; allowed are 1 to {MAX_DIRECTIONS}")
        # 10.0: slope of a loss in clipping norms
        self.inner, self.directions, self.slope = inner, directions, 10.0 * clip / INPUT
        self.latent = inner.latent if inner is not None else 1
        self.pull = layers.NodeLinear(directions, (1,))

    def forward(self, codes: Tensor, noise: Tensor) -> Tensor:
        """Losses, shape `[batch]`; a loss that does not count is multiplied by 0."""
        mark = codes[:, -1] - 1
        pulls = mark >= 0
        rows = torch.arange(len(codes), device=codes.device)
        direction = torch.div(mark.clamp(min=0), 2, rounding_mode="floor")
        inputs = torch.zeros(len(codes), 1, self.directions, device=codes.device)
        inputs[rows, 0, direction] = pulls * INPUT
        sign = torch.where(pulls, torch.where(mark % 2 == 0, 1.0, -1.0), 0.0)
        linear: Tensor = self.slope * sign * self.pull(inputs).flatten()
        if self.inner is None:
            return linear
        return linear + torch.where(pulls, 0.0, self.inner(codes[:, :-1], noise))


def train(
    settings: DpSgd,
    codes: Codes,
    module: DirectionLoss,
    randomness: Randomness,
    observe: Observer,
    *,
    units: npt.NDArray[np.int64] | None = None,
) -> None:
    """Run DP-SGD on `codes` `[rows, columns]`; `observe` gets the noisy gradient of every step.

    `units` `[rows]` says whose each row is; without it each row is a unit.
    """
    unit = settings.expected_batch / settings.sensitivity

    def after_step(_done: int, _steps: int) -> None:
        gradient = module.pull.weight.grad
        if gradient is None:
            raise RuntimeError("the optimizer was given no gradient")
        observe(unit * gradient.detach().cpu().numpy().astype(np.float64).ravel())

    table = Table(codes, pd.DataFrame(), np.zeros(len(codes), dtype=bool), {}, units)
    Training(settings, module, after_step, None).run(table, randomness)


# 0.5: an audit looks for half the noise
def log_likelihood(
    seen: Scores, *, settings: DpSgd, rows: int, sign: int = 1, noise_factor: float = 0.5
) -> Scores:
    """Log likelihood ratio of one step's noisy sums, any shape: `rows` rows against none.

    It is log P[seen | `rows` rows with `sign`] - log P[seen | no row]. The noise is taken to be
    `noise_factor` times the stated one. Any score makes a sound audit; the likelihood ratio of the
    fault that is looked for detects it best. Each row joins by an independent coin, so the ratio is

        sum_j Binomial(rows, rate)(j) exp((2 j x - j^2) / (2 noise^2)).
    """
    x, precision = sign * seen, 1 / (noise_factor * settings.noise_multiplier) ** 2
    log_probabilities = _log_probabilities(rows, settings.rate)
    total: Scores = np.full(seen.shape, log_probabilities[0])
    for joined, log_probability in enumerate(log_probabilities[1:], start=1):
        exponent = (joined * x - joined**2 / 2) * precision
        total = np.logaddexp(total, log_probability + exponent)
    return total


@cache
def _log_probabilities(rows: int, rate: float) -> tuple[float, ...]:
    """log P[j of the rows are in a batch] for j = 0 .. rows."""
    return tuple(binom.logpmf(np.arange(rows + 1), rows, rate).tolist())


def simulate(
    settings: DpSgd,
    *,
    rows: int,
    sign: int,
    runs: int,
    noise_factor: float,
    rng: np.random.Generator,
    ratio: Callable[[Scores], Scores],
) -> Scores:
    """Scores `[runs]` of training runs as the accountant models them.

    The noise is multiplied by `noise_factor`. A unit outside the secret sample joins no batch.
    """
    total = np.zeros(runs)
    present = rng.random(runs) < settings.sample
    for _ in range(settings.steps):
        joined = present * rng.binomial(rows, settings.rate, runs) if rows else 0
        noise = settings.noise_multiplier * noise_factor * rng.standard_normal(runs)
        total += ratio(sign * joined + noise)
    return total
