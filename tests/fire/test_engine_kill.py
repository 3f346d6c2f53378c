"""kill -9 during a release whose rows lie in an engine: it goes on with the same rows held out, and
spends what an uninterrupted run spends.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from synthdp.ledger import INTERNAL, Ledger
from tests.fire.test_kill import (
    SIGKILL,
    Killer,
    counted_twice,
    entries,
    looks,
    lost,
    run_in_progress,
    seen_twice,
)

pytestmark = [pytest.mark.check, pytest.mark.slow]

POINTS = [
    ("before engine's count", 0),
    ("half of journal file", 0),
    ("after ledger row", 6),  # between the charges of the estimands
    ("before engine's add_up", 0),
    ("after engine's add_up", 0),
    ("half of journal file", 2),  # one estimand is kept, and the others are not
    ("after engine's sampled_codes", 0),
    ("before training step", 6),
    ("half of journal file", 4),
    ("before bundle", 0),
    ("after bundle", 0),
]
"""Names, and how many of the same name came before."""


@pytest.fixture(scope="module", params=["arrow", "dask"])
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Killer]:
    made = Killer(
        tmp_path_factory.mktemp(request.param).resolve(), "engine_killer.py", request.param
    )
    yield made
    made.close()


@pytest.fixture(scope="module")
def alone(engine: Killer) -> tuple[Path, list[str]]:
    """A run that nobody kills, and its points."""
    where = engine.folder / "alone"
    done = engine.ask(where, "release")
    assert done["status"] == 0, done["error"]
    return where, done["points"]


def number(points: list[str], name: str, before: int) -> int:
    """Of a point, from 1."""
    return [i for i, point in enumerate(points, start=1) if point == name][before]


def spent(where: Path) -> tuple[Any, list[tuple[Any, ...]]]:
    """The dataset's total, and what it is made of."""
    ledger = Ledger(f"sqlite:///{where / '.synthdp' / 'ledger.db'}")
    told = ("purpose", "mechanism", "event", "epsilon", "delta")
    book = [e for e in ledger.entries() if e.kind not in INTERNAL]
    return ledger.balance("fire"), [(e.kind, *map(e.body.get, told)) for e in book]


def held_out(where: Path) -> list[tuple[int, int, str]]:
    """At each opening: rows held out, rows, and a digest of which they are."""
    found = [line for line in looks(where) if "held out" in line]
    return [(line["held out"], line["of"], line["digest"]) for line in found]


def kill_and_resume(engine: Killer, where: Path, point: int, **request: Any) -> list[str]:
    """What is wrong, but for what an uninterrupted run is needed for."""
    killed = engine.ask(where, "release", kill=point, **request)
    assert killed["status"] == SIGKILL, f"point {point} was not reached: {killed['error']}"
    run = run_in_progress(where)
    assert run is not None
    if (done := engine.ask(where, "resume", **request))["status"]:
        return [f"resume failed with {done['status']}: {done['error']}"]
    told = {"lost": lost(where), "counted twice": counted_twice(where), "seen": seen_twice(where)}
    wrong = [f"{what} {n} times" for what, n in told.items() if n]
    if len(set(held_out(where))) != 1 or len(held_out(where)) != 2:
        wrong.append(f"held out: {held_out(where)}")
    if {e.run for e in entries(where)} != {run}:
        wrong.append("the run changed its name")
    if (verified := engine.ask(where, "verify"))["status"]:
        wrong.append(f"the bundle is not valid: {verified['error']}")
    return wrong


def test_killed_at_some_points_it_spends_and_holds_out_the_same(
    engine: Killer, alone: tuple[Path, list[str]], tmp_path: Path, figure: Callable[..., None]
) -> None:
    where, points = alone
    whole, wrong, digests = spent(where), {}, set(held_out(where))
    assert [kind for kind, *_ in whole[1]].count("charge") == 5
    ((held, rows, _),) = digests
    assert 0.2 < held / rows < 0.4
    for i, (name, before) in enumerate(POINTS):
        place = tmp_path / str(i)
        found = kill_and_resume(engine, place, number(points, name, before))
        if (other := spent(place)) != whole:
            found.append(f"spent {other}")
        digests |= set(held_out(place))
        if found:
            wrong[f"{name}, {before}"] = found
    assert wrong == {}
    assert len(digests) == 1 + len(POINTS), "each run has coins of its own"
    figure(
        f"kill -9 during a release on {engine.folder.name[:-1]}: runs that spent and held out what"
        " an uninterrupted run does",
        len(POINTS),
        len(POINTS),
    )


@pytest.mark.parametrize(
    ("breakage", "says"),
    [
        ("other rows are held out after a resume", "held out"),
        ("resume pays again", "counted twice"),
    ],
)
def test_a_broken_run_is_found(
    engine: Killer, alone: tuple[Path, list[str]], tmp_path: Path, breakage: str, says: str
) -> None:
    """That other coins hold the same rows out has a chance below 2^-500."""
    point = number(alone[1], *POINTS[3])
    wrong = kill_and_resume(engine, tmp_path / "kill", point, **{"break": breakage})
    assert any(says in line for line in wrong), wrong
