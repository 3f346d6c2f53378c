"""No command shows a password, a token or a query of an address, whatever its form; and what an
unreachable server keeps a steward waiting.
"""

import logging
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from synthdp.errors import SynthdpError
from synthdp.ledger import Ledger
from synthdp.spec import UNSHOWN, reason, shown_address, shown_path

pytestmark = pytest.mark.check

SECRET = "s3cr3t"
PORT = "127.0.0.1:9"  # the discard service: nothing listens there
FORMS = (
    f"http://steward:{SECRET}@{PORT}",
    f"http://{SECRET}@{PORT}/",
    f"http://{PORT}/?token={SECRET}",
    f"http://{PORT}/#{SECRET}",
    f"http://{PORT}/{SECRET}/mlflow",
    f"http://{PORT}/;{SECRET}",
    f"http://steward:a%2F{SECRET}%40@{PORT}/x",
    f"http://steward:a/{SECRET}@{PORT}",
    f"http://steward:a?{SECRET}@{PORT}",
    f"http://steward:a#{SECRET}@{PORT}",
    f"http://steward:a@{SECRET}@{PORT}",
    f"http://steward:{SECRET}/x",
    f"http:/steward:{SECRET}@{PORT}",
    f"HTTP://steward:{SECRET}@{PORT}",
    f" http://steward:{SECRET}@{PORT}",
    f"steward:{SECRET}@{PORT}/db",
    f"//steward:{SECRET}@{PORT}/db",
    f"file://steward:{SECRET}@{PORT}/db",
    f"postgresql://steward:{SECRET}@{PORT}/db",
    f"postgresql://{PORT}/db?user=steward&password={SECRET}",
    f"postgresql://steward:a@{SECRET}@{PORT}/db",
    f"postgresql://steward@127.0.0.1:{SECRET}/db",
    f"postgresql+psycopg://steward:{SECRET}@{PORT}/db?connect_timeout=3",
    f"mysql+pymysql://steward:{SECRET}@{PORT}/db",
    f"nosuch://steward:{SECRET}@{PORT}/db",
)


@pytest.mark.parametrize("address", FORMS)
def test_nothing_secret_is_shown(address: str) -> None:
    assert SECRET not in shown_address(address) and "steward:" not in shown_address(address)


def test_what_is_beyond_doubt_is_shown() -> None:
    assert shown_address(f"http://steward:{SECRET}@{PORT}/path?x=1") == f"http://{PORT}"
    assert shown_address("https://mlflow.example") == "https://mlflow.example"
    assert (
        shown_address(f"postgresql+psycopg://steward:{SECRET}@[::1]:5432/db")
        == "postgresql+psycopg://[::1]:5432"
    )
    assert shown_address("sqlite:////data/led.db?timeout=5") == "/data/led.db"
    assert shown_address("sqlite://") == "a SQLite database in memory"
    assert (
        shown_address(f"steward:{SECRET}@host") == shown_path(f"steward:{SECRET}@host") == UNSHOWN
    )
    assert shown_path("data/a b.csv") == "data/a b.csv"


def test_a_reason_is_told_in_words_of_ours() -> None:
    quoted = RuntimeError(f"API request to http://x/?token={SECRET} failed: Connection refused")
    assert reason(quoted) == "the connection was refused"
    assert reason(RuntimeError(SECRET)) == "RuntimeError"


def waited() -> float:
    """Seconds of the clock, less ten for each of the processor: on a busy machine work takes that
    long, and is no waiting.
    """
    return time.monotonic() - 10 * time.process_time()


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.DEBUG):
        yield caplog


@pytest.mark.parametrize(
    "address",
    [
        pytest.param(f, marks=[pytest.mark.slow] if place % 5 else [])
        for place, f in enumerate(FORMS)
    ],
)
def test_no_command_shows_it(
    tiny: Any, synthdp: Any, address: str, logged: pytest.LogCaptureFixture
) -> None:
    """As tracking server, as ledger and as the file of the rows: commands that open it, and those
    that only read the spec.
    """
    began, said = waited(), []
    tiny.write(tracking={"enabled": True, "uri": address})
    done = synthdp("release", tiny.spec, "--out", tiny.out)
    assert done.code == 2 and not tiny.out.joinpath("bundle").exists() and tiny.kinds() == []
    assert done.err.count("synthdp: ") == 1
    assert "Retrying" not in done.err
    assert "Traceback" not in done.err
    said += [
        done,
        *(synthdp(command, tiny.spec) for command in ("validate", "plan", "doctor", "ui")),
    ]
    tiny.write(privacy={"ledger": address})
    said += [synthdp(command, tiny.spec) for command in ("release", "plan", "doctor")]
    said += [
        synthdp("budget", "--ledger", address),
        synthdp("ui", "--store", address),
        synthdp("track", tiny.folder, "--store", address),
    ]
    tiny.write(dataset={"source": {"kind": "csv", "path": address}})
    said += [synthdp("release", tiny.spec, "--out", tiny.out)]
    said += [
        synthdp("validate", tiny.write(dataset={"source": {"kind": address, "path": "x"}}).spec)
    ]
    for done in said:
        assert SECRET not in done.out + done.err, done.err
    assert SECRET not in "".join(
        r.getMessage() for r in logged.records if r.levelno >= logging.WARNING
    )
    assert waited() - began < 60  # thirteen commands; one took longer than this


