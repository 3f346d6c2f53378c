"""Checks of clips: where numbers of an estimand end."""

from __future__ import annotations

import math
from collections.abc import Iterator

from synthdp.spec.checks.problem import CrossProblem
from synthdp.spec.model import ReleaseSpec
from synthdp.spec.model.estimands import Clip, number_bounds
from synthdp.spec.syntax import Loc


def clip_problems(
    spec: ReleaseSpec, where: Loc, name: str, clip: Clip | None
) -> Iterator[CrossProblem]:
    """A clip lies inside the bounds of its column."""
    if name not in spec.columns:
        return
    lower, upper = number_bounds(spec.columns[name])
    ends = clip or (lower, upper)
    if not 0 < (ends[1] - ends[0]) / 2 < math.inf and ends[0] < ends[1]:
        text = f"{ends[0]:g} to {ends[1]:g} are too near to each other, or too far apart"
        yield CrossProblem(where, f"{name}: {text} for sums", "give bounds that doubles tell apart")
    elif clip is None:
        return
    elif clip[0] >= clip[1]:
        text = f"got {clip[1]:g} as the upper end, which is not above {clip[0]:g}"
        yield CrossProblem(where, text, "e.g. clip: [0, 30]")
    elif clip[0] < lower or clip[1] > upper:
        yield CrossProblem(
            where,
            f"{clip[0]:g} to {clip[1]:g} is not inside {name}'s {lower:g} to {upper:g}",
            "numbers beyond a column's bounds do not occur; clip inside them",
        )
