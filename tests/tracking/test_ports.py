"""A port is as public as the machine: what listens here refuses the machine's other accounts."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from synthdp.loopback import bound
from synthdp.spec import load_spec
from synthdp.tracking import tracker
from synthdp.tracking.server import Pages, serving
from tests.release.conftest import Tiny

ROOT = Path(__file__).parents[2]
# What may open a port, and the only places that do.
OPENERS = {
    "synthdp/loopback.py": {"socket"},
    "synthdp/desk/serve.py": {"socket", "uvicorn"},  # asked in tests/desk/test_serve.py
    "synthdp/tracking/server.py": {"socket", "uvicorn"},
    "attacks/synthdp_attacks/fleet.py": {"socket"},  # asks for this machine's name
    "synthdp/privacy/engines/on_dask.py": {"LocalCluster"},
}
# Run by another account: asks ports in all ways, and prints what came back.
ASKER = """
import encodings.idna, http.client, json, os, socket, ssl, sys
asked = json.load(sys.stdin)
if asked["account"]:
    os.setgroups([]); os.setgid(asked["account"]); os.setuid(asked["account"])
found = []
for port in asked["ports"]:
    for method, path, body in asked["requests"]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=asked["patience"])
        headers = {"Content-Type": "application/json"} | asked["headers"]
        try:
            connection.request(method, path, json.dumps(body) if body else None, headers)
            answer = connection.getresponse()
            found.append((port, method, path, answer.status, answer.read().decode()))
        except (OSError, http.client.HTTPException) as error:
            found.append((port, method, path, 0, type(error).__name__))
        connection.close()
    try:
        unknown = ssl._create_unverified_context()
        with socket.create_connection(("127.0.0.1", port), timeout=asked["patience"]) as plain:
            with unknown.wrap_socket(plain) as stream:
                told = stream.recv(1)
    except OSError:
        told = b""
    found.append((port, "TLS", "", 0, told.hex()))
readable = []
for process in asked["processes"]:
    with open(f"/proc/{process}/cmdline") as file:
        readable.append(file.read())
    try:
        with open(f"/proc/{process}/environ") as file:
            readable.append(file.read())
    except PermissionError:
        pass
print(json.dumps({"found": found, "readable": readable}))
"""

# Run by another account: tries to listen at a port that is in use, as far as sockets can share one.
TAKER = """
import errno, os, socket, sys
account, port = map(int, sys.argv[1:])
if account:
    os.setgroups([]); os.setgid(account); os.setuid(account)
for host in ("127.0.0.1", "0.0.0.0"):
    for shared in ((socket.SO_REUSEADDR,), (socket.SO_REUSEADDR, socket.SO_REUSEPORT)):
        with socket.socket() as other:
            for option in shared:
                other.setsockopt(socket.SOL_SOCKET, option, 1)
            try:
                other.bind((host, port))
                other.listen()
                print("listens")
            except OSError as error:
                print(errno.errorcode[error.errno])
