"""Mode predict from rows to a verified bundle: what is charged, and what every text says of arrows
that claim no cause.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from synthdp import Bundle
from synthdp.audit import ShadowTrainer, TableMeasurer, shadow_spec
from synthdp.audit import plan as audit
from synthdp.audit.plan import public_graph
from synthdp.bundle import audit_markdown
from synthdp.data import Domain, encode
from synthdp.errors import OutputError, SpecError
from synthdp.graph import CausalGraph, GraphEdge
from synthdp.model import plan_for
from synthdp.privacy import plan
from synthdp.privacy.mechanisms.marginals import ChosenMarginals
from synthdp.release import release, resume
from synthdp.spec import load_spec
from synthdp.spec.amendment import amendment
from synthdp.verify import Reader, verify_bundle
from synthdp.verify.rewritten import check_graph
from synthdp_attacks import WhiteBox
from tests.builders import predict_spec, predict_table
from tests.release.conftest import dying

pytestmark = pytest.mark.check

TABLES = ["measure", "graph: all pairs", "graph: chosen pairs"]
TRAINED = {
    "privacy": {
        "epsilon": 2.0,
        "delta": 1e-5,
        "shares": {"measure": 0.2, "graph": 0.5, "train": 0.3},
    },
    "synthesizer": {"steps": 20, "batch": 64, "hidden": 8},
    "attacks": {"membership": {"enabled": False}},
}
UNJUDGED = {"evaluation": {"enabled": False}, "attacks": {"membership": {"enabled": False}}}
Run = Callable[..., Any]


def write(folder: Path, **sections: Any) -> Path:
    """Table and spec in `folder`; returns the spec's path."""
    predict_table().to_csv(folder / "table.csv", index=False)
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(predict_spec(**sections), sort_keys=False), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def few_group_sizes() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "GROUP_SIZES", (1, 2))
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, few_group_sizes: None) -> Path:
    """The output folder of a release without training."""
    folder = tmp_path_factory.mktemp("predict")
    release(write(folder), out=folder / "out")
    return folder / "out"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, few_group_sizes: None) -> Path:
    """The output folder of a release that trains as well."""
    folder = tmp_path_factory.mktemp("trained")
    release(write(folder, **TRAINED), out=folder / "out")
    return folder / "out"


def purposes(bundle: Path) -> list[str]:
    entries = json.loads((bundle / "privacy/ledger.json").read_text())["entries"]
    return [e["body"]["purpose"] for e in entries if e["kind"] == "charge"]


def words(path: Path) -> str:
    return " ".join(path.read_text(encoding="utf-8").split())


def test_tables_are_all_that_is_charged_and_the_bundle_verifies(made: Path) -> None:
    assert purposes(made / "bundle") == TABLES
    assert verify_bundle(made / "bundle").ok
    graph = CausalGraph.from_json(json.loads((made / "bundle/graph.json").read_text()))
    assert {("sex", "smoker"), ("age", "grade"), ("visits", "smoker")} <= set(graph.directed)
    assert {e.provenance for e in graph.edges} == {"predictive"} and graph.predictive


def test_with_a_share_for_it_training_goes_on_from_the_tables(trained: Path) -> None:
    assert purposes(trained / "bundle") == [*TABLES, "train"]
    assert verify_bundle(trained / "bundle").ok
    card = words(trained / "bundle/DATACARD.md")
    assert "and DP-SGD trained it further." in card and "nothing was trained" not in card
    certificate = words(trained / "bundle/privacy/certificate.md")
    assert "the training's noise is a 64-bit Gaussian" in certificate


def test_certificate_and_card_say_that_arrows_predict(made: Path) -> None:
    card, certificate = (
        words(made / "bundle" / name) for name in ("DATACARD.md", "privacy/certificate.md")
    )
    assert (
        "No causal graph: arrows say which columns predict which, in the order of the spec; they"
        " are no causes. Which pairs were measured was chosen from noisy tables, and paid for."
        in card
    )
    assert "that it is a cause in the world" not in card and "nothing was trained by DP-SGD" in card
    assert (
        "- the order of the columns, which is no causal graph: an arrow says that a column predicts"
        " a later one, and claims no cause;" in certificate
    )
    assert "training" not in certificate
    assert "exactly Gaussian is assumed. Noise on planned tables is discrete" in certificate


@pytest.mark.parametrize("name", ["bundle/report.html", "internal/internal.html"])
def test_no_page_calls_the_graph_causal(made: Path, name: str) -> None:
    page = words(made / name)
    assert "Predictive graph" in page and "Arrows of the predictive graph" in page
    assert "they are no causes" in page and "predicted" in page
    assert "causal" not in page.lower() and "DP-SGD" not in page


def test_the_pictures_words_are_those_of_prediction(made: Path) -> None:
    picture = words(made / "bundle/graph.svg")
    assert "sex predicts smoker (predictive)" in picture and "sex causes" not in picture
    assert "Predictive graph of d" in picture


