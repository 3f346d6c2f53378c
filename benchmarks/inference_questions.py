"""Random questions for `benchmarks.inference`, and their true answers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.inference_models import Floats, Values
from synthdp.spec.expressions.query import Query, parse_query
from synthdp.spec.model import ReleaseSpec

Rows = npt.NDArray[np.intp] | slice
"""Which rows of a population: their positions."""
SPANNED = 0.15
"""Part of the questions that are about three columns, and that pairs answer."""


def random_query(rng: np.random.Generator, spec: ReleaseSpec, values: Values) -> str:
    """A question about one or two columns; conditions cut levels as they please.

    Some are about three columns, of which two pairs are enough for an answer.
    """
    names = list(spec.columns)
    if rng.random() < SPANNED:
        a, b, c = (_condition(rng, spec, values, str(n)) for n in rng.permutation(names)[:3])
        return f"{rng.choice(['share', 'count'])}(({a} and {b}) or (not {a} and {c}))"
    return one_or_two(rng, spec, values)


def one_or_two(rng: np.random.Generator, spec: ReleaseSpec, values: Values) -> str:
    """A question about one or two columns."""
    names = list(spec.columns)
    a, b = rng.permutation(names)[:2]
    numeric = [name for name in names if spec.columns[name].operand == "number"]
    kind = rng.choice(["share", "count", "mean", "quantile"], p=[0.4, 0.2, 0.25, 0.15])
    if kind in ("mean", "quantile"):
        a = rng.choice(numeric)
        b = rng.choice([name for name in names if name != a])
    head = {
        "mean": f"mean({_name(a)})",
        "quantile": f"quantile({_name(a)}, {rng.choice([0.1, 0.25, 0.5, 0.75, 0.9])})",
    }.get(kind) or f"{kind}({_condition(rng, spec, values, a)})"
    form = rng.choice(["alone", "where", "by"], p=[0.25, 0.4, 0.35])
    if form == "by" and spec.columns[b].operand == "text":
        return f"{head} by {_name(b)}"
    return head if form == "alone" else f"{head} where {_condition(rng, spec, values, b)}"


def of_three(rng: np.random.Generator, spec: ReleaseSpec, values: Values) -> str:
    """A share or a mean about three columns, which pairs seldom tell."""
    numeric = [name for name in spec.columns if spec.columns[name].operand == "number"]
    a = rng.choice(numeric)
    others = [name for name in spec.columns if name != a]
    b, c = (_condition(rng, spec, values, str(n)) for n in rng.permutation(others)[:2])
    if rng.random() < 0.5:
        return f"mean({_name(a)}) where {b} and {c}"
    return f"share({_condition(rng, spec, values, a)}) where {b} and {c}"


def _name(name: str) -> str:
    return name if name.isidentifier() else f"`{name}`"


def _condition(rng: np.random.Generator, spec: ReleaseSpec, values: Values, name: str) -> str:
    column = spec.columns[name]
    if column.operand == "text":
        most = min(2, len(column.labels) - 1)  # all categories together are no question
        few = rng.choice(column.labels, int(rng.integers(1, most + 1)), replace=False)
        return f"{_name(name)} in ({', '.join(repr(str(v)) for v in few)},)"
    known = values[name][~np.isnan(values[name])]
    at = float(rng.choice(known[:10_000]))
    return f"{_name(name)} {rng.choice(['>=', '<=', '>', '<'])} {at:g}"


@dataclass(frozen=True)
class Truth:
    """The answer for a group of rows: `value`, its standard deviation as an estimate, its rows.

    The deviation is that of a share or mean of so many rows; NaN for other statistics.
    """

    value: float
    deviation: float
    rows: int

    @property
    def asked(self) -> bool:
        """Whether it is a question at all: somebody is asked about, and not all are alike."""
        return not np.isnan(self.value) and self.deviation != 0 and self.rows > 0


@dataclass(frozen=True, eq=False)
class Question:
    """A question to the rows of a population: what each of them counts as.

    `role` is 0 of a row that is not asked about, 1 where its condition is false, 2 where it is true
    (or its number is known); `group` is its place among the groups of `by`, both `[rows]`.
    """

    query: Query
    role: npt.NDArray[np.int8]
    group: npt.NDArray[np.int8]
    groups: int
    numbers: Floats | None

    @classmethod
    def of(cls, text: str, spec: ReleaseSpec, values: Values) -> Question:
        """What `text` asks of a table of `values`."""
        query = parse_query(text, spec.columns)
        rows = len(next(iter(values.values())))
        whole = np.ones(rows, bool)
        true, false = query.condition.truth(values) if query.condition else (whole, ~whole)
        numbers = None if query.column is None else values[query.column]
        if numbers is not None:
            true, false = ~np.isnan(numbers), ~whole
        inside = query.where.truth(values)[0] if query.where else whole
        role = (np.where(true, 2, np.where(false, 1, 0)) * inside).astype(np.int8)
        if not query.by:
            return cls(query, role, np.zeros(rows, np.int8), 1, numbers)
        (by,) = query.by
        labels = len(spec.columns[by].labels)
        group = np.where(np.isnan(values[by]), labels, values[by]).astype(np.int8)
        return cls(query, role, group, labels + spec.columns[by].missing, numbers)

    def answers(self, rows: Rows) -> list[Truth]:
        """The true answers for some rows, by group."""
        role, group = self.role[rows], self.group[rows]
        counts = np.bincount(3 * group.astype(np.intp) + role, minlength=3 * self.groups)
        if self.numbers is None:
            return [self._share(int(c[1]), int(c[2])) for c in counts.reshape(self.groups, 3)]
        known = role == 2
        numbers, group = self.numbers[rows][known], group[known]
        return [self._number(numbers[group == g]) for g in range(self.groups)]

    def _share(self, zeros: int, ones: int) -> Truth:
        if self.query.statistic == "count":
            return Truth(float(ones), np.nan, ones)
        rows = zeros + ones
        p = ones / rows if rows else np.nan
        return Truth(p, float(np.sqrt(p * (1 - p) / rows)) if rows else np.nan, rows)

    def _number(self, numbers: Floats) -> Truth:
        rows = len(numbers)
        if rows == 0:
            return Truth(np.nan, np.nan, 0)
        if self.query.statistic == "mean":
            return Truth(float(numbers.mean()), float(numbers.std() / np.sqrt(rows)), rows)
        at = float(np.quantile(numbers, self.query.p, method="inverted_cdf"))
        return Truth(at, np.nan, rows)
