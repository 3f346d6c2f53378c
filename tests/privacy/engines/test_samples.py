"""Who is in a secret sample or held out: by coins of each call and part, that no log has."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from synthdp.data import Domain, LevelGroups
from synthdp.privacy.engines import Engine, EngineTable, coin, limit, on_dask, opening
from synthdp.privacy.engines.on_arrow import ArrowEngine, coins_of
from synthdp.privacy.engines.opening import find_parts
from synthdp.privacy.engines.statements import POSTGRESQL, Dialect, Statement
from synthdp.privacy.mechanisms.sums import GRID, Arm, StratumSums
from synthdp.privacy.noise import Streams
from synthdp.privacy.table import Table
from synthdp.spec.model import Categorical, Compute, Dataset, Integer
from tests.builders import skeleton
from tests.privacy.engines.tables import Here, reading_of, write
from tests.privacy.engines.test_counts import sqlite_engine

UNITS = 120
DOMAIN = Domain.from_spec(
    {
        "sex": Categorical(type="categorical", categories=("f",)),
        "age": Integer(type="integer", lower=0, upper=UNITS - 1, bins=UNITS),
        "ward": Categorical(type="categorical", categories=("w",)),
    }
)
TABLE = pa.table(
    {
        "sex": pa.array(["f"] * UNITS),
        "age": pa.array(range(UNITS), pa.int64()),
        "ward": pa.array(["w"] * UNITS),
        "id": pa.array([f"p{i}" for i in range(UNITS)]),
    }
)
BY_ID = reading_of(DOMAIN, "id", 3)
SECRET = "5ec2e7" * 5 + "ab"


def in_memory(folder: Path, patch: pytest.MonkeyPatch) -> Table:
    codes = np.zeros((UNITS, 3), dtype=np.uint16)
    codes[:, 1] = np.arange(UNITS)
    held_out, units = np.zeros(UNITS, dtype=bool), np.arange(UNITS)
    return Table(codes, pd.DataFrame(), held_out, {}, units)


def engine_table(engine: Engine) -> Table:
    return EngineTable(engine, {})


def parts_of(folder: Path) -> Any:
    return find_parts(".", folder)


TABLES: dict[str, Callable[[Path, pytest.MonkeyPatch], Table]] = {
    "memory": in_memory,
    "arrow": lambda path, _: engine_table(ArrowEngine(reading_of(DOMAIN), parts_of(path))),
    "dask": lambda path, _: engine_table(Here(reading_of(DOMAIN), parts_of(path), UNITS)),
    "dask, by id": lambda path, _: engine_table(Here(BY_ID, parts_of(path), UNITS)),
    "sqlite": lambda folder, patch: engine_table(sqlite_engine(TABLE, folder, patch, BY_ID)),
}


@pytest.mark.parametrize("kind", TABLES)
def test_each_training_has_a_sample_of_its_own(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The accountant composes two trainings as of independent samples. Each of 120 units is in both
    or in neither of two such samples with chance 1/2, so that they are equal with 2^-120; and one
    is empty or whole as seldom.
    """
    write(TABLE, tmp_path, files=3)
    table, streams = TABLES[kind](tmp_path, monkeypatch), Streams.fresh()
    drawn = [
        frozenset(table.sampled_codes(0.5, own)[:, 1].tolist())
        for own in (streams, streams, Streams.fresh(), Streams.fresh())
    ]
    assert len(set(drawn)) == 4 and all(0 < len(sample) < UNITS for sample in drawn)


KINDS: dict[str, Any] = {"sex": "text", "age": "whole", "ward": "text", "id": "text"}


def sampled_in(dialect: Dialect, id_column: str | None) -> tuple[str, list[Any]]:
    """The statement that draws a sample under `SECRET`, and all that is bound to it."""
    made = Statement(dialect)
    text = made.sampled(reading_of(DOMAIN, id_column, 3), KINDS, rate=0.5, key=SECRET)
    return text, list(made.values.values())


@pytest.mark.parametrize("id_column", [None, "id"])
def test_no_key_of_a_sample_is_said_to_postgresql(id_column: str | None) -> None:
    """A log has statements and what is bound: the server draws the key itself, once for all."""
    text, bound = sampled_in(POSTGRESQL, id_column)
    assert SECRET not in text and SECRET not in bound
    assert re.findall(r"gen_random_uuid\(\)", text) == ["gen_random_uuid()"]
    assert "(SELECT CAST(gen_random_uuid() AS TEXT)) || '|'" in text
    text, bound = sampled_in(replace(POSTGRESQL, fresh=None), id_column)
    assert SECRET in bound, "the falsifier: a dialect that draws no key is told one"


