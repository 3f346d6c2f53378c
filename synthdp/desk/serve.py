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

from synthdp.desk.draft import LIMITS, Draft, shut
from synthdp.desk.page import act, shown
from synthdp.errors import SynthdpError, withheld
from synthdp.loopback import Guard, bound

STATIC = Path(__file__).with_name("static")
FILES = {"/": "desk.html", "/desk.js": "desk.js", "/desk.css": "desk.css"}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
        " img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True)
class Desk:
    """A port that is listened at, the `token` it asks for, and the file that opens its page."""

    at: socket
    draft: Draft
    way_in: Path
    token: str = field(repr=False)

    def run(self, idle: float = LIMITS.idle) -> None:
        """Serve until Ctrl-C, a signal to end, or `idle` seconds without a request."""
        last = time.monotonic()

        def heard() -> None:
            nonlocal last
            last = time.monotonic()
            shutil.rmtree(self.way_in.parent, ignore_errors=True)

        async def look() -> None:
            server.should_exit |= time.monotonic() - last > idle

        app = Guard(
            desk_app(self.draft, heard), (b"x-desk", self.token.encode()), (), frozenset(FILES)
        )
        config = uvicorn.Config(
            app, access_log=False, lifespan="off", log_level="critical", proxy_headers=False,
            ws="none", server_header=False, timeout_graceful_shutdown=1, callback_notify=look,
            timeout_notify=min(30, int(idle)),
        )  # fmt: skip
        server = uvicorn.Server(config)
        shut(self.draft)
        self.draft.keep_forecasting()
        with suppress(KeyboardInterrupt):  # which uvicorn passes on when it has ended
            server.run(sockets=[self.at])


@contextmanager
def opened(path: Path, *, port: int | None) -> Iterator[Desk]:
    """A desk for the spec at `path`, which listens and does not answer yet.

    Raises:
        SpecError: the file cannot be read.
        OutputError: the port is taken, or the spec is of linked tables.
    """
    draft, token = Draft(path), secrets.token_urlsafe(32)
    folder = Path(tempfile.mkdtemp(prefix="synthdp-desk-"))  # 0700
    try:
        with bound(port) as at:
            address = f"http://127.0.0.1:{at.getsockname()[1]}/#desk={token}"
            way_in = folder / "open.html"
            way_in.write_text(f'<meta http-equiv="refresh" content="0;url={address}">\n')
            yield Desk(at, draft, way_in, token)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def desk_app(draft: Draft, heard: Any) -> Starlette:
    """Make the app of a draft: its page, what it shows, and changes; `heard` is called at each."""

    def file(request: Request) -> Response:
        return FileResponse(STATIC / FILES[request.url.path], headers=HEADERS)

    def state(request: Request) -> Response:
        heard()
        return JSONResponse(shown(draft), headers=HEADERS)

    async def change(request: Request) -> Response:
        heard()
        body = b""
        async for part in request.stream():
            if len(body := body + part) > LIMITS.bytes:
                return Response(status_code=413, headers=HEADERS)
        if "origin" not in request.headers:  # another than ours is refused by the guard
            return Response(status_code=403, headers=HEADERS)
        return await run_in_threadpool(_changed, draft, body)

    routes = [*(Route(path, file) for path in FILES), Route("/state", state)]
    return Starlette(routes=[*routes, Route("/change", change, methods=["POST"])])


def _changed(draft: Draft, body: bytes) -> Response:
    """What the page shows after a change; where it is refused, why, and nothing is written."""
    said = ""
    try:
        asked = json.loads(body)
        act(draft, asked)
    except SynthdpError as error:
        said = str(error)
    except (ValueError, LookupError, TypeError, AttributeError):
        return Response(status_code=400, headers=HEADERS)
    except Exception as error:
        said = str(withheld(error))
    page = shown(draft)
    return JSONResponse(page | {"said": said or page["said"]}, headers=HEADERS)
