"""Each engine reads each value as reading into memory does, or refuses its type before it looks."""

import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from synthdp.data import ColumnDomain, Domain, LevelGroups, encode_column
from synthdp.errors import DataError
from synthdp.privacy import read_query
from synthdp.privacy.engines import statements
from synthdp.privacy.engines.on_arrow import ArrowEngine
from synthdp.privacy.engines.on_sql import SqlEngine
from synthdp.privacy.engines.opening import find_parts
from synthdp.privacy.engines.statements import Kind, check_kinds, levels_of
from synthdp.spec import TextCode
from synthdp.spec.model import Categorical, Column, Datetime, Number, SqlSource
from tests.privacy.engines.tables import (
    ALL,
    BY_ROW,
    COLUMNS,
    DOMAIN,
    arrow,
    expected,
    misfits_of,
    reading_of,
    rows,
    same,
    write,
)

# Shrinking takes minutes: a failure names its column and value.
QUICK = settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
    database=None,
    derandomize=True,
)
LONG = settings(QUICK, max_examples=1500, derandomize=False)


KINDS: dict[str, Kind] = {
    **dict.fromkeys(("string", "large_string"), "text"),
    **dict.fromkeys(("int64", "int32", "uint8"), "whole"),
    **dict.fromkeys(("double", "float"), "real"),
    **dict.fromkeys(("timestamp[us]", "timestamp[ms]"), "instant"),
    **{"bool": "truth", "date32[day]": "day", "decimal128(20, 2)": "decimal"},
}


def searched(column: ColumnDomain, kind: Kind, values: list[Any]) -> list[int]:
    """The level of each value by the search that a database does (`statements.Levels`)."""
    found = levels_of(column, kind)
    times = kind in ("day", "instant")
    steps = [(np.datetime64(at) if times else at, level) for at, level in found.steps]

    def level(value: Any) -> int:
        if value is None or value != value:
            return found.null
        if value in dict(found.whole):
            return dict(found.whole)[value]
        if not column.ranged:
            return dict(found.keys).get(value[: found.prefix] if found.prefix else value, 0)
        own = np.datetime64(value) if times else float(value)
        return next((level for at, level in reversed(steps) if own >= at), found.other)

    return [level(value) for value in values]


def check(values: dict[str, list[Any]]) -> None:
    table = arrow(values)
    with tempfile.TemporaryDirectory() as folder:
        write(table, Path(folder))
        engine = ArrowEngine(reading_of(DOMAIN), find_parts(".", Path(folder)))
        assert same(engine.count(ALL, BY_ROW), expected(DOMAIN, table, BY_ROW))
        assert engine.survey().misfits.tolist() == misfits_of(DOMAIN, table)
    for name, (_, kind) in COLUMNS.items():
        column = DOMAIN[name]
        cells = table.column(name).to_pylist()
        found = searched(column, KINDS[str(kind)], cells)
        wanted = encode_column(column, table.column(name)).codes.tolist()
        wrong = [(v, a, b) for v, a, b in zip(cells, found, wanted, strict=True) if a != b]
        assert not wrong, (name, wrong)


@pytest.mark.check
@QUICK
@given(rows())
def test_every_value_has_the_level_that_it_has_in_memory(values: dict[str, list[Any]]) -> None:
    check(values)


@pytest.mark.slow
@LONG
@given(rows())
def test_every_value_has_the_level_that_it_has_in_memory_at_length(
    values: dict[str, list[Any]],
) -> None:
    check(values)


