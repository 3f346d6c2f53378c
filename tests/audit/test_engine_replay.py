"""Replay over an engine, on files counted shard by shard: a unit moves its own counts alone."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from synthdp.audit import Pair, Side, replay
from synthdp.data import Codes, Domain
from synthdp.privacy import Arrays, Mechanism
from synthdp.privacy.engines import EngineTable, Reading, on_arrow
from synthdp.privacy.engines.opening import find_parts
from synthdp.privacy.mechanisms.marginals import AdaptiveMarginals, NoisyMarginals
from synthdp.privacy.mechanisms.sums import (
    NUMBER,
    Arm,
    Bounded,
    Product,
    ProductSums,
    StratumSums,
)
from synthdp.privacy.noise import Randomness
from synthdp.privacy.session import CellsOf, tables_for
from synthdp.privacy.table import Table
from synthdp.spec.model import Categorical, Integer
from tests.audit.mechanism_examples import upper_half
from tests.privacy.engines.tables import Here

pytestmark = pytest.mark.check

MOST = 2
DOMAIN = Domain.from_spec(
    {
        "x": Categorical(type="categorical", categories=("a", "b", "c")),
        "y": Categorical(type="categorical", categories=("p", "q"), missing=True),
    }
)
TABLES = (("x",), ("x", "y"))
NUMBERS = Domain.from_spec(
    {
        "n": Integer(type="integer", lower=0, upper=89, bins=3),
        "y": Categorical(type="categorical", categories=("p", "q"), missing=True),
    }
)
HALF = upper_half(NUMBERS, "n")
CLIPPED = Bounded("n", 0.0, 60.0)
PRODUCTS = ((), (("n", NUMBER),), (("y", 1),))
APART: tuple[Product, ...] = (
    (("n", NUMBER),),
    (("n", NUMBER), ("n", NUMBER)),
    *((("n", NUMBER), ("y", level)) for level in range(3)),
)
SUMS: list[Any] = [
    StratumSums(NUMBERS, (Arm(((HALF, True),)), Arm()), ("y",), CLIPPED, 2.0),
    ProductSums(NUMBERS, Arm(), (CLIPPED,), PRODUCTS, 2.0),
    ProductSums(NUMBERS, Arm(), (CLIPPED,), APART, 2.0, apart=True),
]
BESIDE = (
    NoisyMarginals(NUMBERS, (("n",), ("n", "y")), 2.0).for_unit(MOST),
    NoisyMarginals(NUMBERS, (("y",),), 3.0).for_unit(MOST),
)
MECHANISMS = [
    NoisyMarginals(DOMAIN, TABLES, 2.0).for_unit(MOST),
    AdaptiveMarginals(DOMAIN, 3.0).choose(TABLES),
]


@dataclass(frozen=True)
class Together:
    """What `Session.release_together` does after the charges, as one mechanism of all events."""

    members: tuple[Mechanism[Any], ...]
    name: str = "together"

    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent:
        return dp_accounting.ComposedDpEvent([m.event(rows_per_unit) for m in self.members])

    def run(self, table: Table, randomness: Randomness) -> list[Any]:
        tables = tables_for(table, self.members)
        assert all(seen is not table for seen in tables)
        return [m.run(t, randomness) for m, t in zip(self.members, tables, strict=True)]

    def pack(self, value: Any) -> Arrays:
        packed = [m.pack(v) for m, v in zip(self.members, value, strict=True)]
        return {f"{i} {name}": a for i, own in enumerate(packed) for name, a in own.items()}

    def unpack(self, arrays: Arrays) -> list[Any]:
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class OnEngine(Pair):
    """A pair whose tables lie in files; the unit `new` may have more rows than stay, `most`."""

    folder: Path = field(default_factory=Path)
    most: int = MOST

    @property
    def unit_rows(self) -> int:
        return MOST

    def sides(self, domain: Domain) -> tuple[Side, Side]:
        return self._side(domain, self.before, "before"), self._side(domain, self.after, "after")

    def _side(self, domain: Domain, own: Codes, name: str) -> Side:
        codes = np.insert(self.shared, [self.place] * len(own), own, axis=0)
        ids = np.insert(
            np.array([f"u{i // 3}" for i in range(len(self.shared))], dtype=object),
            [self.place] * len(own),
            ["new"] * len(own),
        )
        cells: dict[str, Any] = {"id": pa.array(ids, pa.string())}
        whose = np.insert(
            np.arange(len(self.shared)), [self.place] * len(own), 100 + np.arange(len(own))
        )
        for i, column in enumerate(domain.columns):
            if column.ranged:  # rows of one level have different numbers, each its own
                cells[column.name] = pa.array(30 * codes[:, i].astype(np.int64) + 7 * whose % 30)
                continue
            labels = [*column.labels[: column.levels - column.missing], *[None] * column.missing]
            cells[column.name] = pa.array([labels[code] for code in codes[:, i]], pa.string())
        folder = self.folder / name
        folder.mkdir(parents=True)
        pq.write_table(pa.table(cells), folder / "t.parquet", row_group_size=5)
        reading = Reading(domain, {n: n for n in domain.names}, "id", self.most, "ab" * 16)
        reading = replace(reading, names={**reading.names, "id": "id"})
        engine = Here(reading, find_parts(".", folder), len(codes))
        return Side(EngineTable(engine, {}), np.arange(len(codes)))


def pairs(folder: Path, most: int = MOST) -> Iterator[OnEngine]:
    """A unit of one to seven rows more, or one of other rows in its place."""
    rng = np.random.default_rng(2)
    shared = np.column_stack([rng.integers(0, 3, 24), rng.integers(0, 3, 24)]).astype(np.uint16)
    nothing = np.zeros((0, 2), dtype=np.uint16)
    for number, rows in enumerate((1, 2, 3, 7)):
        own = np.column_stack([rng.integers(0, 3, rows), rng.integers(0, 3, rows)])
        same = np.tile(np.array([[2, 1]]), (rows, 1))
        for kind, unit in (("mixed", own), ("alike", same)):
            name = f"{number}-{kind}"
            yield OnEngine(
                name,
                shared,
                nothing,
                unit.astype(np.uint16),
                5 * number,
                folder=folder / name,
                most=most,
            )


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=["planned", "late"])
def test_a_unit_more_moves_what_is_charged_and_no_more(mechanism: Any, tmp_path: Path) -> None:
    found = replay(mechanism, pairs(tmp_path), domain=DOMAIN, rows_per_unit=MOST)
    assert found.findings == () and found.largest_share > 0.99


@pytest.mark.parametrize("mechanism", SUMS, ids=["strata", "products", "apart"])
def test_a_unit_more_moves_sums_by_what_is_charged_and_no_more(
    mechanism: Any, tmp_path: Path
) -> None:
    found = replay(mechanism, pairs(tmp_path), domain=NUMBERS, rows_per_unit=MOST)
    assert found.findings == () and found.largest_share > 0.99


@pytest.mark.parametrize(
    "members", [(*SUMS, *BESIDE), (SUMS[1], *BESIDE, SUMS[0]), BESIDE], ids=["sums", "mixed", "no"]
)
def test_what_is_seen_in_one_pass_moves_what_is_charged_for_each_and_no_more(
    members: tuple[Any, ...], tmp_path: Path
) -> None:
    found = replay(Together(members), pairs(tmp_path), domain=NUMBERS, rows_per_unit=MOST)
    assert found.findings == () and found.largest_share > 0.99


def test_a_cell_that_counts_rows_twice_in_one_pass_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Falsifier."""
    true = CellsOf.block
    monkeypatch.setattr(CellsOf, "block", lambda self, frame, codes: 2 * true(self, frame, codes))
    mechanism = Together((*SUMS, *BESIDE))
    found = replay(mechanism, pairs(tmp_path), domain=NUMBERS, rows_per_unit=MOST)
    assert {finding.differs for finding in found.findings} == {"moved"}


