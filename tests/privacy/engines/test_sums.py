"""What rows add has the same sum in every engine as in memory, to the last bit of every value."""

import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings

from synthdp.data import Basis, Domain, LevelGroups, cleaned, encode, id_text, operand_values
from synthdp.errors import BoundaryError
from synthdp.privacy import table as adding
from synthdp.privacy.engines import (
    Engine,
    EngineTable,
    Reading,
    coin,
    kept_rows,
    limit,
    on_arrow,
    on_dask,
)
from synthdp.privacy.engines.on_arrow import ArrowEngine, coins_of, numbers_of
from synthdp.privacy.engines.on_sql import SqlEngine
from synthdp.privacy.engines.opening import find_parts
from synthdp.privacy.mechanisms.moments import MomentMatrix
from synthdp.privacy.mechanisms.scores import ScoreBudget, Scorecard
from synthdp.privacy.mechanisms.sums import GRID, NUMBER, Arm, Bounded, ProductSums, StratumSums
from synthdp.privacy.noise import Streams
from synthdp.privacy.table import Integers, Side, Summands, Table
from synthdp.spec import parse
from synthdp.spec.model import Categorical, Column, Integer, Number
from tests.privacy.conftest import Silent
from tests.privacy.engines import tables
from tests.privacy.engines.tables import ROW, ROWS, Here, arrow, reading_of, rows, write
from tests.privacy.engines.test_counts import KEY, people, table_in_sqlite
from tests.privacy.engines.test_values import LONG, QUICK

pytestmark = pytest.mark.check

COLUMNS: dict[str, Column] = {
    "sex": Categorical(type="categorical", categories=("f", "m"), missing=True),
    "age": Integer(type="integer", lower=0, upper=99, bins=9),
    "ward": Categorical(type="categorical", categories=tuple(f"w{i}" for i in range(20))),
    "pay": Number(type="number", lower=0, upper=10, bins=3, missing=True),
}
DOMAIN = Domain.from_spec(COLUMNS)
SIDES: tuple[Side, ...] = ("fit", "held out", "all")
HELD: dict[str, Any] = {"holdout": 0.3, "coins": "ab" * 16}


def arm(text: str) -> Arm:
    found, mistakes = parse(text, COLUMNS)
    assert found is not None, mistakes
    return Arm(((found, True),))


def measured() -> list[Any]:
    """Each kind of sum, with conditions that end inside of bins."""
    pay, age = Bounded("pay", 0.5, 7.3), Bounded("age", 0.0, 90.0)
    products = ((), (("sex", 1),), (("age", NUMBER),), (("age", NUMBER), ("sex", 1)))
    basis = Basis(DOMAIN, ("sex", "age", "pay"), degree=2, interaction=2)
    arms = (arm("age > 37 and pay < 6.1"), arm("sex == 'm'"))
    return [
        StratumSums(DOMAIN, arms, ("ward",), pay, 1.0),
        StratumSums(DOMAIN, (Arm(),), (), None, 1.0),
        StratumSums(DOMAIN, arms, ("age", "ward"), pay, 1.0, (("age", (0.0, 37.0, 60.0)),)),
        StratumSums(DOMAIN, (arm("pay is missing"),), ("sex",), age, 1.0),
        ProductSums(DOMAIN, arm("pay > 1"), (age,), products, 1.0),
        MomentMatrix(basis, basis.norm(deviations=2.0), 1.0),
    ]


def paid(many: int, *, ids: int) -> pa.Table:
    """`people` with a number that tells rows of the same levels apart."""
    pay = np.random.default_rng(6).normal(5, 3, many)
    pay[::11] = np.nan
    table = people(many, ids=ids).append_column("pay", pa.array(pay, from_pandas=True))
    return table.select([*COLUMNS, "id"])


def in_memory(domain: Domain, table: pa.Table) -> Table:
    """As `source.fit_table` makes it of the same cells."""
    codes, encoded = encode(domain, table)
    return Table(codes, cleaned(domain.columns, encoded), np.zeros(len(codes), dtype=bool), {})


