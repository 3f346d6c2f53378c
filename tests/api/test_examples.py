"""Every example (`>>>`) in a docstring runs, and every public name of the Python face has one."""

import doctest
import importlib
import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import synthdp
from synthdp import api

PACKAGE = Path(synthdp.__file__).parent


def modules() -> Iterator[str]:
    """Names of the modules that hold an example."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if ">>> " in path.read_text(encoding="utf-8"):
            parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
            yield ".".join(part for part in parts if part != "__init__")


@cache
def examples(module: str) -> tuple[doctest.DocTest, ...]:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [test for test in finder.find(importlib.import_module(module)) if test.examples]
    assert found, f"{module} has an example that no docstring holds"
    return tuple(found)


SLOW = "synthdp.api.release.audit_release"  # replays every mechanism, training among them


@pytest.mark.check
@pytest.mark.parametrize(
    ("module", "slow"),
    [
        *((name, False) for name in modules()),
        pytest.param(SLOW.rpartition(".")[0], True, marks=pytest.mark.slow),
    ],
)
def test_the_examples_run(module: str, slow: bool, at_work: Path) -> None:
    printed: list[str] = []
    runner = doctest.DocTestRunner(
        optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.FAIL_FAST
    )
    for example in examples(module):
        if (example.name == SLOW) is slow:
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
    assert set(public_names()) <= {e.name for name in modules() for e in examples(name)}
