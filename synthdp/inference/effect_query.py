"""What an effect is asked of: two columns, the levels compared, and what to adjust for."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from synthdp.data.column_domain import ColumnDomain
from synthdp.errors import OutputError
from synthdp.inference.figures import Figure, Floats, Interval, Rows, Z, value_bounds
from synthdp.inference.least_squares import SETTINGS, LeastSquares
from synthdp.spec.expressions.parsed import quoted
from synthdp.spec.load.wording import nearest
from synthdp.spec.model import ReleaseSpec, derived_of

LOW, MIDDLE, HIGH = range(3)
"""Rows of the outcome's numbers: the least, the middle and the largest of each level."""
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class EffectQuery:
    """The effect of `treatment` on the mean of `outcome`, or on the share of a `level` of it.

    None of `adjust` leaves the choice to the graph; None of `reference` is the first level. `clip`
    is where the outcome's numbers end, if they are cut, and `steps` at how many visits the
    treatment is set.
    """

    treatment: str
    outcome: str
    adjust: tuple[str, ...] | None = None
    reference: str | None = None
    level: str | None = None
    clip: tuple[float, ...] | None = None
    steps: int = 1

    @property
    def text(self) -> str:
        asked = f"mean({self.outcome})" if self.level is None else f"{self.outcome} {self.level}"
        often = f" at {self.steps} visits in a row" if self.steps > 1 else ""
        return f"effect of {self.treatment}{often} on {asked}"

    def checked(self, spec: ReleaseSpec) -> EffectQuery:
        """The same with the level of its outcome: a boolean's is true.

        Raises:
            OutputError: a name or a level is unknown, or the outcome has no mean.
        """
        named = (self.treatment, self.outcome, *(self.adjust or ()))
        known = [name for name, c in spec.columns.items() if derived_of(c) is None]
        for name in named:
            if name not in known:
                raise OutputError(
                    f"{name!r} is no column that was counted",
                    hint=nearest(name, known) or f"one of {', '.join(map(quoted, known))}",
                )
        if len(set(named)) < len(named):
            raise OutputError(
                "treatment, outcome and columns to adjust for are not all different",
                hint="name each column once",
            )
        column = spec.columns[self.outcome]
        if column.operand == "number" and self.level is None:
            return self
        if column.operand in ("number", "date"):
            raise OutputError(
                f"column {self.outcome!r} has no share of a level: it holds {column.operand}s",
                hint="leave the level out" if column.operand == "number" else "ask of another one",
            )
        level = column.labels[1] if column.truth and self.level is None else self.level
        if level not in column.labels:
            lacks = "" if level is None else f", and no level {level!r}"
            raise OutputError(
                f"column {self.outcome!r} has no mean{lacks}: say of which level the share is"
                " asked",
                hint=nearest(level or "", column.labels)
                or f"--level, one of {', '.join(column.labels)}",
            )
        return replace(self, level=level)

    def numbers(self, column: ColumnDomain) -> Floats:
        """The least, the middle and the largest number of each level of the outcome, `[3, levels]`.

        Of a share they are 0 and 1. The missing level has NaN.
        """
        if self.level is None:
            low, high = value_bounds(column)
            if self.clip is not None:
                least, most = self.clip
                low, high = np.clip(low, least, most), np.clip(high, least, most)
            return np.stack([low, (low + high) / 2, high])
        one = np.array([float(label == self.level) for label in column.labels])
        if column.missing_level is not None:
            one[column.missing_level] = np.nan
        return np.tile(one, (3, 1))

    def levels(self, column: ColumnDomain) -> tuple[list[int], int]:
        """The levels of the treatment that are compared, and the one that they are compared with.

        Raises:
            OutputError: there are too many, or the reference is none of them.
        """
        levels = [i for i in range(column.levels) if i != column.missing_level]
        labels = [column.labels[i] for i in levels]
        if len(levels) > SETTINGS.max_levels:
            raise OutputError(
                f"column {column.name!r} has {len(levels)} levels, and a treatment may have"
                f" {SETTINGS.max_levels}",
                hint="declare fewer bins, and release again",
            )
        if self.reference is not None and self.reference not in labels:
            raise OutputError(
                f"column {column.name!r} has no level {self.reference!r}",
                hint=nearest(self.reference, labels) or f"--reference, one of {', '.join(labels)}",
            )
        reference = 0 if self.reference is None else labels.index(self.reference)
        return [i for i in levels if i != reference], reference


# --- the g-formula ---
#
# Means of Y under two levels of T, standardised to all rows: psi(t) = sum_z W(z) / W m(t, z), with
# m = A / D, D(t, z) the rows that have t, z and a known Y, A(t, z) the sum of Y over them, and W(z)
# all rows of the stratum z [Robins, Mathematical Modelling 7, 1986]. Its gradient by the counts,
# its variance and the bias that noise gives it are derived in docs/inference.md.


