"""Persons with visits that Arrow reads part by part: the rows of each view are those in memory, and
those of a plain walk through the rows; whatever the parts, the order of rows and the other rows.
"""

from __future__ import annotations

import datetime as dt
import itertools
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from benchmarks.linked_engines import SPEC as SPEC_TEXT
from benchmarks.linked_engines import write_tables
from synthdp.data.column_domain import id_text
from synthdp.data.level_groups import LevelGroups
from synthdp.data.visits import OUTER, PERSONS, SECOND, STEPS, VisitFrame
from synthdp.errors import DataError
from synthdp.privacy import linked_rows
from synthdp.privacy.engines import on_arrow, on_visits, parts
from synthdp.privacy.linked import LinkedTable, read_linked
from synthdp.privacy.noise import Streams
from synthdp.privacy.private import _KERNEL_KEY
from synthdp.spec.load.loader import parse_any
from synthdp.spec.model.linked import LinkedSpec
from tests.visits import linked_dict

VIEWS = (PERSONS, OUTER, SECOND, STEPS)
MOST = 4
DAYS = pd.date_range("2019-12-25", "2022-01-05", freq="D")


def spec(engine: str, **more: Any) -> LinkedSpec:
    content = linked_dict() | {"compute": {"engine": engine, "threads": 2}} | more
    for name, table in content["dataset"]["tables"].items():
        table["source"] = {"kind": "parquet", "path": name}
    content["dataset"]["out_of_domain"] = "clamp"
    return LinkedSpec.model_validate(content)


SPEC = spec("arrow")
FRAME = VisitFrame.from_spec(SPEC)


def ids(kind: str, numbers: np.ndarray, rng: np.random.Generator) -> pa.Array:
    """Ids of a kind: the same numbers are the same persons, however they are written."""
    if kind == "text":
        forms = ("{}", " {}", "0{}", "{}.0", "+{}")
        return pa.array([forms[rng.integers(5)].format(n) for n in numbers])
    if kind == "words":
        return pa.array([f"p{n}" for n in numbers])
    if kind == "decimal":
        return pa.array([Decimal(f"{n}.0") for n in numbers])
    return pa.array(numbers).cast(kind)


def made(
    seed: int, *, persons: int = 40, kinds: tuple[str, str] = ("text", "text")
) -> dict[str, pa.Table]:
    """Random tables: few dates, so that there are ties; dates that are none; visits of nobody;
    persons without visits, with one row or two, or with more visits than are kept.
    """
    rng = np.random.default_rng(seed)
    own = np.concatenate([np.arange(persons), rng.integers(0, persons, 5)])
    theirs = rng.integers(0, persons + 6, 6 * persons)
    theirs[theirs % 7 == 3] += 1
    day = [str(DAYS[i].date()) for i in rng.choice(len(DAYS), 25)]
    texts = [*day, "2020-13-45", "soon", "", None]
    several = len(own)
    table = pa.table(
        {
            "id": ids(kinds[0], own, rng),
            "sex": pa.array(rng.choice(["F", "M", "?"], several, p=[0.5, 0.45, 0.05])),
            "birth": pa.array(
                [dt.date(1950 + int(y), 1, 1) for y in rng.integers(-30, 55, several)]
            ),
            "death": pa.array([texts[i] for i in rng.integers(0, len(texts), several)]),
        }
    )
    visits = pa.table(
        {
            "id": ids(kinds[1], theirs, rng),
            "date": pa.array([texts[i] for i in rng.integers(0, len(texts), len(theirs))]),
            "stage": pa.array([str(s) for s in rng.integers(0, 4, len(theirs))]),
            "bp": pa.array(rng.choice([90.0, 120.0, 300.0, np.nan, 99.5], len(theirs))),
            "drug": pa.array(rng.random(len(theirs)) < 0.5),
        }
    )
    return {"persons": table, "visits": visits}


def write(
    tables: dict[str, pa.Table], folder: Path, *, rng: np.random.Generator, files: int = 1
) -> None:
    """Each table in a folder of files, its rows in any order."""
    for name, table in tables.items():
        (folder / name).mkdir(exist_ok=True)
        for old in (folder / name).iterdir():
            old.unlink()
        mixed = table.take(pa.array(rng.permutation(len(table))))
        cuts = np.linspace(0, len(mixed), files + 1).astype(int)
        for i, (a, b) in enumerate(itertools.pairwise(cuts)):
            pq.write_table(mixed.slice(a, b - a), folder / name / f"{i}.parquet", row_group_size=17)


