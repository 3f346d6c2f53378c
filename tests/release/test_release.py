"""Whole releases of a tiny table: what is spent, what is written, and what is refused before
anything is spent.
"""

import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from synthdp.audit import TABLE_RELEASES
from synthdp.bundle import WRITING
from synthdp.errors import BudgetError, DataError, OutputError, VerifyError
from synthdp.privacy import accounting, plan
from synthdp.privacy.dpsgd.training import Training
from synthdp.privacy.events.kinds import event_from_json, event_to_json, with_holdout
from synthdp.privacy.mechanisms.marginals import ChosenMarginals, NoisyMarginals
from synthdp.release import TRACKED, release
from synthdp.release.gates import Figure, check_gates
from synthdp.spec import load_spec
from synthdp.spec.model import Gate
from synthdp.verify import inspect_bundle, verify_bundle
from synthdp_attacks import RUNNERS, Loky
from tests.release.conftest import SPEC, Tiny, certificate, internal, table

pytestmark = pytest.mark.check

Calls = list[tuple[str, dict[str, Any], bool]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tiny: Tiny) -> Calls:
    """Every look at rows: name and event of the mechanism, and whether its charge was in the ledger
    by then.
    """
    seen: Calls = []
    for kind in (NoisyMarginals, ChosenMarginals, Training):

        def run(self: Any, table: Any, streams: Any, *, true_run: Any = kind.run) -> Any:
            event = event_to_json(self.event(_rows_per_unit(tiny)))
            charged = [e.body for e in tiny.ledger.entries() if e.kind == "charge"]
            seen.append((self.name, event, bool(charged) and charged[-1]["event"] == event))
            return true_run(self, table, streams)

        monkeypatch.setattr(kind, "run", run)
    return seen


def _rows_per_unit(tiny: Tiny) -> int:
    return int(getattr(load_spec(tiny.spec).dataset.privacy_unit, "max_rows", 1))


# --- what a release writes and spends ---


@pytest.mark.parametrize(
    ("mode", "looks"), {"none": 2, "given": 2, "validate": 4, "learn": 3}.items()
)
def test_each_graph_mode_gives_a_valid_bundle_whose_ledger_is_the_calls_one_to_one(
    tiny: Tiny, modes: Mapping[str, Any], calls: Calls, mode: str, looks: int
) -> None:
    outcome = tiny.write(**modes[mode]).release()
    assert outcome.bundle == tiny.bundle and verify_bundle(tiny.bundle).ok
    assert (tiny.out / "internal" / "internal.html").is_file()
    assert internal(tiny.out) and not (tiny.out / ".run").exists()
    entries = tiny.ledger.entries()
    charges = [e.body for e in entries if e.kind == "charge"]
    assert tiny.kinds() == ["cap", "reserve", *["charge"] * looks, "settle"]
    assert [(c["mechanism"], c["event"]) for c in charges] == [(n, event) for n, event, _ in calls]
    assert all(charged for *_, charged in calls)
    reserved = next(e.body for e in entries if e.kind == "reserve")
    events = [event_from_json(c["event"]) for c in charges]
    rate = load_spec(tiny.spec).evaluation.held_out
    secret, told = (
        accounting.epsilon(own, delta=1e-5, adjacency="add_remove")
        for own in (with_holdout(events, rate, "add_remove"), events)
    )
    facts = certificate(tiny.bundle)
    assert 0.9 < secret <= reserved["epsilon"] == 1.0 and facts["held_out"] == rate > 0
    assert secret <= facts["epsilon"] * (1 + 1e-9) and facts["epsilon"] <= 1
    assert secret < told <= facts["epsilon_told"] * (1 + 1e-9)
    edges = json.loads((tiny.bundle / "graph.json").read_text())["edges"]
    if mode in ("none", "given"):
        given = {("sex", "smoker"), ("sex", "weight"), ("smoker", "visits"), ("grade", "visits")}
        assert {(e["from"], e["to"]) for e in edges} == (set() if mode == "none" else given)
        return

    # The tables of the graph are published, and pay for what uses them.
    path = tiny.bundle / "marginals.json"
    stated = json.loads(path.read_text())
    tables = stated["tables"]
    assert [t["columns"] for t in tables[:6]] == [[name] for name in SPEC["columns"]]
    assert tables[6:] and all(len(t["columns"]) > 1 for t in tables[6:])
    released = {r["file"]: set(r["receipts"]) for r in certificate(tiny.bundle)["released"]}
    graph = {
        e.hash for e in entries if e.kind == "charge" and e.body["purpose"].startswith("graph: ")
    }
    assert graph
    for file in ("marginals.json", "synthetic.csv", "model.safetensors", "graph.json"):
        assert graph <= released[file], file
    for own in tables[6:]:
        own["sigma"] *= 0.9
    path.write_text(json.dumps(stated))
    with pytest.raises(VerifyError, match="claims less noise than"):
        verify_bundle(tiny.bundle)