def staying(table: pa.Table, most: int, rate: float = 0.0) -> Table:
    """The rows that stay, by the definition, and which of them are held out."""
    whole = in_memory(DOMAIN, table)
    ids = np.array([id_text(v) for v in table.column("id").to_pylist()], dtype=object)
    numbers = numbers_of(DOMAIN, whole.frame[["age", "pay"]])
    kept = kept_rows(ids, whole.codes, max_rows=most, key=KEY, numbers=numbers)
    held = np.array([coin("ab" * 16, unit) < limit(rate) for unit in ids[kept]])
    return Table(whole.codes[kept], whole.frame[kept], held, {})


def same_sums(engine: Engine, table: Table) -> bool:
    return all(
        np.array_equal(engine.add_up(m, side), table.add_up(m, side))
        for m in measured()
        for side in SIDES
    )


def test_sums_are_those_of_memory(tmp_path: Path) -> None:
    table = paid(900, ids=120)
    write(table, tmp_path, files=5, rows_of_group=40)
    parts, wanted = find_parts(".", tmp_path), in_memory(DOMAIN, table)
    assert same_sums(ArrowEngine(reading_of(DOMAIN), parts, threads=2), wanted)
    assert same_sums(Here(reading_of(DOMAIN), parts, 900), wanted)
    count, own = measured()[1], EngineTable(ArrowEngine(reading_of(DOMAIN), parts), {})
    assert own.add_up(count).tolist() == own.add_up(count, "all").tolist() == [900 * GRID]


