"""What the project knows of a kind of event, all in one place.

An event (`dp_accounting.DpEvent`) says what was done. Its kind says what that costs, how it is
written, and what it would be for a unit of more rows. A new kind of event is one class with these
methods: in `privacy.events` where dp-accounting lacks it, in `privacy.events.gaussian` or
`privacy.events.kinds` where the event is one of dp-accounting's own.

Losses are composed on one grid, by one Fourier transform of each distribution. The accounting
library composes two at a time, in loops of Python. Here all of them are multiplied at once. What is
left out is counted as lost, as there; the tests hold both against each other.

Single losses that are known atom by atom are put on the grid here, too (`on_grid`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, Literal, Protocol, Self

import dp_accounting
import numpy as np
import numpy.typing as npt
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.common import DifferentialPrivacyParameters
from scipy import fft

from synthdp.errors import BudgetError
from synthdp.privacy.noise import NoiseKind

Floats = npt.NDArray[np.float64]

TAIL = 1e-15  # mass that a window of losses may leave out on either side
REACH = 500_000  # places of a grid on either side of a loss of zero
BLOCK = 64  # places whose losses are taken for their largest, or smallest, where a window is sought


@dataclass(frozen=True)
class Part:
    """One direction of a distribution that is there `count` times: probabilities of neighbouring
    losses, the first of which is at the place `lowest`, and of an endless loss.
    """

    probs: Floats
    lowest: int
    endless: float
    count: int

    @classmethod
    def of(cls, pmf: pld_pmf.DensePLDPmf, count: int) -> Part:
        """Losses above `REACH` count as endless, and those below are raised to it; what a transform
        left below zero counts as zero.
        """
        probs, lowest = np.asarray(pmf._probs), int(pmf._lower_loss)
        start, end = max(0, -REACH - lowest), max(1, REACH + 1 - lowest)
        kept = np.maximum(probs[start:end], 0.0)
        kept[0] += max(0.0, float(probs[:start].sum()))
        endless = float(pmf._infinity_mass) + max(0.0, float(probs[end:].sum()))
        return cls(kept, lowest + start, endless, count)

    @cached_property
    def moments(self) -> tuple[float, float]:
        """Mean and variance of the place, from the lowest."""
        place, total = np.arange(len(self.probs)), float(self.probs.sum())
        mean = float(self.probs @ place) / total if total else 0.0
        return mean, float(self.probs @ (place - mean) ** 2) / total if total else 0.0

    @cached_property
    def _blocks(self) -> Floats:
        starts = np.arange(0, len(self.probs), BLOCK)
        with np.errstate(divide="ignore"):
            return np.log(np.add.reduceat(self.probs, starts))

    def log_mean(self, t: float) -> float:
        """No less than the logarithm of E[exp(t (place - mean))]: a block's places are taken for
        its last one, or its first where t is negative.
        """
        place = np.arange(len(self._blocks)) * float(BLOCK) + (BLOCK - 1 if t > 0 else 0)
        exponent = self._blocks + t * (place - self.moments[0])
        most = float(exponent.max())
        return most + math.log(float(np.exp(exponent - most).sum())) if most > -math.inf else most


def composed(
    parts: Sequence[tuple[pld.PrivacyLossDistribution, int]],
) -> pld.PrivacyLossDistribution:
    """The distribution of all `parts` together, each as often as its number says; one or more.

    >>> once = pld.from_gaussian_mechanism(4.0, value_discretization_interval=1e-3)
    >>> twice = pld.from_gaussian_mechanism(4 / math.sqrt(2), value_discretization_interval=1e-3)
    >>> found = composed([(once, 2)]).get_epsilon_for_delta(1e-5)
    >>> round(found, 3) == round(twice.get_epsilon_for_delta(1e-5), 3)
    True
    """
    width = parts[0][0]._pmf_remove._discretization

    def law(pmfs: Iterable[pld_pmf.PLDPmf]) -> pld_pmf.DensePLDPmf:
        each = [pmf.to_dense_pmf() for pmf in pmfs]
        if len(parts) == 1 and parts[0][1] == 1:
            return each[0]
        counts = [count for _, count in parts]
        return _composed([Part.of(pmf, n) for pmf, n in zip(each, counts, strict=True)], width)

    removed = law(part._pmf_remove for part, _ in parts)
    if all(part._symmetric for part, _ in parts):
        return pld.PrivacyLossDistribution(removed)
    return pld.PrivacyLossDistribution(removed, law(part._pmf_add for part, _ in parts))


def _composed(parts: Sequence[Part], width: float) -> pld_pmf.DensePLDPmf:
    """Of one direction.

    The transform goes round a circle of losses as long as a window that holds all but `TAIL` of the
    mass on either side. What is beyond it lies at other losses. Above, at most `TAIL` is thus
    counted too low, and `TAIL` counts as lost for it; below, what moves only moves up
    [derived here].
    """
    low, high = _window(parts)
    size = fft.next_fast_len(high - low + 1, real=True)
    transform = np.ones(size // 2 + 1, dtype=np.complex128)
    for part in parts:
        probs = np.pad(part.probs, (0, -len(part.probs) % size))
        transform *= fft.rfft(probs.reshape(-1, size).sum(0)) ** part.count
    law = np.roll(fft.irfft(transform, size), -(low % size))
    finite = math.fsum(part.count * math.log1p(-part.endless) for part in parts)
    lowest = sum(part.count * part.lowest for part in parts)
    endless = min(TAIL - math.expm1(finite), 1.0)
    return pld_pmf.DensePLDPmf(width, lowest + low, law, endless, True)


def _window(parts: Sequence[Part]) -> tuple[int, int]:
    """First and last place, from the lowest sum of all, beyond which the sum of all parts has at
    most `TAIL` of its mass, on either side: Chernoff's bound, E[exp(t (L - x))] for any t.
    """
    low, high = 0, sum(part.count * (len(part.probs) - 1) for part in parts)
    middle = math.fsum(part.count * part.moments[0] for part in parts)
    variance = math.fsum(part.count * part.moments[1] for part in parts)
    scales = 1 / math.sqrt(max(variance, 1.0)), -math.log(TAIL) / max(len(p.probs) for p in parts)
    # Of Chernoff's bound, in standard deviations, and in what `TAIL` needs of the longest part,
    # which is what bounds sums of rare large losses; any is sound.
    for t, sign in product(
        [order * scale for scale in scales for order in (0.3, 0.6, 1.0, 1.7, 2.8, 4.5, 8.3)],
        (1, -1),
    ):
        logs = (part.count * part.log_mean(sign * t) for part in parts)
        reach = (math.fsum(logs) - math.log(TAIL)) / t
        if not math.isfinite(reach):
            continue
        if sign > 0:
            high = min(high, math.ceil(middle + reach))
        else:
            low = max(low, math.floor(middle - reach))
    return min(low, high), max(low, high)


def epsilon_for(composition: pld.PrivacyLossDistribution, delta: float) -> float:
    """Smallest epsilon with (epsilon, delta)-DP, in both directions."""
    pmfs = [composition._pmf_remove]
    if not composition._symmetric:
        pmfs.append(composition._pmf_add)
    return max(_epsilon_for(pmf.to_dense_pmf(), delta) for pmf in pmfs)


def _epsilon_for(pmf: pld_pmf.DensePLDPmf, delta: float) -> float:
    """Of one direction: the library's search from the largest loss down, all losses at once.

    At a loss l, above which lie the masses P of the first law and Q of the second, delta(e) = P -
    exp(e) Q for e up to the next loss: the first l at which log((P - delta) / Q) is at least l.
    """
    if pmf._infinity_mass > delta:
        return math.inf
    losses = (np.arange(pmf.size) + pmf._lower_loss)[::-1] * pmf._discretization
    probs = np.asarray(pmf._probs)[::-1]
    upper = pmf._infinity_mass + np.cumsum(probs)
    lower = np.cumsum(np.exp(-np.maximum(losses, -700.0)) * probs)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        found = np.log((upper - delta) / lower)
    ends = (upper > delta) & (lower > 0) & (found >= np.append(losses[1:], -math.inf))
    if not ends.any():  # where more than delta lies at losses whose second mass is too small
        return math.inf if upper[-1] > delta else 0.0
    return max(0.0, float(found[int(ends.argmax())]))


# --- loss grid ---


# A delta beyond which nothing is claimed; the library wants one below 1, and `accounting` reports
# 1.
NO_PROTECTION = 1 - 1e-9
LARGEST_EPSILON = 50.0  # what lies beyond is counted as lost altogether
LARGEST_LOSS = 600.0  # nats: larger losses count as endless, and gains beyond as no larger


def on_grid(losses: Floats, mass: Floats, endless: float, width: float) -> pld_pmf.DensePLDPmf:
    """Each mass at a loss, shared between the nearest multiples of `width` below and above.

    The shares keep both masses, that of the first law and that of the second, exp(-l) times the
    first: exp(-l) is spread about its mean, and every order's divergence, a mean of a convex
    function of it, grows. This is connect-the-dots for single losses [Doroshenko et al., "Connect
    the Dots", arXiv:2207.04380v1, Algorithm 1], without differences of nearly equal numbers.
    """
    below = np.floor(losses / width).astype(np.int64)
    above = np.clip(np.expm1(below * width - losses) / np.expm1(-width), 0.0, 1.0)
    lowest = int(below.min())
    size = int(below.max()) - lowest + 2
    places = below - lowest
    probs = np.bincount(places, mass * (1 - above), minlength=size)
    probs += np.bincount(places + 1, mass * above, minlength=size)
    return pld_pmf.DensePLDPmf(width, lowest, probs, endless, True)


def discrete_gaussian_pld(sigma: float, *, width: float) -> pld.PrivacyLossDistribution:
    """Of one whole number that moves by one, under discrete Gaussian noise of parameter `sigma`.

    The noise is x with a probability that goes by exp(-x^2 / 2 sigma^2), and the loss is then (1 -
    2 x) / 2 sigma^2: single losses, each of known mass. Both directions have the same law, as x and
    1 - x exchange them. Noise reaches m with a probability of at most 2 exp(-m^2 / 2 sigma^2),
    which is counted as lost: E[exp(t x)] is at most exp(t^2 sigma^2 / 2), by the same completed
    square and the same sum as in `concentrated.discrete_gaussian_rho` [derived here].

    >>> round(discrete_gaussian_pld(1.0, width=1e-3).get_epsilon_for_delta(1e-5), 1)
    4.4
    """
    # 12.0: standard deviations of noise beyond which a mass of e^-72 is counted as lost
    reach = math.ceil(12.0 * sigma) + 1
    x = np.arange(-reach, reach + 1, dtype=np.float64)
    mass = np.exp(-((x / sigma) ** 2) / 2)
    losses, mass = (0.5 - x) / sigma**2, mass / mass.sum()
    lost = losses > LARGEST_LOSS
    endless = float(mass[lost].sum()) + 2 * math.exp(-((reach / sigma) ** 2) / 2)
    if endless > NO_PROTECTION:
        return nothing(width)
    kept = np.maximum(losses[~lost], -LARGEST_LOSS)
    dense = on_grid(kept, mass[~lost], endless, width)
    return pld.PrivacyLossDistribution(dense)


def nothing(width: float) -> pld.PrivacyLossDistribution:
    """Of no protection."""
    return pld.from_privacy_parameters(
        DifferentialPrivacyParameters(LARGEST_EPSILON, NO_PROTECTION),
        value_discretization_interval=width,
    )


Adjacency = Literal["add_remove", "replace_one"]
UNITS: dict[Adjacency, int] = {"add_remove": 1, "replace_one": 2}  # that differ
# The most that an event of a stranger's bundle may state (`EventKind.expected_loss`): rows of a
# unit, as in the spec, and what one row moves an answer by.
MAX_ROWS, MAX_MOVED = 64, 10_000_000


class WorkLimits(Protocol):
    """What a stranger's events may repeat at most: the steps of a training, tables, answers of a
    search, and rows of a unit; and the smallest rate of a secret sample, 1 for none.
    """

    @property
    def rows(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def tables(self) -> int: ...
    @property
    def answers(self) -> int: ...
    @property
    def sample(self) -> float: ...


class EventKind:
    """One event, with all that is known of its kind. Abstract; the defaults are those of an event
    that is single, no noise on a table, and of no fixed number of rows.

    `name` is the kind's word in ledgers and certificates: it never changes its meaning.
    """

    name: ClassVar[str]
    noise: ClassVar[NoiseKind | None] = None  # that it states
    wide_grid: ClassVar[bool] = False  # its losses are inverted numerically, at every point

    @property
    def squared_mu(self) -> float:
        """About the squared mu of a Gaussian mechanism as costly; 0 where a fine grid is quick."""
        return 0.0

    @property
    def table_precision(self) -> float:
        """Sum of 1 / sigma^2 over the tables of counts that the event may have paid for."""
        return 0.0

    def cost(self, adjacency: Adjacency, width: float) -> pld.PrivacyLossDistribution:
        """Dominates the event for a unit that is added or removed, or for one that is replaced; on
        a grid of losses of this `width`.

        Raises:
            BudgetError: no sound distribution is known under this adjacency.
        """
        raise BudgetError(
            f"no sound accounting for {_class_of(self)} under adjacency {adjacency}",
            hint="use adjacency add_remove",
        )

    def repeated(
        self, count: int, adjacency: Adjacency, width: float
    ) -> pld.PrivacyLossDistribution:
        """Dominates `count` times the event: in closed form where there is one, so that nothing is
        rounded `count` times.
        """
        return composed([(self.cost(adjacency, width), count)])

    def zcdp(self, adjacency: Adjacency) -> float | None:
        """The zero-concentrated bound, of kinds whose cost is known by it alone: such bounds are
        added up before they are turned into a distribution. None for others.
        """
        return None

    def widened(self, size: int) -> dp_accounting.DpEvent | None:
        """What the event does to a unit with `size` times the rows; None if that does not follow
        from it.
        """
        return None

    def too_narrow(self, rows: int) -> str | None:
        """Why the event does not cover a unit of so many rows; None if nothing says that it does
        not.
        """
        return None

    def expected_loss(self, limits: WorkLimits, times: int) -> float:
        """An upper bound on the expected privacy loss of the event, made `times` times, in nats,
        under add/remove. It bounds the work of a composition, not privacy.

        Raises:
            ValueError: a number is beyond what any release states.
        """
        raise ValueError(f"nothing bounds the loss of {_class_of(self)}")

    def to_json(self) -> dict[str, Any]:
        """The event as plain JSON, for the ledger and the certificate."""
        raise BudgetError(f"no JSON form for {_class_of(self)}")

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> dp_accounting.DpEvent | Self:
        """The event that `to_json` wrote.

        Raises:
            KeyError, TypeError, ValueError: `data` is no such event.
        """
        raise ValueError(f"no event of kind {cls.name} can be read")

    def words(self) -> str:
        """The event with its scale of noise, as a certificate says it."""
        return self.name.replace("_", " ")


@dataclass(frozen=True)
class Adapter(EventKind):
    """What is known of one of dp-accounting's own events. Abstract."""

    event: dp_accounting.DpEvent


def _class_of(kind: EventKind) -> str:
    return type(getattr(kind, "event", kind)).__name__


def whole(value: Any, most: float = math.inf) -> int:
    """`value`, which must be a whole number from 1 to `most`."""
    if type(value) is not int or not 1 <= value <= most:
        raise ValueError(f"{str(value)[:20]} is not a whole number from 1 to {most}")
    return value


def positive(value: Any, most: float = math.inf) -> float:
    """`value`, which must be a finite number above 0 and at most `most`."""
    if not 0 < number(value) <= most or not math.isfinite(value):
        raise ValueError(f"{str(value)[:20]} is not a number above 0, at most {most:g}")
    return float(value)


def number(value: Any) -> float:
    """`value`, which must be a number."""
    if type(value) not in (int, float):
        raise ValueError(f"{str(value)[:20]} is not a number")
    return float(value)
