"""`synthdp study SPEC`: the protocol of the base paper ("Causally constrained data synthesis for
private data release", arXiv:2105.13144) on the table of a spec.

It holds four arms against each other: with the spec's graph and without one, at the spec's epsilon
and without privacy. In each arm shadow releases are attacked by every extractor with every
classifier, and by the scores that a bundle allows. What an attacker loses by the graph, and by
privacy, is the difference of two arms. One release of full size in each arm, and at other epsilons,
is asked for its use: models learn random columns from its rows, and from the real ones.

Everything is a rehearsal, outside the guarantee: nothing is published, and the ledger is not
charged. On real rows all of it is confidential; on rows drawn from the spec it is public. Attacks
are a sanity check, and no proof.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from pydantic import TypeAdapter

from synthdp import drawing
from synthdp.audit.folder import AttackFolder, audit_folder
from synthdp.audit.membership import WHITE_BOX, Board
from synthdp.audit.plan import on_real_rows, public_graph, simulated_twin, twin_units
from synthdp.audit.shadow_models import (
    OWN_GRAPH,
    ShadowTrainer,
    drawn_rows,
    game_text,
    plan_at,
    shadow_spec,
)
from synthdp.bundle.audit_record import CONFIDENTIAL_FILE, SANITY
from synthdp.data.domain import Domain
from synthdp.data.encoding import decode
from synthdp.errors import OutputError, disk_errors, one_thread
from synthdp.evaluate.learners import PAPER_CLASSIFIERS, random_targets, summarize
from synthdp.evaluate.utility import UtilityReport, trainings, utility
from synthdp.files import private_folder, write_private
from synthdp.model.fit import fit
from synthdp.privacy.noise import fresh_generator
from synthdp.privacy.plan import ReleasePlan
from synthdp.privacy.session import Rehearsal
from synthdp.privacy.table import Table
from synthdp.progress import Steps, advance, stage, tell, warn
from synthdp.spec.addresses import home
from synthdp.spec.checks.checks import check
from synthdp.spec.load.loader import own_spec
from synthdp.spec.model import Graph, LinkedSpec, ReleaseSpec, rules
from synthdp.tracking.mlflow_run import Tracker, tracker
from synthdp_attacks import AttackRow, MembershipReport
from synthdp_attacks.membership import MAIN
from synthdp_attacks.statistics import Interval, difference

Rows = Literal["simulated", "real"]
TARGETS = "random targets"
COLOURS = "orange with the graph, blue without"
DECLARED = (MAIN, *WHITE_BOX)  # beforehand: the best of many attacks would flatter the attacker
ENDS = (("", "value"), (" lower", "lower"), (" upper", "upper"))
_KEPT = TypeAdapter(UtilityReport)


@dataclass(frozen=True)
class Arm:
    """With the spec's graph or without one; an infinite `epsilon` is without privacy."""

    graph: bool
    epsilon: float

    def __str__(self) -> str:
        return f"{'graph' if self.graph else 'no graph'} {at(self.epsilon)}"


def at(epsilon: float) -> str:
    """An epsilon in words that MLflow takes as a part of a name."""
    return f"at epsilon {epsilon:g}" if math.isfinite(epsilon) else "without privacy"


@dataclass(frozen=True)
class Line:
    """One figure with its 95% interval, where it has one: what it is of, and by whom.

    `of` is an arm, or what takes something from an attacker, or gives it to a reader; `extractor`
    and `classifier` are an attack's, or what was learned, and the learner.
    """

    figure: str
    of: str
    extractor: str
    classifier: str
    value: float
    lower: float | None = None
    upper: float | None = None

    @property
    def ends(self) -> tuple[float, float, float]:
        """Value and interval, as pictures take them."""
        low, high = (self.value if end is None else end for end in (self.lower, self.upper))
        return self.value, low, high

    @property
    def name(self) -> str:
        """Its own, in MLflow."""
        return "/".join(("study", self.figure, self.of, self.extractor, self.classifier))


