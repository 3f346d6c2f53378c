"""Gates on attacks: which figure decides, what is said when it fails, and that what simulated rows
decide costs nothing.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synthdp.bundle import PUBLIC_FILE, DeclaredAttack, spends_of
from synthdp.data import Domain
from synthdp.model import plan_for
from synthdp.release.gates import Figure, attack_figures, check_gates
from synthdp.spec import DECLARED, LUCKY, gates, load_spec, lowest_limit, provable
from synthdp.spec.model import ATTACK_FIGURES, ATTACK_METRICS, PUBLIC_METRICS, Attacks, Gate
from synthdp_attacks import FloatArray, GameOutcome, attack_row, provable_epsilon
from tests.builders import audit_record, declared_attack, membership

pytestmark = pytest.mark.check

BLACK = declared_attack("targeted with random_forest", models=20, upper=0.4, auc_upper=0.8)
WHITE = declared_attack(
    "elbo with lira_online", models=20, upper=0.7, auc=0.5, auc_upper=0.7, epsilon_lower=0.3
)


def audited(tiny: Any, *attacks: DeclaredAttack) -> None:
    """Leave the record of an audit that found `attacks`."""
    spec = load_spec(tiny.spec)
    spends = spends_of(plan_for(spec, Domain.from_spec(spec.columns)))
    record = audit_record(spends=spends, membership=membership(*attacks, pairs=40))
    path: Path = tiny.out / PUBLIC_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(record.model_dump_json(), encoding="utf-8")


def test_the_attack_that_does_best_decides_and_is_named() -> None:
    figures = attack_figures((BLACK, WHITE), prefix="attack")
    assert {name: figure.value for name, figure in figures.items()} == {
        "attack_advantage_upper": 0.7, "attack_auc_upper": 0.8, "attack_epsilon_lower": 0.3
    }  # fmt: skip
    gate = Gate(metric="attack_advantage_upper", at_most=0.5, outside_guarantee=True)
    (verdict,) = check_gates([gate], figures)
    assert not verdict.passed and verdict.gate.margin(verdict.figure.value) == pytest.approx(-0.2)
    assert (
        str(verdict)
        == "attack_advantage_upper: needs at most 0.5, got 0.7 by elbo with lira_online on 20 test"
        " models in each world, beyond the bound by 0.2"
    )
    assert "targeted" in figures["attack_auc_upper"].source
    rate = BLACK.model_copy(update={"tpr_upper": 0.06})
    assert attack_figures((WHITE, rate), prefix="simulated")["simulated_tpr_upper"].value == 0.06


def test_every_figure_of_an_attack_can_be_a_gate_in_both_forms() -> None:
    full = BLACK.model_copy(update={"tpr_upper": 0.1})
    assert (
        set(attack_figures([full], prefix="attack"))
        == set(ATTACK_METRICS)
        == {f"attack_{name}" for name in ATTACK_FIGURES}
    )
    assert set(attack_figures([full], prefix="simulated")) == {
        name for name in PUBLIC_METRICS if name.startswith("simulated_")
    }
    assert Gate(metric="simulated_auc_upper", at_most=0.6).attacked == "auc_upper"
    assert Gate(metric="tv1_noisy", at_most=0.6).attacked is None


def test_what_models_can_prove_is_what_the_record_tells() -> None:
    for models in (10, 20, 100, 500):
        assert provable(models, 1e-5) == provable_epsilon(
            models, delta=1e-5, confidence=1 - 0.05 / DECLARED
        )


RUNS = 600
# Of 600 runs: what 5% of failures exceed in less than 1 of 200 (45), and the least that tells a
# limit from one that luck never reaches.
MOST, LEAST = 45, 1


def without_leak(scores: FloatArray) -> DeclaredAttack:
    """An attack that guesses, as the record tells it; `scores` of models without the target and
    then of as many with it.
    """
    row = attack_row("x", "y", GameOutcome(scores, np.repeat([False, True], len(scores) // 2)))
    gap, tpr = row.advantage, row.tpr_at[0][1]
    found = {"advantage": gap.value, "lower": gap.lower, "upper": gap.upper}
    found |= {"auc": row.auc.value, "auc_upper": row.auc.upper}
    return declared_attack("x with y", **found, tpr_upper=tpr.upper if tpr else None)


@pytest.mark.parametrize("models", [12, 100, 150])
def test_a_release_without_leak_passes_the_lowest_limit_that_is_allowed(models: int) -> None:
    """Three attacks that share nothing, which is the worst case; any gate below the lowest limit is
    refused.
    """
    rng = np.random.default_rng(1)
    runs = [
        attack_figures(
            [without_leak(rng.normal(size=2 * models)) for _ in range(DECLARED)], prefix="simulated"
        )
        for _ in range(RUNS)
    ]
    for figure in LUCKY if models >= 100 else ("advantage_upper", "auc_upper"):
        gate = Gate(metric=f"simulated_{figure}", at_most=lowest_limit(figure, models))
        failed = sum(not check_gates([gate], found)[0].passed for found in runs)
        assert LEAST <= failed <= MOST, (figure, failed)


def problems(tiny: Any, figure: str, bound: float, *, models: int) -> list[Any]:
    """What the spec is told of one gate, with so many test models in each world."""
    tiny.write(attacks={"membership": {"enabled": True, "rows": 40, "pairs": 40, "steps": 2}})
    spec, gate = load_spec(tiny.spec), Gate(metric=f"simulated_{figure}", at_most=bound)
    attacks = Attacks(membership=spec.attacks.membership.model_copy(update={"pairs": 2 * models}))
    return list(gates(spec.model_copy(update={"gates": (gate,), "attacks": attacks})))


@pytest.mark.parametrize("figure", LUCKY)
def test_limits_that_chance_fails_or_nothing_are_refused_and_the_lowest_is_told(
    tiny: Any, figure: str
) -> None:
    least = lowest_limit(figure, 100)
    assert 0 < least < 1 and not problems(tiny, figure, least, models=100)
    (below,) = problems(tiny, figure, least - 0.001, models=100)
    assert "chance alone exceeds" in below.message
    assert "100 test models in each world" in below.message
    assert below.hint and f"give at least {least:g}" in below.hint
    pairs = int(below.hint.split("attacks.membership.pairs: ")[1])
    assert not problems(tiny, figure, least - 0.001, models=pairs // 2)
    (above,) = problems(tiny, figure, 1.0, models=100)
    assert "nothing can fail it" in above.message


def test_so_few_models_that_no_limit_decides_need_more(tiny: Any) -> None:
    (few,) = problems(tiny, "auc_upper", 0.99, models=2)
    assert "every limit below 1" in few.message and few.hint == "set attacks.membership.pairs: 20"
    (never,) = problems(tiny, "auc_upper", 0.3, models=12)  # what was accepted once
    assert never.hint and never.hint.endswith("no number of pairs is enough for 0.3")
    assert problems(tiny, "auc_upper", 0.51, models=12)
    assert problems(tiny, "epsilon_lower", -0.1, models=100)
    assert not problems(tiny, "epsilon_lower", 0.0, models=100)


def test_a_gate_on_simulated_rows_is_decided_before_anything_is_spent(
    tiny: Any, synthdp: Any
) -> None:
    gates = [{"metric": "simulated_advantage_upper", "at_most": 0.65}]
    tiny.write(
        gates=gates, attacks={"membership": {"enabled": True, "rows": 40, "pairs": 40, "steps": 2}}
    )
    none = synthdp("release", tiny.spec, "--out", tiny.out)
    assert (
        none.code == 2 and "needs an audit of this plan" in none.err and "--simulated" in none.err
    )
    audited(tiny, BLACK, WHITE)
    failed = synthdp("release", tiny.spec, "--out", tiny.out)
    assert failed.code == 4
    assert "there will be no bundle" in failed.err
    assert "nothing was spent" in failed.err
    assert "got 0.7 by elbo with lira_online on 20 test models in each world" in failed.err
    assert tiny.kinds() == [] and not tiny.bundle.exists() and not (tiny.out / "internal").exists()


@pytest.mark.slow
def test_a_gate_on_simulated_rows_that_holds_is_inside_the_guarantee(tiny: Any) -> None:
    tiny.write(
        gates=[{"metric": "simulated_advantage_upper", "at_most": 0.85}],
        attacks={"membership": {"enabled": True, "rows": 40, "pairs": 20, "steps": 2}},
    )
    audited(tiny, BLACK, WHITE)
    outcome = tiny.release()
    assert outcome.bundle == tiny.bundle and str(outcome.verdicts[0]).count("by elbo")
    assert "decision to publish" not in (tiny.bundle / "privacy" / "certificate.md").read_text()


@pytest.mark.slow
def test_a_gate_on_the_real_attack_withholds_and_says_which(tiny: Any, synthdp: Any) -> None:
    """Noisy tables at so large an epsilon tell the worlds apart: the attack that does best is told
    with its name and its number of models.
    """
    gates = [{"metric": "attack_auc_upper", "at_most": 0.85, "outside_guarantee": True}]
    tiny.write(
        gates=gates,
        attacks={"membership": {"enabled": True, "rows": 40, "pairs": 40, "steps": 2}},
        privacy={
            "epsilon": 20,
            "shares": {"measure": 0.9, "train": 0.1},
            "cap": {"epsilon": 20, "delta": 1e-4},
        },
        evaluation={"enabled": False, "targets": []},
    )
    done = synthdp("release", tiny.spec, "--out", tiny.out)
    assert done.code == 4
    assert "attack_auc_upper: needs at most 0.85 on real rows" in done.err
    assert "test models" not in done.err
    assert not tiny.bundle.exists()
    report = json.loads((tiny.out / "internal" / "internal.json").read_text())
    assert report["gates"][0]["outside_guarantee"] and not report["gates"][0]["passed"]


def test_a_figure_without_a_source_reads_as_before() -> None:
    gate = Gate(metric="tv1_noisy", at_most=0.25)
    held, failed = (check_gates([gate], {"tv1_noisy": Figure(value)})[0] for value in (0.125, 0.5))
    assert str(held) == "tv1_noisy: needs at most 0.25, got 0.125"
    assert str(failed).endswith("got 0.5, beyond the bound by 0.25")
