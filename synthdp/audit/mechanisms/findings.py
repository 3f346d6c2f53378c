"""What an audit found: values of made-up public tables only, so all of it may be printed."""

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
    "rate",  # the chance of a row to be in a batch depends on rows
    "coins",  # coins are not drawn for each row of the table by itself
    "latents",  # latents are not each row's own
    "not finite",  # hidden values that no noise hides
    "lattice",  # noisy values that do not lie on their lattice
    "charged",  # what is drawn is not what the event says
    "moved",  # hidden values move further than is charged
    "output",  # what is returned depends on rows other than through the noise
    "packed",  # what goes to the journal does
    "files",  # files that are written do
    "progress",  # the ticks of the progress bar do
    "said",  # what is printed, logged or warned of does
    "reading",  # the reading step makes neighbours of raw tables something else
]


@dataclass(frozen=True)
class ReplayFinding:
    """One thing that two runs on neighbours must not show: what differs, what was found, and what
    is allowed.
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

    `largest_share` is the largest part of a charged allowance that a pair used, near 1 where some
    pair is the
    worst one: a replay that moved nothing would have shown nothing. `pairs` counts every
    mechanism's own.
    """

    mechanisms: tuple[str, ...]
    pairs: int
    largest_share: float
    findings: tuple[ReplayFinding, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def to_json(self) -> dict[str, Any]:
        """Plain JSON for reports."""
        return {
            "mechanisms": len(self.mechanisms),
            "pairs": self.pairs,
            "largest_share": self.largest_share,
            "findings": [str(f) for f in self.findings],
        }
