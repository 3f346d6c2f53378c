"""A release with estimands: from the spec to the recipient, and what `verify` sees of a change."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from synthdp import Bundle
from synthdp.data import Domain
from synthdp.errors import OutputError, VerifyError
from synthdp.inference.estimands import estimands_json, stated_sums
from synthdp.privacy import plan
from synthdp.spec import load_spec, parse_spec
from synthdp.verify import verify_bundle
from tests.release.conftest import Tiny, moved, refit, table

pytestmark = pytest.mark.check

ROWS = 3000
CHANGES: dict[str, Any] = {
    "dataset": {"rows": {"kind": "approximate", "value": ROWS}},
    "privacy": {
        "epsilon": 2.0,
        "shares": {"measure": 0.2, "graph": 0.3, "train": 0, "estimands": 0.5},
    },
    "graph": {"mode": "predict"},
    "estimands": [
        {"kind": "question", "ask": "mean(weight) where visits > 2 by sex"},
        {"kind": "effect", "treated": "smoker", "outcome": "visits", "adjust": ["sex"]},
        {"kind": "table", "columns": ["sex", "smoker", "grade"]},
        {"kind": "question", "ask": "share(joined >= '2021-02-11')"},
        {
            "kind": "regression",
            "outcome": "weight",
            "terms": ["sex", "visits"],
            "clips": {"visits": [0, 8]},
        },
        {"kind": "question", "ask": "median(weight) by sex"},
    ],
}


@pytest.fixture(scope="module")
def one_asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "GROUP_SIZES", (1, 2))
        made = Tiny(tmp_path_factory.mktemp("asked")).write(table(ROWS), **CHANGES)
        made.release()
    return made.folder


@pytest.fixture
def asked(tiny: Tiny, one_asked: Path) -> Tiny:
    """A folder of its own with that release."""
    return moved(one_asked, tiny)


def problems(bundle: Path) -> list[str]:
    """What `verify` finds when checksums fit."""
    refit(bundle)
    with pytest.raises(VerifyError) as caught:
        verify_bundle(bundle)
    return [str(p) for p in caught.value.problems]


def test_a_plan_is_kept_and_held_against_what_came(asked: Tiny, synthdp: Any) -> None:
    kept, spec = asked.out / "plan.json", asked.folder / "spec.yaml"
    facts = json.loads(kept.read_text())
    now = json.loads(synthdp("plan", spec, "--json").out)
    assert facts == now | {"ledger": facts["ledger"]} and facts["ledger"]["spent_before"] == 0
    done = synthdp("diff", kept, asked.bundle, "--json")
    found = {f["what"]: f for f in json.loads(done.out)["findings"]}
    assert done.code == 0 and {found["epsilon"]["verdict"], found["spends"]["verdict"]} == {"same"}
    came = json.loads((asked.bundle / "estimands.json").read_text())["estimands"]
    for expected, result in zip(facts["estimands"], came, strict=True):
        for figure, got in zip(expected["figures"], result["figures"], strict=False):
            group = f": {figure['group']}" if figure["group"] else ""
            told = found[f"half-width of {expected['text']}{group}"]
            half = (got["interval"][1] - got["interval"][0]) / 2
            assert (told["a"], told["b"]) == (figure["half_width"], pytest.approx(half))
            assert told["verdict"] in ("same", "better" if half < told["a"] else "worse")
    assert sum("half-width" in what for what in found) == sum(len(e["figures"]) for e in came)
    stated = json.loads((asked.bundle / "privacy" / "certificate.json").read_text())["expected"]
    assert stated["tv1"] == pytest.approx(facts["quality"]["tv1"], rel=1e-3)
    figures = [f for e in facts["estimands"] if e["statistic"] != "table" for f in e["figures"]]
    halves = [f["half_width"] for f in figures]
    assert [f["half_width"] for f in stated["figures"]] == pytest.approx(halves, rel=1e-3)
    reserved = next(e for e in asked.ledger.entries() if e.kind == "reserve")
    assert reserved.body["expected"] == stated
    for page in (asked.bundle / "report.html", asked.out / "internal" / "internal.html"):
        html = page.read_text(encoding="utf-8")
        assert f"The plan forecast {1 + len(figures)} figures" in html
    assert "expected before any row was read" in synthdp("diff", kept, asked.bundle).out
    for none in (spec, asked.bundle / "graph.json"):
        refused = synthdp("diff", none, asked.bundle)
        assert refused.code == 2 and "is no plan" in refused.err


def test_a_bundle_has_what_was_asked_and_the_rows_agree(asked: Tiny, synthdp: Any) -> None:
    assert verify_bundle(asked.bundle).ok
    purposes = [e.body["purpose"] for e in asked.ledger.entries() if e.kind == "charge"]
    assert [p for p in purposes if p.startswith("estimand")] == [
        "estimand: 3",
        *(f"estimand: {i}" for i in (1, 2, 4, 5, 6)),
        "estimand: 2, contrast",
    ]
    bundle, frame = Bundle(asked.bundle), pd.read_csv(asked.folder / "table.csv")
    mean, effect, counted, share, regression, median = bundle.estimands
    joined = (pd.to_datetime(frame["joined"]) >= "2021-02-11").mean()
    low, high = share.figures[0].interval
    assert low - 0.05 < joined < high + 0.05  # twice the width of the interval about the truth
    assert [f.group for f in mean.figures] == ["female", "male"]
    assert effect.figures[0].estimate is not None and "adjusted for sex" in " ".join(effect.about)
    assert not counted.figures
    assert [f.group for f in regression.figures] == ["(intercept)", "sex=male", "visits"]
    assert regression.figures[2].interval and "weight ~ sex + visits" in str(regression)
    assert "its levels are compared with female" in " ".join(regression.about)
    assert [f.group for f in median.figures] == ["female", "male"]
    assert median.figures == bundle.answer("quantile(weight, 0.5) by sex").figures
    answer = bundle.answer("share(grade == 'low') where smoker by sex")
    assert answer.tier == "A"  # by the contingency table
    same = bundle.answer("mean(weight)  where visits >= 3 by sex")
    assert same.figures == mean.figures
    everything = synthdp("answer", asked.bundle)
    assert everything.code == 0 and all(str(r) in everything.out for r in bundle.estimands)
    listed = json.loads(synthdp("answer", asked.bundle, "--json").out)["estimands"]
    assert listed == json.loads((asked.bundle / "estimands.json").read_text())["estimands"]
    other = bundle.answer("mean(weight) where visits > 3 and joined > '2021-01-01' by sex")
    assert other.tier == "C" and "mean(weight) where visits > 2 by sex" in other.about[-1]
    with pytest.raises(OutputError) as refused:
        bundle.effect("smoker", "visits")
    assert "effect on visits: smoker against all other rows" in str(refused.value)
    assert "synthdp answer .    # 6 results" in (asked.bundle / "README.md").read_text()
    printed = synthdp("answer", asked.bundle, "share(joined >= '2021-02-11')")
    assert printed.code == 0 and "sums that this release paid for" in printed.out
    page = (asked.bundle / "report.html").read_text()
    assert "Questions that this release answers" in page
    assert "mean(weight) where visits &gt; 2 by sex" in page
    steward = json.loads((asked.out / "internal" / "internal.json").read_text())
    real = {e["text"]: e["real"] for e in steward["estimands"] if not e["group"]}
    assert real["share(joined >= '2021-02-11')"] == pytest.approx(joined)
    (compared,) = steward["evaluation"]["effects"]  # of the rows, beside what was paid for
    assert compared["outcome"] == "visits" and compared["adjusted"] == ["sex"]
    slopes = {e["group"]: e["real"] for e in steward["estimands"] if "~" in e["text"]}
    kept = frame.dropna(subset=["sex", "visits", "weight"])
    x = np.column_stack([np.ones(len(kept)), kept["sex"] == "male", kept["visits"]]).astype(float)
    exact = np.linalg.lstsq(x, kept["weight"].to_numpy(float), rcond=None)[0]
    assert [*slopes.values()] == pytest.approx(exact, rel=0.01)
    certificate = (asked.bundle / "privacy" / "certificate.md").read_text()
    assert "estimand: 1" in certificate


def test_verify_sees_another_figure_other_noise_and_a_missing_file(asked: Tiny) -> None:
    path = asked.bundle / "estimands.json"
    kept = path.read_text()

    def other_figure(stated: dict[str, Any]) -> None:
        stated["estimands"][3]["figures"][0]["estimate"] += 0.1

    def less_noise(stated: dict[str, Any]) -> None:
        stated["sums"]["4"]["sigma"] /= 2

    def off_lattice(stated: dict[str, Any]) -> None:
        stated["sums"]["1"]["squares"][0] += 1e-4

    def other_product(stated: dict[str, Any]) -> None:
        stated["sums"]["5"]["products"][3] += 50

    def more_noise(stated: dict[str, Any]) -> None:
        """With the figures that follow from it: wider intervals than were paid for."""
        stated["sums"]["4"]["sigma"] *= 2
        spec = load_spec(asked.bundle / "spec.yaml")
        domain = Domain.from_spec(spec.columns)
        stated.update(estimands_json(spec, domain, stated_sums(stated, spec, domain)))

    for change, problem in (
        (more_noise, "states noise of"),
        (other_figure, "its figures do not follow from its sums"),
        (other_product, "its figures do not follow from its sums"),
        (lambda stated: stated["sums"]["5"]["products"].pop(), "estimands.json"),
        (lambda stated: stated["sums"]["5"].update(sigma=0.5), "states noise of"),
        (less_noise, "states noise of"),
        (off_lattice, "are none that their noise is rounded to"),
        (lambda stated: stated["sums"].pop("4"), "estimands.json"),
        (lambda stated: stated["sums"]["4"]["counts"].append(1.0), "estimands.json"),
    ):
        stated = json.loads(kept)
        change(stated)
        path.write_text(json.dumps(stated))
        found = problems(asked.bundle)
        assert any(problem in p for p in found), found
    path.unlink()
    assert any("must be there where the spec pays" in p for p in problems(asked.bundle))


def test_verify_misses_an_estimand_that_was_charged(asked: Tiny) -> None:
    """Left out of the spec and of the file of figures, so that these agree with each other."""
    spec, figures = asked.bundle / "spec.yaml", asked.bundle / "estimands.json"
    content, stated = yaml.safe_load(spec.read_text()), json.loads(figures.read_text())
    del content["estimands"][-1]
    stated["sums"].popitem()
    stated["estimands"].pop()
    spec.write_text(yaml.safe_dump(content, sort_keys=False))
    figures.write_text(json.dumps(stated))
    assert any("lacks the estimand that the ledger charged" in p for p in problems(asked.bundle))


def test_verify_sees_an_estimand_that_is_told_otherwise_than_it_was_paid_for(asked: Tiny) -> None:
    """Spec, figures and checksums are changed together, so that these agree with each other."""
    folder = asked.bundle
    told = yaml.safe_load((folder / "spec.yaml").read_text())
    sums = json.loads((folder / "estimands.json").read_text())["sums"]
    for change in (
        lambda spec: spec["estimands"][0].update(ask="mean(weight) where visits > 3 by sex"),
        lambda spec: spec["estimands"][1].update(clip=[0, 4]),
        lambda spec: spec["estimands"][1].update(treated="not smoker"),
        lambda spec: spec["estimands"][4].update(clips={"visits": [1, 7]}),
        lambda spec: spec["columns"]["sex"].update(categories=["male", "female"]),
    ):
        relabelled = json.loads(json.dumps(told))
        change(relabelled)
        text = yaml.safe_dump(relabelled, sort_keys=False)
        spec = parse_spec(text, path="spec.yaml")
        domain = Domain.from_spec(spec.columns)
        figures = estimands_json(spec, domain, stated_sums({"sums": sums}, spec, domain))
        (folder / "spec.yaml").write_text(text)
        (folder / "estimands.json").write_text(json.dumps(figures))
        found = problems(folder)
        assert any("is not the spec that the ledger names" in p for p in found), found
        assert not any("do not follow from its sums" in p for p in found), found


def test_verify_misses_a_contingency_table(asked: Tiny) -> None:
    path = asked.bundle / "marginals.json"
    stated = json.loads(path.read_text())
    stated["tables"] = [t for t in stated["tables"] if len(t["columns"]) < 3]
    path.write_text(json.dumps(stated))
    assert any("has no table of sex, smoker, grade" in p for p in problems(asked.bundle))


def test_an_effect_is_adjusted_for_ranges_of_its_own(tiny: Tiny) -> None:
    asked = {"kind": "effect", "treated": "smoker", "outcome": "visits"}
    asked |= {"adjust": {"weight": [40, 63], "sex": []}}
    tiny.write(table(ROWS), **CHANGES | {"estimands": [asked]})
    tiny.release()
    assert verify_bundle(tiny.bundle).ok
    (effect,) = Bundle(tiny.bundle).estimands
    assert "adjusted for weight in ranges from 40, 63, sex" in " ".join(effect.about)
    frame = pd.read_csv(tiny.folder / "table.csv").dropna(subset=["visits"])
    steward = json.loads((tiny.out / "internal" / "internal.json").read_text())
    by, treated = [frame["weight"] >= 63, frame["sex"].fillna("")], frame["smoker"] == "yes"
    found = [
        len(rows)
        / len(frame)
        * (rows[treated[rows.index]].mean() - rows[~treated[rows.index]].mean())
        for _, rows in frame["visits"].clip(upper=30).groupby(by)
    ]
    assert steward["estimands"][0]["real"] == pytest.approx(sum(found), rel=0.02)


def test_an_estimand_that_is_likely_refused_is_paid_for_only_if_told(
    tiny: Tiny, synthdp: Any
) -> None:
    asked = {"kind": "effect", "treated": "smoker", "outcome": "visits", "adjust": ["sex", "grade"]}
    tiny.write(
        table(150),
        **CHANGES | {"estimands": [asked], "dataset": {"rows": {"kind": "public", "value": 150}}},
    )
    told = synthdp("release", tiny.spec, "--out", tiny.out)
    assert told.code and "likely to be paid for and refused" in told.err
    assert "nothing was spent" in told.err and not tiny.bundle.exists()
    tiny.release(accept_refusals=True)
    (effect,) = Bundle(tiny.bundle).estimands
    assert effect.figures[0].refused


def test_a_clipped_mean_does_not_answer_for_the_whole_one(tiny: Tiny) -> None:
    """Nor does an attack on a few rows stop a release whose strata need many."""
    estimands = [
        {"kind": "question", "ask": "mean(weight)", "clip": [40, 50]},
        {"kind": "effect", "treated": "smoker", "outcome": "weight", "adjust": ["sex", "grade"]},
        *({"kind": "question", "ask": f"share(visits > {k})"} for k in range(5)),
    ]
    attacked = {"membership": {"enabled": True, "rows": 60, "pairs": 4, "steps": 10}}
    shares = {"measure": 0.2, "train": 0.5, "estimands": 0.3}
    dataset = {"rows": {"kind": "approximate", "value": 6 * ROWS}}
    privacy = {"epsilon": 2.0, "shares": shares}
    tiny.write(
        table(6 * ROWS),
        dataset=dataset,
        privacy=privacy,
        estimands=estimands,
        attacks=attacked,
    )
    tiny.release(accept_refusals=True)
    assert verify_bundle(
        tiny.bundle
    ).ok  # nine charges, which is more than a spec without estimands has
    bundle = Bundle(tiny.bundle)
    assert float(bundle.estimands[0].figures[0].estimate) < 50.1
    assert float(bundle.answer("mean(weight)").estimate) > 60
    page = (tiny.out / "internal" / "internal.html").read_text(encoding="utf-8")
    assert "mean(weight) (weight clipped to 40 to 50, of " in page


@pytest.mark.parametrize("even", [[], ["weight"]], ids=["chosen", "drawn again"])
def test_rows_follow_an_effect_that_the_model_lacks_and_verify_knows_why(
    tiny: Tiny, even: list[str]
) -> None:
    """By its graph smoking does nothing; the paid effect of 9.5 kg is in the rows all the same."""
    frame = table(ROWS)
    frame["weight"] = (frame["weight"] + 15 * (frame["smoker"] == "yes")).clip(upper=100).round(1)
    changes = CHANGES | {
        "graph": {"mode": "given", "edges": ["sex -> grade"]},
        "privacy": {"epsilon": 2.0, "shares": {"measure": 0.4, "train": 0.1, "estimands": 0.5}},
        "estimands": [{"kind": "effect", "treated": "smoker", "outcome": "weight", "adjust": []}],
        "sampling": {"rows": ROWS, "oversample": 4, "even": even},
    }
    tiny.write(frame, **changes)
    tiny.release()
    bundle = Bundle(tiny.bundle)
    paid = float(bundle.estimands[0].figures[0].estimate)
    means = bundle.table().groupby("smoker", observed=True)["weight"].mean()
    assert abs(means.iloc[1] - means.iloc[0]) > 0.8 * abs(paid) > 4
    assert verify_bundle(tiny.bundle).ok


def test_a_bundle_without_estimands_has_no_such_file(released: Tiny) -> None:
    assert not (released.bundle / "estimands.json").exists()
    assert Bundle(released.bundle).estimands == ()
    (released.bundle / "estimands.json").write_text("{}")
    assert any("nowhere else" in p for p in problems(released.bundle))


def test_the_contingency_table_reaches_the_rows(asked: Tiny) -> None:
    """Rows are held to the three-way table: their shares lie near its noisy ones."""
    bundle = Bundle(asked.bundle)
    told = bundle.marginals["sex", "smoker", "grade"].clip(0).groupby(level=[0, 1]).sum()
    rows = bundle.table()
    drawn = rows.groupby(["sex", "smoker"], observed=True).size().to_numpy() / len(rows)
    assert np.abs(drawn - (told / told.sum()).to_numpy()).sum() / 2 < 0.1


def test_the_data_card_says_what_was_measured(asked: Tiny) -> None:
    card = (asked.bundle / "DATACARD.md").read_text()
    assert "with 95% intervals: `estimands.json`" in card
    assert "Noisy tables have 15 of the 15 pairs of columns together" in card


def test_the_data_card_of_a_graph_says_that_relations_are_the_models(released: Tiny) -> None:
    card = (released.bundle / "DATACARD.md").read_text()
    assert "Single columns alone were measured" in card
