"""Small public domains, tables behind and before the seal, and a ledger: what the kernel's tests
start from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from synthdp.data.domain import ColumnDomain, Domain
from synthdp.data.encoding import Codes, decode
from synthdp.ledger.ledger import Ledger
from synthdp.privacy.noise import Streams
from synthdp.privacy.table import Table
from tests.fire.postgres import Server, find_installed, private_server


def make_domain(*sizes: int) -> Domain:
    """Categorical columns a, b, c ... of these sizes."""
    return Domain(
        tuple(
            ColumnDomain(chr(97 + i), "categorical", tuple(f"v{k}" for k in range(size)), False)
            for i, size in enumerate(sizes)
        )
    )


def make_table(domain: Domain, codes: Codes) -> Table:
    """Rows as mechanisms get them, none held out."""
    codes = np.asarray(codes, dtype=np.uint16).reshape(-1, len(domain))
    return Table(
        codes,
        decode(domain, codes, rng=np.random.default_rng(0)),
        np.zeros(len(codes), dtype=bool),
        {},
    )


@pytest.fixture(scope="session")
def domain_of() -> Callable[..., Domain]:
    return make_domain


@pytest.fixture(scope="session")
def table_of() -> Callable[[Domain, Codes], Table]:
    return make_table


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(f"sqlite:///{tmp_path / 'ledger.db'}")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A PostgreSQL server of our own, where one is installed."""
    if (binaries := find_installed()) is None:
        pytest.skip("no PostgreSQL on this machine; install the package `postgresql`")
    with private_server(binaries) as running:
        yield running


class EvenLatents(Streams):
    """Fresh streams with one constant for all noise of z, so that an example's gradient is a
    function of the example.
    """

    def latents(self, rows: int, width: int) -> npt.NDArray[np.float32]:
        return np.full((rows, width), 0.5, dtype=np.float32)


@pytest.fixture
def even_latents() -> Streams:
    return EvenLatents.fresh()
