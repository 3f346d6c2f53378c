"""The internal report on linked tables: figures on real persons, for the steward alone."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import synthdp
from synthdp.bundle import LinkedBundle
from synthdp.data import PERSONS, STEPS, Views
from synthdp.evaluate import RealFigures, real_figures
from synthdp.evaluate import visits as judged
from synthdp.release import planned_linked
from tests.release.linked.conftest import problems, run, spec_at, write_spec

pytestmark = pytest.mark.check

JUDGED = {"evaluation": {"enabled": True, "targets": ["stays[+1].stage"]}}


def figures(made: Path, drawn: Views | None = None) -> RealFigures:
    """Of synthetic persons in the place of real ones, beside themselves or other ones."""
    b, rng = LinkedBundle.stated(made), np.random.default_rng(2)
    targets = ("stays[+1].stage", "stays[+1].cost")
    return real_figures(b.frame, b.groups, b.views, drawn or b.views, targets, rng=rng)


def test_the_same_persons_are_no_distance_away_and_not_told_apart(made: Path) -> None:
    found = figures(made)
    assert {both[0] for both in found.distances.values()} == {0.0}
    assert all(both[1] > 0 for both in found.distances.values())
    assert found.apart[0] < 0.6
    assert all(both is None or 0 <= min(both) <= max(both) <= 1 for both in found.learnt.values())


def test_steps_that_were_spoiled_are_seen_in_steps(made: Path) -> None:
    b, rng = LinkedBundle.stated(made), np.random.default_rng(3)
    steps = b.views.codes[STEPS].copy()
    at = b.frame.views[STEPS].index(b.frame.now("stage"))
    steps[:, at] = rng.permutation(steps[:, at])  # as many of each level, in no order
    spoiled = Views({**b.views.codes, STEPS: steps}, b.views.owners)
    found = figures(made, spoiled)
    assert found.distances["visits"][0] == 0.0 and found.distances["first"][0] == 0.0
    assert found.distances["steps"][0] > 0.1 and found.apart[0] > 0.65
    learnt = found.learnt["stays[+1].stage"]
    assert learnt is not None and learnt[0] < learnt[1] - 0.1


def test_a_release_is_judged_for_the_steward_alone(ward: Path) -> None:
    done = run(write_spec(ward.parent, JUDGED))
    assert done.report is not None and done.report.stat().st_mode & 0o077 == 0
    told = json.loads((done.report.parent / "internal.json").read_text())["figures"]
    assert {*told["distances"]} == {"persons", "counts", "visits", "first", "last", "steps"}
    assert "stays[+1].stage" in told["learnt"] and done.figures["told_apart_auc"] > 0
    assert "do not share" in done.report.read_text()
    assert not problems(done.bundle)
    files = [p.read_bytes() for p in done.bundle.rglob("*") if p.is_file()]
    assert not any(b"told_apart" in text or b"next_auc" in text for text in files)
    shown = str(done) + json.dumps(done.to_json())  # logs and notebooks are sent on
    assert len(done.figures) > 5 and not [name for name in done.figures if name in shown]
    assert str(done.figures["tv_persons"]) not in repr(done)


def test_of_an_error_on_rows_the_kind_is_told(ward: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: Any, **__: Any) -> RealFigures:
        raise ZeroDivisionError("of id-0007")

    monkeypatch.setattr(judged, "_told_apart", breaks)
    done = run(write_spec(ward.parent, JUDGED))
    assert done.report is not None and not done.figures
    page = done.report.read_text()
    assert "not judged: ZeroDivisionError" in page and "id-0007" not in page
    assert not problems(done.bundle)


def test_who_does_not_ask_gets_no_report(ward: Path) -> None:
    done = run(write_spec(ward.parent, {"evaluation": {"enabled": False}}))
    assert done.report is None and not (done.bundle.parent / "internal").exists()


def test_mlflow_gets_the_figures_under_names_of_their_own(ward: Path) -> None:
    from mlflow import MlflowClient

    run(write_spec(ward.parent, JUDGED | {"tracking": {"enabled": True}}))
    client = MlflowClient(f"sqlite:///{ward.parent / 'mlflow.db'}")
    (tracked,) = client.search_runs([e.experiment_id for e in client.search_experiments()])
    metrics = tracked.data.metrics
    assert {"tv_steps", "tv_steps_dp", "told_apart_auc", "next_auc", "next_auc_real"} <= {*metrics}
    note = tracked.data.tags["mlflow.note.content"]
    private, real = note.split("internal: real rows without noise")
    assert "| tv_steps_dp |" in private and "| tv_steps |" in real


def test_trees_are_tested_on_those_who_are_held_out(made: Path) -> None:
    b, rng = LinkedBundle.stated(made), np.random.default_rng(4)
    persons = len(b.views.owners[PERSONS])
    out = rng.random(persons) < 0.4
    spoiled = {n: codes.copy() for n, codes in b.views.codes.items()}
    at = b.frame.views[STEPS].index(b.frame.now("stage"))
    there = out[b.views.owners[STEPS]]
    spoiled[STEPS][there, at] = rng.integers(0, 3, there.sum())
    real = Views(spoiled, b.views.owners)
    found = real_figures(
        *(b.frame, b.groups, real, b.views, ("stays[+1].stage",)), rng=rng, held_out=out
    )
    assert found.distances["steps"][1] > 0.1 and found.distances["first"][0] < 0.06
    assert found.apart[1] > 0.6 and (found.learnt["stays[+1].stage"] or (1, 1))[1] < 0.65


def test_persons_are_held_out_of_a_release_and_counted_by_it(ward: Path) -> None:
    held = {"evaluation": {"enabled": True, "holdout": 0.3, "targets": ["stays[+1].stage"]}}
    done = run(write_spec(ward.parent, held))
    assert not problems(done.bundle) and done.report is not None
    assert "A coin held out 30% of the persons" in done.report.read_text()
    assert "the persons held out from the others" in done.report.read_text()
    bundle = synthdp.Bundle(done.bundle)
    found = bundle.answer("count(patients.sex == 'F')")
    low, high = map(float, found.interval or (0, 0))
    assert found.estimate is not None and low < high
    assert abs(150 - float(found.estimate)) < high - low  # four standard errors
    assert "the tables count the 70% that coins left" in " ".join(found.about)
    plain = planned_linked(spec_at(path := write_spec(ward.parent)), path)[0]["score_noise"]
    fewer = planned_linked(spec_at(path := write_spec(ward.parent, held)), path)[0]["score_noise"]
    assert fewer["tv_persons_dp"] == pytest.approx(plain["tv_persons_dp"] / 0.7, rel=0.1)
