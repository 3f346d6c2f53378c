"""Copies: what is stated of them, tables, refusals, files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from synthdp import Bundle
from synthdp.data import Domain
from synthdp.errors import OutputError, VerifyError
from synthdp.inference import (
    InferenceSettings,
    LeastSquares,
    Measured,
    Posterior,
    copies_of,
    measured,
    statement,
)
from tests.inference.conftest import counted, heavy, write_bundle_of
from tests.inference.conftest import drawn_levels as sample_levels
from tests.inference.copied import NAMES, law, population_spec, released

EVEN, SKEWED = (0.4, 0.3, 0.2, 0.1), (0.6, 0.25, 0.13, 0.02)
PAIRS = (("age", "sex"), ("age", "smoker"), ("sex", "smoker"), ("visits",))


def known(
    domain: Domain, *sets: tuple[str, ...], sigma: float = 10.0, rows: int = 4000
) -> Measured:
    codes, rng = sample_levels(domain, rows, 12), np.random.default_rng(2)
    tables = [counted(domain, codes, names, sigma=sigma, rng=rng) for names in sets]
    names = tuple(dict.fromkeys(name for one in sets for name in one))
    return measured(tables, domain, names, grouped=True)


# --- what is stated ---


def test_what_is_stated_of_pairs_and_regressions() -> None:
    posterior = released(law(EVEN), 20_000, np.random.default_rng(8))
    said = statement(posterior, population_spec())
    assert [told["columns"] for told in said["sets"] if not told["together"]] == [
        *([name] for name in NAMES),
        *([a, b] for i, a in enumerate(NAMES) for b in NAMES[i + 1 :]),
    ]
    assert said["not_spanned"] == [] and said["inside_levels"] == []
    (fits,) = said["regressions"]
    assert fits["target"] == "y" and fits["linear"] == ["c", "g", "t", "v"]
    assert fits["not_both"] == []
    assert fits["logistic"][:4] == [["c"], ["g"], ["t"], ["v"]]
    assert max(map(len, fits["logistic"])) == 2  # three regressors need a table of them


def test_rare_levels_are_named() -> None:
    said = statement(released(law(SKEWED), 2_000, np.random.default_rng(9)), population_spec())
    (told,) = [told for told in said["sets"] if told["columns"] == ["c"]]
    assert told["together"] == {"c": [["c2", "c3"]]} or told["together"] == {"c": [["c3", "c2"]]}
    assert ["c", "v"] in [told["columns"] for told in said["sets"] if told["together"]]


def test_a_target_is_told_level_by_level() -> None:
    """Levels of a column may stand together, those of its target may not."""
    posterior = released(law(SKEWED), 2_000, np.random.default_rng(9))
    said = statement(posterior, population_spec())
    merged = {tuple(told["columns"]): set(told["together"]) for told in said["sets"]}
    linear = said["regressions"][0]["linear"]
    for name in ("c", "g", "t", "v"):
        pair = tuple(sorted(("y", name), key=NAMES.index))
        assert (name in linear) == (pair in merged and "y" not in merged[pair])
    assert any("c" in merged.get(("c", other), ()) for other in ("t", "y"))


def test_pairs_are_too_rare_or_have_no_table(domain: Domain) -> None:
    sets = (("age", "sex"), ("sex", "smoker"), ("age", "visits"))
    posterior = Posterior(LeastSquares(known(domain, *sets, sigma=90.0)))
    whys = {
        tuple(one["columns"]): one["why"]
        for one in statement(posterior, population_spec())["not_spanned"]
    }
    assert whys[("age", "smoker")] == "no table" and whys[("age", "visits")] == "too rare"
    assert ("age", "sex") not in whys


def test_columns_that_may_be_missing_are_regressed_on_alone(domain: Domain) -> None:
    from synthdp.spec import parse_spec
    from tests.inference.conftest import stated

    content = stated() | {"evaluation": {"holdout": 0.2, "targets": ["sex"]}}
    spec = parse_spec(json.dumps(content), path="clinic")
    sets = (("age", "sex"), ("sex", "smoker"), ("age", "smoker"))
    (fits,) = statement(Posterior(LeastSquares(known(domain, *sets))), spec)["regressions"]
    assert fits["linear"] == ["age", "smoker"]
    assert fits["not_both"] == [["age", "smoker"]] and fits["logistic"] == [["age"], ["smoker"]]


# --- bundles ---


@pytest.fixture
def bundle(small_bundle: Callable[..., Path]) -> Path:
    return small_bundle(*PAIRS)


def test_copies_of_a_bundle(bundle: Path) -> None:
    copies = Bundle(bundle).copies(3, columns=["smoker", "age"], rows=500, seed=1)
    assert len(copies.tables) == 3
    for table in copies.tables:
        assert list(table.columns) == ["age", "smoker"] and len(table) == 500
        assert table.dtypes.astype(str).to_dict() == {"age": "int64", "smoker": "boolean"}
        assert table["age"].between(0, 79).all() and table["smoker"].isna().any()
    assert copies.spanned["copies"] == 3 and copies.spanned["rows"] == 500
    assert copies.spanned["inside_levels"] == ["age"]
    again = Bundle(bundle).copies(3, columns=["age", "smoker"], rows=500, seed=1)
    assert all(a.equals(b) for a, b in zip(copies.tables, again.tables, strict=True))
    assert not copies.tables[0].equals(copies.tables[1])


def test_rows_are_five_times_those_counted(bundle: Path) -> None:
    found = copies_of(bundle, 2, columns=["sex"])
    assert found.rows == pytest.approx(5000, rel=0.1) and len(found) == 2


def test_fine_columns_are_drawn_inside_their_groups(tmp_path: Path, domain: Domain) -> None:
    starts = {"age": (0, 2, 3, 7)}
    codes, rng = sample_levels(domain, 4000, 3), np.random.default_rng(4)
    codes[:, 0] = np.where(codes[:, 0] == 4, 5, codes[:, 0])  # nobody is 40 to 49
    tables = [
        counted(domain, codes, ("age", "sex"), sigma=3, rng=rng, starts=starts),
        *(counted(domain, codes, (name,), sigma=3, rng=rng) for name in domain.names),
    ]
    folder = write_bundle_of(tmp_path / "bundle", tables, codes, domain)
    found = copies_of(folder, 2, columns=["age", "sex"], rows=20_000, seed=5)
    assert found.spanned["groups"]["age"] == ["0 to 19", "20 to 29", "30 to 69", "70 to 79"]
    drawn = next(iter(found))["age"].to_numpy() // 10
    shares, real = (np.bincount(x, minlength=8) / len(x) for x in (drawn, codes[:, 0].astype(int)))
    assert np.abs(shares - real).max() < 0.03 and shares[4] < 0.005


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (["smokr"], "no columns to copy: smokr"),
        (["age", "age"], "each once"),
        ([], "none is named"),
        (["age", "visits"], "no table of the bundle has two of age, visits"),
        (["seen"], "no table of the bundle has seen"),
    ],
)
def test_columns_that_cannot_be_served(bundle: Path, columns: list[str], says: str) -> None:
    with pytest.raises(OutputError) as refused:
        copies_of(bundle, 2, columns=columns)
    assert says in str(refused.value)


def test_one_copy_tells_no_interval(bundle: Path) -> None:
    with pytest.raises(OutputError, match="m=1 tells no interval"):
        copies_of(bundle, 1, columns=["sex"])
    with pytest.raises(OutputError, match="rows=0 tells no interval"):
        Bundle(bundle).copies(2, columns=["sex"], rows=0)


def test_too_many_cells_are_refused(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synthdp.inference.copies.SETTINGS", InferenceSettings(max_cells=100))
    with pytest.raises(OutputError, match="6 columns with 20,736 combinations"):
        copies_of(bundle, 2)


def test_rows_below_the_noise_are_refused(small_bundle: Callable[..., Path]) -> None:
    with pytest.raises(OutputError, match="too few to draw copies of"):
        copies_of(small_bundle(("sex",), sigma=1000.0), 2, columns=["sex"])


def test_draws_without_a_law_are_refused(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Posterior, "drawn", lambda self, rng: None)
    with pytest.raises(OutputError, match="7 of 7 draws"):
        copies_of(bundle, 2, columns=["sex"])


def test_a_changed_bundle_is_refused(bundle: Path) -> None:
    with (bundle / "marginals.json").open("a") as file:
        file.write(" ")
    with pytest.raises(VerifyError, match=r"marginals\.json"):
        copies_of(bundle, 2, columns=["sex"])


def test_tables_that_disagree_are_refused(tmp_path: Path, domain: Domain) -> None:
    rng = np.random.default_rng(1)
    tables = [
        counted(domain, sample_levels(domain, rows, 12), ("sex",), sigma=3, rng=rng)
        for rows in (1000, 2000)
    ]
    folder = write_bundle_of(tmp_path / "bundle", tables, sample_levels(domain, 9, 1), domain)
    with pytest.raises(VerifyError, match="do not agree on sex"):
        copies_of(folder, 2, columns=["sex"])


# --- the command line ---


def test_the_command_writes_a_folder(bundle: Path, tmp_path: Path, synthdp: Any) -> None:
    out = tmp_path / "new" / "copies"
    asked = ("copies", bundle, "--columns", "age, sex", "--m", "12", "--rows", "40", "--out")
    told = synthdp(*asked, out)
    assert told.out.startswith(f"wrote 12 copies of 40 rows, and spanned.json, to {out}\n")
    assert told.code == 0 and "  age, sex: spanned" in told.out
    names = [*(f"copy-{i:02d}.csv" for i in range(1, 13)), "spanned.json"]
    assert sorted(path.name for path in out.iterdir()) == names
    assert pd.read_csv(out / "copy-12.csv").shape == (40, 2)
    spanned = json.loads((out / "spanned.json").read_text())
    assert spanned["columns"] == ["age", "sex"] and "T = (1 + 1/m) b - u" in spanned["rule"]
    again = synthdp(*asked, out, "--json")
    assert again.code == 2 and "holds something" in json.loads(again.out)["error"]
    assert json.loads(synthdp(*asked, tmp_path / "other", "--json").out)["rows"] == 40


def test_nothing_is_written_for_columns_that_cannot_be_served(
    bundle: Path, tmp_path: Path, synthdp: Any
) -> None:
    out = tmp_path / "copies"
    assert synthdp("copies", bundle, "--columns", "age,visits", "--out", out).code == 2
    assert not out.exists()


@pytest.mark.check
def test_copies_need_no_torch(bundle: Path) -> None:
    call = f"Bundle({str(bundle)!r}).copies(2, columns=['age', 'sex'], rows=9)"
    assert heavy(call) == "pandas"
