"""Where the addresses in a spec lead: a relative SQLite file lies in the spec's folder, whatever folder a command runs in.

A ledger that went with the working folder would let a cap be passed by a change of folder. Addresses are read by
SQLAlchemy, which opens them later, so that both see the same file: `sqlite://@/x.db` and `file:x.db?uri=true` too.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

if TYPE_CHECKING:  # SQLAlchemy takes a moment, and not every command needs it
    from sqlalchemy.engine import URL


def home(spec_path: Path) -> Path:
    """The folder that a spec's relative paths and addresses start from: that of the file itself, not of a link to it."""
    return spec_path.resolve().parent


def ledger_address(named: str | None, folder: Path) -> str:
    """Where the ledger of a spec in `folder` is: as `privacy.ledger` names it, by default one file beside the spec."""
    return from_folder(named, folder) if named else sqlite_address(default_ledger(folder))


def default_ledger(folder: Path) -> Path:
    """The file of the ledger of a spec in `folder` that names none."""
    return folder / ".synthdp" / "ledger.db"


def store_address(named: str | None, folder: Path) -> str:
    """Where releases of a spec in `folder` are logged: as `tracking.uri` names it, by default one file beside the spec."""
    return from_folder(named, folder) if named else sqlite_address(folder / "mlflow.db")


def sqlite_address(path: Path) -> str:
    """The SQLAlchemy URL of a SQLite file, whatever characters its path has."""
    from sqlalchemy.engine import URL

    return URL.create("sqlite", database=str(path)).render_as_string()


def sqlite_file(address: str) -> Path | None:
    """The file of a SQLite URL, relative as it is written there; None for a database in memory or anything else."""
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
    """`address` with its relative SQLite file led to `folder`, an absolute path; any other address as it is."""
    from sqlalchemy.engine import make_url

    file = sqlite_file(address)
    if file is None or file.is_absolute():
        return address
    url, path = make_url(address), str(folder / file)
    return url.set(database=f"file:{quote(path)}" if _as_uri(url) else path).render_as_string(hide_password=False)


def _as_uri(url: URL) -> bool:
    """Whether SQLite reads the file as an URI of its own; without the flag, `file:` is the beginning of a name."""
    from sqlalchemy.util import asbool

    return (url.database or "").startswith("file:") and bool(asbool(url.query.get("uri", False)))
