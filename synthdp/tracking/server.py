"""MLflow's pages for one account of this machine: a server on loopback over a store.

Started as a program of its own, so that its threads and its death are not ours.

MLflow itself asks nobody who they are, and its basic-auth app leaves some paths open to all. So its
app sees no request that lacks the password, whatever the path and method.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import ProxyHandler, Request, build_opener

from synthdp.errors import OutputError
from synthdp.loopback import App, Guard, bound
from synthdp.spec.addresses import check_uri, reason, shown_address, sqlite_file, store_address
from synthdp.spec.model import ReleaseSpec, Tracking
from synthdp.tracking.store import check_database, run_path, view_path

USER = "steward"


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


@dataclass(frozen=True)
class Pages:
    """Where a store is looked at: the address of the experiment's saved view.

    `password` is what our own server asks of its user, made for this one time; None where another
    server has the store.
    """

    address: str
    password: str | None = field(default=None, repr=False)

    @property
    def base(self) -> str:
        """The server's own address."""
        return self.address.partition("/#/")[0]

    def ask(self, path: str, body: object = None, *, seconds: float = 10) -> Any:
        """What the server answers at `path`, from JSON; by POST where there is a body."""
        headers = {"Content-Type": "application/json"}
        if self.password is not None:
            headers["Authorization"] = credentials(self.password)
        data = None if body is None else json.dumps(body).encode()
        # The environment's proxies are not told our own server's password.
        opener = build_opener(ProxyHandler(None if self.password is None else {}))
        with opener.open(Request(self.base + path, data, headers), timeout=seconds) as answer:
            return json.load(answer)


@contextmanager
def serving(uri: str, *, port: int | None, experiment: str) -> Iterator[Pages]:
    """The experiment's saved view, while a server runs.

    No server is started where `uri` is one already.

    Raises:
        OutputError: the port is taken, or the server does not start.
    """
    if uri.startswith(("http://", "https://")):
        yield _view(Pages(uri.rstrip("/")), experiment)
        return
    file = sqlite_file(uri)
    artefacts = str((Path.cwd() if file is None else file.absolute().parent) / "mlartifacts")
    password = secrets.token_urlsafe(24)
    given = {
        "store": uri,
        "artefacts": os.environ.get("MLFLOW_ARTIFACTS_DESTINATION", artefacts),
        "password": password,
    }
    # We listen from here on, and until the end whatever becomes of the server: while nobody listens
    # at a port, another account can, and be told the password. What is asked before the server is
    # up waits for it. Without -P the folder it starts in could hold modules.
    with bound(port) as at, tempfile.TemporaryDirectory() as empty:
        command = [sys.executable, "-P", "-m", __name__, str(at.fileno())]
        environment = os.environ | {
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "DO_NOT_TRACK": "true",
            "MLFLOW_ENABLE_AI_GATEWAY": "false",  # its menu is for language models
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        }
        server = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # it may hold a password
            env=environment,
            pass_fds=[at.fileno()],
            start_new_session=True,
            cwd=empty,
            umask=0o077,
        )
        try:
            assert server.stdin is not None
            with suppress(BrokenPipeError), server.stdin as told:
                told.write(json.dumps(given).encode())
            pages = Pages(f"http://127.0.0.1:{at.getsockname()[1]}", password)
            _wait(server, pages)
            yield _view(pages, experiment)
        finally:
            _stop(server)


def latest_runs(pages: Pages, experiment: str) -> list[tuple[str, str]]:
    """Name and page of the latest releases at a server, where it answers; the newest first."""
    try:
        number = _experiment(pages, experiment)
        asked = {
            "experiment_ids": [number],
            "filter": "tags.`gate` != ''",  # attacks have none
            "order_by": ["attributes.start_time DESC"],
            "max_results": 5,
        }
        found: list[Any] = pages.ask("/api/2.0/mlflow/runs/search", asked).get("runs", [])
        return [
            (str(run["info"]["run_name"]), pages.base + run_path(number, run["info"]["run_id"]))
            for run in found
        ]
    except (OSError, KeyError, ValueError):
        return []


def _wait(server: subprocess.Popen[bytes], pages: Pages, seconds: int = 90) -> None:
    """Until the server answers.

    Raises:
        OutputError: it ended, or does not answer in time.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end and server.poll() is None:
        with suppress(OSError):
            pages.ask("/api/2.0/mlflow/experiments/search?max_results=1", seconds=2)
            return
        time.sleep(0.2)
    how = f"did not answer within {seconds} seconds"
    if server.poll() is not None:
        how = f"ended with code {server.poll()}"
    raise OutputError(
        f"MLflow's server {how}",
        hint="run `mlflow server` with the store by hand to see why; `synthdp doctor` looks at the"
        " store",
    )


def _view(pages: Pages, experiment: str) -> Pages:
    """The experiment's saved view; the list of experiments where it is not there yet."""
    path = "/#/experiments"
    try:
        path = view_path(_experiment(pages, experiment))
    except HTTPError as error:  # there is no such experiment
        error.close()
    except (KeyError, ValueError):
        pass
    except OSError as error:
        raise OutputError(
            f"{shown_address(pages.base)} does not answer: {reason(error)}",
            hint="check tracking.uri and that its server runs",
        ) from None
    return replace(pages, address=pages.base + path)


def _experiment(pages: Pages, name: str) -> str:
    """The number of an experiment; raises OSError, KeyError or ValueError."""
    query = urlencode({"experiment_name": name})
    found = pages.ask(f"/api/2.0/mlflow/experiments/get-by-name?{query}")
    return str(found["experiment"]["experiment_id"])


def _stop(server: subprocess.Popen[bytes]) -> None:
    """End the server and all that it started: a child may outlive its parent's polite end."""
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        server.wait(5)
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()


# --- the program that is started: MLflow's app behind the password ---


def credentials(password: str) -> str:
    """What a browser sends for `USER` with `password`, as the value of `Authorization`."""
    return "Basic " + base64.b64encode(f"{USER}:{password}".encode()).decode()


def guarded(app: App, password: str) -> Guard:
    """`app` behind `password`, by HTTP Basic: browsers keep such a password for one port. They send
    a cookie to every port of a host, whoever listens there.
    """
    asks = (b"www-authenticate", b'Basic realm="synthdp ui", charset="UTF-8"')
    return Guard(app, (b"authorization", credentials(password).encode()), (asks,))


def main() -> None:
    """Serve a store at the socket whose number is the argument.

    Store, place of artefacts and password come by stdin: arguments are open to every account.
    """
    given = json.load(sys.stdin)
    import uvicorn  # before MLflow's app, which then knows that it is one of a server
    from mlflow.server import constants

    os.environ |= {
        constants.BACKEND_STORE_URI_ENV_VAR: given["store"],
        constants.REGISTRY_STORE_URI_ENV_VAR: given["store"],
        constants.ARTIFACT_ROOT_ENV_VAR: "mlflow-artifacts:/",
        constants.ARTIFACTS_DESTINATION_ENV_VAR: given["artefacts"],
        constants.SERVE_ARTIFACTS_ENV_VAR: "true",  # or the pages could not show the report
    }
    from mlflow.server.fastapi_app import app
    from mlflow.server.handlers import initialize_backend_stores

    initialize_backend_stores(given["store"], given["store"], "mlflow-artifacts:/")
    config = uvicorn.Config(
        guarded(app, given["password"]),
        access_log=False,
        lifespan="off",
        log_level="critical",
        proxy_headers=False,
        ws="none",
    )
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=int(sys.argv[1]))])


if __name__ == "__main__":
    main()
