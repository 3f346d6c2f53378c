"""One release on two tables, with everything equal that the guarantee lets depend on the rows.

The released values of a run are taped once; on every other table each mechanism is charged, as
ever, and then gives the taped value instead of looking. Coins follow from where they are drawn
(`coins`). So by the post-processing theorem nothing outside the mechanisms may still depend on the
rows: whatever is published, printed, logged, warned of, raised or left behind outside `internal/`
must be the same to the byte, and so must be what each mechanism was asked. What differs got past
the mechanisms.
"""

from __future__ import annotations

import contextlib
import gc
import io
import logging
import os
import re
import shutil
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import typer.main
import yaml

import synthdp.cli.options
import synthdp.release.run
from synthdp import Spec
from synthdp.audit import Fingerprint, fingerprint
from synthdp.cli.main import main
from synthdp.data import Domain
from synthdp.privacy import Arrays, plan, session
from synthdp.privacy.plan import ReleasePlan
from synthdp.progress import Advance
from synthdp.spec.model import ReleaseSpec
from synthdp_attacks import RUNNERS, Fleet
from tests.differential.coins import Coins, frozen

Table = pd.DataFrame
Write = Callable[[Table, Path], None]
HEARING = ("progress", "checkpoints")  # fields of a mechanism that hear of it, and ask nothing
ADDRESS = re.compile(rb" at 0x[0-9a-f]+")
SCRATCH = re.compile(r"synthdp-[a-z0-9_]{8}")  # a folder of tempfile, named by chance
COMMANDS = cache(typer.main.get_command)  # made of all options anew each time, which takes long
PLANS: dict[str, Any] = {}  # by spec: each is made before a row is read
SAID = ("exit", "raised", "printed", "logged", "warned", "facts")  # told before files are
REFUSALS = (  # of a table, which known-limits.md names; nothing is spent by then
    r"(the table has no rows"
    r"|a text is longer than 65,536 bytes"
    r"|column 'person' \(the privacy unit\) has missing ids"
    r"|values outside the declared domain in columns? '\w+'(, '\w+')*)\n  hint: [^\n]*\n"
)
SHOWN = 90  # bytes around the first that differs


@dataclass(frozen=True)
class Case:
    """A spec, how its source is written, and what the case is called."""

    name: str
    spec: Mapping[str, Any]
    write: Write
    mode: str = ""
    given: bool = False  # the rows are given from Python


@dataclass
class Tape:
    """Released values by their purpose."""

    values: dict[str, Arrays] = field(default_factory=dict)


@dataclass
class Outcome:
    """Everything that one run shows: by name, as bytes."""

    shown: dict[str, bytes] = field(default_factory=dict)
    ended: str = ""

    @property
    def published(self) -> bool:
        """Whether there is a bundle."""
        return "file out/bundle/SHA256SUMS" in self.shown

    @property
    def refused(self) -> bool:
        """Whether the table was refused in declared words, with nothing spent or left behind."""
        raised = self.shown.get("raised", b"").decode()
        left = any(name.startswith("file out/") for name in self.shown)
        unspent = "notes: ['budget: nothing was spent']" in raised
        return (
            bool(re.match(f"DataError: {REFUSALS}", raised))
            and self.ended == "exit 5"
            and unspent
            and not left
        )


class _Taped:
    """A mechanism that gives its taped value, if there is one."""

    def __init__(self, mechanism: Any, purpose: str, tape: Tape) -> None:
        self._mechanism, self._purpose, self._values = mechanism, purpose, tape.values

    def __getattr__(self, name: str) -> Any:
        return getattr(self._mechanism, name)

    def run(self, table: Any, randomness: Any) -> Any:
        if self._purpose not in self._values:
            value = self._mechanism.run(table, randomness)
            packed = self._mechanism.pack(value)
            self._values[self._purpose] = {name: a.copy() for name, a in packed.items()}
        arrays = {name: array.copy() for name, array in self._values[self._purpose].items()}
        return self._mechanism.unpack(arrays)


