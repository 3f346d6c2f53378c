"""Judging a synthetic table: what is public about it, and what only the steward may see."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from synthdp.audit.membership import attack_release, declared_facts
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.data.level_groups import LevelGroups
from synthdp.evaluate.dp_scores import DpScores, headline
from synthdp.evaluate.fidelity import noisy_tv1
from synthdp.evaluate.functional.suggest import SuggestionReport, suggest
from synthdp.evaluate.run import EvaluationReport, evaluate
from synthdp.graph.causal import CausalGraph
from synthdp.graph.prediction.groups import groups_of, on_groups
from synthdp.inference.estimands import EstimandResult, exact_results
from synthdp.model.fit import Fitted
from synthdp.privacy.noise import fresh_generator
from synthdp.privacy.private import Confidential, Released
from synthdp.privacy.session import Session
from synthdp.privacy.table import Table
from synthdp.progress import Advance, Reporter
from synthdp.release.gates import Figure, attack_figures
from synthdp.spec.model import Effect, EffectEstimand, ReleaseSpec
from synthdp.threads import one_thread
from synthdp_attacks import MembershipReport


@dataclass(frozen=True)
class Judgement:
    """What was measured about the synthetic table.

    `tv1_noisy` compares two released values and `scores` were paid for: both are public. The rest
    was computed on real rows. `domain` is what it is on, if it is not that of the run: the groups
    of levels that the model knows. `suggestions` name columns that look like functions of others.
    `estimands` are the results without noise.
    """

    tv1_noisy: Released[float]
    evaluation: Confidential[EvaluationReport] | None
    attack: Confidential[MembershipReport] | None
    misfits: Confidential[dict[str, dict[str, int]]]
    scores: Released[DpScores] | None = None
    domain: Domain | None = None
    suggestions: Confidential[SuggestionReport] | None = None
    estimands: Confidential[tuple[EstimandResult, ...]] | None = None

    def figures_for_steward(self) -> dict[str, Figure]:
        """Every figure that a gate may name; confidential ones included."""
        found = {"tv1_noisy": Figure(self.tv1_noisy.value)}
        if self.scores is not None:
            found |= {name: Figure(value) for name, value in headline(self.scores.value).items()}
        if self.evaluation is not None:
            found |= {
                name: Figure(value)
                for name, value in self.evaluation.for_steward().metrics().items()
            }
        if self.attack is not None:
            found |= attack_figures(declared_facts(self.attack.for_steward()), prefix="attack")
        return found

    def metrics_for_steward(self) -> dict[str, float]:
        """The same without their sources."""
        return {name: figure.value for name, figure in self.figures_for_steward().items()}


def judge(
    session: Session,
    spec: ReleaseSpec,
    domain: Domain,
    fitted: Fitted,
    codes: Released[Codes],
    synthetic: Released[pd.DataFrame],
    *,
    folder: Path,
    reporter: Reporter,
    scores: Released[DpScores] | None = None,
) -> Judgement:
    """Measure fidelity and utility and run the attack, as the spec asks.

    `folder` holds shadow results while the attack runs.
    """
    groups = groups_of(fitted.tables.value, domain)
    tv1 = codes.zip(fitted.marginals).map(
        lambda pair: noisy_tv1(
            groups.of(pair[0]), [on_groups(t, groups) for t in pair[1]], groups.coarse
        )
    )
    evaluation, suggestions, attack, estimands = None, None, None, None
    if spec.evaluation.enabled:
        with reporter.stage("judge on real rows") as progress, one_thread():
            judged = session.inspect(
                lambda table: table.judged(spec.evaluation.max_rows),
                reason="evaluation on real rows",
            )
            evaluation = judged.map(
                lambda table: _evaluate(
                    table,
                    spec,
                    groups,
                    codes.value,
                    synthetic.value,
                    fitted.graph.graph,
                    progress,
                )
            )
            suggestions = judged.map(
                lambda table: suggest(
                    spec, domain, table.frame, synthetic.value, rng=fresh_generator()
                )
            )
            estimands = session.inspect(
                lambda table: exact_results(spec, domain, table), reason="estimands on real rows"
            )
    if spec.attacks.membership.enabled:
        with reporter.stage("attack") as progress:
            attack = attack_release(
                session, spec, domain, fitted.graph.graph, folder=folder, progress=progress
            )
    return Judgement(
        tv1,
        evaluation,
        attack,
        session.inspect(lambda table: table.misfits, reason="values outside the domain"),
        scores,
        groups.coarse,
        suggestions,
        estimands,
    )


def _evaluate(
    table: Table,
    spec: ReleaseSpec,
    groups: LevelGroups,
    codes: Codes,
    synthetic: pd.DataFrame,
    graph: CausalGraph,
    progress: Advance,
) -> EvaluationReport:
    """Tables are compared on the groups of levels that the model knows."""
    held_out = table.held_out
    fitted, tested = groups.of(table.codes[~held_out]), groups.of(table.codes[held_out])
    return evaluate(
        table.frame[~held_out].reset_index(drop=True),
        table.frame[held_out].reset_index(drop=True),
        synthetic,
        domain=groups.coarse,
        settings=spec.evaluation.model_copy(update={"effects": _effects(spec)}),
        rng=fresh_generator(),
        codes=(fitted, tested, groups.of(codes)),
        graph=graph,
        columns=spec.columns,
        progress=progress,
    )


def _effects(spec: ReleaseSpec) -> tuple[Effect, ...]:
    """Effects that are compared: those that were paid for, which no one has to name twice, too."""
    paid = [e for e in spec.estimands if isinstance(e, EffectEstimand)]
    named = {
        (e.treated, e.control, e.outcome, e.adjust): e for e in (*paid, *spec.evaluation.effects)
    }
    return tuple(named.values())
