"""Every cell of a grid of settings: the stated epsilon lies above a numeric lower bound, at Opacus'
PRV, below RDP and group bounds.

The lower bound shares nothing with the accountant. A step's outputs are cut into small cells, which
is post-processing; the loss of each cell is rounded down to a grid, and `steps` losses are added by
Fourier transform. What that mechanism leaks at epsilon, less all that the arithmetic may have
added, is leaked by the real one too.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import dp_accounting
import numpy as np
import pytest
from dp_accounting import rdp
from scipy import stats

from synthdp.privacy import DiscreteGaussianDpEvent, accounting
from synthdp.privacy.accounting import Adjacency
from synthdp.privacy.events.gaussian import RELATION, unit_sampled_gaussian
from tests.privacy.conftest import Floats, gaussian_delta

Piece = tuple[Floats, Floats, int]  # chances without and with the unit, and how often

CELLS_OF_OUTPUT = 2**17
REACH = 64.0  # the losses of a composition are kept within +-32
LOST = 0.016  # most that rounding down takes off the sum of the losses


@dataclass(frozen=True)
class Setting:
    """One cell of the grid: some steps of DP-SGD, some noisy tables, or both."""

    rate: float
    noise: float
    steps: int
    delta: float
    adjacency: Adjacency = "add_remove"
    rows: int = 1
    tables: int = 0
    sigma: float = 0.0

    def events(self, *, rows: int | None = None) -> list[dp_accounting.DpEvent]:
        """What is charged, for a unit of `rows` rows."""
        rows = rows or self.rows
        found: list[dp_accounting.DpEvent] = []
        if self.steps:
            known = {"noise_multiplier": self.noise, "rate": self.rate, "steps": self.steps}
            found.append(unit_sampled_gaussian(rows=rows, **known))
        if self.tables:
            table = DiscreteGaussianDpEvent(self.sigma, rows)
            found.append(dp_accounting.SelfComposedDpEvent(table, self.tables))
        return found

    def epsilon(self) -> float:
        """What the accountant says."""
        return accounting.epsilon(self.events(), delta=self.delta, adjacency=self.adjacency)


TRAINING = [
    Setting(0.001, 0.6, 2000, 1e-6),
    Setting(0.01, 0.7, 100, 1e-5),
    Setting(0.01, 1.0, 1000, 1e-5),
    Setting(0.02, 1.5, 2000, 1e-6),
    Setting(0.026, 1.3, 1000, 1e-5),
    Setting(0.1, 3.0, 500, 1e-5),
    Setting(0.5, 10.0, 200, 1e-5),
]
TABLES = [
    Setting(0.0, 0.0, 0, 1e-5, tables=14, sigma=20.0),
    Setting(0.0, 0.0, 0, 1e-6, tables=3, sigma=2.5),
]
PLANS = [
    Setting(0.026, 1.3, 1000, 1e-5, tables=14, sigma=30.0),
    Setting(0.1, 3.0, 500, 1e-5, tables=30, sigma=15.0),
]
SINGLE = TRAINING + TABLES + PLANS
GRID = [
    *SINGLE,
    *(replace(s, adjacency="replace_one") for s in SINGLE),
    *(replace(s, rows=k) for s in TRAINING for k in (2, 5)),
    *(replace(s, rows=3) for s in TABLES + PLANS[:1]),
]


# --- the lower bound ---


def trained(setting: Setting) -> Piece:
    """One step in the direction of the unit's gradients, of norm 1 each."""
    noise, rows = setting.noise, setting.rows
    edges = np.concatenate(
        [[-np.inf], np.linspace(-12 * noise - rows, 12 * noise + rows, CELLS_OF_OUTPUT), [np.inf]]
    )

    def around(mean: float) -> Floats:
        below, above = stats.norm.cdf(edges, mean, noise), stats.norm.sf(edges, mean, noise)
        return np.where(
            edges[:-1] > mean, above[:-1] - above[1:], below[1:] - below[:-1]
        )  # no digits lost in either tail

    def drawn(sign: int) -> Floats:
        return sum(
            (stats.binom.pmf(k, rows, setting.rate) * around(sign * k) for k in range(rows + 1)),
            np.zeros(len(edges) - 1),
        )

    return (
        (around(0.0) if setting.adjacency == "add_remove" else drawn(-1)),
        drawn(1),
        setting.steps,
    )


