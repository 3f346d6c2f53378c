"""A relative ledger or store is beside the spec, whatever folder a command runs in: else a cap
would hold in one folder only.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from synthdp.errors import BudgetError, OutputError
from synthdp.ledger import Ledger
from synthdp.progress import shown_on
from synthdp.release import resume, run_graph
from synthdp.spec import from_folder, home, load_spec, sqlite_file
from synthdp.tracking import tracker
from synthdp.tracking.server import store_of
from tests.release.conftest import InterruptedAt, interrupt

pytestmark = pytest.mark.check

RELATIVE = (
    "sqlite:///led.db",
    "sqlite:///./led.db?timeout=5",
    "sqlite+pysqlite:///led.db",
    "sqlite://@/led.db",
    "sqlite:///file:led.db?uri=true",
    "sqlite:///file:led.db?mode=rwc&uri=1",
)


def ledgers(folder: Path) -> list[str]:
    """Every ledger under `folder`, by its place in it."""
    return sorted(
        str(p.relative_to(folder))
        for p in folder.rglob("*")
        if p.is_file() and p.read_bytes()[:6] == b"SQLite"
    )


def spend(ledger: Path) -> None:
    """Most of the cap, for a run before."""
    Ledger(f"sqlite:///{ledger}").reserve(
        "tiny", "first", epsilon=2.0, delta=1e-5, cap=(2.5, 1e-4), body={}
    )


def looked(synthdp: Any) -> dict[str, str]:
    """What `doctor` finds, by what it looks at."""
    told = json.loads(synthdp("doctor", "../spec.yaml", "--json").out)
    return {f["what"]: f["found"] for f in told["findings"]}


@pytest.fixture
def sub(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder below the spec's, in which the commands run."""
    folder: Path = tiny.folder / "sub"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


class TestLedger:
    @pytest.mark.parametrize("address", RELATIVE)
    def test_the_cap_holds_in_every_folder(
        self, tiny: Any, sub: Path, synthdp: Any, address: str
    ) -> None:
        spend(tiny.folder / "led.db")
        tiny.write(privacy={"ledger": address})
        for where in (tiny.folder, sub, Path("/")):
            os.chdir(where)
            for command in ("plan", "release"):
                done = synthdp(command, os.path.relpath(tiny.spec))
                assert done.code == 3, (where, command)
                assert "needs 1, 0.5 left on dataset tiny" in done.err
        assert ledgers(tiny.folder) == ["led.db"]

    def test_a_link_to_the_spec_has_no_budget_of_its_own(
        self, tiny: Any, sub: Path, synthdp: Any
    ) -> None:
        tiny.write(privacy={"ledger": "sqlite:///led.db"})
        spend(tiny.folder / "led.db")
        (sub / "link.yaml").symlink_to(tiny.spec)
        assert synthdp("plan", "link.yaml").code == 3 and ledgers(tiny.folder) == ["led.db"]

    @pytest.mark.parametrize("address", ["sqlite:///led.db", None])
    def test_a_run_is_resumed_on_its_ledger(
        self, tiny: Any, sub: Path, monkeypatch: pytest.MonkeyPatch, address: str | None
    ) -> None:
        tiny.write(privacy={"ledger": address})
        monkeypatch.chdir(tiny.folder)
        interrupt(tiny, "sample")
        book = Ledger(f"sqlite:///{tiny.folder / ('led.db' if address else '.synthdp/ledger.db')}")
        before = [e.kind for e in book.entries()]
        monkeypatch.chdir(sub)
        assert resume(tiny.out).bundle is not None
        assert before.count("reserve") == [e.kind for e in book.entries()].count("reserve") == 1
        assert [e.kind for e in book.entries()][-1] == "settle" and len(ledgers(tiny.folder)) == 1

    def test_a_run_whose_ledger_is_gone_does_not_pay_into_a_new_one(
        self, tiny: Any, sub: Path
    ) -> None:
        tiny.write(privacy={"ledger": "sqlite:///led.db"})
        interrupt(tiny, "sample")
        (tiny.folder / "led.db").unlink()
        with pytest.raises(
            BudgetError, match=r"led\.db, which held this run's reservation, is gone"
        ):
            resume(tiny.out)
        assert ledgers(tiny.folder) == []

    def test_a_ledger_in_the_working_folder_is_not_passed_over_in_silence(
        self, tiny: Any, sub: Path, synthdp: Any
    ) -> None:
        """Relative addresses once led there."""
        tiny.write(privacy={"ledger": "sqlite:///led.db"})
        Ledger(f"sqlite:///{sub / 'led.db'}")
        for command in ("plan", "release"):
            done = synthdp(command, "../spec.yaml")
            assert done.code == 3 and str(sub / "led.db") in done.err and "move it" in done.err
        assert ledgers(tiny.folder) == ["sub/led.db"]
        (sub / "led.db").rename(tiny.folder / "led.db")
        assert synthdp("plan", "../spec.yaml").code == 0

    def test_what_looks_at_a_ledger_finds_the_same(
        self, tiny: Any, sub: Path, synthdp: Any
    ) -> None:
        tiny.write(privacy={"ledger": "sqlite:///led.db"})
        assert looked(synthdp)["ledger"].startswith(f"{tiny.folder / 'led.db'}: none yet")
        spend(tiny.folder / "led.db")
        assert looked(synthdp)["ledger"] == "whole; datasets: tiny"
        # an option is the working folder's, as every path of a command line
        for named in ("../led.db", "sqlite:///../led.db"):
            told = json.loads(synthdp("budget", "--ledger", named, "--json").out)
            assert told["datasets"][0]["epsilon"] == 2.0
        done = synthdp("budget", "--ledger", "sqlite:///led.db")
        assert done.code == 3
        assert f"no ledger at {sub / 'led.db'}" in done.err
        assert ledgers(tiny.folder) == ["led.db"]

    def test_a_graph_run_goes_on_where_it_paid(
        self, tiny: Any, sub: Path, synthdp: Any, modes: Any
    ) -> None:
        change = modes["learn"] | {
            "privacy": modes["learn"]["privacy"] | {"ledger": "sqlite:///led.db"}
        }
        tiny.write(**change)
        with pytest.raises(KeyboardInterrupt), shown_on(InterruptedAt("measure the graph")):
            run_graph(tiny.spec, mode="learn", out=tiny.out)
        for name in ("spec.yaml", "table.csv"):
            (sub / name).write_bytes((tiny.folder / name).read_bytes())
        done = synthdp("graph", "learn", "spec.yaml", "--out", "../out")
        book = Ledger(f"sqlite:///{tiny.folder / 'led.db'}")
        assert done.code == 0
        assert ledgers(tiny.folder) == ["led.db"]
        assert [e.kind for e in book.entries()].count("reserve") == 1

    @pytest.mark.parametrize("address", [*RELATIVE, "sqlite:///file:led.db"])
    def test_nothing_relative_is_ever_opened(self, tiny: Any, sub: Path, address: str) -> None:
        """The second wall: where an address was not led to a folder, no ledger is made. (Without
        uri=true, file: is a plain name.)
        """
        with pytest.raises(BudgetError, match="relative"):
            Ledger(address)
        assert ledgers(tiny.folder) == []


