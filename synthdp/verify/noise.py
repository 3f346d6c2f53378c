"""A test whether noisy tables of the same rows differ by as much as their noise scale says.

It costs no rows and no budget.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array
from scipy.stats import chi2

from synthdp.bundle.certificate.audit_record import TableNoise
from synthdp.bundle.noisy_tables import read_tables
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.verify.reader import Check, Reader

FALSE_ALARMS = (
    1e-6  # of `verify`: nobody is to refuse an honest bundle, and it cannot be made again
)
MAX_CELLS = 4000  # of all tables that are compared
MAX_COMPARED = 1500  # differences, whose covariance is a matrix

Floats = npt.NDArray[np.float64]
Contrast = dict[int, float]  # weights of cells by their position


def noise_of(tables: Sequence[NoisyTable], *, false_alarms: float) -> TableNoise | None:
    """The test of whether noisy tables of the same rows differ by as much as their noise says.

    None where no two tables can be compared.

    Totals of one-way tables, and each margin of a table over several columns less the one-way table
    of that column, are noise alone: whatever the counts are, they cancel. Honest tables are refuted
    with a chance of at most `false_alarms`. [Derived here. These contrasts c = A e, of independent
    noise e of known variances, are whole numbers of covariance S; q = c' S^-1 c, of d degrees.

    Too little, if not for whole numbers: chi-square. But whole numbers may be equal by chance,
    which a normal law never has. The contrasts of discrete Gaussians are a discrete Gaussian
    vector, up to parts in exp(-2 pi^2 sigma^2), and two bounds hold for it; the smaller one counts.
    (1) Its chance at k is at most exp(tr(S^-1) / 24) times the normal mass of the unit cube around
    k (Jensen, the cube being symmetric), so that P(q <= t) is at most that factor times chi-square
    at (sqrt(t) + r)^2, r being how far a corner of the cube is out. (2) Chernoff, with E exp(-s q)
    = (1 + 2 s)^(-d/2) sum over m of exp(-2 pi^2 m' S m / (1 + 2 s)) (Poisson's sum). With S = L D
    L', one m_i after the other, that sum is at most the product of the sums over n of exp(-2 pi^2
    n^2 D_i / (1 + 2 s)), since a shift only makes such a sum smaller.
    Too much: discrete Gaussians are sub-Gaussian, so that E exp(s q) is at most that of chi-square,
    and Chernoff's bound holds.] Tables beyond `MAX_CELLS` cells, and contrasts beyond
    `MAX_COMPARED`, are left out.
    """
    used = _compared(tables)
    contrasts = [c for _, own in used for c in own][:MAX_COMPARED]
    if not contrasts:
        return None
    square, inverse, steps = _distance([t for t, _ in used], contrasts)
    degrees = len(contrasts)
    p_less = min(_by_cubes(square, inverse), _by_chernoff(square, steps))
    p_more = (
        math.exp((degrees - square + degrees * math.log(square / degrees)) / 2)
        if square > degrees
        else 1.0
    )
    return TableNoise(
        tables=len(used),
        comparisons=degrees,
        share=square / degrees,
        too_little=p_less < false_alarms / 2,
        too_much=p_more < false_alarms / 2,
    )


def _by_cubes(square: float, inverse: Floats) -> float:
    corner = math.sqrt(float(np.abs(inverse).sum()) / 4)
    return math.exp(min(float(np.trace(inverse)) / 24, 100.0)) * float(
        chi2.cdf((math.sqrt(square) + corner) ** 2, len(inverse))
    )


def _by_chernoff(square: float, steps: Floats) -> float:
    degrees = len(steps)
    wide = np.geomspace(1, 1 + 1e3 * (degrees + steps.max()), 400)  # 1 + 2 s
    sums = sum(_log_sum(step / wide) for step in steps)
    return math.exp(
        min(0.0, float((((wide - 1) * square - degrees * np.log(wide)) / 2 + sums).min()))
    )


def _log_sum(variance: Floats) -> Floats:
    """Logarithm of the sum over all integers n of exp(-2 pi^2 n^2 variance).

    For small variances it uses Poisson's form of the sum.
    """
    squares, narrow = np.arange(1, 5)[:, None] ** 2, variance < 1 / (2 * math.pi)
    plain = np.log1p(2 * np.exp(-2 * math.pi**2 * squares * variance).sum(0))
    dual = (
        np.log1p(2 * np.exp(-squares / (2 * variance)).sum(0)) - np.log(2 * math.pi * variance) / 2
    )
    out: Floats = np.where(narrow, dual, plain)
    return out


def _distance(
    tables: Sequence[NoisyTable], contrasts: Sequence[Contrast]
) -> tuple[float, Floats, Floats]:
    """Squared length of the contrasts in units of their covariance, its inverse, and its factor D.

    The covariance is L D L'.
    """
    seen = np.concatenate([np.ravel(t.counts) for t in tables])
    variances = np.concatenate([np.full(t.counts.size, t.sigma**2) for t in tables])
    rows = np.repeat(np.arange(len(contrasts)), [len(c) for c in contrasts])
    places = np.fromiter((place for c in contrasts for place in c), dtype=np.int64)
    design = csr_array(
        (np.fromiter((w for c in contrasts for w in c.values()), dtype=np.float64), (rows, places)),
        shape=(len(contrasts), len(seen)),
    )
    covariance = (design.multiply(variances) @ design.T).toarray()
    factors = cho_factor(covariance, lower=True)
    inverse: Floats = cho_solve(factors, np.eye(len(contrasts)))
    found = design @ seen
    return max(0.0, float(found @ inverse @ found)), inverse, np.diag(factors[0]) ** 2


def _compared(tables: Sequence[NoisyTable]) -> list[tuple[NoisyTable, list[Contrast]]]:
    """The compared tables, each with its contrasts to those before it.

    No contrast follows from others.
    """
    single = {t.columns[0]: t for t in tables if len(t.columns) == 1}
    starts, cells, found = dict[str, int](), 0, list[tuple[NoisyTable, list[Contrast]]]()
    for name, table in single.items():
        starts[name] = cells
        cells += table.counts.size
        first = next(iter(single.values()))
        total = dict.fromkeys(range(first.counts.size), -1.0) | dict.fromkeys(
            range(starts[name], cells), 1.0
        )
        found.append((table, [total] if found else []))
    for table in (t for t in tables if len(t.columns) > 1 and set(t.columns) <= set(single)):
        if cells + table.counts.size <= MAX_CELLS:
            found.append((table, list(_margins(table, single, starts, cells))))
            cells += table.counts.size
    return found


def _margins(
    table: NoisyTable, single: Mapping[str, NoisyTable], starts: Mapping[str, int], start: int
) -> Iterator[Contrast]:
    """Each level of each margin minus its one-way count, or that of its group of levels.

    The last level of later margins follows from the others and the totals.
    """
    for axis, name in enumerate(table.columns):
        level_of = np.ravel(np.indices(table.counts.shape)[axis])
        levels = single[name].counts.size
        first = [*table.starts.get(name, range(levels)), levels]
        for level in range(table.counts.shape[axis] - (axis > 0)):
            own = range(starts[name] + first[level], starts[name] + first[level + 1])
            yield dict.fromkeys(own, -1.0) | dict.fromkeys(
                (start + np.flatnonzero(level_of == level)).tolist(), 1.0
            )


def _check_noise(reader: Reader) -> Iterator[str]:
    """Noise of the size that is claimed is in the noisy tables."""
    found = noise_of(read_tables(reader.folder), false_alarms=FALSE_ALARMS)
    if found is not None and found.too_little:
        yield (
            "marginals.json: its tables agree better than noise of the size that is claimed lets"
            " them: less was added, or none"
        )
    if found is not None and found.too_much:
        yield (
            "marginals.json: its tables disagree by more than noise of the size that is claimed"
            " lets them: they are not of the same rows"
        )


NOISE_CHECKS: dict[str, tuple[str, Check]] = {"noise": ("marginals.json", _check_noise)}