@dataclass(frozen=True)
class Study:
    """What was found in each arm; `useful` has more epsilons than `attacked`."""

    dataset: str
    rows: Rows
    epsilon: float
    attacked: Mapping[Arm, MembershipReport]
    useful: Mapping[Arm, UtilityReport]

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """Every figure, each once."""
        return (*self._advantages(), *self._taken(), *self._scores(), *self._gaps())

    declared = DECLARED

    @property
    def notes(self) -> tuple[str, ...]:
        """What must be known before the figures are believed."""
        whose = dict[str, list[str]]()
        for reports, part in ((self.attacked, "warnings"), (self.useful, "notes")):
            for arm, report in reports.items():
                for told in getattr(report, part):
                    whose.setdefault(told, []).append(str(arm))
        return tuple(f"{', '.join(dict.fromkeys(arms))}: {told}" for told, arms in whose.items())

    def of(self, *figures: str) -> list[Line]:
        """The lines of some figures."""
        return [line for line in self.lines if line.figure in figures]

    def to_json(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "dataset": self.dataset,
            "rows": self.rows,
            "confidential": self.rows == "real",
            "caveat": SANITY,
            "lines": list(map(asdict, self.lines)),
            "attacks": {str(a): report.to_json() for a, report in self.attacked.items()},
            "utility": {str(a): report.to_json() for a, report in self.useful.items()},
            "notes": list(self.notes),
        }

    def _advantages(self) -> Iterator[Line]:
        for arm, report in self.attacked.items():
            for row in report.table:
                pair = str(arm), row.extractor, row.classifier
                yield _line("advantage", *pair, row.advantage)
                yield _line("auc of the attack", *pair, row.auc)

    def _taken(self) -> Iterator[Line]:
        """What each attack loses: the difference of two arms, whose models are independent."""
        rows = {arm: attacks_of(report) for arm, report in self.attacked.items()}
        for by, before, after in _steps(self.epsilon):
            for pair, row in rows[before].items():
                lost = difference(row.advantage, rows[after][pair].advantage)
                yield _line("advantage taken", by, *pair, lost)

    def _scores(self) -> Iterator[Line]:
        """The mean over targets, learner by learner, after training on rows of each arm."""
        for arm, report in self.useful.items():
            scores = dict[tuple[str, str], list[float]]()
            for row in report.rows:
                if row.metric in ("auc", "accuracy", "r2") and row.synthetic is not None:
                    scores.setdefault((row.metric, row.classifier), []).append(row.synthetic)
            for (metric, learner), values in scores.items():
                yield Line(metric, str(arm), TARGETS, learner, float(np.mean(values)))

    def _gaps(self) -> Iterator[Line]:
        """What is lost against training on real rows, and what the graph gives, over targets."""
        for arm, report in self.useful.items():
            yield from _gap_lines("lost", str(arm), report)
            if arm.graph:
                twin = self.useful[Arm(graph=False, epsilon=arm.epsilon)]
                yield from _gap_lines(
                    "given", f"by the graph {at(arm.epsilon)}", _less(report, twin)
                )


def attacks_of(report: MembershipReport) -> dict[tuple[str, str], AttackRow]:
    """Each attack's row by extractor and classifier."""
    return {(row.extractor, row.classifier): row for row in report.table}


def _line(figure: str, of: str, extractor: str, classifier: str, found: Interval) -> Line:
    return Line(figure, of, extractor, classifier, found.value, found.lower, found.upper)


def _steps(epsilon: float) -> Iterator[tuple[str, Arm, Arm]]:
    """What is added, the arm before, and the arm after."""
    for private in (epsilon, math.inf):
        yield f"by the graph {at(private)}", Arm(False, private), Arm(True, private)
    for graph in (True, False):
        by = f"by privacy {'with the graph' if graph else 'without a graph'}"
        yield by, Arm(graph, math.inf), Arm(graph, epsilon)


def _less(first: UtilityReport, second: UtilityReport) -> UtilityReport:
    """Scores on synthetic rows of `first` less those of `second`, target by target."""
    there = {(r.target, r.classifier, r.metric): r.synthetic for r in second.rows}
    rows = []
    for row in first.rows:
        other = there.get((row.target, row.classifier, row.metric))
        known = row.synthetic is not None and other is not None
        gap = row.synthetic - other if known else None  # type: ignore[operator]
        rows.append(replace(row, real=row.synthetic, synthetic=other, difference=gap))
    return UtilityReport(tuple(rows))