def read(folder: Path, engine: str, *, holdout: float = 0.0, key: int = 1) -> LinkedTable:
    streams = replace(Streams.fresh(), holdout=np.random.Generator(np.random.Philox(key=key)))
    sealed = read_linked(spec(engine), FRAME, folder=folder, holdout=holdout, streams=streams)
    return sealed.unseal(key=_KERNEL_KEY)


def rows(table: LinkedTable, view: str) -> Counter[tuple[int, ...]]:
    return Counter(map(tuple, table.views[view].codes.tolist()))


def counted(table: LinkedTable, view: str) -> list[np.ndarray]:
    """All single columns, some pairs, and one of groups of levels."""
    domain = FRAME.views[view]
    names = domain.names
    tables = [*((n,) for n in names), *itertools.pairwise(names)]
    gap = "visits.gap"
    groups = {gap: (0, 3, 9)} if gap in names else {}
    return table.views[view].count(LevelGroups(domain, groups), tables)


def same(one: LinkedTable, other: LinkedTable) -> bool:
    counts = (
        np.array_equal(a, b)
        for view in VIEWS
        for a, b in zip(counted(one, view), counted(other, view), strict=True)
    )
    alike = all(rows(one, view) == rows(other, view) for view in VIEWS)
    return alike and all(counts) and one.misfits == other.misfits


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches, parts and shards of a few rows each."""
    monkeypatch.setattr(on_arrow, "BATCH_ROWS", 7)
    monkeypatch.setattr(parts, "PART_ROWS", 30)
    monkeypatch.setattr(on_visits, "CHUNK_ROWS", 9)


KINDS = [
    ("text", "text"),
    ("text", "int64"),
    ("int64", "text"),
    ("uint8", "float64"),
    ("decimal", "int32"),
    ("words", "words"),
    ("words", "int64"),
]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kinds", KINDS)
def test_the_views_are_those_in_memory(tmp_path: Path, seed: int, kinds: tuple[str, str]) -> None:
    write(made(seed, kinds=kinds), tmp_path, rng=np.random.default_rng(seed), files=1 + seed)
    engine, memory = read(tmp_path, "arrow"), read(tmp_path, "memory")
    assert same(engine, memory)
    some = rows(engine, STEPS).total()
    assert some == 0 if kinds == ("words", "int64") else some > 40


def walked(tables: dict[str, pa.Table]) -> dict[str, Counter[tuple[Any, ...]]]:
    """The numbers of visits, the stages and the gaps of each person, by a plain walk."""

    def day(text: str | None) -> int | None:
        try:
            return (dt.date.fromisoformat(text or "") - dt.date(1970, 1, 1)).days
        except ValueError:
            return None

    known = {id_text(v.as_py()) for v in tables["persons"]["id"]}
    own: dict[str, list[tuple[Any, ...]]] = {person: [] for person in known}
    first, last = day("2020-01-01"), day("2021-12-31")
    assert first is not None and last is not None
    for row in tables["visits"].to_pylist():
        when, stage = day(row["date"]), min(int(row["stage"]), 3)
        if id_text(row["id"]) in known and when is not None:
            level = 0 if stage == 3 else stage  # no category: the first
            own[id_text(row["id"])].append((min(max(when, first), last), level))
    found: dict[str, Counter[tuple[Any, ...]]] = {"number": Counter(), "steps": Counter()}
    for visits in own.values():
        kept = sorted(visits)[:MOST]
        found["number"][len(kept),] += 1
        for (before, _), (when, stage) in itertools.pairwise(kept):
            gap = max(when - before, FRAME.step)
            found["steps"][stage, bisect_right(FRAME.gap.edges, gap) - 1] += 1
    return found


@pytest.mark.parametrize("seed", range(4))
def test_the_views_are_those_of_a_plain_walk(tmp_path: Path, seed: int) -> None:
    tables = made(seed)
    write(tables, tmp_path, rng=np.random.default_rng(seed), files=3)
    table, domain = read(tmp_path, "arrow"), FRAME.views[STEPS]
    people, steps = table.views[PERSONS].codes, table.views[STEPS].codes
    number = FRAME.views[PERSONS].index("visits.number")
    wanted = walked(tables)
    assert Counter((n,) for n in people[:, number].tolist()) == wanted["number"]
    places = [domain.index("visits.stage"), domain.index("visits.gap")]
    assert Counter(map(tuple, steps[:, places].tolist())) == wanted["steps"]


@pytest.mark.parametrize("seed", range(3))
def test_a_person_is_held_out_of_all_views_or_of_none_as_in_memory(
    tmp_path: Path, seed: int
) -> None:
    write(made(seed, persons=90), tmp_path, rng=np.random.default_rng(seed), files=2)
    engine = read(tmp_path, "arrow", holdout=0.4)
    assert 10 < engine.held_out.sum() < 80 and same(engine, read(tmp_path, "memory", holdout=0.4))
    owners = engine.views[STEPS].units
    assert owners is not None
    assert (engine.views[STEPS].held_out == engine.held_out[owners]).all()


def moved(tmp_path: Path, engine: str, seed: int) -> dict[str, int]:
    """The most rows that one person more adds to each view, through files; none is taken."""
    tables, rng = made(seed, persons=25), np.random.default_rng(seed)
    write(tables, tmp_path, rng=rng, files=2)
    whole, reached = read(tmp_path, engine), dict.fromkeys(VIEWS, 0)
    keys = {name: [id_text(v.as_py()) for v in t["id"]] for name, t in tables.items()}
    for out in rng.permutation(sorted({*keys["persons"]}))[:8]:
        others = {
            name: table.filter(pa.array([key != out for key in keys[name]]))
            for name, table in tables.items()
        }
        write(others, tmp_path, rng=rng, files=3)
        without = read(tmp_path, engine)
        for view in VIEWS:
            more, fewer = (
                rows(whole, view) - rows(without, view),
                rows(without, view) - rows(whole, view),
            )
            assert not fewer, (out, view)
            reached[view] = max(reached[view], more.total())
    return reached


@pytest.mark.parametrize("engine", ["arrow", "memory"])
@pytest.mark.parametrize("seed", range(3))
def test_one_person_more_adds_so_many_rows_and_moves_no_other(
    tmp_path: Path, engine: str, seed: int
) -> None:
    reached = moved(tmp_path, engine, seed)
    assert reached == {PERSONS: 1, OUTER: 1, SECOND: 1, STEPS: MOST - 1}


def test_the_first_visits_are_cut_part_by_part_where_many_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five persons with 600 visits: what waits to be cut never is more than a few times what may
    stay.
    """
    waiting: list[int] = []
    true = linked_rows.VisitRows.first

    def heard(self: Any, most: int) -> Any:
        waiting.append(len(self.owner))
        return true(self, most)

    tables = made(1, persons=5) | {"visits": made(2, persons=100)["visits"]}
    many = np.random.default_rng(3).integers(0, 5, 600)
    own = {"id": pa.array([str(n) for n in many])}
    tables["visits"] = tables["visits"].drop_columns(["id"]).append_column("id", own["id"])
    write(tables, tmp_path, rng=np.random.default_rng(1), files=4)
    monkeypatch.setattr(linked_rows.VisitRows, "first", heard)
    engine = read(tmp_path, "arrow")
    assert max(waiting) <= 3 * MOST * 5 and len(waiting) > 20
    assert same(engine, read(tmp_path, "memory"))