@pytest.mark.parametrize("ordered", [True, False])
def test_rows_that_stay_by_the_order_in_which_they_come_are_seen(
    ordered: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order hangs on how many there are. Falsifier: without numbers another unit decides."""
    true_joined = on_arrow.Shard.joined

    def shuffled(some: Any) -> on_arrow.Shard:
        whole = true_joined(some)
        order = np.random.default_rng(len(whole.ids)).permutation(len(whole.ids))
        values = None if whole.values is None else whole.values.iloc[order]
        return on_arrow.Shard(whole.ids[order], whole.codes[order], values)

    monkeypatch.setattr(on_arrow.Shard, "joined", shuffled)
    if not ordered:
        monkeypatch.setattr(on_arrow, "numbers_of", lambda domain, values: None)
    alike = [replace(p, shared=np.ones_like(p.shared)) for p in pairs(tmp_path)]
    found = replay(SUMS[0], alike, domain=NUMBERS, rows_per_unit=MOST)
    assert (found.findings == ()) is ordered


def test_an_engine_that_does_not_bound_is_seen(tmp_path: Path) -> None:
    """Falsifier: seven rows of the unit stay, and two are charged."""
    found = replay(MECHANISMS[0], pairs(tmp_path, most=64), domain=DOMAIN, rows_per_unit=MOST)
    assert found.findings
