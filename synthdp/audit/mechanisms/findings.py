"""Findings of a replay: values of constructed public tables only, so all of them may be printed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Differs = Literal[
    "exception",  # a run raises
    "calls",  # kind, order or number of the draws of noise and batches
    "shape",  # of hidden values
    "dtype",  # of hidden values
    "sigma",  # a noise scale depends on rows
    "spacing",  # a lattice depends on rows
    "threshold",  # the count from which keys are told depends on rows
    "rate",  # the probability of a row to be in a batch depends on rows
    "coins",  # coins are not drawn for each row of the table
    "latents",  # latents are not separate for each row
    "not finite",  # hidden values that no noise hides
    "lattice",  # noisy values that are not on their lattice
    "charged",  # the draws are not those of the event
    "moved",  # hidden values move further than is charged
    "output",  # the returned value depends on rows other than through the noise
    "packed",  # what goes to the journal does
    "files",  # files that are written do
    "progress",  # the ticks of the progress bar do
    "said",  # what is printed, logged or warned of does
    "reading",  # neighbouring raw tables are read as tables that are no neighbours
]


@dataclass(frozen=True)
class ReplayFinding:
    """One difference that two runs on neighbours must not show.

    `found` is what they showed, `allowed` what they may show.
    """

    mechanism: str
    pair: str
    differs: Differs
    where: str
    found: str
    allowed: str

    def __str__(self) -> str:
        return (
            f"{self.mechanism}: {self.differs} ({self.where}) on {self.pair!r}: {self.found};"
            f" allowed: {self.allowed}"
        )


@dataclass(frozen=True)
class Replayed:
    """Outcome of a replay.

    `largest_share` is the largest part of a charged allowance that a pair used. It is near 1 where
    some pair is the worst case; a replay in which nothing moved would have shown nothing. `pairs`
    is the sum over mechanisms.
    """

    mechanisms: tuple[str, ...]
    pairs: int
    largest_share: float
    findings: tuple[ReplayFinding, ...]

    @property
    def passed(self) -> bool:
        """Whether there are no findings."""
        return not self.findings

    def to_json(self) -> dict[str, Any]:
        """Plain JSON for reports."""
        return {
            "mechanisms": len(self.mechanisms),
            "pairs": self.pairs,
            "largest_share": self.largest_share,
            "findings": [str(f) for f in self.findings],
        }
