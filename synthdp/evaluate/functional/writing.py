"""Suggestions as lines of a spec, as its own parser and checks accept them.

Nothing is suggested that the spec would refuse: each line is read as YAML by the loader's reader,
as a column by its model, and as an expression by its parser, and the spec with it goes through all
checks that a loaded spec goes through.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import yaml
from pydantic import ValidationError

from synthdp.spec.checks.cross_checks import cross_problems
from synthdp.spec.checks.problem import CrossProblem
from synthdp.spec.expressions.operands import calculation
from synthdp.spec.load.yaml_tree import read
from synthdp.spec.model import ReleaseSpec

HOW_MODELLED = ("bins", "edges", "spikes")
"""Fields that say how a column is modelled, which one that is computed is not."""


@dataclass(frozen=True)
class Accepted:
    """A line that can be pasted, or the reason why the spec would refuse it."""

    line: str = ""
    refusal: str = ""


@dataclass(frozen=True)
class Writer:
    """Writes lines for one spec."""

    spec: ReleaseSpec

    @cached_property
    def _before(self) -> frozenset[CrossProblem]:
        return frozenset(cross_problems(self.spec))

    def derived(self, name: str, text: str) -> Accepted:
        """The entry of a column that is computed by `text`."""
        columns = self.spec.columns
        computed, mistakes = calculation(text, columns)
        if computed is None:
            return Accepted(refusal=mistakes[0].message)
        column = columns[name]
        fields = column.model_dump(mode="json", exclude_unset=True, exclude=set(HOW_MODELLED))
        if computed.divides or any(columns[n].missing for n in computed.columns):
            fields["missing"] = True
        line = _dumped({name: {**fields, "derived": text}})
        found = _read(line)
        try:
            entry = type(column).model_validate(found[name])
        except (ValidationError, KeyError, TypeError):
            return Accepted(refusal="its entry cannot be written on one line")
        return self._checked(line, columns={**columns, name: entry})

    def constraint(self, text: str) -> Accepted:
        """An item of `constraints`."""
        line = _dumped([text])
        if not text or _read(line) != [text] or len(text) > 1000:
            return Accepted(refusal="expressions cannot say it")
        return self._checked(line, constraints=(*self.spec.constraints, text))

    def _checked(self, line: str, **changes: Any) -> Accepted:
        amended = self.spec.model_copy(update=changes)
        problems = [p for p in cross_problems(amended) if p not in self._before]
        return Accepted(refusal=problems[0].message) if problems else Accepted(line)


def _dumped(data: Mapping[str, Any] | list[str]) -> str:
    """One line of YAML."""
    text: str = yaml.safe_dump(
        data, default_flow_style=None, width=10**6, allow_unicode=True, sort_keys=False
    )
    return text.strip() if isinstance(data, Mapping) else "- " + text.strip()[1:-1]


def _read(line: str) -> Any:
    """What the loader's reader makes of a line; None where it finds a mistake."""
    tree, mistakes = read(line + "\n")
    return None if tree is None or mistakes else tree.value()
