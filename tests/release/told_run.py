"""Of what a run does, by a spec, which room is told what: rows of `test_settings`."""

from __future__ import annotations

from unittest.mock import ANY

import pytest

from synthdp.inference import Rows
from synthdp.ledger import Wave
from synthdp.privacy.calibration import expected_fit_rows, sample_rate
from synthdp.privacy.plan import MEASURE, TRAIN
from tests.release import seams
from tests.release.told import COUNT, OTHER, SOME, Told, noise, of, says, slack, spec_of, told

LISTENS = "tcp://127.0.0.1:1"
LEARNT = {
    "graph": {"mode": "learn", "edges": []},
    "privacy": {"shares": {"measure": 0.2, "graph": 0.3, "train": 0.5}},
}
OF_THE_RUN: dict[str, Told] = {
    "Budget.epsilon": told(
        {"privacy": {"epsilon": 2.0}},
        (of(seams.reserved, "epsilon"), 1.0, 2.0),
        (of(seams.plan, "epsilon"), 1.0, 2.0),
        (of(seams.facts, "epsilon_allowed"), 1.0, 2.0),
        (of(seams.limits, "loss"), 20.0, 30.0),
        (of(seams.shadow, "privacy/epsilon"), 1.0, 2.0),
        noise(TRAIN),
    ),
    "Budget.delta": told(
        {"privacy": {"delta": 1e-6}},
        (of(seams.reserved, "delta"), 1e-5, 1e-6),
        (of(seams.read, "delta"), 1e-5, 1e-6),
        (of(seams.plan, "delta"), 1e-5, 1e-6),
        (of(seams.facts, "delta"), 1e-5, 1e-6),
        noise(TRAIN),
    ),
    "Budget.adjacency": told(
        {"privacy": {"adjacency": "replace_one"}},
        (of(seams.reserved, "adjacency"), "add_remove", "replace_one"),
        (of(seams.plan, "adjacency"), "add_remove", "replace_one"),
        (of(seams.facts, "adjacency"), "add_remove", "replace_one"),
        (of(seams.played, "relation"), "add_remove", "replace_one"),
        says("certificate.md", "replace"),
    ),
    "Cap.epsilon": told(
        {"privacy": {"cap": {"epsilon": 5.0, "delta": 1e-4}}},
        (of(seams.reserved, "cap"), None, (5.0, 1e-4)),
        (of(seams.facts, "cap"), None, (5.0, 1e-4)),
    ),
    "Cap.delta": told(
        {"privacy": {"cap": {"epsilon": 6.0, "delta": 2e-4}}},
        (of(seams.reserved, "cap"), None, (6.0, 2e-4)),
        (of(seams.facts, "cap"), None, (6.0, 2e-4)),
    ),
    "Waves.name": told(
        {"waves": {"name": "b"}},
        (of(seams.reserved, "wave"), Wave("a", None), Wave("b", None)),
        (of(seams.facts, "waves/name"), "a", "b"),
        base={"waves": {"name": "a", "people": "same"}},
    ),
    "Rotating.rotating": told(
        {"waves": {"people": {"rotating": 3}}},
        (of(seams.reserved, "wave"), Wave("a", 2), Wave("a", 3)),
        says("certificate.md", "a person is in at most 3 waves"),
        base={"waves": {"name": "a", "people": {"rotating": 2}}},
    ),
    "Disjoint.disjoint": told(
        {"waves": {"people": {"disjoint": "cohort of it"}}},
        says("certificate.md", "nobody is in two waves, as cohort of it is fixed at entry"),
        base={"waves": {"name": "a", "people": {"disjoint": "birth year"}}},
    ),
    "Shares.measure": told(
        {"privacy": {"shares": {"measure": 0.5, "train": 0.5}}},
        noise(MEASURE),
        (of(seams.shadow, "privacy/shares/measure"), 0.2, 0.5),
    ),
    "Shares.train": told({"privacy": {"shares": {"measure": 0.5, "train": 0.5}}}, noise(TRAIN)),
    "Shares.estimands": told(
        {"privacy": {"shares": SOME}, "estimands": [COUNT]},
        (lambda spec: "estimand: 1" in seams.purposes(spec), False, True),
        (of(seams.shadow, "privacy/shares/measure"), 0.2, 0.5),
    ),
    "Shares.moments": told(
        {"privacy": {"shares": {"measure": 0.3, "train": 0.5, "moments": 0.2}}},
        (lambda spec: "moments" in seams.purposes(spec), False, True),
        (of(seams.shadow, "privacy/shares/measure"), 0.2, 0.5),
    ),
    "Shares.heaps": told(
        {"privacy": {"shares": {"measure": 0.3, "train": 0.5, "heaps": 0.2}, "heaps": ["visits"]}},
        (lambda spec: "heaps" in seams.purposes(spec), False, True),
        (of(seams.shadow, "privacy/shares/measure"), 0.2, 0.5),
    ),
    "Privacy.heaps": told(
        {"privacy": {"shares": {"measure": 0.3, "train": 0.5, "heaps": 0.2}, "heaps": ["visits"]}},
        (lambda spec: "heaps" in seams.purposes(spec), False, True),
        (of(seams.shadow, "privacy/heaps"), (), ()),
    ),
    "Shares.pairs": told(
        {
            "privacy": {
                "shares": {"measure": 0.2, "pairs": 0.3, "train": 0.5},
                "pairs": [["sex", "visits"]],
            }
        },
        (lambda spec: len(seams.purposes(spec)), 2, 3),
    ),
    "Privacy.pairs": told(
        {
            "privacy": {
                "shares": {"measure": 0.2, "pairs": 0.3, "train": 0.5},
                "pairs": [["sex", "visits"], ["old", "visits"]],
            }
        },
        (
            lambda spec: seams.plan(spec).pairs and seams.plan(spec).pairs.tables,
            None,
            (("sex", "visits"), ("old", "visits")),
        ),
        (
            of(seams.limits, "tables"),
            seams.limits(spec_of({})).tables,
            seams.limits(spec_of({})).tables + 2,
        ),
    ),
    "Shares.targets": told(
        {
            "privacy": {"shares": {"measure": 0.2, "targets": 0.3, "train": 0.5}},
            "synthesizer": {"targets": ["visits"]},
        },
        (lambda spec: len(seams.purposes(spec)), 2, 3),
        noise(TRAIN),
    ),
    "Graph.mode": told(
        {"graph": {"mode": "none", "edges": []}},
        (of(seams.facts, "graph"), "given", "none"),
        (lambda spec: spec.graph.mode in seams.published("spec.yaml")(spec), True, True),
    ),
    "Graph.tiers": told(
        {"graph": {"tiers": [["sex"], ["visits"]]}},
        (of(seams.knowledge, "tiers"), (), (("sex",), ("visits",))),
        (of(seams.shadow, "graph/tiers"), (), (("sex",), ("visits",))),
    ),
    "Graph.groups": told(
        {"graph": {"groups": {"g": ["old", "visits"]}}},
        (of(seams.knowledge, "groups"), {}, {"g": ("old", "visits")}),
        (seams.parents, {"visits": ["sex"]}, {"visits": ["sex", "old"]}),
    ),
    "Graph.latent": told(
        {"graph": {"latent": [["sex", "old"]]}},
        (of(seams.knowledge, "latent"), (), (("sex", "old"),)),
        (of(seams.architecture, "latent_of"), ANY, OTHER),
    ),
    "Graph.algorithm": told(
        LEARNT | {"graph": {"mode": "learn", "edges": [], "algorithm": "svt_pc"}},
        (seams.purposes, ANY, OTHER),
        base=LEARNT,
    ),
    "Shares.graph": told(
        {"privacy": {"shares": {"measure": 0.2, "graph": 0.4, "train": 0.4}}},
        (of(seams.shadow, "privacy/shares/measure"), 0.5, pytest.approx(0.6)),
        (lambda spec: seams.plan(spec).graph, ANY, OTHER),
        base=LEARNT,
    ),
    "SynthesizerSettings.hidden": told(
        {"synthesizer": {"hidden": 16}},
        (of(seams.architecture, "hidden"), 8, 16),
        (of(seams.shadow, "synthesizer/hidden"), 8, 16),
    ),
    "SynthesizerSettings.latent": told(
        {"synthesizer": {"latent": 5}},
        (of(seams.architecture, "latent_of"), ANY, OTHER),
        (of(seams.shadow, "synthesizer/latent"), 2, 5),
    ),
    "Privacy.ledger": told(
        {"privacy": {"ledger": "sqlite:///other.db"}},
        (seams.ledger, "sqlite:////folder/.synthdp/ledger.db", "sqlite:////folder/other.db"),
        (lambda spec: "other.db" in seams.published("spec.yaml")(spec), False, False),
    ),
    "SynthesizerSettings.steps": told(
        {"synthesizer": {"steps": 30}},
        (seams.trained("steps"), 20, 30),
        (of(seams.limits, "steps"), 20, 30),
    ),
    "SynthesizerSettings.batch": told(
        {"synthesizer": {"batch": 80}},
        (seams.trained("rate"), 0.08, 0.1),
        (seams.trained("expected_batch"), 64, 80),
    ),
    "SynthesizerSettings.sample": told(
        {"synthesizer": {"sample": 400}},
        (sample_rate, 1.0, 0.5),
        (seams.trained("sample"), 1.0, 0.5),
        (of(seams.limits, "sample"), 1.0, 0.5),
        (of(seams.shadow, "synthesizer/sample"), None, 150),
    ),
    "SynthesizerSettings.clip": told(
        {"synthesizer": {"clip": 0.5}},
        (seams.trained("clip"), 1.0, 0.5),
        (of(seams.shadow, "synthesizer/clip"), 1.0, 0.5),
    ),
    "SynthesizerSettings.learning_rate": told(
        {"synthesizer": {"learning_rate": 0.1}},
        (seams.trained("learning_rate"), 0.009, 0.1),
        (of(seams.shadow, "synthesizer/learning_rate"), 0.009, 0.1),
    ),
    "SynthesizerSettings.ema": told(
        {"synthesizer": {"ema": 0.5}},
        (seams.trained("ema"), 0.999, 0.5),
        (of(seams.shadow, "synthesizer/ema"), 0.999, 0.5),
    ),
    "SynthesizerSettings.checkpoint_every": told(
        {"synthesizer": {"checkpoint_every": 7}}, (seams.trained("checkpoint_every"), 5, 7)
    ),
    "SynthesizerSettings.targets": told(
        {
            "privacy": {"shares": {"measure": 0.2, "targets": 0.3, "train": 0.5}},
            "synthesizer": {"targets": ["visits"]},
        },
        (seams.last, [], ["visits"]),
        (lambda spec: seams.plan(spec).targets is None, True, False),
        (of(seams.shadow, "synthesizer/targets"), (), ("visits",)),
    ),
    "Sampling.rows": told(
        {"sampling": {"rows": 700}},
        (lambda spec: seams.pool(spec)[:2], (1000, 4000), (700, 2800)),
        (of(seams.shadow, "sampling/rows"), 300, 300),
        says("README.md", "700"),
        says("spec.yaml", "rows: 700"),
    ),
    "Sampling.oversample": told(
        {"sampling": {"oversample": 3}},
        (lambda spec: seams.pool(spec)[1], 4000, 3000),
        (of(seams.shadow, "sampling/oversample"), 4, 3),
    ),
    "Sampling.rake": told(
        {"sampling": {"rake": False}},
        (seams.drawn_by, "chosen", "as drawn"),
        (seams.calibrated, True, False),
        (lambda spec: seams.pool(spec)[1], 4000, 1000),
        (of(seams.shadow, "sampling/rake"), True, False),
    ),
    "Sampling.balance": told(
        {"sampling": {"balance": False}},
        (seams.drawn_by, "chosen", "raked"),
        (of(seams.shadow, "sampling/balance"), True, False),
    ),
    "Sampling.even": told(
        {"sampling": {"even": ["old"]}},
        (seams.last, [], ["old"]),
        (of(seams.shadow, "sampling/even"), (), ("old",)),
    ),
    "ReleaseSpec.constraints": told(
        {"constraints": ["visits < 20"]},
        (of(seams.facts, "constraints"), (), ("visits < 20",)),
        (of(seams.shadow, "constraints"), (), ("visits < 20",)),
        says("certificate.md", "visits < 20"),
    ),
    "Evaluation.enabled": told(
        {"evaluation": {"enabled": False}},
        (of(seams.read, "holdout"), 0.2, 0.0),
        (expected_fit_rows, 800, 1000),
        (seams.rows, Rows(0.2), Rows()),
        (slack, pytest.approx(4 * 20**0.5), 0.0),
        (seams.trained("rate"), 0.08, 0.064),
        (of(seams.judged, "asked for"), [20_000], []),
        (seams.passes, 4, 3),
    ),
    "Evaluation.holdout": told(
        {"evaluation": {"holdout": 0.5}, "estimands": [COUNT], "privacy": {"shares": SOME}},
        (of(seams.read, "holdout"), 0.2, 0.5),
        (expected_fit_rows, 800, 500),
        (seams.rows, Rows(0.2), Rows(0.5)),
        (slack, pytest.approx(4 * 20**0.5), pytest.approx(4 * 50**0.5)),
        (of(seams.judged, "holdout"), 0.2, 0.5),
        (of(seams.shadow, "evaluation/holdout"), 0.0, 0.0),
        (seams.noises, {}, {"count": pytest.approx(5.39, rel=0.02)}),
    ),
    "Evaluation.max_rows": told(
        {"evaluation": {"max_rows": 500}},
        (of(seams.judged, "asked for"), [20_000], [500]),
        (of(seams.judged, "max_rows"), 20_000, 500),
        (seams.scored, 20_000, 500),
    ),
    "Evaluation.targets": told(
        {"evaluation": {"targets": ["old"], "disclosure": "private"}},
        (of(seams.judged, "targets"), ("sex",), ("old",)),
        (lambda spec: seams.plan(spec).scores and seams.plan(spec).scores.targets, None, ("old",)),
    ),
    "Evaluation.disclosure": told(
        {"evaluation": {"disclosure": "private"}},
        (lambda spec: len(seams.purposes(spec)), 2, 3),
        noise(TRAIN),
    ),
    "Evaluation.disclosure_share": told(
        {"evaluation": {"disclosure": "private", "disclosure_share": 0.5}},
        (lambda spec: spec.evaluation.dp_share, 0.0, 0.5),
        noise(TRAIN),
    ),
    "Evaluation.classifiers": told(
        {"evaluation": {"classifiers": ["knn"]}},
        (of(seams.judged, "classifiers"), ("logistic", "boosted_trees", "random_forest"), ("knn",)),
    ),
    "Evaluation.triples": told(
        {"evaluation": {"triples": 5}}, (of(seams.judged, "triples"), 64, 5)
    ),
    "Evaluation.random_targets": told(
        {"evaluation": {"random_targets": 2}}, (of(seams.judged, "random_targets"), 0, 2)
    ),
    "Evaluation.subgroups": told(
        {"evaluation": {"subgroups": ["old"]}}, (of(seams.judged, "subgroups"), (), ("old",))
    ),
    "MembershipAttack.enabled": told(
        {"attacks": {"membership": {"enabled": False}}},
        (seams.attacked, True, False),
        (seams.cluster_asked, True, False),
        base={"compute": {"backend": "dask", "address": LISTENS}},
    ),
    "MembershipAttack.rows": told(
        {"attacks": {"membership": {"rows": 123}}},
        (of(seams.played, "rows"), 300, 123),
        (of(seams.shadow, "dataset/rows/value"), 300, 123),
        (of(seams.shadow, "sampling/rows"), 300, 123),
    ),
    "MembershipAttack.pairs": told(
        {"attacks": {"membership": {"pairs": 7}}}, (of(seams.played, "pairs"), 40, 7)
    ),
    "MembershipAttack.steps": told(
        {"attacks": {"membership": {"steps": 9}}}, (of(seams.played, "steps"), 100, 9)
    ),
    "Gate.outside_guarantee": told(
        {"gates": [{"metric": "tv1", "at_most": 0.3, "outside_guarantee": True}]},
        (lambda spec: len(seams.facts(spec).outside_gates), 0, 1),
        says("certificate.md", "tv1"),
    ),
    "Gate.metric": told(
        {"gates": [{"metric": "tv2", "at_most": 0.3, "outside_guarantee": True}]},
        (lambda spec: [g.metric for g in seams.facts(spec).outside_gates], [], ["tv2"]),
        says("certificate.md", "tv2"),
    ),
    "Gate.at_most": told(
        {
            "gates": [
                {"metric": "tv1", "at_most": 0.37, "outside_guarantee": True},
                {"metric": "tv1_dp", "at_most": 0.41},
            ],
            "evaluation": {"disclosure": "private"},
        },
        says("certificate.md", "at most 0.37"),
        (lambda spec: [g.at_most for g in seams.facts(spec).charged_gates], [], [0.41]),
        (lambda spec: [g.at_most for g in seams.facts(spec).outside_gates], [], [0.37]),
    ),
    "Gate.at_least": told(
        {"gates": [{"metric": "tstr_auc", "at_least": 0.61, "outside_guarantee": True}]},
        says("certificate.md", "at least 0.61"),
    ),
    "Compute.threads": told(
        {"compute": {"threads": 3}},
        (of(seams.read, "compute/threads"), None, 3),
        (lambda spec: seams.pool(spec)[2], None, 3),
        (of(seams.played, "runner/workers"), ANY, 3),
    ),
    "Compute.backend": told(
        {"compute": {"backend": "dask", "address": LISTENS}},
        (lambda spec: type(seams.played(spec)["runner"]).__name__, "Loky", "Dask"),
    ),
    "Compute.address": told(
        {"compute": {"backend": "dask", "address": LISTENS}},
        (of(seams.read, "compute/address"), None, LISTENS),
        (lambda spec: getattr(seams.played(spec)["runner"], "address", None), None, LISTENS),
    ),
    "Compute.engine": told(
        {"compute": {"engine": "memory"}}, (of(seams.read, "compute/engine"), "auto", "memory")
    ),
    "Compute.device": told({"compute": {"device": "cuda"}}, says("spec.yaml", "device: cuda")),
    "Edge.causes": told(
        {"graph": {"edges": ["old -> visits"]}},
        (of(seams.knowledge, "required"), {("sex", "visits")}, {("old", "visits")}),
        (seams.parents, {"visits": ["sex"]}, {"visits": ["old"]}),
    ),
    "Edge.effects": told(
        {"graph": {"edges": ["sex -> old"]}},
        (of(seams.knowledge, "required"), {("sex", "visits")}, {("sex", "old")}),
        (seams.parents, {"visits": ["sex"]}, {"old": ["sex"]}),
    ),
}
