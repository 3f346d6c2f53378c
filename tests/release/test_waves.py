"""Waves of a series from rows to verified bundles: what is charged, taken along and told."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from synthdp.bundle import INNOVATIONS, WAVES, read_tables, sha256
from synthdp.data import Domain
from synthdp.errors import OutputError, SpecError, VerifyError
from synthdp.files import SUMS, text_sha256
from synthdp.graph import predict
from synthdp.graph.level_groups import groups_of
from synthdp.inference import Questions
from synthdp.ledger import Ledger
from synthdp.privacy import plan
from synthdp.release import release
from synthdp.release.gates import red_lines
from synthdp.report import render_index
from synthdp.sample import Sampler
from synthdp.spec import load_spec, parse_any, parse_spec
from synthdp.verify import index_of, inspect_bundle, verify_bundle
from tests.builders import PREDICT_ROWS, predict_spec, predict_table

pytestmark = pytest.mark.check

NAMES = ("2025", "2026", "2027")
UNJUDGED = {
    "evaluation": {"enabled": False, "targets": ["smoker"]},
    "attacks": {"membership": {"enabled": False}},
}
CAP = {"epsilon": 9.0, "delta": 1e-4}


def spec_of(name: str, before: Path | None, people: Any = "same") -> dict[str, Any]:
    asked = predict_spec(**UNJUDGED)
    asked["dataset"]["id"] = "clinic"
    asked["dataset"]["source"]["path"] = f"{name}.csv"
    asked["privacy"] |= {"epsilon": 2.0, "cap": CAP}
    asked["waves"] = {"name": name, "people": people, "planned": 3}
    if before is not None:
        digest = sha256(before / SUMS)
        asked["waves"]["after"] = {
            "bundle": str(before.relative_to(before.parents[1])),
            "sha256": digest,
        }
    return asked


def write(folder: Path, asked: dict[str, Any]) -> Path:
    path = folder / f"{asked['waves']['name']}.yaml"
    path.write_text(yaml.safe_dump(asked, sort_keys=False), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three waves; in the last one smokers and others have changed places."""
    folder, before = tmp_path_factory.mktemp("series"), None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "GROUP_SIZES", (1, 2))
        for name in NAMES:
            table = predict_table()
            if name == NAMES[-1]:
                table["smoker"] = table["smoker"].map({"yes": "no", "no": "yes"})
            table.to_csv(folder / f"{name}.csv", index=False)
            release(write(folder, spec_of(name, before)), out=folder / name)
            before = folder / name / "bundle"
    return folder


def test_every_wave_verifies_and_takes_those_before_along(series: Path) -> None:
    for number, name in enumerate(NAMES):
        bundle = series / name / "bundle"
        verify_bundle(bundle)
        assert (bundle / WAVES).exists() == (bundle / INNOVATIONS).exists() == (number > 0)
        if number:
            waves = json.loads((bundle / WAVES).read_text())["waves"]
            assert [parse_spec(w["spec"], path="").waves.name for w in waves] == [*NAMES[:number]]  # type: ignore[union-attr]
            own = load_spec(bundle / "spec.yaml").waves
            assert own is not None and own.after is not None and own.after.bundle == "withheld"
            assert own.after.sha256 == text_sha256(waves[-1]["sums"])
    balance = Ledger(f"sqlite:///{series / '.synthdp' / 'ledger.db'}").balance("clinic")
    assert [*balance.waves] == [*NAMES] and balance.epsilon == 6.0


def test_waves_count_on_the_same_groups_and_can_be_sampled(series: Path) -> None:
    domain = Domain.from_spec(load_spec(series / NAMES[0] / "bundle" / "spec.yaml").columns)
    groups = [groups_of(read_tables(series / n / "bundle"), domain).starts for n in NAMES]
    assert groups[0] == groups[1] == groups[2] and groups[0]
    assert Sampler.of_bundle(series / NAMES[2] / "bundle").domain.names == domain.names


def test_a_break_is_told_and_what_did_not_break_is_not(series: Path) -> None:
    told = json.loads((series / "2027" / "bundle" / INNOVATIONS).read_text())
    last = {tuple(t["columns"]): t["chances"][-1] for t in told["tables"]}
    assert told["waves"] == [*NAMES] and last["sex", "smoker"] < told["break_below"]
    assert last["sex",] > told["break_below"] and last["age",] > told["break_below"]
    report = (series / "2027" / "bundle" / "report.html").read_text()
    assert "noisy tables of earlier waves (2025, 2026)" in report and "sex and smoker" in report
    quiet = (series / "2026" / "bundle" / "report.html").read_text()
    assert "One step alone does not tell a break from drift" in quiet


def test_the_certificate_says_of_which_waves_its_sums_are(series: Path) -> None:
    text = (series / "2026" / "bundle" / "privacy" / "certificate.md").read_text()
    assert "This is wave 2026 of a series, and these sums are of all its waves" in text
    assert "the same people may be in all waves, whose budgets add up" in text