def counted(setting: Setting) -> Piece:
    """One cell of a table that the unit's rows share; a replaced row moves two."""
    support = np.arange(-math.ceil(15 * setting.sigma) - 15, math.ceil(15 * setting.sigma) + 16)
    without, moved = (
        np.exp(-((support - m) ** 2) / (2 * setting.sigma**2)) for m in (0, setting.rows)
    )
    times = setting.tables * (1 if setting.adjacency == "add_remove" else 2)
    return without / without.sum(), moved / without.sum(), times


def leaked(setting: Setting) -> float:
    """An epsilon that is certainly not exceeded: the larger of both directions."""
    pieces = [
        piece(setting)
        for piece, done in ((trained, setting.steps), (counted, setting.tables))
        if done
    ]
    return max(
        _leaked(pieces, setting.delta),
        _leaked([(q, p, times) for p, q, times in pieces], setting.delta),
    )


def _leaked(pieces: list[Piece], delta: float) -> float:
    """Largest epsilon at which the composition leaks more than `delta`, with -> without."""
    times = sum(n for *_, n in pieces)
    size = 2 ** math.ceil(math.log2(REACH * times / LOST))
    width = REACH / size
    transform = np.ones(size // 2 + 1, dtype=complex)
    for without, with_unit, n in pieces:
        both = (without > 0) & (with_unit > 0)
        steps = np.floor(np.log(with_unit[both] / without[both]) / width).astype(np.int64)
        transform *= np.fft.rfft(np.bincount(steps % size, with_unit[both], minlength=size)) ** n
    law = np.fft.irfft(transform, size)
    # Losses below -32 come round to the top: P[loss < -t] <= E exp(-loss) exp(-t), and exp(-loss)
    # has mean 1 before rounding.
    error = math.exp(times * width - REACH / 2) - law[law < 0].sum()
    loss, law = width * np.arange(size // 2), law[: size // 2]
    low, high = 0.0, REACH / 2
    for _ in range(40):
        middle = (low + high) / 2
        above = slice(int(middle / width) + 1, None)
        low, high = (
            (middle, high)
            if -(law[above] * np.expm1(middle - loss[above])).sum() - error > delta
            else (low, middle)
        )
    return low


@pytest.mark.parametrize("noise", [0.5, 2.0])
def test_the_lower_bound_is_below_the_closed_form_of_a_gaussian_and_close(noise: float) -> None:
    steps, delta = 20, 1e-5
    mu = math.sqrt(steps) / (noise * math.sqrt(20))
    bound = leaked(Setting(1.0, noise * math.sqrt(20), steps, delta))
    assert delta <= gaussian_delta(mu, bound) <= 1.1 * delta


# --- the upper bounds ---


@cache
def prv(setting: Setting) -> float:
    """Opacus' accountant by privacy random variables, an implementation of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from opacus.accountants import PRVAccountant

        accountant = PRVAccountant()
        accountant.history = [(setting.noise, setting.rate, setting.steps)]
        return float(
            accountant.get_epsilon(setting.delta, eps_error=0.01, delta_error=setting.delta / 1000)
        )


@cache
def renyi(setting: Setting) -> float:
    """The discrete Gaussian's is at most the Gaussian's [arXiv:2004.00010v4, Theorem 4]."""
    accountant = rdp.RdpAccountant(neighboring_relation=RELATION["add_remove"])
    if setting.steps:
        accountant.compose(
            unit_sampled_gaussian(
                noise_multiplier=setting.noise, rate=setting.rate, rows=1, steps=setting.steps
            )
        )
    if setting.tables:
        accountant.compose(dp_accounting.GaussianDpEvent(setting.sigma), setting.tables)
    return float(accountant.get_epsilon(setting.delta))


@cache
def chained(setting: Setting) -> float:
    """From one added row: k rows are k of them, a replaced row is one removed and one added."""
    size = setting.rows if setting.adjacency == "add_remove" else 2
    return accounting.group_epsilon(
        setting.events(rows=1), size=size, delta=setting.delta, adjacency="add_remove"
    )


def faults(setting: Setting, stated: float) -> set[str]:
    """Bounds that `stated` breaks."""
    lower = leaked(setting)
    # Tables of units of several rows are charged by a Rényi bound that covers every spread of the
    # rows, not only the one computed here.
    spread = setting.rows > 1 and setting.tables > 0
    broken = {
        "below what is leaked": stated < lower,
        "loose": stated > (1.15 if spread else 1.005) * lower + LOST,
    }
    if setting.adjacency == "add_remove" and setting.rows == 1:
        broken["above RDP"] = stated > renyi(setting)
        if not setting.tables:
            broken["not PRV's"] = abs(stated - prv(setting)) > 0.02 * prv(setting)
    elif not spread:
        broken["above the group bound"] = stated > chained(setting)
    return {name for name, is_broken in broken.items() if is_broken}


QUICK = [
    replace(TRAINING[1], **change) for change in ({}, {"adjacency": "replace_one"}, {"rows": 2})
] + TABLES[1:]


@pytest.mark.check
@pytest.mark.parametrize("setting", QUICK, ids=str)
def test_a_cell_is_within_its_bounds(setting: Setting) -> None:
    assert faults(setting, setting.epsilon()) == set()


@pytest.mark.check
@pytest.mark.parametrize("setting", TRAINING, ids=str)
def test_dp_sgd_agrees_with_opacus_prv(setting: Setting) -> None:
    assert setting.epsilon() == pytest.approx(prv(setting), rel=0.02)


@pytest.mark.slow
def test_every_cell_is_within_its_bounds(figure: Callable[..., None]) -> None:
    found = {setting: faults(setting, setting.epsilon()) for setting in GRID}
    assert not any(found.values()), {s: f for s, f in found.items() if f}
    figure("accountant grid: cells within bounds", sum(not f for f in found.values()), len(GRID))


def test_an_accountant_that_says_too_little_is_caught() -> None:
    """Opacus' accountant by the central limit theorem reports less than what is leaked."""
    from opacus.accountants import GaussianAccountant

    setting = TRAINING[1]
    with pytest.warns(UserWarning, match="can underestimate"):
        central = GaussianAccountant()
    central.history = [(setting.noise, setting.rate, setting.steps)]
    assert {"below what is leaked", "not PRV's"} <= faults(
        setting, float(central.get_epsilon(setting.delta))
    )
    assert "below what is leaked" in faults(setting, 0.99 * setting.epsilon())


@pytest.mark.parametrize(
    ("wrong", "caught"),
    [
        ({"adjacency": "replace_one"}, "below what is leaked"),  # charged as if a row were added
        ({"rows": 2}, "below what is leaked"),  # charged as if the unit had one row
        ({"noise": 0.6}, "below what is leaked"),  # more noise charged than added
        ({"steps": 120}, "below what is leaked"),
        ({"rate": 0.012}, "below what is leaked"),
        ({"noise": 0.8}, "above RDP"),  # the bound is no bound if everything passes below it
        ({"rate": 0.008}, "loose"),
    ],
    ids=str,
)
def test_the_epsilon_of_another_setting_is_caught(wrong: dict[str, object], caught: str) -> None:
    assert caught in faults(replace(TRAINING[1], **wrong), TRAINING[1].epsilon())  # type: ignore[arg-type]