@pytest.mark.slow
def test_all_group_sizes_of_a_default_release_are_verified(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "GROUP_SIZES", (1, 2, 3, 5, 10))
    tiny.write().release()
    stated = certificate(tiny.bundle)["groups"]
    assert [g["size"] for g in stated] == [1, 2, 3, 5, 10]
    assert verify_bundle(tiny.bundle).ok


def test_the_table_has_the_specs_rows_columns_types_and_domain(released: Tiny) -> None:
    drawn = pd.read_csv(released.bundle / "synthetic.csv", keep_default_na=False, dtype=str)
    assert len(drawn) == 250  # sampling.rows, not the table's number
    assert list(drawn) == ["sex", "grade", "smoker", "visits", "weight", "joined"]
    assert set(drawn["sex"]) <= {"female", "male"} and set(drawn["smoker"]) <= {"never", "yes"}
    assert set(drawn["grade"]) <= {"low", "middle", "high", ""} and "" in set(drawn["grade"])
    assert drawn["visits"].str.fullmatch(r"\d+").all()
    assert drawn["visits"].astype(int).between(0, 20).all()
    assert (drawn["visits"] == "0").mean() > 0.2  # zero inflation is kept
    assert drawn["weight"].str.fullmatch(r"\d+\.\d").all()
    assert drawn["weight"].astype(float).between(40, 120).all()
    assert (
        pd.to_datetime(drawn["joined"], format="%Y-%m-%d").between("2020-01-01", "2023-12-31").all()
    )


def test_two_releases_of_one_spec_differ_in_every_released_value(released: Tiny) -> None:
    files = [released.bundle / n for n in ("synthetic.csv", "model.safetensors", "marginals.json")]
    before = [file.read_bytes() for file in files]
    released.release(force=True)
    assert all(a != file.read_bytes() for a, file in zip(before, files, strict=True))
    assert released.kinds().count("reserve") == 2 and released.kinds().count("charge") == 4