"""


def test_a_port_is_ours_before_its_server_is_up() -> None:
    """Or who listens at it meanwhile is told the password."""
    with bound(None) as at:
        account = 65534 if os.getuid() == 0 else 0
        command = [sys.executable, "-I", "-c", TAKER, str(account), str(at.getsockname()[1])]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["EADDRINUSE"] * 4


def test_no_proxy_is_told_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    with bound(None) as at, bound(None) as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        with pytest.raises(TimeoutError):
            Pages(f"http://127.0.0.1:{at.getsockname()[1]}", "pw").ask("/", seconds=0.1)
        proxy.setblocking(False)
        with pytest.raises(BlockingIOError):  # nobody came
            proxy.accept()
        at.accept()[0].close()


@pytest.mark.check
def test_nothing_else_opens_a_port() -> None:
    """A new opener belongs here, and below among what another account asks."""
    openers = {
        "socket", "socketserver", "uvicorn", "waitress", "gunicorn", "xmlrpc", "wsgiref", "flask",
        "start_server", "start_unix_server", "create_server", "HTTPServer", "ThreadingHTTPServer",
        "LocalCluster", "Scheduler", "run_server", "simple_server", "BaseManager", "Listener",
    }  # fmt: skip
    found: dict[str, set[str]] = {}
    for folder in ("synthdp", "attacks", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = {part for name in _imported(node) for part in name.split(".")}
                if used := names & openers:
                    found.setdefault(str(path.relative_to(ROOT)), set()).update(used)
    assert found == OPENERS


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [name.name for name in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module or "", *(name.name for name in node.names)]
    return [node.attr] if isinstance(node, ast.Attribute) else []


@dataclass(frozen=True)
class Open:
    """Ports that processes of a tree listen at, by process."""

    ports: tuple[int, ...]
    hosts: tuple[str, ...]
    processes: tuple[int, ...]


def listening(root: int | None = None) -> Open:
    """All ports at which this process, or `root`, and all their children listen."""
    psutil = pytest.importorskip("psutil")
    top = psutil.Process(root)
    tree = [top, *top.children(recursive=True)]
    at = {
        (c.laddr.port, c.laddr.ip)
        for process in tree
        for c in process.net_connections(kind="inet")
        if c.status == psutil.CONN_LISTEN
    }
    ports, hosts = zip(*sorted(at), strict=True) if at else ((), ())
    return Open(ports, hosts, tuple(p.pid for p in tree))


def ask(
    open_: Open,
    requests: list[Any],
    *,
    headers: Any = None,
    account: int = 65534,
    patience: int = 30,
) -> Any:
    """What another account gets of all ports, by request, each within `patience` seconds."""
    if os.getuid() != 0:
        pytest.skip("only root can become another account")
    asked = {
        "account": account,
        "ports": open_.ports,
        "processes": open_.processes,
        "requests": requests,
        "headers": headers or {},
        "patience": patience,
    }
    done = subprocess.run(
        [sys.executable, "-I", "-c", ASKER],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@dataclass(frozen=True)
class Shown:
    """A store with one run, as `serving` shows it, and every kind of request for it."""

    pages: Pages
    requests: list[Any]
    open: Open
    run: str


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    tiny = Tiny(tmp_path_factory.mktemp("shown"))
    spec = load_spec(tiny.write(tracking={"enabled": True}).spec)
    report = tiny.folder / "internal.html"
    report.write_text("exact figures")
    with tracker(spec, folder=tiny.folder, run="looked at") as log:
        log.artifact(report)
    uri, before = f"sqlite:///{tiny.folder / 'mlflow.db'}", set(listening().ports)
    with serving(uri, port=None, experiment="synthdp") as pages:
        number = pages.address.split("/#/experiments/")[1].partition("/")[0]
        body = {"experiment_ids": [number]}
        (run,) = pages.ask("/api/2.0/mlflow/runs/search", body)["runs"]
        name = run["info"]["run_id"]
        now = listening()
        kept = [(p, h) for p, h in zip(now.ports, now.hosts, strict=True) if p not in before]
        ports, hosts = zip(*kept, strict=True)
        yield Shown(pages, _requests(number, name), Open(ports, hosts, now.processes), name)


def _requests(experiment: str, run: str) -> list[Any]:
    """Pages, files, search, tags, upload and deletion, by both faces of MLflow's app."""
    tag = {"run_id": run, "key": "gate", "value": "passed by nobody"}
    search = {"experiment_ids": [experiment]}
    return [
        *(("GET", page, None) for page in ("/", "/health", "/version", "/static-files/x", "/x")),
        ("GET", f"/get-artifact?path=internal.html&run_uuid={run}", None),
        ("GET", f"/api/2.0/mlflow/artifacts/list?run_id={run}", None),
        ("GET", "/api/2.0/mlflow-artifacts/artifacts", None),
        ("GET", "/ajax-api/3.0/mlflow/assistant/config", None),
        ("GET", "/ajax-api/3.0/mlflow/server-info", None),
        ("POST", "/graphql", {"query": "{ __typename }"}),
        ("POST", "/v1/traces", {"resourceSpans": []}),
        ("OPTIONS", "/api/2.0/mlflow/runs/search", None),
        ("PUT", "/api/2.0/mlflow-artifacts/artifacts/x", {"x": 1}),
        ("DELETE", "/api/2.0/mlflow-artifacts/artifacts/x", None),
        *(
            ("POST", f"/{face}/2.0/mlflow/{what}", body)
            for face in ("api", "ajax-api")
            for what, body in (
                ("runs/search", search),
                ("runs/set-tag", tag),
                ("experiments/search", {"max_results": 5}),
                ("runs/delete", {"run_id": run}),
            )
        ),
    ]


