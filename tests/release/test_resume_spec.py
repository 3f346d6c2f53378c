"""What is done with released values can be mended without paying: `resume --spec` takes another
spec that differs in nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from synthdp.bundle.content import sha256
from synthdp.errors import OutputError, VerifyError
from synthdp.ledger.ledger import Ledger
from synthdp.model.constraints import ConstraintsUnmet
from synthdp.privacy.dpsgd.training import _Trainer
from synthdp.privacy.session import Session
from synthdp.release import job
from synthdp.release.judge import NotJudged
from synthdp.release.run import resume
from synthdp.verify.checks import verify_bundle

pytestmark = pytest.mark.check

COUNTS = {
    name: {"type": "integer", "lower": 0, "upper": 20, "spikes": [0]} for name in ("seen", "left")
}
ATTACK = {"membership": {"enabled": True, "rows": 100, "pairs": 10, "steps": 5}}


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the training steps that were done."""
    done: list[int] = []
    true_step = _Trainer.step

    def step(self: Any, codes: Any, number: int) -> None:
        done.append(number)
        true_step(self, codes, number)

    monkeypatch.setattr(_Trainer, "step", step)
    return done


@pytest.fixture
def write(tiny: Any, make_table: Callable[..., pd.DataFrame]) -> Callable[..., Any]:
    """The tiny spec with two more columns of counts."""
    rng = np.random.default_rng(3)
    table = make_table()
    table = table.assign(seen=rng.integers(0, 9, len(table)), left=rng.integers(0, 9, len(table)))

    def written(**changes: Any) -> Any:
        return tiny.write(table, columns=COUNTS, **changes)

    return written


