"""Where the addresses in a spec lead: a relative SQLite file lies in the spec's folder.

This holds whatever folder a command runs in.

A ledger that went with the working folder would let a cap be passed by a change of folder.
Addresses are read by SQLAlchemy, which opens them later, so that both see the same file:
`sqlite://@/x.db` and `file:x.db?uri=true` too.

An address may hold a password, so nothing else prints one: `shown_address` says what may be shown
of it, and `reason` why it did not answer, since a library's own words quote the address.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

from synthdp.errors import OutputError

if TYPE_CHECKING:  # SQLAlchemy takes a moment, and not every command needs it
    from sqlalchemy.engine import URL


UNSHOWN = "(an address that is not shown, since it may hold a password)"
# Scheme, host and port, where it is beyond doubt which part is which: an @ further on means that a
# password has a / in it.
_SHOWN = re.compile(
    r"(?P<scheme>https?|(?:postgres(?:ql)?|mysql|mariadb|mssql|oracle)(?:\+[a-z0-9_]+)?)://(?:[^@/?#\\\s]*@)?"
    r"(?P<host>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?P<port>:[0-9]{1,5})?(?:[/?#][^@]*)?"
)
_REASONS = {
    "the connection was refused": ("connection refused", "actively refused"),
    "there was no answer in time": ("timed out", "timeout"),
    "there is no host of this name": (
        "name or service not known",
        "getaddrinfo",
        "could not translate",
        "failed to resolve",
        "nameresolution",
    ),
    "user or password was refused": (
        "authentication failed",
        "password",
        "access denied",
        "unauthorized",
        "error code 401",
        "error code 403",
    ),
    "its certificate was refused": ("certificate",),
    "the network is unreachable": ("unreachable", "no route"),
    "there is no such database, user or experiment": ("does not exist", "unknown database"),
    "the file may not be written": ("readonly database", "permission denied", "read-only"),
    "its disk is full": ("disk is full", "no space left"),
    "its folder is missing, full or may not be written": ("unable to open database file",),
    "the file is no database": ("not a database",),
    "another process holds it": ("database is locked",),
    "its tables are those of another version of MLflow": (
        "out-of-date database schema",
        "can't locate revision",
    ),
}


def home(spec_path: Path) -> Path:
    """The folder that relative paths of a spec start from: of the file itself, not of a link."""
    return spec_path.resolve().parent


def ledger_address(named: str | None, folder: Path) -> str:
    """The address of a spec's ledger: `privacy.ledger`, or else one file beside the spec."""
    return from_folder(named, folder) if named else sqlite_address(default_ledger(folder))


def default_ledger(folder: Path) -> Path:
    """The file of the ledger of a spec in `folder` that names none."""
    return folder / ".synthdp" / "ledger.db"


def store_address(named: str | None, folder: Path) -> str:
    """The address that releases are logged at: `tracking.uri`, or a file beside the spec."""
    return from_folder(named, folder) if named else sqlite_address(folder / "mlflow.db")


def sqlite_address(path: Path) -> str:
    """The SQLAlchemy URL of a SQLite file, whatever characters its path has."""
    from sqlalchemy.engine import URL

    return URL.create("sqlite", database=str(path)).render_as_string()


def sqlite_file(address: str) -> Path | None:
    """The file of a SQLite URL, relative where the URL has it so; None for all else."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(address)
        if url.get_backend_name() != "sqlite" or not url.database or ":memory:" in url.database:
            return None
        return Path(unquote(urlsplit(url.database).path) if _as_uri(url) else url.database)
    except (ArgumentError, ValueError):
        return None


def from_folder(address: str, folder: Path) -> str:
    """`address`, whose SQLite file, if it is a relative one, is resolved against `folder`."""
    from sqlalchemy.engine import make_url

    file = sqlite_file(address)
    if file is None or file.is_absolute():
        return address
    url, path = make_url(address), str(folder / file)
    return url.set(database=f"file:{quote(path)}" if _as_uri(url) else path).render_as_string(
        hide_password=False
    )


def check_uri(uri: str) -> None:
    """Refuse addresses that MLflow cannot serve.

    Raises:
        OutputError: a file store, or an address with a query, which MLflow would put its own paths
            behind.
    """
    allowed = (
        "leave tracking.uri out for a SQLite file beside the spec, or give sqlite:///path.db (from"
        " the spec's folder), "
    )
    if uri.startswith("file:") or "://" not in uri:
        raise OutputError(
            "tracking.uri is a path, or lacks its scheme: that is a file store, which MLflow no"
            " longer supports",
            hint=allowed + "postgresql://... or http://...",
        )
    if re.match(r"https?:", uri) and re.search(r"[?#]", uri):
        raise OutputError(
            f"tracking.uri {shown_address(uri)} has a query or a fragment, where MLflow puts paths"
            " of its own",
            hint="a token belongs into the environment variable MLFLOW_TRACKING_TOKEN, which MLflow"
            " reads",
        )


def shown_address(address: str) -> str:
    """What may be shown of an address: a SQLite file's path, or scheme, host and port.

    User, password, path, query and fragment are never shown. Where it is in doubt which part is the
    host - the scheme is forgotten, a password has a `/` or `@` - nothing is shown.
    """
    file = sqlite_file(address)
    if file is not None:
        return str(file)
    if address.startswith("sqlite:"):
        return "a SQLite database in memory"
    found = _SHOWN.fullmatch(address.strip())
    return f"{found['scheme']}://{found['host']}{found['port'] or ''}" if found else UNSHOWN


def is_url(path: str) -> bool:
    """Whether fsspec reads files from a path: it is encrypted, or of this machine."""
    return bool(re.match(r"(s3|gs|https)://|http://(127\.0\.0\.1|localhost)[:/]", path))


def is_pattern(path: str) -> bool:
    """Whether a path may stand for several files."""
    return bool(re.search(r"[*?[]", path))


def shown_path(path: str) -> str:
    """A path as it was given; nothing of what looks like an address that was put in its place."""
    return UNSHOWN if looks_like_address(path) else path


def looks_like_address(text: str) -> bool:
    """Whether a text may be a URL, its scheme forgotten perhaps, with a password in it."""
    return bool(re.search(r"://|:[^@]*@", text))


def reason(error: BaseException) -> str:
    """Why an address did not answer, in words of ours, or the error's kind."""
    said = " ".join(map(str, _behind(error))).lower()
    found = (words for words, signs in _REASONS.items() if any(sign in said for sign in signs))
    return next(found, type(error).__name__)


def unreachable(error: BaseException) -> bool:
    """Whether an error of a library means that nothing else will be answered either."""
    # By name: requests and SQLAlchemy take long to import.
    kinds = {kind.__name__ for e in _behind(error) for kind in type(e).__mro__}
    return bool(kinds & {"ConnectionError", "Timeout", "TimeoutError", "OperationalError"})


def _behind(error: BaseException) -> Iterator[BaseException]:
    """An error and those that it came from."""
    seen: list[BaseException] = []
    left: list[object] = [error]
    while left:
        one = left.pop()
        if isinstance(one, BaseException) and not any(one is s for s in seen):
            seen.append(one)
            left += [getattr(one, a, None) for a in ("__cause__", "__context__", "orig", "reason")]
    yield from seen


def _as_uri(url: URL) -> bool:
    """Whether SQLite reads `file:` as a URI; without the flag it begins a file's name."""
    from sqlalchemy.util import asbool

    return (url.database or "").startswith("file:") and bool(asbool(url.query.get("uri", False)))
