"""Five million rows in eight partitions, with ids of several rows: the same counts everywhere."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import sqlalchemy as sa

from synthdp.data import LevelGroups
from synthdp.privacy.engines.on_arrow import ArrowEngine
from synthdp.privacy.engines.on_dask import DaskEngine
from synthdp.privacy.engines.on_sql import SqlEngine
from synthdp.privacy.engines.opening import find_parts
from synthdp.spec.model import SqlSource
from tests.fire.postgres import find_installed, private_server
from tests.privacy.engines.tables import reading_of, same, write
from tests.privacy.engines.test_counts import DOMAIN, TABLES, expected, kept

pytestmark = pytest.mark.slow
ROWS, IDS, MOST = 5_000_000, 1_500_000, 3


def tall() -> pa.Table:
    rng = np.random.default_rng(9)
    return pa.table(
        {
            "sex": pa.array(["f", "m", None]).take(pa.array(rng.integers(0, 3, ROWS))),
            "age": pa.array(rng.integers(0, 100, ROWS)),
            "ward": pa.array([f"w{i}" for i in range(20)]).take(
                pa.array(rng.integers(0, 20, ROWS))
            ),
            "id": pa.array(rng.integers(0, IDS, ROWS)),
        }
    )


def test_five_million_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")
    table = tall()
    write(table, tmp_path, files=8, rows_of_group=1 << 18)
    parts, plain = find_parts(".", tmp_path), LevelGroups(DOMAIN, {})
    whole, bounded = reading_of(DOMAIN), reading_of(DOMAIN, "id", MOST)
    all_rows, stay = expected(DOMAIN, table, TABLES), expected(DOMAIN, kept(table, MOST), TABLES)
    assert len(parts.parts) == 8 and ROWS / 2 < stay[0].sum() < ROWS
    found = [same(ArrowEngine(whole, parts, 2).count(plain, TABLES), all_rows)]
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        dashboard_address="127.0.0.1:0",
        silence_logs=logging.CRITICAL,
    ) as cluster:
        found += [
            same(
                DaskEngine(own, parts, ROWS, address=cluster.scheduler_address).count(
                    plain, TABLES
                ),
                wanted,
            )
            for own, wanted in ((whole, all_rows), (bounded, stay))
        ]
    if (binaries := find_installed()) is not None:
        with private_server(binaries) as server:
            copied = server.new_database()
            engine = sa.create_engine(copied)
            with engine.begin() as connection:
                connection.exec_driver_sql(
                    "CREATE TABLE t (sex text, age integer, ward text, id bigint)"
                )
                driver: Any = connection.connection.driver_connection
                rows = zip(*(table.column(c).to_pylist() for c in table.schema.names), strict=True)
                with driver.cursor().copy("COPY t FROM STDIN") as copy:
                    for row in rows:
                        copy.write_row(row)
            engine.dispose()
            monkeypatch.setenv("TEST_DB_URL", copied)
            source = SqlSource(kind="sql", url_env="TEST_DB_URL", query="select * from t")
            found += [
                same(SqlEngine(source, own, list, Path()).count(plain, TABLES), wanted)
                for own, wanted in ((whole, all_rows), (bounded, stay))
            ]
    assert all(found) and len(found) >= 3
