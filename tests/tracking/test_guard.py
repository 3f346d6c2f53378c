"""What the guard before MLflow's app lets through: requests with the password, from its own
pages.
"""

import asyncio
from typing import Any

import pytest

from synthdp.tracking.server import credentials, guarded

HOST = b"127.0.0.1:8123"
PASSED = 200
Headers = list[tuple[bytes, bytes]]
LOGIN = (b"authorization", credentials("right").encode())
OWN: Headers = [(b"host", HOST), LOGIN]
LINK: Headers = [(b"sec-fetch-mode", b"navigate"), (b"sec-fetch-dest", b"document")]


async def _app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": PASSED, "headers": []})
    await send({"type": "http.response.body", "body": b"exact figures"})


def answered(
    headers: Headers, method: str = "GET", path: str = "/", kind: str = "http"
) -> list[Any]:
    said: list[Any] = []

    async def send(message: Any) -> None:
        said.append(message)

    scope = {"type": kind, "method": method, "path": path, "headers": headers}
    asyncio.run(guarded(_app, "right")(scope, None, send))
    return said


def status(headers: Headers, method: str = "GET", path: str = "/") -> int:
    start, body = answered(headers, method, path)
    assert (b"figures" in body["body"]) == (start["status"] == PASSED)
    asked = [key for key, _ in start["headers"] if key == b"www-authenticate"]
    assert bool(asked) == (start["status"] == 401)
    return int(start["status"])


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
@pytest.mark.parametrize("path", ["/", "/health", "/version", "/static-files/x.js", "/api/2.0/x"])
def test_every_path_and_method_needs_the_password(method: str, path: str) -> None:
    assert status([(b"host", HOST)], method, path) == 401
    assert status(OWN, method, path) == PASSED


@pytest.mark.parametrize(
    "given",
    [
        credentials("wrong").encode(),
        credentials("").encode(),
        credentials("right").replace("Basic", "Bearer").encode(),
        credentials("right").encode()[:-1],
        credentials("right").encode() + b"=",
        b"Basic",
        b"Basic \xff\xfe",
        b"",
    ],
)
def test_nothing_but_the_whole_password_will_do(given: bytes) -> None:
    assert status([(b"host", HOST), (b"authorization", given)]) == 401
    assert status([*OWN, (b"authorization", given)]) == 401  # which of two is meant?


@pytest.mark.parametrize(
    "host",
    [b"evil.example", b"evil.example:8123", b"127.0.0.1.evil.example", b"localhost@evil", b""],
)
def test_a_name_that_leads_here_is_refused(host: bytes) -> None:
    """By DNS rebinding a page of that name would be of one origin with this one."""
    assert status([(b"host", host), LOGIN]) == 421
    assert status([*OWN, (b"host", host)]) == 421
    assert status([LOGIN]) == 421


@pytest.mark.parametrize(
    "host", [b"127.0.0.1:8123", b"localhost:8123", b"[::1]:8123", b"localhost"]
)
def test_the_own_names_and_their_pages_may_ask(host: bytes) -> None:
    own = [(b"host", host), LOGIN, (b"origin", b"http://" + host)]
    assert status([*own, (b"sec-fetch-site", b"same-origin")], "POST") == PASSED


@pytest.mark.parametrize(
    "origin",
    [b"http://evil.example", b"http://127.0.0.1:9", b"https://127.0.0.1:8123", b"null", b""],
)
def test_pages_of_other_origins_may_not(origin: bytes) -> None:
    """Their browser knows the password, and would send it along; another account may serve pages at
    another port of this machine.
    """
    for method in ("GET", "POST", "OPTIONS"):
        assert status([*OWN, (b"origin", origin)], method) == 403


@pytest.mark.parametrize("site", [b"cross-site", b"same-site"])
def test_of_another_page_only_a_link_is_followed(site: bytes) -> None:
    told = [*OWN, (b"sec-fetch-site", site)]
    assert status(told) == status([*told, (b"sec-fetch-mode", b"navigate")]) == 403
    assert status([*told, (b"sec-fetch-mode", b"navigate"), (b"sec-fetch-dest", b"iframe")]) == 403
    assert status([*told, *LINK], "POST") == 403  # a form
    assert status([*told, *LINK]) == PASSED
    assert status([*told, *LINK], path="/get-artifact") == 403  # told by whether a file is saved
    assert status([*OWN, (b"sec-fetch-site", b"none")]) == PASSED


def test_who_opened_a_page_has_no_hold_of_it() -> None:
    """Or could count its frames and its steps."""
    start, _ = answered([*OWN, (b"sec-fetch-site", b"cross-site"), *LINK])
    assert (b"cross-origin-opener-policy", b"same-origin") in start["headers"]


def test_nothing_but_http_is_passed_on() -> None:
    assert answered(OWN, kind="websocket") == answered(OWN, kind="lifespan") == []


def test_the_password_is_in_no_repr() -> None:
    assert "right" not in repr(guarded(_app, "right"))
