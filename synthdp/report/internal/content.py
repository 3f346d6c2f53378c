"""Content of the steward's report: plain values that the caller has opened. Confidential."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np

from synthdp.data.domain import Domain
from synthdp.evaluate.fidelity import FidelityReport
from synthdp.evaluate.functional import SuggestionReport
from synthdp.evaluate.run import EvaluationReport
from synthdp.report.prose import estimated, number
from synthdp.report.sections import GraphView, Look

EVALUATION, ATTACK = "evaluation", "attack"  # parts that `ReportContent.absent` may name


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The spec's budget, the whole plan's epsilon (the guarantee) and this outcome's part of it.

    `dataset_spent` is what all runs of the dataset took, added up, `filtered` what they come to by
    a Gaussian filter where that is the rule, and `cap_epsilon` the most that they may take.
    `search` has epsilon and delta of the search that found the columns.
    """

    epsilon: float
    epsilon_planned: float
    epsilon_spent: float
    delta: float
    adjacency: str
    unit: str
    steps: tuple[Look, ...] = ()
    group_epsilons: Mapping[int, float] = field(default_factory=dict)
    cap_epsilon: float | None = None
    dataset_spent: float = 0.0
    filtered: float | None = None
    search: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class GateResult:
    """One gate; `bound` is text ("at most 0.05"), and so is `outcome`, where noise may decide.

    A figure that is not available fails its gate; `absent` may say why. `ends` are those of the 95%
    interval of a figure that was paid for.
    """

    metric: str
    bound: str
    value: float | None
    passed: bool
    outcome: str = ""
    ends: tuple[float, ...] = ()
    outside_guarantee: bool = False
    absent: str = ""

    @property
    def shown(self) -> str:
        """The figure, with its interval where it has one, or why there is none."""
        return self.absent or (
            estimated(self.value, *self.ends) if self.ends else number(self.value)
        )


@dataclass(frozen=True, kw_only=True)
class EstimandBeside:
    """A released figure with its 95% interval, and that of all real rows, which has no noise."""

    name: str = ""
    text: str
    statistic: str
    group: str
    released: float | None
    interval: tuple[float | None, ...] | None
    real: float | None

    @property
    def covered(self) -> bool | None:
        """Whether the interval holds the figure of the real rows."""
        if self.interval is None or self.real is None:
            return None
        low, high = self.interval
        return low is not None and high is not None and low <= self.real <= high

    def to_json(self) -> dict[str, Any]:
        """The figures, and whether they agree."""
        return asdict(self) | {"covered": self.covered}


@dataclass(frozen=True, kw_only=True)
class ReportContent:
    """Everything the report shows. None or empty means absent, and the report says so.

    `profile` has the points (epsilon, delta) of the guarantee. `attack` is a membership report as
    plain JSON values, and so is each record of `audits`.
    `studies` are those of the same table that lie beside the report, likewise (`synthdp study`).
    `misfits` has, for each column, the number of values of each kind outside the declared domain.
    `suggestions` are of columns that look like functions of others. `estimands` are released
    figures beside those of the real rows, `expected` what the plan forecast. `absent` has the parts
    that the spec asks for and that are not here, each with the reason. `timings` are seconds by
    stage.
    """

    title: str
    run: str
    created: str
    domain: Domain
    budget: Budget
    profile: tuple[tuple[float, float], ...] = ()
    gates: tuple[GateResult, ...] = ()
    contact: str | None = None
    tv1_noisy: float | None = None
    evaluation: EvaluationReport | None = None
    graph: GraphView | None = None
    attack: Mapping[str, Any] | None = None
    audits: tuple[Mapping[str, Any], ...] = ()
    studies: tuple[Mapping[str, Any], ...] = ()
    misfits: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    suggestions: SuggestionReport | None = None
    estimands: tuple[EstimandBeside, ...] = ()
    expected: Mapping[str, Any] | None = None
    absent: Mapping[str, str] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def withheld(self) -> bool:
        """Whether a gate failed."""
        return not all(gate.passed for gate in self.gates)

    @property
    def fidelity(self) -> FidelityReport | None:
        """How near the rows are, where that was evaluated."""
        return self.evaluation.fidelity if self.evaluation else None

    def to_json(self) -> dict[str, Any]:
        """The report's numbers as plain JSON values; figures that are not finite become None."""
        facts = {
            "confidential": (
                "computed on real rows: not covered by the privacy guarantee, not to be shared"
            ),
            "title": self.title,
            "run": self.run,
            "created": self.created,
            "withheld": self.withheld,
        }
        parts = (
            *("budget", "gates", "tv1_noisy", "evaluation", "graph", "attack", "audits", "misfits"),
            *("suggestions", "estimands", "expected", "absent", "timings", "notes"),
        )
        cleaned: dict[str, Any] = _plain(facts | {part: getattr(self, part) for part in parts})
        return cleaned


def _plain(value: Any) -> Any:
    """A value as JSON can hold it; numbers that are not finite become None."""
    if hasattr(value, "to_json"):
        return _plain(value.to_json())
    if is_dataclass(value) and not isinstance(value, type):
        return _plain({f.name: getattr(value, f.name) for f in fields(value)})
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list) and set(map(type, value)) == {float} and np.isfinite(value).all():
        return value  # a row of a matrix, of which wide tables have many
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    return None if isinstance(value, float) and not np.isfinite(value) else value