def test_an_intervention_is_refused(made: Path, synthdp: Any) -> None:
    bundle = made / "bundle"
    refused = synthdp("sample", bundle, "--rows", 5, "--do", "sex=male")
    assert refused.code == 2
    assert "the arrows of this graph predict, and are no causes" in refused.err
    assert "condition with --given instead" in refused.err and refused.out == ""
    with pytest.raises(OutputError, match="no causes"):
        Bundle(bundle).sample(5, do={"sex": "male"})
    assert set(Bundle(bundle).sample(5, given={"sex": "male"}, seed=1)["sex"]) == {"male"}


def test_the_plan_says_what_the_arrows_are(tmp_path: Path, synthdp: Any) -> None:
    told = synthdp("plan", write(tmp_path)).out
    assert "they are no causes" in told and "nothing is trained by DP-SGD" in told
    facts = json.loads(synthdp("plan", tmp_path / "spec.yaml", "--json").out)
    assert [s["purpose"] for s in facts["spends"]] == TABLES
    assert "DP-SGD trains it further" in synthdp("plan", write(tmp_path, **TRAINED)).out


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_an_interrupted_run_goes_on_without_paying_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    """The run ends before its `kept` + 1st round of pairs is kept; of 2, after both."""
    spec, out = write(tmp_path, **UNJUDGED), tmp_path / "out"
    left, pack = iter(range(kept)), ChosenMarginals.pack

    def pack_or_end(self: ChosenMarginals, value: Any) -> Any:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return pack(self, value)

    with monkeypatch.context() as patch:
        patch.setattr(ChosenMarginals, "pack", pack_or_end)
        patch.setattr("synthdp.release.job.sample", dying(KeyError))
        with pytest.raises(KeyError if kept == 2 else KeyboardInterrupt):
            release(spec, out=out)
    resume(out)
    assert purposes(out / "bundle") == TABLES and verify_bundle(out / "bundle").ok


def test_targets_that_decided_what_was_measured_stay(tmp_path: Path) -> None:
    old = load_spec(write(tmp_path, evaluation={"targets": ["smoker"]}))
    path = write(tmp_path, evaluation={"targets": ["sex"]})
    with pytest.raises(SpecError, match="measured what its targets need"):
        amendment(old, load_spec(path), path.read_text(), path=str(path))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda e: replace(e, cause=e.effect, effect=e.cause), "goes back in the spec's order"),
        (lambda e: replace(e, provenance="given"), "no arrow of prediction"),
        (lambda e: replace(e, directed=False), "no arrow of prediction"),
    ],
)
def test_verify_holds_links_to_the_order(
    made: Path, tmp_path: Path, change: Callable[[GraphEdge], GraphEdge], said: str
) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(made / "bundle", bundle)
    graph = CausalGraph.from_json(json.loads((bundle / "graph.json").read_text()))
    assert problems(bundle) == []
    first = next(e for e in graph.edges if e.pair == ("age", "grade"))
    links = tuple(change(e) if e == first else e for e in graph.edges)
    (bundle / "graph.json").write_text(json.dumps(replace(graph, edges=links).to_json()))
    assert any(said in problem for problem in problems(bundle))


def problems(bundle: Path) -> list[str]:
    return list(check_graph(Reader(bundle, parsed=load_spec(bundle / "spec.yaml"))))


@pytest.mark.slow
def test_an_audit_plants_no_canaries_where_nothing_is_trained(tmp_path: Path) -> None:
    spec = write(tmp_path)
    record, _ = audit.audit(spec, rows="simulated", out=tmp_path / "out", pairs=2)
    assert not record.refuted and record.membership is not None
    assert [a.method for a in record.audits if "canar" in a.method] == []
    assert "no canaries were planted" in audit_markdown(record)


@pytest.mark.slow
def test_a_training_is_replayed_with_arrows_of_its_own(tmp_path: Path) -> None:
    record, _ = audit.audit(write(tmp_path, **TRAINED), rows="none", out=tmp_path, pairs=2)
    assert record.replay is not None and record.replay.findings == ()
    assert "no canaries were planted" not in audit_markdown(record)


def test_shadow_models_take_the_whole_road(tmp_path: Path) -> None:
    spec = load_spec(write(tmp_path))
    domain = Domain.from_spec(spec.columns)
    shadow = shadow_spec(spec)
    assert shadow.graph.mode == "predict" and shadow.privacy.shares == spec.privacy.shares
    planned = plan_for(shadow, domain)
    codes = encode(domain, predict_table(60))[0]
    assert len(TableMeasurer(domain, planned)(codes)) == 5 + 10 + 10
    trainer = ShadowTrainer(shadow, domain, planned, public_graph(spec, domain), white_box=True)
    seed = np.random.SeedSequence(1)
    (many,) = trainer.many([codes], seed_sequences=[seed])
    for made in (many, trainer(codes, seed_sequence=seed)):
        assert isinstance(made, WhiteBox) and np.isfinite(made.scores["elbo"](codes[0]))
