"""What is confidential can be read by its owner alone, whatever the umask; the bundle by
everybody.
"""

import os
import stat
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest

from synthdp.audit.plan import write_record
from synthdp.bundle import CONFIDENTIAL_FILE, PUBLIC_FILE, AuditRecord
from synthdp.files import private_folder
from synthdp.ledger import Ledger
from synthdp.release import run_folder
from synthdp.tracking import quiet

pytestmark = pytest.mark.check

CONFIDENTIAL = ("out/internal", ".synthdp", "mlflow.db", "mlflow-artifacts")


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def below(path: Path) -> list[Path]:
    return [path, *path.rglob("*")]


def test_a_release_leaves_nothing_confidential_open(
    tiny: Any, umask: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: dict[Path, int] = {}
    remove = run_folder.RunFolder.remove

    def look_and_remove(folder: run_folder.RunFolder) -> None:
        modes.update({p: mode(p) for p in (folder.path, folder.journal)})
        remove(folder)

    monkeypatch.setattr(run_folder.RunFolder, "remove", look_and_remove)
    tiny.write(tracking={"enabled": True}).release()
    public = {
        "report.html",
        "DATACARD.md",
        "README.md",
        "croissant.json",
        "datapackage.json",
        "spec.yaml",
        "graph.svg",
        "graph.json",
    }
    seen = [p for name in CONFIDENTIAL for p in below(tiny.folder / name)]
    assert len(seen) > 20 and list(modes.values()) == [0o700, 0o700]
    for path in seen:
        assert mode(path) == (0o700 if path.is_dir() else 0o600), (path, oct(mode(path)))
    assert {"internal.html", "certificate.md", "MLmodel"} <= {p.name for p in seen}
    assert all(mode(p) & 0o044 == 0o044 for p in below(tiny.bundle))
    assert public <= {p.name for p in tiny.bundle.iterdir()}


def test_a_run_s_folder_is_its_owner_s(tmp_path: Path, umask: int) -> None:
    folder = run_folder.start(
        tmp_path / "out", tmp_path / "spec.yaml", "text", command=run_folder.RELEASE, force=False
    )
    assert mode(folder.path) == mode(folder.journal) == 0o700


def test_files_of_other_threads_keep_their_modes(tmp_path: Path) -> None:
    """The umask is of all threads of a process: nobody else's file is closed by ours, nor ours
    opened by another's.
    """
    before, made, done = os.umask(0o022), set[int](), threading.Event()
    wrong = set[tuple[str, int]]()

    def others() -> None:
        path = Path(tempfile.mkdtemp(dir=tmp_path)) / "file"
        while not done.is_set():
            path.touch()
            made.add(mode(path))
            path.unlink()

    def own(name: str) -> None:
        for i in range(25):
            out = tmp_path / f"{name}{i}"
            run = run_folder.start(out, out / "s", "text", command=run_folder.RELEASE, force=False)
            run.close()
            run_folder.reopen(out).close()
            file = out / "ledgers" / "led.db"
            Ledger(f"sqlite:///{file}")
            with quiet():
                closed = private_folder(out / "internal")
            folders = (run.path, run.journal, file.parent, closed)
            wrong.update((p.name, mode(p)) for p in folders if mode(p) != 0o700)
            wrong.update((p.name, mode(p)) for p in (file, run.path / "lock") if mode(p) != 0o600)

    try:
        with ThreadPoolExecutor(6) as pool:
            beside = [pool.submit(others) for _ in range(3)]
            ours = [pool.submit(own, name) for name in "abc"]
            wait(ours)
            done.set()
        for each in (*ours, *beside):
            each.result()
        assert (wrong, made, os.umask(0o022)) == (set(), {0o644}, 0o022)
    finally:
        os.umask(before)


def test_an_audit_on_rows_is_its_owner_s_and_one_on_others_is_public(
    tmp_path: Path, umask: int
) -> None:
    record = AuditRecord(program="synthdp 0.1", day="2026-01-01", rows="real", spends=())
    path = tmp_path / CONFIDENTIAL_FILE
    path.parent.mkdir()
    path.write_text("from an earlier version")
    path.chmod(0o644)
    path.parent.chmod(0o755)
    write_record(record, path)
    assert mode(path) == 0o600 and mode(path.parent) == 0o700
    write_record(record.model_copy(update={"rows": "simulated"}), tmp_path / PUBLIC_FILE)
    assert mode(tmp_path / PUBLIC_FILE) == 0o666 & ~umask


def test_a_ledger_is_its_owner_s_until_the_steward_shares_it(tmp_path: Path, umask: int) -> None:
    file = tmp_path / "new" / "led.db"
    book = Ledger(f"sqlite:///{file}")
    assert mode(file) == 0o600 and mode(file.parent) == 0o700
    file.chmod(0o660)
    book.set_cap("d", epsilon=1.0, delta=1e-5)
    Ledger(f"sqlite:///{file}").set_cap("d", epsilon=2.0, delta=1e-5)
    assert mode(file) == 0o660
