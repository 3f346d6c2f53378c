"""A mistake between two parts of a spec."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel

from synthdp.spec.load.wording import Loc


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
