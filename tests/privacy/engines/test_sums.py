"""What rows add has the same sum in every engine as in memory, to the last bit of every value."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthdp.data.basis import Basis
from synthdp.data.domain import Domain
from synthdp.data.encoding import cleaned, encode, operand_values
from synthdp.data.level_groups import LevelGroups
from synthdp.data.one_value import id_text
from synthdp.errors import BoundaryError
from synthdp.privacy.mechanisms import adding
from synthdp.privacy.mechanisms.adding import Integers, Summands
from synthdp.privacy.mechanisms.moments import MomentMatrix
from synthdp.privacy.mechanisms.product_sums import NUMBER, ProductSums
from synthdp.privacy.mechanisms.scores import ScoreBudget
from synthdp.privacy.mechanisms.stratum_sums import GRID, Arm, Bounded, StratumSums
from synthdp.privacy.noise import Streams
from synthdp.privacy.readers.engines import on_arrow, shards
from synthdp.privacy.readers.engines.bounding import kept_rows
from synthdp.privacy.readers.engines.engine import Engine, EngineTable, Reading
from synthdp.privacy.readers.engines.on_arrow import ArrowEngine, numbers_of
from synthdp.privacy.readers.engines.on_duckdb import DuckDbEngine
from synthdp.privacy.readers.engines.on_sql import SqlEngine
from synthdp.privacy.readers.engines.parts import find_parts
from synthdp.privacy.table import Table
from synthdp.spec.expressions.expressions import parse
from synthdp.spec.model import Categorical, Column, Integer, Number
from tests.privacy.engines import tables
from tests.privacy.engines.tables import ROW, ROWS, arrow, reading_of, rows, write
from tests.privacy.engines.test_counts import KEY, in_sqlite, people
from tests.privacy.engines.test_values import LONG, QUICK

COLUMNS: dict[str, Column] = {
    "sex": Categorical(type="categorical", categories=("f", "m"), missing=True),
    "age": Integer(type="integer", lower=0, upper=99, bins=9),
    "ward": Categorical(type="categorical", categories=tuple(f"w{i}" for i in range(20))),
    "pay": Number(type="number", lower=0, upper=10, bins=3, missing=True),
}
DOMAIN = Domain.from_spec(COLUMNS)


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


def staying(table: pa.Table, most: int) -> Table:
    """The rows that stay, by the definition."""
    whole = in_memory(DOMAIN, table)
    ids = np.array([id_text(v) for v in table.column("id").to_pylist()], dtype=object)
    numbers = numbers_of(DOMAIN, whole.frame[["age", "pay"]])
    kept = kept_rows(ids, whole.codes, max_rows=most, key=KEY, numbers=numbers)
    return Table(whole.codes[kept], whole.frame[kept], np.zeros(kept.sum(), dtype=bool), {})


def same_sums(engine: Engine, table: Table) -> bool:
    return all(np.array_equal(engine.add_up(m), table.add_up(m)) for m in measured())


def test_sums_are_those_of_memory(tmp_path: Path) -> None:
    table = paid(900, ids=120)
    write(table, tmp_path, files=5, rows_of_group=40)
    parts, wanted = find_parts(".", tmp_path), in_memory(DOMAIN, table)
    assert same_sums(ArrowEngine(reading_of(DOMAIN), parts, threads=2), wanted)
    assert same_sums(DuckDbEngine(reading_of(DOMAIN), parts), wanted)
    count, own = measured()[1], EngineTable(ArrowEngine(reading_of(DOMAIN), parts), {})
    assert own.add_up(count).tolist() == own.add_up(count, all_rows=True).tolist() == [900 * GRID]


def test_the_same_rows_of_each_id_are_added_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the order of rows; and their levels are those that are counted."""
    table = paid(900, ids=120)
    write(table.take(np.random.default_rng(3).permutation(900)), tmp_path, files=4)
    wanted, levels = staying(table, 3), StratumSums(DOMAIN, (Arm(),), ("age", "ward"), None, 1.0)
    engine = DuckDbEngine(reading_of(DOMAIN, "id", 3), find_parts(".", tmp_path))
    assert 300 < len(wanted.codes) < 600 and same_sums(engine, wanted)
    (counted,) = engine.count(LevelGroups(DOMAIN, {}), [("age", "ward")])
    assert np.array_equal(engine.add_up(levels).reshape(counted.shape), counted * GRID)
    monkeypatch.setattr("synthdp.privacy.readers.engines.on_duckdb.SHARD_ROWS", 200)
    assert same_sums(DuckDbEngine(engine.reading, engine.parts), wanted)


