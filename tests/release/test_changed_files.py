"""A run whose epsilon counts on the coins of places in its files goes on with the same files alone:
else nothing more is read or charged.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from synthdp.errors import DataError, budget_note
from synthdp.ledger import Ledger
from synthdp.privacy import source
from synthdp.privacy.mechanisms.marginals import NoisyMarginals
from synthdp.release import open_session, release, resume, resume_linked
from synthdp.verify import verify_bundle
from tests.builders import predict_spec, predict_table
from tests.release.conftest import dying
from tests.release.linked import conftest as linked

pytestmark = pytest.mark.check

SOURCES: dict[str, dict[str, Any]] = {
    "csv": {"kind": "csv", "path": "table.csv"},
    "parquet": {"kind": "parquet", "path": "whole.parquet"},
    "folder": {"kind": "parquet", "path": "t"},
    "arrow": {"kind": "parquet", "path": "t"},
    "pattern": {"kind": "parquet", "path": "t/*.parquet"},
}
KEPT = ("table.csv", "whole.parquet", "t")


def written(folder: Path, frame: pd.DataFrame) -> None:
    """The table as CSV, and as Parquet: in one file, and in a folder of two."""
    frame.to_csv(folder / "table.csv", index=False)
    (folder / "t").mkdir(exist_ok=True)
    frame = frame.assign(grade=frame["grade"].replace("", None))
    frame.to_parquet(folder / "whole.parquet", index=False)
    for i, part in enumerate(np.array_split(np.arange(len(frame)), 2)):
        frame.iloc[part].to_parquet(folder / "t" / f"{i}.parquet", index=False)


def spec_of(folder: Path, name: str, **privacy: Any) -> Path:
    judged = {"holdout": 0.2, "targets": ["smoker"], "classifiers": ["logistic"], "triples": 4}
    own = predict_spec(
        evaluation=judged,
        attacks={"membership": {"enabled": False}},
        compute={"threads": 1, "engine": "arrow" if name in ("arrow", "pattern") else "memory"},
    )
    own["dataset"]["source"] = SOURCES[name]
    own["privacy"] |= privacy
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(own), encoding="utf-8")
    return path


def entries(folder: Path) -> list[Any]:
    return Ledger(f"sqlite:///{folder / '.synthdp' / 'ledger.db'}").entries()


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """`begun(name)`: a folder with a run of that source, which was stopped before its first look;
    a run that goes on stops there too.
    """

    def make(name: str, **privacy: Any) -> Path:
        written(tmp_path, predict_table())
        monkeypatch.setattr("synthdp.release.run._train", dying())
        with pytest.raises(KeyboardInterrupt):
            release(spec_of(tmp_path, name, **privacy), out=tmp_path / "out")
        return tmp_path

    return make


def goes_on(folder: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        resume(folder / "out")


def refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> DataError:
    """What a resume says that reads no row and writes no entry."""
    before = entries(folder)
    with monkeypatch.context() as patch:
        patch.setattr(open_session, "read_private", dying(AssertionError))
        with pytest.raises(DataError, match="began") as caught:
            resume(folder / "out")
    assert entries(folder) == before
    return caught.value


def turned(folder: Path) -> None:
    """The same rows in another order, under the same names and of about the same size."""
    written(folder, predict_table().iloc[::-1])


@pytest.mark.parametrize("name", SOURCES)
def test_a_run_goes_on_with_the_same_files_alone(
    name: str, begun: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = begun(name)
    goes_on(folder)
    for kept in KEPT:
        shutil.move(folder / kept, folder / f"was-{kept}")
    turned(folder)
    error = refused(folder, monkeypatch)
    shown = SOURCES[name]["path"]
    assert f"{shown!r} is not as it was when run" in str(error) and "cp -p" in str(error.hint)
    assert "stays spent" in (budget_note(error) or "") and "so far: nothing" in str(
        budget_note(error)
    )
    for kept in KEPT:  # a copy that has its times is the same
        path = folder / kept
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        was = folder / f"was-{kept}"
        shutil.copytree(was, path) if was.is_dir() else shutil.copy2(was, path)
    goes_on(folder)


def test_a_file_that_was_touched_linked_elsewhere_or_has_come_may_be_another_one(
    begun: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = begun("folder")
    one = folder / "t" / "0.parquet"
    found = one.stat()
    os.utime(one, ns=(found.st_atime_ns, found.st_mtime_ns + 1))
    refused(folder, monkeypatch)
    os.utime(one, ns=(found.st_atime_ns, found.st_mtime_ns))
    goes_on(folder)
    shutil.copy2(one, folder / "t" / "2.parquet")
    refused(folder, monkeypatch)
    (folder / "t" / "2.parquet").rename(folder / "other")
    one.unlink()
    one.symlink_to(folder / "other")  # stores of files give all the same time
    refused(folder, monkeypatch)


def test_where_nothing_counts_on_coins_no_file_is_asked_for(
    begun: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_session, "stamps_of", dying(AssertionError))
    folder = begun("csv", adjacency="replace_one")
    turned(folder)
    goes_on(folder)


def test_a_mark_is_for_its_own_coins(
    begun: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a mark of a beginning that was dropped would let its files in under later coins."""
    folder = begun("csv")
    with monkeypatch.context() as patch:
        patch.setattr(open_session, "coins_of", lambda entries: "0" * 32)
        refused(folder, monkeypatch)
    goes_on(folder)


