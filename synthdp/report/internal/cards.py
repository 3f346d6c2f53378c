"""The cards at the top of the steward's report: gates, budget, utility, fidelity, attack."""

from __future__ import annotations

from synthdp.report.internal import findings
from synthdp.report.internal.content import ReportContent
from synthdp.report.parts import Card, interval, number

NEIGHBOURS = {
    "add_remove": "neighbouring tables: one unit more or less",
    "replace_one": "neighbouring tables: one unit replaced",
}


def report_cards(content: ReportContent) -> list[Card]:
    """All cards, in the order of the page."""
    budget, metrics = content.budget, content.evaluation.metrics() if content.evaluation else {}
    over = budget.epsilon_planned > budget.epsilon
    return [
        _gates_card(content),
        Card(
            "Epsilon",
            f"{number(budget.epsilon_planned)} of {number(budget.epsilon)}",
            findings.plan_words(budget),
            "bad" if over else "good",
        ),
        Card("Protected unit", budget.unit, NEIGHBOURS.get(budget.adjacency, budget.adjacency)),
        _learning_card(content, metrics),
        _distance_card(content, metrics),
        _attack_card(content),
        _misfits_card(content),
    ]


def _gates_card(content: ReportContent) -> Card:
    """How many gates passed."""
    text = findings.verdict(content.gates)
    if not content.gates:
        return Card("Gates", "none set", text)
    passed = sum(gate.passed for gate in content.gates)
    state = "bad" if content.withheld else "good"
    return Card("Gates", f"{passed} of {len(content.gates)} passed", text, state)


def _misfits_card(content: ReportContent) -> Card:
    """How many values are outside the declared domain."""
    text = findings.misfits(content.misfits)
    values = sum(sum(kinds.values()) for kinds in content.misfits.values())
    if not values:
        return Card("Data problems", "none", text, "good")
    return Card("Data problems", f"{values:,} values", text, "bad")


def _learning_card(content: ReportContent, metrics: dict[str, float]) -> Card:
    """The mean AUC after training on synthetic and on real rows."""
    if "tstr_auc" not in metrics or content.evaluation is None:
        return Card("Learning", "not available", "no classifier could be judged")
    real = content.evaluation.utility.mean_auc_real
    return Card(
        "Learning (mean AUC)",
        f"{metrics['tstr_auc']:.3f}",
        f"learnt on synthetic rows; {number(real)} learnt on real ones, ratio"
        f" {metrics.get('tstr_ratio', 0):.3f}",
    )


def _distance_card(content: ReportContent, metrics: dict[str, float]) -> Card:
    """The mean total variation of one-, two- and three-way tables."""
    noisy = f"against the released noisy marginals {number(content.tv1_noisy)}"
    if "tv1" not in metrics:
        return Card("Distance (total variation)", "not available", noisy)
    rest = [f"{k}-way {metrics[f'tv{k}']:.3f}" for k in (2, 3) if f"tv{k}" in metrics]
    others = f"; {', '.join(rest)}" if rest else ""
    text = f"1-way{others}; {noisy}"
    return Card("Distance (total variation)", f"{metrics['tv1']:.4f}", text)


def _attack_card(content: ReportContent) -> Card:
    """The attack's advantage beside what the claim allows."""
    if not content.attack:
        return Card("Membership attack", "not run", "sanity, not proof")
    attack = content.attack
    main, claim = attack.get("main") or attack, attack.get("claim") or {}
    ceiling = claim.get("ceiling_advantage", attack.get("ceiling"))
    refuted = bool(attack.get("refutes_claim", False))
    advantage = main.get("advantage")
    figure = interval(advantage.get("value") if isinstance(advantage, dict) else advantage)
    models = f"{main.get('models', 'unknown number of')} test models in each world"
    text = (
        f"advantage {interval(advantage)}; the claim allows at most {interval(ceiling)}; {models}."
        " Sanity, not proof."
    )
    return Card("Membership attack", figure, text, "bad" if refuted else "plain")
