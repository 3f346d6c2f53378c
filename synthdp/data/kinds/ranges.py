"""Kinds of columns whose values lie in a range: whole numbers, real numbers, instants."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from synthdp.data.column_domain import MISSING_LABEL, ColumnDomain, Meaning, number_of, seconds_of
from synthdp.data.kinds.kind import (
    ColumnKind,
    EncodedColumn,
    Flags,
    Floats,
    Levels,
    Mask,
    Numbers,
    Read,
    Series,
    Texts,
    finish,
    missing_in,
    some,
)
from synthdp.spec.model import RESOLUTION_SECONDS, Datetime, Integer, Number, Ranged

if TYPE_CHECKING:
    import pyarrow as pa


DATE_FORMATS = dict.fromkeys(RESOLUTION_SECONDS, "%Y-%m-%dT%H:%M:%S") | {"day": "%Y-%m-%d"}
TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}  # of a second

_C = TypeVar("_C", Integer, Number, Datetime)


class RangeKind(ColumnKind[_C]):
    """Levels are the spikes, then the bins; missing last."""

    @abstractmethod
    def text(self, column: _C, number: float) -> str:
        """A number of the column's scale, as levels are labelled."""

    def levels(self, name: str, column: _C) -> ColumnDomain:
        return range_levels(name, column, lambda number: self.text(column, number))

    def unfit(self, numbers: Floats) -> Mask:
        """Numbers that are none of the type's, wherever they lie."""
        return np.zeros(len(numbers), dtype=bool)

    def misfits(self, domain: ColumnDomain, read: Read) -> dict[str, Mask]:
        numbers, fraction = read.numbers, self.unfit(read.numbers)
        beyond = (numbers < domain.lower) | (numbers > domain.upper)
        none = np.isnan(numbers) & ~read.absent
        return {"type": none, "fraction": fraction, "bound": beyond & ~fraction}

    def encode(self, domain: ColumnDomain, read: Read) -> EncodedColumn:
        """The level of each number, clamped to the range; what is no number is the lower bound."""
        numbers, absent = read.numbers, read.absent
        found = {kind: int(mask.sum()) for kind, mask in self.misfits(domain, read).items()}
        clean = np.where(np.isnan(numbers), domain.lower, numbers)
        # Adding zero: "-0" is read as 0 among whole numbers and as -0.0 among others, and must be
        # the same in both.
        clean = np.clip(clean, domain.lower, domain.upper) + 0.0
        return finish(
            domain,
            level_of(domain, clean),
            absent,
            wrong_type=found["type"] + found["fraction"],
            outside=found["bound"],
            numbers=clean,
        )

    def decode(self, domain: ColumnDomain, codes: Levels, rng: np.random.Generator) -> Series:
        return self.values(domain, drawn_wholes(domain, codes, rng), missing_in(domain, codes))

    def arrow_array(self, column: _C, texts: pa.Array) -> pa.Array:
        return texts.cast(self.arrow_type(column))

    def in_words(self, column: _C, *, most: int) -> str:
        spikes = some([f"{s:.12g}" for s in column.spikes], ", ", most)
        often = f"; often {spikes}" if spikes else ""
        return f"{column.lower:.12g} to {column.upper:.12g}{often}"


class _NumberBase(RangeKind[_C]):
    """What whole and real numbers have in common."""

    pattern: ClassVar[str]
    """What a number is written as."""
    types: ClassVar[tuple[str, str]]
    """In Croissant, and in Arrow, by its name there."""

    def meaning(self, domain: ColumnDomain) -> Meaning:
        return number_of

    def typed(self, domain: ColumnDomain, cells: pa.Array) -> Read | None:
        import pyarrow as pa

        kind, is_ = cells.type, pa.types
        if not (is_.is_integer(kind) or is_.is_floating(kind) or is_.is_boolean(kind)):
            return None
        numbers = cells.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        return Read(numbers, np.isnan(numbers))

    def malformed(self, domain: ColumnDomain, text: Texts, values: Series) -> Flags:
        return (text != "") & ~text.str.fullmatch(self.pattern)

    def frictionless(self, column: _C) -> dict[str, Any]:
        bounds = {"minimum": column.lower, "maximum": column.upper}
        return {"type": self.type, "constraints": bounds}

    def croissant(self, column: _C) -> str:
        return self.types[0]

    def arrow_type(self, column: _C) -> pa.DataType:
        import pyarrow as pa

        return getattr(pa, self.types[1])()