def test_without_the_mark_a_unit_has_two_coins(
    begun: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault that it is for: the same coins, of other rows."""
    held, true = list[Any](), source._coins

    def coins(*given: Any) -> Any:
        held.append(true(*given))
        return held[-1]

    monkeypatch.setattr(source, "_coins", coins)
    monkeypatch.setattr(open_session, "_mark", lambda job, coins: "")
    folder = begun("csv")
    turned(folder)
    goes_on(folder)
    first, second = held
    assert (first == second).all() and (first != second[::-1]).any()


def test_a_file_that_is_written_while_it_is_read_begins_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, predict_table())
    true = source.read_private

    def slow(*args: Any, **named: Any) -> Any:
        table = true(*args, **named)
        turned(tmp_path)
        return table

    monkeypatch.setattr(open_session, "read_private", slow)
    with pytest.raises(DataError, match="was written while it was read") as caught:
        release(spec_of(tmp_path, "csv"), out=tmp_path / "out")
    assert entries(tmp_path) == [] and "nothing was spent" in (budget_note(caught.value) or "")
    assert not (tmp_path / "out" / ".run").exists()


def test_what_an_engine_reads_again_and_again_stays_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A count of files that were written anew is used nowhere; with the files back the run ends."""
    written(tmp_path, predict_table())
    true, files = NoisyMarginals.run, tmp_path / "t"
    shutil.copytree(files, tmp_path / "was")

    def run(self: Any, table: Any, streams: Any) -> Any:
        turned(tmp_path)
        return true(self, table, streams)

    path = spec_of(tmp_path, "arrow")
    with monkeypatch.context() as patch:
        patch.setattr(NoisyMarginals, "run", run)
        with pytest.raises(DataError, match="anew while the run") as caught:
            release(path, out=tmp_path / "out")
    assert "stays spent" in (budget_note(caught.value) or "")
    assert not any(e.kind == "kept" for e in entries(tmp_path))
    shutil.rmtree(files)
    (tmp_path / "was").rename(files)
    done = resume(tmp_path / "out")
    assert done.bundle is not None and verify_bundle(done.bundle).ok


def test_of_linked_tables_persons_have_the_coins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked.write_tables(tmp_path)
    held = {"enabled": True, "holdout": 0.3, "targets": ["stays[+1].stage"]}
    path = linked.write_spec(tmp_path, {"evaluation": held})
    monkeypatch.setattr("synthdp.release.linked.fit", dying())
    spec = linked.spec_at(path)
    with pytest.raises(KeyboardInterrupt):
        linked.run(path)
    os.utime(tmp_path / "stays.csv")
    with pytest.raises(KeyboardInterrupt):
        resume_linked(spec, tmp_path / "out")
    before = entries(tmp_path)
    people = pd.read_csv(tmp_path / "patients.csv", dtype=str, keep_default_na=False)
    people[::-1].to_csv(tmp_path / "patients.csv", index=False)
    with pytest.raises(DataError, match=r"'patients\.csv' is not as it was"):
        resume_linked(spec, tmp_path / "out")
    assert entries(tmp_path) == before
