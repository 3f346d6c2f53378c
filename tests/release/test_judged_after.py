"""What is judged on real rows stands between no charge and its bundle: the bundle is there first,
and an error of the judging is told to the steward by its kind alone.
"""

import errno
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from synthdp.data import Domain, encode
from synthdp.errors import BudgetError, GateError, OutputError, budget_note
from synthdp.evaluate import EvaluationReport
from synthdp.privacy.session import Session
from synthdp.release import job, judge, release, resume
from synthdp.spec import load_spec
from synthdp.verify import verify_bundle
from tests.builders import predict_spec, predict_table
from tests.release.conftest import InterruptedAt, dying, internal

pytestmark = pytest.mark.check

ATTACK = {"membership": {"enabled": True, "rows": 40, "pairs": 4, "steps": 2}}
ESTIMAND = {
    "estimands": [{"kind": "table", "columns": ["sex", "smoker"]}],
    "privacy": {"shares": {"measure": 0.3, "train": 0.5, "estimands": 0.2}},
}
REAL_GATE = {"metric": "tv1", "at_most": 0.9, "outside_guarantee": True}
PARTS = {
    "_evaluate": "evaluation",
    "suggest": "columns that could be declared",
    "exact_results": "estimands on real rows",
    "attack_rows": "attack",
}


def place(part: str) -> str:
    """Where a part is found when it is called."""
    return f"synthdp.{'audit.membership' if part == 'attack_rows' else 'release.judge'}.{part}"


failing = dying(partial(ValueError, "canary-7391"))


def report_of(out: Path) -> dict[str, Any]:
    """The numbers of the internal report; its page quotes no error."""
    assert "canary" not in (out / "internal" / "internal.html").read_text()
    return internal(out)


