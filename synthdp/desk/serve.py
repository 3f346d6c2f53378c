"""The desk's server: for one user of this machine, on loopback, until an hour without a request.

The page, script and style hold nothing and are open; all else needs a token of 256 bits. A browser
gets it by a file in a folder of its own, which is deleted at first use, so that no command line
holds it, and keeps it by port.
"""

from __future__ import annotations

import json
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from socket import socket
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from synthdp.desk import page
from synthdp.desk.draft import Draft
from synthdp.errors import withheld
from synthdp.loopback import Guard, bound

STATIC = Path(__file__).with_name("static")
FILES = {"/": "desk.html", "/desk.js": "desk.js", "/desk.css": "desk.css"}
POLICY = "Content-Security-Policy"
OF_ALL = "default-src 'none'; base-uri 'none'; form-action 'none'"
HEADERS = {
    POLICY: f"{OF_ALL}; script-src 'self'; style-src 'self'; connect-src 'self'; frame-src 'self';"
    " img-src 'self' data:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}
# The report's own styles are in it; it runs nothing, asks for nothing and leads nowhere.
OF_REPORT = HEADERS | {
    POLICY: f"{OF_ALL}; style-src 'unsafe-inline'; img-src data:; sandbox; frame-ancestors 'self'"
}


@dataclass(frozen=True)
class Desk:
    """A port that is listened at, the `token` it asks for, and the file that opens its page."""

    at: socket
    side: Any  # has `shown` and `act` of it
    of: Any  # what that page is of
    way_in: Path
    token: str = field(repr=False)

    def run(self, idle: float = 3600.0) -> None:
        """Serve until Ctrl-C, a signal to end, or `idle` seconds without a request."""
        last = time.monotonic()

        def heard() -> None:
            nonlocal last
            last = time.monotonic()
            shutil.rmtree(self.way_in.parent, ignore_errors=True)

        async def look() -> None:
            server.should_exit |= time.monotonic() - last > idle

        public = {*FILES}
        app = desk_app(self.side, self.of, heard, public)
        config = uvicorn.Config(
            Guard(app, (b"x-desk", self.token.encode()), (), public), access_log=False,
            lifespan="off", log_level="critical", proxy_headers=False, ws="none",
            server_header=False, timeout_graceful_shutdown=1, callback_notify=look,
            timeout_notify=min(30, int(idle)),
        )  # fmt: skip
        server = uvicorn.Server(config)
        self.of.begin()
        with suppress(KeyboardInterrupt):  # which uvicorn passes on when it has ended
            server.run(sockets=[self.at])


@contextmanager
def opened(path: Path, *, port: int | None, ledger: str | None = None) -> Iterator[Desk]:
    """A desk for the spec, or the output folder, at `path`, which listens and does not answer yet.
    `ledger` is that of the folder's run, where it is not at hand.

    Raises:
        SpecError: the file cannot be read.
        OutputError: the port is taken, the spec is of linked tables, or no release has ended there.
    """
    side: Any = page
    if path.is_dir():
        from synthdp.desk.decide import Case as side  # the other page's process has no verifier
    of = side(path, ledger) if path.is_dir() else Draft(path)
    token = secrets.token_urlsafe(32)
    folder = Path(tempfile.mkdtemp(prefix="synthdp-desk-"))  # 0700
    try:
        with bound(port) as at:
            address = f"http://127.0.0.1:{at.getsockname()[1]}/#desk={token}"
            way_in = folder / "open.html"
            way_in.write_text(f'<meta http-equiv="refresh" content="0;url={address}">\n')
            yield Desk(at, side, of, way_in, token)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def desk_app(side: Any, of: Any, heard: Any, public: set[str]) -> Starlette:
    """Make the app of a draft or a case: its page, what it shows, and changes."""

    def file(request: Request) -> Response:
        return FileResponse(STATIC / FILES[request.url.path], headers=HEADERS)

    def state(request: Request) -> Response:
        heard()
        return JSONResponse(side.shown(of), headers=HEADERS)

    async def change(request: Request) -> Response:
        heard()
        body = b""
        async for part in request.stream():
            if len(body := body + part) > 1 << 20:
                return Response(status_code=413, headers=HEADERS)
        if "origin" not in request.headers:  # another than ours is refused by the guard
            return Response(status_code=403, headers=HEADERS)
        return await run_in_threadpool(_changed, side, of, body)

    def ticket(request: Request) -> Response:
        """A path that gives the report once, since a frame can send no token."""
        heard()
        public.add(path := f"/report/{secrets.token_urlsafe(32)}")
        return Response(path, headers=HEADERS)

    async def report(request: Request) -> Response:
        public.discard(request.url.path)
        return FileResponse(of.report, headers=OF_REPORT)

    routes = [*(Route(path, file) for path in FILES), Route("/state", state)]
    routes.append(Route("/change", change, methods=["POST"]))
    if side is not page:
        routes += [Route("/report", ticket), Route("/report/{ticket}", report)]
    return Starlette(routes=routes)


def _changed(side: Any, of: Any, body: bytes) -> Response:
    """What the page shows after a change; where it is refused, why, and nothing is written."""
    said = dict[str, str]()
    try:
        side.act(of, json.loads(body))
    except (ValueError, LookupError, TypeError, AttributeError):
        return Response(status_code=400, headers=HEADERS)
    except Exception as error:
        said = {"said": str(withheld(error))}
    return JSONResponse(side.shown(of) | said, headers=HEADERS)
