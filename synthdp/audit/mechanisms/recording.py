"""Record what a mechanism hides in noise, and replay the same noisy values on a neighbour.

A `Recorder` stands at the seam of all randomness. On the first table it answers with real noise and
keeps what it was handed; on the neighbour it answers with what the first run was given. Given the
same noisy values, all that follows is post-processing and must come out the same to the last bit.

Coins, places and latents are coupled by row: a shared row has the same in both runs, and the unit's
rows take places that are free. How many of the unit's rows are in a batch is set by
`UNIT_IN_BATCH`: that chance belongs to the accounting; the replay looks at how far they move a sum
when they are in, and that nothing moves when they are not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from synthdp.audit.mechanisms.neighbours import Side
from synthdp.privacy.mechanisms.marginals import Arrays
from synthdp.privacy.noise import DRAWS, Floats, Integers, NoiseKind, Randomness

Array = npt.NDArray[Any]

# Of discrete Laplace noise only comparisons are charged (the sparse vector): the neighbour's run
# gets all of it moved by this much, which changes no comparison, so that a noisy value that gets
# out is seen.
SHIFT = 1_000_003
UNIT_IN_BATCH = (1.0, 0.0, 0.5)  # share of the unit's rows, rounded up, in one batch after another


class Diverged(BaseException):
    """A run cannot go on, because it asks for what the recorded run did not. No `except Exception`
    may swallow it.
    """


@dataclass(frozen=True, eq=False)
class NoiseCall:
    """One draw of noise: the exact values that it hides, and the noisy ones that were handed back
    (of a maximum, its position).
    """

    kind: NoiseKind
    exact: Array
    sigma: float  # the scale of noise that is not Gaussian
    spacing: float
    noisy: Array

    @property
    def rounded(self) -> npt.NDArray[np.float64]:
        """The exact values as the noise is added to them: on their lattice."""
        exact = self.exact.astype(np.float64)
        return np.rint(exact / self.spacing) * self.spacing if self.kind == "lattice" else exact


@dataclass(frozen=True)
class CoinCall:
    """One Poisson batch: for how many rows it was asked, and how many of the rows in it are the
    unit's.
    """

    rows: int
    rate: float
    batch: int
    of_unit: int


@dataclass(frozen=True)
class LatentCall:
    """Latents drawn for `rows` rows, and for how many the batch at hand would have needed them."""

    batch_number: int
    rows: int
    needed: int
    width: int


Call = NoiseCall | CoinCall


@dataclass
class Coupling:
    """The coins, places and latents of both runs of a pair, drawn from real streams: one for each
    batch and row.
    """

    streams: Randomness
    shared_rows: int
    all_rows: int  # of both tables together
    coins: list[npt.NDArray[np.bool_]] = field(default_factory=list)
    pools: dict[tuple[int, ...], npt.NDArray[np.float32]] = field(default_factory=dict)
    shared_places: dict[tuple[int, int], npt.NDArray[np.intp]] = field(default_factory=dict)

    def in_batch(
        self, number: int, rate: float, identity: npt.NDArray[np.intp]
    ) -> npt.NDArray[np.bool_]:
        """Which of the rows `identity` are in batch `number`, shape `[rows]`."""
        if number == len(self.coins):
            self.coins.append(
                np.isin(
                    np.arange(self.shared_rows),
                    self.streams.poisson_batch(self.shared_rows, rate=rate),
                )
            )
        of_unit = identity >= self.shared_rows
        drawn = np.zeros(len(identity), dtype=bool)
        drawn[~of_unit] = self.coins[number][identity[~of_unit]]
        drawn[of_unit] = np.arange(of_unit.sum()) < np.ceil(
            of_unit.sum() * UNIT_IN_BATCH[number % len(UNIT_IN_BATCH)]
        )
        return drawn

    def places(self, key: tuple[int, int], identity: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """Places of the rows `identity` of a batch; `key` is its number, and how many slots a chunk
        has.
        """
        shared = identity < self.shared_rows
        if key not in self.shared_places:
            self.shared_places[key] = self.streams.places(int(shared.sum()), key[1])
        taken, places = self.shared_places[key], np.empty(len(identity), dtype=np.intp)
        places[shared] = taken
        places[~shared] = np.setdiff1d(np.arange(len(identity)), taken)[: int((~shared).sum())]
        return places

    def latents(
        self, key: tuple[int, ...], width: int, identity: npt.NDArray[np.intp]
    ) -> npt.NDArray[np.float32]:
        """Latents of the rows `identity`, `[rows, width]`; `key` tells one draw from another."""
        if key not in self.pools:
            self.pools[key] = self.streams.latents(self.all_rows, width)
        return self.pools[key][identity]


class Answers(Protocol):
    """Where the noisy values of a run come from."""

    def noisy(
        self, number: int, kind: NoiseKind, exact: Array, sigma: float, spacing: float
    ) -> Array:
        """The noisy values for call `number` of the run."""
        ...


@dataclass(frozen=True)
class RealNoise:
    """Answers of a first run."""

    streams: Randomness

    def noisy(
        self, number: int, kind: NoiseKind, exact: Array, sigma: float, spacing: float
    ) -> Array:
        """Fresh noise."""
        return np.asarray(DRAWS[kind](self.streams, exact, sigma, spacing))


@dataclass(frozen=True)
class RecordedNoise:
    """Answers of the run on the neighbour: what the first run was given."""

    calls: list[Call]

    def noisy(
        self, number: int, kind: NoiseKind, exact: Array, sigma: float, spacing: float
    ) -> Array:
        """The noisy values of the same call of the first run.

        Raises:
            Diverged: the first run drew something else there.
        """
        call = self.calls[number] if number < len(self.calls) else None
        if not isinstance(call, NoiseCall) or call.kind != kind or call.exact.shape != exact.shape:
            raise Diverged
        return call.noisy + SHIFT if kind == "laplace" else call.noisy


class Recorder:
    """All randomness of a run, with every call written down."""

    def __init__(self, side: Side, coupling: Coupling, answers: Answers) -> None:
        self.calls: list[Call] = []
        self.latent_calls: list[LatentCall] = []
        self._identity, self._coupling, self._answers = side.identity, coupling, answers
        self._batches, self._in_batch = 0, side.identity

    def discrete_gaussian(self, counts: Integers, *, sigma: float) -> Integers:
        """Noisy counts."""
        return self._noise("discrete", counts, sigma, 1.0)

    def rounded_gaussian(self, counts: Integers, *, sigma: float) -> Integers:
        """Noisy counts."""
        return self._noise("rounded", counts, sigma, 1.0)

    def lattice_gaussian(self, values: Floats, *, sigma: float, spacing: float) -> Floats:
        """Noisy values."""
        return self._noise("lattice", values, sigma, spacing)

    def discrete_laplace(self, counts: Integers, *, scale: float) -> Integers:
        """Noisy counts."""
        return self._noise("laplace", counts, scale, 1.0)

    def noisy_max(self, scores: Integers, *, scale: float) -> int:
        """Position of the noisy maximum."""
        return int(self._noise("maximum", scores, scale, 1.0))

    def _noise(self, kind: NoiseKind, exact: Array, sigma: float, spacing: float) -> Array:
        exact = exact.copy()
        try:
            noisy = self._answers.noisy(len(self.calls), kind, exact, sigma, spacing)
        except Diverged:
            self.calls.append(NoiseCall(kind, exact, sigma, spacing, np.zeros_like(exact)))
            raise
        self.calls.append(NoiseCall(kind, exact, sigma, spacing, noisy))
        return noisy.copy()

    def poisson_batch(self, rows: int, *, rate: float) -> npt.NDArray[np.intp]:
        """One coin for each row of the table.

        Raises:
            Diverged: asked for another number of rows than mechanisms see.
        """
        if rows != len(self._identity):
            self.calls.append(CoinCall(rows, rate, 0, 0))
            raise Diverged
        drawn = self._coupling.in_batch(self._batches, rate, self._identity)
        self._batches, self._in_batch = self._batches + 1, self._identity[drawn]
        of_unit = int((self._in_batch >= self._coupling.shared_rows).sum())
        self.calls.append(CoinCall(rows, rate, len(self._in_batch), of_unit))
        return np.flatnonzero(drawn)

    def places(self, rows: int, slots: int) -> npt.NDArray[np.intp]:
        """Places of the rows of the batch at hand.

        Raises:
            Diverged: asked for another number of rows.
        """
        if rows != len(self._in_batch):
            raise Diverged
        return self._coupling.places((self._batches, slots), self._in_batch)

    def latents(self, rows: int, width: int) -> npt.NDArray[np.float32]:
        """Latents of the rows of the batch at hand; of all rows where there was none.

        Raises:
            Diverged: asked for another number of rows, so that rows would not have their own.
        """
        needed = len(self._in_batch)
        self.latent_calls.append(LatentCall(self._batches, rows, needed, width))
        if rows != needed:
            raise Diverged
        return self._coupling.latents(
            (self._batches, sum(c.batch_number == self._batches for c in self.latent_calls), width),
            width,
            self._in_batch,
        )


class Kept:
    """Checkpoints that are written down, to be compared."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def last(self) -> None:
        """Nothing: a replay begins at the start."""

    def keep(self, step: int, arrays: Arrays) -> None:
        """One file a step."""
        from safetensors.numpy import save

        self.files[f"after {step} steps"] = save(arrays)
