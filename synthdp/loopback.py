"""A port of this machine for one user alone: the socket, and a guard before what listens there.

A port is as public as the machine: every account of it reaches a loopback port, and every page
that the user's browser opens may ask there.
"""

from __future__ import annotations

import hmac
import re
import socket
from collections.abc import Awaitable, Callable, MutableMapping, Set
from dataclasses import dataclass, field
from typing import Any

from synthdp.errors import OutputError

Send = Callable[..., Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Any, Send], Awaitable[None]]
Header = tuple[bytes, bytes]
APART = (b"cross-origin-opener-policy", b"same-origin")  # who opened a page has no hold of it
_OWN = re.compile(rb"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?")


def bound(port: int | None) -> socket.socket:
    """A socket that listens at `port` of loopback, or at a free one.

    Raises:
        OutputError: the port is taken.
    """
    at = socket.socket()
    at.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        at.bind(("127.0.0.1", port or 0))
        at.listen()  # fails too where another socket of this port came first
    except OSError:
        at.close()
        raise OutputError(
            f"port {port} is taken", hint="leave --port out, and a free one is chosen"
        ) from None
    return at


@dataclass(frozen=True)
class Guard:
    """An ASGI app in front of `app`, which gets HTTP requests with the right `secret` alone.

    `secret` is a header, name and value. Paths that are `public` need none, since they hold
    nothing, or are secrets themselves for a while. Where `asks` has headers, a request without the
    secret is answered 401 with them, so that a browser asks its user; else 403.
    """

    app: App
    secret: Header = field(repr=False)
    asks: tuple[Header, ...] = ()
    public: Set[str] = frozenset()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Send) -> None:
        """Pass on or refuse; nothing but HTTP is passed on."""
        if scope["type"] != "http":
            return
        if not (status := self._refusal(scope)):

            async def apart(said: MutableMapping[str, Any]) -> None:
                if said["type"] == "http.response.start":
                    said = {**said, "headers": [*said["headers"], APART]}
                await send(said)

            await self.app(scope, receive, apart)
            return
        headers = [(b"content-length", b"0"), *(self.asks if status == 401 else ())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    def _refusal(self, scope: MutableMapping[str, Any]) -> int:
        """The status of a refusal, 0 for none. 421 where a name leads here that is not ours (DNS
        rebinding); 403 where a page of another origin asks, whatever its browser knows of secrets.
        Another page's link is followed to the first page alone: by what else an address answers, if
        only whether it is a file to save, the page that opened it would learn what is there.
        """

        def values(name: bytes) -> list[bytes]:
            return [value for key, value in scope["headers"] if key.lower() == name]

        hosts, sites = values(b"host"), values(b"sec-fetch-site")
        if len(hosts) != 1 or not _OWN.fullmatch(hosts[0]):
            return 421
        if any(origin != b"http://" + hosts[0] for origin in values(b"origin")):
            return 403
        followed = (
            (scope["method"], scope["path"]) == ("GET", "/")
            and values(b"sec-fetch-mode") == [b"navigate"]
            and values(b"sec-fetch-dest") == [b"document"]
        )
        if not followed and any(site not in (b"same-origin", b"none") for site in sites):
            return 403
        if scope["method"] == "GET" and scope["path"] in self.public:
            return 0
        name, wanted = self.secret
        given = values(name)
        right = len(given) == 1 and hmac.compare_digest(given[0], wanted)
        return 0 if right else 401 if self.asks else 403
