"""A wide table in mode predict from rows to a verified and attacked bundle: every text says what a
screen left out. The rule is set so that the five columns of `predict_table` are a wide table.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from synthdp.audit import TableMeasurer, plan_at, runnable, shadow_spec
from synthdp.data import ColumnDomain, Domain, encode
from synthdp.graph import predict
from synthdp.model import plan_for
from synthdp.privacy import plan
from synthdp.privacy.mechanisms.pair_screen import MAX_LEVELS, ChosenScreen, PairScreen
from synthdp.release import release, resume
from synthdp.release.rehearse import rehearse
from synthdp.spec import load_spec
from synthdp.verify import verify_bundle
from tests.builders import predict_spec, predict_table

pytestmark = pytest.mark.check

ROUNDS = ["columns", "screen", "screened pairs", "chosen pairs", "strongest pairs"]
PURPOSES = ["measure", *(f"graph: {name}" for name in ROUNDS)]
UNJUDGED = {"evaluation": {"enabled": False}, "attacks": {"membership": {"enabled": False}}}


@pytest.fixture(scope="module", autouse=True)
def wide() -> Iterator[None]:
    """Of ten pairs the four of the target are counted, and five that are told."""
    rule = replace(predict.ROUNDS, clear=1e9, min_columns=5, kept_per_column=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(predict, "ROUNDS", rule)
        patch.setattr(plan, "GROUP_SIZES", (1, 2))
        yield


def write(folder: Path, **sections: Any) -> Path:
    """Table and spec in `folder`; returns the spec's path."""
    predict_table().to_csv(folder / "table.csv", index=False)
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(predict_spec(**sections), sort_keys=False), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output folder of a release with its attack."""
    folder = tmp_path_factory.mktemp("screened")
    release(write(folder), out=folder / "out")
    return folder / "out"


def words(path: Path) -> str:
    return " ".join(path.read_text(encoding="utf-8").split())


def charged(bundle: Path) -> list[str]:
    entries = json.loads((bundle / "privacy/ledger.json").read_text())["entries"]
    return [e["body"]["purpose"] for e in entries if e["kind"] == "charge"]


def test_every_round_is_charged_once_and_the_bundle_verifies(made: Path) -> None:
    assert charged(made / "bundle") == PURPOSES
    assert verify_bundle(made / "bundle").ok
    tables = json.loads((made / "bundle/marginals.json").read_text())["tables"]
    pairs = {frozenset(t["columns"]) for t in tables if len(t["columns"]) == 2}
    assert len(pairs) == 9 and sum("smoker" in pair for pair in pairs) == 4


def test_an_attack_on_a_screened_release_ends(made: Path) -> None:
    found = json.loads((made / "internal/internal.json").read_text())
    assert "attack" not in found["absent"]
    assert {"elbo", "tables"} <= {row["extractor"] for row in found["attack"]["table"]}


def test_a_rehearsal_takes_the_same_road(tmp_path: Path) -> None:
    found = rehearse(load_spec(write(tmp_path, **UNJUDGED)))
    assert 0 <= found["tv1"] < 0.5 and 0 < found["tv2"] < 0.5


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("privacy/certificate.md", "chosen from noisy tables and by a screen of pairs that were"),
        ("privacy/certificate.md", "graph: screen"),
        ("DATACARD.md", "A private screen left out 1 pair, those that looked least dependent"),
        ("DATACARD.md", "Noisy tables have 9 of the 10 pairs of columns together."),
        ("report.html", "Of 10 pairs of columns 9 were counted; the others were left out"),
    ],
)
def test_every_text_says_what_was_left_out(made: Path, name: str, said: str) -> None:
    assert said in words(made / "bundle" / name)


def test_the_plan_says_it_before_anything_is_read(tmp_path: Path, synthdp: Any) -> None:
    path = write(tmp_path, **UNJUDGED)
    facts = json.loads(synthdp("plan", path, "--json").out)
    assert [s["purpose"] for s in facts["spends"]] == PURPOSES
    assert facts["quality"]["tables"] == 5  # no target is named: those that are told
    write(tmp_path)
    told = " ".join(synthdp("plan", path).out.split())
    assert "of 10 pairs of columns 9 are counted, those of evaluation.targets among them" in told
    assert "a private screen tells which others look most dependent" in told


def test_engine_sql_leaves_out_the_farthest_pairs_and_says_so(
    tmp_path: Path, synthdp: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = {"kind": "sql", "url_env": "ADDRESS", "query": "select * from t"}
    spec = predict_spec(**UNJUDGED)
    spec["dataset"]["source"] = source
    spec["compute"] = {"engine": "sql"}
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(spec))
    monkeypatch.setattr(predict, "ROUNDS", replace(predict.ROUNDS, max_pairs=7))
    told = " ".join(synthdp("plan", path).out.split())
    assert "graph: all pairs" in told and "of 10 pairs of columns 7 are counted" in told
    assert "the others are those of columns side by side" in told


def test_an_interrupted_screen_is_not_paid_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, out = write(tmp_path, **UNJUDGED), tmp_path / "out"

    def die(self: ChosenScreen, value: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ChosenScreen, "pack", die)
        with pytest.raises(KeyboardInterrupt):
            release(spec, out=out)
    resume(out)
    assert charged(out / "bundle") == PURPOSES and verify_bundle(out / "bundle").ok


def test_models_of_an_attack_take_the_road_of_their_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Theirs are few rows: by themselves these would be screened where the release is not."""
    spec = load_spec(write(tmp_path))
    domain, shadow = Domain.from_spec(spec.columns), shadow_spec(spec)
    planned = plan_for(shadow, domain, like=spec)
    assert list(planned.graph) == ROUNDS
    codes = encode(domain, predict_table(60))[0]
    assert len(TableMeasurer(domain, planned)(codes)) == 2 * 5 + 3 * 10
    rule = replace(predict.ROUNDS, clear=10.0)
    monkeypatch.setattr(predict, "ROUNDS", rule)
    assert list(plan_for(spec, domain).graph) == ["all pairs", "chosen pairs"]
    assert list(plan_for(shadow, domain).graph) == ROUNDS
    for epsilon in (1.0, np.inf):
        at = plan_at(shadow, domain, epsilon, like=spec)
        assert list(at.graph) == ["all pairs", "chosen pairs"]


def test_a_planned_screen_is_replayed_without_columns_too_wide_for_it() -> None:
    levels = {"a": 2, "b": 3, "c": 2, "wide": MAX_LEVELS + 1}
    domain = Domain(
        tuple(
            ColumnDomain(name, "categorical", tuple(map(str, range(size))), False)
            for name, size in levels.items()
        )
    )
    (screen,) = runnable(PairScreen(domain, 2, 3.0), domain, never)
    assert isinstance(screen, ChosenScreen)
    assert screen.pairs == (("a", "b"), ("a", "c"), ("b", "c"))


def never(domain: Domain) -> Any:
    """Nothing is trained."""
    raise AssertionError
