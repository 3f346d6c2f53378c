"""A mistake between two parts of a spec."""

from __future__ import annotations

from dataclasses import dataclass

from synthdp.spec.syntax import Loc


@dataclass(frozen=True)
class CrossProblem:
    """What does not fit, at `loc`: a path of keys and list positions from the root of the spec."""

    loc: Loc
    message: str
    hint: str | None = None
