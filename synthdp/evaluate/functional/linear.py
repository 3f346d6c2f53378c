"""Numbers and dates that are a linear function of a few others, with simple coefficients.

Columns are taken one after another, those that are rounded least first. Each is regressed on those
before it that are no such function themselves (least squares on standardised columns, as in a QR
factorisation without pivoting). Where nothing is left but rounding, coefficients that are 0 up to
their standard error are dropped, the others replaced by the simplest fraction within it, and the
rest compared with rounding once more.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from synthdp.evaluate.functional.claims import (
    MIN_ROWS,
    DerivedClaim,
    Floats,
    Values,
    rounding,
    written_rounding,
)
from synthdp.spec.expressions.parsed import quoted
from synthdp.spec.model import Column

FIT_ROWS = 1000
"""Most rows of one regression."""
MAX_TERMS = 6
"""Most other columns of one relation."""
COARSE = 0.05
"""Rounding, as a share of a column's standard deviation, beyond which it proves nothing."""
EXACT = 1e-12
"""Relative error of sums of 64-bit numbers; some way above what they have."""
SOLVED = 1e-9
"""Relative error of coefficients, which are compared with the rows once they are replaced."""
ERRORS = 5.0
"""Standard errors within which a coefficient may be replaced."""
LEAST = 1e-7
"""Standardised coefficient below which a term is nothing but the error of computing."""
MAX_DENOMINATOR, DIGITS = 1000, 6
"""Of a coefficient: the largest denominator, or else the most decimals."""


@dataclass(frozen=True)
class Relation:
    """The sum of the `terms` (column, coefficient) and of `constant` is 0."""

    terms: Mapping[str, Fraction]
    constant: Fraction


def linear_claims(columns: Mapping[str, Column], values: Values) -> list[DerivedClaim]:
    """Every relation found among `columns`, all of which are numbers or dates that vary."""
    dates = {name for name, column in columns.items() if column.operand == "date"}
    claims = []
    for relation in relations(columns, values):
        names = sorted(relation.terms, key=lambda n: (_clumsy(relation, n), list(columns).index(n)))
        ways = tuple((n, text) for n in names if (text := solved(relation, n, dates)) is not None)
        if ways:
            claims.append(DerivedClaim(tuple(n for n in columns if n in relation.terms), ways))
    return claims


def relations(columns: Mapping[str, Column], values: Values) -> list[Relation]:
    """Linear relations, each of which has a column that no earlier one has."""

    def fineness(name: str) -> float:
        return written_rounding(columns[name]) / max(float(np.nanstd(values[name])), 1e-300)

    found, basis = list[Relation](), list[str]()
    for name in sorted(columns, key=fineness):
        known = _complete(name, basis, values)
        relation = _regressed(name, known, columns) if len(known) > 1 else None
        if relation is None:
            basis.append(name)
        elif 0 < len(relation.terms) <= MAX_TERMS + 1:
            found.append(relation)
    return found


def _complete(name: str, basis: Sequence[str], values: Values) -> dict[str, Floats]:
    """Rows that miss nothing of the column and of as much of the basis as leaves enough of them."""
    known = ~np.isnan(values[name])
    missing = {n: int(np.isnan(values[n][known]).sum()) for n in basis}
    chosen = [name]
    for other in sorted(basis, key=lambda n: missing[n]):
        both = known & ~np.isnan(values[other]) if missing[other] else known
        if both.sum() >= max(MIN_ROWS, 2 * len(chosen)):
            known, chosen = both, [*chosen, other]
    rows = np.flatnonzero(known)[:FIT_ROWS]
    taken = {n: values[n][rows] for n in chosen}
    return {n: v for n, v in taken.items() if n == name or v.std() > 0}


def _regressed(
    name: str, values: Mapping[str, Floats], columns: Mapping[str, Column]
) -> Relation | None:
    """The relation of the column with others; None where there is none.

    One without terms says that the column is a function of others, and not a simple one.
    """
    y, scale = values[name], float(values[name].std())
    others = [n for n in values if n != name]
    if scale == 0 or not others:
        return None
    beta, error, rest = _least_squares(y, [values[n] for n in others])
    slack = _slack(name, dict(zip(others, beta, strict=True)), values, columns)
    exact = EXACT * 10 * max(scale, float(np.abs(y).max()))
    if rest > exact and (slack > COARSE * scale or rest > 1.5 * slack):
        return None
    spread = np.array([values[n].std() for n in others]) / scale
    kept = [
        n
        for n, b, e in zip(others, beta * spread, error * spread, strict=True)
        if abs(b) > ERRORS * e + LEAST
    ]
    nothing = Relation({}, Fraction(0))
    if not 0 < len(kept) <= MAX_TERMS:
        return nothing
    beta, error, _ = _least_squares(y, [values[n] for n in kept])
    simple = [_simplest(b, ERRORS * e) for b, e in zip(beta, error, strict=True)]
    terms = {n: c for n, c in zip(kept, simple, strict=True) if c is not None and c != 0}
    if len(terms) < len(kept):
        return nothing
    left = y - sum(float(c) * values[n] for n, c in terms.items())
    slack = _slack(name, {n: float(c) for n, c in terms.items()}, values, columns)
    constant = _constant(float(left.min()), float(left.max()), max(slack, exact))
    if constant is None:
        return nothing
    terms[name] = Fraction(-1)
    return Relation({n: terms[n] for n in columns if n in terms}, constant)