def test_measured_pairs_are_paid_for_published_and_attacked(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the tables of a validated graph; by workers, as a user's."""
    monkeypatch.setitem(RUNNERS, "loky", lambda workers, address: Loky(workers))
    privacy = {
        "pairs": [["visits", "smoker"]],
        "shares": {"measure": 0.2, "pairs": 0.2, "graph": 0.2, "train": 0.4},
    }
    graph = {"mode": "validate", "edges": ["sex -> smoker", "smoker -> visits"]}
    attacks = {"membership": {"enabled": True, "rows": 40, "pairs": 4, "steps": 2}}
    tiny.write(privacy=privacy, graph=graph, attacks=attacks).release()
    assert verify_bundle(tiny.bundle).ok
    assert "pairs" in [e.body["purpose"] for e in tiny.ledger.entries() if e.kind == "charge"]
    published = json.loads((tiny.bundle / "marginals.json").read_text())["tables"]
    assert ["visits", "smoker"] in [t["columns"] for t in published]
    assert "Membership attack: declared" in (tiny.out / "internal" / "internal.html").read_text()
    attack = internal(tiny.out)["attack"]
    assert [a["attack"] for a in attack["declared"]] == [
        "targeted with random_forest",
        "elbo with lira_online",
        "tables with exact_ratio",
    ]
    assert [a["models"] for a in attack["declared"]] == [2, 2, 4 * TABLE_RELEASES]
    assert ["elbo", "lira_online"] in [
        [row["extractor"], row["classifier"]] for row in attack["table"]
    ]


def test_an_id_unit_bounds_its_rows_and_charges_for_them(tiny: Tiny, calls: Calls) -> None:
    frame = table()
    frame["patient"] = np.arange(len(frame)) // 8  # 50 patients of 8 rows
    tiny.write(
        frame,
        dataset={
            "privacy_unit": {
                "kind": "id",
                "column": "patient",
                "max_rows": 2,
                "meaning": "one patient",
            }
        },
    ).release()
    assert verify_bundle(tiny.bundle).ok
    assert "patient" not in (tiny.bundle / "synthetic.csv").read_text()
    assert {part["of"]["sensitivity"] for part in calls[0][1]["of"]} == {2}
    assert calls[1][1]["of"]["event"] == "mixture_of_gaussians"
    measured = json.loads((tiny.bundle / "marginals.json").read_text())
    total = np.mean([np.sum(t["counts"]) for t in measured["tables"]])
    assert total < 200  # at most 100 rows are used (80 expected in the fit), of 400


@pytest.mark.parametrize("mode", ["validate", "learn"])
def test_an_id_unit_with_tables_for_the_graph_is_verified(
    tiny: Tiny, modes: Mapping[str, Any], mode: str
) -> None:
    frame = table().assign(patient=np.arange(400) // 4)
    unit = {"kind": "id", "column": "patient", "max_rows": 2, "meaning": "one patient"}
    tiny.write(frame, **modes[mode], dataset={"privacy_unit": unit}).release()
    assert verify_bundle(tiny.bundle).ok


# --- gates ---


def test_a_failing_gate_spends_the_budget_and_leaves_an_earlier_bundle_alone(
    released: Tiny, synthdp: Any
) -> None:
    before, kinds = (released.bundle / "SHA256SUMS").read_text(), released.kinds()
    released.write(gates=[{"metric": "tv1_noisy", "at_most": 0.0}])
    done = synthdp("release", released.spec, "--out", released.out, "--force")
    assert done.code == 4
    assert "the bundle is withheld: tv1_noisy: needs at most 0" in done.err
    assert "epsilon 1 at delta 1e-05 is spent, and another release pays again" in done.err
    assert "gate tv1_noisy at most 0: FAILED" in done.out and "bundle  withheld" in done.out
    assert (released.bundle / "SHA256SUMS").read_text() == before
    assert verify_bundle(released.bundle).ok and not (released.out / ".run").exists()
    assert "tv1_noisy" in (released.out / "internal" / "internal.html").read_text()
    assert released.kinds() == [*kinds, "reserve", "charge", "charge", "settle"]


def test_a_gate_on_real_rows_is_taken_by_name_and_certified(tiny: Tiny, synthdp: Any) -> None:
    gate = {"metric": "tv1", "at_most": 0.9}
    tiny.write(gates=[gate])
    refused = synthdp("release", tiny.spec, "--out", tiny.out)
    assert refused.code == 2
    assert "outside_guarantee: true" in refused.err
    assert not (tiny.folder / ".synthdp").exists()
    assert tiny.write(gates=[gate | {"outside_guarantee": True}]).release().bundle == tiny.bundle
    assert verify_bundle(tiny.bundle).ok
    certificate = (tiny.bundle / "privacy" / "certificate.md").read_text()
    assert "tv1" in certificate and "outside" in certificate


@pytest.mark.parametrize(
    ("gate", "told"),
    [
        ({"metric": "tv1", "at_most": 0.0, "outside_guarantee": True}, 0),
        ({"metric": "tv1_noisy", "at_most": 0.0}, 1),
    ],
)
def test_the_ledger_is_told_of_gates_on_noisy_figures_alone(
    tiny: Tiny, synthdp: Any, gate: dict[str, Any], told: int
) -> None:
    """Others read it: whether a gate on real rows failed stays with the steward."""
    tiny.write(gates=[gate])
    assert synthdp("release", tiny.spec, "--out", tiny.out).code == 4
    assert [e.kind for e in tiny.ledger.entries()].count("decision") == told


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_a_failed_gate_on_real_rows_prints_no_figure(
    tiny: Tiny, synthdp: Any, flags: list[str]
) -> None:
    """Logs are kept, and the figure is outside the guarantee: the steward's report has it."""
    gates = [
        {"metric": "tv1", "at_most": 0.0, "outside_guarantee": True},
        {"metric": "tv1_noisy", "at_most": 0.0},
    ]
    done = synthdp("release", tiny.write(gates=gates).spec, "--out", tiny.out, *flags)
    assert done.code == 4
    real, noisy = json.loads((tiny.out / "internal" / "internal.json").read_text())["gates"]
    assert f"{real['value']:.4g}" not in done.out + done.err
    assert (
        "tv1: needs at most 0 on real rows; its figure is in the internal report alone" in done.err
    )
    assert f"tv1_noisy: needs at most 0, got {noisy['value']:.4g}" in done.err
    assert str(tiny.out / "internal" / "internal.html") in done.err


@pytest.mark.parametrize("found", [{}, {"tv1_noisy": float("nan")}])
@pytest.mark.parametrize("bound", [{"at_most": 1.0}, {"at_least": 0.0}])
def test_a_figure_that_could_not_be_computed_fails_its_gate(
    found: dict[str, float], bound: dict[str, float]
) -> None:
    verdict = check_gates(
        [Gate(metric="tv1_noisy", **bound)], {name: Figure(value) for name, value in found.items()}
    )[0]
    assert not verdict.passed
    assert check_gates([verdict.gate], {"tv1_noisy": Figure(0.5)})[0].passed


def test_a_refuted_graph_withholds_when_the_spec_says_so(tiny: Tiny, synthdp: Any) -> None:
    tiny.write(
        table(8000),
        dataset={"rows": {"kind": "approximate", "value": 8000}},
        graph={
            "mode": "validate",
            "edges": ["grade -> visits"],
            "on_refuted": "fail",
        },  # says sex and smoking are independent
        privacy={"shares": {"measure": 0.2, "graph": 0.5, "train": 0.3}},
    )
    done = synthdp("release", tiny.spec, "--out", tiny.out)
    assert done.code == 4 and "refuted by noisy data: sex independent of smoker" in done.err
    assert "stays spent" in done.err and str(tiny.out / "internal" / "internal.html") in done.err
    assert not tiny.bundle.exists() and not (tiny.out / ".run").exists()
    assert tiny.kinds() == [
        "cap",
        "reserve",
        "charge",
        "charge",
        "charge",
        "settle",
    ]  # measured, tested twice, never trained
    page = (tiny.out / "internal" / "internal.html").read_text()
    assert "Withheld: 1 of 1 gates failed" in page
    assert "sex independent of smoker" in page
    assert "smallest detectable effect" in page
    told = internal(tiny.out)
    assert told["withheld"] and [(s["purpose"], s["used"]) for s in told["budget"]["steps"]] == [
        ("measure", True),
        ("graph: validate", True),
        ("graph: confirm", True),
        ("train", False),
    ]
    assert told["budget"]["epsilon_spent"] < told["budget"]["epsilon_planned"] <= 20
    refuted = [f for f in told["graph"]["validation"]["findings"] if f["status"] == "refuted"]
    assert {"sex", "smoker"} in [{f["x"], f["y"]} for f in refuted]


def test_a_validated_graph_is_told_everywhere(tiny: Tiny) -> None:
    tiny.write(
        graph={"mode": "validate", "edges": ["grade -> visits", "sex -> smoker"]},
        privacy={
            "epsilon": 20.0,
            "shares": {"measure": 0.2, "graph": 0.5, "train": 0.3},
            "cap": {"epsilon": 20.0},
        },
        tracking={"enabled": True},
    ).release()
    published = json.loads((tiny.bundle / "graph.json").read_text())
    found = {(f["x"], f["y"]): f for f in published["validation"]["findings"]}
    assert found["sex", "smoker"]["status"] == "supported"
    assert found["sex", "smoker"]["smallest_detectable_effect"] < 0.5
    assert {(e["from"], e["to"]): e["provenance"] for e in published["edges"]}[
        "sex", "smoker"
    ] == "supported"
    assert verify_bundle(tiny.bundle).ok
    report = internal(tiny.out)
    assert report["graph"]["validation"] == published["validation"]
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{tiny.folder / 'mlflow.db'}")
    run = client.search_runs([e.experiment_id for e in client.search_experiments()])[0]
    counts = published["validation"]["counts"]
    assert {k: run.data.metrics[f"edges_{k}"] for k in counts["arrow"]} == counts["arrow"]
    assert counts["arrow"]["supported"] >= 1
    assert {k: run.data.metrics[f"independences_{k}"] for k in counts["independence"]} == counts[
        "independence"
    ]
    assert "edges supported" in run.data.tags["mlflow.note.content"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda v: v["counts"]["arrow"].update(supported=9),
            "its counts are not those of its findings",
        ),
        (lambda v: v["findings"].append(v["findings"][0]), "holds a claim twice"),
        (
            lambda v: v["findings"][0].update(given=["weight"]),
            "one that the spec's graph does not make",
        ),
        (None, "has no validation"),
    ],
)
def test_a_validation_that_was_edited_is_noticed(
    of_mode: Callable[[str], Path],
    tmp_path: Path,
    change: Callable[[Any], Any] | None,
    says: str,
) -> None:
    bundle = shutil.copytree(of_mode("validate") / "out" / "bundle", tmp_path / "bundle")
    content = json.loads((bundle / "graph.json").read_text())
    if change is None:
        del content["validation"]
    else:
        change(content["validation"])
    (bundle / "graph.json").write_text(json.dumps(content))
    assert any(says in p for p in inspect_bundle(bundle).problems)


