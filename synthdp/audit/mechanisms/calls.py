"""What a replay compares on neighbours: what a run asked of its randomness, call by call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api.extensions import ExtensionArray

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes, decode_column
from synthdp.privacy.events import Adjacency
from synthdp.privacy.noise import Key, NoiseKind
from synthdp.privacy.table import Table

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class NoiseCall:
    """One draw of noise: the exact values that it hides, and the noisy ones that were returned.

    Of a noisy maximum, `noisy` is its position; of the largest of several, theirs `[told]`.
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
    """One Poisson batch from `rows` rows, where a mechanism sees `of_rows`: `batch` rows are in it,
    `of_unit` of them the unit's.
    """

    rows: int
    rate: float
    batch: int
    of_unit: int
    of_rows: int


@dataclass(frozen=True)
class SampleCall:
    """One secret sample of `units` units, where a mechanism sees `of_units`."""

    units: int
    rate: float
    of_units: int


@dataclass(frozen=True)
class LatentCall:
    """Latents drawn for `rows` rows; the batch at hand `needed` them for so many."""

    batch_number: int
    rows: int
    needed: int
    width: int


@dataclass(frozen=True)
class KeysCall:
    """Noisy counts of the keys that occur, told above a threshold: all of them, and those told."""

    counts: Mapping[Key, int]
    sigma: float
    threshold: int
    kept: Mapping[Key, int]


Call = NoiseCall | CoinCall | SampleCall | KeysCall


Fingerprint = dict[str, tuple[str, bytes]]  # piece -> what it is (type, shape), and its bytes


def fingerprint(value: Any) -> Fingerprint:
    """Pieces of `value`: arrays, tensors, numbers, texts, in dataclasses, mappings, sequences.

    >>> fingerprint({"a": 1})["value['a']"]
    ('int', b'1')
    """
    return dict(_pieces("value", value))


def _pieces(where: str, value: Any) -> Iterator[tuple[str, tuple[str, bytes]]]:
    """The piece of `value` itself, and those of its parts."""
    if hasattr(value, "numpy"):
        value = value.detach().cpu().numpy()
    kind = type(value).__name__
    if isinstance(value, np.ndarray | np.generic):
        kind = f"{value.dtype} array of shape {value.shape}"
        yield where, (kind, np.ascontiguousarray(value).tobytes())
    elif is_dataclass(value):
        yield where, (kind, b"")
        for field in fields(value):
            yield from _pieces(f"{where}.{field.name}", getattr(value, field.name))
    elif isinstance(value, Mapping):
        yield where, (f"{kind} of {len(value)}", "\n".join(map(repr, value)).encode())
        for key, item in value.items():
            yield from _pieces(f"{where}[{key!r}]", item)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        yield where, (f"{kind} of {len(value)}", b"")
        for i, item in enumerate(value):
            yield from _pieces(f"{where}[{i}]", item)
    else:
        yield where, (kind, repr(value).encode())


# Findings are values of constructed public tables only, so all of them may be printed.


Differs = Literal[
    "exception",  # a run raises
    "calls",  # kind, order or number of the draws of noise and batches
    "shape",  # of hidden values
    "dtype",  # of hidden values
    "sigma",  # a noise scale depends on rows
    "spacing",  # a lattice depends on rows
    "threshold",  # the count from which keys are told depends on rows
    "rate",  # the probability of a row to be in a batch depends on rows
    "coins",  # coins are not drawn for each row of the table
    "latents",  # latents are not separate for each row
    "not finite",  # hidden values that no noise hides
    "lattice",  # noisy values that are not on their lattice
    "charged",  # the draws are not those of the event
    "moved",  # hidden values move further than is charged
    "output",  # the returned value depends on rows other than through the noise
    "packed",  # what goes to the journal does
    "files",  # files that are written do
    "progress",  # the ticks of the progress bar do
    "said",  # what is printed, logged or warned of does
    "reading",  # neighbouring raw tables are read as tables that are no neighbours
]


@dataclass(frozen=True)
class ReplayFinding:
    """One difference that two runs on neighbours must not show.

    `found` is what they showed, `allowed` what they may show.
    """

    mechanism: str
    pair: str
    differs: Differs
    where: str
    found: str
    allowed: str

    def __str__(self) -> str:
        return (
            f"{self.mechanism}: {self.differs} ({self.where}) on {self.pair!r}: {self.found};"
            f" allowed: {self.allowed}"
        )


@dataclass(frozen=True)
class Replayed:
    """Outcome of a replay.

    `largest_share` is the largest part of a charged allowance that a pair used. It is near 1 where
    some pair is the worst case; a replay in which nothing moved would have shown nothing. `pairs`
    is the sum over mechanisms.
    """

    mechanisms: tuple[str, ...]
    pairs: int
    largest_share: float
    findings: tuple[ReplayFinding, ...]


