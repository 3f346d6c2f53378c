"""Tables of every kind of column, their neighbours, and how a source holds them.

A table holds its cells as people and programs write them: texts, numbers, None. Each source takes
them in its own way; what does not fit into a column of Parquet is missing there.
"""

import datetime as dt
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

Row = dict[str, Any]
Rng = np.random.Generator

ID = "person"  # the column with the ids, where ids are the unit
COLUMNS: dict[str, dict[str, Any]] = {
    "sex": {"type": "categorical", "categories": ["female", "male"]},
    "grade": {
        "type": "ordinal",
        "categories": ["low", "middle", "high"],
        "missing": True,
        "missing_codes": ["-9"],
    },
    "smoker": {"type": "boolean", "false": "never", "true": "yes"},
    "visits": {"type": "integer", "lower": 0, "upper": 20, "spikes": [0], "edges": [0, 1, 3, 8]},
    "weight": {
        "type": "number",
        "lower": 40,
        "upper": 120,
        "bins": 4,
        "decimals": 1,
        "missing": True,
        "missing_codes": ["999"],
    },
    "joined": {"type": "datetime", "lower": "2020-01-01", "upper": "2023-12-31", "bins": 3},
    "illness": {
        "type": "text-code",
        "codes": ["E10.1", "E11.9", "E11.65", "I10"],
        "prefix": 3,
        "missing": True,
    },
}
DERIVED: dict[str, dict[str, Any]] = {
    "load": {
        "type": "number",
        "lower": 0,
        "upper": 150,
        "decimals": 1,
        "missing": True,
        "derived": "visits + weight",
    },
    "left": {
        "type": "datetime",
        "lower": "2020-01-01",
        "upper": "2024-12-31",
        "derived": "joined + visits",
    },
}
ARROW = {
    "visits": pa.float64(),
    "weight": pa.float64(),
    "joined": pa.date32(),
    ID: pa.int64(),
}  # all others are texts


def row_of(rng: Rng) -> Row:
    """An ordinary row; smoking depends on sex."""
    sex = str(rng.choice(["female", "male"]))
    day = dt.date(2020, 1, 1) + dt.timedelta(days=int(rng.integers(1400)))
    return {
        "sex": sex,
        "grade": rng.choice(["low", "middle", "high", "-9", None]),
        "smoker": "yes" if rng.random() < (0.9 if sex == "male" else 0.1) else "never",
        "visits": int(rng.integers(0, 9) * (rng.random() < 0.6)),
        "weight": 999 if rng.random() < 0.05 else round(float(rng.uniform(45, 110)), 1),
        "joined": day.isoformat(),
        "illness": rng.choice(["E10.1", "E11.9", "E11.65", "I10", None]),
    }