def test_a_search_with_nothing_left_to_learn_spends_nothing_on_the_graph(tiny: Tiny) -> None:
    """The spec decides every pair; the plan holds the graph's share, and no bundle is refused for
    want of a receipt.
    """
    names = ["sex", "grade", "smoker", "visits", "weight", "joined"]
    both_ways = [
        f"{a} -> {b}" for a in names for b in names if a != b and {a, b} != {"sex", "smoker"}
    ]
    tiny.write(
        graph={"mode": "learn", "edges": ["sex -> smoker"], "forbidden": both_ways},
        privacy={"shares": {"measure": 0.2, "graph": 0.2, "train": 0.6}},
    ).release()
    assert [e.body["purpose"] for e in tiny.ledger.entries() if e.kind == "charge"] == [
        "measure",
        "train",
    ]
    facts = certificate(tiny.bundle)
    assert facts["epsilon_spent"] < facts["epsilon"] and verify_bundle(tiny.bundle).ok


def test_rounds_that_a_search_does_not_need_are_planned_and_not_spent(
    tiny: Tiny, synthdp: Any
) -> None:
    """Too many cells for one table: the search plans four rounds, and finds nothing to condition on
    at this budget.
    """
    tiny.write(
        columns={"weight": {"bins": 64}, "joined": {"bins": 64}},
        graph={"mode": "learn", "tiers": [["sex"], ["smoker"]]},
        privacy={"epsilon": 0.5, "shares": {"measure": 0.1, "graph": 0.6, "train": 0.3}},
    )
    done = synthdp("release", tiny.spec, "--out", tiny.out, "--json")
    told = json.loads(done.out)
    charged = sum(e.kind == "charge" for e in tiny.ledger.entries())
    facts = certificate(tiny.bundle)
    report = internal(tiny.out)["budget"]
    assert charged < 6 and told["epsilon_spent"] < told["epsilon_planned"] <= told["epsilon"]
    for source in (facts, report):
        assert source.get("epsilon_planned", facts["epsilon"]) == pytest.approx(
            told["epsilon_planned"]
        )
        assert source["epsilon_spent"] == pytest.approx(told["epsilon_spent"])
    assert facts["groups"][0]["joint_epsilon"] == pytest.approx(facts["epsilon"])
    profile = json.loads((tiny.bundle / "privacy" / "profile.json").read_text())["points"]
    planned = [event_from_json(p["event"]) for p in facts["planned"]]
    secret = with_holdout(planned, load_spec(tiny.spec).evaluation.held_out, "add_remove")
    assert (
        profile[0]["delta"]
        == accounting.delta_profile(secret, epsilons=(0.0,), adjacency="add_remove")[0][1]
    )
    text = (tiny.bundle / "privacy" / "certificate.md").read_text()
    assert "Planned and unused: graph: " in text and verify_bundle(tiny.bundle).ok