def test_rows_at_one_place_of_several_files_have_coins_of_their_own(tmp_path: Path) -> None:
    """Three files of 40 rows: two of them have equal coins of chance .4 with 2^-38."""
    write(TABLE, tmp_path, files=3, rows_of_group=40)
    reading = replace(reading_of(DOMAIN), holdout=0.4, coins="ab" * 16)
    parts = find_parts(".", tmp_path)
    held = [coins_of(reading, part) for part in parts.parts]
    assert [len(own) for own in held] == [40, 40, 40]
    assert len({own.tobytes() for own in held}) == 3
    again = [coins_of(reading, part) for part in parts.parts]
    assert all(np.array_equal(a, b) for a, b in zip(held, again, strict=True)), "at each pass"
    engine = ArrowEngine(reading, parts)
    (counted,) = engine.count(LevelGroups(DOMAIN, {}), [("age",)])
    assert counted.tolist() == (~np.concatenate(held)).astype(int).tolist()
    assert sorted(engine.sample(1.0, Streams.fresh())[:, 1]) == np.flatnonzero(counted).tolist()


@pytest.mark.parametrize("kind", ["dask, by id", "sqlite"])
def test_no_unit_that_is_held_out_is_counted_or_trained_on(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever door a unit's rows could come through: counts, sums or a training's sample."""
    write(TABLE, tmp_path, files=3)
    table: Any = TABLES[kind](tmp_path, monkeypatch)
    engine = table._engine
    engine = replace(engine, reading=replace(engine.reading, holdout=0.4, coins="ab" * 16))
    held = np.array([coin("ab" * 16, f"p{i}") < limit(0.4) for i in range(UNITS)])
    (counted,) = engine.count(LevelGroups(DOMAIN, {}), [("age",)])
    assert counted.tolist() == (~held).astype(int).tolist() and 0 < held.sum() < UNITS
    assert np.array_equal(np.sort(engine.sample(1.0, Streams.fresh())[:, 1]), np.flatnonzero(~held))
    if kind == "sqlite":
        return
    ages = StratumSums(DOMAIN, (Arm(),), ("age",), None, 1.0)
    for side, wanted in (("fit", ~held), ("held out", held), ("all", held | True)):
        found = engine.add_up(ages, side) // GRID
        assert found.ravel().tolist() == wanted.astype(int).tolist()


def test_each_fitted_row_has_the_number_of_its_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three rows of each id, in three files and seven shards: the age of a row tells its id."""
    monkeypatch.setattr(on_dask, "SHARD_ROWS", 60)
    write(pa.concat_tables([TABLE, TABLE.slice(50), TABLE.slice(0, 50), TABLE]), tmp_path, files=3)
    reading = replace(reading_of(DOMAIN, "id", 2), holdout=0.4, coins="ab" * 16)
    table = engine_table(Here(reading, parts_of(tmp_path), 7 * 60))
    ages, units = table.fit_codes[:, 1], table.fit_units
    assert units is not None and len(units) == len(ages)
    found = np.unique(np.column_stack([ages, units]), axis=0)
    assert len(found) == len(set(found[:, 0])) == len(set(found[:, 1])) == len(ages) / 2
    assert 40 < len(found) < 100, "of 120: outside with probability below 1e-7"
    for kind in ("arrow", "dask"):
        assert TABLES[kind](tmp_path, monkeypatch).fit_units is None, "a row is a unit"


@pytest.mark.parametrize("unit", [{"kind": "row"}, {"kind": "id", "column": "id", "max_rows": 2}])
def test_a_table_is_opened_with_the_declared_holdout_under_its_own_key(
    unit: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a spec says of the unit and of held-out rows reaches the engine; keys are not mixed."""
    monkeypatch.setattr(on_dask, "DaskEngine", Here)
    monkeypatch.setattr(Here, "check", lambda _: None)
    write(TABLE.select(["sex", "age", "ward", *(["id"] if "column" in unit else [])]), tmp_path)
    dataset = Dataset.model_validate(
        {
            **skeleton(UNITS)["dataset"],
            "source": {"kind": "parquet", "path": "."},
            "privacy_unit": {**unit, "meaning": "one"},
        }
    )
    engine = "dask" if "column" in unit else "arrow"
    table = opening.open_table(
        dataset,
        Compute(engine=engine),
        DOMAIN,
        folder=tmp_path,
        keys=("0f" * 16, "ab" * 16),
        holdout=0.4,
        delta=0.0,
    )
    own: Any = table._engine  # type: ignore[attr-defined]
    assert (own.reading.key, own.reading.coins) == ("0f" * 16, "ab" * 16)
    assert (own.reading.max_rows, own.reading.holdout) == (unit.get("max_rows", 1), 0.4)
    (counted,) = table.count(LevelGroups(DOMAIN, {}), [("age",)])
    assert 40 < counted.sum() < 100, "of 120: outside with probability below 1e-7"
