"""kill -9 at every point of a release: no spend is lost, none counted twice, and resume finishes
the run.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from synthdp.ledger import INTERNAL, Ledger

pytestmark = pytest.mark.check

PURPOSES = ["measure", "graph: validate", "graph: confirm", "train"]
SIGKILL = -9


class Killer:
    """A process that forks a release for each request."""

    def __init__(self, folder: Path, name: str = "killer.py", *more: str) -> None:
        script, root = Path(__file__).with_name(name), Path(__file__).parents[2]
        self.folder = folder
        with (folder / "stderr").open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(script), str(folder), *more],
                env={**os.environ, "PYTHONPATH": str(root)},  # of what it imports from tests
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def ask(self, where: Path, do: str, **request: Any) -> dict[str, Any]:
        """Its answer."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps({"folder": str(where), "do": do, **request}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, (self.folder / "stderr").read_text()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End it."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


@pytest.fixture(scope="module")
def killer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killer]:
    made = Killer(tmp_path_factory.mktemp("killer").resolve())
    yield made
    made.close()


def looks(where: Path) -> list[dict[str, Any]]:
    """What the hooks wrote down, in order."""
    path = where / "looks"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run_in_progress(where: Path) -> str | None:
    """The run that `synthdp resume` would find."""
    state = where / "out" / ".run" / "state.json"
    return json.loads(state.read_text())["run"] if state.exists() else None


def entries(where: Path) -> list[Any]:
    """The ledger's entries, their chain recomputed."""
    if not (where / ".synthdp" / "ledger.db").exists():
        return []
    ledger = Ledger(f"sqlite:///{where / '.synthdp' / 'ledger.db'}")
    ledger.verify_chain()
    return ledger.entries()


def spends(where: Path) -> list[str]:
    """Kinds of the entries that tell what was spent."""
    return [e.kind for e in entries(where) if e.kind not in INTERNAL]


def lost(where: Path) -> int:
    """Looks at rows that the ledger did not know of when they happened, or does not know of now."""
    charged = {e.body["purpose"] for e in entries(where) if e.kind == "charge"}
    return sum(
        not line["charged"] or line["look"] not in charged
        for line in looks(where)
        if "look" in line
    )


def counted_twice(where: Path) -> int:
    """Reservations beyond the first, and charges beyond the first of a purpose."""
    book = entries(where)
    charges = [e.body["purpose"] for e in book if e.kind == "charge"]
    return max(0, sum(e.kind == "reserve" for e in book) - 1) + len(charges) - len(set(charges))


def seen_twice(where: Path) -> int:
    """Looks at rows for a value that was already kept, and so may have been used: two for one
    charge.
    """
    kept: set[str] = set()
    twice = 0
    for line in looks(where):
        twice += line.get("look") in kept
        kept |= {line["kept"]} if "kept" in line else set()
    return twice


def kill_and_finish(killer: Killer, where: Path, point: int, **request: Any) -> list[str]:
    """Kill a release at `point`, finish what it left, and list everything that is wrong."""
    wrong = []
    killed = killer.ask(where, "release", kill=point, **request)
    assert killed["status"] == SIGKILL, f"point {point} was not reached: {killed['error']}"
    run, kinds = run_in_progress(where), spends(where)
    wrong += [
        f"after the kill: {n} spends {what}"
        for n, what in ((lost(where), "lost"), (counted_twice(where), "counted twice"))
        if n
    ]
    finished = run is None and "reserve" in kinds
    if not finished:
        done = killer.ask(where, "resume" if run else "release", **request)
        wrong += (
            [
                f"{'resume' if run else 'a new release'} failed with {done['status']}:"
                f" {done['error']}"
            ]
            if done["status"]
            else []
        )
    elif killer.ask(where, "resume", **request)["status"] != 2:
        wrong.append("a finished run was resumed")
    wrong += [
        f"in the end: {what} {n} times"
        for n, what in (
            (lost(where), "lost"),
            (counted_twice(where), "counted"),
            (seen_twice(where), "seen"),
        )
        if n
    ]
    book = entries(where)
    if spends(where) != ["cap", "reserve", *["charge"] * len(PURPOSES), "settle"]:
        wrong.append(f"the ledger tells {[e.kind for e in book]}")
    if run is not None and {e.run for e in book} != {run}:
        wrong.append("the run changed its name")
    if (verified := killer.ask(where, "verify"))["status"]:
        wrong.append(f"the bundle is not valid: {verified['error']}")
    kept = {"bundle", "internal", "plan.json"}
    left = [p.name for p in (where / "out").iterdir() if p.name not in kept]
    return wrong + ([f"left behind: {left}"] if left else [])


