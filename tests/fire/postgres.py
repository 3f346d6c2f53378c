"""A private PostgreSQL server from the distribution's packages: own folder, own port on loopback,
gone afterwards.
"""

import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa


@dataclass(frozen=True)
class Server:
    """A running server; `folder` holds its data."""

    binaries: Path
    folder: Path
    port: int

    def url(self, database: str = "postgres") -> str:
        """SQLAlchemy URL of a database of this server."""
        return f"postgresql+psycopg://ledger@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """URL of a fresh, empty database."""
        name = f"ledger_{secrets.token_hex(6)}"
        self.run(f"CREATE DATABASE {name}")
        return self.url(name)

    def run(self, statement: str, *, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run one statement as the server's owner; rows, if it gives any."""
        engine = sa.create_engine(
            self.url(database), isolation_level="AUTOCOMMIT", poolclass=sa.pool.NullPool
        )
        with engine.connect() as connection:
            result = connection.exec_driver_sql(statement)
            return [tuple(row) for row in result] if result.returns_rows else []

    def stop(self) -> None:
        """Stop at once, as when a machine loses its power."""
        _as_owner(
            [self.binaries / "pg_ctl", "-D", self.folder / "data", "-m", "immediate", "-w", "stop"]
        )

    def start(self, *settings: str) -> None:
        """Start with `settings` (`name=value`) and wait until it answers."""
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1 " + " ".join(
            f"-c {s}" for s in settings
        )
        _as_owner(
            [
                self.binaries / "pg_ctl",
                "-D",
                self.folder / "data",
                "-l",
                self.folder / "log",
                "-o",
                options,
                "-w",
                "-t",
                "60",
                "start",
            ]
        )


def find_or_install() -> Path | str:
    """The folder of the server's programs, or why there is none. Root on a Debian may install it:
    only slow tests come here.
    """
    found = find_installed()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        quiet = {
            "check": False,
            "capture_output": True,
            "text": True,
            "env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        }
        subprocess.run(["apt-get", "update"], **quiet)  # type: ignore[call-overload]
        done = subprocess.run(
            ["apt-get", "install", "-y", "--no-install-recommends", "postgresql"], **quiet
        )  # type: ignore[call-overload]
        found = find_installed()
        if found is None:
            return f"apt-get could not install it: {done.stderr.strip().splitlines()[-1:]}"
    return found or "no initdb on this machine; install the package `postgresql`"


def find_installed() -> Path | None:
    """The folder of the server's programs, if they are on this machine."""
    on_path = shutil.which("initdb")
    places = [
        *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True),
        *([Path(on_path).parent] if on_path else []),
    ]
    return next((p for p in places if (p / "initdb").exists() and (p / "pg_ctl").exists()), None)


@contextmanager
def private_server(binaries: Path) -> Iterator[Server]:
    """A new cluster that runs while the block does."""
    folder = Path(tempfile.mkdtemp(prefix="synthdp-pg-", dir="/tmp"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = Server(binaries, folder, port)
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, _owner())
        _as_owner(
            [
                binaries / "initdb",
                "-D",
                folder / "data",
                "-U",
                "ledger",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--no-locale",
            ]
        )
        server.start("max_connections=150")
        yield server
    finally:
        if (folder / "data" / "postmaster.pid").exists():
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _owner() -> str:
    """An unprivileged user: the server refuses root."""
    names = {user.pw_name for user in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _as_owner(command: Sequence[str | Path]) -> None:
    words = [str(word) for word in command]
    if os.geteuid() == 0:
        words = ["runuser", "-u", _owner(), "--", *words]
    # A started server keeps its parent's output open, so that is not a pipe.
    with tempfile.TemporaryFile() as said:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd="/", check=False
        )
        said.seek(0)
        assert done.returncode == 0, f"{' '.join(words)}: {said.read().decode(errors='replace')}"
