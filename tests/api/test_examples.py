"""Every example (`>>>`) in a docstring of the Python face and of the rooms below it runs, and every
public name of the face has one.
"""

from __future__ import annotations

import doctest
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

import synthdp
from synthdp import api

FACE = ("audit", "bundle", "cards", "plan", "release", "spec")
ROOMS = (
    *("data.domain", "data.encoding", "spec.load.loader", "spec.schema"),
    *("graph.causal", "graph.diff", "graph.formats", "ledger.ledger"),
    *("verify.checks", "sample.sampler", "sample.conditions"),
)
MODULES = (
    "synthdp",
    *(f"synthdp.api.{name}" for name in FACE),
    *(f"synthdp.{name}" for name in ROOMS),
)


def examples() -> Iterator[doctest.DocTest]:
    finder = doctest.DocTestFinder(exclude_empty=True)
    for name in MODULES:
        found = [test for test in finder.find(importlib.import_module(name)) if test.examples]
        assert found, f"{name} has no example"
        yield from found


EXAMPLES = list(examples())
SLOW = {"synthdp.api.audit.audit_release"}  # replays every mechanism, training among them


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(e, id=e.name, marks=[pytest.mark.slow] if e.name in SLOW else [])
        for e in EXAMPLES
    ],
)
def test_the_example_runs(example: doctest.DocTest, at_work: Path) -> None:
    printed: list[str] = []
    runner = doctest.DocTestRunner(
        optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.FAIL_FAST
    )
    outcome = runner.run(example, out=printed.append, clear_globs=False)
    assert outcome.attempted and not outcome.failed, "".join(printed)


def public_names() -> Iterator[str]:
    """The names of the face, and the public methods and properties of its classes."""
    for name in api.__all__:
        thing = getattr(synthdp, name)
        yield f"{thing.__module__}.{name}"
        for member, value in vars(thing).items() if inspect.isclass(thing) else ():
            made_by_face = member.startswith("of_")  # no user calls these
            if (
                not member.startswith("_")
                and not made_by_face
                and (callable(value) or hasattr(value, "__get__"))
            ):
                yield f"{thing.__module__}.{name}.{member}"


def test_every_public_name_has_an_example() -> None:
    assert set(public_names()) <= {example.name for example in EXAMPLES}