def _gap_lines(what: str, of: str, report: UtilityReport) -> Iterator[Line]:
    targets = tuple(dict.fromkeys(row.target for row in report.rows))
    for gap in summarize(targets, report).gaps:
        unit = gap.unit if gap.metric == "accuracy" else gap.metric
        yield Line(f"{unit} {what}", of, TARGETS, "all learners", gap.value, gap.low, gap.high)


# --- running it ---


def study(
    spec_path: Path,
    *,
    rows: Rows,
    out: Path | None = None,
    epsilons: Sequence[float] = (),
    targets: int = 1,
    learned: int = 20,
) -> tuple[Study, Path]:
    """Study the table of the spec at `spec_path`; return what was found, and the folder that holds
    it as study.json, study.csv and study.svg.

    A study that is interrupted keeps its shadow models and what was learned, and the same call goes
    on with them.

    Args:
        rows: `simulated` ones are drawn from the spec, and the result is public.
        out: as for a release; a study of real rows is in its folder `internal`.
        epsilons: at which the use of the rows is measured, too, with the graph and without.
        targets: units that are attacked, the most isolated ones.
        learned: columns that are learned, where the spec has no `evaluation.random_targets`.

    Raises:
        SynthdpError: any mistake that the user can mend.
    """
    with stage("plan"):
        stated = own_spec(spec_path)
        if isinstance(stated, LinkedSpec):
            raise OutputError(
                "a study compares releases of one table, and this spec has linked ones",
                hint="`synthdp audit SPEC --simulated` attacks a release of made-up persons at no"
                " cost, and `synthdp plan` says what noise will make of each score and estimand",
            )
        spec = comparable(stated, rows, learned)
        job = _Study(spec, Domain.from_spec(spec.columns), rows, targets, epsilons)
        models = 2 * spec.attacks.membership.pairs * targets
        tell(
            f"study: {len(job.attacked)} arms of {models:,} shadow models each, and"
            f" {len(job.useful)} releases on {rows} rows; nothing is published or charged, and no"
            " epsilon covers it"
        )
    out = out or Path("releases") / spec.dataset.id
    with audit_folder(out, f"study of {rows} rows") as folder:
        run, beside = f"study-{folder.coins('run').bytes(6).hex()}", home(spec_path)
        with tracker(spec, folder=beside, run=run, spec_path=spec_path, kind="study") as log:
            if rows == "simulated":
                found = job.on(job.twin(folder), folder)
            else:
                found = on_real_rows(
                    lambda table: job.on(table, folder),
                    spec,
                    spec_folder=beside,
                    coins=folder.coins("rows of a unit"),
                    holdout=spec.evaluation.holdout,
                )
            files = write(found, out)
            _log(log, found, files)
        warn(log.warnings)
    return found, files[0].parent


def comparable(spec: ReleaseSpec, rows: Rows, learned: int) -> ReleaseSpec:
    """The spec without what a twin without a graph cannot have, or what would stop a rehearsal.

    Estimands go: they make no rows, and their share goes to the tables. A refuted graph is flagged.
    Simulated rows seldom fulfil constraints, and are not held to any.

    Raises:
        OutputError: it has no graph.
    """
    if spec.graph.mode == "none":
        raise OutputError(
            "there is nothing to compare: the spec has no graph",
            hint="draw one in graph.edges, or use graph.mode learn or predict",
        )
    graph, judged = spec.graph, spec.evaluation
    privacy = spec.privacy.for_tables()
    settings = {"enabled": True, "effects": (), "random_targets": judged.random_targets or learned}
    if graph.on_refuted == "fail":
        graph = graph.model_copy(update={"on_refuted": "flag"})
    changes: dict[str, Any] = {
        **{"privacy": privacy, "graph": graph, "estimands": (), "gates": ()},
        "evaluation": judged.model_copy(update=settings),
        **({"constraints": ()} if rows == "simulated" else {}),
    }
    return spec.model_copy(update=changes)