def test_the_identity_is_seen_to_fail_where_a_step_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Falsifier: a number of 64 bits next to an edge is all that tells the two apart."""
    monkeypatch.setattr(statements.np, "nextafter", lambda x, _: x + 1e-3)
    with pytest.raises(AssertionError):
        test_every_value_has_the_level_that_it_has_in_memory()


MIXED: list[Any] = [
    *(None, 1, 1.0, "1", "01", " 1", b"1", 0.5, "a", "", float("inf"), -0.0, 2**62, "2020-02-01")
]


@pytest.mark.parametrize(
    "column",
    [
        Categorical(
            type="categorical",
            categories=("1", "a", "01", "0.5"),
            missing=True,
            missing_codes=("inf",),
        ),
        Number(type="number", lower=0, upper=2, bins=3),
        Datetime(type="datetime", lower="2020-01-01", upper="2021-01-01", bins=3),
    ],
)
@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le"])
def test_sqlite_reads_each_value_by_its_own_type(
    column: Column, encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a text that is none in its encoding, which the driver refuses by itself."""
    with sqlite3.connect(tmp_path / "s.db") as connection:
        connection.execute(f"pragma encoding = '{encoding}'")
        connection.execute("create table t (v)")
        connection.executemany("insert into t values (?)", [(v,) for v in MIXED])
        connection.execute("insert into t values (cast(x'ff41ff' as text))")
    connection.close()
    monkeypatch.setenv("TEST_DB_URL", f"sqlite:///{tmp_path / 's.db'}")
    domain = Domain.from_spec({"v": column})
    source = SqlSource(kind="sql", url_env="TEST_DB_URL", query="select v from t;")
    engine = SqlEngine(source, reading_of(domain), list, Path())
    given = read_query(source.model_copy(update={"query": "select v from t"}), **HERE)["v"]
    assert given[:-1].tolist() == MIXED and isinstance(given.iloc[-1], bytes | str)
    whole = encode_column(domain["v"], pd.Series([*MIXED, b"\xffA\xff"], dtype=object))
    assert encode_column(domain["v"], given).codes.tolist() == whole.codes.tolist()
    (found,) = engine.count(LevelGroups(domain, {}), [("v",)])
    assert found.tolist() == np.bincount(whole.codes, minlength=domain["v"].levels).tolist()
    wanted = [[whole.wrong_type, whole.outside, whole.unexpected_missing]]
    assert engine.survey().misfits.tolist() == wanted


HERE: dict[str, Any] = {"folder": Path(), "check": list, "check_rows": float}
DAY = Datetime(type="datetime", lower="2020-01-01", upper="2021-01-01", bins=2)
LETTER = Categorical(type="categorical", categories=("a",))
CODE = TextCode(type="text-code", codes=("a1",), prefix=1)


@pytest.mark.parametrize(
    ("column", "kind", "told"),
    [
        (Number(type="number", lower=0, upper=2, bins=2), "text", "holds texts"),
        (DAY, "text", "holds texts"),
        (DAY, "PostgreSQL's timestamp with time zone", "values of type PostgreSQL's timestamp"),
        (LETTER, "day", "holds dates"),
        (CODE, "decimal", "holds decimal numbers"),
        (LETTER, "PostgreSQL's time", "values of type PostgreSQL's time"),
    ],
)
def test_types_that_are_not_proved_are_refused(column: Column, kind: Any, told: str) -> None:
    with pytest.raises(DataError, match=told) as caught:
        check_kinds(Domain.from_spec({"v": column}), {"v": kind})
    assert "CAST" in str(caught.value) and caught.value.exit_code == 5


def test_a_truth_value_that_is_no_category_is_no_key() -> None:
    """As a key it was read as the first category, and not told as outside the domain."""
    column = Categorical(type="categorical", categories=("true", "a"))
    keys = levels_of(Domain.from_spec({"v": column})["v"], "truth").keys
    assert keys == ((True, 0),)


def test_groups_of_levels_are_sums_of_levels(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    domain = Domain.from_spec({"x": Number(type="number", lower=0, upper=1, bins=12, missing=True)})
    values = np.where(rng.random(500) < 0.1, np.nan, rng.random(500))
    write(pa.table({"x": pa.array(values)}), tmp_path, files=3)
    groups = LevelGroups(domain, {"x": (0, 1, 5, 12)})
    parts = find_parts("*.parquet", tmp_path)
    engine = ArrowEngine(reading_of(domain), parts)
    (fine,) = engine.count(LevelGroups(domain, {}), [("x",)])
    wanted = [fine[0], fine[1:5].sum(), fine[5:12].sum(), fine[12]]
    assert same(engine.count(groups, [("x",)]), [np.array(wanted)])
