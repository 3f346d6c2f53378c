"""A mistake between two parts of a spec."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import BaseModel

from synthdp.spec.load.wording import Loc
from synthdp.spec.model import ReleaseSpec
from synthdp.spec.model.evaluation import Clip, number_bounds


@dataclass(frozen=True)
class CrossProblem:
    """What does not fit, at `loc`: a path of keys and list positions from the root of the spec."""

    loc: Loc
    message: str
    hint: str | None = None


def stated(spec: BaseModel, *path: str) -> str:
    """How a message on a number begins: what was got, or that nothing was written there.

    >>> from synthdp.spec.model import Attacks
    >>> stated(Attacks(), "membership", "rows")
    'not written, and so 300'
    """
    section, written = spec, True
    for key in path[:-1]:
        written &= key in section.model_fields_set
        section = getattr(section, key)
    value = getattr(section, path[-1])
    wrote = written and path[-1] in section.model_fields_set
    return f"got {value:g}" if wrote else f"not written, and so {value:g}"


# --- clips ---
#
# Checks of clips: where numbers of an estimand end.


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
        message = f"{clip[0]:g} to {clip[1]:g} is not inside {name}'s {lower:g} to {upper:g}"
        hint = "numbers beyond a column's bounds do not occur; clip inside them"
        yield CrossProblem(where, message, hint)