def test_a_server_that_never_answers_is_given_up_in_seconds(
    tiny: Any, synthdp: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        tiny.write(
            tracking={
                "enabled": True,
                "uri": f"http://{SECRET}@127.0.0.1:{silent.getsockname()[1]}",
            }
        )
        began = waited()
        done = synthdp("release", tiny.spec, "--out", tiny.out)
    assert done.code == 2
    assert "there was no answer in time" in done.err
    assert "nothing was spent" in done.err
    assert SECRET not in done.err
    assert waited() - began < 30 and tiny.kinds() == []


def test_a_server_that_goes_away_leaves_a_bundle_and_a_command(
    tiny: Any, synthdp: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paid for, interrupted, resumed while the store is away: the bundle is written, and logged
    when the store is back.
    """
    from mlflow.tracking import MlflowClient

    tiny.write(tracking={"enabled": True})
    with monkeypatch.context() as patch:
        patch.setattr("synthdp.release.tracked.tracker", _unasked)
        patch.setattr("synthdp.release.job.sample", _raiser(KeyboardInterrupt()))
        assert synthdp("release", tiny.spec, "--out", tiny.out).code == 130
    with monkeypatch.context() as patch:
        patch.setattr("synthdp.tracking.mlflow_run.opened", _away)
        done = synthdp("resume", tiny.out)
    assert done.code == 0 and tiny.bundle.exists() and tiny.kinds().count("reserve") == 1
    assert f"{tiny.folder / 'mlflow.db'} does not answer: the connection was refused" in done.out
    assert done.out.count("MLflow: ") == 1
    assert f"`synthdp track {tiny.out}` logs it later" in done.out
    assert SECRET not in done.out + done.err
    for _ in range(2):  # the second time nothing is there twice
        assert synthdp("track", tiny.out).code == 0
    client = MlflowClient(tracking_uri=f"sqlite:///{tiny.folder / 'mlflow.db'}")
    (run,) = client.search_runs([client.get_experiment_by_name("synthdp").experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.tags["gate"] == "passed"
    assert run.data.params["epsilon"] == "1.0"
    assert "tv1" in run.data.metrics
    assert run.data.tags["mlflow.note.content"].startswith("## Released")
    assert {f.path for f in client.list_artifacts(run.info.run_id)} == {"bundle", "internal.html"}
    told = (tiny.out / "internal/tracking.json").read_text()
    assert "sqlite" not in told and "csv" not in told


def test_there_is_nothing_to_log(tiny: Any, synthdp: Any) -> None:
    done = synthdp("track", tiny.folder)
    assert done.code == 2 and "nothing to log" in done.err
    (tiny.folder / "internal").mkdir()
    (tiny.folder / "internal/tracking.json").write_text('{"run": 3}')
    done = synthdp("track", tiny.folder)
    assert done.code == 2 and "is damaged" in done.err


def test_a_ledger_whose_folder_cannot_be_written_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The root user writes everywhere, so that what the disk says is said for it."""
    import sqlite3.dbapi2

    def fails(*_: Any, **__: Any) -> None:
        raise sqlite3.OperationalError("unable to open database file")

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3.dbapi2, "connect", fails)
        with pytest.raises(SynthdpError, match=r"led\.db: unable to open database file") as caught:
            Ledger(f"sqlite:///{tmp_path / 'led.db'}")
    assert "SQLAlchemy" not in str(caught.value) and "may be written" in str(caught.value)
    for kind in (PermissionError(13, "Permission denied"), OSError(28, "No space left on device")):
        with monkeypatch.context() as patch:
            patch.setattr(Path, "mkdir", _raiser(kind))
            with pytest.raises(SynthdpError, match=str(kind.strerror)):
                Ledger(f"sqlite:///{tmp_path / 'new' / 'led.db'}")


def _away(*_: object) -> None:
    raise ConnectionError(f"http://x/?token={SECRET}: Connection refused")


def _unasked(*_: object, **__: object) -> Any:
    from synthdp.tracking import Tracker

    return Tracker()


def _raiser(error: BaseException) -> Callable[..., None]:
    def fails(*_: object, **__: object) -> None:
        raise error

    return fails
