"""Sampling from a bundle's model: the calibrated law, conditions, interventions, constraints,
files.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch
from hypothesis import given as holds_for
from hypothesis import settings
from hypothesis import strategies as st

from synthdp.bundle import write_blocks
from synthdp.data import Domain
from synthdp.errors import OutputError, SpecError
from synthdp.graph.level_groups import LevelLaw
from synthdp.model import CausalVae, Constraints, Synthesizer, arrays
from synthdp.model.ancestral import Architecture
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.sample import SETTINGS, Sampler, Weighing, one_use, settings_of
from synthdp.spec.model import ReleaseSpec
from tests.builders import skeleton

COLUMNS: dict[str, Any] = {
    "sex": {"type": "categorical", "categories": ["female", "male"]},
    "age": {"type": "integer", "lower": 0, "upper": 99, "bins": 4},
    "visits": {
        "type": "integer",
        "lower": 0,
        "upper": 9,
        "spikes": [0],
        "bins": 3,
        "missing": True,
    },
    "weight": {
        "type": "number",
        "lower": 40,
        "upper": 120,
        "bins": 4,
        "decimals": 1,
        "spikes": [50.25],
    },
    "joined": {
        "type": "datetime",
        "lower": "2020-01-01",
        "upper": "2023-12-31",
        "bins": 2,
        "resolution": "hour",
    },
}
PARENTS = ((), (0,), (0, 1), (1,), (2,))


def release(*constraints: str) -> ReleaseSpec:
    return ReleaseSpec.model_validate(
        {**skeleton(), "columns": COLUMNS, "constraints": constraints}
    )


DOMAIN = Domain.from_spec(release().columns)
TARGETS = {"sex": [0.8, 0.2], "visits": [0.4, 0.3, 0.1, 0.05, 0.15]}


def sampler(*constraints: str, rake: bool = True, rare: float = 0.0) -> Sampler:
    """A random model whose margins are not the targets; `rare` lowers the logit of visits = 0."""
    wanted = release(*constraints)
    vae = CausalVae(
        Architecture(DOMAIN.sizes, PARENTS, ((0, 2, 3),), hidden=8),
        generator=torch.Generator().manual_seed(1),
    )
    with torch.no_grad():
        for i, p in enumerate(vae.parameters()):
            p.normal_(0, 0.5, generator=torch.Generator().manual_seed(i))
        vae.decode_levels.bias[2, 0] -= rare
    model = Synthesizer(DOMAIN.names, vae.architecture, arrays(vae.state_dict()))
    own = model.sample(20_000, rng=np.random.default_rng(1))
    margins = {
        c.name: np.bincount(own[:, i], minlength=c.levels) / 20_000
        for i, c in enumerate(DOMAIN.columns)
    } | TARGETS
    tables = [NoisyTable((name,), 1e5 * np.asarray(p), 1.0) for name, p in margins.items()]
    constraints, law = Constraints.from_spec(wanted, DOMAIN), LevelLaw.of_tables(tables, DOMAIN)
    return Sampler(wanted.columns, DOMAIN, model, constraints, law, rake)


def draw(
    made: Sampler,
    rows: int,
    *,
    do: tuple[str, ...] = (),
    given: tuple[str, ...] = (),
    seed: int = 3,
) -> pd.DataFrame:
    blocks = made.sample(rows, do=do, given=given, rng=np.random.default_rng(seed))
    return pd.concat(blocks, ignore_index=True)


def shares(table: pd.DataFrame) -> npt.NDArray[np.float64]:
    """Shares of the cells of all columns but the date, numbers in four parts."""
    parts = [
        (table["sex"] == "male").astype(int),
        table["age"] // 25,
        table["visits"]
        .fillna(10)
        .astype(int)
        .map(lambda v: 0 if v == 0 else 1 if v <= 3 else 2 if v <= 6 else 3 if v <= 9 else 4),
        np.clip((table["weight"] - 40) // 20, 0, 3).astype(int),
    ]
    cell = np.ravel_multi_index([np.asarray(p, dtype=int) for p in parts], (2, 4, 5, 4))
    return np.bincount(cell, minlength=160) / len(table)


def distance(a: pd.DataFrame, b: pd.DataFrame) -> float:
    return float(np.abs(shares(a) - shares(b)).sum() / 2)


# --- the law ---


@pytest.mark.check
def test_rows_are_calibrated_as_the_released_table_is() -> None:
    table, raw = draw(sampler(), 60_000), draw(sampler(rake=False), 60_000)
    assert (
        abs((table["sex"] == "female").mean() - 0.8) < 0.01
        and abs(table["visits"].isna().mean() - 0.15) < 0.01
    )
    assert abs((raw["sex"] == "female").mean() - 0.8) > 0.1
    assert abs((table["visits"] == 0).sum() / 60_000 - 0.4) < 0.01


@pytest.mark.check
def test_conditions_are_on_the_law_that_is_sampled_without_them() -> None:
    """Against keeping the rows that fulfil the condition. Evidence weights without raking's, or
    raking without evidence's, are another law.
    """
    everything = draw(sampler(), 400_000)
    kept = everything[(everything["sex"] == "female") & everything["visits"].between(1, 3)]
    settings = ("sex=female", "visits=2")
    table = draw(sampler(), 40_000, given=settings)
    assert (table["sex"] == "female").all() and (table["visits"] == 2).all()
    assert distance(table, kept) < 0.02  # .009 by chance alone
    for other in (
        draw(sampler(rake=False), 40_000, given=settings),
        draw(sampler(), 40_000, do=settings),
    ):
        assert distance(other, kept) > 0.06


def test_interventions_are_the_models_own_and_not_calibrated() -> None:
    table, raw = (
        draw(sampler(), 40_000, do=("sex=male",)),
        draw(sampler(rake=False), 40_000, do=("sex=male",)),
    )
    assert (
        distance(table, raw) < 0.015
        and sampler().calibrated(())
        and not sampler().calibrated(("sex=male",))
    )


def test_a_condition_under_an_intervention() -> None:
    forced = draw(sampler(), 200_000, do=("age=30",))
    kept = forced[forced["visits"].isna()]
    table = draw(sampler(), 20_000, do=("age=30",), given=("visits=missing",))
    assert table["visits"].isna().all() and distance(table, kept) < 0.02


def test_the_value_that_was_asked_for_is_written_and_not_its_bin() -> None:
    table = draw(
        sampler(), 50, do=("age=40", "joined=2021-05-06T07:00:00"), given=("weight=73.46",)
    )
    assert (
        set(table["age"]) == {40}
        and set(table["weight"]) == {73.5}
        and set(table["joined"]) == {pd.Timestamp("2021-05-06T07:00")}
    )
    spike = draw(sampler(), 50, do=("weight=50.25", "visits=0"))
    assert set(spike["weight"]) == {50.25} and set(spike["visits"]) == {0}
    assert table.dtypes.equals(draw(sampler(), 5).dtypes)


def test_rare_conditions_are_met_with_rows_of_their_own() -> None:
    table = draw(sampler(rare=9.0), 5_000, given=("visits=0",))
    assert (table["visits"] == 0).all() and table[
        ["age", "weight", "joined"]
    ].duplicated().mean() < 2 * SETTINGS.used_twice + 0.05


def test_an_impossible_condition_is_refused_with_its_probability() -> None:
    with pytest.raises(
        OutputError,
        match=r"--given: under the model this has a probability of about \d\.\de-1\d; below 1e-09",
    ):
        draw(sampler(rare=30.0), 10, given=("visits=0",))


def test_a_condition_that_too_few_draws_serve_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synthdp.sample.sampler.SETTINGS", replace(SETTINGS, max_draws=1))
    with pytest.raises(
        OutputError, match=r"probability of about .* fewer than one drawn row in 1 could"
    ):
        draw(sampler(rake=False), 10, given=("visits=0",))


@pytest.mark.check
def test_constraints_hold_in_every_sample() -> None:
    table = draw(sampler("weight >= 60 or sex == 'female'", "visits < age"), 30_000)
    assert (
        ((table["weight"] >= 60) | (table["sex"] == "female")).all()
        and not (table["visits"] >= table["age"]).any()
        and len(table) == 30_000
    )
    assert (
        abs((table["sex"] == "female").mean() - 0.8) < 0.01
    )  # calibrated among the rows that hold
    with pytest.raises(OutputError, match="the hardest, 'weight >= 60', holds for 0"):
        draw(sampler("weight >= 60"), 10, do=("weight=45",))


@holds_for(st.lists(st.floats(0, 1e6), min_size=1, max_size=50).filter(any))
@settings(max_examples=200, deadline=None)
def test_the_weight_of_one_use_is_the_least_that_keeps_second_uses_rare(
    values: list[float],
) -> None:
    weights = np.asarray(values)
    whole = one_use(weights)
    beyond = [np.maximum(weights - w, 0).sum() for w in (whole, *(v for v in weights if v < whole))]
    assert (
        whole > 0
        and beyond[0] <= SETTINGS.used_twice * weights.sum() * (1 + 1e-9)
        and all(b > SETTINGS.used_twice * weights.sum() * (1 - 1e-9) for b in beyond[1:])
    )


def test_rows_are_used_in_proportion_to_their_weights() -> None:
    codes = np.arange(4, dtype=np.uint16)[:, None]
    weighing, rng = Weighing((np.asarray([0.0, 0.5, 1.0, 2.5]),), 1.0), np.random.default_rng(1)
    uses = np.zeros(4)
    for _ in range(4000):
        uses += np.bincount(weighing.used(codes, np.zeros(4, np.float32), rng)[:, 0], minlength=4)
    np.testing.assert_allclose(uses / 4000, [0, 0.5, 1, 2.5], atol=0.04)


# --- conditions ---


@pytest.mark.check
def test_rows_under_a_condition_are_those_of_all_rows_that_fulfil_it() -> None:
    """Ranges, an interval, a negation, and a column that is given by its value beside them."""
    condition = "(age >= 30 and age < 80) and not visits == 0"
    table = draw(sampler(), 20_000, given=(condition, "sex=female"))
    free = draw(sampler(), 150_000)
    chosen = free[
        (free["sex"] == "female")
        & free["age"].between(30, 79)
        & ((free["visits"] != 0) & free["visits"].notna())
    ]
    assert table["age"].between(30, 79).all() and (table["sex"] == "female").all()
    assert table["visits"].notna().all() and (table["visits"] != 0).all()  # unknown is no "not 0"
    assert np.abs(shares(table) - shares(chosen)).sum() / 2 < 0.02


def test_a_condition_under_an_intervention_is_observed_in_the_changed_world() -> None:
    forced = draw(sampler(), 60_000, do=("age=30",))
    table = draw(sampler(), 10_000, do=("age=30",), given=("weight > 60",))
    assert (table["age"] == 30).all() and (table["weight"] > 60).all()
    kept = forced[forced["weight"] > 60]
    assert np.abs(shares(table) - shares(kept)).sum() / 2 < 0.025


@pytest.mark.check
def test_what_hardly_any_row_fulfils_is_refused_before_a_row_is_written() -> None:
    blocks = sampler().sample(10, given=["age == 41 and weight < 45"], rng=np.random.default_rng(1))
    with pytest.raises(OutputError, match="drawn rows are as asked for"):
        next(blocks)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("agee >= 65", "unknown column 'agee'"),
        ("age >= 65 and sex = 'male'", "equality is written =="),
        ("sex == 'x'", "'x' is no category of 'sex'"),
        ("agee=65", "unknown column 'agee'"),
        ("age", "is a value where something true or false is needed"),
    ],
)
def test_a_condition_that_cannot_be_read_says_where(text: str, says: str) -> None:
    with pytest.raises(SpecError, match=re.escape(says)):
        draw(sampler(), 1, given=(text,))


# --- settings and files ---


def test_every_wrong_setting_is_told_at_once() -> None:
    with pytest.raises(SpecError) as caught:
        settings_of(
            ["sex", "agee=3", "age=500", "sex=male"],
            ["sex=female", "joined=2030-01-01", "sex=x", "weight=", "weight=missing"],
            DOMAIN,
        )
    text = str(caught.value)
    assert len(caught.value.problems) == 8
    for part in (
        "--do:1:1: sex: needs",
        "did you mean 'age'",
        "'500' is outside the domain of 'age'",
        "it holds 0 to 99",
        "--given:1:1: sex=female: column 'sex' is set more",
        "2020-01-01T00:00:00 to 2023-12-31T00:00:00",
        "'' is outside the domain of 'weight'",
        "'missing' is outside",
    ):
        assert part in text, part


@pytest.mark.check
def test_files_come_in_blocks_and_keep_their_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = replace(SETTINGS, block_cells=6000)
    monkeypatch.setattr("synthdp.sample.sampler.SETTINGS", few)
    made, sizes = sampler(), []

    def blocks(rows: int) -> Any:
        for block in made.sample(rows, rng=np.random.default_rng(1)):
            sizes.append(len(block))
            yield block

    rows = 1205
    write_blocks(blocks(rows), made.columns, tmp_path / "a.csv")
    write_blocks(blocks(rows), made.columns, tmp_path / "a.parquet")
    assert sizes == [rows - 5, 5] * 2 and sorted(p.name for p in tmp_path.iterdir()) == [
        "a.csv",
        "a.parquet",
    ]
    text, table = (
        pd.read_csv(tmp_path / "a.csv", dtype=str, keep_default_na=False),
        pd.read_parquet(tmp_path / "a.parquet"),
    )
    assert len(text) == len(table) == rows and list(text) == list(table) == list(DOMAIN.names)
    assert text["visits"].str.fullmatch(r"\d?").all() and (text["visits"] == "").any()
    assert (
        str(table["visits"].dtype) in ("Int64", "float64")
        and table["age"].dtype == np.int64
        and str(table["joined"].dtype).startswith("datetime64")
    )
    assert text["joined"].str.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:00:00").all()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_an_interrupted_file_does_not_appear_and_the_old_one_stays(
    tmp_path: Path, error: BaseException
) -> None:
    def blocks() -> Any:
        yield draw(sampler(), 10)
        raise error

    (tmp_path / "a.csv").write_text("before")
    with pytest.raises((KeyboardInterrupt, OutputError)):
        write_blocks(blocks(), release().columns, tmp_path / "a.csv")
    assert [p.name for p in tmp_path.iterdir()] == ["a.csv"] and (
        tmp_path / "a.csv"
    ).read_text() == "before"


@pytest.mark.parametrize(
    ("name", "says"), [("a.xlsx", "known are .csv, .parquet"), ("nowhere/a.csv", "does not exist")]
)
def test_files_that_cannot_be_written_are_refused(tmp_path: Path, name: str, says: str) -> None:
    with pytest.raises(OutputError, match=says):
        write_blocks(iter(()), {}, tmp_path / name)
