"""Judging a synthetic table: what is public about it, and what only the steward may see.

What is computed on real rows can fail because of them: a learner on a column without variety, an
attack on a table of one row. Of an error there the steward is told its kind alone, and nothing that
was paid for depends on it: the bundle is written before, unless a gate is on such a figure.

Persons with visits are judged on the real ones once, for the steward, after the bundle. What is
found is `Confidential`. This module opens confidential values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd

from synthdp.bundle.audit_record import AuditRecord
from synthdp.bundle.certificate import profile_of
from synthdp.bundle.certificate_text import in_words, unquoted
from synthdp.bundle.linked import LinkedBundle
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.data.level_groups import LevelGroups
from synthdp.data.visits import OUTER, PERSONS, STEPS, Views
from synthdp.errors import OutputError, one_thread
from synthdp.evaluate.dp_scores import DpScores, headline, with_ends
from synthdp.evaluate.fidelity import noisy_tv1
from synthdp.evaluate.functional import SuggestionReport, suggest
from synthdp.evaluate.run import EvaluationReport, evaluate
from synthdp.evaluate.visits import RealFigures, real_figures
from synthdp.files import parse_json, private_folder, read_text, write_private
from synthdp.graph.causal import CausalGraph
from synthdp.graph.level_groups import groups_of, on_groups
from synthdp.graph.validation import ValidationReport
from synthdp.inference.estimands import (
    EstimandResult,
    clipped_text,
    estimand_results,
    exact_results,
)
from synthdp.inference.figures import Value
from synthdp.model.fit import Fitted
from synthdp.privacy.inspection import Misfit, misfits_of
from synthdp.privacy.linked import LinkedTable
from synthdp.privacy.noise import fresh_generator
from synthdp.privacy.private import Confidential, Private, Released
from synthdp.privacy.session import Session
from synthdp.privacy.table import Table
from synthdp.progress import Steps, advance, seconds, stage
from synthdp.release.gates import Figure, GateVerdict, attack_figures
from synthdp.release.job import DrawnTable, Job
from synthdp.report.internal.content import (
    ATTACK,
    EVALUATION,
    Budget,
    EstimandBeside,
    GateResult,
    ReportContent,
)
from synthdp.report.internal.page import (
    VisitJudgement,
    write_internal_report,
    write_internal_visits,
)
from synthdp.report.sections import ROWS, GraphView, Look
from synthdp.spec.addresses import home
from synthdp.spec.model import ATTACK_METRICS, CONFIDENTIAL_METRICS, Effect, ReleaseSpec
from synthdp.spec.model.rules import engine_of

if TYPE_CHECKING:
    from synthdp_attacks import MembershipReport


T = TypeVar("T")
EVALUATION_METRICS = tuple(m for m in CONFIDENTIAL_METRICS if m not in ATTACK_METRICS)


@dataclass(frozen=True)
class NotJudged:
    """What stands for a figure that could not be computed: the kind of the error, no text of it."""

    kind: str

    def __str__(self) -> str:
        return f"not judged: {self.kind}"


@dataclass(frozen=True)
class Judgement:
    """What was measured about the synthetic table.

    `tv1_noisy` compares two released values and `scores` were paid for: both are public. `domain`
    is what the rest is on, if it is not that of the run: the groups of levels that the model knows.
    The rest is computed on real rows; None is what was not asked for, or not yet. `suggestions`
    name columns that look like functions of others. `estimands` are the results without noise.
    """

    tv1_noisy: Released[float]
    scores: Released[DpScores] | None = None
    domain: Domain | None = None
    evaluation: Confidential[EvaluationReport | NotJudged] | None = None
    suggestions: Confidential[SuggestionReport | NotJudged] | None = None
    estimands: Confidential[tuple[EstimandResult, ...] | NotJudged] | None = None
    attack: Confidential[MembershipReport | NotJudged] | None = None
    misfits: Confidential[dict[str, dict[str, int]]] | None = None

    @property
    def released(self) -> Judgement:
        """What of it is public."""
        return Judgement(self.tv1_noisy, self.scores, self.domain)

    def absent_for_steward(self) -> dict[str, str]:
        """The parts that could not be judged, each with the kind of the error."""
        parts = {
            EVALUATION: self.evaluation,
            "columns that could be declared": self.suggestions,
            "estimands on real rows": self.estimands,
            ATTACK: self.attack,
        }
        found = {name: part.for_steward() for name, part in parts.items() if part is not None}
        return {name: str(part) for name, part in found.items() if isinstance(part, NotJudged)}

    def figures_for_steward(self) -> dict[str, Figure]:
        """Every figure that a gate may name; confidential ones included."""
        found = {"tv1_noisy": Figure(self.tv1_noisy.value)}
        if self.scores is not None:
            paid = headline(self.scores.value)
            found |= {name: Figure(s.value, ends=(s.low, s.high)) for name, s in paid.items()}
        absent = self.absent_for_steward()
        for part, names in ((EVALUATION, EVALUATION_METRICS), (ATTACK, ATTACK_METRICS)):
            found |= dict.fromkeys(names, Figure(None, absent[part])) if part in absent else {}
        if (evaluation := opened(self.evaluation)) is not None:
            found |= {name: Figure(value) for name, value in evaluation.metrics().items()}
        if (attack := opened(self.attack)) is not None:
            from synthdp.audit.membership import declared_facts

            found |= attack_figures(declared_facts(attack), prefix="attack")
        return found

    def metrics_for_steward(self) -> dict[str, float]:
        """The same as numbers, ends of intervals too, without what could not be judged."""
        figures = self.figures_for_steward()
        known = {name: f.value for name, f in figures.items() if f.value is not None}
        return known | (with_ends(self.scores.value) if self.scores else {})


def stopped(attack: Confidential[MembershipReport | NotJudged] | None) -> bool:
    """Whether this machine, or its cluster, stopped an attack: it can go on."""
    found = None if attack is None else attack.for_steward()
    return isinstance(found, NotJudged) and found.kind == OutputError.__name__


def opened(part: Confidential[T | NotJudged] | None) -> T | None:
    """A part as reports and tracking take it; None where it is not there."""
    found = None if part is None else part.for_steward()
    return None if isinstance(found, NotJudged) else found


@dataclass(frozen=True)
class Judge:
    """Judges one drawn table as the spec asks: what its gates need, and later the rest."""

    session: Session
    job: Job
    fitted: Fitted
    drawn: DrawnTable

    def released(self) -> Judgement:
        """What is public: post-processing of released values."""
        groups = self._groups
        tv1 = self.drawn.codes.zip(self.fitted.marginals).map(
            lambda pair: noisy_tv1(
                groups.of(pair[0]), [on_groups(t, groups) for t in pair[1]], groups.coarse
            )
        )
        return Judgement(tv1, self.drawn.scores, groups.coarse)

    def for_gates(self) -> Judgement:
        """What is public, and those figures on real rows that a gate is on."""
        found, asked = self.released(), {gate.metric for gate in self.job.spec.gates}
        if not asked.isdisjoint(EVALUATION_METRICS):
            with stage("judge for the gates"):
                found = replace(found, evaluation=self._evaluation())
        return self.attacked(found) if not asked.isdisjoint(ATTACK_METRICS) else found

    def rest(self, found: Judgement) -> Judgement:
        """All else that the spec asks for, beside what was `found` for its gates; no attack."""
        if self.job.spec.evaluation.enabled:
            with stage("judge on real rows"):
                if found.evaluation is None:
                    found = replace(found, evaluation=self._evaluation())
                spec, domain = self.job.spec, self.job.domain
                drawn = self.drawn.synthetic.value
                with one_thread():
                    suggestions = self._on_sample(
                        lambda table: suggest(
                            spec, domain, table.frame, drawn, rng=fresh_generator()
                        )
                    )
                estimands = self._seen(
                    lambda table: exact_results(spec, domain, table),
                    reason="estimands on real rows",
                )
                found = replace(found, suggestions=suggestions, estimands=estimands)
        misfits = self.session.inspect(
            lambda table: table.misfits, reason="values outside the domain"
        )
        return replace(found, misfits=misfits)

    @cached_property
    def _groups(self) -> LevelGroups:
        return groups_of(self.fitted.tables.value, self.job.domain)

    def _evaluation(self) -> Confidential[EvaluationReport | NotJudged]:
        with one_thread():
            return self._on_sample(
                lambda table: _evaluate(
                    table,
                    self.job.spec,
                    self._groups,
                    self.drawn.codes.value,
                    self.drawn.synthetic.value,
                    self.fitted.graph.graph,
                )
            )

    def attacked(self, found: Judgement) -> Judgement:
        """With the declared attack, on models that an interrupted one has trained, and more."""
        from synthdp.audit.membership import attack_rows

        job = self.job
        with stage("attack"):
            attack = self._seen(
                lambda table: attack_rows(
                    table.fit_codes,
                    job.spec,
                    job.domain,
                    self.fitted.graph.graph,
                    folder=job.folder.shadows,
                    progress=advance,
                    units=table.fit_units,
                ),
                reason="membership inference on real rows",
            )
        return replace(found, attack=attack)

    @cached_property
    def _sample(self) -> Confidential[Table | NotJudged]:
        """The rows that are judged: drawn once, where they lie in an engine."""
        most = self.job.spec.evaluation.max_rows
        return self._seen(lambda table: table.judged(most), reason="evaluation on real rows")

    def _on_sample(self, look: Callable[[Table], T]) -> Confidential[T | NotJudged]:
        return self._sample.map(lambda t: t if isinstance(t, NotJudged) else guarded(look, t))

    def _seen(self, look: Callable[[Table], T], *, reason: str) -> Confidential[T | NotJudged]:
        return self.session.inspect(lambda table: guarded(look, table), reason=reason)


def guarded(look: Callable[[Table], T], table: Table) -> T | NotJudged:
    """What `look` says of rows; of an error its kind alone."""
    try:
        return look(table)
    except Exception as error:  # whatever rows can make learners and attacks raise
        return NotJudged(type(error).__name__)


def _evaluate(
    table: Table,
    spec: ReleaseSpec,
    groups: LevelGroups,
    codes: Codes,
    synthetic: pd.DataFrame,
    graph: CausalGraph,
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
        progress=advance,
    )


def _effects(spec: ReleaseSpec) -> tuple[Effect, ...]:
    """Effects that are compared: those that were paid for, which no one has to name twice, too."""
    paid = [e for e in spec.estimands if isinstance(e, Effect)]
    named = {
        (e.treated, e.control, e.outcome, None if e.adjust is None else tuple(e.adjust)): e
        for e in (*paid, *spec.evaluation.effects)
    }
    return tuple(named.values())


# --- the steward's report; what follows opens confidential values ---


def internal_report(
    target: Path,
    job: Job,
    fitted: Fitted,
    judgement: Judgement,
    verdicts: Sequence[GateVerdict],
    *,
    audits: Sequence[AuditRecord],
    absent: Mapping[str, str] = MappingProxyType({}),
) -> Path:
    """Write `internal.html` and `internal.json` into `target`; returns the page.

    `absent` names more parts that are not in `judgement`, and why.
    """
    steps = Steps(2)
    steps.begin("budget step by step")
    attack, estimands = opened(judgement.attack), opened(judgement.estimands)
    content = replace(
        _content(job, audits),
        gates=tuple(
            GateResult(
                metric=v.gate.metric,
                bound=v.gate.bound,
                value=v.figure.value,
                ends=tuple(v.figure.ends),
                absent="" if v.figure.value is not None else v.figure.source,
                passed=v.passed,
                outcome=v.outcome,
                outside_guarantee=v.gate.outside_guarantee,
            )
            for v in verdicts
        ),
        tv1_noisy=judgement.tv1_noisy.value,
        evaluation=opened(judgement.evaluation),
        graph=_graph_view(job, fitted.graph.graph, fitted.graph.validation),
        attack=None if attack is None else attack.to_json(),
        misfits={} if judgement.misfits is None else judgement.misfits.for_steward(),
        suggestions=opened(judgement.suggestions),
        absent=judgement.absent_for_steward() | dict(absent),
        estimands=() if estimands is None else (*estimands_beside(job, fitted, estimands),),
    )
    if judgement.domain is not None:
        content = replace(content, domain=judgement.domain)
    if judgement.scores is not None:
        told = map(unquoted, map(in_words, judgement.scores.value))
        content = replace(content, notes=(*content.notes, *told))
    steps.begin("internal report")
    return write_internal_report(target, content)


def estimands_beside(
    job: Job, fitted: Fitted, real: Sequence[EstimandResult]
) -> Iterator[EstimandBeside]:
    """Every released figure of an estimand beside that of all real rows."""
    sums = {name: released.value for name, released in fitted.sums.items()}
    results = estimand_results(job.spec, job.domain, sums)
    for asked, released, exact in zip(job.spec.estimands, results, real, strict=True):
        for figure, true in zip(released.figures, exact.figures, strict=True):
            yield EstimandBeside(
                name=released.name,
                text=clipped_text(job.spec, asked),
                statistic=released.statistic,
                group=figure.group or "",
                released=_number(figure.estimate),
                interval=None if figure.interval is None else tuple(map(_number, figure.interval)),
                real=_number(true.estimate),
            )


def _number(value: Value | None) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def refused_report(
    target: Path,
    job: Job,
    found: ValidationReport,
    *,
    audits: Sequence[AuditRecord],
) -> Path:
    """Write the report of a run whose graph the noisy tables refuted.

    Nothing was trained, so nothing else could be judged.
    """
    gate = GateResult(
        metric="refuted claims of the graph",
        bound="at most 0",
        value=float(len(found.refuted)),
        passed=False,
    )
    content = replace(
        _content(job, audits),
        gates=(gate,),
        graph=_graph_view(job, found.apply("flag"), found),
    )
    return write_internal_report(target, content)


def _content(job: Job, audits: Sequence[AuditRecord]) -> ReportContent:
    profile = profile_of(job.plan.stated_spends, job.spec)
    entries = job.ledger.run_entries(job.folder.run)
    return ReportContent(
        title=job.spec.dataset.title or job.spec.dataset.id,
        run=job.folder.run,
        created=job.folder.created,
        domain=job.domain,
        budget=_budget(job),
        profile=tuple((p["epsilon"], p["delta"]) for p in profile["points"]),
        audits=tuple(a.model_dump() | {"refuted": a.refuted} for a in audits),
        studies=tuple(_studies(job)),
        contact=job.spec.dataset.contact,
        expected=next((e.body.get("expected") for e in entries if e.kind == "reserve"), None),
        timings=seconds(),
        notes=tuple(_notes(job)),
    )


def _studies(job: Job) -> Iterator[Mapping[str, Any]]:
    """Studies of the dataset that lie in the release's folders; files that are none are no matter.

    A study is an aid: one that cannot be read stops no report.
    """
    for folder in (job.out, job.internal):
        with suppress(OSError, ValueError, KeyError, TypeError):
            found = parse_json(read_text(folder / "study.json"))
            if found["dataset"] == job.spec.dataset.id and found["rows"] in ROWS:
                from synthdp.release.study import Line

                lines = [asdict(Line(**line)) for line in found["lines"]]
                yield {"rows": found["rows"], "lines": lines}


def _notes(job: Job) -> Iterator[str]:
    """Constraints, and what read the rows, by the ledger: a run that goes on is told of as it
    began.
    """
    spec = job.spec
    for text in spec.constraints:
        yield f"Every synthetic row fulfils the constraint {text}"
    engine = engine_of(spec.dataset.source, spec.compute)
    if engine != "memory" and spec.evaluation.enabled:
        yield (
            f"The real rows lie in engine {engine}. What is judged here is a random sample of at"
            f" most {spec.evaluation.max_rows:,} of them, which by itself is some way from all."
            " Paid figures are beside those of all rows"
        )
    for entry in job.ledger.run_entries(job.folder.run):
        if "read_by" in entry.body:
            how = ", ".join(f"{name} {value}" for name, value in entry.body["read_by"].items())
            yield f"The rows were read by: {how}"


def _graph_view(job: Job, graph: CausalGraph, found: ValidationReport | None) -> GraphView:
    stated = found.to_json() if found else None
    return GraphView.of(graph, mode=job.spec.graph.mode, validation=stated)


def _budget(job: Job) -> Budget:
    plan, used, balance = job.plan, job.spent, job.ledger.balance(job.spec.dataset.id)
    needed, found = {s.purpose for s in used.spends}, job.spec.dataset.domain_from
    steps = tuple(
        Look(
            purpose=s.purpose,
            mechanism=s.mechanism.name,
            epsilon=plan.epsilon_of(s),
            used=s.purpose in needed,
        )
        for s in plan.spends
    )
    return Budget(
        epsilon=plan.epsilon,
        epsilon_planned=plan.epsilon_spent,
        epsilon_spent=used.epsilon_spent,
        delta=plan.delta,
        adjacency=plan.adjacency,
        unit=job.spec.dataset.privacy_unit.meaning,
        steps=steps,
        group_epsilons=plan.group_epsilons,
        cap_epsilon=balance.cap_epsilon,
        dataset_spent=balance.epsilon,
        filtered=balance.together if balance.mu else None,
        search=(found.epsilon, found.delta) if found else None,
    )


def attack_report(
    target: Path, attack: Confidential[MembershipReport | NotJudged]
) -> tuple[Path, str]:
    """Write `attack.json` into `target`, for the steward alone; its path, and the conclusion."""
    found = attack.for_steward()
    if isinstance(found, NotJudged):
        facts: dict[str, Any] = {"conclusion": str(found)}
    else:
        facts = found.to_json()
    target.parent.mkdir(parents=True, exist_ok=True)
    path = private_folder(target) / "attack.json"
    write_private(path, json.dumps(facts, indent=1, allow_nan=False) + "\n")
    return path, str(facts["conclusion"])


# --- misfits ---


WARNING = "outside the guarantee; for your eyes; do not publish"


def misfits_for_steward(
    spec: ReleaseSpec,
    spec_path: Path,
    *,
    given: Private[pd.DataFrame] | None = None,
    examples: bool = False,
) -> tuple[Misfit, ...]:
    """The misfits of a spec's rows, with the commonest values among them where `examples` says so.

    They go to the terminal, to a file of the steward's own or to the caller in Python; no tracker,
    bundle or ledger gets them.

    Raises:
        DataError: the source cannot be read, or has other columns.
        OutputError: examples were asked for, and rows do not come into memory.
    """
    found = misfits_of(
        spec.dataset,
        Domain.from_spec(spec.columns),
        folder=home(spec_path),
        delta=spec.privacy.delta,
        compute=spec.compute,
        given=given,
        examples=examples,
    )
    return found.for_steward()


def judge_visits(
    session: Session, bundle: LinkedBundle, internal: Path
) -> tuple[Path, dict[str, float]]:
    """Write the internal report; its page, and the figures for the steward's MLflow."""
    frame, targets = bundle.frame, bundle.linked.evaluation.targets
    number = frame.views[PERSONS].index(frame.now("number"))

    def look(table: Table) -> RealFigures:
        assert isinstance(table, LinkedTable)
        steps = table.views[STEPS].units
        assert steps is not None
        codes = {name: table.views[name].codes for name in (PERSONS, OUTER, STEPS)}
        visited = np.flatnonzero(codes[PERSONS][:, number] > 0)
        owners = {PERSONS: np.arange(len(codes[PERSONS])), OUTER: visited, STEPS: steps}
        with one_thread():
            return real_figures(
                *(frame, bundle.groups, Views(codes, owners), bundle.views, targets),
                rng=fresh_generator(),
                held_out=table.held_out,
            )

    reason = "evaluation on real persons"
    found = session.inspect(lambda table: guarded(look, table), reason=reason).for_steward()
    judged = None if isinstance(found, NotJudged) else found
    content = VisitJudgement(
        facts=bundle.certificate.model_dump(mode="json"),
        day=bundle.day,
        scores=bundle.scores,
        found=judged,
        absent=str(found) if judged is None else "",
        held_out=bundle.linked.evaluation.held_out,
    )
    page = write_internal_visits(internal, content)
    return page, {} if judged is None else judged.metrics()
