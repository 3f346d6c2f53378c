"""One look for one charge: copies of a run, older copies, runs that others take, and ledgers that
forgot.
"""

import errno
import fcntl
import hashlib
import json
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synthdp.audit import AttackFolder
from synthdp.errors import BudgetError, OutputError
from synthdp.ledger import Lease, Ledger
from synthdp.privacy.plan import ReleasePlan
from synthdp.privacy.session import Journal
from synthdp.release import run as release_module
from synthdp.release import run_folder
from synthdp.verify import verify_bundle
from tests.release.conftest import interrupt

pytestmark = pytest.mark.check


def copy(folder: Path, name: str) -> Path:
    return Path(shutil.copytree(folder, folder.with_name(name)))


def test_of_copies_of_a_run_one_is_finished_and_the_others_are_refused(
    interrupted: Any, synthdp: Any
) -> None:
    copies = [copy(interrupted.out, f"copy-{i}") for i in range(2)]
    assert synthdp("resume", interrupted.out).code == 0
    for other in copies:
        refused = synthdp("resume", other)
        assert refused.code == 2
        assert "an older copy is refused" in refused.err
        assert not (other / "bundle").exists()
    assert verify_bundle(interrupted.bundle).ok
    assert interrupted.kinds() == [
        "cap",
        "reserve",
        "charge",
        "charge",
        "settle",
    ]


def test_budget_refuses_two_bundles_of_one_run_that_differ(released: Any, synthdp: Any) -> None:
    other, ledger = (
        copy(released.out, "copy") / "bundle",
        released.folder / ".synthdp" / "ledger.db",
    )
    same = synthdp("budget", "--ledger", ledger, "--check", released.bundle, "--check", other)
    assert same.code == 0, same.err
    sums = other / "SHA256SUMS"
    first, rest = sums.read_text()[0], sums.read_text()[1:]
    sums.write_text(("1" if first == "0" else "0") + rest, encoding="utf-8")
    refused = synthdp("budget", "--ledger", ledger, "--check", released.bundle, "--check", other)
    assert refused.code == 6 and "are both of run" in refused.err and "differ" in refused.err


def test_a_folder_that_was_set_back_to_an_older_checkpoint_trains_no_further(
    interrupted: Any, synthdp: Any
) -> None:
    backup = copy(interrupted.out, "backup")
    assert synthdp("resume", interrupted.out).code == 0
    shutil.rmtree(interrupted.out)
    backup.rename(interrupted.out)
    before = interrupted.kinds()
    refused = synthdp("resume", interrupted.out)
    assert refused.code == 2
    assert "train of the interrupted run is missing" in refused.err
    assert interrupted.kinds() == before


# --- a run that another one takes ---


