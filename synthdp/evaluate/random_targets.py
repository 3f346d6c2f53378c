"""The evaluation protocol of the base paper: random target columns, five classifiers each.

Each target is predicted from all other columns. Table 2 of that paper gives the difference in
points of accuracy between training on real and on synthetic rows. Here the difference has an
interval over targets. The targets are drawn by a public seed, so that two releases of one table are
judged on the same. Ranged columns get regressors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from synthdp.data.domain import Domain
from synthdp.evaluate.utility import UtilityReport

CLASSIFIERS = ("kernel_svc", "linear_svc", "logistic", "random_forest", "knn")
SEED = 0  # public: every release of one table is judged on the same targets


@dataclass(frozen=True)
class Gap:
    """Mean loss from training on synthetic rows, in `unit`, with its 95% interval.

    `targets` is the number of targets. A negative loss is a gain. `low` and `high` are None where
    there is one target.
    """

    metric: str
    unit: str
    targets: int
    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class PaperReport:
    """All rows of this protocol, and the mean gap of each metric."""

    targets: tuple[str, ...]
    utility: UtilityReport
    gaps: tuple[Gap, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "targets": list(self.targets),
            "utility": self.utility.to_json(),
            "gaps": [asdict(gap) for gap in self.gaps],
        }


def random_targets(domain: Domain, count: int) -> tuple[str, ...]:
    """At most `count` columns of two levels or more, drawn by a public seed.

    They come in the table's order.
    """
    usable = [c.name for c in domain.columns if c.levels > 1]
    chosen = np.random.default_rng(SEED).permutation(len(usable))[:count]
    return tuple(usable[i] for i in sorted(chosen.tolist()))


def summarize(targets: Sequence[str], utility: UtilityReport) -> PaperReport:
    """The mean gap over targets; a target counts once, by the mean over its learners."""
    gaps = (
        _gap(utility, "accuracy", "points of accuracy", 100.0),
        _gap(utility, "auc", "AUC", 1.0),
        _gap(utility, "r2", "R²", 1.0),
    )
    return PaperReport(tuple(targets), utility, tuple(g for g in gaps if g is not None))


def _gap(utility: UtilityReport, metric: str, unit: str, scale: float) -> Gap | None:
    """The mean gap of one metric; None where no target has it."""
    by_target: dict[str, list[float]] = {}
    for row in utility.rows:
        if row.metric == metric and row.difference is not None:
            by_target.setdefault(row.target, []).append(scale * row.difference)
    means = [float(np.mean(losses)) for losses in by_target.values()]
    if not means:
        return None
    middle = float(np.mean(means))
    if len(means) < 2:
        return Gap(metric, unit, len(means), middle, None, None)
    from scipy import stats

    half = float(stats.t.ppf(0.975, len(means) - 1) * np.std(means, ddof=1) / np.sqrt(len(means)))
    return Gap(metric, unit, len(means), middle, middle - half, middle + half)
