"""What the kernel's tests start from: small domains, tables, stores, laws of noise, a ledger."""

import copy
import csv
import math
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

from synthdp.data import Codes, ColumnDomain, Domain, decode, encode
from synthdp.ledger import Ledger
from synthdp.privacy.noise import Integers, Streams
from synthdp.privacy.private import _KERNEL_KEY
from synthdp.privacy.readers.files import seal_dataframe
from synthdp.privacy.source import read_private
from synthdp.privacy.table import Table
from synthdp.spec.model import Dataset
from tests.builders import build_spec
from tests.fire.postgres import Server, find_installed, private_server

Floats = npt.NDArray[np.float64]
SIGNIFICANCE = 1e-7  # of a true law; wrong ones are refused with near certainty


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


def domain_from(columns: dict[str, Any]) -> Domain:
    """The domain of columns as a spec writes them."""
    return Domain.from_spec(build_spec(columns).columns)


def numeric_domain(*names: str, missing: bool = False) -> Domain:
    """Numbers from -1 to 1 in four bins."""
    ends = {"edges": (-1.0, -0.5, 0.0, 0.5), "stop": 1.0, "lower": -1.0, "upper": 1.0}
    labels = (*"abcd", *["missing"] * missing)
    return Domain(tuple(ColumnDomain(n, "number", labels, missing, **ends) for n in names))


def encoded_table(domain: Domain, values: Any, held_out: Any = None) -> Table:
    """Rows of values, with their levels."""
    frame = values if isinstance(values, pd.DataFrame) else pd.DataFrame(values)
    if not isinstance(values, pd.DataFrame):
        frame.columns = pd.Index(domain.names)
    held = np.zeros(len(frame), dtype=bool) if held_out is None else held_out
    return Table(encode(domain, frame)[0], frame, held, {})


Read = Callable[..., Table]


def reader_in(folder: Path) -> Read:
    """Read a CSV text, what lies in `folder`, or a frame, through the kernel and past the seal."""

    def read(
        text: str | bytes | None = None,
        *,
        domain: Domain,
        given: Any = None,
        holdout: float = 0.0,
        delta: float = 0.0,
        unit: Any = None,
        **dataset: Any,
    ) -> Table:
        if text is not None:
            content = text if isinstance(text, bytes) else text.encode()
            (folder / "t.csv").write_bytes(content)
        known = {
            "id": "d",
            "source": {"kind": "csv", "path": "t.csv"} if given is None else {"kind": "dataframe"},
            "privacy_unit": unit or {"kind": "row", "meaning": "one visit"},
            "rows": {"kind": "approximate", "value": 100},
        }
        return read_private(
            Dataset.model_validate(known | dataset),
            domain,
            folder=folder,
            holdout=holdout,
            streams=Streams.fresh(),
            given=None if given is None else seal_dataframe(given),
            delta=delta,
        ).unseal(key=_KERNEL_KEY)

    return read


def by_id(max_rows: int) -> dict[str, Any]:
    return {"kind": "id", "column": "person", "max_rows": max_rows, "meaning": "one person"}


STORES = ("csv", "parquet", "batches", "sql", "dataframe")


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Write columns of Python values in one of `STORES`: what `read` takes of them."""

    def write(
        kind: str, columns: Mapping[str, Sequence[Any]], types: Any = None, **source: Any
    ) -> dict[str, Any]:
        types = types if isinstance(types, dict) else dict.fromkeys(columns, types)
        if kind == "dataframe":
            return {"given": pd.DataFrame(columns, dtype=object)}
        rows = list(zip(*columns.values(), strict=True))
        if kind == "csv":
            with (tmp_path / "t.csv").open("w", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows([list(columns), *rows])
            return {"source": {"kind": "csv", "path": "t.csv", **source}}
        if kind == "sql":
            with closing(sqlite3.connect(tmp_path / "s.db")) as connection, connection:
                connection.execute("drop table if exists t")
                names, marks = (", ".join(listed) for listed in (columns, "?" * len(columns)))
                connection.execute(f"create table t ({names})")
                connection.executemany(f"insert into t values ({marks})", rows)
            monkeypatch.setenv("TEST_DB_URL", f"sqlite:///{tmp_path / 's.db'}")
            asked = {"kind": "sql", "url_env": "TEST_DB_URL", "query": "select * from t"}
            return {"source": asked | source}
        cells = {name: pa.array(list(own), types[name]) for name, own in columns.items()}
        pq.write_table(pa.table(cells), tmp_path / "t.parquet")
        levels = {"levels_only": True} if kind == "batches" else {}
        return {"source": {"kind": "parquet", "path": "t.parquet", **levels, **source}}

    return write


class Silent(Streams):
    """Fresh streams whose noise on counts is zero: what a mechanism would say without it."""

    def discrete_gaussian(self, counts: Integers, *, sigma: float) -> Integers:
        return counts.copy()

    def rounded_gaussian(self, counts: Integers, *, sigma: float) -> Integers:
        return counts.copy()


def discrete_law(support: Integers, sigma: float) -> Floats:
    weights = np.exp(-(support.astype(float) ** 2) / (2 * sigma**2))
    return weights / weights.sum()


def rounded_law(support: Integers, sigma: float) -> Floats:
    below, above = (stats.norm.cdf(support + side, 0, sigma) for side in (-0.5, 0.5))
    return np.asarray(above - below)


def fit_p_value(samples: Integers, law: Callable[[Integers, float], Floats], sigma: float) -> float:
    """Chi-square of whole numbers against a law, cells of less than 10 expected pooled."""
    reach = math.ceil(20 * sigma) + 20
    support = np.arange(-reach, reach + 1)
    expected = law(support, sigma) * len(samples)
    observed = np.bincount(np.clip(samples, -reach, reach) + reach, minlength=len(support))
    keep = expected >= 10
    seen = np.append(observed[keep], observed[~keep].sum()).astype(float)
    wanted = np.append(expected[keep], max(expected[~keep].sum(), 1e-9))
    return float(stats.chisquare(seen, wanted * seen.sum() / wanted.sum()).pvalue)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Exact delta of a Gaussian mechanism of sensitivity over noise `mu`."""
    above, below = (stats.norm.cdf(side * mu / 2 - epsilon / mu) for side in (1, -1))
    return float(above - math.exp(epsilon) * below)