@dataclass(frozen=True)
class Contrast:
    """The mean under one level of the treatment less that under another.

    `means` are both. `middle` is the interval if every number is the middle of its level, where
    levels do not tell. `left_out` are strata in which an arm has next to no rows, and `left_share`
    is the most that they hold of all rows. `e_values` are those of a share's estimate and of the
    nearer end of its interval.
    """

    figure: Figure
    means: tuple[float, float] | None = None
    middle: Interval | None = None
    left_out: tuple[str, ...] = ()
    left_share: float = 0.0
    e_values: tuple[float, float] | None = None

    def to_json(self) -> dict[str, Any]:
        more = {
            "means": self.means,
            "interval_at_middles": self.middle,
            "left_out": self.left_out,
            "left_share": self.left_share,
            "e_values": self.e_values,
        }
        return self.figure.to_json() | {name: list_of for name, list_of in more.items() if list_of}


def against(column: ColumnDomain, treated: int, reference: int) -> str:
    return f"{column.labels[treated]} against {column.labels[reference]}"


@dataclass(frozen=True)
class Strata:
    """What least squares say of the cells of a treatment, an outcome and strata, in this order.

    `numbers` are those of the outcome's levels, `[3, levels]`, NaN where it is missing.
    """

    solver: LeastSquares
    numbers: Floats
    rows: Rows

    @property
    def counts(self) -> Floats:
        """Estimated counts, `[treatment, outcome, strata]`."""
        shape = self.solver.measured.shape
        return self.solver.counts.reshape(*shape[:2], -1)

    @property
    def known(self) -> Mask:
        """Which levels of the outcome are no missing one."""
        known: Mask = ~np.isnan(self.numbers[0])
        return known

    @property
    def span(self) -> float:
        """How far apart two outcomes can be."""
        return float(np.nanmax(self.numbers[HIGH]) - np.nanmin(self.numbers[LOW]))

    @property
    def share(self) -> bool:
        """Whether the outcome is 0 or 1."""
        return set(self.numbers[:, self.known].ravel()) <= {0.0, 1.0}

    def names(self, mask: Mask) -> tuple[str, ...]:
        """The strata of a mask `[strata]`, in words."""
        columns = self.solver.measured.columns[2:]
        shape = [c.levels for c in columns]
        places = [np.unravel_index(k, shape) for k in np.flatnonzero(mask)]
        return tuple(
            ", ".join(f"{c.name} {c.labels[i]}" for c, i in zip(columns, place, strict=True))
            or "all rows"
            for place in places
        )

    def noise(self, functionals: Floats) -> Floats:
        """Covariance of functionals `[k, treatment, outcome, strata]` by the noise."""
        shape = self.solver.measured.shape
        return self.solver.functionals(functionals.reshape(-1, *shape)).covariance

    def variances(self, functionals: Floats, *, sampled: bool) -> Floats:
        """Variances `[k]` by the noise, and by the sampling of rows where it is asked for."""
        found = np.diag(self.noise(functionals))
        if sampled:
            drawn = (self.counts * functionals**2).sum(axis=(1, 2, 3)).clip(0)
            found = found + self.rows.per_unit * drawn
        return found


@dataclass(frozen=True)
class Arm:
    """One level of the treatment, stratum by stratum.

    `rows` are D and `sums` are A by low, middle and high numbers, `[strata]` and `[3, strata]`.
    `noise` is the covariance of W, D and the three A of each stratum, `[strata, 5, 5]`.
    """

    level: int
    rows: Floats
    sums: Floats
    noise: Floats

    @property
    def enough(self) -> Mask:
        """The strata whose rows are surely not next to none."""
        return self.rows >= np.maximum(
            SETTINGS.fewest, SETTINGS.certain_arm * np.sqrt(self.noise[:, 1, 1])
        )


Mean = tuple[Floats, Floats]
"""psi of one arm by low, middle and high numbers, `[3]`, and its gradient `[3, *cells]`."""


def contrast(strata: Strata, treated: int, reference: int) -> Contrast:
    """The effect of one level of the treatment against another."""
    arms = [_arm(strata, level) for level in (treated, reference)]
    kept = arms[0].enough & arms[1].enough
    name = against(strata.solver.measured.columns[0], treated, reference)
    left, share = strata.names(~kept), 0.0
    if left:  # the most rows that these strata hold
        cells = np.broadcast_to(~kept * 1.0, strata.counts.shape)
        reach = Z * math.sqrt(float(strata.variances(cells[None], sampled=True)[0]))
        most = (strata.counts[:, :, ~kept].sum() + reach) / strata.counts.sum()
        share = float(np.clip(most, 0, 1))
    total = float(strata.counts[:, :, kept].sum())
    about = max(0.0, total) / (1 - strata.rows.holdout)
    if share > SETTINGS.left_out or not kept.any():
        refused = f"too few rows of one arm, in strata of up to {share:.0%} of all"
        return Contrast(Figure(name, about, refused=refused), left_out=left, left_share=share)
    one, two = (_mean(strata, arm, kept, total) for arm in arms)
    figure, middle = _figure(strata, Figure(name, about), one, two, share)
    means = float(one[0][MIDDLE]), float(two[0][MIDDLE])
    values = _e_values(strata, one, two) if strata.share else None
    return Contrast(figure, means, middle, left, share, values)


