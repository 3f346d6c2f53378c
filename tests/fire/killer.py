"""`python killer.py FOLDER`: whole tiny releases in forked children that kill themselves at a
chosen point.

One JSON request a line on stdin, one JSON answer a line on stdout:

    {"do": "release" | "resume" | "verify", "kill": 17}  ->  {"status": -9, "points": ["...", ...],
    "error": ""}

`kill` counts points from 1; null kills nowhere. Points are every file that is opened for writing,
renamed, removed, or made in the output folder (Python's audit events, before they happen), and the
moments before and after a ledger commit, a look at rows, a training step, and the writing of
released values (also half-way). Looks at rows, and whether their charge was in the ledger by then,
are appended to FOLDER/looks.
"""

import functools
import importlib
import json
import os
import re
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
import sqlalchemy as sa
import yaml

from synthdp.bundle import write as bundle_write
from synthdp.data import Domain
from synthdp.ledger import Lease
from synthdp.ledger import database as ledger_database
from synthdp.model import plan_for
from synthdp.privacy import accounting, plan, session
from synthdp.privacy.dpsgd import training
from synthdp.privacy.mechanisms import marginals
from synthdp.release import afterwards
from synthdp.release import run as publishing
from synthdp.release import run as release_module
from synthdp.spec import parse_spec
from synthdp.verify import verify_bundle

SPEC: dict[str, Any] = {
    "synthdp": 1,
    "dataset": {
        "id": "fire",
        "source": {"kind": "csv", "path": "table.csv"},
        "privacy_unit": {"kind": "row", "meaning": "one person"},
        "rows": {"kind": "approximate", "value": 120},
    },
    "columns": {
        "sex": {"type": "categorical", "categories": ["female", "male"]},
        "smoker": {"type": "boolean", "false": "never", "true": "yes"},
        "grade": {"type": "ordinal", "categories": ["low", "middle", "high"]},
    },
    "privacy": {
        "epsilon": 1.0,
        "delta": 1e-5,
        "shares": {"measure": 0.2, "graph": 0.2, "train": 0.6},
        "cap": {"epsilon": 1.5, "delta": 1e-4},
    },
    "graph": {"mode": "validate", "edges": ["sex -> smoker"]},
    "synthesizer": {"steps": 12, "batch": 32, "hidden": 8, "latent": 2, "checkpoint_every": 4},
    "sampling": {"rows": 60, "oversample": 2},
    "evaluation": {"enabled": False},
    "attacks": {"membership": {"enabled": False}},
    "tracking": {"enabled": False},
    "compute": {"threads": 1},
}

# What a release imports only when it gets there: a forked child would pay for each anew.
LATE = (
    "torch._dynamo",
    "opendp.prelude",
    "matplotlib.figure",
    "matplotlib.backends.backend_svg",
    "synthdp.report.internal.page",
    "jinja2.ext",
)
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
RANDOM_PART = re.compile(r"(partial|old|gone)-[A-Za-z0-9_]+")


class Points:
    """Counts the points that a run reaches, and kills it at one of them."""

    def __init__(self, folder: Path, kill: int | None, log: int) -> None:
        self.folder, self.kill, self.log = str(folder / "out"), kill, log
        self.reached = 0
        self.busy = False

    def reach(self, name: str) -> None:
        """One point."""
        self.reached += 1
        os.write(self.log, f"{name}\n".encode())
        if self.reached == self.kill:
            os.kill(os.getpid(), signal.SIGKILL)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """An audit event; those that change the output folder are points."""
        if event not in ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir") or self.busy:
            return
        path = arguments[0]
        if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & WRITES):
            return
        inside = isinstance(path, str | os.PathLike) and os.fspath(path).startswith(self.folder)
        relative = (
            event in ("os.remove", "os.rmdir") and arguments[-1] != -1
        )  # rmtree works below an open folder
        if inside or relative:
            self.busy = True
            name = RANDOM_PART.sub(r"\1", os.fspath(path).removeprefix(self.folder))
            self.reach(f"{event} {name}")
            self.busy = False


def prepare(folder: Path) -> None:
    """Table and spec."""
    rng = np.random.default_rng(3)
    sex = rng.choice(["female", "male"], 120)
    smoker = np.where(rng.random(120) < np.where(sex == "male", 0.9, 0.1), "yes", "never")
    pd.DataFrame(
        {"sex": sex, "smoker": smoker, "grade": rng.choice(["low", "middle", "high"], 120)}
    ).to_csv(folder / "table.csv", index=False)
    (folder / "spec.yaml").write_text(yaml.safe_dump(SPEC, sort_keys=False), encoding="utf-8")