def hockey_stick(one: Floats, other: Floats, epsilon: float) -> float:
    return float(np.maximum(one - math.exp(epsilon) * other, 0).sum())


def order_law(scores: Any, scale: float, told: int) -> dict[tuple[int, ...], float]:
    """Of the first of noisy scores: exponential mechanisms in a row, each among what is left."""
    weights = np.exp((np.asarray(scores) - max(scores)) / scale)
    found = {}
    for places in permutations(range(len(weights)), told):
        chance, left = 1.0, weights.sum()
        for place in places:
            chance, left = chance * weights[place] / left, left - weights[place]
        found[places] = float(chance)
    return found


def order_p_value(orders: Counter[Any], law: dict[tuple[int, ...], float]) -> float:
    """Chi-square of the orders that were drawn; none may be unknown to the law."""
    assert set(orders) <= set(law)
    seen = np.array([orders[places] for places in law])
    return float(stats.chisquare(seen, np.array(list(law.values())) * seen.sum()).pvalue)


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
    """One constant for all noise of z: an example's gradient is a function of the example."""

    def latents(self, rows: int, width: int) -> npt.NDArray[np.float32]:
        return np.full((rows, width), 0.5, dtype=np.float32)


@pytest.fixture
def even_latents() -> Streams:
    return EvenLatents.fresh()


@dataclass(frozen=True)
class Noiseless(Streams):
    """Every row in every batch, at given places with given normals; rounded sums without noise."""

    normals: npt.NDArray[np.float32] | None = None
    spots: npt.NDArray[np.intp] | None = None
    sums: list[Floats] = field(default_factory=list)
    forward_passes: list[int] = field(default_factory=list)

    def poisson_batch(self, rows: int, *, rate: float) -> npt.NDArray[np.intp]:
        return np.arange(rows)

    def places(self, rows: int, slots: int) -> npt.NDArray[np.intp]:
        return np.arange(rows) if self.spots is None else self.spots

    def latents(self, rows: int, width: int) -> npt.NDArray[np.float32]:
        self.forward_passes.append(rows)
        constant = np.full((rows, width), 0.5, dtype=np.float32)
        return constant if self.normals is None else self.normals

    def lattice_gaussian(self, values: Floats, *, sigma: float, spacing: float) -> Floats:
        self.sums.append(np.rint(values.astype(np.float64) / spacing) * spacing)
        return self.sums[-1]


Train = Callable[..., Noiseless]


@pytest.fixture
def train() -> Train:
    """DP-SGD on `rows` from the weights of `module`, which stays as it is; what was drawn.

    On the CPU, or where the environment variable TRAIN_DEVICE says.
    """
    device = os.environ.get("TRAIN_DEVICE", "cpu")

    def run(
        module: Any, rows: Codes, settings: Any, normals: Any = None, spots: Any = None
    ) -> Noiseless:
        from synthdp.privacy.dpsgd.training import Training

        drawn = Noiseless(**vars(Streams.fresh()), normals=normals, spots=spots)
        own = Training(settings, copy.deepcopy(module), lambda done, total: None, None, device)
        own.run(make_table(make_domain(*module.architecture.sizes), rows), drawn)
        return drawn

    return run


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster whose scheduler and one worker are threads of this process."""
    with pytest.importorskip("distributed").LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        protocol="tcp",
        dashboard_address="127.0.0.1:0",
    ) as running:
        yield running
