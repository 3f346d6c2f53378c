"""MLflow's pages behind a password: a program that `tracking.server` starts.

A port is as public as the machine: every account of it reaches a loopback port, and every page that
the steward's browser opens may ask there. MLflow itself asks nobody who they are. So its app sees
no request that lacks the password, whatever the path and method.
"""

from __future__ import annotations

import base64
import hmac
import json
import os
import re
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

USER = "steward"
OWN_NAMES = re.compile(rb"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?")
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


def credentials(password: str) -> str:
    """What a browser sends for `USER` with `password`, as the value of `Authorization`."""
    return "Basic " + base64.b64encode(f"{USER}:{password}".encode()).decode()


@dataclass(frozen=True)
class Guard:
    """An ASGI app in front of `app`, which gets HTTP requests with the password alone.

    By HTTP Basic, since browsers keep such a password for one port. They send a cookie to every
    port of a host, whoever listens there.
    """

    app: App
    password: str = field(repr=False)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass on or refuse; nothing but HTTP is passed on."""
        if scope["type"] != "http":
            return
        if not (status := self._refusal(scope)):
            await self.app(scope, receive, send)
            return
        asks = [(b"www-authenticate", b'Basic realm="synthdp ui", charset="UTF-8"')]
        headers = [(b"content-length", b"0"), *(asks if status == 401 else [])]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    def _refusal(self, scope: Message) -> int:
        """The status of a refusal, 0 for none.

        403 where a name leads here that is not ours (DNS rebinding), or a page of another origin
        asks, whatever its browser knows of passwords. Another page's link to this one is followed.
        """

        def values(name: bytes) -> list[bytes]:
            return [value for key, value in scope["headers"] if key.lower() == name]

        hosts, sites = values(b"host"), values(b"sec-fetch-site")
        if len(hosts) != 1 or not OWN_NAMES.fullmatch(hosts[0]):
            return 403
        if any(origin != b"http://" + hosts[0] for origin in values(b"origin")):
            return 403
        followed = (
            scope["method"] == "GET"
            and values(b"sec-fetch-mode") == [b"navigate"]
            and values(b"sec-fetch-dest") == [b"document"]
        )
        if not followed and any(site not in (b"same-origin", b"none") for site in sites):
            return 403
        given = values(b"authorization")
        wanted = credentials(self.password).encode()
        return 0 if len(given) == 1 and hmac.compare_digest(given[0], wanted) else 401


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
        Guard(app, given["password"]),
        access_log=False,
        lifespan="off",
        log_level="critical",
        proxy_headers=False,
        ws="none",
    )
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=int(sys.argv[1]))])


if __name__ == "__main__":
    main()
