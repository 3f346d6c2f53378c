"""The public report on persons with visits: one page of noisy tables beside the synthetic ones.

It takes plain public values alone, as the page of one table does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from synthdp.drawing import charts
from synthdp.drawing.charts import short
from synthdp.report.prose import number, svg_image, template
from synthdp.report.sections import Picture, ReportTable

MAX_BARS, MAX_STEPS, MAX_COLUMNS = 16, 8, 24
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Pair:
    """One noisy table and the synthetic one: counts of the rows of a view in each cell."""

    view: str
    columns: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    noisy: FloatArray
    synthetic: FloatArray

    @property
    def name(self) -> str:
        """Its columns."""
        return ", ".join(self.columns)

    @cached_property
    def shares(self) -> tuple[FloatArray, FloatArray]:
        """Shares of all cells, noisy and synthetic; what noise made negative is none."""
        kept = (np.maximum(counts, 0.0) for counts in (self.noisy, self.synthetic))
        one, two = (counts / max(float(counts.sum()), 1e-9) for counts in kept)
        return one, two

    @property
    def distance(self) -> float:
        """Total variation between both."""
        return float(np.abs(self.shares[0] - self.shares[1]).sum() / 2)

    def summed(self) -> Pair:
        """The table of the last column alone: noise adds up before anything is cut off."""
        left = tuple(range(self.noisy.ndim - 1))
        return replace(
            self,
            columns=self.columns[-1:],
            labels=self.labels[-1:],
            noisy=self.noisy.sum(left),
            synthetic=self.synthetic.sum(left),
        )

    def drawn(self, title: str, what: str) -> Picture:
        """Paired bars of the commonest cells."""
        cells = (short(" → ".join(names), 30) for names in product(*self.labels))
        one, two = self.shares
        both = zip(cells, one.ravel().tolist(), two.ravel().tolist(), strict=True)
        rows = [row for row in both if max(row[1:]) > 0]
        if len(rows) > MAX_BARS:
            rows = sorted(rows, key=lambda row: (-row[1], row[0]))[:MAX_BARS]
        told = f"{what} {self.distance:.1%} of the rows would have to move to make both alike."
        return Picture(
            title, Markup(charts.bars(rows, left=196.0, wide=110.0, alt=f"{title}. {told}")), told
        )


def render_visits(
    *,
    facts: Mapping[str, Any],
    persons: int,
    day: str,
    numbers: Pair,
    ends: Pair,
    steps: Sequence[Pair],
    singles: Sequence[Pair],
    every: Sequence[Pair],
    graph: str,
) -> str:
    """The page as HTML text; `numbers` and `ends` are of persons, `steps` from visit to visit."""
    worst = sorted(singles, key=lambda pair: -pair.distance)
    rows = [(p.view, p.name, number(p.distance)) for p in every]
    columns = ("rows of", "columns", "total variation, synthetic against noisy")
    text: str = template("visits.html.j2").render(
        facts=facts,
        title=facts["title"] or facts["dataset"],
        persons=persons,
        day=day,
        numbers=numbers.drawn("Visits of a person", "How many visits persons have."),
        ends=ends.drawn("How visits end", "What comes after the last visit that is kept."),
        steps=[
            p.drawn(p.columns[-1], "From the visit before to the next.") for p in steps[:MAX_STEPS]
        ],
        singles=[p.drawn(p.name, f"Rows of {p.view}.") for p in worst[:MAX_COLUMNS]],
        left_out=max(0, len(worst) - MAX_COLUMNS),
        tables=ReportTable("Every noisy table", columns, tuple(rows)),
        graph=svg_image(graph),
        numbers_file="marginals.json",
    )
    return text