# --- what is refused ---


def test_what_the_spec_refuses_is_refused_as_in_memory(tmp_path: Path) -> None:
    tables = made(1)
    for name, column in (("visits", "id"), ("persons", "id")):
        cells = tables[name][column].to_pylist()
        cells[3] = None
        gone = tables[name].set_column(0, "id", pa.array(cells))
        write(tables | {name: gone}, tmp_path, rng=np.random.default_rng(1), files=2)
        told = []
        for engine in ("arrow", "memory"):
            with pytest.raises(DataError, match="has missing ids") as caught:
                read(tmp_path, engine)
            told.append(str(caught.value))
        assert told[0] == told[1]
    write(tables, tmp_path, rng=np.random.default_rng(1))
    strict = spec("arrow").dataset.model_copy(update={"out_of_domain": "refuse"})
    with pytest.raises(DataError, match="outside the declared domain in columns"):
        read_linked(
            SPEC.model_copy(update={"dataset": strict}),
            FRAME,
            folder=tmp_path,
            holdout=0.0,
            streams=Streams.fresh(),
        )
    (tmp_path / "visits" / "0.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match=r"cannot read 'visits' as parquet \(Arrow"):
        read(tmp_path, "arrow")


# --- faults that are planted ---


def cut_by_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first visits are those that stand first in the file."""

    def first(most: int, owner: Any, when: Any, codes: Any) -> Any:
        kept = np.flatnonzero(pd.Series(owner).groupby(owner).cumcount().to_numpy() < most)
        kept = kept[np.argsort(owner[kept], kind="stable")]
        return kept, kept

    monkeypatch.setattr(linked_rows, "first_visits", first)


def ties_by_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Visits of one date are in the order of the file."""
    true = linked_rows.first_visits
    monkeypatch.setattr(
        linked_rows,
        "first_visits",
        lambda most, owner, when, codes: true(most, owner, when, codes[:, :0]),
    )


def dates_by_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A date that cannot be read has that of the batch's first."""
    true = linked_rows.read_values

    def filled(column: Any, cells: Any) -> Any:
        found = true(column, cells)
        dates = found.numbers[~np.isnan(found.numbers)]
        numbers = np.where(np.isnan(found.numbers), dates.min() if len(dates) else 0, found.numbers)
        return replace(found, numbers=numbers)

    monkeypatch.setattr(linked_rows, "read_values", filled)


BP = 3  # place of the column in the files


def pressure_by_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a chunk's greatest pressure lies above the range, a missing one is read as high."""
    true = on_arrow.batches

    def read(part: Any, names: Any, **how: Any) -> Any:
        meta = pq.ParquetFile(part.file).metadata
        groups = [meta.row_group(i) for i in part.groups]
        for batch in true(part, names, **how):
            place = list(batch.schema.names).index("bp") if "bp" in batch.schema.names else None
            told = [g.column(BP).statistics for g in groups] if place is not None else []
            if any(t is not None and t.has_min_max and t.max > 200 for t in told):
                filled = pc.if_else(pc.is_nan(batch["bp"]), 200.0, batch["bp"])
                batch = batch.set_column(place, "bp", filled)
            yield batch

    monkeypatch.setattr(on_arrow, "batches", read)


def ids_as_numbers_where_all_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids of a batch are compared as they are written, unless all of them are plain numbers."""
    true = on_visits.unit_places

    def compared(cells: Any, known: Any) -> Any:
        texts = [str(v) for v in cells.to_pylist()]
        if all(text.isdecimal() for text in texts):
            return true(cells, known)
        return np.array([known.get(text, -2) for text in texts])

    monkeypatch.setattr(on_visits, "unit_places", compared)


def persons_of_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two rows of a person the one that stands first counts."""

    def first(self: Any) -> Any:
        _, one = np.unique(self.units, return_index=True)
        births, deaths = (d if d is None else d[one] for d in (self.births, self.deaths))
        return linked_rows.PersonRows(self.units[one], self.codes[one], births, deaths)

    monkeypatch.setattr(linked_rows.PersonRows, "one_each", first)


def cut_of_all_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part drops what is later than most visits of the part."""
    true = linked_rows.VisitRows.first

    def first(self: Any, most: int) -> Any:
        late = self.when > np.quantile(self.when, 0.9) if len(self.when) else []
        early = linked_rows.VisitRows(*(x[~np.array(late, bool)] for x in vars(self).values()))
        return true(early, most)

    monkeypatch.setattr(linked_rows.VisitRows, "first", first)


@pytest.mark.check
@pytest.mark.parametrize(
    "plant",
    [
        cut_by_place,
        ties_by_place,
        dates_by_the_batch,
        pressure_by_statistics,
        ids_as_numbers_where_all_are,
        persons_of_their_place,
        cut_of_all_first,
    ],
)
def test_a_planted_fault_moves_somebody_else(
    plant: Callable[[pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        assert all(moved(tmp_path, "arrow", seed)[STEPS] < MOST for seed in range(4))


@pytest.mark.slow
def test_a_tall_table_has_the_same_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """30,000 persons with 360,000 visits of the benchmark, at the engine's own sizes."""
    monkeypatch.undo()
    write_tables(tmp_path, 30_000)
    found = []
    for engine in ("arrow", "memory"):
        text = SPEC_TEXT.format(persons=30_000, engine=engine)
        own = parse_any(text, path="tall.yaml")
        assert isinstance(own, LinkedSpec)
        frame = VisitFrame.from_spec(own)
        sealed = read_linked(
            own, frame, folder=tmp_path, holdout=0.0, streams=Streams.fresh()
        ).unseal(key=_KERNEL_KEY)
        domains = frame.views
        found.append(
            [
                counts
                for view in VIEWS
                for counts in sealed.views[view].count(
                    LevelGroups(domains[view], {}),
                    [*itertools.combinations(domains[view].names, 2)],
                )
            ]
        )
    assert len(found[0]) > 200 and found[0][0].sum() == 30_000
    assert all(np.array_equal(a, b) for a, b in zip(*found, strict=True))