class _Display:
    """Progress in plain lines: all of what a display may show, whenever it came."""

    def __enter__(self) -> _Display:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to end."""

    def start(self, title: str) -> Advance:
        def advance(done: int, total: int, what: str = "", /) -> None:
            print(f"{title}: {done} of {total} {what}", file=sys.stderr)

        print(f"{title} begins", file=sys.stderr)
        return advance

    def finish(self, title: str, seconds: float) -> None:
        print(f"{title}: {seconds} s", file=sys.stderr)

    def warn(self, text: str) -> None:
        print(f"warning: {text}", file=sys.stderr)

    def tell(self, text: str) -> None:
        print(text, file=sys.stderr)


class _Listener(logging.Handler):
    """Writes down what is logged: by others from warnings on, since Dask tells its ports."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith("synthdp") or record.levelno >= logging.WARNING:
            self.lines.append(f"{record.name} {record.levelname} {record.getMessage()}")


@contextlib.contextmanager
def _taped(tape: Tape, outcome: Outcome) -> Iterator[None]:
    """Every mechanism of a session gives what is taped, and is written down."""
    release, together = session.Session.release, session.Session.release_together

    def heard(mechanism: Any, purpose: str) -> _Taped:
        outcome.shown[f"what was asked for {purpose!r}"] = b"\n".join(
            f"{name}: {kind} ".encode() + ADDRESS.sub(b"", content)
            for name, (kind, content) in _asked(mechanism).items()
        )
        return _Taped(mechanism, purpose, tape)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            session.Session,
            "release",
            lambda self, mechanism, *, purpose: release(
                self, heard(mechanism, purpose), purpose=purpose
            ),
        )
        patch.setattr(
            session.Session,
            "release_together",
            lambda self, mechanisms: together(
                self, {purpose: heard(m, purpose) for purpose, m in mechanisms.items()}
            ),
        )
        yield


def _asked(mechanism: Any) -> Fingerprint:
    """What a mechanism will do, from its public fields."""
    names = [f.name for f in fields(mechanism)] if is_dataclass(mechanism) else []
    return fingerprint(
        {name: getattr(mechanism, name) for name in names if name not in HEARING}
        | {"mechanism": type(mechanism).__name__}
    )


def run(
    case: Case,
    table: Table,
    folder: Path,
    tape: Tape,
    *,
    seed: str = "",
    coins: Callable[[str], Coins] = Coins,
) -> Outcome:
    """One release of `case` on `table` in `folder`, which is emptied first.

    What `tape` does not hold is released for real, and taped.
    """
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "tmp").mkdir(parents=True)
    case.write(table, folder)
    inputs = {path.name for path in folder.iterdir()} - {"tmp"}
    (folder / "spec.yaml").write_text(yaml.safe_dump(dict(case.spec), sort_keys=False))
    outcome, printed, listener = Outcome(), io.StringIO(), _Listener()
    root, home = logging.getLogger(), Path.cwd()
    with (
        pytest.MonkeyPatch.context() as patch,
        frozen(coins(seed)),
        _taped(tape, outcome),
        warnings.catch_warnings(record=True) as warned,
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
    ):
        warnings.simplefilter("always")
        patch.setattr(tempfile, "tempdir", str(folder / "tmp"))
        patch.setattr(plan, "GROUP_SIZES", (1,))
        patch.setattr(typer.main, "get_command", COMMANDS)
        patch.setattr(synthdp.cli.options, "ProgressDisplay", _Display)
        patch.setenv("DIFFERENTIAL_DATABASE", f"sqlite:///{folder / 'table.db'}")
        patch.setenv("COLUMNS", "200")
        patch.setitem(RUNNERS, "loky", RUNNERS["serial"])
        patch.setattr(Fleet, "_telling", lambda fleet, tell: contextlib.nullcontext())  # by a clock
        logging.getLogger("synthdp").setLevel(logging.DEBUG)
        root.addHandler(listener)
        os.chdir(folder)
        try:
            outcome.ended = _release(case, table, outcome, patch)
        finally:
            os.chdir(home)
            root.removeHandler(listener)
            logging.getLogger("synthdp").setLevel(logging.NOTSET)
    if outcome.ended in ("exit 130", "exit 143"):  # the command line makes an error of it
        raise KeyboardInterrupt
    if case.spec.get("compute", {}).get("engine") == "dask":
        gc.collect()  # a cluster of this machine ends with its engine, and takes its folder along
    outcome.shown["printed"] = printed.getvalue().encode()
    outcome.shown["logged"] = "\n".join(listener.lines).encode()
    outcome.shown["warned"] = "\n".join(
        f"{w.category.__name__}: {w.message}" for w in warned
    ).encode()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if name.parts[0] not in inputs and name.parts[:2] != ("out", "internal"):
            named = SCRATCH.sub("synthdp-?", str(name))
            outcome.shown[f"file {named}"] = path.read_bytes() if path.is_file() else b"folder"
    return outcome


