"""The effects of `benchmarks.inference`: estimands that are paid for, beside the population's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.estimands import paid_sums
from benchmarks.inference_models import Values, levels, spec_of
from synthdp.data.domain import Domain
from synthdp.errors import BudgetError
from synthdp.inference.estimands import estimand_results, exact_results
from synthdp.inference.figures import Figure
from synthdp.model.planning import plan_for
from synthdp.privacy.noise import Streams
from synthdp.privacy.table import Table
from synthdp.spec.model import ReleaseSpec

REFUSED = Figure(None, refused="the plan refuses it")


@dataclass(frozen=True, eq=False)
class Effect:
    """A model's effect, measured for a part of the budget at each epsilon.

    `sums` has the mechanism of each epsilon, or none where the plan is refused.
    """

    spec: ReleaseSpec
    domain: Domain
    population: Table
    truth: float
    sums: Mapping[float, Mapping[str, Any] | None]

    @classmethod
    def of(cls, model: str, rows: int, epsilons: Sequence[float], values: Values) -> Effect:
        """Of a population's `values`."""
        specs = {
            e: spec_of(model, "effect", rows=rows, epsilon=e, holdout=0.2) for e in epsilons or [1]
        }
        spec = next(iter(specs.values()))
        domain = Domain.from_spec(spec.columns)
        ranged = {c.name: values[c.name] for c in domain.columns if c.ranged}
        frame = pd.DataFrame({c.name: ranged.get(c.name, 0.0) for c in domain.columns}, copy=False)
        whole = _table(levels(domain, values), frame)
        truth = exact_results(spec, domain, whole)[0].figures[0].estimate
        assert isinstance(truth, float)
        sums = {e: _planned(specs[e], domain) for e in epsilons}
        return cls(spec, domain, whole, truth, sums)

    def judged(self, rows: Any) -> dict[float, list[dict[str, Any]]]:
        """The figure of these rows at each epsilon, beside the truth."""
        if not self.sums:
            return {}
        table = _table(self.population.codes[rows], self.population.frame.iloc[rows])
        sample = exact_results(self.spec, self.domain, table)[0].figures[0]
        return {
            epsilon: [_judged(self._figure(planned, table), sample, self.truth)]
            for epsilon, planned in self.sums.items()
        }

    def _figure(self, planned: Mapping[str, Any] | None, table: Table) -> Figure:
        if planned is None:
            return REFUSED
        noisy = paid_sums(planned, table, Streams.quick())
        return estimand_results(self.spec, self.domain, noisy)[0].figures[0]


def _judged(figure: Figure, sample: Figure, truth: float) -> dict[str, Any]:
    def holds(interval: Any, value: Any) -> float:
        if interval is None or value is None:
            return np.nan
        return float(interval[0] <= value <= interval[1])

    width = np.nan
    if figure.interval is not None and sample.interval is not None:
        width = float(np.ptp(figure.interval) / np.ptp(sample.interval))
    return {
        "part": "effect",
        "statistic": "effect",
        "columns": 0,
        "refused": figure.interval is None,
        "covered": holds(figure.interval, truth),
        "covered_rows": holds(figure.of_rows, sample.estimate),
        "width": width,
    }


def _planned(spec: ReleaseSpec, domain: Domain) -> Mapping[str, Any] | None:
    """The sums that the plan has, or None where it is refused."""
    try:
        return plan_for(spec, domain).estimands
    except BudgetError:
        return None


def _table(codes: Any, frame: pd.DataFrame) -> Table:
    return Table(codes, frame, np.zeros(len(codes), dtype=bool), {})
