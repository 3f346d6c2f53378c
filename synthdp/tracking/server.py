"""MLflow's pages on this machine alone: a server on loopback over a store.

Started as a program of its own, so that its threads and its death are not ours.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from synthdp.errors import OutputError
from synthdp.spec.addresses import check_uri, reason, shown_address, sqlite_file, store_address
from synthdp.spec.model import ReleaseSpec, Tracking
from synthdp.tracking.note import run_path, view_path
from synthdp.tracking.store import check_database

LOOPBACK = "127.0.0.1"
START_SECONDS, STOP_SECONDS = 90, 5
LATEST = 5  # releases whose pages are named


def store_of(spec: ReleaseSpec | None, folder: Path) -> tuple[str, str]:
    """Tracking URI and experiment of a spec; without one, of the store in `folder`.

    Raises:
        OutputError: there is none to look at.
    """
    settings = spec.tracking if spec is not None else Tracking()
    if not settings.enabled:
        raise OutputError(
            "tracking is off in this spec, so there is nothing to look at",
            hint="set tracking.enabled: true and release again",
        )
    return existing(store_address(settings.uri, folder.absolute())), settings.experiment


def existing(uri: str) -> str:
    """`uri`, where a store may be there.

    MLflow would create a missing SQLite file, and wait for a database that does not answer.

    Raises:
        OutputError: there is none at `uri`, or it is a file store.
    """
    check_uri(uri)
    try:
        check_database(uri)
    except Exception as error:  # whatever a database's driver, or the lack of one, has to say
        raise OutputError(
            f"{shown_address(uri)} does not answer: {reason(error)}",
            hint="check the address and that its server runs",
        ) from None
    path = sqlite_file(uri)
    if path is not None and not path.exists():
        raise OutputError(
            f"no MLflow store at {path}",
            hint=(
                "give the spec of a release, or --store; the first release of a spec makes its"
                " store"
            ),
        )
    return uri


@contextmanager
def serving(uri: str, *, port: int | None, experiment: str) -> Iterator[str]:
    """The address of the experiment's saved view, while a server runs.

    No server is started where `uri` is one already.

    Raises:
        OutputError: the port is taken, or the server does not start.
    """
    if uri.startswith(("http://", "https://")):
        yield uri.rstrip("/") + _view(uri.rstrip("/"), experiment)
        return
    chosen = _free_port(port)
    address = f"http://{LOOPBACK}:{chosen}"
    with tempfile.TemporaryFile() as log:
        # `serve-artifacts` stays on, or the pages could not show the report; artefacts lie beside a
        # SQLite store.
        command = [
            sys.executable,
            "-m",
            "mlflow",
            "server",
            "--host",
            LOOPBACK,
            "--port",
            str(chosen),
            "--workers",
            "1",
        ]
        # The store's address goes by the environment: it may hold a password, and everyone on the
        # machine can list commands.
        environment = os.environ | {
            "MLFLOW_BACKEND_STORE_URI": uri,
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "DO_NOT_TRACK": "true",
            "MLFLOW_ENABLE_AI_GATEWAY": "false",  # its menu is for language models
        }
        server = subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
            cwd=tempfile.gettempdir(),
        )
        try:
            _wait(server, address)
            yield address + _view(address, experiment)
        finally:
            _stop(server)


def latest_runs(address: str, experiment: str) -> list[tuple[str, str]]:
    """Name and page of the latest releases at a server, where it answers; the newest first."""
    try:
        number = _experiment(address, experiment)
        asked = {
            "experiment_ids": [number],
            "filter": "tags.`gate` != ''",  # attacks have none
            "order_by": ["attributes.start_time DESC"],
            "max_results": LATEST,
        }
        request = Request(
            f"{address}/api/2.0/mlflow/runs/search",
            data=json.dumps(asked).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urlopen(request, timeout=10) as answer:
            found: list[Any] = json.load(answer).get("runs", [])
        return [
            (str(run["info"]["run_name"]), address + run_path(number, str(run["info"]["run_id"])))
            for run in found
        ]
    except (OSError, KeyError, ValueError):
        return []


def _free_port(port: int | None) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port or 0))
        except OSError:
            raise OutputError(
                f"port {port} is taken", hint="leave --port out, and a free one is chosen"
            ) from None
        return int(probe.getsockname()[1])


def _wait(server: subprocess.Popen[bytes], address: str) -> None:
    """Until the server answers.

    Raises:
        OutputError: it ended, or does not answer in time. What it printed is not shown: it may hold
            a password.
    """
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and server.poll() is None:
        with suppress(URLError, OSError), urlopen(f"{address}/health", timeout=2) as answer:
            if answer.status == 200:
                return
        time.sleep(0.2)
    ended = server.poll()
    how = (
        f"ended with code {ended}"
        if ended is not None
        else f"did not answer within {START_SECONDS} seconds"
    )
    raise OutputError(
        f"MLflow's server {how}",
        hint=(
            "run `mlflow server` with the store by hand to see why; `synthdp doctor` looks at the"
            " store"
        ),
    )


def _view(address: str, experiment: str) -> str:
    """Path of the experiment's saved view; of the list of experiments where it is not there yet."""
    try:
        return view_path(_experiment(address, experiment))
    except HTTPError as error:  # there is no such experiment
        error.close()
        return "/#/experiments"
    except (KeyError, ValueError):
        return "/#/experiments"
    except (URLError, OSError) as error:
        raise OutputError(
            f"{shown_address(address)} does not answer: {reason(error)}",
            hint="check tracking.uri and that its server runs",
        ) from None


def _experiment(address: str, name: str) -> str:
    """The number of an experiment; raises as `urlopen` does, or KeyError or ValueError."""
    query = urlencode({"experiment_name": name})
    with urlopen(f"{address}/api/2.0/mlflow/experiments/get-by-name?{query}", timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
    return str(found["experiment"]["experiment_id"])


def _stop(server: subprocess.Popen[bytes]) -> None:
    """End the server and all that it started: a child may outlive its parent's polite end."""
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        server.wait(STOP_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()