def test_the_same_rows_of_each_id_are_added_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the order of rows; and their levels are those that are counted."""
    table = paid(900, ids=120)
    write(table.take(np.random.default_rng(3).permutation(900)), tmp_path, files=4)
    wanted, levels = staying(table, 3), StratumSums(DOMAIN, (Arm(),), ("age", "ward"), None, 1.0)
    engine = Here(reading_of(DOMAIN, "id", 3), find_parts(".", tmp_path), 900)
    assert 300 < len(wanted.codes) < 600 and same_sums(engine, wanted)
    (counted,) = engine.count(LevelGroups(DOMAIN, {}), [("age", "ward")])
    assert np.array_equal(engine.add_up(levels, "fit").reshape(counted.shape), counted * GRID)
    monkeypatch.setattr(on_dask, "SHARD_ROWS", 200)
    assert same_sums(engine, wanted)


def check_drawn(engine: Engine, table: Table) -> None:
    """All rows where there are few, and few of them, each once, where there are many."""

    def listed(codes: Any, frame: pd.DataFrame, held_out: Any) -> Counter[str]:
        numbers, texts = numbers_of(DOMAIN, frame[["age", "pay"]]), frame[["sex", "ward"]]
        rows = zip(
            codes.tolist(), numbers.tolist(), texts.to_numpy().tolist(), held_out, strict=True
        )
        return Counter(map(repr, rows))

    every = listed(table.codes, table.frame, table.held_out)
    assert listed(*engine.draw(10_000)) == every
    some, other = listed(*engine.draw(200)), listed(*engine.draw(200))
    assert some.total() == other.total() == 200 and some <= every and other <= every
    assert some != other, "the same with probability below 1e-50"


def test_rows_are_drawn_for_the_steward(tmp_path: Path) -> None:
    table = paid(900, ids=120)
    write(table, tmp_path, files=4)
    parts, whole = find_parts(".", tmp_path), in_memory(DOMAIN, table)
    check_drawn(ArrowEngine(reading_of(DOMAIN), parts, threads=2), whole)
    check_drawn(Here(reading_of(DOMAIN), parts, 900), whole)
    check_drawn(Here(reading_of(DOMAIN, "id", 3), parts, 900), staying(table, 3))
    judged = EngineTable(ArrowEngine(reading_of(DOMAIN), parts), {"age": {}}).judged(200)
    assert len(judged.codes) == 200 and not judged.held_out.any() and judged.misfits == {"age": {}}
    assert whole.judged(200) is whole


def check_held_out(engine: Engine, table: Table) -> None:
    """Counts, sums, samples and draws of one split: what fits, and what is held out."""
    tables = [("sex",), ("ward", "sex")]
    assert same_sums(engine, table) and 100 < table.held_out.sum() < len(table.codes) / 2
    found, wanted = (e.count(LevelGroups(DOMAIN, {}), tables) for e in (engine, table))
    assert all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))
    sampled = engine.sample(1.0, Streams.fresh())
    assert sorted(sampled.tolist()) == sorted(table.fit_codes.tolist())
    check_drawn(engine, table)


def test_units_are_held_out_by_their_own_coins(tmp_path: Path) -> None:
    table = paid(900, ids=120)
    write(table.take(np.random.default_rng(3).permutation(900)), tmp_path, files=4)
    own = replace(reading_of(DOMAIN, "id", 3), **HELD)
    wanted = staying(table, 3, 0.3)
    check_held_out(Here(own, find_parts(".", tmp_path), 900), wanted)


def test_rows_are_held_out_by_their_places(tmp_path: Path) -> None:
    """The same at each pass, by coins of .3: outside 184 to 356 of 900 with chance below 1e-9."""
    table, own = paid(900, ids=120), replace(reading_of(DOMAIN), **HELD)
    write(table, tmp_path, files=4)
    parts, whole = find_parts(".", tmp_path), in_memory(DOMAIN, table)
    held = np.concatenate([coins_of(own, part) for part in parts.parts])
    assert len(held) == 900 and 184 <= held.sum() <= 356
    assert len({coins_of(own, p)[:200].tobytes() for p in parts.parts}) == 4
    other = replace(own, coins="cd" * 16)
    assert not np.array_equal(held, np.concatenate([coins_of(other, p) for p in parts.parts]))
    wanted = Table(whole.codes, whole.frame, held, {})
    for engine in (ArrowEngine(own, parts, threads=2), Here(own, parts, 900)):
        check_held_out(engine, wanted)


def test_each_row_is_drawn_as_often_as_another(tmp_path: Path) -> None:
    """100 draws of 30 of 90 rows: outside of 5 to 65 one of them falls with chance below 1e-8."""
    domain = Domain.from_spec({"n": Integer(type="integer", lower=0, upper=89, bins=90)})
    table = pa.table({"n": pa.array(range(90)), "id": pa.array(np.arange(90) % 40)})
    write(table, tmp_path, files=3)
    parts = find_parts(".", tmp_path)
    arrow_engine = ArrowEngine(reading_of(domain), parts)
    by_id = Here(reading_of(domain, "id", 3), parts, 90)
    for draw in (arrow_engine.draw, by_id.draw):
        often = np.bincount(np.concatenate([draw(30)[0].ravel() for _ in range(100)]), minlength=90)
        assert often.sum() == 3000 and often.min() >= 5 and often.max() <= 65


def test_a_batch_that_is_added_twice_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Falsifier of the sum over batches."""
    table, true_sided = paid(300, ids=50), on_arrow.sided
    write(table, tmp_path, files=3)
    engine = ArrowEngine(reading_of(DOMAIN), find_parts(".", tmp_path))
    wanted = in_memory(DOMAIN, table)
    assert same_sums(engine, wanted)

    def twice(*args: Any) -> Iterator[pa.RecordBatch]:
        for batch in true_sided(*args):
            yield from (batch, batch)

    monkeypatch.setattr(on_arrow, "sided", twice)
    assert not any(np.array_equal(engine.add_up(m, "fit"), wanted.add_up(m)) for m in measured())


def test_rows_that_are_not_ordered_by_their_numbers_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Falsifier: which of an id's rows of the same levels stays then hangs on the order of rows."""
    table = paid(900, ids=2)
    write(table, tmp_path)
    engine = Here(reading_of(DOMAIN, "id", 64), find_parts(".", tmp_path), 900)
    assert same_sums(engine, staying(table, 64))
    monkeypatch.setattr(on_arrow, "numbers_of", lambda domain, values: None)
    assert not same_sums(engine, staying(table, 64))