# --- neighbouring tables that are likely to reveal a leak, made of public facts alone ---
#
# Corner cases come first. A leak is a branch that one row takes, and branches are at the edges:
# the first row, the first of a rare category, a lone extreme, a row count on either side of a
# multiple of the batch. Random pairs can be added in any number.


# Rows of a rare category before one more joins: thresholds are often at such numbers.
RARE = (0, 1, 2, 3, 4, 9, 10, 19)
FULL = 30  # shared rows of a corner case that needs many


Case = tuple[str, Codes, Codes]  # name, shared rows, rows of the unit
PlacedCase = tuple[str, Codes, Codes, int]  # and where the unit stands


@dataclass(frozen=True, eq=False)
class Side:
    """One table of a pair.

    `identity` `[rows that mechanisms see]` gives a shared row the same number in both tables.
    """

    table: Table
    identity: npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Pair:
    """Two tables that share rows and differ by one unit, all levels `[rows, columns]`.

    The unit's rows are `before` in the first table and `after` in the second. The unit stands
    before the shared row of position `place`. A unit that is `held_out` is in the table and may
    move what is charged of held-out units alone.
    """

    name: str
    shared: Codes
    before: Codes
    after: Codes
    place: int
    held_out: bool = False

    @property
    def unit_rows(self) -> int:
        """Rows of the unit in the table where it has more."""
        return max(len(self.before), len(self.after))

    def sides(self, domain: Domain) -> tuple[Side, Side]:
        """Both tables as mechanisms get them."""
        rows = len(self.shared)
        first = self._side(domain, self.before, rows)
        return first, self._side(domain, self.after, rows + len(self.before))

    def _side(self, domain: Domain, unit: Codes, number: int) -> Side:
        """One table; the unit's rows are numbered from `number`."""
        places = [self.place] * len(unit)
        codes = np.insert(self.shared, places, unit, axis=0)
        identity = np.insert(np.arange(len(self.shared)), places, number + np.arange(len(unit)))
        held_out = np.zeros(len(codes), dtype=bool)
        held_out[self.place : self.place + len(unit)] = self.held_out
        # As if no row were in the domain: counts that must not get out.
        misfits = {name: {"outside the domain": len(codes)} for name in domain.names}
        units = np.minimum(identity, number) if self.unit_rows > 1 else None
        table = Table(codes, _values(domain, codes), held_out, misfits, units)
        return Side(table, identity[~held_out])


def _values(domain: Domain, codes: Codes) -> pd.DataFrame:
    """Values of levels; a row's values depend on that row alone."""
    each = enumerate(_value_of_level(domain).items())
    return pd.DataFrame({name: values[codes[:, i]] for i, (name, values) in each}, copy=False)


@cache
def _value_of_level(domain: Domain) -> dict[str, ExtensionArray | npt.NDArray[Any]]:
    """For each column, one value of each of its levels."""
    rng = np.random.Generator(np.random.Philox(key=0))
    return {c.name: decode_column(c, np.arange(c.levels), rng=rng).array for c in domain.columns}


