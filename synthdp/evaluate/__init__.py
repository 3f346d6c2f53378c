"""Judging a synthetic table against the real one: pure functions of both, for the steward alone."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes, encode
from synthdp.evaluate.fidelity import FidelityReport, fidelity, noisy_tv1
from synthdp.evaluate.utility import UtilityReport, UtilityRow, utility

if TYPE_CHECKING:
    import pandas as pd

    from synthdp.spec.models import Evaluation

__all__ = ["EvaluationReport", "FidelityReport", "UtilityReport", "UtilityRow", "evaluate", "fidelity", "noisy_tv1", "utility"]


@dataclass(frozen=True, eq=False)
class EvaluationReport:
    """Everything computed on real rows. `floor` compares held-out with training rows: what perfect sampling would reach.

    `fidelity` is None where a table has no rows, `floor` where nothing was held out.
    """

    fidelity: FidelityReport | None
    floor: FidelityReport | None
    utility: UtilityReport
    seconds: Mapping[str, float]

    def metrics(self) -> dict[str, float]:
        """The figures that gates and tracking know: tv1, tv2, tv3, tstr_auc, tstr_ratio, those that are available."""
        found: dict[str, float | None] = {
            "tv1": self.fidelity.tv1 if self.fidelity else None,
            "tv2": self.fidelity.tv2 if self.fidelity else None,
            "tv3": self.fidelity.tv3 if self.fidelity else None,
            "tstr_auc": self.utility.mean_auc_synthetic,
            "tstr_ratio": self.utility.tstr_ratio,
        }
        return {name: value for name, value in found.items() if value is not None}

    def to_json(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "metrics": self.metrics(),
            "fidelity": self.fidelity.to_json() if self.fidelity else None,
            "floor": {"tv1": self.floor.tv1, "tv2": self.floor.tv2, "tv3": self.floor.tv3, "by_column": dict(self.floor.by_column)}
            if self.floor
            else None,
            "utility": self.utility.to_json(),
            "seconds": dict(self.seconds),
        }


def evaluate(
    real_train: pd.DataFrame,
    real_test: pd.DataFrame,
    synthetic: pd.DataFrame,
    *,
    domain: Domain,
    settings: Evaluation,
    rng: np.random.Generator,
    codes: tuple[Codes, Codes, Codes] | None = None,
) -> EvaluationReport:
    """Fidelity against the training rows, TSTR and TRTR on the held-out rows.

    The frames hold values; `codes` are the levels of the three frames in the same order, shape
    `[rows, columns]` each, and are encoded here where the caller has none.
    """
    started = time.perf_counter()
    train, test, drawn = codes or tuple(encode(domain, frame)[0] for frame in (real_train, real_test, synthetic))
    near = fidelity(train, drawn, domain, triples=settings.triples) if len(train) and len(drawn) else None
    floor = fidelity(train, test, domain, triples=settings.triples) if len(train) and len(test) else None
    compared = time.perf_counter()
    useful = utility(
        real_train,
        real_test,
        synthetic,
        domain=domain,
        targets=settings.targets,
        classifiers=settings.classifiers,
        max_rows=settings.max_rows,
        rng=rng,
    )
    seconds = {"fidelity": compared - started, "utility": time.perf_counter() - compared}
    return EvaluationReport(near, floor, useful, seconds)
