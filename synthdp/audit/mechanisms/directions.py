"""DP-SGD in the worst case: a row's clipped gradient is the clipping norm along one direction.

`DirectionLoss` is an ordinary module for `dpsgd.training.Training`. Hooks, clipping, noise, batches
and optimizer are those of a release. A row's loss is linear in one weight, with a slope far above
the clipping norm. Its clipped gradient is therefore +clip or -clip along that weight, whatever the
weights are. The adversary sees what the optimizer is given at every step: the noisy gradient. Along
one direction that is a Gaussian around the number of its rows in the batch. The log likelihood
ratio is therefore a sum over steps of the logarithm of a mixture.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy.stats import binom
from torch import Tensor

from synthdp.data.encoding import Codes
from synthdp.privacy.dpsgd import layers
from synthdp.privacy.dpsgd.settings import DpSgd
from synthdp.privacy.dpsgd.training import PerExampleLoss, Training
from synthdp.privacy.noise import Randomness
from synthdp.privacy.table import Table

Scores = npt.NDArray[np.float64]
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
