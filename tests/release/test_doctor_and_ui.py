"""`synthdp doctor` finds what would stop a release, and creates nothing; `synthdp ui` shows the
store on loopback, at the reviewers' view.
"""

import json
import signal
import socket
import subprocess
import sys
import time
from email.message import Message
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from synthdp.cli import review
from synthdp.errors import OutputError
from synthdp.spec import load_spec
from synthdp.tracking import AttackOutcome, PublicationVerdict
from synthdp.tracking.server import USER, Pages, credentials, serving, store_of

pytestmark = pytest.mark.check


def examined(synthdp: Any, *arguments: object) -> tuple[int, dict[str, dict[str, Any]]]:
    done = synthdp("doctor", *arguments, "--json")
    return done.code, {f["what"]: f for f in json.loads(done.out)["findings"]}


class TestDoctor:
    def test_a_sound_machine(self, tiny: Any, synthdp: Any) -> None:
        before = sorted(p.name for p in tiny.write().folder.iterdir())
        code, found = examined(synthdp, tiny.spec)
        assert code == 0 and {f["state"] for f in found.values()} <= {"ok", "note"}
        assert set(found) >= {
            "synthdp",
            "libraries",
            "cores",
            "memory",
            "disk",
            "telemetry",
            "ledger",
            "mlflow",
            "gpu",
            "signing",
        }
        assert "mlflow 3.17" in found["libraries"]["found"]
        assert "none yet" in found["ledger"]["found"]
        assert sorted(p.name for p in tiny.folder.iterdir()) == before
        text = synthdp("doctor", tiny.spec)
        assert text.code == 0 and "libraries" in text.out and text.err == ""

    def test_a_ledger_that_was_tampered_with(self, released: Any, synthdp: Any) -> None:
        import sqlite3

        code, found = examined(synthdp, released.spec)
        assert code == 0 and found["ledger"]["found"] == "whole; datasets: tiny"
        with sqlite3.connect(released.folder / ".synthdp/ledger.db") as database:
            database.execute(
                "UPDATE synthdp_ledger SET body = replace(body, '1.0', '0.5') WHERE kind ="
                " 'reserve'"
            )
        code, found = examined(synthdp, released.spec)
        assert code == 2 and found["ledger"]["state"] == "wrong" and found["ledger"]["hint"]

    def test_stores(self, tiny: Any, synthdp: Any) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            tiny.write(
                tracking={
                    "enabled": True,
                    "uri": f"http://steward:secret@127.0.0.1:{probe.getsockname()[1]}",
                }
            )
        code, found = examined(synthdp, tiny.spec)
        assert code == 2
        assert "does not answer" in found["mlflow"]["found"]
        assert "secret" not in json.dumps(found)
        tiny.write(tracking={"enabled": True})
        (tiny.folder / "mlflow.db").write_text("no database")
        code, found = examined(synthdp, tiny.spec)
        assert code == 2 and "is no MLflow store" in found["mlflow"]["found"]

    def test_what_else_can_be_wrong(
        self, tiny: Any, synthdp: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tiny.write(compute={"device": "cuda"})
        monkeypatch.setattr("torch.cuda.is_available", lambda: False)
        monkeypatch.setattr(
            review.metadata,
            "requires",
            lambda name: ["torch>=99", "nobody-has-this>=1", "pytest>=99; extra == 'dev'"],
        )
        monkeypatch.setattr(review, "MIN_MEMORY", 1e9)
        monkeypatch.setenv("SYNTHDP_SIGNING_KEY", str(tiny.folder / "no-key.pem"))
        monkeypatch.delenv("MLFLOW_DISABLE_TELEMETRY")
        code, found = examined(synthdp, tiny.spec)
        assert code == 2 and {what for what, f in found.items() if f["state"] == "wrong"} == {
            "libraries",
            "gpu",
            "signing",
        }
        assert "nobody-has-this is missing" in found["libraries"]["found"]
        assert ">=99 is wanted" in found["libraries"]["found"]
        assert found["memory"]["state"] == found["telemetry"]["state"] == "note"
        assert "pytest" not in found["libraries"]["found"]
        assert "libraries, gpu, signing" in synthdp("doctor", tiny.spec).err


class TestUi:
    def test_nothing_to_show(self, tiny: Any, synthdp: Any) -> None:
        assert "tracking is off" in synthdp("ui", tiny.write().spec).err
        done = synthdp("ui", tiny.write(tracking={"enabled": True}).spec)
        assert done.code == 2 and "no MLflow store" in done.err and "hint" in done.err
        assert store_of(
            load_spec(
                tiny.write(tracking={"enabled": True, "uri": "http://x:1", "experiment": "e"}).spec
            ),
            tiny.folder,
        ) == (
            "http://x:1",
            "e",
        )

    def test_a_port_that_is_taken(self, tmp_path: Path) -> None:
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            holder.listen()
            with (
                pytest.raises(OutputError, match="is taken"),
                serving("sqlite:///x.db", port=holder.getsockname()[1], experiment="synthdp"),
            ):
                pass

    def test_a_server_that_does_not_start(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "executable", "/bin/false")
        with (
            pytest.raises(OutputError, match="ended with code 1"),
            serving("sqlite:///x.db", port=None, experiment="synthdp"),
        ):
            pass

    def test_a_password_is_no_part_of_the_command(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Everyone on a machine can list the commands that run on it. Neither is that of the store,
        nor the one which is made here.
        """
        monkeypatch.setattr("synthdp.tracking.server.secrets.token_urlsafe", lambda _: "opensesame")
        uri, started = "postgresql://steward:hunter2@127.0.0.1:1/mlflow", []

        def popen(command: list[str], *, env: dict[str, str], **_: object) -> None:
            started.append((command, env))
            raise InterruptedError

        monkeypatch.setattr("synthdp.tracking.server.subprocess.Popen", popen)
        with pytest.raises(InterruptedError), serving(uri, port=None, experiment="synthdp"):
            pass
        ((command, environment),) = started
        for secret in ("hunter2", "opensesame"):
            assert secret not in str(command) and secret not in str(environment)

    def test_at_a_server_of_others_none_is_started(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def answer(_: object, request: Request, *, timeout: float) -> BytesIO:
            if "nobody" in request.full_url:
                raise HTTPError(request.full_url, 404, "no such experiment", Message(), None)
            assert not request.has_header("Authorization")
            return BytesIO(b'{"experiment": {"experiment_id": "7"}}')

        monkeypatch.setattr("urllib.request.OpenerDirector.open", answer)
        monkeypatch.setattr("synthdp.tracking.server.subprocess.Popen", None)
        host = "http://127.0.0.1:1"
        with serving(host, port=None, experiment="synthdp") as pages:
            assert pages.address.startswith(f"{host}/#/experiments/7/runs?")
            assert pages.base == host and pages.password is None
        with serving(f"{host}/", port=None, experiment="nobody's") as pages:
            assert pages.address == f"{host}/#/experiments"

    @pytest.mark.slow
    def test_a_release_is_reviewed_on_the_pages_and_through_a_server(
        self, tiny: Any, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The command over a SQLite store, then the same release tracked through the server that it
        started.
        """
        from mlflow.tracking import MlflowClient

        from synthdp.tracking import tracker

        spec = load_spec(tiny.write(tracking={"enabled": True}).spec)
        with tracker(spec, folder=tiny.folder, run="on-sqlite"):
            pass
        with served(tiny.spec) as pages:
            host, _, rest = pages.address.partition("/#/")
            monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", USER)
            monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", str(pages.password))
            assert host.startswith("http://127.0.0.1:")
            assert rest.startswith("experiments/")
            assert rest.endswith("&viewStateShareKey=synthdp")
            experiment = rest.split("/")[1]
            login = {"Authorization": credentials(str(pages.password))}
            with urlopen(Request(host, headers=login)) as page:
                assert b"<html" in page.read().lower()
            release = spec.model_copy(
                update={"tracking": spec.tracking.model_copy(update={"uri": host})}
            )
            with tracker(release, folder=tiny.folder, run="on-a-server") as log:
                log.metrics({"epsilon_planned": 0.99})
                log.attack(
                    AttackOutcome(
                        name="membership", params={"pairs": 4}, metrics={"advantage": 0.03}
                    )
                )
                log.artifact(tiny.spec)
                log.conclude(PublicationVerdict(released=True, gates=("gate tv1_noisy: passed",)))
            assert log.warnings == [] and capfd.readouterr().out == ""  # data alone goes there
            client = MlflowClient(tracking_uri=host)
            runs = {
                r.data.tags.get("synthdp.run", r.data.tags.get("attack", "")): r
                for r in client.search_runs([experiment])
            }
            assert set(runs) == {"on-sqlite", "on-a-server", "membership"}
            parent = runs["on-a-server"]
            assert parent.data.tags["mlflow.note.content"].startswith("## Released")
            assert parent.data.tags["gate"] == "passed"
            assert runs["membership"].data.tags["mlflow.parentRunId"] == parent.info.run_id
            assert [f.path for f in client.list_artifacts(parent.info.run_id)] == ["spec.yaml"]


class served:
    """`synthdp ui` in a process of its own; gone, with all that it started, at the end."""

    def __init__(self, spec: Path) -> None:
        self.spec = spec

    def __enter__(self) -> Pages:
        command = [sys.executable, "-m", "synthdp.cli.main", "ui", str(self.spec), "--json"]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        text = "".join(iter(self.process.stdout.readline, "}\n")) + "}"
        told = json.loads(text)
        assert told["user"] == USER
        self.pages = Pages(told["url"], told["password"])
        return self.pages

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGINT)
        assert self.process.stdout is not None and self.process.wait(30) in (0, 130)
        self.process.stdout.close()
        host, port = self.pages.address.split("/")[2].split(":")
        for _attempt in range(50):
            with socket.socket() as probe:
                if probe.connect_ex((host, int(port))) != 0:
                    return
            time.sleep(0.1)
        raise AssertionError("the server still listens")
