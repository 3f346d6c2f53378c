"""Types, bounds and categories of unknown columns, as entries of a spec.

They are read off the shapes that noisy counts have (`release.noisy_shape`), and off texts that many
rows have (`privacy.mechanisms.frequent_texts`). All of it is post-processing of released values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from synthdp.data import cells
from synthdp.data.cells import NUMBERS
from synthdp.privacy.mechanisms.frequent_texts import NoisyTexts, Reading
from synthdp.release.noisy_shape import Reader, Shape
from synthdp.spec.init.private_draft import OTHER, FoundColumn
from synthdp.spec.model.fields import alike

MANY_ZEROS = 0.02  # of rows: zero then has a level of its own
WIDE = 256  # whole numbers of a range of which each may have a level of its own
SPIKE, MAX_SPIKES = 0.03, 32  # least share of rows, and number, of very common numbers
MAX_CATEGORIES = 1000


def columns_to_read(reader: Reader) -> dict[str, Reading]:
    """The columns whose texts are worth a look: texts, and whole numbers over a wide range."""
    readings: dict[str, Reading] = {}
    for name, shape in reader.shapes.items():
        if shape.kind == "text":
            readings[name] = "text"
        elif shape.kind == "whole":
            lower, upper = _whole_bounds(shape)
            if upper - lower > WIDE:
                readings[name] = "whole with commas" if reader.commas else "whole"
    return readings


def found_columns(reader: Reader, texts: NoisyTexts | None) -> tuple[FoundColumn, ...]:
    """Each column as the noisy counts have it."""
    return tuple(_found(name, shape, texts) for name, shape in reader.shapes.items())


def _found(name: str, shape: Shape, texts: NoisyTexts | None) -> FoundColumn:
    told = texts.counts.get(name, {}) if texts else {}
    sigma = texts.sigma if texts else 0.0
    codes = shape.codes()
    if codes:
        first = cells.FIRST_NUMBER
        own = {str(n): float(shape.size[first + _cell_of(n)]) for n in codes}
        return _categories(name, shape, own, shape.size_sigma, order=tuple(own))
    match shape.kind:
        case "text":
            return _categories(name, shape, told, sigma)
        case "whole":
            return _whole(name, shape, told)
        case "number":
            return _number(name, shape)
        case "date":
            return _date(name, shape)
    return _categories(name, shape, {}, 0.0)


def _categories(
    name: str,
    shape: Shape,
    counts: Mapping[str, float],
    sigma: float,
    *,
    order: tuple[str, ...] | None = None,
) -> FoundColumn:
    """Categories by falling count, after the one for all else."""
    listed = [OTHER]
    for text in order or sorted(counts, key=lambda text: (-counts[text], text)):
        if len(listed) <= MAX_CATEGORIES and alike((*listed, text)) is None and text != OTHER:
            listed.append(text)
    kept = [text for text in listed if text in counts]
    variance = len(kept) * sigma**2
    lost, error = shape.lost(math.fsum(counts[text] for text in kept), variance)
    entry = {"type": "categorical", "categories": listed}
    plural = "y" if len(kept) == 1 else "ies"
    found = f"{len(kept)} categor{plural}" if kept else "no text that enough rows have"
    return FoundColumn(name, entry | _if_missing(shape), found, lost, error)


def _whole(name: str, shape: Shape, told: Mapping[str, float]) -> FoundColumn:
    lower, upper = _whole_bounds(shape)
    rows = shape.reader.rows[0]
    common = {int(t): n for t, n in told.items() if n >= SPIKE * rows and lower <= int(t) <= upper}
    spikes = sorted(sorted(common, key=lambda n: -common[n])[:MAX_SPIKES])
    if upper - lower > WIDE and lower <= 0 <= upper and shape.zeros >= MANY_ZEROS:
        spikes = sorted({0, *spikes})
    entry = {"type": "integer", "lower": lower, "upper": max(upper, lower + 1)}
    return _range(name, shape, entry, spikes)


def _number(name: str, shape: Shape) -> FoundColumn:
    first, last = shape.number_cells
    lower, upper = NUMBERS[first].lower, NUMBERS[last].upper
    entry = {"type": "number", "lower": lower, "upper": upper, "decimals": shape.decimals}
    zero = lower <= 0 <= upper and shape.zeros >= MANY_ZEROS
    return _range(name, shape, entry, [0.0] if zero else [])


def _date(name: str, shape: Shape) -> FoundColumn:
    first, last = shape.years
    end = "" if shape.resolution == "day" else "T23:59:59"
    entry = {
        "type": "datetime",
        "lower": f"{first:04d}-01-01",
        "upper": f"{last:04d}-12-31{end}",
        "resolution": shape.resolution,
    }
    return _range(name, shape, entry, [])


def _range(name: str, shape: Shape, entry: dict[str, Any], spikes: Sequence[float]) -> FoundColumn:
    lost, error = shape.lost_outside()
    often = f"; often {', '.join(f'{s:.12g}' for s in spikes)}" if spikes else ""
    if spikes:
        entry["spikes"] = list(spikes)
    lower, upper = (
        f"{e:.12g}" if isinstance(e, int | float) else str(e)
        for e in (entry["lower"], entry["upper"])
    )
    found = f"{lower} to {upper}{often}"
    return FoundColumn(name, entry | _if_missing(shape), found, lost, error)


def _whole_bounds(shape: Shape) -> tuple[int, int]:
    """Whole numbers as bounds: those of single cells, or the round numbers at their ends."""
    first, last = (NUMBERS[i] for i in shape.number_cells)
    lower = first.wholes[0] if first.upper - first.lower <= 1 else math.floor(first.lower)
    upper = last.wholes[1] if last.upper - last.lower <= 1 else math.ceil(last.upper)
    return lower, upper


def _cell_of(number: int) -> int:
    return cells.size_of(str(number)) - cells.FIRST_NUMBER


def _if_missing(shape: Shape) -> dict[str, Any]:
    return {"missing": True} if shape.may_be_missing else {}
