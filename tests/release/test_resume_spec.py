"""What is done with released values can be mended without paying: `resume --spec` takes another
spec that differs in nothing else.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from synthdp.errors import OutputError, VerifyError
from synthdp.model import ConstraintsUnmet, DrawSettings
from synthdp.privacy import plan
from synthdp.privacy.session import Session
from synthdp.release import NotJudged, job, resume
from synthdp.verify import verify_bundle
from tests.release.conftest import Tiny, dying, moved, refit, table

pytestmark = pytest.mark.check

COUNTS = {
    name: {"type": "integer", "lower": 0, "upper": 20, "spikes": [0]} for name in ("seen", "left")
}
ATTACK = {"membership": {"enabled": True, "rows": 100, "pairs": 10, "steps": 5}}


def write(tiny: Tiny, **changes: Any) -> Tiny:
    """The tiny spec with two more columns of counts."""
    rng, rows = np.random.default_rng(3), table()
    rows = rows.assign(seen=rng.integers(0, 9, len(rows)), left=rng.integers(0, 9, len(rows)))
    return tiny.write(rows, columns=COUNTS, **changes)


@pytest.fixture(scope="module")
def one_stuck(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run whose model fulfils no constraint, and that ended there."""
    tiny = Tiny(tmp_path_factory.mktemp("stuck"))
    write(tiny, constraints=["seen < 20", "seen + left < 2 or smoker"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "GROUP_SIZES", (1, 2))
        patch.setattr("synthdp.model.constraints.SETTINGS", DrawSettings(min_share=0.99))
        with pytest.raises(ConstraintsUnmet):
            tiny.release()
    return tiny.folder


@pytest.fixture
def stuck(tiny: Tiny, one_stuck: Path) -> Tiny:
    return moved(one_stuck, tiny)


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
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch, steps: list[int], synthdp: Any
) -> None:
    attacked: list[str] = []
    monkeypatch.setattr(
        "synthdp.audit.membership.attack_rows",
        lambda *a, **k: attacked.append("attack") or NotJudged("Stub"),  # type: ignore[func-returns-value]
    )
    with monkeypatch.context() as patch:
        patch.setattr(job, "sample", lambda *a, **k: pytest.fail("before constraints were tried"))
        patch.setattr("synthdp.model.constraints.SETTINGS", DrawSettings(min_share=0.99))
        write(tiny, constraints=["seen + left < 2 or smoker"], attacks=ATTACK)
        failed = synthdp("release", tiny.spec, "--out", tiny.out)
    assert failed.code == 4
    assert "the hardest, 'seen + left < 2 or smoker'" in failed.err
    assert not attacked
    assert "epsilon 1 at delta 1e-05 stays spent" in failed.err
    assert f"synthdp resume {tiny.out} --spec NEW" in failed.err
    before = list(steps)
    assert len(before) == 20
    new = other(tiny, constraints=["seen < 20"], attacks={"membership": {"enabled": False}})
    refused = synthdp("resume", tiny.out, "--spec", new)
    assert refused.code == 2
    assert "attacks.membership.enabled: is false, and the run was paid for with true" in refused.err
    both = {"type": "integer", "lower": 0, "upper": 40, "derived": "seen + left"}
    new = other(
        tiny, constraints=["seen < 20", "both < 30"], sampling={"rows": 99}, columns={"both": both}
    )
    done = synthdp("resume", tiny.out, "--spec", new)
    assert done.code == 0, done.err
    assert steps == before and attacked == ["attack"]  # nothing was trained anew
    assert tiny.kinds() == ["cap", "reserve", "charge", "charge", "amend", "settle"]
    assert verify_bundle(tiny.bundle).ok
    drawn = pd.read_csv(tiny.bundle / "synthetic.csv")
    assert len(drawn) == 99
    assert (drawn["seen"] < 20).all()
    assert (drawn["both"] == drawn["seen"] + drawn["left"]).all()
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
    assert all(text in refused.err for text in told)
    assert "6 mistakes" in refused.err
    assert "constraints:" not in refused.err
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


@pytest.mark.parametrize(
    "killed", ["synthdp.ledger.ledger.Ledger.amend", "synthdp.release.run_folder.respecified"]
)
def test_a_change_of_spec_that_was_killed_halfway_is_given_again(
    stuck: Any, monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    new = other(stuck, constraints=[])
    with monkeypatch.context() as patch:
        patch.setattr(killed, dying())
        with pytest.raises(KeyboardInterrupt):
            resume(stuck.out, spec_path=new)
    if "respecified" in killed:
        with pytest.raises(OutputError, match="holds another spec of run"):
            resume(stuck.out)
    resume(stuck.out, spec_path=new)
    assert stuck.kinds().count("amend") == 1 and verify_bundle(stuck.bundle).ok


def test_a_table_whose_scores_were_counted_stays_as_it_is(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch, synthdp: Any
) -> None:
    write(tiny, evaluation={"disclosure": "private"}, constraints=["seen < 20"])
    with monkeypatch.context() as patch:
        patch.setattr(Session, "settle", dying())
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
    from synthdp.ledger import Entry, entry_hash

    resume(stuck.out, spec_path=other(stuck, constraints=[]))
    file = stuck.bundle / "privacy" / "ledger.json"
    content = json.loads(file.read_text())

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
        refit(stuck.bundle)
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
