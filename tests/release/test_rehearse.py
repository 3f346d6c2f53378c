"""A release on simulated rows: what it says is true of them, and nothing else is touched."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import synthdp as face
from synthdp.errors import GateError
from synthdp.inference import Answer, answer_tables
from synthdp.release import rehearse as rehearsed_estimands
from synthdp.release.rehearse import rehearse
from synthdp.spec import parse_spec
from tests.builders import skeleton

pytestmark = pytest.mark.check

Run = Callable[..., Any]
COLUMNS: dict[str, Any] = {
    "age": {"type": "integer", "lower": 0, "upper": 99},
    "pay a year": {"type": "number", "lower": 0, "upper": 50, "missing": True},
    "town": {"type": "categorical", "categories": ["a", "b", "it's"]},
    "sick": {"type": "boolean", "false": "no", "true": "yes"},
    "seen": {"type": "datetime", "lower": "2015-01-01", "upper": "2024-12-31"},
}


def text_of(**sections: Any) -> str:
    content = {
        **skeleton(3000),
        "columns": COLUMNS,
        "graph": {"mode": "predict"},
        "sampling": {"rows": 1500, "oversample": 2},
        "compute": {"threads": 1},
        **sections,
    }
    return yaml.safe_dump(content, sort_keys=False)


def answers_of(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {answers["kind"]: answers for answers in found["answers"]}


def test_answers_and_table_are_held_against_the_simulated_rows() -> None:
    found = rehearse(parse_spec(text_of(), path="s"))
    assert found["graph"].keys() <= {"edges_predictive"}
    assert found["rows"] == 2400 and 0 < found["tv1"] < 0.1 and 0 < found["tv2"] < 0.2
    means, shares, pairs = answers_of(found).values()
    assert [a["asked"] for a in (means, shares, pairs)] == [2, 4, 6]  # none of dates
    for answers in (means, shares, pairs):
        assert answers["answered"] == answers["asked"]
        assert abs(answers["bias"]) <= answers["error"] < 0.06
    assert means["covered"] + shares["covered"] + pairs["covered"] >= 10


def test_a_biased_answer_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def biased(*asked: Any) -> Answer:
        answer = answer_tables(*asked)
        (figure,) = answer.figures
        if not isinstance(figure.estimate, float) or figure.of_rows is None:
            return answer
        ends = tuple(float(end) + 0.3 for end in figure.of_rows)
        moved = replace(figure, estimate=figure.estimate + 0.3, of_rows=ends)
        return replace(answer, figures=(moved,))

    monkeypatch.setattr("synthdp.release.rehearse.answer_tables", biased)
    shares = answers_of(rehearse(parse_spec(text_of(), path="s")))["shares"]
    assert shares["bias"] > 0.2 and shares["covered"] == 0


def test_the_command_rehearses_and_leaves_nothing(tmp_path: Path, synthdp: Any) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(text_of(constraints=["age >= 98"]), encoding="utf-8")
    told = synthdp("plan", path, "--rehearse")
    assert told.code == 0 and "rehearse: " in told.err
    assert "rehearsal on 2,400 simulated rows: the released ones are off by" in told.out
    assert "\nits graph: " in told.out
    assert "pair shares" in told.out
    assert "intervals that hold the truth" in told.out
    assert [p.name for p in tmp_path.iterdir()] == ["spec.yaml"]
    spec = face.Spec.load(path)
    rehearsed = spec.plan(rehearse=True).rehearsal
    assert rehearsed is not None and rehearsed["rows"] == 2400
    assert spec.plan().rehearsal is None


def test_a_refuted_graph_is_told(
    tmp_path: Path, synthdp: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise GateError("the given graph is refuted")

    monkeypatch.setattr("synthdp.release.rehearse.fit", refuse)
    path = tmp_path / "spec.yaml"
    path.write_text(text_of(), encoding="utf-8")
    told = synthdp("plan", path, "--rehearse")
    assert "rehearsal on 2,400 simulated rows: the given graph is refuted" in told.out
    facts = json.loads(synthdp("plan", path, "--rehearse", "--json").out)
    assert facts["rehearsal"] == {"rows": 2400, "refused": "the given graph is refuted"}


@pytest.mark.slow
def test_intervals_of_rehearsals_hold_the_truth_about_as_often_as_they_say() -> None:
    """24 rehearsals with noise as it is, 12 questions each, on the same simulated rows.

    Probability to fail, at most 2e-4: if the intervals of one release all held or all failed, fewer
    than three quarters would hold where 7 of 24 draws of .05 come true, with 1.2e-4.
    """
    spec = parse_spec(text_of(), path="s")
    counts = [answers for _ in range(24) for answers in rehearse(spec)["answers"]]
    answered = sum(answers["answered"] for answers in counts)
    assert answered >= 250
    assert sum(answers["covered"] for answers in counts) / answered > 0.75


ASKED = {
    "privacy": {
        "epsilon": 2.0,
        "delta": 1e-5,
        "shares": {"measure": 0.3, "graph": 0.3, "train": 0, "estimands": 0.4},
    },
    "estimands": [
        {"kind": "question", "ask": "mean(age) by sick"},
        {"kind": "effect", "treated": "sick", "outcome": "age", "adjust": []},
        {"kind": "regression", "outcome": "age", "terms": ["sick"]},
        {"kind": "question", "ask": "median(age)"},
        {"kind": "table", "columns": ["town", "sick"]},
    ],
}


@pytest.mark.usefixtures("seeded")
def test_estimands_are_held_against_the_simulated_rows(tmp_path: Path, synthdp: Any) -> None:
    """Noise is drawn 100 times, with a seed: .8 is seven deviations below .95."""
    path = tmp_path / "spec.yaml"
    path.write_text(text_of(**ASKED), encoding="utf-8")
    told = synthdp("plan", path, "--rehearse", "--json")
    found = {(f["text"], f["group"]): f for f in json.loads(told.out)["rehearsal"]["estimands"]}
    assert [*found] == [
        ("mean(age) by sick", "no"),
        ("mean(age) by sick", "yes"),
        ("effect on age: sick against all other rows", None),
        ("age ~ sick", "(intercept)"),
        ("age ~ sick", "sick=yes"),
        ("median(age)", None),
    ]
    for figure in found.values():
        assert figure["answered"] == 1 and figure["covered"] > 0.8
        assert abs(figure["bias"]) < figure["width"] / 3 < 10
    printed = synthdp("plan", path, "--rehearse").out
    assert "intervals that hold it" in printed and "age ~ sick: sick=yes" in printed


@pytest.mark.usefixtures("seeded")
def test_an_estimand_with_more_noise_than_it_states_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = rehearsed_estimands.with_noise

    def louder(sums: Any, estimand: Any, mechanism: Any, rng: Any) -> Any:
        made = honest(sums, estimand, mechanism.scaled(4), rng)
        told = getattr(made, "contrast", None)
        if told is not None:
            made = replace(made, contrast=replace(told, sigma=told.sigma / 4))
        return replace(made, sigma=mechanism.sigma)

    monkeypatch.setattr(rehearsed_estimands, "with_noise", louder)
    figures = rehearse(parse_spec(text_of(**ASKED), path="s"))["estimands"]
    assert all(f["covered"] < 0.75 for f in figures if f["text"] != "median(age)")  # of whole bins