@pytest.fixture
def stuck(write: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """A run whose model fulfils no constraint, and that ended there."""
    tiny = write(constraints=["seen < 20", "seen + left < 2 or smoker"])
    with monkeypatch.context() as patch:
        patch.setattr("synthdp.model.constraints.MIN_SHARE", 0.99)
        with pytest.raises(ConstraintsUnmet):
            tiny.release()
    return tiny


def other(tiny: Any, **changes: Any) -> Any:
    """The run's spec with some sections replaced, as another file."""
    spec = yaml.safe_load(tiny.spec.read_text())
    for section, value in changes.items():
        spec[section] = (
            {**spec[section], **value} if isinstance(value, dict) and section in spec else value
        )
    path = tiny.folder / "new.yaml"
    path.write_text(yaml.safe_dump(spec, sort_keys=False))
    return path


def test_a_constraint_that_the_model_does_not_fulfil_is_told_at_once_and_mended_without_paying(
    write: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, steps: list[int], synthdp: Any
) -> None:
    attacked: list[str] = []
    monkeypatch.setattr(
        "synthdp.release.judge.attack_rows",
        lambda *a, **k: attacked.append("attack") or NotJudged("Stub"),  # type: ignore[func-returns-value]
    )
    with monkeypatch.context() as patch:
        patch.setattr(
            job,
            "sample",
            lambda *a, **k: pytest.fail("sampled before the constraints were tried"),
        )
        patch.setattr("synthdp.model.constraints.MIN_SHARE", 0.99)
        tiny = write(constraints=["seen + left < 2 or smoker"], attacks=ATTACK)
        failed = synthdp("release", tiny.spec, "--out", tiny.out)
    assert (
        failed.code == 4
        and "the hardest, 'seen + left < 2 or smoker'" in failed.err
        and not attacked
    )
    assert (
        "epsilon 1 at delta 1e-05 stays spent" in failed.err
        and f"synthdp resume {tiny.out} --spec NEW" in failed.err
    )
    before = list(steps)
    assert len(before) == 20
    new = other(tiny, constraints=["seen < 20"], attacks={"membership": {"enabled": False}})
    refused = synthdp("resume", tiny.out, "--spec", new)
    assert (
        refused.code == 2
        and "attacks.membership.enabled: is false, and the run was paid for with true"
        in refused.err
    )
    both = {"type": "integer", "lower": 0, "upper": 40, "derived": "seen + left"}
    new = other(
        tiny, constraints=["seen < 20", "both < 30"], sampling={"rows": 99}, columns={"both": both}
    )
    done = synthdp("resume", tiny.out, "--spec", new)
    assert done.code == 0, done.err
    assert steps == before and attacked == ["attack"]  # nothing was trained anew
    assert tiny.kinds() == ["cap", "reserve", "charge", "charge", "amend", "settle"]
    assert verify_bundle(tiny.bundle).ok
    table = pd.read_csv(tiny.bundle / "synthetic.csv")
    assert (
        len(table) == 99
        and (table["seen"] < 20).all()
        and (table["both"] == table["seen"] + table["left"]).all()
    )
    assert (
        "in: constraints, derived columns, sampling."
        in (tiny.bundle / "privacy" / "certificate.md").read_text()
    )


def test_what_was_paid_for_cannot_be_changed_and_every_such_field_is_told(
    stuck: Any, synthdp: Any
) -> None:
    new = other(
        stuck,
        privacy={"epsilon": 0.5},
        graph={"edges": ["sex -> smoker"]},
        synthesizer={"steps": 30},
        constraints=[],
        evaluation={"holdout": 0.1},
        gates=[{"metric": "tv1", "at_most": 1, "outside_guarantee": True}],
        dataset={"id": "else"},
    )
    refused = synthdp("resume", stuck.out, "--spec", new)
    assert refused.code == 2 and stuck.kinds() == ["cap", "reserve", "charge", "charge"]
    told = [
        "privacy.epsilon: is 0.5, and the run was paid for with 1.0",
        "synthesizer.steps: is 30, and the run was paid for with 20",
        "graph.edges: is",
        "evaluation.holdout: is 0.1",
        "gates on real rows: is",
        "dataset.id: is 'else', and the run was paid for with 'tiny'",
    ]
    assert (
        all(text in refused.err for text in told)
        and "6 mistakes" in refused.err
        and "constraints:" not in refused.err
    )
    line = next(
        i for i, text in enumerate(new.read_text().splitlines(), start=1) if "epsilon: 0.5" in text
    )
    assert f"new.yaml:{line}:" in refused.err
    assert (
        json.loads((stuck.out / ".run" / "state.json").read_text())["spec_text"]
        == stuck.spec.read_text()
    )
    resume(stuck.out)  # by the spec that it had
    assert verify_bundle(stuck.bundle).ok


@pytest.mark.parametrize("killed", ["ledger", "folder"])
def test_a_change_of_spec_that_was_killed_halfway_is_given_again(
    stuck: Any, monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    new = other(stuck, constraints=[])
    where = (
        (Ledger, "amend") if killed == "ledger" else ("synthdp.release.run_folder", "respecified")
    )
    name = f"{where[0]}.{where[1]}" if isinstance(where[0], str) else None
    with monkeypatch.context() as patch:

        def die(*_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

        patch.setattr(name, die) if name else patch.setattr(*where, die)
        with pytest.raises(KeyboardInterrupt):
            resume(stuck.out, spec_path=new)
    if killed == "folder":
        with pytest.raises(OutputError, match="holds another spec of run"):
            resume(stuck.out)
    resume(stuck.out, spec_path=new)
    assert stuck.kinds().count("amend") == 1 and verify_bundle(stuck.bundle).ok


def test_a_table_whose_scores_were_counted_stays_as_it_is(
    write: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, synthdp: Any
) -> None:
    tiny = write(evaluation={"disclosure": "private"}, constraints=["seen < 20"])
    with monkeypatch.context() as patch:
        patch.setattr(Session, "settle", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            tiny.release()
    for changes, why in (
        ({"constraints": []}, "were counted already"),
        ({"sampling": {"rows": 99}}, "were counted already"),
        ({"evaluation": {"max_rows": 5000}}, "were counted already"),
        ({"evaluation": {"targets": ["smoker"]}}, "fixed before anything is spent"),
    ):
        refused = synthdp("resume", tiny.out, "--spec", other(tiny, **changes))
        assert refused.code == 2 and why in refused.err
    resume(
        tiny.out,
        spec_path=other(
            tiny, gates=[{"metric": "tv1_dp", "at_most": 1}], dataset={"title": "A table"}
        ),
    )
    assert verify_bundle(tiny.bundle).ok
    assert json.loads((tiny.bundle / "privacy" / "certificate.json").read_text())["amended"] == [
        "dataset.title",
        "gates",
    ]


def test_verify_sees_an_amendment_of_what_was_paid_for_or_one_that_was_taken_out(
    stuck: Any,
) -> None:
    from synthdp.ledger.entries import Entry, entry_hash

    resume(stuck.out, spec_path=other(stuck, constraints=[]))
    file, sums = stuck.bundle / "privacy" / "ledger.json", stuck.bundle / "SHA256SUMS"
    content, before, listed = json.loads(file.read_text()), sha256(file), sums.read_text()

    def found(entries: list[dict[str, Any]]) -> str:
        previous = entries[0]["previous"]
        for entry in entries:
            entry["previous"] = previous
            entry["hash"] = previous = entry_hash(
                **{k: v for k, v in Entry(**entry).to_json().items() if k != "hash"}
            )
        file.write_text(
            json.dumps({**content, "entries": entries}, indent=1, ensure_ascii=False) + "\n"
        )
        sums.write_text(listed.replace(before, sha256(file)))
        with pytest.raises(VerifyError) as caught:
            verify_bundle(stuck.bundle)
        return str(caught.value)

    entries = content["entries"]
    place = next(i for i, e in enumerate(entries) if e["kind"] == "amend")
    changed = json.loads(json.dumps(entries))
    changed[place]["body"]["changed"] = ["privacy.epsilon"]
    assert "'privacy.epsilon' was changed after the reservation" in found(changed)
    assert "the settlement counts 1 changes of the spec, and 0 are listed" in found(
        [e for e in entries if e["kind"] != "amend"]
    )
