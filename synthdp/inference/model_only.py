"""Tier C: what the synthetic rows say, without an interval, because nothing bounds its error."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from synthdp.data.column_domain import ColumnDomain
from synthdp.data.domain import Domain
from synthdp.data.kinds import column_kind
from synthdp.errors import VerifyError
from synthdp.inference.effect_query import against
from synthdp.inference.figures import Figure
from synthdp.spec.expressions.query import Query

TABLE = "synthetic.csv"

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


def model_figures(query: Query, bundle: Path, domain: Domain, *, rows: float) -> tuple[Figure, ...]:
    """The figures of the synthetic table. Counts are scaled to a table of `rows` rows.

    Raises:
        VerifyError: the table cannot be read.
    """
    from synthdp.data.encoding import encode_column, operand_values

    columns = {name: domain[name] for name in query.columns}
    text = _texts(bundle, list(columns))
    values, codes = dict[str, Floats](), dict[str, npt.NDArray[np.uint16]]()
    for name, column in columns.items():
        parsed = column_kind(column).parsed(column, text[name])
        codes[name] = encode_column(column, parsed).codes
        values[name] = operand_values(column, codes[name], parsed)
    numbers = [values[name] / columns[name].unit for name in query.numbers]
    whole = np.ones(len(text), bool)
    true, false = query.condition.truth(values) if query.condition else (whole, ~whole)
    if numbers:
        known = ~np.isnan(numbers).any(axis=0)
        true, false = true & known, false & known
    weights = numbers.pop() if query.weight else None
    inside = query.where.truth(values)[0] if query.where else whole
    scale = rows / max(1, len(text))
    found = []
    for levels in product(*(enumerate(columns[name].labels) for name in query.by)):
        mask = inside
        for name, (level, _) in zip(query.by, levels, strict=True):
            mask = mask & (codes[name] == level)
        group = ", ".join(label for _, label in levels) or None
        found.append(_figure(query, group, mask & true, mask & false, numbers, scale, weights))
    return tuple(found)


def model_effects(
    bundle: Path,
    columns: Sequence[ColumnDomain],
    level: int | None,
    pairs: Sequence[tuple[int, int]],
) -> list[Figure]:
    """Effects in the synthetic table, as evaluation estimates them: doubly robust, linear.

    `columns` are the treatment, the outcome and what is adjusted for. `pairs` are levels of the
    treatment, each with its reference. `level` is that of the outcome whose share is asked for;
    None asks for the mean.

    Raises:
        VerifyError: the table cannot be read.
    """
    import pandas as pd

    from synthdp.data.encoding import encode_column
    from synthdp.evaluate.effects import SETTINGS, average_effect, outcome_values
    from synthdp.evaluate.utility import build_features, join

    text = _texts(bundle, [c.name for c in columns])
    frame = pd.DataFrame({c.name: column_kind(c).parsed(c, text[c.name]) for c in columns})
    arms, y_codes = (encode_column(c, frame[c.name]).codes for c in columns[:2])
    y = outcome_values(columns[1], frame, y_codes)
    if level is not None:
        y = np.where(np.isnan(y), np.nan, y_codes == level)
    parts = build_features(Domain(tuple(columns)), frame, [c.name for c in columns[2:]])
    x = join([*parts.values()]).wide.astype(np.float64) if parts else np.zeros((len(text), 0))
    found = []
    for treated, reference in pairs:
        name = against(columns[0], treated, reference)
        one, two = (~np.isnan(y) & (arms == a) for a in (treated, reference))
        if min(one.sum(), two.sum()) < SETTINGS.min_rows:
            found.append(Figure(name, refused="too few synthetic rows"))
            continue
        used = one | two
        found.append(Figure(name, estimate=average_effect(y[used], one[used], x[used]).value))
    return found


def _texts(bundle: Path, names: list[str]) -> Any:
    import pandas as pd

    try:
        return pd.read_csv(
            bundle / TABLE,
            usecols=names,
            dtype=str,
            keep_default_na=False,
            na_filter=False,
            encoding="utf-8",
            index_col=False,
        )
    except (OSError, ValueError) as error:
        raise VerifyError(
            f"cannot read {TABLE} in {bundle}: {type(error).__name__}",
            hint=f"see `synthdp verify {bundle}`",
        ) from None


def _figure(
    query: Query,
    group: str | None,
    one: Mask,
    zero: Mask,
    numbers: Sequence[Floats],
    scale: float,
    weights: Floats | None,
) -> Figure:
    """`scale` is how many rows of the table a synthetic row stands for."""
    if query.statistic == "count":
        count = float(one.sum()) * scale
        return Figure(group, count, count)
    about = float(one.sum() + zero.sum()) * scale
    if not (one | zero).any():
        return Figure(group, 0.0, refused="no synthetic row is like this")
    if weights is not None:
        known, counts = one | zero, numbers[0] if numbers else one * 1.0
        some = weights[known]
        if not some.any():
            return Figure(group, about, refused="no synthetic row has a weight")
        return Figure(group, about, float(np.average(counts[known], weights=some)))
    if not numbers:
        return Figure(group, about, float(one.sum() / (one.sum() + zero.sum())))
    asked = [number[one] for number in numbers]
    if query.statistic == "correlation":
        if min(map(np.ptp, asked)) == 0:
            return Figure(group, about, refused="one number does not vary in the synthetic rows")
        return Figure(group, about, float(np.corrcoef(asked[0], asked[1])[0, 1]))
    if query.statistic == "quantile":
        return Figure(group, about, float(np.quantile(asked[0], query.p, method="inverted_cdf")))
    size = 1.0 if query.statistic == "mean" else about
    return Figure(group, about, float(asked[0].mean()) * size)
