"""What a search by tables may measure: public constants, which decide before any row is read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from synthdp.data.domain import Domain
from synthdp.errors import SynthdpError
from synthdp.graph.knowledge import Knowledge

JOINT_SHARES: Mapping[str, float] = {"joint": 1.0}
"""Shares of the graph budget where the whole table is measured at once."""
ROUND_SHARES: Mapping[str, float] = {"pairs": 0.6, "triples": 0.25, "quadruples": 0.15}
"""Shares of the graph budget by round."""


@dataclass(frozen=True, kw_only=True)
class MeasurePlan:
    """Public constants of a run.

    `level`: of the pair tests as a family; `margin`: effect (Cohen's w) below which a pair counts
    as absent; `max_cells`: of a table of three columns or more, and `max_pair_cells` of one of two,
    which has columns of hundreds of categories, too; `max_pairs`: open pairs, of more of which a
    screen chooses some; `max_screened`: open pairs of a screen; `max_tables`: of a later round;
    `joint_cells`: up to here the whole table is measured at once; `order`: largest conditioning set
    in rounds; `joint_order`: the same for the whole table, where larger sets leave strata too small
    for their noise; `candidates`: columns to condition on that are tried per pair, by size of the
    set (all of them in the whole table), where noise is large (`Effort`); `max_parents`: of a
    column in the result.
    """

    level: float = 0.05
    margin: float = 0.1
    max_cells: int = 4096
    max_pair_cells: int = 1 << 16
    max_pairs: int = 25_000
    max_screened: int = 500_000
    max_tables: int = 2000
    joint_cells: int = 4096
    joint_order: int = 2
    order: int = 3
    candidates: Mapping[int, int] = field(default_factory=lambda: {1: 24, 2: 8, 3: 5})
    max_parents: int = 6

    def joint(self, domain: Domain) -> bool:
        """Whether the whole table is measured at once."""
        return math.prod(domain.sizes) <= self.joint_cells

    def shares(self, domain: Domain) -> Mapping[str, float]:
        """The rounds that a search may release, in order, with their share of the budget."""
        return JOINT_SHARES if self.joint(domain) else ROUND_SHARES

    def refuse_too_many(self, domain: Domain, knowledge: Knowledge) -> None:
        """Stop where the spec leaves too many pairs open: a public fact, so before anything is
        spent.

        Raises:
            SynthdpError: more pairs are open than may be measured.
        """
        open_pairs = 0 if self.joint(domain) else len(knowledge.undecided_pairs())
        if open_pairs > self.max_screened:
            raise SynthdpError(
                f"graph: {open_pairs} pairs of columns are open, at most"
                f" {self.max_screened} can be screened",
                hint=(
                    "decide more pairs by graph.tiers, graph.forbidden, graph.groups, or leave"
                    " columns out"
                ),
            )