def neighbours(
    domain: Domain,
    *,
    batch: int,
    max_rows: int = 1,
    adjacency: Adjacency = "add_remove",
    random_pairs: int = 0,
) -> Iterator[Pair]:
    """Corner cases with the unit last, first and in the middle; then `random_pairs` others.

    `batch` is the expected batch of a training, `max_rows` the most rows of a unit. Under
    `add_remove` every second pair adds the unit and the others remove it. Under `replace_one` it
    takes the place of its opposite.
    """
    rng = np.random.Generator(np.random.Philox(key=1))
    corners = [
        *_many_rows(domain, rng, batch, max_rows),
        *_values_at_edges(domain, rng),
        *(
            (
                f"{n} rows where batches end and one more",
                _rows(domain, rng, n),
                _rows(domain, rng, 1),
            )
            for n in sorted({max(0, batch - 1), batch, 2 * batch - 1, 2 * batch, 3 * batch})
        ),
    ]
    cases = [*_placed(corners), *_random(domain, rng, batch, max_rows, random_pairs)]
    for number, (name, shared, unit, place) in enumerate(cases):
        if adjacency == "replace_one":
            yield Pair(f"{name}, replaced", shared, _highest(domain) - unit, unit, place)
        elif number % 2 == 0:
            yield Pair(f"{name}, added", shared, unit[:0], unit, place)
        else:
            yield Pair(f"{name}, removed", shared, unit, unit[:0], place)
    name, unit = "a unit that is held out", _highest(domain)
    for shared in (_rows(domain, rng, 2 * batch), np.repeat(_lowest(domain), FULL, axis=0)):
        yield Pair(name, shared, shared[:0], unit, len(shared) // 2, held_out=True)


def _placed(cases: list[Case]) -> Iterator[PlacedCase]:
    """Each case with the unit last, first and in the middle."""
    for name, shared, unit in cases:
        places = {"last": len(shared)}
        if len(shared) > 1:
            places |= {"first": 0, "in the middle": len(shared) // 2}
        for where, place in places.items():
            yield f"{name}, {where}", shared, unit, place


def _lowest(domain: Domain) -> Codes:
    """A row of the first levels, shape `[1, columns]`."""
    return np.zeros((1, len(domain)), dtype=np.uint16)


def _highest(domain: Domain) -> Codes:
    """A row of the last levels, shape `[1, columns]`."""
    return np.array([domain.sizes], dtype=np.uint16) - np.uint16(1)


def _rows(domain: Domain, rng: np.random.Generator, rows: int) -> Codes:
    """Independent uniform levels, shape `[rows, columns]`."""
    return np.column_stack([rng.integers(0, size, rows) for size in domain.sizes]).astype(np.uint16)


def _values_at_edges(domain: Domain, rng: np.random.Generator) -> Iterator[Case]:
    """The first row, duplicates, opposites, rare categories, and lone extremes of each column."""
    low, high = _lowest(domain), _highest(domain)
    yield "empty table and a row at the top", low[:0], high
    yield "empty table and a row at the bottom", low[:0], low
    yield "one row and its twin", low, low
    yield "a row at the bottom and its opposite", low, high
    yield "a row at the top and its opposite", high, low
    for rows in (1, 2, 3, 5):
        yield f"{rows} rows and one more", _rows(domain, rng, rows), _rows(domain, rng, 1)
    yield "all at the bottom and one more", np.repeat(low, FULL, axis=0), low
    yield "all at the bottom and the opposite", np.repeat(low, FULL, axis=0), high
    yield "all at the top and the opposite", np.repeat(high, FULL, axis=0), low
    widest = int(np.argmax(domain.sizes))
    for have in RARE:
        rare = _rows(domain, rng, FULL + have)
        rare[:, widest] = 0
        rare[:have, widest] = high[0, widest]
        yield f"rare category, {have} rows and one more", rare, high
    for i in range(len(domain)):
        yield from _lone_extremes(domain, rng, i)


def _lone_extremes(domain: Domain, rng: np.random.Generator, i: int) -> Iterator[Case]:
    """A row with an extreme level of column `i` that no other row has."""
    column = domain.columns[i]
    levels = set(range(column.levels))
    # Spikes come before bins, so the first bin is the lower end of a range.
    ends = {0, len(column.spikes), column.levels - 1, column.levels - 1 - column.missing}
    for extreme in sorted(ends & levels):
        alone = _rows(domain, rng, 1)
        alone[:, i] = extreme
        elsewhere = sorted(levels - {extreme}) or [extreme]
        name = f"lone {column.labels[extreme]} of {column.name}"
        for kind, choices in (
            ("all others alike", elsewhere[:1]),
            ("others everywhere else", elsewhere),
        ):
            others = _rows(domain, rng, FULL)
            others[:, i] = rng.choice(choices, FULL)
            yield f"{name}, {kind}", others, alone


def _many_rows(
    domain: Domain, rng: np.random.Generator, batch: int, max_rows: int
) -> Iterator[Case]:
    """A unit with all the rows it may have: equal, different, half and half."""
    if max_rows == 1:
        return
    low, high = _lowest(domain), _highest(domain)
    equal = np.repeat(high, max_rows, axis=0)
    half = equal.copy()
    half[max_rows // 2 :] = low
    different = _rows(domain, rng, max_rows)
    units = {"equal": equal, "different": different, "half and half": half}
    for kind, unit in units.items():
        yield f"empty table and a unit of {kind} rows", low[:0], unit
        yield f"all at the bottom and a unit of {kind} rows", np.repeat(low, FULL, axis=0), unit
        for rows in (batch, 2 * batch):
            yield f"{rows} rows and a unit of {kind} rows", _rows(domain, rng, rows), unit


def _random(
    domain: Domain, rng: np.random.Generator, batch: int, max_rows: int, pairs: int
) -> Iterator[PlacedCase]:
    """Tables of up to three batches, with some columns constant; units of any size, anywhere.

    The logarithm of the number of rows is uniform, so small tables are as frequent as large ones.
    """
    for number in range(pairs):
        shared = _rows(domain, rng, int((3 * batch + 1) ** rng.random()) - 1)
        unit = _rows(domain, rng, int(rng.integers(1, max_rows + 1)))
        constant = rng.random(len(domain)) < rng.random()
        shared[:, constant] = 0
        if rng.random() < 0.5:
            unit[:] = unit[0]
        yield f"random pair {number}", shared, unit, int(rng.integers(0, len(shared) + 1))
