"""Bugs planted on purpose, each of which the replay must catch and call by its name."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from synthdp.audit.mechanisms.calls import Pair, ReplayFinding, neighbours
from synthdp.audit.mechanisms.replay import replay
from synthdp.data.domain import Domain
from synthdp.privacy.dpsgd.training import Training
from synthdp.privacy.noise import Streams
from synthdp.spec.model import (
    Categorical,
    Column,
    CsvSource,
    Dataset,
    Datetime,
    DeclaredRows,
    IdUnit,
    Number,
    RowUnit,
)
from tests.audit.reading import raw_neighbours, replay_reading

ROWS_PER_UNIT, BATCH, FEWEST_KINDS = 3, 8, 30


def planted(name: str) -> Any:
    """A module of `planted/`, which no package holds: it must not be mistaken for code in use."""
    found = importlib.util.spec_from_file_location(
        f"planted_{name}", Path(__file__).parent / "planted" / f"{name}.py"
    )
    assert found and found.loader
    module = sys.modules[found.name] = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


TABLES, TRAININGS, SEARCHES, TEXTS, STRATA, PRODUCTS = (
    planted(name).BUGS for name in ("tables", "training", "searches", "texts", "strata", "products")
)
READERS = planted("readers").READERS
BUGS: dict[str, tuple[Callable[[Domain], Any], str | None]] = {
    **{f"tables: {name}": bug for name, bug in TABLES.items()},
    **{f"training: {name}": bug for name, bug in TRAININGS.items()},
    **{f"search: {name}": bug for name, bug in SEARCHES.items()},
    **{f"texts: {name}": bug for name, bug in TEXTS.items()},
    **{f"strata: {name}": bug for name, bug in STRATA.items()},
    **{f"products: {name}": bug for name, bug in PRODUCTS.items()},
}


@pytest.fixture(scope="module")
def pairs(domain: Domain) -> list[Pair]:
    return list(neighbours(domain, batch=BATCH, max_rows=ROWS_PER_UNIT))


def found_by(mechanism: Any, pairs: list[Pair], domain: Domain) -> Iterator[ReplayFinding]:
    for pair in pairs:
        yield from replay(mechanism, [pair], domain=domain, rows_per_unit=ROWS_PER_UNIT).findings


@pytest.mark.check
@pytest.mark.parametrize("name", [name for name, bug in BUGS.items() if bug[1]])
def test_a_planted_bug_is_caught_and_named(name: str, domain: Domain, pairs: list[Pair]) -> None:
    """Up to the first pair that shows it."""
    build, differs = BUGS[name]
    mechanism = build(domain)
    caught = next((f for f in found_by(mechanism, pairs, domain) if f.differs == differs), None)
    assert caught is not None
    assert caught.mechanism == mechanism.name and caught.where and caught.found != caught.allowed


@pytest.mark.check
@pytest.mark.parametrize("name", [name for name, bug in BUGS.items() if not bug[1]])
def test_what_is_right_is_not_called_a_bug(name: str, domain: Domain, pairs: list[Pair]) -> None:
    done = replay(BUGS[name][0](domain), pairs, domain=domain, rows_per_unit=ROWS_PER_UNIT)
    assert done.findings == () and done.largest_share > 0.99


@pytest.mark.check
@pytest.mark.parametrize("name", ["tables", "training"])
def test_the_hole_alone_is_no_bug(name: str, domain: Domain, pairs: list[Pair]) -> None:
    """The class that the bugs are planted in, with nothing planted: it is the bug that is found."""
    module = sys.modules[f"planted_{name}"]
    honest = (
        module.with_counts(lambda counts, table, domain: counts)
        if name == "tables"
        else module.training()
    )
    done = replay(honest(domain), pairs[::5], domain=domain, rows_per_unit=ROWS_PER_UNIT)
    assert done.findings == () and done.largest_share > 0.99


COLUMNS: dict[str, Column] = {
    "sex": Categorical(type="categorical", categories=("f", "m")),
    "pay": Number(type="number", lower=-5.0, upper=5.0, bins=4, missing=True),
    "day": Datetime(type="datetime", lower="2020-01-01", upper="2020-12-31", bins=4, missing=True),  # type: ignore[arg-type]
}
UNITS: dict[str, RowUnit | IdUnit] = {
    "row": RowUnit(kind="row", meaning="one visit"),
    "id": IdUnit(kind="id", column="person", max_rows=3, meaning="one person"),
}


def dataset(unit: str) -> Dataset:
    return Dataset(
        id="d",
        source=CsvSource(kind="csv", path="t.csv"),
        privacy_unit=UNITS[unit],
        rows=DeclaredRows(kind="approximate", value=100),
    )


def caught_reading(read: Any) -> bool:
    """Up to the first pair that shows it."""
    domain = Domain.from_spec(COLUMNS)
    pairs = raw_neighbours(dataset("id"), domain)
    return any(
        replay_reading(dataset("id"), domain, pairs=[pair], read=read).findings for pair in pairs
    )


@pytest.mark.check
@pytest.mark.parametrize("name", READERS)
def test_a_planted_reader_is_caught(name: str) -> None:
    assert caught_reading(READERS[name])


@pytest.mark.check
@pytest.mark.parametrize("unit", UNITS)
def test_the_kernels_reader_keeps_neighbours_neighbours(unit: str) -> None:
    done = replay_reading(dataset(unit), Domain.from_spec(COLUMNS))
    assert done.findings == () and done.pairs > 50 and done.largest_share == 1


class Continuous(Streams):
    """Noise of full precision on what was rounded."""

    def lattice_gaussian(self, values: Any, *, sigma: float, spacing: float) -> Any:
        return values + sigma * self.noise.standard_normal(values.shape)


def test_noise_off_the_lattice_is_caught(domain: Domain, pairs: list[Pair]) -> None:
    training: Training = sys.modules["planted_training"].training()(domain)
    done = replay(
        replace(training),
        pairs[:3],
        domain=domain,
        rows_per_unit=ROWS_PER_UNIT,
        streams=Continuous.fresh,
    )
    assert {f.differs for f in done.findings} == {"lattice"}


@pytest.mark.slow
def test_all_planted_bugs_are_caught(
    domain: Domain, pairs: list[Pair], figure: Callable[..., None]
) -> None:
    wrong = {name: bug for name, bug in BUGS.items() if bug[1]}
    caught = sum(
        any(f.differs == differs for f in found_by(build(domain), pairs, domain))
        for build, differs in wrong.values()
    )
    readers = sum(map(caught_reading, READERS.values()))
    assert (caught, readers) == (len(wrong), len(READERS)) and caught + readers >= FEWEST_KINDS
    figure("planted bugs caught by the replay", caught + readers, len(wrong) + len(READERS))