@pytest.mark.slow
def test_killed_at_every_point_no_spend_is_lost_or_counted_twice(
    killer: Killer, tmp_path: Path, figure: Callable[..., None]
) -> None:
    """At each point when it comes first and when it comes last."""
    survey = killer.ask(tmp_path / "survey", "release")
    assert survey["status"] == 0, survey["error"]
    every, wrong = survey["points"], {}
    assert len(set(every)) >= 40 and len(every) >= 100
    last = {name: number for number, name in enumerate(every, start=1)}
    points = {every.index(name) + 1: name for name in last} | {n: name for name, n in last.items()}
    places = [tmp_path / f"kill-{number:03}" for number in points]
    for (number, name), where in zip(points.items(), places, strict=True):
        if found := kill_and_finish(killer, where, number):
            wrong[f"{number}: {name}"] = found
    figures = {
        what: sum(count(where) for where in places)
        for what, count in (("lost", lost), ("counted twice", counted_twice))
    }
    figure("kill -9 during a release: points (distinct of all)", len(last), len(points))
    assert wrong == {} and set(figures.values()) == {0}
    for what, number in figures.items():
        figure(f"kill -9 during a release: spends {what}", number, len(points))
    figure(
        "kill -9 during a release: runs finished under their own reservation",
        len(points) - len(wrong),
        len(points),
    )


@pytest.mark.slow
def test_killed_again_while_it_resumes(
    killer: Killer, tmp_path: Path, figure: Callable[..., None]
) -> None:
    survey = killer.ask(tmp_path / "survey", "release")["points"]
    first = survey.index("before look of Training") + 8
    where = tmp_path / "again"
    assert killer.ask(where, "release", kill=first)["status"] == SIGKILL
    run, kills = run_in_progress(where), 1
    for point in (1, 2, 4, 7, 11, 16, 22, 29):
        kills += killer.ask(where, "resume", kill=point)["status"] == SIGKILL
    assert run is not None and kills == 9
    assert killer.ask(where, "resume")["status"] == 0 and killer.ask(where, "verify")["status"] == 0
    assert (lost(where), counted_twice(where), seen_twice(where)) == (0, 0, 0)
    assert {e.run for e in entries(where)} == {run}
    figure("one run killed over and over: spends counted twice", 0, kills)


BROKEN = {
    "charge after the look": ("before look of NoisyMarginals", "lost"),
    "settled before the reserve is durable": ("after look of NoisyMarginals", "lost"),
    "resume pays again": ("before training step", "counted twice"),
    "folder removed in place and nobody asks whether the run settled": (
        "os.remove /.run/state.json",
        "seen",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("breakage", BROKEN)
def test_a_broken_kernel_is_found_at_the_right_point(
    killer: Killer, tmp_path: Path, breakage: str
) -> None:
    name, says = BROKEN[breakage]
    points = killer.ask(tmp_path / "survey", "release", **{"break": breakage})["points"]
    wrong = kill_and_finish(
        killer, tmp_path / "kill", points.index(name) + 1, **{"break": breakage}
    )
    assert any(says in line for line in wrong), wrong


@pytest.mark.slow
def test_a_settled_run_that_lost_its_journal_looks_at_nothing(
    killer: Killer, tmp_path: Path
) -> None:
    """The second wall, with the first one broken: the session itself refuses."""
    broken = {"break": "folder removed in place"}
    points = killer.ask(tmp_path / "survey", "release", **broken)["points"]
    where = tmp_path / "kill"
    assert (
        killer.ask(where, "release", kill=points.index("os.remove /.run/state.json") + 1, **broken)[
            "status"
        ]
        == SIGKILL
    )
    before = looks(where)
    resumed = killer.ask(where, "resume")
    assert (
        resumed["status"] == 2 and "measure of the interrupted run is missing" in resumed["error"]
    )
    assert looks(where) == before and killer.ask(where, "verify")["status"] == 0