def without_graph(spec: ReleaseSpec) -> ReleaseSpec:
    """The twin of a spec as a plain VAE of the same budget: what graph and targets cost goes into
    the training, and z is no narrower than by the rule for specs without a graph.

    Raises:
        SpecError: the spec asks for something else that needs a graph.
    """
    shares, made = spec.privacy.shares, spec.synthesizer
    train = math.fsum((shares.train, shares.graph, shares.targets))
    shares = shares.model_copy(update={"graph": 0.0, "targets": 0.0, "train": train})
    changes: dict[str, Any] = {
        "privacy": spec.privacy.model_copy(update={"shares": shares}),
        "graph": Graph(mode="none"),
        "synthesizer": made.model_copy(update={"targets": ()}),
    }
    twin = spec.model_copy(update=changes)
    width = {"latent": max(made.latent, rules.latent(twin))}
    if rules.tables_only(spec):  # which has no network
        width["hidden"] = rules.hidden(twin)
    return check(twin.model_copy(update={"synthesizer": twin.synthesizer.model_copy(update=width)}))


@dataclass(frozen=True)
class _Study:
    """Everything public about one study; `spec` is a `comparable` one."""

    spec: ReleaseSpec
    domain: Domain
    rows: Rows
    targets: int
    epsilons: Sequence[float]

    def twin(self, folder: AttackFolder) -> Table:
        """Rows drawn from the spec, with some of their units held out."""
        rng, spec = folder.coins("twin"), self.spec
        codes = simulated_twin(spec, self.domain, bundle=None, rng=rng)
        units = twin_units(spec, codes)
        each = np.arange(len(codes)) if units is None else units
        held_out = (rng.random(len(codes)) < spec.evaluation.holdout)[each]
        return Table(codes, decode(self.domain, codes, rng=rng), held_out, {}, units)

    @cached_property
    def specs(self) -> dict[bool, ReleaseSpec]:
        """With the graph, and without one."""
        return {True: self.spec, False: without_graph(self.spec)}

    @cached_property
    def attacked(self) -> dict[Arm, ShadowTrainer]:
        """What makes the shadow releases of each arm. Without a given graph each finds its own."""
        shadows = {g: shadow_spec(spec, finding=OWN_GRAPH) for g, spec in self.specs.items()}
        arms = [Arm(g, e) for e in (self.spec.privacy.epsilon, math.inf) for g in (True, False)]
        return {
            arm: ShadowTrainer(
                *(spec := shadows[arm.graph], self.domain),
                plan_at(spec, self.domain, arm.epsilon, like=self.specs[arm.graph]),
                public_graph(spec, self.domain),
                white_box=True,
            )
            for arm in arms
        }

    @cached_property
    def useful(self) -> dict[Arm, ReleasePlan]:
        """The plan of a whole release in each arm, and at more epsilons, the least first."""
        epsilons = sorted({*self.epsilons, self.spec.privacy.epsilon, math.inf})
        arms = [Arm(graph, epsilon) for epsilon in epsilons for graph in (True, False)]
        return {arm: plan_at(self.specs[arm.graph], self.domain, arm.epsilon) for arm in arms}

    def on(self, table: Table, folder: AttackFolder) -> Study:
        """All arms on the rows of a table, as confidential as these are."""
        drawn = table.fit_codes, table.fit_units, self.spec, self.targets, folder.coins("game")
        board, attacked = Board.drawn(*drawn), dict[Arm, MembershipReport]()
        for arm, trainer in self.attacked.items():
            with stage(f"attack, {arm}"):
                models = _place(folder, f"attack, {arm}").models_of(trainer.identity, *board.arrays)
                coins = folder.coins(f"attack, {arm}")
                attacked[arm] = board.attacked(trainer, models, coins, advance, also=WHITE_BOX)
        useful = {arm: self._useful(arm, table, folder) for arm in self.useful}
        dataset, epsilon = self.spec.dataset.id, self.spec.privacy.epsilon
        return Study(dataset, self.rows, epsilon, attacked, useful)

    def _useful(self, arm: Arm, table: Table, folder: AttackFolder) -> UtilityReport:
        """What learners make of the rows of one release, beside the real ones; kept in `folder`."""
        spec, plan, codes = self.specs[arm.graph], self.useful[arm], table.fit_codes
        game = game_text(spec, plan, public_graph(spec, self.domain))
        kept = _place(folder, f"use, {arm}").models_of(game, codes) / "utility.json"
        if kept.exists():
            return _KEPT.validate_json(kept.read_bytes())
        seen = table.judged(spec.evaluation.max_rows)
        sides = ~seen.held_out, seen.held_out
        train, test = (seen.frame[own].reset_index(drop=True) for own in sides)
        with stage(f"release, {arm}"):
            rehearsal = Rehearsal(
                *(codes, self.domain, plan), frame=train if seen is table else None
            )
            fitted = fit(rehearsal, spec, self.domain, progress=advance)
            drawn = drawn_rows(fitted, spec, fresh_generator())
        targets = random_targets(self.domain, spec.evaluation.random_targets)
        with stage(f"learn, {arm}"), one_thread():
            found = utility(
                *(train, test, decode(self.domain, drawn, rng=fresh_generator())),
                domain=self.domain,
                targets=targets,
                classifiers=PAPER_CLASSIFIERS,
                max_rows=spec.evaluation.max_rows,
                rng=folder.coins("learners"),  # the same for all arms, which are compared
                begin=Steps(len(trainings(self.domain, targets, PAPER_CLASSIFIERS))).begin,
            )
        private_folder(kept.parent)
        write_private(kept, _KEPT.dump_json(found).decode())
        return found