class IntegerKind(_NumberBase[Integer]):
    """Whole numbers of 64 bits."""

    type: ClassVar[str] = "integer"
    read_as: ClassVar[str] = "integers are read as 1200, and have no fraction"
    pattern: ClassVar[str] = r"-?\d+"
    types: ClassVar[tuple[str, str]] = ("sc:Integer", "int64")

    def text(self, column: Integer, number: float) -> str:
        return str(int(number))

    def unfit(self, numbers: Floats) -> Mask:
        return np.asarray(np.isfinite(numbers) & (np.floor(numbers) != numbers))

    def values(self, domain: ColumnDomain, numbers: Numbers, missing: Mask) -> Series:
        """The nearest whole numbers, with a dtype that has NA where values may be missing."""
        import pandas as pd

        whole = pd.Series(np.where(missing, domain.lower, np.round(numbers)).astype(np.int64))
        return whole.astype("Int64").mask(pd.Series(missing)) if domain.missing else whole

    def scalar(self, domain: ColumnDomain, number: float) -> int:
        return int(number)


class NumberKind(_NumberBase[Number]):
    """Real numbers, written with the declared digits."""

    type: ClassVar[str] = "number"
    read_as: ClassVar[str] = "numbers are read as 1200.5"
    pattern: ClassVar[str] = r"-?\d+(\.\d+)?(e[+-]?\d+)?"
    types: ClassVar[tuple[str, str]] = ("sc:Float", "float64")

    def text(self, column: Number, number: float) -> str:
        return f"{number:g}"

    def decode(self, domain: ColumnDomain, codes: Levels, rng: np.random.Generator) -> Series:
        """Numbers with the column's digits in their bins, within bounds; spikes as declared."""
        numbers = drawn_reals(domain, codes, rng)
        scale = 10.0**domain.decimals
        rounded = np.round(numbers, domain.decimals)
        rounded = np.where(rounded > domain.upper, np.floor(domain.upper * scale) / scale, rounded)
        rounded = np.where(rounded < domain.lower, np.ceil(domain.lower * scale) / scale, rounded)
        rounded = np.clip(rounded, domain.lower, domain.upper)
        written = np.where(codes < len(domain.spikes), numbers, rounded)
        return self.values(domain, written, missing_in(domain, codes))

    def values(self, domain: ColumnDomain, numbers: Numbers, missing: Mask) -> Series:
        import pandas as pd

        return pd.Series(np.where(missing, np.nan, numbers))

    def scalar(self, domain: ColumnDomain, number: float) -> float:
        return number