def _release(case: Case, table: Table, outcome: Outcome, patch: pytest.MonkeyPatch) -> str:
    """Run the command, or the Python face where the rows are given; how it ended."""
    true = synthdp.release.run.release

    def release(*args: Any, **options: Any) -> Any:
        try:
            done = true(*args, **options)
        except BaseException as error:
            outcome.shown["raised"] = "\n".join(_texts(error)).encode()
            raise
        outcome.shown["facts"] = repr(done.to_json()).encode()
        if case.given:
            print(done)
        return done

    planned = synthdp.release.run.plan_for

    def plan_for(spec: ReleaseSpec, domain: Domain) -> ReleasePlan:
        text = spec.model_dump_json()
        if text not in PLANS:
            PLANS[text] = planned(spec, domain)
        return PLANS[text]

    patch.setattr(synthdp.release.run, "plan_for", plan_for)
    patch.setattr(synthdp.release.run, "release", release)
    patch.setattr(
        sys, "argv", ["synthdp", "release", "spec.yaml", "--out", "out", "--accept-refusals"]
    )
    code: object = 0
    try:
        if case.given:
            Spec.load("spec.yaml").release(table, out="out", accept_refusals=True)
        else:
            main()
    except SystemExit as stop:
        code = stop.code
    except Exception as error:
        code = getattr(error, "exit_code", type(error).__name__)
    outcome.shown["exit"] = str(code or 0).encode()
    return f"exit {code or 0}"


def _texts(error: BaseException | None) -> Iterator[str]:
    """Type, message, hint, notes and lines of an error, and of what hangs on it."""
    while error is not None:
        yield f"{type(error).__name__}: {error}"
        yield f"hint: {getattr(error, 'hint', None)}, notes: {getattr(error, '__notes__', None)}"
        yield from (
            f"{Path(f.filename).name}:{f.lineno} {f.name}"
            for f in traceback.extract_tb(error.__traceback__)
        )
        error = error.__cause__ or error.__context__


def differences(first: Outcome, second: Outcome) -> list[str]:
    """What differs, a line each, with the place of the first byte that does.

    That one of two tables is refused may be known: `known-limits.md` says of which. The other one
    must be released, or end with an error that is the user's to mend. Where both are, each is told
    its own reason and columns, and all else is the same.
    """
    if first.refused != second.refused and "exit 1" not in (first.ended, second.ended):
        return []
    texts = first.shown, second.shown
    if first.refused and second.refused:
        texts = tuple({k: v for k, v in t.items() if k != "raised"} for t in texts)
        for text in texts:
            text["printed"] = re.sub(REFUSALS.encode(), b"refused\n", text["printed"])
    found, names = [], texts[0].keys() | texts[1].keys()
    for name in sorted(names, key=lambda n: (n not in SAID, n)):
        one, other = (text.get(name) for text in texts)
        if one == other:
            continue
        if one is None or other is None:
            found.append(f"{name}: only in the {'second' if one is None else 'first'} run")
            continue
        pairs = enumerate(zip(one, other, strict=False))
        at = next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))
        around = slice(max(0, at - SHOWN), at + SHOWN)
        found.append(f"{name}, byte {at}: {one[around]!r} and {other[around]!r}")
    return found


@dataclass(frozen=True)
class Base:
    """A case on its first table: what is taped, and what a run with that tape shows."""

    case: Case
    folder: Path
    seed: str
    tape: Tape
    outcome: Outcome

    @classmethod
    def of(cls, case: Case, table: Table, folder: Path, *, seed: str = "") -> Base:
        """Record the release of `table`, and replay it once on the same rows."""
        tape = Tape()
        run(case, table, folder, tape, seed=seed)
        return cls(case, folder, seed, tape, run(case, table, folder, tape, seed=seed))

    def differences(self, table: Table) -> list[str]:
        """How a release of `table` with the same released values is another one."""
        return differences(self.outcome, self.replay(table))

    def replay(self, table: Table) -> Outcome:
        """The release of `table` with the same released values."""
        return run(self.case, table, self.folder, self.tape, seed=self.seed)


def told(found: list[str], *, most: int = 6) -> str:
    """Differences as text."""
    more = f"\n  and {len(found) - most} more" if len(found) > most else ""
    return "\n".join(f"  {line}" for line in islice(found, most)) + more
