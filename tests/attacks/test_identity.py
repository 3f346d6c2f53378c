"""A trainer's name is the same in every process, and another one as soon as the trainer is."""

import importlib.util
import linecache
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synthdp_attacks import AttackError, Codes, Fleet, FleetError, Game, Trainer, identity_of, play

ROWS = np.arange(120).reshape(40, 3) % 7

SCRIPT = """
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
import numpy as np

@dataclass(frozen=True)
class Settings:
    names: frozenset = frozenset({"alpha", "beta", "gamma", "delta"})
    folder: Path = Path("work")
    table: object = field(default_factory=lambda: np.arange(6.0))

class Trainer:
    group = 2
    def __init__(self):
        self.names, self.folder, self.table = {"alpha", "beta", "gamma"}, Path("work"), np.arange(6.0)
        self.edges = {"a": [1, 2], "b": {3, 4}}
    def __call__(self, rows, *, seed_sequence):
        return [r for r in rows]

def closed(kept):
    def inner(rows, *, seed_sequence, sigma=1.0):
        return kept, rows
    return inner
"""  # noqa: E501


def loaded(folder: Path, source: str) -> dict[str, Any]:
    """The names of a module with this source."""
    file = folder / f"script_{abs(hash(source))}.py"
    file.write_text(source, encoding="utf-8")
    linecache.checkcache()
    found = importlib.util.spec_from_file_location("script", file)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    sys.modules["script"] = module  # where pickle looks for its classes
    return {name: value for name, value in module.__dict__.items() if not name.startswith("__")}


def made(folder: Path, source: str, ask: str = "Trainer()") -> str:
    """The identity of what the script makes."""
    return identity_of(eval(ask, loaded(folder, source)))


ASKED = [
    "Trainer()",
    "closed(3)",
    "closed(Settings())",
    "partial(closed, 3)",
    "Trainer().__call__",
    "Trainer",
]


@pytest.mark.check
def test_every_process_gives_the_same_names(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    program = (
        f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nfrom synthdp_attacks.fleet import"
        " identity_of\nfrom script import *\npadding = []\n"
    )
    for ask in ASKED:
        program += "padding += [object() for _ in range(int(sys.argv[1]))]\n"
        program += f"print(identity_of({ask}))\n"
    told = {
        subprocess.run(
            [sys.executable, "-c", program, seed],
            env=os.environ | {"PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "77")
    }
    assert len(told) == 1 and len(set(told.pop().split())) == len(ASKED)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("group = 2", "group = 3"),
        ("return [r for r in rows]", "return [r + 1 for r in rows]"),
        ('"gamma"}, Path', '"epsilon"}, Path'),
        ('Path("work"), np', 'Path("other"), np'),
        ("np.arange(6.0)\n        self", "np.arange(6.0) + 1\n        self"),
        ("[1, 2]", "[2, 1]"),
        ("{3, 4}", "{3, 5}"),
    ],
)
def test_what_was_edited_has_another_name(tmp_path: Path, old: str, new: str) -> None:
    assert SCRIPT.count(old) == 1
    assert (
        made(tmp_path, SCRIPT.replace(old, new)) != made(tmp_path, SCRIPT) == made(tmp_path, SCRIPT)
    )


def test_closures_defaults_and_arguments_count(tmp_path: Path) -> None:
    asked = (
        "closed(1)",
        "closed(2)",
        "closed((1,))",
        "closed(Settings())",
        "partial(closed(1), sigma=2)",
        "partial(closed(1))",
    )
    assert len({made(tmp_path, SCRIPT, ask) for ask in asked}) == len(asked)
    assert made(tmp_path, SCRIPT, "closed(1)") != made(
        tmp_path, SCRIPT.replace("sigma=1.0", "sigma=2.0"), "closed(1)"
    )


@dataclass(frozen=True)
class Leaky:
    """Publishes its rows; `sigma` stands for what it was set to."""

    sigma: float = 1.0
    calls: list[int] = field(default_factory=list, compare=False)

    @cached_property
    def scale(self) -> float:
        return 2 * self.sigma

    def __call__(self, rows: Codes, *, seed_sequence: np.random.SeedSequence) -> Codes:
        self.calls.append(len(rows))
        assert self.scale
        return rows


@dataclass(frozen=True)
class Private(Leaky):
    """Publishes the same row many times."""

    def __call__(self, rows: Codes, *, seed_sequence: np.random.SeedSequence) -> Codes:
        return np.zeros_like(rows)


def played(folder: Path, trainer: Trainer, identity: str | None = None) -> Game:
    return play(
        ROWS,
        ROWS[0],
        trainer,
        pairs=4,
        rng=np.random.default_rng(1),
        fleet=Fleet(folder=folder, identity=identity),
    )


def leaky(rows: Codes, *, seed_sequence: np.random.SeedSequence) -> Codes:
    return rows


def private(rows: Codes, *, seed_sequence: np.random.SeedSequence) -> Codes:
    return np.zeros_like(rows)


@pytest.mark.parametrize(
    ("first", "second"),
    [(Leaky(), Private()), (Leaky(), Leaky(2.0)), (leaky, private), (partial(leaky), leaky)],
)
def test_sets_of_one_trainer_are_never_taken_for_anothers(
    tmp_path: Path, first: Trainer, second: Trainer
) -> None:
    played(tmp_path, first)
    with pytest.raises(
        FleetError,
        match=(
            r"another run \(other rows, target, threat model, seed or trainer.*empty folder;"
            r" .*`identity` of `Fleet`"
        ),
    ):
        played(tmp_path, second)


def test_the_same_trainer_goes_on_where_it_stopped(tmp_path: Path) -> None:
    first, again = Leaky(), Leaky()
    played(tmp_path, first)
    (tmp_path / "model-000003.npz").unlink()
    played(tmp_path, again)
    assert (len(first.calls), len(again.calls)) == (8, 1)
    played(tmp_path, first)  # its cache and its log have changed by then
    assert len(first.calls) == 8


def test_a_name_given_by_hand_counts_alone(tmp_path: Path) -> None:
    played(tmp_path, Leaky(), identity="leaky, version 1")
    played(tmp_path, replace(Leaky(), sigma=3.0), identity="leaky, version 1")
    with pytest.raises(FleetError, match="another run"):
        played(tmp_path, Leaky(), identity="leaky, version 2")

    class Named(Leaky):
        identity = "mst 1.2"

    assert identity_of(Named()) == identity_of(Named(5.0)) == "mst 1.2"
    for empty in ("", " ", 3):
        with pytest.raises(AttackError, match=r"^identity=.*; give a text"):
            Fleet(folder=tmp_path, identity=empty)  # type: ignore[arg-type]


def test_the_identity_reaches_the_games_of_an_attack(tmp_path: Path) -> None:
    """`within` keeps it: attacks play in folders of their own."""
    assert Fleet(folder=tmp_path, identity="x").within("target-0").identity == "x"


@pytest.mark.parametrize(
    "odd",
    [lambda rows: rows, len, object(), np.random.default_rng(1), open, np.add, type, iter([])],
)
def test_whatever_is_called_has_a_name(odd: Callable[..., Any]) -> None:
    assert identity_of(odd) == identity_of(odd)
