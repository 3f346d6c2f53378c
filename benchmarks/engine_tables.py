"""The table of `benchmarks.engines`: as Parquet files, and in a PostgreSQL database."""

from __future__ import annotations

import io
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bif import BayesianNetwork
from benchmarks.discovery_scaling import random_network

FILE_ROWS, POOL = 1 << 20, 1 << 17
TEXTS, WHOLES, REALS = 10, 5, 5


@cache
def network() -> BayesianNetwork:
    """The network of the texts, always the same."""
    return random_network(TEXTS, rng=np.random.default_rng(20))


def write_table(rows: int, folder: Path) -> None:
    """The table; rows of a pool come again and again, in one file after another."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(rows)
    codes = network().sample(POOL, rng=rng)
    columns: dict[str, Any] = {
        name: pa.array([labels[code] for code in codes[:, i]])
        for i, (name, labels) in enumerate(network().levels.items())
    }
    for i in range(WHOLES):
        columns[f"w{i}"] = pa.array(codes[:, i] * 20 + rng.integers(0, 40, POOL))
    for i in range(REALS):
        columns[f"r{i}"] = pa.array(np.round(codes[:, i] + rng.normal(0, 1, POOL), 2))
    pool = pa.table(columns)
    folder.mkdir(parents=True, exist_ok=True)
    for number, start in enumerate(range(0, rows, FILE_ROWS)):
        size = min(FILE_ROWS, rows - start)
        whole = pa.concat_tables([pool] * -(-size // POOL)).slice(0, size)
        ids = pa.array(rng.integers(0, max(1, rows // 3), size))
        with pq.ParquetWriter(
            folder / f"{number:05d}.parquet",
            whole.schema.append(pa.field("id", pa.int64())),
            compression="zstd",
        ) as writer:
            writer.write_table(whole.append_column("id", ids), row_group_size=FILE_ROWS)


def load_into_database(folder: Path, address: str, name: str) -> float:
    """Copy the files of `folder` into table `name` of a database; the megabytes that it takes."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq
    import sqlalchemy as sa

    kinds = {"string": "text", "int64": "bigint", "double": "double precision", "bool": "boolean"}
    kinds |= {"int8": "smallint", "int16": "smallint", "date32[day]": "date"}
    files = sorted(folder.glob("*.parquet"))
    columns = ", ".join(f"{f.name} {kinds[str(f.type)]}" for f in pq.read_schema(files[0]))
    raw = sa.create_engine(address).raw_connection()
    driver = raw.driver_connection
    assert driver is not None
    with driver.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {name} ({columns})")
        for file in files:
            text = io.BytesIO()
            pa.csv.write_csv(pq.read_table(file), text)
            with cursor.copy(f"COPY {name} FROM STDIN (FORMAT csv, HEADER)") as copy:
                copy.write(text.getbuffer())
        raw.commit()
        cursor.execute(f"ANALYZE {name}")
        cursor.execute(f"SELECT pg_total_relation_size('{name}')")
        size = cursor.fetchone()
    raw.commit()
    raw.close()
    return float(size[0]) / 1e6


def drop_from_database(address: str, name: str) -> None:
    """Drop table `name`."""
    import sqlalchemy as sa

    with sa.create_engine(address).begin() as connection:
        connection.exec_driver_sql(f"DROP TABLE {name}")


def server_cpu_seconds(address: str) -> float:
    """CPU seconds of the ended processes of a PostgreSQL server of this machine.

    One process serves a connection, with others that help it; all are children of one, whose number
    is the first line of a file that a superuser may read.
    """
    import sqlalchemy as sa

    engine = sa.create_engine(address, poolclass=sa.pool.NullPool)
    with engine.connect() as connection:
        text = connection.exec_driver_sql("SELECT pg_read_file('postmaster.pid')").scalar_one()
    state = Path(f"/proc/{int(str(text).splitlines()[0])}/stat").read_text(encoding="utf-8")
    user, system = state.rpartition(")")[2].split()[13:15]  # of its children, in ticks
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