def _arm(strata: Strata, level: int) -> Arm:
    counts, known = strata.counts, strata.known
    asked = np.zeros((5, *counts.shape[:2]))
    asked[0] = 1
    asked[1, level, known] = 1
    asked[2:, level, known] = strata.numbers[:, known]
    noise = []
    # Levels that are counted alike can change places: then all strata have one covariance.
    for k in range(1 if strata.solver.measured.alike else counts.shape[2]):
        here = np.zeros((5, *counts.shape))
        here[..., k] = asked
        noise.append(strata.noise(here))
    return Arm(
        level,
        counts[level, known].sum(axis=0),
        strata.numbers[:, known] @ counts[level, known],
        np.broadcast_to(np.array(noise), (counts.shape[2], 5, 5)),
    )


def _mean(strata: Strata, arm: Arm, kept: Mask, total: float) -> Mean:
    """psi over the strata that are kept, less its bias, and its gradient."""
    weights = np.where(kept, strata.counts.sum(axis=(0, 1)), 0.0) / total
    d = np.where(kept, arm.rows, 1.0)
    m = arm.sums / d
    v_wd, v_dd = arm.noise[:, 0, 1], arm.noise[:, 1, 1]
    v_wa, v_da = arm.noise[:, 0, 2:].T, arm.noise[:, 1, 2:].T
    bias = weights * (m * v_dd - v_da) / d**2 + kept * (v_wa - m * v_wd) / (d * total)
    psi = (weights * m).sum(axis=1)
    gradient = np.zeros((3, *strata.counts.shape))
    numbers = np.nan_to_num(strata.numbers)[:, :, None]
    inside = weights / d * (numbers - m[:, None, :])
    gradient[:, arm.level] = np.where(strata.known[:, None], inside, 0.0)
    gradient += (kept * (m - psi[:, None]) / total)[:, None, None, :]
    return psi - bias.sum(axis=1), gradient


def _figure(
    strata: Strata, figure: Figure, one: Mean, two: Mean, share: float
) -> tuple[Figure, Interval | None]:
    """The difference of two means, and its interval at middles; `share` of rows may do anything."""
    order = [LOW, MIDDLE, HIGH]
    values, gradient = (a[order] - b[order[::-1]] for a, b in zip(one, two, strict=True))
    both, noise = (np.sqrt(strata.variances(gradient, sampled=s)) for s in (True, False))

    def within(low: float, high: float) -> Interval:
        ends = np.array([low, high]) * (1 - share) + share * strata.span * np.array([-1, 1])
        low, high = np.clip(ends, -strata.span, strata.span)
        return float(low), float(high)

    def ends(sd: Floats, first: int, last: int) -> Interval:
        return within(values[first] - Z * sd[first], values[last] + Z * sd[last])

    coarse = values[HIGH] - values[LOW] > 1e-9 * max(1.0, strata.span)
    bounds = within(values[LOW], values[HIGH]) if coarse or share else None
    found = replace(
        figure,
        estimate=float(values[MIDDLE]),
        interval=ends(both, LOW, HIGH),
        of_rows=ends(noise, LOW, HIGH),
        bounds=bounds,
    )
    return found, ends(both, MIDDLE, MIDDLE) if coarse else None


def _e_values(strata: Strata, one: Mean, two: Mean) -> tuple[float, float] | None:
    """E-values of the ratio of two shares and of the end of its interval that is nearer to 1.

    [VanderWeele, Ding, Annals of Internal Medicine 167, 2017]. None where a share may be zero.
    """
    psi, gradient = (np.stack([a[MIDDLE], b[MIDDLE]]) for a, b in zip(one, two, strict=True))
    sd = np.sqrt(strata.variances(gradient, sampled=True))
    if (psi <= SETTINGS.certain * sd).any():
        return None
    relative = gradient[:1] / psi[0] - gradient[1:] / psi[1]
    far = abs(math.log(psi[0] / psi[1]))
    near = max(0.0, far - Z * math.sqrt(float(strata.variances(relative, sampled=True)[0])))

    def e_value(log_ratio: float) -> float:
        ratio = math.exp(log_ratio)
        return ratio + math.sqrt(ratio * (ratio - 1))

    return e_value(far), e_value(near)