def test_the_index_has_the_waves_side_by_side(series: Path) -> None:
    content = index_of(series, page=series / "index.html", now=datetime(2028, 1, 1, tzinfo=UTC))
    (dataset,) = content.datasets
    assert dataset.series is not None and dataset.series.headings == ("share", *NAMES)
    told = {row[0]: row[1:] for row in dataset.series.rows}
    assert set(told) == {"smoker: no", "smoker: yes"}
    assert all(
        re.fullmatch(r"0\.\d{3} \(0\.\d{3}\)", cell) for row in told.values() for cell in row
    )
    assert "Shares by wave of clinic" in render_index(content)


def test_changes_are_answered_since_waves_that_the_bundle_knows(series: Path, synthdp: Any) -> None:
    printed = synthdp("answer", series / "2027" / "bundle", "change in share(smoker) since 2026")
    assert printed.code == 0 and "change since wave 2026" in printed.out
    asked = Questions(series / "2027" / "bundle")
    found = asked.answer("change in share(smoker and sex == 'male') since 2025")
    assert found.interval is not None and float(found.interval[1]) < -0.3
    assert "change since wave 2025" in str(found) and found.tier == "A"
    with pytest.raises(OutputError, match="knows no wave '2024' before it"):
        asked.answer("change in share(smoker) since 2024")
    with pytest.raises(OutputError, match="knows no wave '2024' before it"):
        Questions(series / "2025" / "bundle").answer("change in share(smoker) since 2024")


def test_runs_of_other_waves_are_no_choice_among_several(series: Path) -> None:
    ledger = Ledger(f"sqlite:///{series / '.synthdp' / 'ledger.db'}").entries()
    (line,) = [x for x in red_lines(series / "2027" / "bundle", ledger) if x.what == "selection"]
    assert line.state == "ok"


# --- planted faults ---


def resummed(bundle: Path) -> None:
    """Sums that fit the files, as a forger writes them."""
    names = sorted(p.relative_to(bundle).as_posix() for p in bundle.rglob("*") if p.is_file())
    lines = [f"{sha256(bundle / n)}  {n}\n" for n in names if n != SUMS]
    (bundle / SUMS).write_text("".join(lines))


def _another_table(waves: Any) -> None:
    table = json.loads(waves[0]["marginals"])
    table["tables"][0]["counts"][0] += 400
    waves[0]["marginals"] = json.dumps(table)


def _left_out(waves: Any) -> None:
    del waves[0]


def _other_sums(waves: Any) -> None:
    waves[1]["sums"] += "\n"


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (_another_table, "wave 1: its spec or its tables were changed"),
        (_left_out, "the waves before the first one are left out"),
        (_other_sums, "wave 2 is not the one whose digest the spec after it states"),
    ],
)
def test_verify_sees_waves_that_are_not_those_of_the_digest(
    fault: Any, said: str, series: Path, tmp_path: Path
) -> None:
    bundle = shutil.copytree(series / "2027" / "bundle", tmp_path / "bundle")
    content = json.loads((bundle / WAVES).read_text())
    fault(content["waves"])
    (bundle / WAVES).write_text(json.dumps(content))
    resummed(bundle)
    assert f"{WAVES}: {said}" in inspect_bundle(bundle).problems


def test_a_release_refuses_another_bundle_than_the_one_it_names(series: Path) -> None:
    asked = spec_of("2028", series / "2027" / "bundle")
    asked["waves"]["after"]["sha256"] = "0" * 64
    with pytest.raises(VerifyError, match="is not the one whose digest"):
        release(write(series, asked), out=series / "2028")
    asked["waves"]["after"]["bundle"] = "nowhere"
    with pytest.raises(VerifyError, match="cannot be read: FileNotFoundError"):
        release(write(series, asked), out=series / "2028")


# --- specs ---

EARLIER = {"bundle": "2026/bundle", "sha256": "0" * 64}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"privacy": {"adjacency": "replace_one"}}, "replace_one cannot be used for waves"),
        ({"privacy": {"cap": None}}, "there is no cap to keep a share of"),
        ({"waves": {"people": "some"}}, "allowed: same"),
        ({"waves": {"people": {"rotating": 0}}}, "got 0; it must be at least 1"),
        ({"waves": {"people": {"disjoint": "cohort", "rotating": 4}}}, "unknown key"),
        ({"waves": {"after": EARLIER}, "prior": EARLIER | {"statement": "s"}}, "would count twice"),
    ],
)
def test_specs_of_waves_that_promise_nothing_are_refused(changes: Any, said: str) -> None:
    asked = spec_of("2027", None)
    for section, values in changes.items():
        asked.setdefault(section, {}).update(values)
    with pytest.raises(SpecError) as caught:
        parse_spec(yaml.safe_dump(asked), path="spec.yaml")
    assert said in str(caught.value.to_json())


