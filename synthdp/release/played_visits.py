"""Estimands of linked tables played before a release: what noise will refuse, and how wide
intervals will be.

No row is read. Tables are even, of as many persons as are declared, each with half of the visits
after the first that are kept, but that half of the outcomes of several steps stay as they are; the
planned noise is added, and the functions that answer after a release look at them. The draws are
public, and have a seed.

Real tables are less even. Several steps need every stratum of both arms, and none is larger than
where all are even: what is refused then is hopeless. Others may be told where rows crowd together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from synthdp.bundle.linked import foreseen
from synthdp.data.visits import VisitFrame
from synthdp.errors import BudgetError
from synthdp.inference.answer import Answer
from synthdp.inference.visit_effects import paid_results
from synthdp.model.visits.effects import MeasuredEffect
from synthdp.model.visits.laws import SETTINGS
from synthdp.model.visits.planning import Measured, measured_estimands
from synthdp.privacy.plan import ESTIMAND, ReleasePlan, estimand_purpose
from synthdp.release.played import told_of_plays
from synthdp.spec.model import LinkedSpec


def played_visits(spec: LinkedSpec, frame: VisitFrame, plan: ReleasePlan) -> list[dict[str, Any]]:
    """What plays say of each estimand, in plain JSON, as `played.played_estimands` does. What would
    have a hopelessly wide interval after several steps counts as refused, too.
    """
    if not spec.estimands:
        return []
    rng, plays = np.random.default_rng(0), list[tuple[Any, ...]]()
    known = measured_estimands(spec, frame)
    even = {p: own for p, own in foreseen(spec, plan).items() if p.startswith(ESTIMAND)}
    for purpose in (estimand_purpose(str(i + 1)) for i, e in enumerate(known) if _several(e)):
        (table,) = even[purpose]
        levels = table.counts.shape[1]
        stay = (np.eye(levels) * levels + 1) / 2  # outcome by outcome before
        stay = stay.reshape(1, levels, levels, *[1] * (table.counts.ndim - 3))
        even[purpose] = (replace(table, counts=table.counts * stay),)
    for _ in range(SETTINGS.plays):
        noisy = {
            purpose: tuple(
                replace(t, counts=t.counts + rng.normal(0, t.sigma, t.counts.shape)) for t in own
            )
            for purpose, own in even.items()
        }
        plays.append(paid_results(spec, frame, noisy, known))
    found = []
    for i, same in enumerate(zip(*plays, strict=True)):
        query, told = same[0].query, told_of_plays([result.figures for result in same])
        statistic = query.statistic if isinstance(same[0], Answer) else "effect"
        wide = max((f["half_width"] or 0.0 for f in told["figures"]), default=0.0)
        if _several(known[i]) and wide > 2 * SETTINGS.hopeless:
            why = f"an interval of ± {wide:.2f} tells nothing of shares that differ by 1 at most"
            told |= {"refused": 1.0, "likely_refused": True, "why": why}
        hopeless = _several(known[i]) and told["refused"] > 0.5
        head = {"name": str(i + 1), "text": query.text, "statistic": statistic}
        found.append(head | told | {"hopeless": hopeless})
    return found


def _several(measured: Measured) -> bool:
    return isinstance(measured, MeasuredEffect) and measured.steps > 1


def check_hopeless(played: Iterable[Mapping[str, Any]]) -> None:
    """Refuse to pay for several steps that even tables do not tell (`BudgetError`)."""
    for told in played:
        if told["hopeless"]:
            raise BudgetError(
                f"estimand {told['name']}, {told['text']}: refused in {told['refused']:.0%} of"
                f" plays on even tables: {told['why']}; nothing was read or spent",
                hint="ask of fewer steps, or of one, with fewer levels; keep fewer visits, or raise"
                " privacy.shares.estimands",
            )


def doubtful(played: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A warning for each estimand that plays often refuse."""
    for told in played:
        if told["likely_refused"]:
            yield (
                f"estimand {told['name']} is likely to be paid for and refused, in"
                f" {told['refused']:.0%} of plays on even tables: {told['why']}"
            )