def check_drawn(engine: Engine, table: Table) -> None:
    """All rows where there are few, and few of them, each once, where there are many."""

    def listed(codes: Any, frame: pd.DataFrame) -> Counter[str]:
        numbers = numbers_of(DOMAIN, frame[["age", "pay"]])
        rows = zip(codes.tolist(), numbers.tolist(), frame["sex"], frame["ward"], strict=True)
        return Counter(map(repr, rows))

    every = listed(table.codes, table.frame)
    assert listed(*engine.draw(10_000)) == every
    some, other = listed(*engine.draw(200)), listed(*engine.draw(200))
    assert some.total() == other.total() == 200 and some <= every and other <= every
    assert some != other, "the same with probability below 1e-50"


def test_rows_are_drawn_for_the_steward(tmp_path: Path) -> None:
    table = paid(900, ids=120)
    write(table, tmp_path, files=4)
    parts, whole = find_parts(".", tmp_path), in_memory(DOMAIN, table)
    check_drawn(ArrowEngine(reading_of(DOMAIN), parts, threads=2), whole)
    check_drawn(DuckDbEngine(reading_of(DOMAIN), parts), whole)
    check_drawn(DuckDbEngine(reading_of(DOMAIN, "id", 3), parts), staying(table, 3))
    judged = EngineTable(ArrowEngine(reading_of(DOMAIN), parts), {"age": {}}).judged(200)
    assert len(judged.codes) == 200 and not judged.held_out.any() and judged.misfits == {"age": {}}
    assert whole.judged(200) is whole


def test_each_row_is_drawn_as_often_as_another(tmp_path: Path) -> None:
    """100 draws of 30 of 90 rows: each 33.3 times on average, with a deviation of 4.7. Outside of
    5 to 65 one of the 90 rows falls with probability below 1e-8.
    """
    domain = Domain.from_spec({"n": Integer(type="integer", lower=0, upper=89, bins=90)})
    table = pa.table({"n": pa.array(range(90)), "id": pa.array(np.arange(90) % 40)})
    write(table, tmp_path, files=3)
    parts = find_parts(".", tmp_path)
    arrow_engine = ArrowEngine(reading_of(domain), parts)
    by_id = DuckDbEngine(reading_of(domain, "id", 3), parts)
    for draw in (arrow_engine.draw, by_id.draw):
        often = np.bincount(np.concatenate([draw(30)[0].ravel() for _ in range(100)]), minlength=90)
        assert often.sum() == 3000 and often.min() >= 5 and often.max() <= 65


def test_a_batch_that_is_added_twice_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Falsifier of the sum over batches."""
    table, true_blocks = paid(300, ids=50), on_arrow.blocks
    write(table, tmp_path, files=3)
    engine = ArrowEngine(reading_of(DOMAIN), find_parts(".", tmp_path))
    wanted = in_memory(DOMAIN, table)
    assert same_sums(engine, wanted)

    def twice(*args: Any) -> Iterator[pa.RecordBatch]:
        for batch in true_blocks(*args):
            yield from (batch, batch)

    monkeypatch.setattr(on_arrow, "blocks", twice)
    assert not any(np.array_equal(engine.add_up(m), wanted.add_up(m)) for m in measured())


def test_rows_that_are_not_ordered_by_their_numbers_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Falsifier: which of an id's rows of the same levels stays then hangs on the order of rows."""
    table = paid(900, ids=2)
    write(table, tmp_path)
    engine = DuckDbEngine(reading_of(DOMAIN, "id", 64), find_parts(".", tmp_path))
    assert same_sums(engine, staying(table, 64))
    monkeypatch.setattr(shards, "numbers_of", lambda domain, values: None)
    assert not same_sums(engine, staying(table, 64))


