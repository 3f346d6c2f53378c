"""The attack may be put off until the bundle is there, and be left out of a run that is resumed."""

import json
import re
import shutil
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

import synthdp as face
from synthdp.errors import GateError, OutputError
from synthdp.ledger import entry_hash
from synthdp.privacy import plan
from synthdp.release import NotJudged, judge
from synthdp.verify import verify_bundle
from tests.release.conftest import Tiny, dying, internal, interrupt, moved, table

pytestmark = pytest.mark.check

ATTACK = {"membership": {"enabled": True, "rows": 40, "pairs": 4, "steps": 2}}
GATE = {"metric": "attack_auc_upper", "at_most": 0.99, "outside_guarantee": True}
GATED = {"membership": {"enabled": True, "rows": 40, "pairs": 40, "steps": 2}}


@pytest.fixture
def attacked(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the bundle was there as each attack began; the attack itself takes no time."""
    seen: list[bool] = []

    def attack(*_: Any, **__: Any) -> NotJudged:
        seen.append(tiny.bundle.is_dir())
        return NotJudged("Stub")

    monkeypatch.setattr("synthdp.audit.membership.attack_rows", attack)
    return seen


def absent(tiny: Tiny) -> dict[str, str]:
    return dict(internal(tiny.out)["absent"])


def test_an_attack_is_put_off_and_run_later(tiny: Tiny, synthdp: Any, attacked: list[bool]) -> None:
    tiny.write(attacks=ATTACK)
    done = synthdp("release", tiny.spec, "--out", tiny.out, "--attack", "later")
    assert done.code == 0 and not attacked and verify_bundle(tiny.bundle).ok
    assert absent(tiny) == {"attack": f"the attack is put off; `synthdp attack {tiny.out}` runs it"}
    assert f"warning: the attack is put off; `synthdp attack {tiny.out}` runs it" in done.out
    kinds, sums = tiny.kinds(), (tiny.bundle / "SHA256SUMS").read_text()
    again = synthdp("attack", tiny.out)
    assert again.code == 0 and attacked == [True]
    assert absent(tiny) == {"attack": "not judged: Stub"}
    assert tiny.kinds() == kinds and (tiny.bundle / "SHA256SUMS").read_text() == sums
    assert not (tiny.out / ".run").exists()
    none = synthdp("attack", tiny.out)
    assert none.code == 2 and "holds no release whose attack is still to run" in none.err


@pytest.mark.parametrize(
    ("asked", "option", "runs"),
    [(False, (), False), (False, ("--attack", "now"), True), (True, (), True)],
)
def test_an_attack_that_nobody_asked_for_is_left_out_where_it_takes_longer_than_the_release(
    tiny: Tiny,
    synthdp: Any,
    attacked: list[bool],
    asked: bool,
    option: tuple[str, ...],
    runs: bool,
) -> None:
    spec = yaml.safe_load(tiny.write(attacks=ATTACK).spec.read_text())
    if not asked:
        del spec["attacks"]
        tiny.spec.write_text(yaml.safe_dump(spec))
    said = " ".join(synthdp("plan", tiny.spec).out.split())
    assert ("the membership attack is left out: nobody asked for it" in said) != asked
    done = synthdp("release", tiny.spec, "--out", tiny.out, *option)
    assert done.code == 0 and bool(attacked) == runs
    assert ("left out: nobody asked" in absent(tiny)["attack"]) != runs
    assert not (tiny.out / ".run").exists()


@pytest.fixture(scope="module")
def one_put_off(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a release whose attack is still to run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "GROUP_SIZES", (1, 2))
        made = Tiny(tmp_path_factory.mktemp("put-off"))
        made.write(attacks=ATTACK, evaluation={"enabled": False}).release(attack="later")
    return made.folder


@pytest.mark.parametrize("command", ["attack", "resume"])
@pytest.mark.parametrize("there", ["nothing", "another run's", "damaged"])
def test_a_run_has_one_table_wherever_its_bundle_went(
    tiny: Tiny,
    synthdp: Any,
    attacked: list[bool],
    one_put_off: Path,
    command: str,
    there: str,
) -> None:
    moved(one_put_off, tiny)
    kinds, away = tiny.kinds(), tiny.folder / "away"
    shutil.copytree(tiny.bundle, away)
    ledger = tiny.bundle / "privacy" / "ledger.json"
    if there == "nothing":
        shutil.rmtree(tiny.bundle)
    else:
        ledger.write_text(ledger.read_text()[:-9] if there == "damaged" else forged(ledger))
    before = sorted(p.relative_to(tiny.out) for p in tiny.out.rglob("*"))
    refused = synthdp(command, tiny.out)
    assert refused.code == 2 and not attacked and tiny.kinds() == kinds
    for says in (tiny.bundle, "nothing more was spent", "bring it back", "`synthdp sample BUNDLE`"):
        assert str(says) in refused.err
    assert sorted(p.relative_to(tiny.out) for p in tiny.out.rglob("*")) == before

    shutil.rmtree(tiny.bundle, ignore_errors=True)
    shutil.move(away, tiny.bundle)
    assert synthdp(command, tiny.out).code == 0 and attacked == [True]
    assert verify_bundle(tiny.bundle).ok and not (tiny.out / ".run").exists()


def forged(ledger: Path) -> str:
    """The ledger of a bundle as if another run had made it, with hashes that fit."""
    told = json.loads(ledger.read_text())
    for entry in told["entries"]:
        entry["run"] = "20260101-000000000000"
        entry["hash"] = entry_hash(**{k: v for k, v in entry.items() if k != "hash"})
    return json.dumps(told)


def test_a_run_that_was_stopped_while_it_wrote_its_bundle_publishes_it(
    tiny: Tiny, synthdp: Any, attacked: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its decision was kept, and nothing was published yet."""
    tiny.write(attacks=ATTACK, evaluation={"enabled": False})
    with monkeypatch.context() as patch:
        patch.setattr("synthdp.release.run.write_bundle", dying())
        with pytest.raises(KeyboardInterrupt):
            tiny.release()
    assert not tiny.bundle.exists() and synthdp("resume", tiny.out).code == 0
    assert attacked == [True] and verify_bundle(tiny.bundle).ok


def test_an_attack_whose_workers_were_lost_goes_on(
    tiny: Tiny, synthdp: Any, attacked: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.write(attacks=ATTACK)
    with monkeypatch.context() as patch:
        silent = dying(partial(OutputError, "no worker answers"))
        patch.setattr("synthdp.audit.membership.attack_rows", silent)
        done = synthdp("release", tiny.spec, "--out", tiny.out)
    assert done.code == 0 and absent(tiny) == {"attack": "not judged: OutputError"}
    told = done.err.index(f"the bundle is there: {tiny.bundle}; the attack begins")
    assert re.search(r"\nattack: \d", done.err[told:])
    assert (tiny.out / ".run").exists() and not attacked
    assert synthdp("attack", tiny.out).code == 0 and attacked == [True]
    assert not (tiny.out / ".run").exists()


@pytest.mark.parametrize("stage", ["sample", "attack"])
def test_an_interrupted_run_is_finished_without_its_attack(
    tiny: Tiny, synthdp: Any, attacked: list[bool], stage: str
) -> None:
    tiny.write(attacks=ATTACK)
    interrupt(tiny, stage)
    done = synthdp("resume", tiny.out, "--without", "attack")
    assert done.code == 0 and not attacked and verify_bundle(tiny.bundle).ok
    assert absent(tiny) == {"attack": "left out when the run was resumed"}
    assert not (tiny.out / ".run").exists()


def test_a_gate_on_the_attack_withholds_until_it_has_run(
    tiny: Tiny, synthdp: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    monkeypatch.setattr(
        "synthdp.audit.membership.attack_rows",
        lambda *_, **__: seen.append(tiny.bundle.exists()) or SimpleNamespace(declared=()),  # type: ignore[func-returns-value]
    )
    best = {"attack_auc_upper": judge.Figure(0.5)}
    monkeypatch.setattr(judge, "attack_figures", lambda *_, **__: best)
    monkeypatch.setattr("synthdp.audit.membership.declared_facts", lambda report: ())
    tiny.write(attacks=GATED, gates=[GATE])
    waits = synthdp("release", tiny.spec, "--out", tiny.out, "--attack", "later")
    told = f"nothing is published before `synthdp attack {tiny.out}` has run"
    assert waits.code == 4 and not tiny.bundle.exists() and not seen
    assert waits.err.index(told) < waits.err.index("read: ")
    assert "the gate on attack_auc_upper waits for the attack" in waits.err
    without = synthdp("resume", tiny.out, "--without", "attack")
    assert without.code == 4 and not tiny.bundle.exists()
    monkeypatch.setattr("synthdp.release.afterwards.internal_report", lambda *_, **__: tiny.spec)
    monkeypatch.setattr("synthdp.release.run.record_judgement", lambda *_, **__: None)
    done = synthdp("attack", tiny.out)
    assert done.code == 0 and seen == [False] and verify_bundle(tiny.bundle).ok
    assert tiny.kinds().count("reserve") == 1


def test_python_puts_an_attack_on_a_dataframe_off(
    tiny: Tiny, attacked: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = face.Spec.load(tiny.write(attacks=ATTACK).spec)
    frame = table().replace("", None)
    made = spec.release(frame, out=tiny.out, attack="later")
    assert made.bundle.verify().ok and not attacked
    assert "synthdp.attack(" in absent(tiny)["attack"]
    assert face.attack(tiny.out, frame).run == made.run and attacked == [True]


def test_a_decision_that_was_published_is_not_made_again(
    tiny: Tiny, attacked: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.write(attacks=ATTACK, gates=[{"metric": "tv1", "at_most": 0.9, "outside_guarantee": True}])
    made = tiny.release(attack="later")
    monkeypatch.setattr(judge, "_evaluate", dying(ValueError))
    outcome = face.attack(tiny.out)
    assert outcome.gates == (("tv1", "at most 0.9"),) and not made.failed


def test_what_a_gate_withheld_is_not_drawn_again_until_it_passes(
    tiny: Tiny, attacked: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run's folder stays for its attack, and each new draw would be another look at rows."""
    tiny.write(attacks=ATTACK, gates=[{"metric": "tv1_noisy", "at_most": 0.0}])
    assert tiny.release(attack="later").failed
    monkeypatch.setattr(judge, "noisy_tv1", lambda *_: 0.0)
    with pytest.raises(GateError, match="withheld"):
        face.attack(tiny.out)
    assert attacked == [False] and not tiny.bundle.exists()