HOLD = """
import sys
from pathlib import Path
from synthdp.release.run_folder import reopen
reopen(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("command", ["release", "release --force", "resume"])
def test_a_living_run_is_left_alone(interrupted: Any, synthdp: Any, command: str) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(interrupted.out)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        before = sorted(p.name for p in interrupted.out.rglob("*"))
        arguments = (
            ["resume", interrupted.out]
            if command == "resume"
            else [*command.split(), interrupted.spec, "--out", interrupted.out]
        )
        refused = synthdp(*arguments)
        assert refused.code == 3
        assert (
            f"another release is running in {interrupted.out} (process {holder.pid})" in refused.err
        )
        assert "--force" not in refused.err
        assert sorted(p.name for p in interrupted.out.rglob("*")) == before
        holder.kill()
    assert synthdp("resume", interrupted.out).code == 0


def test_a_living_run_is_left_alone_by_its_own_process_too(tmp_path: Path) -> None:
    """A second start would take the run, or let another process take it."""
    out, spec = tmp_path / "out", tmp_path / "spec.yaml"
    first = run_folder.start(out, spec, "", command=run_folder.RELEASE, force=False)
    for force in (False, True):
        with pytest.raises(BudgetError, match="this process"):
            run_folder.start(out, spec, "", command=run_folder.RELEASE, force=force)
    with pytest.raises(BudgetError, match="this process"):
        run_folder.reopen(out)
    done = subprocess.run(
        [sys.executable, "-c", HOLD, str(out)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "another release is running" in done.stderr
    first.close()
    run_folder.reopen(out).close()


def test_a_run_whose_place_was_taken_writes_nothing_into_the_other_one(tmp_path: Path) -> None:
    """As on a disk that does not share locks: both are at work, and the later one has OUT."""
    out, spec = tmp_path / "out", tmp_path / "spec.yaml"
    first = run_folder.start(out, spec, "", command=run_folder.RELEASE, force=False)
    first.close()
    second = run_folder.start(out, spec, "", command=run_folder.RELEASE, force=True)
    ledger = Ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    ledger.reserve("d", first.run, epsilon=1.0, delta=1e-6, cap=None, body={})
    before = sorted(p.relative_to(out) for p in out.rglob("*"))
    with pytest.raises(OutputError, match="cannot write"):
        Journal(first.journal, Lease(ledger, dataset="d", run=first.run)).write(
            "train", {"w": np.zeros(2)}
        )
    with pytest.raises(OutputError, match="cannot write"):
        AttackFolder.open(first.shadows)
    first.remove()
    assert sorted(p.relative_to(out) for p in out.rglob("*")) == before
    second.close()
    assert run_folder.reopen(out).run == second.run


def test_a_disk_without_locks_is_worked_on_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger's lease takes their place; nobody is told to wait for a process that there is
    not.
    """

    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", none)
    made = run_folder.start(
        tmp_path / "out", tmp_path / "spec.yaml", "", command=run_folder.RELEASE, force=False
    )
    made.close()
    assert run_folder.reopen(tmp_path / "out").run == made.run


def test_who_lost_a_run_removes_no_file_of_who_has_it(tmp_path: Path) -> None:
    """Both work in one folder; the first one's last write to the ledger came through before the
    second one took over.
    """
    ledger = Ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    ledger.reserve("d", "r", epsilon=1.0, delta=1e-6, cap=None, body={})
    late = Journal(tmp_path, Lease(ledger, dataset="d", run="r"))
    late.write("train", {"w": np.zeros(1)}, step=1)
    true_keep, rival = Lease.keep, list[Journal]()

    def keep_and_stall(self: Lease, **body: Any) -> None:
        true_keep(self, **body)
        if not rival:
            rival.append(Journal(tmp_path, Lease(ledger, dataset="d", run="r")))
            rival[0].write("train", {"w": np.ones(1)}, step=3)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lease, "keep", keep_and_stall)
        late.write("train", {"w": np.full(1, 2.0)}, step=2)
    kept = Journal(tmp_path, Lease(ledger, dataset="d", run="r")).checkpoints("train").last()
    assert kept is not None and kept["w"] == [1.0]


# --- a spec or a plan that changed ---


