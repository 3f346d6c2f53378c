"""A release on two neighbouring tables that must not tell them apart, and leaks that are seen."""

import secrets
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from synthdp.privacy.noise import fresh_generator
from tests.differential.__main__ import tried
from tests.differential.cases import MODES, OPTIONS, SOURCES, case_of, drawn
from tests.differential.coins import Coins, frozen
from tests.differential.harness import Base, differences, told
from tests.differential.planted import FAULTS, REFUSALS, Rows, remember
from tests.differential.tables import ODD, neighbour

pytestmark = pytest.mark.check

ROWS = 60
LONG = {  # like others that CI sees
    "a debug line shows a row",
    "a gate without its figure",
    "a spool file stays",
    "an error of a library",
    "the order of synthetic rows",
    "keys are asked for by each row",
    "progress over rows",
    "the published spec",
    "the read-me tells of misfits",
    "an entry of the ledger",
}


def with_row(table: pd.DataFrame, kind: str) -> pd.DataFrame:
    row = ODD[kind](np.random.default_rng(1))
    return pd.concat([table, pd.DataFrame([row], dtype=object)], ignore_index=True)


NEIGHBOURS: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "one less": lambda table: table[1:].reset_index(drop=True),
    "one more": lambda table: with_row(table, "ordinary"),
    "isolated": lambda table: with_row(table, "isolated"),
    "misfits": lambda table: with_row(table, "misfits"),
    "empty": lambda table: with_row(table, "empty"),
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> tuple[Base, pd.DataFrame]:
    """A release with much of what may be asked for, and its table."""
    options = ["dp scores", "gates", "constraints", "derived"]
    made = case_of("given, with pairs", "csv", options, np.random.default_rng(3), rows=ROWS)
    assert made is not None
    case, table = made
    found = Base.of(case, table, tmp_path_factory.mktemp("base") / "run")
    assert found.outcome.published
    return found, table


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> tuple[Base, pd.DataFrame]:
    """A release that refuses values outside of the domain."""
    made = case_of("none", "dataframe", ["refuse"], np.random.default_rng(0), rows=ROWS)
    assert made is not None
    case, table = made
    return Base.of(case, table[:ROWS], tmp_path_factory.mktemp("refusing") / "run"), table


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_a_neighbour_is_not_told_apart(base: tuple[Base, pd.DataFrame], name: str) -> None:
    found, table = base
    differing = found.differences(NEIGHBOURS[name](table))
    assert not differing, told(differing)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in FAULTS],
)
def test_a_planted_leak_is_seen(
    base: tuple[Base, pd.DataFrame],
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    figure: Callable[..., None],
) -> None:
    found, table = base
    fault, shown_by = FAULTS[name]
    rows = Rows()
    remember(monkeypatch, rows)
    fault(monkeypatch, rows)
    first = found.replay(table)
    assert differences(first, found.replay(NEIGHBOURS[shown_by](table)))
    figure("planted leaks past the mechanisms that show in the bytes", 1, 1)


def test_of_two_tables_that_are_refused_each_is_told_its_own_columns(
    refusing: tuple[Base, pd.DataFrame],
) -> None:
    found, table = refusing
    first, second = (found.replay(with_row(table, kind)) for kind in ("misfits", "empty"))
    assert first.refused and second.refused and first.shown["raised"] != second.shown["raised"]
    assert differences(first, second) == []
    second.shown["printed"] += b"7 rows"
    assert differences(first, second)


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_that_tells_more_is_seen(
    refusing: tuple[Base, pd.DataFrame], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, table = refusing
    strange = with_row(table, "misfits")
    assert not found.differences(strange) and found.replay(strange).refused
    rows = Rows()
    remember(monkeypatch, rows)
    REFUSALS[name](monkeypatch, rows)
    assert found.differences(strange)


def test_coins_follow_from_where_they_are_drawn() -> None:
    """Work in between takes none, and the second coin of a place is another one."""
    with frozen(Coins("a")):
        first = [fresh_generator().random() for _ in range(3)]
    with frozen(Coins("a")):
        token = [secrets.token_hex(4) for _ in range(2)]
        again = [fresh_generator().random() for _ in range(3)]
    with frozen(Coins("b")):
        other = [fresh_generator().random() for _ in range(3)]
    assert first == again and len({*first, *other}) == 6 and len({*token}) == 2


def test_cases_are_of_every_mode_source_and_option() -> None:
    """And what a seed draws is the same each time."""
    found = [drawn(np.random.default_rng(seed))[0] for seed in range(130)]
    names = "\n".join(case.name for case in found)
    assert {case.mode for case in found} == set(MODES)
    assert all(name in names for name in (*SOURCES, *OPTIONS) if name != "dask")
    assert drawn(np.random.default_rng(5))[0].spec == found[5].spec


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_pairs_of_many_cases_are_not_told_apart(seed: int, figure: Callable[..., None]) -> None:
    found = tried(seed)
    assert not found.differing, "\n".join(found.differing)
    figure(
        "releases on neighbouring tables that are the same to the byte", found.pairs, found.pairs
    )


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize(
    ("mode", "source", "options"),
    [
        ("given", "csv", ["evaluation"]),
        ("given", "parquet", ["dp scores", "ids"]),
        ("predict", "arrow", ["evaluation"]),
    ],
)
def test_tables_of_a_row_or_two_are_not_told_apart(
    mode: str, source: str, options: list[str], rows: int, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    made = case_of(mode, source, options, rng, rows=rows)
    assert made is not None
    case, table = made
    base = Base.of(case, table, tmp_path / "run")
    for _ in range(4):
        name, other = neighbour(table, rng, replace=False)
        found = base.differences(other)
        assert not found, f"{name}:\n{told(found)}"


@pytest.mark.slow
def test_what_is_found_to_act_together_does_not_tell_a_neighbour(tmp_path: Path) -> None:
    """Smoking is the parity of two columns: the look finds it."""
    rng = np.random.default_rng(0)
    made = case_of("predict", "csv", ["interactions"], rng, rows=300)
    assert made is not None
    case, table = made
    parity = (table["sex"] == "male") ^ (pd.to_numeric(table["visits"], errors="coerce") > 2)
    table["smoker"] = np.where(parity, "yes", "never").astype(object)
    base = Base.of(case, table, tmp_path / "run")
    assert b'"together"' in base.outcome.shown["file out/bundle/graph.json"]
    for _ in range(4):
        name, other = neighbour(table, rng, replace=False)
        found = base.differences(other)
        assert not found, f"{name}:\n{told(found)}"


@pytest.mark.slow
def test_the_engine_dask_does_not_tell_a_neighbour(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    made = case_of("predict", "dask", ["ids"], rng, rows=120)
    assert made is not None
    case, table = made
    base = Base.of(case, table, tmp_path / "run")
    assert base.outcome.published
    for _ in range(3):
        name, other = neighbour(table, rng, replace=False)
        found = base.differences(other)
        assert not found, f"{name}:\n{told(found)}"