def test_scores_are_counted_by_the_engine(tmp_path: Path) -> None:
    """The scores that are published, of a synthetic table of 50 rows."""
    table = paid(300, ids=50)
    write(table, tmp_path, files=3)
    parts, own = find_parts(".", tmp_path), replace(reading_of(DOMAIN), **HELD)
    every = in_memory(DOMAIN, table)
    held = np.concatenate([coins_of(own, part) for part in parts.parts])
    whole = Table(every.codes, every.frame, held, {})
    rng, size = np.random.default_rng(8), DOMAIN["sex"].levels
    points = tuple(rng.integers(0, 9, (levels, size)) for levels in DOMAIN.sizes)
    scored = ScoreBudget(DOMAIN, ("sex",), 2.0).choose(
        whole.codes[:50], (Scorecard("sex", points),)
    )
    there = EngineTable(ArrowEngine(own, parts), {})
    found, wanted = (scored.run(t, Silent.fresh()) for t in (there, whole))
    assert found.misplaced.tolist() == wanted.misplaced.tolist()
    assert 0 < found.misplaced[0] < found.misplaced[1] < 300
    assert found.answers.tolist() == wanted.answers.tolist() and found.answers.sum() == held.sum()


class Bits(Summands):
    """The bits of every number of every row, so that a sum shows each value as it was read."""

    reads, size = frozenset(tables.DOMAIN.names), ROWS * len(tables.DOMAIN)

    def block(self, frame: Any, codes: Any) -> Integers:
        found = np.zeros((ROWS, len(tables.DOMAIN)), dtype=np.int64)
        for i, column in enumerate(tables.DOMAIN.columns):
            own = operand_values(column, codes[:, i], frame.get(column.name)) + 0.0
            bits = np.where(np.isnan(own), np.nan, own).view(np.int64)
            found[codes[:, tables.DOMAIN.index(ROW)], i] = bits
        return found.ravel()


def check(values: dict[str, list[Any]]) -> None:
    """With ids too, which Arrow is not asked of."""
    table = arrow(values)
    wanted = in_memory(tables.DOMAIN, table).add_up(Bits()).reshape(ROWS, -1)
    names = {name: name for name in tables.DOMAIN.names}
    by_id = Reading(tables.DOMAIN, {**names, "id": ROW}, "id", 1, KEY)
    with tempfile.TemporaryDirectory() as folder:
        write(table, Path(folder))
        parts = find_parts(".", Path(folder))
        for engine in (ArrowEngine(reading_of(tables.DOMAIN), parts), Here(by_id, parts, ROWS)):
            found = engine.add_up(Bits(), "fit").reshape(ROWS, -1)
            at = np.argwhere(found != wanted)
            wrong = {(tables.DOMAIN.names[i], int(row)) for row, i in at}
            assert not wrong, (type(engine).__name__, wrong)


@QUICK
@given(rows())
def test_every_number_is_that_of_memory(values: dict[str, list[Any]]) -> None:
    check(values)


@pytest.mark.slow
@settings(LONG, max_examples=500)
@given(rows())
def test_every_number_is_that_of_memory_at_length(values: dict[str, list[Any]]) -> None:
    check(values)


def test_engine_sql_adds_up_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = table_in_sqlite(people(20, ids=5), tmp_path / "s.db", monkeypatch)
    domain = Domain(DOMAIN.columns[:3])
    table = EngineTable(SqlEngine(source, reading_of(domain), list, Path()), {})
    with pytest.raises(BoundaryError, match="adds up no values"):
        table.add_up(StratumSums(domain, (Arm(),), (), None, 1.0))


def test_a_sum_does_not_depend_on_its_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    table = in_memory(DOMAIN, paid(300, ids=50))
    whole = [table.add_up(m) for m in measured()]
    monkeypatch.setattr(adding, "CHUNK_OF_NUMBERS", 7)
    assert all(np.array_equal(table.add_up(m), w) for m, w in zip(measured(), whole, strict=True))