def _least_squares(y: Floats, columns: Sequence[Floats]) -> tuple[Floats, Floats, float]:
    """Coefficients, their standard errors, and the largest residual; there is an intercept."""
    x = np.column_stack(columns)
    centred = x - x.mean(0)
    scale = centred.std(0)
    z, right = centred / scale, y - y.mean()
    beta = np.linalg.lstsq(z, right, rcond=None)[0]
    rest = right - z @ beta
    variance = rest @ rest / max(1, len(y) - x.shape[1] - 1)
    error = np.sqrt(variance * np.diag(np.linalg.pinv(z.T @ z)).clip(0))
    return beta / scale, error / scale, float(np.abs(rest).max())


def _slack(
    name: str,
    coefficients: Mapping[str, float],
    values: Mapping[str, Floats],
    columns: Mapping[str, Column],
) -> float:
    """How far rounding of all the columns may move the column from what is computed."""
    largest = max(float(np.abs(c * values[n]).max()) for n, c in coefficients.items())
    moved = sum(abs(c) * rounding(columns[n]) for n, c in coefficients.items())
    return written_rounding(columns[name]) + moved + EXACT * largest


def _simplest(value: float, error: float) -> Fraction | None:
    """The simplest number within `error` of `value`; None where none is simple.

    >>> _simplest(0.33333333, 1e-6), _simplest(2.54000001, 1e-6), _simplest(0.7182818, 1e-9)
    (Fraction(1, 3), Fraction(127, 50), None)
    """
    near = max(error, SOLVED * abs(value))
    for denominator in range(1, MAX_DENOMINATOR + 1):
        simple = Fraction(round(value * denominator), denominator)
        if abs(float(simple) - value) <= near:
            return simple
    decimal = Fraction(f"{value:.{DIGITS}f}")
    return decimal if abs(float(decimal) - value) <= near else None


def _constant(low: float, high: float, slack: float) -> Fraction | None:
    """The shortest number that leaves residuals of `low` to `high` within `slack`."""
    middle = (low + high) / 2
    for most in (slack * (1 - SOLVED), slack):  # best without a value halfway between two others
        for digits in range(DIGITS + 1):
            value = Fraction(f"{middle:.{digits}f}")
            if high - most <= float(value) <= low + most:
                return value
    return None


# --- as expressions ---


def _clumsy(relation: Relation, name: str) -> tuple[int, int, int, int]:
    """Sums are read more easily than differences, and those than multiples and fractions."""
    own = -relation.terms[name]
    others = [c / own for n, c in relation.terms.items() if n != name]
    mixed = 0 if all(c > 0 for c in others) else 1 if all(c < 0 for c in others) else 2
    return (
        sum(abs(c) != 1 for c in others),
        mixed,
        sum(c.denominator > 1 for c in others),
        len(str(relation.constant / own)),
    )


def solved(relation: Relation, name: str, dates: set[str]) -> str | None:
    """How a column of the relation is computed from its others; None where dates do not allow it.

    >>> solved(Relation({"p": Fraction(-1), "q": Fraction(-2)}, Fraction(3)), "p", set())
    '3 - 2 * q'
    """
    own = -relation.terms[name]
    others = {n: c / own for n, c in relation.terms.items() if n != name}
    constant, dated = relation.constant / own, [n for n in others if n in dates]
    if _number(constant) is None:
        return None
    parts = [(c, quoted(n)) for n, c in others.items() if n not in dates]
    if name in dates:
        if len(dated) != 1 or others[dated[0]] != 1:
            return None
        parts.insert(0, (Fraction(1), quoted(dated[0])))
    elif dated:
        later = [n for n in dated if others[n] > 0]
        if len(dated) != 2 or sum(others[n] for n in dated) != 0:
            return None
        earlier = next(n for n in dated if n not in later)
        parts.insert(0, (others[later[0]], f"({quoted(later[0])} - {quoted(earlier)})"))
    if not constant and len(parts) > 1 and all(c < 0 for c, _ in parts):
        return f"-({' + '.join(_scaled(-c, text) for c, text in parts)})"
    parts.sort(key=lambda part: part[0] < 0)
    text = "".join(f" {'-' if c < 0 else '+'} {_scaled(abs(c), t)}" for c, t in parts)
    if constant:
        sign = "-" if constant < 0 else "+"
        if parts[0][0] < 0:  # a number comes before what is taken from it
            return f"{_number(constant)}{text}"
        text += f" {sign} {_number(abs(constant))}"
    return text.removeprefix(" + ") if text.startswith(" + ") else f"-{text.removeprefix(' - ')}"


