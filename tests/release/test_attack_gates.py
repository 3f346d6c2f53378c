"""Gates on attacks: which figure decides, what is said when it fails, and that what simulated rows decide costs nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from attacks.epsilon import provable_epsilon
from attacks.statistics import Counts, advantage, clopper_pearson
from synthdp.bundle.audit_record import PUBLIC_FILE, AuditRecord, DeclaredAttack, Membership, spends_of
from synthdp.data.domain import Domain
from synthdp.gates import Figure, attack_figures, check_gates
from synthdp.model.pipeline import plan_for
from synthdp.spec.gatechecks import TAIL, chance_upper, provable
from synthdp.spec.load import load_spec
from synthdp.spec.models import ATTACK_FIGURES, ATTACK_METRICS, PUBLIC_METRICS, Gate

BLACK = DeclaredAttack(attack="targeted with random_forest", models=20, advantage=0.1, lower=-0.2, upper=0.4, auc=0.6, epsilon_lower=0, refuted=False)
WHITE = BLACK.model_copy(update={"attack": "elbo with lira_online", "upper": 0.7, "auc": 0.5, "epsilon_lower": 0.3})


def audited(tiny: Any, *attacks: DeclaredAttack, rows: str = "simulated") -> None:
    """Leave the record of an audit that found `attacks`."""
    release = load_spec(tiny.spec)
    found = Membership(pairs=40, advantage=0.1, lower=-0.2, upper=0.4, ceiling=0.1, refuted=False, attacks=attacks)
    spends = spends_of(plan_for(release, Domain.from_spec(release.columns)))
    record = AuditRecord(program="synthdp 0", day="2026-01-01", rows=rows, spends=spends, membership=found)  # type: ignore[arg-type]
    path: Path = tiny.out / PUBLIC_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(record.model_dump_json(), encoding="utf-8")


def test_the_attack_that_does_best_decides_and_is_named() -> None:
    figures = attack_figures((BLACK, WHITE), prefix="attack")
    assert {name: figure.value for name, figure in figures.items()} == {
        "attack_advantage_upper": 0.7, "attack_auc": 0.6, "attack_epsilon_lower": 0.3
    }  # fmt: skip
    gate = Gate(metric="attack_advantage_upper", at_most=0.5, outside_guarantee=True)
    (verdict,) = check_gates([gate], figures)
    assert not verdict.passed and verdict.margin == pytest.approx(-0.2)
    assert str(verdict) == (
        "attack_advantage_upper: needs at most 0.5, got 0.7 by elbo with lira_online on 20 test models in each world, beyond the bound by 0.2"
    )
    assert "targeted" in figures["attack_auc"].source
    rate = BLACK.model_copy(update={"tpr_upper": 0.06})
    assert attack_figures((WHITE, rate), prefix="simulated")["simulated_tpr_upper"].value == 0.06


def test_every_figure_of_an_attack_can_be_a_gate_in_both_forms() -> None:
    full = BLACK.model_copy(update={"tpr_upper": 0.1})
    assert set(attack_figures([full], prefix="attack")) == set(ATTACK_METRICS) == {f"attack_{name}" for name in ATTACK_FIGURES}
    assert set(attack_figures([full], prefix="simulated")) == {name for name in PUBLIC_METRICS if name.startswith("simulated_")}
    assert Gate(metric="simulated_auc", at_most=0.6).attacked == "auc" and Gate(metric="tv1_noisy", at_most=0.6).attacked is None


def test_limits_of_what_models_can_show_are_those_of_the_attacks() -> None:
    """The spec's checks may not import the attacks; they have the same closed forms."""
    for models in (10, 20, 100, 500):
        assert provable(models, 1e-5) == pytest.approx(provable_epsilon(models, delta=1e-5, confidence=1 - 2 * TAIL / 3))
        half = advantage(Counts(models // 2, models, models // 2, models))
        assert 0.75 * half.upper < chance_upper(models) < 1.05 * half.upper
        assert 1 - TAIL ** (1 / models) == pytest.approx(clopper_pearson(0, models).upper)


def test_a_gate_on_simulated_rows_is_decided_before_anything_is_spent(tiny: Any, synthdp: Any) -> None:
    gates = [{"metric": "simulated_advantage_upper", "at_most": 0.5}]
    tiny.write(gates=gates, attacks={"membership": {"enabled": True, "rows": 40, "pairs": 40, "steps": 2}})
    none = synthdp("release", tiny.spec, "--out", tiny.out)
    assert none.code == 2 and "needs an audit of this plan" in none.err and "--simulated" in none.err
    audited(tiny, BLACK, WHITE)
    failed = synthdp("release", tiny.spec, "--out", tiny.out)
    assert failed.code == 4 and "there will be no bundle" in failed.err and "nothing was spent" in failed.err
    assert "got 0.7 by elbo with lira_online on 20 test models in each world" in failed.err
    assert tiny.kinds() == [] and not tiny.bundle.exists() and not (tiny.out / "internal").exists()


@pytest.mark.slow
def test_a_gate_on_simulated_rows_that_holds_is_inside_the_guarantee(tiny: Any) -> None:
    tiny.write(
        gates=[{"metric": "simulated_advantage_upper", "at_most": 0.75}],
        attacks={"membership": {"enabled": True, "rows": 40, "pairs": 8, "steps": 2}},
    )
    audited(tiny, BLACK, WHITE)
    outcome = tiny.release()
    assert outcome.bundle == tiny.bundle and outcome.verdicts[0].source.startswith("elbo")
    assert "decision to publish" not in (tiny.bundle / "privacy" / "certificate.md").read_text()


@pytest.mark.slow
def test_a_gate_on_the_real_attack_withholds_and_says_which(tiny: Any, synthdp: Any) -> None:
    """An AUC of at most 0 holds for nobody: whatever the attack finds is told with its name and its number of models."""
    gates = [{"metric": "attack_auc", "at_most": 0.0, "outside_guarantee": True}]
    tiny.write(
        gates=gates, attacks={"membership": {"enabled": True, "rows": 40, "pairs": 4, "steps": 2}}, evaluation={"enabled": False, "targets": []}
    )
    done = synthdp("release", tiny.spec, "--out", tiny.out)
    assert done.code == 4 and "on 2 test models in each world, beyond the bound by" in done.err and not tiny.bundle.exists()
    report = json.loads((tiny.out / "internal" / "internal.json").read_text())
    assert report["gates"][0]["outside_guarantee"] and not report["gates"][0]["passed"]


def test_a_figure_without_a_source_reads_as_before() -> None:
    gate = Gate(metric="tv1_noisy", at_most=0.25)
    held, failed = (check_gates([gate], {"tv1_noisy": Figure(value)})[0] for value in (0.125, 0.5))
    assert str(held) == "tv1_noisy: needs at most 0.25, got 0.125" and str(failed).endswith("got 0.5, beyond the bound by 0.25")
