"""Ledgers on SQLite and PostgreSQL, and a private PostgreSQL server."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(
    0, str(Path(__file__).parent)
)  # test files are imported by path; what they share lies beside them

from postgres import Server, find_or_install, private_server

EVENT = {"event": "gaussian", "noise_multiplier": 2.0}


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A PostgreSQL server of our own on a free loopback port."""
    binaries = find_or_install()
    if isinstance(binaries, str):
        pytest.skip(f"NO POSTGRESQL, SO THE TEAM LEDGER IS NOT TESTED: {binaries}")
    with private_server(binaries) as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh, empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    server: Server = request.getfixturevalue("postgres")
    return server.new_database()


@pytest.fixture
def reserve() -> Callable[..., Any]:
    """`reserve(ledger, run, epsilon)` on dataset `adult` under a cap of 3."""

    def make(ledger: Any, run: str, epsilon: float = 1.0, **changes: Any) -> Any:
        settings = {
            "dataset": "adult",
            "epsilon": epsilon,
            "delta": 1e-6,
            "cap": (3.0, 1e-4),
            "body": {"by": "me", "adjacency": "add_remove"},
        }
        settings |= changes
        return ledger.reserve(settings.pop("dataset"), run, **settings)

    return make


@pytest.fixture
def charge() -> Callable[..., Any]:
    """`charge(ledger, run, purpose)`."""

    def make(ledger: Any, run: str, purpose: str = "measure", **changes: Any) -> Any:
        return ledger.charge(
            **(
                {
                    "dataset": "adult",
                    "run": run,
                    "purpose": purpose,
                    "mechanism": "m",
                    "event": EVENT,
                }
                | changes
            )
        )

    return make