def test_the_bundle_is_there_before_rows_are_judged_and_their_errors_change_the_report_alone(
    tiny: Any, synthdp: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    there: list[bool] = []
    for part in PARTS:
        monkeypatch.setattr(
            place(part),
            lambda *_, **__: there.append(tiny.bundle.is_dir()) or failing(),  # type: ignore[func-returns-value]
        )
    tiny.write(attacks=ATTACK, **ESTIMAND)
    done = synthdp("release", tiny.spec, "--out", tiny.out)
    assert done.code == 0 and there == [True] * len(PARTS)
    for hidden in ("canary", "ValueError"):  # whether rows can be judged is of rows, too
        assert hidden not in done.out + done.err
    assert verify_bundle(tiny.bundle).ok and not (tiny.out / ".run").exists()
    report = report_of(tiny.out)
    assert report["absent"] == dict.fromkeys(PARTS.values(), "not judged: ValueError")
    assert report["evaluation"] is report["attack"] is None and not report["estimands"]
    page = (tiny.out / "internal" / "internal.html").read_text()
    assert "There is no comparison with real rows: not judged: ValueError." in page
    assert "The attack has no figures: not judged: ValueError." in page


def test_a_report_that_real_figures_break_is_written_without_them(
    tiny: Any, synthdp: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.write()
    monkeypatch.setattr(EvaluationReport, "to_json", failing)
    done = synthdp("release", tiny.spec, "--out", tiny.out)
    assert done.code == 0 and "canary" not in done.out + done.err
    report = report_of(tiny.out)
    assert report["absent"] == {"figures on real rows": "not judged: ValueError"}
    assert report["evaluation"] is None and report["tv1_noisy"] is not None


@pytest.mark.parametrize("rows", [1, 2])
def test_a_table_of_one_row_is_released_as_another_is(tmp_path: Path, rows: int) -> None:
    """The attack, which is on by default, can do nothing with it. Noise hides how few they are."""
    spec = predict_spec(
        privacy={
            "epsilon": 0.1,
            "delta": 1e-5,
            "shares": {"measure": 0.3, "graph": 0.7, "train": 0},
        },
        sampling={"rows": 20},
    )
    spec["dataset"]["rows"] = {"kind": "approximate", "value": 60}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    predict_table()[:rows].to_csv(tmp_path / "table.csv", index=False)
    outcome = release(tmp_path / "spec.yaml", out=tmp_path / "out")
    assert outcome.bundle is not None and verify_bundle(outcome.bundle).ok
    assert report_of(tmp_path / "out")["absent"]["attack"] == "not judged: AttackError"


# --- gates on real rows ---


def test_a_gate_on_what_cannot_be_judged_refuses_and_says_so(
    tiny: Any, synthdp: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synthdp.release.judge._evaluate", failing)
    tiny.write(gates=[REAL_GATE])
    done = synthdp("release", tiny.spec, "--out", tiny.out)
    assert done.code == 4 and not tiny.bundle.exists() and "canary" not in done.out + done.err
    assert "tv1: needs at most 0.9 on real rows" in done.err and "ValueError" not in done.err
    (gate,) = report_of(tiny.out)["gates"]
    assert gate["value"] is None and not gate["passed"]
    assert gate["absent"] == "not judged: ValueError"


def test_before_the_bundle_only_what_a_gate_is_on_is_judged(
    tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = {"metric": "tv1_noisy", "at_most": 1}
    tiny.write(attacks=ATTACK, gates=[gate, REAL_GATE], **ESTIMAND)
    order: list[str] = []
    settle = Session.settle
    monkeypatch.setattr(Session, "settle", lambda self: order.append("settle") or settle(self))  # type: ignore[func-returns-value]
    for part in PARTS:
        monkeypatch.setattr(
            place(part),
            lambda *_, part=part, **__: order.append(part) or failing(),
        )
    tiny.release()
    assert order == ["_evaluate", "settle", "suggest", "exact_results", "attack_rows"]


# --- judging that is interrupted ---


@pytest.mark.parametrize("stage", ["judge on real rows", "attack", "report"])
def test_a_bundle_stands_while_it_is_judged_and_is_judged_later(
    tiny: Any, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the published table, which is read as it was drawn."""
    tables: list[job.DrawnTable] = []
    judged: list[pd.DataFrame] = []
    draw = job.draw
    monkeypatch.setattr(
        "synthdp.release.run.draw", lambda *a: tables.append(draw(*a)) or tables[-1]
    )
    monkeypatch.setattr(place("attack_rows"), failing)
    both = {"type": "integer", "lower": 0, "upper": 40, "derived": "visits + visits"}
    gates = [{"metric": "tv1_noisy", "at_most": 1}]
    tiny.write(attacks=ATTACK, gates=gates, columns={"both": both})
    with pytest.raises(KeyboardInterrupt) as stopped:
        tiny.release(display=InterruptedAt(stage))
    note = budget_note(stopped.value) or ""
    assert f"its bundle is whole: {tiny.bundle}" in note and "synthdp resume" in note
    sums, kinds = (tiny.bundle / "SHA256SUMS").read_text(), tiny.kinds()
    assert verify_bundle(tiny.bundle).ok and kinds[-1] == "settle"
    published = pd.read_csv(tiny.bundle / "synthetic.csv")
    monkeypatch.setattr(
        "synthdp.release.judge._evaluate",
        lambda *a, **_: judged.append(a[4]) or failing(),  # type: ignore[func-returns-value]
    )
    monkeypatch.setattr(job, "sample", lambda *_, **__: pytest.fail("drawn again"))
    outcome = resume(tiny.out)
    assert outcome.bundle == tiny.bundle and not outcome.failed
    assert (tiny.bundle / "SHA256SUMS").read_text() == sums and tiny.kinds() == kinds
    assert not (tiny.out / ".run").exists() and report_of(tiny.out)["absent"]
    np.testing.assert_array_equal(judged[0]["visits"], published["visits"])
    domain = Domain.from_spec(load_spec(tiny.spec).columns)
    order = list(domain.names)
    drawn, read = (t.synthetic.value.sort_values(order, ignore_index=True)[order] for t in tables)
    pd.testing.assert_frame_equal(read, drawn)
    np.testing.assert_array_equal(encode(domain, read)[0], encode(domain, drawn)[0])


def test_a_disk_that_does_not_take_the_decision_is_told_and_the_run_goes_on_later(
    tiny: Any, synthdp: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: str | bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    tiny.write()
    with monkeypatch.context() as patch:
        patch.setattr("synthdp.release.gates.write_whole", full)
        failed = synthdp("release", tiny.spec, "--out", tiny.out)
    assert failed.code == 2, failed.err
    assert "cannot write to" in failed.err and "No space left on device" in failed.err
    assert synthdp("resume", tiny.out).code == 0 and verify_bundle(tiny.bundle).ok


@pytest.fixture
def withheld(tiny: Any) -> Any:
    """A spec whose gate on real rows withholds its bundle, whatever is drawn."""
    return tiny.write(gates=[REAL_GATE | {"at_most": 0.0}])


def test_what_a_gate_on_real_rows_saw_is_in_no_frame_of_its_error(withheld: Any) -> None:
    """Tools that collect the variables of a traceback have what these are shown as."""
    made = withheld.release()
    with pytest.raises(GateError):
        made.check_passed()
    assert made.metrics["tv1"] > 0 and str(made.metrics["tv1"]) not in repr(made)


def test_a_copy_of_a_run_does_not_ask_a_gate_on_real_rows_again(
    withheld: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each draw is another look at rows. The copy is of before the gate, and has all values."""
    copy = withheld.folder / "copy"
    with monkeypatch.context() as patch:
        judged = judge.Judge.for_gates
        patch.setattr(
            judge.Judge,
            "for_gates",
            lambda self: shutil.copytree(withheld.out, copy) and judged(self),
        )
        assert withheld.release().failed
    monkeypatch.setattr(EvaluationReport, "metrics", lambda _: {"tv1": 0.0})
    with pytest.raises(OutputError, match="decision of the interrupted run is missing"):
        resume(copy)
    assert not (copy / "bundle").exists()


def test_a_gate_on_real_rows_has_decided_though_the_ledger_did_not_answer_then(
    withheld: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Session, "settle", dying(partial(BudgetError, "the ledger is gone")))
        with pytest.raises(BudgetError, match="is gone"):
            withheld.release()
    monkeypatch.setattr(EvaluationReport, "metrics", lambda _: {"tv1": 0.0})
    assert resume(withheld.out).failed and not withheld.bundle.exists()
