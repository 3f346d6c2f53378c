"""`python filter_plays.py FOLDER PLAYS [blind]`: runs that race for a cap under the Gaussian
filter, are killed at any write, and whose ledger's file is copied and put back.

A process does to ledger and folders what a release does. Some get a SIGKILL before or after a row
is written, a transaction is committed, a value is kept or a bundle is there, and may begin again;
one run may be in two processes at once. Between them the ledger's file, with its journal, is
copied, or an earlier copy takes its place. What counts in the end is what bundles have published in
all of that, by what was planned for each run. With `blind` no process compares the ledger with
bundles.

Prints one JSON object: plays, those in which the cap was `passed`, rules that held, and how
processes `ended`.
"""

import collections
import gc
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa

from synthdp.errors import BudgetError
from synthdp.files import write_whole
from synthdp.ledger import FOR_LOST, INTERNAL, Bound, Lease, Ledger, database, gaussian_delta
from synthdp.verify import check_nearby

CAP = (3.0, 1e-4)
RUNS, STEPS, POINTS = 8, 9, 28
EVENT = {"event": "gaussian", "noise_multiplier": 2.0}


def ledger_of(where: Path) -> Path:
    return where / "ledger" / "ledger.db"


def release(where: Path, ledger: Ledger, run: str, bound: Bound, *, blind: bool) -> None:
    """All that a release writes, and asks for before it."""
    out = where / "outs" / run
    if not blind:
        check_nearby(ledger.entries(), "d", out)
    if (out / "bundle").exists():
        return
    journal = out / ".run"
    journal.mkdir(parents=True, exist_ok=True)
    if not ledger.run_entries(run) and any(journal.iterdir()):
        raise BudgetError("as `open_session` refuses what a ledger that was set back forgot")
    ledger.reserve("d", run, epsilon=0.5, delta=1e-6, cap=CAP, body={}, bound=bound)
    lease = Lease(ledger, dataset="d", run=run)
    lease.charge(purpose="measure", mechanism="m", event=EVENT)
    if lease.kept("measure") is None and not lease.settled:
        (journal / "measure").write_text("a value")
        lease.keep(purpose="measure", step=None, sha256="0" * 64)
    lease.settle()
    told = [e.to_json() for e in ledger.run_entries(run) if e.kind not in INTERNAL]
    (out / "bundle" / "privacy").mkdir(parents=True, exist_ok=True)
    write_whole(out / "bundle/privacy/ledger.json", json.dumps({"run": run, "entries": told}))


def armed(kill: int | None) -> None:
    """Let this process die at a point, counted from 1."""
    left = [kill or 0]

    def around(owner: Any, name: str) -> None:
        true = getattr(owner, name)

        def call(*given: Any, **named: Any) -> Any:
            for turn in (True, False):
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                if turn:
                    found = true(*given, **named)
            return found

        setattr(owner, name, call)

    around(database, "append")
    around(sa.engine.Connection, "commit")
    around(Path, "write_text")
    around(sys.modules[__name__], "write_whole")


def quick(connection: Any, _: Any) -> None:
    """A process that dies loses nothing that the system has; power cuts are tested elsewhere."""
    connection.isolation_level = None
    connection.execute("PRAGMA synchronous=OFF")


def started(kill: int | None, todo: Sequence[Callable[[], None]]) -> int:
    """A process that makes releases, one after the other; its id."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    with suppress(Exception):
        armed(kill)
        for one in todo:
            status = 1
            try:
                one()
                status = 0
            except BudgetError:
                status = BudgetError.exit_code
    os._exit(status)


def ended(pids: Sequence[int]) -> list[int]:
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


def passed(where: Path, bounds: Sequence[Bound]) -> bool:
    """Whether published bundles tell more than the cap."""
    out = [int(p.parts[-4][1:]) for p in where.glob("outs/*/bundle/privacy/ledger.json")]
    told, lost = sum(bounds[i][0] ** 2 for i in out), sum(bounds[i][1] for i in out)
    room = (1 - FOR_LOST) * CAP[1] * (1 + 1e-6)
    return gaussian_delta(CAP[0], told**0.5) > room or lost > FOR_LOST * CAP[1] * (1 + 1e-6)


def play(where: Path, rng: np.random.Generator, *, blind: bool) -> tuple[bool, list[int], str]:
    """Whether the cap was passed, the ends of processes, and the rule of the last ledger."""
    ledger_of(where).parent.mkdir(parents=True)
    ledger = Ledger(f"sqlite:///{ledger_of(where)}")
    bounds = [(rng.uniform(0.2, 0.6), rng.choice([1e-8, 3e-6])) for _ in range(RUNS)]
    runs = [
        partial(release, where, ledger, f"r{i}", bound, blind=blind)
        for i, bound in enumerate(bounds)
    ]
    statuses, copies = list[int](), list[Path]()
    for step in range(STEPS):
        what = rng.choice(["run", "copy", "put back"], p=[0.6, 0.2, 0.2])
        if what == "copy":
            copies.append(where / f"copy-{step}")
            shutil.copytree(ledger_of(where).parent, copies[-1])
        elif what == "put back" and copies:
            shutil.rmtree(ledger_of(where).parent)
            shutil.copytree(copies[int(rng.integers(len(copies)))], ledger_of(where).parent)
        else:
            kills = [int(rng.integers(1, POINTS)) if rng.random() < 0.5 else None for _ in "12"]
            chosen = rng.integers(RUNS, size=2)
            own = [started(kill, [runs[i]]) for i, kill in zip(chosen, kills, strict=True)]
            statuses += ended(own)
    statuses += ended([started(None, runs)])
    ledger.verify_chain()
    balance = ledger.balance("d")
    return passed(where, bounds), statuses, balance.rule if balance.epsilon else "nothing reserved"


def main(folder: Path, plays: int, *, blind: bool) -> None:
    """Play, and say what was found."""
    database._synchronous = quick
    gc.freeze()  # so that a fork copies little
    ends, rules, over = collections.Counter[int](), collections.Counter[str](), list[int]()
    for number in range(plays):
        where = folder / f"play-{number}"
        found, statuses, rule = play(where, np.random.default_rng(number), blind=blind)
        ends.update(statuses)
        rules[rule] += 1
        over += [number] if found else []
        shutil.rmtree(where)
    told = {str(status): count for status, count in sorted(ends.items())}
    print(json.dumps({"plays": plays, "passed": over, "rules": rules, "ended": told}))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), int(sys.argv[2]), blind=sys.argv[3:] == ["blind"])