THREE = st.tuples(st.integers(0, 3), st.integers(0, 1), st.sampled_from([0.0, 1.5, 2.0]))
LEVELS = st.lists(THREE, max_size=24)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(LEVELS, LEVELS, st.randoms(use_true_random=False))
def test_what_stays_of_one_id_is_a_function_of_its_own_rows(
    others: list[tuple[int, int, float]], own: list[tuple[int, int, float]], order: Any
) -> None:
    """With their numbers: a unit more changes nothing of others, and adds at most `max_rows`."""

    def stays(listed: list[tuple[str, int, float]]) -> Counter[tuple[str, int, float]]:
        ids = np.array([u for u, _, _ in listed], dtype=object)
        codes = np.array([[level] for _, level, _ in listed], dtype=np.uint16).reshape(-1, 1)
        numbers = np.array([[x] for _, _, x in listed]).reshape(-1, 1)
        kept = kept_rows(ids, codes, max_rows=2, key=KEY, numbers=numbers)
        return Counter(row for row, stay in zip(listed, kept, strict=True) if stay)

    shared = [(f"u{u}", level, x) for u, level, x in others]
    more = [*shared, *(("new", level, x) for _, level, x in own)]
    order.shuffle(more)
    before, after = stays(shared), stays(more)
    assert Counter({row: n for row, n in after.items() if row[0] != "new"}) == before
    assert sum(n for row, n in after.items() if row[0] == "new") == min(2, len(own))
    assert after == stays(sorted(more))


def test_misplaced_rows_are_counted_by_the_engine(tmp_path: Path) -> None:
    """The scores that are published, of a synthetic table of 50 rows."""
    table, domain = paid(300, ids=50), DOMAIN
    write(table, tmp_path, files=3)
    whole = in_memory(domain, table)
    budget = ScoreBudget(domain, (), 2.0)
    scored = budget.choose(whole.codes[:50], ())
    own = EngineTable(ArrowEngine(reading_of(domain), find_parts(".", tmp_path)), {})
    found, wanted = (scored.run(t, Silent.fresh()).misplaced for t in (own, whole))
    assert found.tolist() == wanted.tolist() and 0 < found[0] < found[1] < 300


class Silent(Streams):
    def discrete_gaussian(self, counts: Integers, *, sigma: float) -> Integers:
        return counts


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
    """DuckDB is asked as of ids, which Arrow is not."""
    table = arrow(values)
    wanted = in_memory(tables.DOMAIN, table).add_up(Bits()).reshape(ROWS, -1)
    names = {name: name for name in tables.DOMAIN.names}
    by_id = Reading(tables.DOMAIN, {**names, "id": ROW}, "id", 1, KEY)
    with tempfile.TemporaryDirectory() as folder:
        write(table, Path(folder))
        parts = find_parts(".", Path(folder))
        for engine in (ArrowEngine(reading_of(tables.DOMAIN), parts), DuckDbEngine(by_id, parts)):
            found = engine.add_up(Bits()).reshape(ROWS, -1)
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
    source = in_sqlite(people(20, ids=5), tmp_path / "s.db", monkeypatch)
    domain = Domain(DOMAIN.columns[:3])
    table = EngineTable(SqlEngine(source, reading_of(domain), list), {})
    with pytest.raises(BoundaryError, match="adds up no values"):
        table.add_up(StratumSums(domain, (Arm(),), (), None, 1.0))


def test_a_sum_does_not_depend_on_its_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    table = in_memory(DOMAIN, paid(300, ids=50))
    whole = [table.add_up(m) for m in measured()]
    monkeypatch.setattr(adding, "CHUNK_ROWS", 7)
    assert all(np.array_equal(table.add_up(m), w) for m, w in zip(measured(), whole, strict=True))
