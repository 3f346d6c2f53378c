"""Ranges as levels: spikes, then bins; where a number lies, and numbers drawn inside of bins."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from synthdp.data.column_domain import MISSING_LABEL, ColumnDomain
from synthdp.data.kinds.kind import Floats
from synthdp.spec.model import Ranged

FEW_EDGES = 100  # to compare with as many takes as long as to search among them
ROUNDING = 1e-6
"""Part of a step of the last decimal that an edge may be off by."""


def range_levels(
    name: str, column: Ranged, text: Callable[[float], str], *, decimals: int, resolution: str
) -> ColumnDomain:
    """A range as levels; `text` writes a number of its scale."""
    whole = not column.continuous
    lower, upper = column.number(column.lower), column.number(column.upper)
    spikes = tuple(sorted(column.number(s) for s in column.spikes))
    # A spike at an end of a whole-number range is not part of the bins beside it.
    start = lower + (1.0 if whole and lower in spikes else 0.0)
    stop = upper + (1.0 if whole else 0.0) - (1.0 if whole and upper in spikes else 0.0)
    if column.edges is not None:
        edges = tuple(column.number(e) for e in column.edges)
    else:
        edges = _equal_bins(start, stop, column.bins, whole=whole)
    bins = _whole_labels(edges, stop, text) if whole else _real_labels(edges, stop)
    tail = (MISSING_LABEL,) if column.missing else ()
    return ColumnDomain(
        name,
        column.type,
        tuple(map(text, spikes)) + bins + tail,
        column.missing,
        spikes,
        edges,
        stop,
        lower,
        upper,
        decimals,
        resolution,
    )


def _equal_bins(start: float, stop: float, bins: int, *, whole: bool) -> tuple[float, ...]:
    if stop <= start:
        return ()
    grid = np.linspace(start, stop, bins + 1)
    if whole:
        grid = np.round(grid)
    return tuple(float(e) for e in np.unique(grid)[:-1])


def _real_labels(edges: tuple[float, ...], stop: float) -> tuple[str, ...]:
    ends = edges[1:] + (stop,)
    closing = [")"] * (len(edges) - 1) + ["]"]
    return tuple(f"[{a:g}, {b:g}{c}" for a, b, c in zip(edges, ends, closing, strict=False))


def _whole_labels(
    edges: tuple[float, ...], stop: float, text: Callable[[float], str]
) -> tuple[str, ...]:
    ends = edges[1:] + (stop,)
    return tuple(
        text(a) if b - a == 1 else f"{text(a)} to {text(b - 1)}"
        for a, b in zip(edges, ends, strict=True)
    )


def level_of(domain: ColumnDomain, numbers: Floats) -> npt.NDArray[np.intp]:
    """Level of each in-range number, shape `[rows]`: its spike if it is one, else its bin."""
    codes = np.zeros(len(numbers), dtype=np.intp)
    if domain.edges:
        codes = _reached(domain.edges[1:], numbers) + len(domain.spikes)
    for i, spike in enumerate(domain.spikes):
        codes = np.where(numbers == spike, i, codes)
    return codes


def _reached(edges: tuple[float, ...], numbers: Floats) -> npt.NDArray[np.intp]:
    """How many of the rising `edges` each number reaches, `[rows]`.

    What `np.searchsorted(edges, numbers, side="right")` gives; of few edges, to compare with each
    takes an eighth of its time.
    """
    if len(edges) >= FEW_EDGES:
        return np.searchsorted(np.asarray(edges), numbers, side="right")
    reached, found = np.zeros((2, len(numbers)), dtype=np.uint8)
    for edge in edges:
        np.greater_equal(numbers, edge, out=found.view(bool))
        reached += found
    return reached.astype(np.intp)


def drawn_reals(
    domain: ColumnDomain, codes: npt.NDArray[np.integer], rng: np.random.Generator
) -> Floats:
    """A number of the declared decimals inside each level's bin, uniformly, shape `[rows]`.

    A bin without such a number gets any number inside it. Rounding a number of a bin instead would
    put it into the next bin at times.
    """
    left, width = _bins(domain)
    step = 10.0**-domain.decimals
    closed = left + width >= domain.stop
    first = np.ceil(left / step - ROUNDING)
    last = np.where(
        closed,
        np.floor((left + width) / step + ROUNDING),
        np.ceil((left + width) / step - ROUNDING) - 1,
    )
    count, uniform = (last - first + 1)[codes], rng.random(len(codes))
    written = np.round((first[codes] + np.floor(uniform * count)) * step, domain.decimals)
    real = np.where(count >= 1, written, left[codes] + uniform * width[codes])
    exact = codes < len(domain.spikes)  # a spike is itself, whatever its decimals
    inside: Floats = np.clip(np.where(exact, left[codes], real), domain.lower, domain.upper)
    return inside


def drawn_wholes(
    domain: ColumnDomain, codes: npt.NDArray[np.integer], rng: np.random.Generator
) -> Floats:
    """A whole number inside each level's bin, uniform among those that are no spikes, `[rows]`."""
    left, width = _bins(domain)
    drawn: Floats = left[codes] + np.floor(rng.random(len(codes)) * width[codes])
    for _ in range(8):  # redraw what fell on a spike inside a bin; a bin of spikes alone keeps them
        again = np.isin(drawn, domain.spikes)
        again &= (codes >= len(domain.spikes)) & (width[codes] > 1)
        if not again.any():
            break
        drawn[again] = left[codes[again]] + np.floor(
            rng.random(int(again.sum())) * width[codes[again]]
        )
    return drawn


def _bins(domain: ColumnDomain) -> tuple[Floats, Floats]:
    """Left end and width of each level, `[levels]`; a spike and the missing level have no width."""
    left = np.asarray(domain.spikes + domain.edges + ((0.0,) if domain.missing else ()))
    width = np.concatenate(
        [
            np.zeros(len(domain.spikes)),
            np.diff(domain.edges + (domain.stop,)),
            np.zeros(int(domain.missing)),
        ]
    )
    return left, width