class TestAddress:
    @pytest.mark.parametrize(
        "address", [*RELATIVE, "sqlite:///file:led.db", "sqlite:///a/../led.db"]
    )
    @pytest.mark.parametrize("name", ["plain", "a b?c%41#d"])
    def test_it_leads_into_the_folder(self, tmp_path: Path, address: str, name: str) -> None:
        import sqlalchemy

        folder = tmp_path / name
        (folder / "a").mkdir(parents=True)
        led = from_folder(address, folder)
        engine = sqlalchemy.create_engine(led)
        with engine.connect() as connection:
            connection.exec_driver_sql("CREATE TABLE t (x)")
        engine.dispose()
        plain = address == "sqlite:///file:led.db"
        assert ledgers(tmp_path) == [f"{name}/{'file:led.db' if plain else 'led.db'}"]
        assert sqlite_file(led) is not None and sqlite_file(led).samefile(
            folder / ("file:led.db" if plain else "led.db")
        )  # type: ignore[union-attr]
        assert from_folder(led, tmp_path / "other") == led

    @pytest.mark.parametrize(
        "address",
        [
            "sqlite:////data/led.db",
            "sqlite:///file:/data/led.db?uri=true",
            "sqlite://",
            "sqlite:///:memory:",
            "postgresql://u:p%40@h/d",
            "http://x:1",
            "no",
        ],
    )
    def test_others_stay_as_they_are(self, tmp_path: Path, address: str) -> None:
        assert from_folder(address, tmp_path) == address

    def test_the_folder_is_that_of_the_file_itself(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "real/spec.yaml").write_text("")
        (tmp_path / "link.yaml").symlink_to("real/spec.yaml")
        monkeypatch.chdir(tmp_path)
        assert (
            home(Path("link.yaml")) == home(Path("real/spec.yaml")) == (tmp_path / "real").resolve()
        )


class TestStore:
    def test_pages_and_releases_have_one_store(self, tiny: Any, sub: Path, synthdp: Any) -> None:
        spec = load_spec(tiny.write(tracking={"enabled": True, "uri": "sqlite:///my.db"}).spec)
        expected = f"sqlite:///{tiny.folder / 'my.db'}"
        assert tracker(spec, folder=tiny.folder, run="x")._uri == expected  # type: ignore[attr-defined]
        with pytest.raises(OutputError, match=f"no MLflow store at {tiny.folder / 'my.db'}"):
            store_of(spec, tiny.folder)
        assert looked(synthdp)["mlflow"].startswith(f"{tiny.folder / 'my.db'}: none yet")
        (tiny.folder / "my.db").write_text("")
        assert store_of(spec, tiny.folder) == (expected, "synthdp")

    def test_the_command_takes_the_spec_s_store_and_the_working_folder_s_option(
        self, tiny: Any, sub: Path, synthdp: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        opened: list[str] = []

        def serving(uri: str, **_: object) -> None:
            opened.append(uri)
            raise OutputError("enough")

        monkeypatch.setattr("synthdp.tracking.server.serving", serving)
        tiny.write(tracking={"enabled": True, "uri": "sqlite:///my.db"})
        (tiny.folder / "my.db").write_text("")
        synthdp("ui", "../spec.yaml")
        synthdp("ui", "--store", "sqlite:///../my.db")
        assert opened == [f"sqlite:///{tiny.folder / 'my.db'}", f"sqlite:///{sub / '../my.db'}"]
        for arguments in (
            ("--store", "./mlruns"),
            (tiny.write(tracking={"enabled": True, "uri": "file:mlruns"}).spec,),
        ):
            done = synthdp("ui", *arguments)
            assert done.code == 2 and "no longer supports" in done.err
        assert len(opened) == 2
