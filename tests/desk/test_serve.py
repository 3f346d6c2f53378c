"""Who is answered by the desk's port, with what, and for how long."""

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from synthdp.desk import FILES, STATIC, desk_app, opened
from tests.api.test_reviews import make_finished
from tests.desk.test_draft import CLINIC, ROOT, on_desk
from tests.tracking.test_ports import Open, ask

pytestmark = pytest.mark.check
EDIT = {"do": "set", "values": [(["columns", "age", "upper"], "99")]}


@dataclass(frozen=True)
class Running:
    """A desk as a process of its own."""

    process: Any
    way_in: Path
    port: int
    token: str
    spec: Path
    headers: dict[str, Any] = field(default_factory=dict)

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        at = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        told = {name.replace("_", "-"): value for name, value in headers.items()}
        at.request(method, path, None if body is None else json.dumps(body), told)
        answer = at.getresponse()
        content, self.headers[path] = answer.read(), answer.headers
        at.close()
        return answer.status, json.loads(content) if content[:1] == b"{" else content

    @property
    def own(self) -> dict[str, str]:
        return {"X_Desk": self.token, "Origin": f"http://127.0.0.1:{self.port}"}


@contextmanager
def started(spec: Path, *more: str) -> Iterator[Running]:
    """`synthdp desk`, until the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "synthdp.cli.main", "desk", str(spec), "--json", *more],
        stdout=subprocess.PIPE, text=True, cwd=spec.parent,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        told = "".join(iter(process.stdout.readline, "}\n")) + "}"
        way_in = Path(json.loads(told)["open"].removeprefix("file://"))
        address = way_in.read_text().partition("url=")[2].partition('"')[0]
        port, token = address.removeprefix("http://127.0.0.1:").split("/#desk=")
        yield Running(process, way_in, int(port), token, spec)
    finally:
        process.terminate()
        process.communicate(timeout=60)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    with started(on_desk(tmp_path, CLINIC.read_text()).path) as desk:
        yield desk


def test_only_the_own_page_is_answered(running: Running) -> None:
    """Of each refusal its reason; nothing was written."""
    mode = running.way_in.parent.stat().st_mode & 0o777
    assert mode == 0o700 and len(running.token) == 43
    own, host = running.own, f"127.0.0.1:{running.port}"
    for path, name in FILES.items():
        assert running.ask("GET", path) == (200, (STATIC / name).read_bytes())
    evil, change = {"Host": "evil.example"}, "/change"
    refused: list[tuple[int, str, str, dict[str, str]]] = [
        (403, "GET", "/state", {}), (403, "GET", "/state", {"X_Desk": running.token[:-1]}),
        (403, "POST", "/", {}), (403, "GET", "/nothing", {}), (404, "GET", "/nothing", own),
        (405, "PUT", change, own), (405, "GET", change, own), (404, "GET", "/report", own),
        (403, "POST", change, {"Origin": own["Origin"]}), (421, "POST", change, own | evil),
        (403, "POST", change, {"X_Desk": running.token}), (421, "GET", "/", evil),
        (403, "POST", change, own | {"Origin": "http://evil.example"}),
        (403, "POST", change, own | {"Origin": "null"}),
        (403, "POST", change, own | {"Sec_Fetch_Site": "cross-site"}),
        (421, "GET", "/", {"Host": f"evil.example:{running.port}"}),
        (403, "GET", "/", {"Host": host, "Sec_Fetch_Site": "cross-site"}),
    ]  # fmt: skip
    seen = running.ask("GET", "/state", **own)[1]["seen"]
    for status, method, path, headers in refused:
        body = EDIT | {"seen": seen} if method == "POST" else None
        assert running.ask(method, path, body, **headers)[0] == status, (method, path, headers)
    for body in ("x" * (1 << 20), ["no", "map"], {"do": "set", "seen": seen}):
        assert running.ask("POST", "/change", body, **own)[0] in (400, 413)
    assert running.spec.read_text() == CLINIC.read_text()
    status, page = running.ask("POST", "/change", EDIT | {"seen": seen}, **own)
    assert status == 200 and page["said"] == "" and "upper: 99" in running.spec.read_text()
    assert not running.way_in.parent.exists()  # deleted at first use


def test_another_account_gets_nothing(running: Running) -> None:
    requests = [("GET", "/state", None), ("POST", "/change", EDIT), ("OPTIONS", "/state", None)]
    open_ = Open((running.port,), ("127.0.0.1",), (running.process.pid,))
    told = ask(open_, requests)
    assert {text[3:] == [403, ""] for text in told["found"] if text[1] != "TLS"} == {True}
    assert running.token not in "".join(told["readable"])
    if os.getuid() == 0:
        command = [sys.executable, "-c",
                   f"import os; os.setuid(65534); open({str(running.way_in)!r})"]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "PermissionError" in done.stderr


def test_answers_allow_nothing_from_elsewhere(running: Running) -> None:
    for path in ("/", "/state"):
        running.ask("GET", path, **running.own)
        headers = running.headers[path]
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none';") and "script-src 'self';" in policy
        assert "unsafe" not in policy and "server" not in headers
        assert headers["Cache-Control"] == "no-store"
    text = (STATIC / "desk.html").read_text()
    assert "<style" not in text and "style=" not in text and "<script>" not in text
    script = (STATIC / "desk.js").read_text()
    assert not any(word in script for word in ("innerHTML", "eval(", "Function(", "insertAdj"))


def test_the_report_is_given_once_for_a_token(tmp_path: Path) -> None:
    """Its own policy runs nothing and keeps its styles; other names and accounts get no word."""
    finished = make_finished(tmp_path)
    with started(finished, "--ledger", str(finished / "ledger.db")) as desk:
        asked = [("GET", "/report", None), ("GET", "/report/x", None), ("POST", "/change", None)]
        told = ask(Open((desk.port,), ("127.0.0.1",), (desk.process.pid,)), asked)
        assert {text[3:] == [403, ""] for text in told["found"] if text[1] != "TLS"} == {True}
        assert desk.ask("GET", "/report", **desk.own, Host="evil.example")[0] == 421
        status, path = desk.ask("GET", "/report", **desk.own)
        assert status == 200 and len(path) == len("/report/") + 43
        assert desk.ask("GET", path.decode(), Host="evil.example")[0] == 421
        assert desk.ask("GET", path.decode(), Sec_Fetch_Site="cross-site")[0] == 403
        report = (finished / "internal" / "internal.html").read_bytes()
        assert desk.ask("GET", path.decode()) == (200, report)
        policy = desk.headers[path.decode()]["Content-Security-Policy"]
        assert "script-src" not in policy and "; sandbox;" in policy
        assert desk.ask("GET", path.decode())[0] == 403  # a second time


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_and_leaves_nothing(running: Running, number: int) -> None:
    running.ask("GET", "/", None)
    running.process.send_signal(number)
    assert running.process.wait(20) == 0
    assert not running.way_in.parent.exists()


def test_an_hour_without_a_request_ends_it(tmp_path: Path) -> None:
    spec = on_desk(tmp_path, CLINIC.read_text()).path
    code = "from pathlib import Path\nfrom synthdp.desk.serve import opened\n"
    code += f"with opened(Path({str(spec)!r}), port=None) as desk: desk.run(idle=1)\n"
    begun = time.monotonic()
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=ROOT)
    assert time.monotonic() - begun > 1


def test_no_route_spends_or_runs(tmp_path: Path) -> None:
    """These are all of them; what the page may ask for is set, drop, undo and read."""
    with opened(on_desk(tmp_path, CLINIC.read_text()).path, port=None) as desk:
        app = desk_app(desk.side, desk.of, print, set())
        routes = {(route.path, *sorted(route.methods)) for route in app.routes}
    assert routes == {
        *((path, "GET", "HEAD") for path in FILES), ("/state", "GET", "HEAD"), ("/change", "POST"),
    }  # fmt: skip
    text = "".join(p.read_text(encoding="utf-8") for p in STATIC.parent.glob("*.py"))
    spending = ("release(", "resume(", "reserve", "set_cap", "import_module", "getattr(")
    assert not any(word in text for word in spending)
