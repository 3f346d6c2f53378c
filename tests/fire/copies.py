"""`python tests/fire/copies.py FOLDER PLAYS [LEDGER_URL]`: a release whose folder is copied, set
back and started twice, at random points.

Each play kills a tiny release at a random point and then makes random moves: a copy goes on beside
the original, the folder is set back to an earlier snapshot, two copies go on at once, or one folder
is given to two processes at once on a disk without locks. Each of them may be killed again. In the
end every folder is finished as far as it can be.

Prints one JSON object: how many plays and processes there were, how they ended, and every purpose
of which more than one value was used, or more than one checkpoint of one step. What is used is
written down by hooks around the session, outside of what the kernel itself keeps. The moves are
seeded; the noise is not.
"""

import collections
import fcntl
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import killer
import numpy as np
import sqlalchemy as sa
import yaml
from safetensors.numpy import save

from synthdp.errors import SynthdpError
from synthdp.ledger import Lease
from synthdp.privacy import session
from synthdp.release import run as release_module
from synthdp.release import run_folder

MOVES = ("copy", "restore", "start twice", "deliver twice")
REACHED = (
    170  # points of a release that is left alone, about: kills beyond the last one kill nothing
)


def watch_use(log: int) -> None:
    """Write down every value that a run goes on with, and every checkpoint that it starts from or
    that it keeps.
    """
    true_release, true_last, true_keep = (
        session.Session.release,
        session.Journal.last_checkpoint,
        Lease.keep,
    )

    def write(run: str, purpose: str, step: int | None, digest: str) -> None:
        os.write(log, f"{json.dumps({'of': [run, purpose, step], 'digest': digest})}\n".encode())

    def release(self: Any, mechanism: Any, *, purpose: str) -> Any:
        released = true_release(self, mechanism, purpose=purpose)
        write(
            self._run,
            purpose,
            None,
            hashlib.sha256(save(mechanism.pack(released.value))).hexdigest(),
        )
        return released

    def last(self: Any, purpose: str) -> Any:
        arrays = true_last(self, purpose)
        if arrays is not None:
            write(
                self._lease._run,
                purpose,
                int(arrays["step"]),
                hashlib.sha256(save(arrays)).hexdigest(),
            )
        return arrays

    def keep(self: Any, *, purpose: str, step: int | None, sha256: str) -> None:
        true_keep(self, purpose=purpose, step=step, sha256=sha256)
        if step is not None:
            write(self._run, purpose, step, sha256)

    session.Session.release = release  # type: ignore[method-assign, assignment]
    session.Journal.last_checkpoint = last  # type: ignore[method-assign, assignment]
    Lease.keep = keep  # type: ignore[method-assign, assignment]


def start(where: Path, out: Path, *, kill: int | None, locks: bool = True) -> int:
    """Fork a process that begins or resumes the release in `out`; its process id."""
    pid = os.fork()
    if pid:
        return pid
    status = 0
    try:
        log, used = (
            os.open(where / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            for name in ("points", "used")
        )
        killer.arm_points(where, kill, log)
        watch_use(used)
        if not locks:
            fcntl.flock = lambda *_: None
        if (out / run_folder.FOLDER / run_folder.STATE).exists():
            release_module.resume(out)
        else:
            release_module.release(where / "spec.yaml", out=out)
    except SynthdpError as error:
        status = error.exit_code
    except BaseException as error:
        (where / f"bug-{os.getpid()}").write_text(f"{type(error).__name__}: {error}")
        status = 1
    os._exit(status)


def ended(pids: Sequence[int]) -> list[int]:
    """Exit statuses, -9 where a process was killed."""
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


class Play:
    """One release and what happens to its folder."""

    def __init__(self, where: Path, rng: np.random.Generator) -> None:
        self.where, self.rng = where, rng
        self.outs, self.snapshots = [where / "out"], list[Path]()
        self.statuses: list[int] = []

    def kill(self) -> int | None:
        """A random point, or none."""
        return int(self.rng.integers(1, REACHED)) if self.rng.random() < 0.7 else None

    def go(self, outs: Sequence[Path], *, locks: bool = True) -> None:
        """Start a process in each of `outs` at once, and wait for them."""
        self.statuses += ended(
            [start(self.where, out, kill=self.kill(), locks=locks) for out in outs]
        )

    def copy(self, source: Path) -> Path:
        """A copy of a folder as it is now."""
        target = self.where / f"copy-{len(list(self.where.iterdir()))}"
        shutil.copytree(source, target)
        return target

    def move(self, name: str) -> None:
        """One thing that happens to a run's folder."""
        out = self.outs[int(self.rng.integers(len(self.outs)))]
        if name in ("copy", "start twice"):
            self.outs.append(self.copy(out))
            self.go([out, self.outs[-1]] if name == "start twice" else [self.outs[-1]])
        elif name == "deliver twice":
            self.go([out, out], locks=False)
        elif self.snapshots:
            shutil.rmtree(out)
            shutil.copytree(self.snapshots[int(self.rng.integers(len(self.snapshots)))], out)
            self.go([out])
        if out.exists():
            self.snapshots.append(self.copy(out))

    def play(self) -> None:
        """Kill a release, make moves, and finish what can be finished."""
        self.statuses += ended(
            [start(self.where, self.outs[0], kill=int(self.rng.integers(20, REACHED)))]
        )
        self.snapshots.append(self.copy(self.outs[0]))
        for name in self.rng.choice(MOVES, size=int(self.rng.integers(2, 5))):
            self.move(str(name))
        self.statuses += ended(
            [
                pid
                for out in self.outs
                if (out / ".run").exists()
                for pid in [start(self.where, out, kill=None)]
            ]
        )

    def used_twice(self) -> list[str]:
        """Purposes, and steps of a training, of which a run used more than one value."""
        seen: dict[str, set[str]] = collections.defaultdict(set)
        path = self.where / "used"
        for line in path.read_text().splitlines() if path.exists() else []:
            entry = json.loads(line)
            seen[json.dumps(entry["of"])].add(entry["digest"])
        return [f"{of}: {len(values)} values" for of, values in seen.items() if len(values) > 1]


def main(folder: Path, plays: int, url: str | None) -> None:
    """Play, and say what was found."""
    killer.prepare_process(folder)
    statuses: collections.Counter[int] = collections.Counter()
    wrong: dict[str, list[str]] = {}
    bugs: list[str] = []
    for number in range(plays):
        where = folder / f"play-{number:03}"
        where.mkdir()
        killer.prepare(where)
        if url is not None:
            give_ledger(where, url, f"play_{number}")
        play = Play(where, np.random.default_rng(number))
        play.play()
        statuses.update(play.statuses)
        if found := play.used_twice():
            wrong[where.name] = found
        bugs += [path.read_text() for path in where.glob("bug-*")]
        if not found and not bugs:
            shutil.rmtree(where)
    ends = {str(status): count for status, count in sorted(statuses.items())}
    print(
        json.dumps(
            {
                "plays": plays,
                "processes": sum(statuses.values()),
                "ends": ends,
                "used twice": wrong,
                "bugs": bugs,
            }
        )
    )


def give_ledger(where: Path, url: str, name: str) -> None:
    """A database of its own on a PostgreSQL server, as the ledger of the spec in `where`."""
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.pool.NullPool)
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    spec = yaml.safe_load((where / "spec.yaml").read_text())
    spec["privacy"]["ledger"] = (
        sa.make_url(url).set(database=name).render_as_string(hide_password=False)
    )
    (where / "spec.yaml").write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)