def _place(folder: AttackFolder, name: str) -> AttackFolder:
    """A part of the study's folder, which keeps what it finds in it."""
    return AttackFolder.open(folder.path / name.replace(", ", "-").replace(" ", "-"))


# --- what it leaves ---


def write(found: Study, out: Path) -> list[Path]:
    """Write study.json, study.csv and study.svg; of real rows for their owner alone."""
    texts = {
        "study.json": json.dumps(found.to_json(), indent=1) + "\n",
        "study.csv": pd.DataFrame(map(asdict, found.lines)).to_csv(index=False),
        "study.svg": picture(found),
    }
    with disk_errors(f"cannot write {out}", hint="choose another folder with --out"):
        folder = out
        if found.rows == "real":
            folder = private_folder((out / CONFIDENTIAL_FILE).parent)
        for name, text in texts.items():
            write_private(folder / name, text)
    return [folder / name for name in texts]


def _log(log: Tracker, found: Study, files: Sequence[Path]) -> None:
    """Each figure in MLflow by a name of its own, a batch for each of its kind, and the files."""
    log.params({"rows": found.rows})
    for _, own in groupby(found.lines, key=lambda line: (line.figure, line.of)):
        named = [(f"{line.name}{end}", getattr(line, part)) for line in own for end, part in ENDS]
        log.metrics({name: value for name, value in named if value is not None})
    for file in files:
        log.artifact(file)


def picture(found: Study) -> str:
    """What the attacks that were declared beforehand see, and what models lose, by epsilon."""
    seen = []
    for epsilon in (found.epsilon, math.inf):
        both = [attacks_of(found.attacked[Arm(graph, epsilon)]) for graph in (True, False)]
        for extractor, classifier in DECLARED:
            advantages = [rows[extractor, classifier].advantage for rows in both]
            ends = [(a.value, a.lower, a.upper) for a in advantages]
            seen.append((f"{extractor} with {classifier}, {at(epsilon)}", ends))
    drawn = {
        f"Advantage of an attack: {COLOURS}": drawing.intervals(
            seen, label="advantage (0: guessing)", alt="advantages of attacks by arm"
        )
    }
    for figure in ("auc lost", "r2 lost"):
        lost = {line.of: line for line in found.of(figure)}
        rows = []
        for epsilon in dict.fromkeys(arm.epsilon for arm in found.useful):
            own = [lost.get(str(Arm(graph, epsilon))) for graph in (True, False)]
            ends = [line.ends for line in own if line]
            rows += [(at(epsilon), ends)] if len(ends) == len(own) else []
        if rows:
            title = f"{figure.split()[0].upper()} lost by learning from synthetic rows: {COLOURS}"
            drawn[title] = drawing.intervals(rows, label="0: as good as real rows", alt=title)
    return drawing.sheet(drawn, name="study", title=f"Study of {found.dataset}")