def table_of(rows: int, rng: Rng, *, ids: bool) -> pd.DataFrame:
    """`rows` ordinary rows; with `ids`, of units of one to six rows."""
    made = pd.DataFrame([row_of(rng) for _ in range(rows)], columns=list(COLUMNS), dtype=object)
    if ids:
        made.insert(0, ID, rng.integers(0, max(1, rows // 2), rows).astype(object))
    return made


# --- neighbours ---

ODD: dict[str, Callable[[Rng], Row]] = {
    "ordinary": row_of,
    "isolated": lambda rng: {
        "sex": "male",
        "grade": "high",
        "smoker": "never",
        "visits": 20,
        "weight": 120,
        "joined": "2023-12-31",
        "illness": "E10.1",
    },
    "misfits": lambda rng: {
        "sex": "else",
        "grade": "none",
        "smoker": "perhaps",
        "visits": -7,
        "weight": 1e300,
        "joined": "no day",
        "illness": "Z99",
    },
    "empty": lambda rng: dict.fromkeys(COLUMNS),
    "points": lambda rng: {
        **row_of(rng),
        "visits": rng.choice([np.nan, np.inf, -0.0, 1.5]),
        "weight": rng.choice([np.nan, -np.inf, -0.0, 5e-324]),
    },
    "far days": lambda rng: {
        **row_of(rng),
        "joined": str(rng.choice(["0001-01-01", "9999-12-31", "1677-09-20", "2262-04-12"])),
    },
    "long texts": lambda rng: {**row_of(rng), "sex": "x" * 70_000, "illness": "E11" + "9" * 5000},
    "strange texts": lambda rng: {
        **row_of(rng),
        "sex": "\u0661=1+1 '\"; drop",
        "grade": "\U0001f600",
        "smoker": " yes ",
    },
}
"""Rows that one more unit may have."""


def _put(table: pd.DataFrame, rows: list[Row], place: int) -> pd.DataFrame:
    more = pd.DataFrame(rows, columns=list(table), dtype=object)
    parts = [part for part in (table[:place], more, table[place:]) if len(part)]
    return pd.concat(parts, ignore_index=True)


def _without(table: pd.DataFrame, place: int) -> pd.DataFrame:
    """Without the unit that has the row at `place`."""
    gone = table[ID] == table[ID].iloc[place] if ID in table else table.index == place
    return table[~gone].reset_index(drop=True)


def neighbour(table: pd.DataFrame, rng: Rng, *, replace: bool) -> tuple[str, pd.DataFrame]:
    """A neighbour of `table`, and what it is called; with `replace` of as many rows, where no ids
    are the unit.
    """
    place = int(rng.choice([0, len(table) - 1, rng.integers(max(1, len(table)))]))
    gone = len(table) > 1 and rng.random() < 0.25
    if gone and not replace:
        return f"without row {place}", _without(table, place)
    kind = str(rng.choice([*ODD, "twin"])) if len(table) else str(rng.choice(list(ODD)))
    row = dict(table.iloc[place]) if kind == "twin" else ODD[kind](rng)
    left = _without(table, place) if replace and len(table) else table
    place = min(max(place, 0), len(left)) if rng.random() < 0.5 else len(left)
    if ID not in table:
        return f"{kind} row at {place}", _put(left, [row], place)
    if rng.random() < 0.3 and len(left):
        return f"{kind} row of a known id at {place}", _put(
            left, [{**row, ID: left[ID].iloc[0]}], place
        )
    rows = int(rng.choice([1, 2, 9]))
    return f"{rows} {kind} rows of a new id at {place}", _put(
        left, [{**row, ID: 10**6} for _ in range(rows)], place
    )


# --- sources ---


def write_csv(table: pd.DataFrame, folder: Path) -> None:
    """As `table.csv`; a missing value is an empty field."""
    table.to_csv(folder / "table.csv", index=False)


def write_parquet(table: pd.DataFrame, folder: Path) -> None:
    """As two files of the folder `table`, in types that do not follow from the rows."""
    (folder / "table").mkdir()
    kinds = {name: ARROW.get(name, pa.string()) for name in table}
    columns = {
        name: pa.array([_fitted(value, kind) for value in table[name]], kind)
        for name, kind in kinds.items()
    }
    whole = pa.table(columns)
    for number, part in enumerate((whole[: len(table) // 2], whole[len(table) // 2 :])):
        pq.write_table(part, folder / "table" / f"{number}.parquet")


def _fitted(value: Any, kind: pa.DataType) -> Any:
    """`value` in a column of Arrow; None where it has no place there."""
    if value is None:
        return None
    try:
        if kind == pa.date32():
            return dt.date.fromisoformat(str(value))
        return str(value) if kind == pa.string() else float(value)
    except ValueError:
        return None


def write_sqlite(table: pd.DataFrame, folder: Path) -> None:
    """As the table `people` of a database, whose columns have no types."""
    names = ", ".join(table)
    with closing(sqlite3.connect(folder / "table.db")) as database, database:
        database.execute(f"CREATE TABLE people ({names})")
        places = ", ".join("?" * table.shape[1])
        rows = [tuple(map(_plain, row)) for row in table.itertuples(index=False, name=None)]
        database.executemany(f"INSERT INTO people VALUES ({places})", rows)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def write_nothing(table: pd.DataFrame, folder: Path) -> None:
    """The rows are given from Python."""