class DatetimeKind(RangeKind[Datetime]):
    """Instants without a zone, in whole steps of the resolution since 1970-01-01."""

    type: ClassVar[str] = "datetime"
    read_as: ClassVar[str] = (
        "dates are read as 2024-12-31 or 2024-12-31T23:59:59, in full and without a zone"
    )

    def text(self, column: Datetime, number: float) -> str:
        instant = np.datetime64(int(number) * column.step_seconds, "s")
        return str(np.datetime_as_string(instant, unit="D" if column.resolution == "day" else "s"))

    def meaning(self, domain: ColumnDomain) -> Meaning:
        """Whole steps since 1970-01-01."""
        step = RESOLUTION_SECONDS[domain.resolution]
        return lambda value: seconds_of(value) // step

    def typed(self, domain: ColumnDomain, cells: pa.Array) -> Read | None:
        import pyarrow as pa

        kind = cells.type
        if not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
            return None
        whole = cells.cast(pa.int32()) if pa.types.is_date32(kind) else cells
        ticks = whole.cast(pa.int64()).fill_null(0).to_numpy()
        step = RESOLUTION_SECONDS[domain.resolution]
        if pa.types.is_date32(kind):
            steps = ticks * (86_400 // step)
        else:
            unit = "ms" if pa.types.is_date64(kind) else kind.unit
            steps = np.floor_divide(ticks, step * TICKS[unit])
        absent = cells.is_null().to_numpy(zero_copy_only=False)
        return Read(np.where(absent, np.nan, steps), absent)

    def values(self, domain: ColumnDomain, numbers: Numbers, missing: Mask) -> Series:
        import pandas as pd

        whole = np.where(missing, domain.lower, numbers).astype(np.int64)
        seconds = whole * RESOLUTION_SECONDS[domain.resolution]
        instants = seconds.astype("datetime64[s]")
        return pd.Series(np.where(missing, np.datetime64("NaT", "s"), instants))

    def scalar(self, domain: ColumnDomain, number: float) -> np.datetime64:
        return np.datetime64(int(number) * RESOLUTION_SECONDS[domain.resolution], "s")

    def written(self, column: Datetime, values: Series) -> Series:
        import pandas as pd

        return pd.to_datetime(values).dt.strftime(DATE_FORMATS[column.resolution])

    def parsed(self, domain: ColumnDomain, text: Texts) -> Series:
        import pandas as pd

        pattern = DATE_FORMATS[domain.resolution]
        return pd.to_datetime(text.mask(text == ""), format=pattern, errors="coerce")

    def malformed(self, domain: ColumnDomain, text: Texts, values: Series) -> Flags:
        return values.isna() & (text != "")

    def frictionless(self, column: Datetime) -> dict[str, Any]:
        bounds = {"minimum": _iso(column, column.lower), "maximum": _iso(column, column.upper)}
        return {"type": "date" if column.resolution == "day" else "datetime", "constraints": bounds}

    def croissant(self, column: Datetime) -> str:
        return "sc:Date" if column.resolution == "day" else "sc:DateTime"

    def arrow_type(self, column: Datetime) -> pa.DataType:
        import pyarrow as pa

        return pa.date32() if column.resolution == "day" else pa.timestamp("ms")

    def arrow_array(self, column: Datetime, texts: pa.Array) -> pa.Array:
        import pyarrow as pa

        return texts.cast(pa.timestamp("s")).cast(self.arrow_type(column))

    def in_words(self, column: Datetime, *, most: int) -> str:
        bounds = f"{_iso(column, column.lower)} to {_iso(column, column.upper)}"
        return f"{bounds}, to the {column.resolution}"


def _iso(column: Datetime, instant: datetime) -> str:
    """An instant as values are written. Python's `strftime` writes the year 1 as 1 on Linux."""
    return instant.isoformat(timespec="seconds")[: 10 if column.resolution == "day" else None]


# --- levels of a range: spikes, then bins ---


def range_levels(name: str, column: Ranged, text: Callable[[float], str]) -> ColumnDomain:
    """A range as levels; `text` writes a number of its scale."""
    whole = not column.continuous
    lower, upper = column.number(column.lower), column.number(column.upper)
    spikes = tuple(sorted(map(column.number, column.spikes)))
    # A spike at an end of a whole-number range is not part of the bins beside it.
    start = lower + float(whole and lower in spikes)
    stop = upper + float(whole) - float(whole and upper in spikes)
    edges: tuple[float, ...] = ()
    if column.edges is not None:
        edges = tuple(map(column.number, column.edges))
    elif stop > start:
        grid = np.linspace(start, stop, column.bins + 1)
        edges = tuple(map(float, np.unique(np.round(grid) if whole else grid)[:-1]))
    bins = list(zip(edges, (*edges[1:], stop), strict=False))
    if whole:
        labels = [text(a) if b - a == 1 else f"{text(a)} to {text(b - 1)}" for a, b in bins]
    else:
        closing = [")"] * (len(bins) - 1) + ["]"]
        labels = [f"[{a:g}, {b:g}{end}" for (a, b), end in zip(bins, closing, strict=False)]
    return ColumnDomain(
        name,
        column.type,
        (*map(text, spikes), *labels, *([MISSING_LABEL] if column.missing else [])),
        column.missing,
        spikes,
        edges,
        stop,
        lower,
        upper,
        getattr(column, "decimals", 0),
        getattr(column, "resolution", "day"),
    )


def level_of(domain: ColumnDomain, numbers: Floats) -> npt.NDArray[np.intp]:
    """Level of each in-range number, shape `[rows]`: its spike if it is one, else its bin."""
    codes = np.zeros(len(numbers), dtype=np.intp)
    if domain.edges:
        codes = edges_reached(domain.edges[1:], numbers) + len(domain.spikes)
    for i, spike in enumerate(domain.spikes):
        codes = np.where(numbers == spike, i, codes)
    return codes


def edges_reached(edges: tuple[float, ...], numbers: Floats) -> npt.NDArray[np.intp]:
    """How many of the rising `edges` each number reaches, `[rows]`.

    What `np.searchsorted(edges, numbers, side="right")` gives; of few edges, to compare with each
    takes an eighth of its time.
    """
    if len(edges) >= 100:
        return np.searchsorted(np.asarray(edges), numbers, side="right")
    reached, found = np.zeros((2, len(numbers)), dtype=np.uint8)
    for edge in edges:
        np.greater_equal(numbers, edge, out=found.view(bool))
        reached += found
    return reached.astype(np.intp)


def drawn_reals(domain: ColumnDomain, codes: Levels, rng: np.random.Generator) -> Floats:
    """A number of the declared decimals inside each level's bin, uniformly but for its heaps, shape
    `[rows]`.

    A bin without such a number gets any number inside it. Rounding a number of a bin instead would
    put it into the next bin at times.
    """
    left, width = _bins(domain)
    step = 10.0**-domain.decimals
    closed = left + width >= domain.stop
    off = 1e-6  # part of a step that rounding may move an edge by
    first = np.ceil(left / step - off)
    end = (left + width) / step
    last = np.where(closed, np.floor(end + off), np.ceil(end - off) - 1)
    count, uniform = (last - first + 1)[codes], rng.random(len(codes))
    written = np.round((first[codes] + np.floor(uniform * count)) * step, domain.decimals)
    real = np.where(count >= 1, written, left[codes] + uniform * width[codes])
    exact = codes < len(domain.spikes)  # a spike is itself, whatever its decimals
    inside: Floats = np.clip(np.where(exact, left[codes], real), domain.lower, domain.upper)
    return _on_heaps(domain, codes, inside, rng)


def drawn_wholes(domain: ColumnDomain, codes: Levels, rng: np.random.Generator) -> Floats:
    """A whole number inside each level's bin, uniform among those that are no spikes, but for its
    heaps, `[rows]`.
    """
    left, width = _bins(domain)
    drawn: Floats = left[codes] + np.floor(rng.random(len(codes)) * width[codes])
    for _ in range(8):  # redraw what fell on a spike inside a bin; a bin of spikes alone keeps them
        again = np.isin(drawn, domain.spikes)
        again &= (codes >= len(domain.spikes)) & (width[codes] > 1)
        if not again.any():
            break
        inside = rng.random(int(again.sum())) * width[codes[again]]
        drawn[again] = left[codes[again]] + np.floor(inside)
    return _on_heaps(domain, codes, drawn, rng)


def _on_heaps(
    domain: ColumnDomain, codes: Levels, numbers: Floats, rng: np.random.Generator
) -> Floats:
    """`numbers` of levels, `[rows]`, of which each heap has taken its share of its level's."""
    if not domain.heaps:
        return numbers
    uniform, taken = rng.random(len(codes)), np.zeros(domain.levels)
    for level, number, share in domain.heaps:
        below = uniform < taken[level] + share
        numbers = np.where((codes == level) & below & (uniform >= taken[level]), number, numbers)
        taken[level] += share
    return numbers


def _bins(domain: ColumnDomain) -> tuple[Floats, Floats]:
    """Left end and width of each level, `[levels]`; a spike and the missing level have no width."""
    left = np.asarray(domain.spikes + domain.edges + ((0.0,) if domain.missing else ()))
    bins = np.diff(domain.edges + (domain.stop,))
    width = np.concatenate([np.zeros(len(domain.spikes)), bins, np.zeros(int(domain.missing))])
    return left, width