def test_linked_tables_have_no_waves() -> None:
    text = "synthdp: 1\ndataset: {id: d, tables: {}}\nwaves: {name: a, people: same}\n"
    with pytest.raises(SpecError, match="linked tables are released without waves"):
        parse_any(text, path="spec.yaml")


# --- beside a prior ---

PRIOR = {"source": "public.csv", "licence": "CC0-1.0", "statement": "Another town, public"}
GIVEN = {"mode": "given", "edges": ["sex -> smoker"]}


@pytest.mark.parametrize("modes", [("predict", "predict"), ("predict", "given")], ids="-".join)
def test_a_wave_with_a_prior_verifies_and_answers(
    modes: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables of both waves are shrunk or filtered for the rows alone; answers are of one wave's
    own, with which the wave before may have counted other tables.
    """
    monkeypatch.setattr(plan, "GROUP_SIZES", (1, 2))
    before: Path | None = None
    predict_table().iloc[::2].to_csv(tmp_path / "public.csv", index=False)
    for name, mode in zip(NAMES, modes, strict=False):
        asked = spec_of(name, before) | {"prior": PRIOR}
        if mode == "given":
            asked["graph"], asked["privacy"]["shares"] = GIVEN, {"measure": 0.5, "train": 0.5}
            asked["synthesizer"] = {"steps": 5, "batch": 64, "hidden": 8}
        predict_table().to_csv(tmp_path / f"{name}.csv", index=False)
        found = release(write(tmp_path, asked), out=tmp_path / name).bundle
        assert found is not None
        assert not inspect_bundle(found).problems
        before = last = found
    assert {*(p.name for p in last.iterdir())} >= {WAVES, INNOVATIONS, "prior.json"}
    facts = json.loads((last / "privacy" / "certificate.json").read_text())
    assert facts["prior"]["sha256"] and facts["waves"]["name"] == "2026"
    asked_of = Questions(last)
    told = asked_of.answer("change in share(smoker) since 2025")
    assert told.interval is not None and float(told.interval[0]) < 0.2 > -float(told.interval[1])
    alone = shutil.copytree(last, tmp_path / "alone")
    for extra in ("prior.json", WAVES, INNOVATIONS):
        (alone / extra).unlink()
    resummed(alone)
    for own in ("share(smoker)", "mean(age)", "share(smoker and sex == 'male')"):
        assert str(Questions(alone).answer(own)) == str(asked_of.answer(own))
    drawn = Sampler.of_bundle(last).sample(20, rng=np.random.default_rng(1))
    assert sum(map(len, drawn)) == 20


def twice_two(split: str) -> pd.DataFrame:
    """A table of which, but for targets, one pair is independent: sex and the column `split`."""
    rng = np.random.default_rng(5)
    first, second = (rng.random(PREDICT_ROWS) < 0.5 for _ in range(2))
    both = 2 * first + second
    visits, grade = 4 * both + 1, np.array(["low", "middle", "middle", "high"])[both]
    if split == "visits":
        visits = np.where(second, 1, 12)
    else:
        grade = np.where(second, "low", "high")
    sexes, age = np.where(first, "male", "female"), 20 + 20 * both
    smoker = np.where(first, "yes", "no")
    return pd.DataFrame(
        {"smoker": smoker, "sex": sexes, "age": age, "grade": grade, "visits": visits}
    )


def test_a_prior_is_of_pairs_that_earlier_waves_alone_have_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A screen leaves out another pair in the last wave; rows follow both, and the prior."""
    monkeypatch.setattr(plan, "GROUP_SIZES", (1, 2))
    rule = replace(predict.ROUNDS, clear=1e9, min_columns=5, kept_per_column=1)
    monkeypatch.setattr(predict, "ROUNDS", rule)
    twice_two("visits").iloc[::2].to_csv(tmp_path / "public.csv", index=False)
    before, counted = None, list[set[frozenset[str]]]()
    for name, split in zip(NAMES, ("visits", "visits", "grade"), strict=True):
        twice_two(split).to_csv(tmp_path / f"{name}.csv", index=False)
        asked = spec_of(name, before) | ({"prior": PRIOR} if split == "grade" else {})
        before = release(write(tmp_path, asked), out=tmp_path / name).bundle
        assert before is not None and not inspect_bundle(before).problems
        tables = json.loads((before / "marginals.json").read_text())["tables"]
        counted.append({frozenset(t["columns"]) for t in tables if len(t["columns"]) == 2})
    assert before is not None and counted[0] == counted[1] != counted[2]
    tables = json.loads((before / "prior.json").read_text())["tables"]
    found = {frozenset(t["columns"]) for t in tables if len(t["columns"]) == 2}
    assert found > counted[2] and frozenset({"sex", "grade"}) in found
