"""Waves of a series: what a person loses who is in some of them.

A survey is taken each year, and each year's table is released: the waves of one series, which share
a ledger's dataset, its cap, and one statement on who is in several of them. `most` is the number of
waves that a person may be in: any (the same people each time), k (a rotating panel), or 1 (nobody
is in two: what differs between waves is fixed when a person enters). A run looks at the rows of its
own wave alone. A run without a wave, such as a search for the columns' domain, may look at any.

Rule. Let c(w) be what the runs of a wave have taken, and c(0) what runs without one have. Then the
series has taken c(0) + the sum of the `most` largest c(w); each amount by itself: epsilon, delta,
squared mu, lost mass. The cap, by addition or by the Gaussian filter, is held against that.

Claim. Whatever the steward asks for in the light of earlier results, of whichever wave, and
whatever the tables of later waves are, all that the runs of all waves release is (E, D)-
indistinguishable between two series of tables that differ by the rows of one person in at most
`most` waves, added or removed.

Proof [derived here]. Let S be the waves that the person is in. It is fixed with the pair of series,
and does not follow from any output. A run of a wave outside of S sees the same table in both worlds
when its spec is given, so its output, given what came before, has one law: it is (0, 0)-DP for this
pair, with mu = lost = 0. All others are what they are in `ledger.ledger` and `ledger.filter`. So
for this pair the series is an interaction whose runs cost c for waves in S and without a wave, and
nothing else. What the proofs there need is that on every path what was granted stays within the
cap: sums of epsilon and of delta, or of squared mu and of lost mass. S has at most `most` waves, so
each of these sums over S is at most that of the `most` largest, which the rule has kept within the
cap, for all S at once; whether a run is granted depends on public amounts alone, and is the same in
both worlds. The tables of a later wave may depend on what was released before: their rows, but for
the person's, are then fixed once that is, and the induction is over outputs. QED.

That the largest waves of each amount are taken by themselves makes the bound larger than any one S,
never smaller. Where `most` is 1 this is parallel composition, which holds adaptively since who is
in which wave is not chosen by outputs. It needs that the person's rows come or go: under
`replace_one` someone may be replaced by a person of another wave, which adds rows to a table and
takes some from another, so that waves are refused there. It also needs the statement to be true: a
person in m > `most` waves has the joint bound of ceil(m / most) persons, no more (`synthdp.bundle`
says that nothing checks it). One statement holds for a series: the first run fixes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from synthdp.errors import BudgetError

Cost = tuple[float, float, float, float]
"""Epsilon, delta, mu and lost mass of some runs together; mu of several is their root of squares.
"""


@dataclass(frozen=True)
class Wave:
    """The wave that a run is of, and how many of them one person may be in (None: all)."""

    name: str
    most: int | None

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "most": self.most}


def together(costs: Iterable[Cost]) -> Cost:
    """What runs cost that look at the same people."""
    epsilon, delta, mu, lost = zip((0.0,) * 4, *costs, strict=True)
    return math.fsum(epsilon), math.fsum(delta), math.hypot(*mu), math.fsum(lost)


NOTHING = together(())


def of_series(always: Cost, waves: Mapping[str, Cost], most: int | None) -> Cost:
    """What a series has taken: runs without a wave, and the `most` largest waves by each amount."""
    amounts = zip(NOTHING, *waves.values(), strict=True)
    largest = (sorted(amount, reverse=True)[:most] for amount in amounts)
    return together([always, *zip(*largest, strict=True)])


def check_statement(entries: Sequence[Any], wanted: Mapping[str, Any]) -> None:
    """Refuse a run that states otherwise than those before who is in several waves.

    A series may begin with runs that name no wave: those count for everyone.

    Raises:
        BudgetError: it does.
    """
    asked = wanted.get("wave")
    for entry in entries:
        earlier = entry.body.get("wave") if entry.kind == "reserve" else None
        if asked and earlier and asked["most"] != earlier["most"]:
            said = "all waves" if earlier["most"] is None else f"at most {earlier['most']} of them"
            raise BudgetError(
                f"run {entry.run} released wave {earlier['name']} of {entry.dataset} with people"
                f" who may be in {said}, and the spec says otherwise",
                hint="say waves.people as before: what a series has spent is counted by it",
            )