def _scaled(coefficient: Fraction, text: str) -> str:
    """`text` times a positive coefficient."""
    if coefficient == 1:
        return text.removeprefix("(").removesuffix(")") if text.count("(") == 1 else text
    if coefficient.numerator == 1:
        return f"{text} / {coefficient.denominator}"
    shown = _number(coefficient)
    if shown is not None:
        return f"{shown} * {text}"
    return f"{coefficient.numerator} * {text} / {coefficient.denominator}"


def _number(value: Fraction) -> str | None:
    """A number that a few digits write exactly; None for any other."""
    shown = f"{float(value):.12g}"
    return shown if Fraction(shown) == value else None


# --- products ---
#
# Numbers that are the product or the quotient of two others.


FIRST_ROWS = 64
"""Rows on which all pairs are tried; what fits them is tried on all rows."""
MORE_ROWS = 500
"""Rows instead of these where few rows have all numbers."""
MAX_FACTORS = 40
"""Most columns that are tried as factors."""


def product_claims(
    columns: Mapping[str, Column], values: Values, *, related: Collection[frozenset[str]]
) -> list[DerivedClaim]:
    """Products and quotients among numbers that vary; sets in `related` are passed over.

    What fits on few rows is a claim, so that it has to be checked on all.
    """
    names = [n for n, column in columns.items() if column.operand == "number"][:MAX_FACTORS]
    if len(names) < 3:
        return []
    known = np.flatnonzero(~np.isnan(np.stack([values[n] for n in names])).any(0))
    # Columns that are seldom known together are tried on what they have.
    rows = known[:FIRST_ROWS] if len(known) >= FIRST_ROWS else slice(MORE_ROWS)
    tried = _Tried(
        np.stack([values[n][rows] for n in names]),
        np.array([rounding(columns[n]) for n in names]),
        np.array([written_rounding(columns[n]) for n in names]),
        np.array([np.nanstd(values[n]) for n in names]),
    )
    both = list(itertools.combinations(range(len(names)), 2))
    turned = [(b, a) for a, b in both]
    ways: dict[frozenset[str], list[tuple[float, str, str]]] = {}
    # A quotient is missing where it divides by 0, so a product is taken that is nearly as exact.
    for sign, pairs, cost in (("*", both, 1), ("/", both + turned, 2)):
        for a, b in pairs:
            for k, coarse in tried.equal(a, b, sign):
                group = frozenset((names[a], names[b], names[k]))
                if k not in (a, b) and group not in related:
                    text = f"{quoted(names[a])} {sign} {quoted(names[b])}"
                    ways.setdefault(group, []).append((coarse * cost, names[k], text))
    return [
        DerivedClaim(
            tuple(n for n in columns if n in group),
            tuple((name, text) for _, name, text in sorted(found, key=operator.itemgetter(0))),
        )
        for group, found in ways.items()
    ]


@dataclass(frozen=True, eq=False)
class _Tried:
    """Numbers `[columns, rows]`; of each column its rounding, as input and result, and spread."""

    table: Floats
    slack: Floats
    own: Floats
    spread: Floats

    def equal(self, a: int, b: int, sign: str) -> list[tuple[int, float]]:
        """Columns that a product or quotient equals wherever they are known.

        With each, what rounding may hide as a share of the column's spread: 0 where it agrees
        exactly.
        """
        table, slack = self.table, self.slack
        if sign == "*":
            value = table[a] * table[b]
            moved = slack[b] * np.abs(table[a]) + slack[a] * np.abs(table[b])
        else:
            value = table[a] / table[b]
            moved = (slack[a] + slack[b] * np.abs(value)) / np.abs(table[b])
        usable = np.isfinite(value)
        if usable.sum() < FIRST_ROWS / 2:
            return []
        apart = np.abs(table - value)[:, usable]
        near = self.own[:, None] + (moved + EXACT * np.abs(value))[usable]
        unknown = np.isnan(apart)
        agree = ((apart <= near) | unknown).all(1) & ((~unknown).sum(1) >= FIRST_ROWS / 4)
        largest = np.where(unknown, 0.0, apart).max(1)
        exact = largest <= EXACT * np.abs(value[usable]).max()
        coarse = np.where(exact, 0.0, np.median(near, axis=1) / self.spread)
        return [(k, float(coarse[k])) for k in np.flatnonzero(agree & (coarse <= COARSE)).tolist()]