@pytest.mark.check
class TestUi:
    def test_the_account_that_started_it_sees_and_writes(self, shown: Shown) -> None:
        tags = {"run_id": shown.run, "key": "seen", "value": "yes"}
        assert shown.pages.ask("/api/2.0/mlflow/runs/set-tag", tags) == {}
        got = shown.pages.ask(f"/api/2.0/mlflow/runs/get?run_id={shown.run}")["run"]
        assert {"key": "seen", "value": "yes"} in got["data"]["tags"]
        assert got["info"]["lifecycle_stage"] == "active"

    def test_another_account_gets_nothing_and_changes_nothing(self, shown: Shown) -> None:
        assert len(shown.open.ports) == 1 and set(shown.open.hosts) == {"127.0.0.1"}
        told = ask(shown.open, shown.requests)
        refused = {
            (status, text) for _, method, _, status, text in told["found"] if method != "TLS"
        }
        assert refused == {(401, "")}
        assert {text for _, method, _, _, text in told["found"] if method == "TLS"} == {""}
        got = shown.pages.ask(f"/api/2.0/mlflow/runs/get?run_id={shown.run}")["run"]
        assert "passed by nobody" not in json.dumps(got)
        assert got["info"]["lifecycle_stage"] == "active"

    def test_another_account_cannot_read_the_password(self, shown: Shown) -> None:
        told = ask(shown.open, [])
        assert any("synthdp.tracking.server" in text for text in told["readable"])
        assert str(shown.pages.password) not in "".join(told["readable"])
        assert str(shown.pages.password) not in repr(shown.pages)

    def test_a_page_of_another_origin_gets_nothing(self, shown: Shown) -> None:
        from synthdp.tracking.server import credentials

        login = {"Authorization": credentials(str(shown.pages.password))}
        for other, refusal in (
            ({"Origin": "http://localhost:1"}, 403),
            ({"Host": "rebound.example"}, 421),
        ):
            told = ask(shown.open, shown.requests, headers=login | other)
            statuses = {status for _, method, _, status, _ in told["found"] if method != "TLS"}
            assert statuses == {refusal}

    def test_a_connection_that_is_no_request_gets_nothing(self, shown: Shown) -> None:
        upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
        told = ask(shown.open, [("GET", "/", None)], headers=upgrade)
        assert told["found"][0][3:] == [401, ""]

    def test_a_wrong_password_is_refused(self, shown: Shown) -> None:
        wrong = Pages(shown.pages.address, "wrong")
        with pytest.raises(HTTPError, match="401") as refused:
            wrong.ask("/api/2.0/mlflow/experiments/search?max_results=1")
        refused.value.close()


@pytest.mark.check
def test_every_port_of_the_dask_engine_is_closed_to_other_accounts(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    from synthdp.data import LevelGroups
    from synthdp.privacy.engines.on_dask import DaskEngine
    from synthdp.privacy.engines.opening import find_parts
    from tests.privacy.engines.tables import reading_of, write
    from tests.privacy.engines.test_counts import DOMAIN, TABLES, people

    write(people(300, ids=50), tmp_path)
    before = set(listening().ports)
    engine = DaskEngine(reading_of(DOMAIN), find_parts(".", tmp_path), 300, threads=2)
    engine.count(LevelGroups(DOMAIN, {}), TABLES)
    now = listening()
    kept = [(p, h) for p, h in zip(now.ports, now.hosts, strict=True) if p not in before]
    ports, hosts = zip(*kept, strict=True)
    assert set(hosts) == {"127.0.0.1"}
    pages = ("/", "/health", "/metrics", "/json/counts.json", "/info/main/workers.html", "/status")
    open_ = Open(ports, hosts, now.processes)
    told = ask(open_, [("GET", page, None) for page in pages], patience=1)
    for port, method, path, status, text in told["found"]:
        assert status in (0, 404), (port, method, path)
        assert "300" not in text and (method != "TLS" or text == "")
    secrets = [engine.local[0].security.tls_client_key, engine.local[0].security.tls_scheduler_key]
    assert not any(secret in text for secret in secrets for text in told["readable"])
    engine.local[0].close()
