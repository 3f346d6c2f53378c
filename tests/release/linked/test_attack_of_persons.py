"""The attack and the audits of linked tables, by the commands of one table."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from synthdp.audit import linked as audits
from synthdp.cli.main import app
from synthdp.data import VisitFrame
from synthdp.errors import OutputError, VerifyError
from synthdp.model import STEP_PAIRS
from synthdp.privacy import LinkedTable
from synthdp.verify import verify_bundle
from tests.release.linked.conftest import run, spec_at, write_spec

ATTACK = {"attacks": {"membership": {"rows": 30, "pairs": 4}}, "privacy": {"epsilon": 3.0}}


def done(*words: str) -> str:
    found = CliRunner().invoke(app, [*words])
    assert found.exit_code == 0, (words, found.exception)
    return found.output


class Report:
    """What an attack found."""

    def to_json(self) -> dict[str, Any]:
        return {"conclusion": "no more than chance; a sanity check, not a proof"}


@pytest.fixture
def attacks(monkeypatch: pytest.MonkeyPatch) -> list[LinkedTable]:
    """Every table that is attacked, by an attack that takes no time."""
    seen: list[LinkedTable] = []

    def attack(table: LinkedTable, **how: Any) -> Report:
        how["folder"].mkdir()
        seen.append(table)
        return Report()

    monkeypatch.setattr(audits, "attack_persons", attack)
    return seen


@pytest.mark.check
def test_a_release_is_attacked_where_its_spec_asks_for_it(
    ward: Path, attacks: list[LinkedTable]
) -> None:
    run(ward)
    assert attacks == []
    found = run(write_spec(ward.parent, ATTACK), force=True)
    (table,) = attacks
    assert len(table.codes) == 300 and found.attack is not None
    path, conclusion = found.attack
    assert path == ward.parent / "out/internal/attack.json" and path.stat().st_mode & 0o77 == 0
    assert json.loads(path.read_text())["conclusion"] == conclusion
    assert str(path) in str(found)
    assert verify_bundle(found.bundle).ok and not (ward.parent / "out/.run").exists()
    assert not any("no more than chance" in p.read_text() for p in found.bundle.glob("**/*.json"))


@pytest.mark.check
@pytest.mark.parametrize("error", [ValueError("a row of id-0007"), OutputError("no room")])
def test_an_attack_that_fails_leaves_the_bundle_and_tells_the_kind_alone(
    ward: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(table: LinkedTable, **how: Any) -> Report:
        raise error

    monkeypatch.setattr(audits, "attack_persons", fails)
    found = run(write_spec(ward.parent, ATTACK))
    assert verify_bundle(found.bundle).ok and found.attack is not None
    assert found.attack[1] == f"not judged: {type(error).__name__}"
    assert "id-0007" not in found.attack[0].read_text()
    # What the machine stopped can go on.
    assert (ward.parent / "out/.run").exists() == isinstance(error, OutputError)


@pytest.mark.check
def test_an_attack_is_put_off_and_made_up_for(
    ward: Path, monkeypatch: pytest.MonkeyPatch, attacks: list[LinkedTable]
) -> None:
    monkeypatch.chdir(ward.parent)
    write_spec(ward.parent, ATTACK)
    told = done("release", "ward.yaml", "--attack", "later")
    assert "the attack is put off" in told and attacks == []
    before = (ward.parent / "releases/ward/bundle/stays.csv").read_bytes()
    assert "for the steward only" in done("attack", "releases/ward") and len(attacks) == 1
    assert (ward.parent / "releases/ward/bundle/stays.csv").read_bytes() == before
    again = CliRunner().invoke(app, ["attack", "releases/ward"])
    assert isinstance(again.exception, OutputError) and "no release" in again.exception.message
    done("release", "ward.yaml", "--attack", "later", "--out", "second", "--force")
    done("resume", "second", "--without", "attack")
    assert len(attacks) == 1 and not (ward.parent / "second/.run").exists()


@pytest.mark.check
def test_an_audit_replays_a_spec_and_a_bundle(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_spec(tmp_path)
    assert "Nothing found speaks against" in " ".join(
        done("audit", "ward.yaml", "--replay").split()
    )
    record = json.loads((tmp_path / "releases/ward/audit.json").read_text())
    assert record["replay"]["mechanisms"] == 7 and record["replay"]["findings"] == []
    assert record["replay"]["largest_share"] == pytest.approx(1)
    assert "Not audited here" in done("audit", str(made), "--replay")


@pytest.mark.check
@pytest.mark.parametrize("of", ["simulated", "real", "bundle"])
def test_an_audit_plants_canaries_among_persons(
    ward: Path, made: Path, monkeypatch: pytest.MonkeyPatch, attacks: list[LinkedTable], of: str
) -> None:
    monkeypatch.chdir(ward.parent)
    monkeypatch.setattr(audits, "replay_persons", lambda *a, **k: audits.merged([]))
    monkeypatch.setattr(audits.CanaryGame.audit, "__kwdefaults__", {"releases": 30})
    write_spec(ward.parent)
    words = {
        "simulated": ["ward.yaml", "--simulated"],
        "real": ["ward.yaml"],
        "bundle": [str(made)],
    }
    told = " ".join(done("audit", *words[of]).split())
    assert "all visits in one rare cell" in told and "visits spread" in told
    assert "sanity, not proof" in told and "no canaries were planted" not in told
    name = {"bundle": "audits/ward", "real": "releases/ward/internal"}.get(of, "releases/ward")
    record = json.loads((ward.parent / name / "audit.json").read_text())
    assert [a["runs"] for a in record["audits"]] == [60, 60] and record["membership"] is None
    assert record["rows"] == ("real" if of == "real" else "simulated") and attacks == []


@pytest.mark.check
def test_a_plan_that_forgets_a_persons_steps_is_refuted_by_its_replay(
    ward: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = audits.plan_linked

    def forgetful(*arguments: Any) -> Any:
        def one_row(purpose: str, look: Any) -> Any:
            inner = look.inner.scaled(1 / look.rows)
            return audits.replace(look, inner=inner, rows=1) if purpose == STEP_PAIRS else look

        return true(*arguments).map(one_row)

    monkeypatch.setattr(audits, "plan_linked", forgetful)
    monkeypatch.chdir(ward.parent)
    found = CliRunner().invoke(app, ["audit", "ward.yaml", "--replay"])
    assert isinstance(found.exception, VerifyError) and "refuted" in found.exception.message


@pytest.mark.slow
def test_a_whole_release_with_its_attack(ward: Path) -> None:
    found = run(write_spec(ward.parent, ATTACK))
    assert found.attack is not None and "sanity check" in found.attack[1]
    stated = json.loads(found.attack[0].read_text())
    assert [a["attack"].split()[0] for a in stated["declared"]] == ["targeted", "tables", "tables"]
    assert not any(a["refutes_claim"] for a in stated["declared"])


def test_shadow_releases_are_those_of_the_same_plan(ward: Path) -> None:
    spec = spec_at(write_spec(ward.parent, ATTACK))
    shadow = audits.shadow_linked(spec)
    frame = VisitFrame.from_spec(spec)
    assert audits.persons_of(shadow) == 30 == shadow.dataset.persons.rows.value
    one, two = (audits.plan_linked(s, frame) for s in (spec, shadow))
    assert one.stated_spends == two.stated_spends
    assert VisitFrame.from_spec(shadow) == frame