def test_a_spec_that_is_edited_while_it_is_planned_is_read_once(
    tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, true = tiny.write(evaluation={"enabled": False}).spec.read_text(), release_module.plan_for

    def plan_and_edit(*arguments: Any) -> Any:
        tiny.spec.write_text(text.replace("epsilon: 1.0", "epsilon: 0.5"))
        return true(*arguments)

    monkeypatch.setattr(release_module, "plan_for", plan_and_edit)
    interrupt(tiny, "measure and train", 12)
    state = json.loads((tiny.out / ".run" / "state.json").read_text())
    reserved = next(e.body for e in tiny.ledger.entries() if e.kind == "reserve")
    assert state["spec_text"] == text
    assert reserved["spec_sha256"] == hashlib.sha256(text.encode()).hexdigest()


def lose_a_value(tiny: Any, _: pytest.MonkeyPatch) -> None:
    next(tiny.out.glob(".run/*/measure.*.safetensors")).unlink()


def be_older(tiny: Any, _: pytest.MonkeyPatch) -> None:
    """As an earlier version left it."""
    path = tiny.out / ".run" / "state.json"
    state = json.loads(path.read_text())
    del state["command"]
    path.write_text(json.dumps(state))
    with closing(sqlite3.connect(tiny.folder / ".synthdp" / "ledger.db")) as ledger, ledger:
        ledger.execute("delete from synthdp_ledger where kind in ('lease', 'kept')")


def plan_otherwise(_: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReleasePlan, "digest", "another")


def lose_the_ledger(tiny: Any, _: pytest.MonkeyPatch) -> None:
    shutil.rmtree(tiny.folder / ".synthdp")


def empty_the_ledger(tiny: Any, _: pytest.MonkeyPatch) -> None:
    """As a refused command made it once."""
    shutil.rmtree(tiny.folder / ".synthdp")
    Ledger(f"sqlite:///{tiny.folder / '.synthdp' / 'ledger.db'}")


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        (lose_a_value, 2, "an older copy is refused"),
        (be_older, 3, "was begun by an earlier version of synthdp"),
        (plan_otherwise, 3, "was planned otherwise"),
        (lose_the_ledger, 3, "which held this run's reservation, is gone"),
        (empty_the_ledger, 3, "it was deleted or set back"),
    ],
)
def test_a_run_that_changed_is_not_gone_on_with(
    interrupted: Any,
    synthdp: Any,
    looks: list[str],
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Any, pytest.MonkeyPatch], None],
    code: int,
    says: str,
) -> None:
    change(interrupted, monkeypatch)
    ledger = interrupted.folder / ".synthdp" / "ledger.db"
    before = interrupted.kinds() if ledger.exists() else None
    refused = synthdp("resume", interrupted.out)
    assert refused.code == code and says in refused.err and "backup" not in refused.err
    assert looks == [] and not interrupted.bundle.exists()
    assert (interrupted.kinds() if ledger.exists() else None) == before


# --- a ledger that forgot ---


@pytest.mark.parametrize("where", ["its own folder", "a folder beside it"])
def test_a_deleted_ledger_is_held_against_the_bundles_at_hand(
    released: Any, synthdp: Any, where: str
) -> None:
    shutil.rmtree(released.folder / ".synthdp")
    out = released.out if where == "its own folder" else released.out.with_name("another")
    refused = synthdp("release", released.spec, "--out", out, "--force")
    assert refused.code == 3
    assert "published a release of dataset 'tiny' that the ledger does not know" in refused.err
    assert verify_bundle(released.bundle).ok and released.kinds() == []


def test_plan_holds_the_ledger_against_the_bundles_at_hand(
    released: Any, synthdp: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(released.folder)
    (released.folder / "releases").mkdir()
    released.out.rename(released.folder / "releases" / "tiny")
    assert synthdp("plan", released.spec).code == 0
    shutil.rmtree(released.folder / ".synthdp")
    refused = synthdp("plan", released.spec)
    assert refused.code == 3
    assert "more was spent than it says" in refused.err
    assert not (released.folder / ".synthdp").exists()


def test_the_same_columns_under_another_id_are_told(released: Any, synthdp: Any) -> None:
    told = "warning: dataset 'tiny' of this ledger has the same columns"
    assert told not in synthdp("plan", released.spec).out
    released.write(dataset={"id": "tiny2"})
    assert told in synthdp("plan", released.spec).out
    again = synthdp("release", released.spec, "--out", released.folder / "other")
    assert again.code == 0 and told in again.err


# --- clocks ---


def test_a_bundle_holds_no_clock_finer_than_a_day(released: Any) -> None:
    """How long measuring and training took goes with the number of rows."""
    entries = json.loads((released.bundle / "privacy" / "ledger.json").read_text())["entries"]
    assert {len(e["at"]) for e in entries} == {len("2026-01-01")}
    clock = re.compile(rb"[0-2][0-9]:[0-5][0-9]:[0-5][0-9]")
    files = [
        p for p in released.bundle.rglob("*") if p.is_file() and p.name != "spec.yaml"
    ]  # the spec has bounds of dates
    assert len(files) > 10 and [p.name for p in files if clock.search(p.read_bytes())] == []
