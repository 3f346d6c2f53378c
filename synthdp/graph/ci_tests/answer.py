"""The answer of a conditional independence test: dependent, independent or undecided.

Independent means: up to a stated effect.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["dependent", "independent", "undecided"]
Query = tuple[str, str, tuple[str, ...]]
"""Are the first two columns independent given the columns of the third?"""


@dataclass(frozen=True)
class Answer:
    """Result of one test.

    Effects are on Cohen's w scale: 0 is independence, .1 small, .3 medium, .5 large. `effect_upper`
    is an approximate upper confidence bound of the effect. `detectable` is about the smallest
    effect that this test, at its noise, finds with probability .8. Both rest on a normal
    approximation that takes a dependence to be spread over the test's coordinates: one that sits in
    the coordinates of largest weight varies more, and may lie above `effect_upper` more often than
    the test's level says (`mixture._shift`). Both are infinite where the tables give no
    information.
    """

    verdict: Verdict
    p_value: float
    statistic: float
    effect: float
    effect_upper: float
    detectable: float

    def to_json(self) -> dict[str, float | str | None]:
        """JSON object; infinite bounds become null."""
        fields: dict[str, float | str | None] = {
            "verdict": self.verdict,
            "p_value": self.p_value,
            "statistic": self.statistic,
            "effect": self.effect,
        }
        bounds = {"effect_upper": self.effect_upper, "smallest_detectable_effect": self.detectable}
        fields.update({k: v if math.isfinite(v) else None for k, v in bounds.items()})
        return fields