def around(owner: Any, name: str, label: str, reach: Callable[[str], None]) -> None:
    """Points before and after `owner.name`."""
    true = getattr(owner, name)

    @functools.wraps(true)
    def call(*arguments: Any, **options: Any) -> Any:
        reach(f"before {label}")
        result = true(*arguments, **options)
        reach(f"after {label}")
        return result

    setattr(owner, name, call)


def torn(reach: Callable[[str], None]) -> None:
    """Points before, half-way through and after the writing of a released value or a checkpoint,
    and around the ledger's word that it is kept.
    """
    true, true_replace = session._write, Path.replace

    def write(path: Path, content: bytes) -> None:
        def half_way(self: Path, target: Any) -> Any:
            os.truncate(self, len(content) // 2)
            reach("half of journal file")
            self.write_bytes(content)
            return true_replace(self, target)

        reach("before journal file")
        Path.replace = half_way  # type: ignore[method-assign, assignment]
        true(path, content)
        Path.replace = true_replace  # type: ignore[method-assign]
        reach("after journal file")

    session._write = write


def watch_looks(folder: Path, log: int) -> None:
    """Write down each look at rows with what the ledger on disk says of it, and each value that was
    kept.
    """
    purposes: list[str] = []
    true_release = session.Session.release

    def release(self: Any, mechanism: Any, *, purpose: str) -> Any:
        purposes.append(purpose)
        return true_release(self, mechanism, purpose=purpose)

    session.Session.release = release  # type: ignore[method-assign, assignment]
    watch_kept(log)
    for kind in (marginals.NoisyMarginals, marginals.ChosenMarginals, training.Training):

        def run(self: Any, table: Any, streams: Any, *, true: Any = kind.run) -> Any:
            charged = purposes[-1] in charged_on_disk(folder / ".synthdp" / "ledger.db")
            os.write(log, f"{json.dumps({'look': purposes[-1], 'charged': charged})}\n".encode())
            return true(self, table, streams)

        kind.run = run  # type: ignore[method-assign, assignment]


def watch_kept(log: int) -> None:
    """Write down each value that was kept."""
    true = Lease.keep

    def keep(self: Any, **body: Any) -> None:
        true(self, **body)
        if body["step"] is None:
            os.write(log, f"{json.dumps({'kept': body['purpose']})}\n".encode())

    Lease.keep = keep  # type: ignore[method-assign, assignment]


def charged_on_disk(path: Path) -> list[str]:
    """Purposes charged in a ledger file, read without the ledger's own code."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
        found = [
            json.loads(body)["purpose"]
            for (body,) in database.execute("select body from synthdp_ledger where kind = 'charge'")
        ]
    database.close()
    return found


def arm(folder: Path, kill: int | None, log: int) -> None:
    """Put all points in place, and write down looks at rows."""
    watch_looks(folder, os.open(folder / "looks", os.O_WRONLY | os.O_CREAT | os.O_APPEND))
    arm_points(folder, kill, log)


def arm_points(
    folder: Path, kill: int | None, log: int, more: Sequence[tuple[Any, str, str]] = ()
) -> None:
    """Put all points in place, and `more` as for `around`."""
    points = Points(folder, kill, log)
    reach = points.reach
    torn(reach)
    around(sa.engine.Connection, "commit", "ledger commit", reach)
    around(ledger_database, "append", "ledger row", reach)
    for kind in (marginals.NoisyMarginals, marginals.ChosenMarginals, training.Training):
        around(kind, "run", f"look of {kind.__name__}", reach)
    around(training._Trainer, "step", "training step", reach)
    for owner, name, label in more:
        around(owner, name, label, reach)
    around(bundle_write, "write_csv", "table", reach)
    around(publishing, "write_bundle", "bundle", reach)
    around(afterwards, "internal_report", "internal report", reach)
    sys.addaudithook(points.audit)


BREAKAGES: dict[str, Callable[[], None]] = {}


def breakage(function: Callable[[], None]) -> Callable[[], None]:
    """Register a way to break the kernel."""
    BREAKAGES[function.__name__.replace("_", " ")] = function
    return function


@breakage
def charge_after_the_look() -> None:
    """The rows are looked at first."""

    def release(self: Any, mechanism: Any, *, purpose: str) -> Any:
        event = session._check_planned(self.plan, mechanism, purpose, self._used)
        self._used.add(purpose)
        value = mechanism.run(self._private.unseal(key=session._KERNEL_KEY), self._streams)
        self._journal.write(purpose, mechanism.pack(value))
        entry = self._lease.charge(purpose=purpose, mechanism=mechanism.name, event=event)
        return session.Released(
            value, frozenset({session.Receipt(self._run, entry.hash)}), key=session._KERNEL_KEY
        )

    session.Session.release = release  # type: ignore[method-assign, assignment]


@breakage
def settled_before_the_reserve_is_durable() -> None:
    """One transaction from the reservation to the settlement."""
    from synthdp.ledger import Ledger

    open_transactions: list[Any] = []
    true_settle = Ledger.settle

    @contextmanager
    def writing(engine: Any) -> Iterator[Any]:
        if not open_transactions:
            open_transactions.append(engine.connect())
            open_transactions[0].exec_driver_sql("BEGIN IMMEDIATE")
        yield open_transactions[0]

    @contextmanager
    def reading(engine: Any) -> Iterator[Any]:
        with (
            nullcontext(open_transactions[0])
            if open_transactions
            else engine.connect() as connection
        ):
            yield connection

    def settle(self: Any, dataset: str, run: str, **options: Any) -> Any:
        entry = true_settle(self, dataset, run, **options)
        open_transactions[0].commit()
        return entry

    ledger_database.writing, ledger_database.reading = writing, reading  # type: ignore[assignment]
    Ledger.settle = settle  # type: ignore[method-assign]


@breakage
def resume_pays_again() -> None:
    """A resumed run takes another reservation, under another name."""
    from synthdp.ledger import Ledger

    true = Ledger.reserve

    def reserve(self: Any, dataset: str, run: str, **rest: Any) -> Any:
        entry = true(self, dataset, run, **rest)
        true(self, dataset, f"{run}-again-{os.getpid()}", **rest | {"epsilon": 0.1})
        return entry

    Ledger.reserve = reserve  # type: ignore[method-assign]


@breakage
def folder_removed_in_place() -> None:
    """The journal goes before the state that invites to resume."""
    from synthdp.release import RunFolder

    def remove(self: Any) -> None:
        for path in sorted(p for p in self.journal.iterdir() if p.is_file()):
            path.unlink()
        (self.path / "state.json").unlink()

    RunFolder.remove = remove  # type: ignore[method-assign]


@breakage
def folder_removed_in_place_and_nobody_asks_whether_the_run_settled() -> None:
    """All walls against a second look are gone."""
    folder_removed_in_place()
    session._check_unsettled = lambda *_: None
    Lease.kept = lambda self, purpose: None  # type: ignore[method-assign, assignment]


def do(folder: Path, what: str) -> None:
    """The request itself, in the child."""
    out = folder / "out"
    if what == "release":
        release_module.release(folder / "spec.yaml", out=out)
    elif what == "resume":
        release_module.resume(out)
    else:
        verify_bundle(out / "bundle")


def child(folder: Path, request: dict[str, Any], log: int, errors: int) -> int:
    """Exit status of the forked child."""
    try:
        if request.get("break"):
            BREAKAGES[request["break"]]()
        if request["do"] != "verify":
            arm(folder, request.get("kill"), log)
        do(folder, request["do"])
    except BaseException as error:
        os.write(errors, f"{type(error).__name__}: {error}".encode()[:60000])
        return getattr(error, "exit_code", 1)
    return 0


def serve(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Fork, wait, answer."""
    log_path, error_path = folder / "points", folder / "error"
    for path in (log_path, error_path):
        path.unlink(missing_ok=True)
    log, errors = (
        os.open(p, os.O_WRONLY | os.O_CREAT | os.O_APPEND) for p in (log_path, error_path)
    )
    pid = os.fork()
    if pid == 0:
        os._exit(child(folder, request, log, errors))
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(log)
    os.close(errors)
    return {
        "status": status,
        "points": log_path.read_text().splitlines(),
        "error": error_path.read_text(),
    }


def remembered(name: str) -> None:
    """The same plan is composed by every child; its numbers are computed once, here."""
    true = getattr(accounting, name)
    known: dict[str, Any] = {}

    def answer(events: Any, **rest: Any) -> Any:
        key = repr((list(map(repr, events)), sorted(rest.items())))
        if key not in known:
            known[key] = true(list(events), **rest)
        return known[key]

    setattr(accounting, name, answer)


def prepare_process(folder: Path) -> None:
    """Import and compose what every child needs."""
    plan.GROUP_SIZES = (1,)
    for module in LATE:
        importlib.import_module(module)
    for name in ("epsilon", "group_epsilon", "delta_profile"):
        remembered(name)
    prepare(folder)
    loaded = parse_spec((folder / "spec.yaml").read_text(), path="spec.yaml")
    made = plan_for(loaded, Domain.from_spec(loaded.columns))
    plan_numbers = (
        made.epsilon_spent,
        made.profile,
        made.group_epsilons,
        [made.epsilon_of(s) for s in made.spends],
    )
    assert plan_numbers


def main(folder: Path) -> None:
    """Serve requests until stdin ends."""
    prepare_process(folder)
    for line in sys.stdin:
        request = json.loads(line)
        where = Path(request.get("folder", folder))
        if where != folder:
            where.mkdir(exist_ok=True)
            prepare(where)
        print(json.dumps(serve(where, request)), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