# --- refused, and nothing spent ---


def assert_nothing_spent(tiny: Tiny) -> None:
    assert tiny.kinds() == []
    assert not (tiny.out / ".run").exists() and not tiny.bundle.exists()


def test_an_exhausted_cap_says_what_is_needed_and_left(released: Tiny, synthdp: Any) -> None:
    released.release(force=True)
    wanted = r"epsilon: needs 1, which makes 1\.6\d+ of all runs of dataset tiny together; cap 1\.4"
    released.ledger.set_cap("tiny", epsilon=1.4, delta=1e-4)
    released.write(privacy={"cap": {"epsilon": 1.4}})
    before = released.kinds()
    done = synthdp("release", released.spec, "--out", released.out, "--force")
    assert done.code == 3
    assert re.search(wanted + r", spent 1\.30\d+, by a Gaussian filter", done.err), done.err
    assert released.kinds() == before and not (released.out / ".run").exists()
    assert verify_bundle(released.bundle).ok  # the last bundle is still there


def test_another_cap_than_the_ledgers_is_refused(released: Tiny) -> None:
    with pytest.raises(BudgetError, match="spec's cap"):
        released.write(privacy={"cap": {"epsilon": 50.0}}).release(force=True)
    assert released.kinds().count("reserve") == 1


def first(column: str, value: Any) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Another value in the first row of a column."""
    return lambda frame: frame.assign(**{column: [value, *frame[column].astype(str)[1:]]})


WRONG = {
    "type": first("weight", "heavy"),
    "bound": first("visits", 21),
    "category": first("sex", "unknown"),
    "missing": first("joined", ""),
    "fraction": first("visits", "2.5"),
}


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda frame: frame.drop(columns="grade"), "missing column 'grade'"),
        (lambda frame: frame.assign(secret="x"), "undeclared column in place "),
        (WRONG["type"], "column 'weight'"),
        (WRONG["bound"], "column 'visits'"),
        (WRONG["category"], "column 'sex'"),
        (WRONG["missing"], "column 'joined'"),
        (WRONG["fraction"], "column 'visits'"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_and_nothing_is_spent(
    tiny: Tiny, synthdp: Any, spoil: Callable[[pd.DataFrame], pd.DataFrame], says: str
) -> None:
    tiny.write(spoil(table()))
    done = synthdp("release", tiny.spec, "--out", tiny.out)
    assert done.code == 5 and says in done.err
    assert_nothing_spent(tiny)


def test_clamping_goes_on_and_counts_for_the_steward_alone(tiny: Tiny) -> None:
    kinds, frame = ("type", "bound", "category", "missing"), table()
    for kind in kinds:
        frame = WRONG[kind](frame)
    tiny.write(frame, dataset={"out_of_domain": "clamp"}).release()
    misfits = internal(tiny.out)["misfits"]
    assert [sum(misfits[c].values()) for c in ("weight", "visits", "sex", "joined")] == [1] * 4
    for file in tiny.bundle.rglob("*"):
        assert file.suffix not in (".json", ".md") or "misfit" not in file.read_text()


@pytest.mark.parametrize("extra", [-1, 1])
def test_a_public_row_count_must_be_the_tables_and_the_message_does_not_say_which(
    tiny: Tiny, extra: int
) -> None:
    tiny.write(table(400 + extra), dataset={"rows": {"kind": "public"}})
    with pytest.raises(DataError) as caught:
        tiny.release()
    assert str(400 + extra) not in str(caught.value)
    assert_nothing_spent(tiny)


def test_a_table_larger_than_delta_allows_is_refused_before_anything_is_spent(tiny: Tiny) -> None:
    """400 rows where 100 are declared: delta is below 1 / 100, and above 1 / 400."""
    tiny.write(
        dataset={"rows": {"kind": "approximate", "value": 100}},
        privacy={"delta": 4e-3, "cap": {"epsilon": 2.5, "delta": 0.1}},
        evaluation={"holdout": 0.2},
    )
    with pytest.raises(DataError, match="1 / delta = 250 rows or more"):
        tiny.release()
    assert_nothing_spent(tiny)


def test_a_missing_file_is_named(tiny: Tiny) -> None:
    tiny.write()
    (tiny.folder / "table.csv").unlink()
    with pytest.raises(DataError, match=r"table\.csv"):
        tiny.release()
    assert_nothing_spent(tiny)


def test_an_existing_bundle_stays_unless_forced(released: Tiny, synthdp: Any) -> None:
    before = {p: p.read_bytes() for p in released.bundle.rglob("*") if p.is_file()}
    refused = synthdp("release", released.spec, "--out", released.out)
    assert refused.code == 2 and "--force" in refused.err
    assert {p: p.read_bytes() for p in released.bundle.rglob("*") if p.is_file()} == before
    assert released.kinds().count("reserve") == 1


@pytest.mark.parametrize("where", ["a file is in the way", "a file system nobody may write"])
def test_an_output_folder_that_cannot_be_written_is_refused(tiny: Tiny, where: str) -> None:
    tiny.write()
    (tiny.folder / "file").write_text("")
    out = (
        tiny.folder / "file" / "out" if where.startswith("a file is") else Path("/proc/synthdp-out")
    )
    with pytest.raises(OutputError, match="cannot"):
        release(tiny.spec, out=out)
    assert_nothing_spent(tiny)


def test_the_long_stages_of_a_release_name_their_steps(one_release: Path) -> None:
    heard = json.loads((one_release / "heard.json").read_text())
    judged = heard["judge on real rows"]
    assert [what for _, _, what in judged] == [
        *(
            "fidelity",
            "fidelity of held-out rows",
            "sex by logistic on real rows",
            "sex by logistic on synthetic rows",
        ),
        *(
            "two-sample test",
            "coverage of intervals",
            "subgroups",
            "effects",
            "independences",
            "pair plots",
        ),
    ]
    assert [what for _, _, what in heard["bundle"]] == list(WRITING)
    assert [what for _, _, what in heard["report"]] == ["budget step by step", "internal report"]
    assert [what for _, _, what in heard["sample"] if what] == [
        "raking",
        "choosing rows",
        "drawing what comes last",
    ]
    for steps in (judged, heard["bundle"], heard["report"]):
        assert [done for done, _, _ in steps] == list(range(len(steps)))
        assert {total for _, total, _ in steps} == {len(steps)}


def test_reviewers_get_all_of_a_bundle_but_rows(released: Tiny) -> None:
    from safetensors import safe_open

    assert all((released.bundle / name).exists() for name in TRACKED)
    assert {"DATACARD.md", "croissant.json", "report.html", "model.safetensors"} <= set(TRACKED)
    assert not any(
        name.startswith("synthetic") or name.endswith((".csv", ".parquet")) for name in TRACKED
    )
    with safe_open(released.bundle / "model.safetensors", framework="numpy") as model:
        assert len(list(model.keys())) > 0
