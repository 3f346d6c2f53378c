"""Attacks and audits of releases of two linked tables, by person.

To attacks both tables are one array of rows: those of every view that is measured (`data.visits`),
so persons, first and last visits, and steps from visit to visit. All rows of a person are one unit.
So what an attack counts are sums over a person's visits: how often cells and transitions occur, how
many visits there are. A shadow release is what the release does, on other persons; what it wrote is
read as real rows are. All of it is sanity, not proof.

Audits make up persons of public facts alone: neighbours, and canaries. Two tables are neighbours
where one person, with all visits, is in one of them alone. Both are read as the kernel reads rows
(`data.visits.views_of`): sorted, cut to the first visits, and made views.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from synthdp.audit.folder import MEASUREMENTS, TARGETS, AttackFolder
from synthdp.audit.mechanisms.calls import Pair, Replayed, Side
from synthdp.audit.mechanisms.canaries import HALF_NOISE
from synthdp.audit.mechanisms.replay import merged, replay
from synthdp.audit.membership import Board, attack_facts, attack_shadows, two_worlds
from synthdp.audit.plan import Rows, at_rows, confirmed, record_of
from synthdp.audit.shadow_models import with_positions
from synthdp.bundle.audit_record import Audit, AuditRecord
from synthdp.bundle.content import MODEL_FILES
from synthdp.bundle.linked import checked_linked, persons_of
from synthdp.data.domain import Domain
from synthdp.data.level_groups import LevelGroups
from synthdp.data.visits import SETTINGS, CodedVisits, Floats, Views, VisitFrame, views_of, written
from synthdp.model.visits.draw import trajectories
from synthdp.model.visits.fit import fit, look_groups
from synthdp.model.visits.laws import VisitModel, bare
from synthdp.model.visits.planning import estimand_looks, plan_linked, stand_in_pairs
from synthdp.privacy.events import Adjacency
from synthdp.privacy.events.kinds import event_to_json
from synthdp.privacy.linked import (
    ChosenOnView,
    LinkedTable,
    OnView,
    fit_linked,
    in_views,
    read_linked,
)
from synthdp.privacy.mechanisms.marginals import AdaptiveMarginals, NoisyMarginals, NoisyTable
from synthdp.privacy.noise import Streams, fresh_generator
from synthdp.privacy.plan import ReleasePlan
from synthdp.privacy.session import Rehearsal
from synthdp.progress import Advance, advance, stage
from synthdp.spec.model import DeclaredRows, LinkedSpec
from synthdp_attacks import (
    Claim,
    MembershipReport,
    NoisyCounts,
    Public,
    WhiteBox,
    attack_tables,
    isolated_targets,
    provable_epsilon,
    shared_confidence,
    table_score,
)
from synthdp_attacks.game import GameOutcome
from synthdp_attacks.report import judged
from synthdp_attacks.statistics import Counts
from synthdp_attacks.tables import NAME, two_worlds_ratio
from synthdp_attacks.threat import Codes

ALIKE, SPREAD = "all visits in one rare cell", "visits spread"
"""Canaries: the worst case of tables of all steps, and a person like no other."""


def random_persons(frame: VisitFrame, count: int, rng: np.random.Generator) -> CodedVisits:
    """Persons with uniform levels and dates, and from no visit to one more than are kept."""
    owner = np.repeat(np.arange(count), rng.integers(0, frame.most + 2, count))
    births = None if frame.birth is None else _dates(frame.birth.lower, frame.birth.upper, count)
    deaths = None
    if frame.death is not None:
        drawn = rng.uniform(frame.death.lower, frame.death.upper, count)
        deaths = np.where(rng.random(count) < 0.5, np.floor(drawn), np.nan)
    when = np.floor(rng.uniform(frame.order.lower, frame.until, len(owner)))
    persons, visits = _levels(frame.columns, count, rng), _levels(frame.of_visits, len(owner), rng)
    own, theirs = frame.added
    parts = rng.integers(-SETTINGS.parts, SETTINGS.parts + 1, (len(owner), len(theirs))).astype(
        np.int32
    )
    evenly = [rng.uniform(c.lower, c.upper, count) for c in own]
    numbers = np.array(evenly).reshape(len(own), count).T
    return CodedVisits(persons, visits, owner, when, births, deaths, numbers, parts)


def _levels(domain: Domain, rows: int, rng: np.random.Generator) -> npt.NDArray[np.uint16]:
    drawn = [rng.integers(0, size, rows) for size in domain.sizes]
    return np.array(drawn, np.uint16).reshape(len(domain), rows).T


def _dates(lower: float, upper: float, count: int) -> Floats:
    return np.floor(np.linspace(lower, upper, count))


def one_person(
    frame: VisitFrame, visits: int, *, spread: int | None = None, step: float | None = None
) -> CodedVisits:
    """A person of the last levels, with so many visits of them, each `step` after the other: by
    default the least gap. `spread` seeds levels and dates instead.
    """
    rng = np.random.default_rng(spread)
    drawn = random_persons(frame, 1, rng)
    step = float(frame.step) if step is None else step
    when = frame.until - step * np.arange(visits, dtype=np.float64)
    own, theirs = frame.added
    highest = [np.array([d.sizes], np.uint16) - 1 for d in (frame.columns, frame.of_visits)]
    person, visit = highest[0].astype(np.uint16), highest[1].astype(np.uint16)
    happened = np.repeat(visit, visits, axis=0)
    if spread is not None:
        person, when = drawn.persons, _dates(frame.order.lower, frame.until, visits)
        happened = _levels(frame.of_visits, visits, rng)
    return CodedVisits(
        person,
        happened,
        np.zeros(visits, np.int64),
        np.maximum(when, frame.order.lower),
        drawn.births,
        drawn.deaths,
        drawn.of_persons if spread is not None else np.array([[c.upper for c in own]]),
        np.full((visits, len(theirs)), SETTINGS.parts, np.int32),
    )


def canaries(frame: VisitFrame) -> dict[str, CodedVisits]:
    """Both canaries, with as many visits as are kept."""
    return {ALIKE: one_person(frame, frame.most), SPREAD: one_person(frame, frame.most, spread=1)}


def together(parts: Sequence[CodedVisits]) -> CodedVisits:
    """The persons of all parts, in their order."""
    starts = np.cumsum([0, *(len(part.persons) for part in parts)])
    owner = np.concatenate([p.owner + start for p, start in zip(parts, starts, strict=False)])
    names = ("persons", "visits", "when", "births", "deaths", "of_persons", "of_visits")
    found = {name: [getattr(part, name) for part in parts] for name in names}
    joined: Any = {n: None if own[0] is None else np.concatenate(own) for n, own in found.items()}
    return replace(parts[0], owner=owner, **joined)


def read(frame: VisitFrame, persons: CodedVisits, *, held_out: int = 0) -> LinkedTable:
    """Made-up persons as the kernel reads them, the last `held_out` of them held out."""
    count = len(persons.persons)
    out: npt.NDArray[np.bool_] = np.arange(count) >= count - held_out
    return in_views(views_of(frame, persons), out, {})


@dataclass(frozen=True, eq=False)
class PersonPair(Pair):
    """Two linked tables that differ by one person, whose rows in other views are no unit's."""

    tables: tuple[LinkedTable, ...] = ()

    def sides(self, domain: Domain) -> tuple[Side, Side]:
        """Both tables as mechanisms get them."""
        fitted = (np.arange((~table.held_out).sum()) for table in self.tables)
        first, second = map(Side, self.tables, fitted)
        return first, second


def person_neighbours(
    frame: VisitFrame, *, adjacency: Adjacency = "add_remove", random_pairs: int = 0
) -> Iterator[PersonPair]:
    """Corner cases of a person among others, then `random_pairs` more, and persons who are held
    out; every second pair removes the person. Under `replace_one` another one takes the place.
    """
    rng, most = np.random.default_rng(1), frame.most
    alike, spread = canaries(frame).values()
    units = {
        ALIKE: alike,
        SPREAD: spread,
        "visits beyond those that are kept": one_person(frame, 2 * most),
        "all visits at one time": one_person(frame, most, step=0.0),
        "one visit": one_person(frame, 1),
        "no visit": one_person(frame, 0),
    }
    crowds = {
        "nobody": random_persons(frame, 0, rng),
        "a twin": alike,
        "30 others": random_persons(frame, 30, rng),
    }
    cases = [(f"{u} beside {c}", crowds[c], units[u]) for c in crowds for u in units]
    cases += [
        (f"random pair {n}", random_persons(frame, int(rng.integers(0, 40)), rng), unit)
        for n in range(random_pairs)
        for unit in [random_persons(frame, 1, rng)]
    ]
    other = one_person(frame, most, spread=2)
    for number, (name, crowd, unit) in enumerate(cases):
        place = int(rng.integers(0, 2))
        sides = [crowd, together([unit, crowd] if place else [crowd, unit])]
        if adjacency == "replace_one":
            sides[0] = together([other, crowd] if place else [crowd, other])
        first, second = (read(frame, side) for side in sides[:: 1 if number % 2 == 0 else -1])
        own = first.codes[:1] if len(first.codes) else second.codes[:1]
        yield PersonPair(name, first.codes, own[:0], own, 0, tables=(first, second))
    crowd = crowds["30 others"]
    for unit in (alike, spread):
        both = read(frame, crowd), read(frame, together([crowd, unit]), held_out=1)
        own = both[1].codes[-1:]
        name = "a person who is held out"
        yield PersonPair(name, both[0].codes, own[:0], own, 0, held_out=True, tables=both)


@dataclass(frozen=True)
class PersonRows:
    """Two linked tables as one array of rows, of the views that a plan looks at."""

    frame: VisitFrame
    plan: ReleasePlan

    @cached_property
    def domains(self) -> dict[str, Domain]:
        """The columns of each view, that of persons first."""
        used = {look.view for look in self.plan.linked.values()}
        return {name: domain for name, domain in self.frame.views.items() if name in used}

    @cached_property
    def public(self) -> Public:
        """Levels of each column, and one for rows of other views."""
        every = self.domains.values()
        sizes = [size + 1 for domain in every for size in domain.sizes]
        return Public(tuple(sizes), tuple(map(len, every)))

    def of(self, table: LinkedTable) -> tuple[Codes, npt.NDArray[np.int64]]:
        """All rows `[rows, columns]`, and the person of each."""
        rows, persons = [], []
        for name, own in zip(self.domains, self.public.columns, strict=True):
            view = table.views[name]
            part = np.tile(np.array(self.public.sizes) - 1, (len(view.fit_codes), 1))
            part[:, own] = view.fit_codes
            rows.append(part)
            owners = view.fit_units
            assert owners is not None
            persons.append(owners)
        return np.concatenate(rows), np.concatenate(persons)

    def table(self, rows: Codes) -> LinkedTable:
        """The tables of all rows, whosever they are: none is asked for by person."""
        codes = {}
        for name, own in zip(self.domains, self.public.columns, strict=True):
            there = rows[:, own[0]] < self.public.sizes[own[0]] - 1
            codes[name] = rows[there][:, own].astype(np.uint16)
        owners = {name: np.arange(len(own)) for name, own in codes.items()}
        return in_views(Views(codes, owners), np.zeros(len(rows), bool), {})

    def counts(self, tables: Mapping[str, tuple[NoisyTable, ...]]) -> list[NoisyCounts]:
        """Released tables, by purpose, with the positions of their columns."""
        starts = dict(zip(self.domains, (own[0] for own in self.public.columns), strict=True))
        found = []
        for purpose, own in tables.items():
            view = self.plan.linked[purpose].view
            for table in with_positions(own, self.domains[view]):
                places = tuple(int(starts[view]) + place for place in table.columns)
                groups = tuple(np.append(of, of.max() + 1) for of in table.group_of)
                found.append(replace(table, columns=places, group_of=groups))
        return found


@dataclass(frozen=True)
class LinkedShadow:
    """Shadow releases of linked tables: what both tables show, and the noisy ones behind them."""

    spec: LinkedSpec
    plan: ReleasePlan

    @cached_property
    def rows(self) -> PersonRows:
        """How rows of both tables are one array."""
        return PersonRows(VisitFrame.from_spec(self.spec), self.plan)

    @property
    def public(self) -> Public:
        return self.rows.public

    @property
    def identity(self) -> str:
        spends = [(s.purpose, event_to_json(s.mechanism.event(1))) for s in self.plan.spends]
        told = self.spec.model_dump_json(exclude={"compute", "tracking"})
        return f"shadow releases of persons {told} {json.dumps(spends)}"

    def __call__(self, rows: Codes, *, seed_sequence: np.random.SeedSequence) -> WhiteBox:
        """Release the persons of `rows`; noise has no seed here either."""
        spec, frame = self.spec, self.rows.frame
        rng = np.random.default_rng(seed_sequence)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rehearsal = Rehearsal.of(self.rows.table(rows), self.plan)
            fitted = fit(rehearsal, spec, frame, rng=rng)
            drawn = drawn_persons(spec, fitted.model.value, persons_of(spec), rng)
            seen, _ = self.rows.of(drawn)
        noisy = self.rows.counts(fitted.tables.value)
        return WhiteBox(seen, {"tables": table_score(noisy)})


def drawn_persons(
    spec: LinkedSpec, model: VisitModel, persons: int, rng: np.random.Generator
) -> LinkedTable:
    """New persons of a model, written and read as the kernel reads real ones."""
    data, frame = spec.dataset, model.frame
    people, visits = written(
        frame, trajectories(model, persons, rng=rng), key=data.persons.key, rng=rng
    )
    visits = visits.rename(columns={data.persons.key: data.visits.key})
    texts = [f.astype(object).where(f.notna() & (f != ""), None) for f in (people, visits)]
    made = dict(zip((data.persons_name, data.visits_name), texts, strict=True))
    columns = {name: Domain.from_spec(own) for name, own in spec.columns.items()}
    return fit_linked(spec, frame, made, columns, {}, holdout=0.0, rng=rng)


@dataclass(frozen=True)
class LinkedMeasurer:
    """Every noisy table of a release, measured anew on any persons, over single levels, or even
    groups in an effect's: however levels are grouped, a person moves as many rows. Mode predict
    counts arrows chosen here.
    """

    spec: LinkedSpec
    rows: PersonRows

    @cached_property
    def looks(self) -> dict[str, OnView[NoisyMarginals] | ChosenOnView]:
        """The planned looks, with their tables."""
        spec, frame = self.spec, self.rows.frame
        tables, found = stand_in_pairs(spec, frame), dict[str, Any]()
        paid = {purpose: look for purpose, _, look in estimand_looks(spec, frame)}
        for purpose, look in self.rows.plan.linked.items():
            found[purpose], domain = look, look.domain
            if isinstance(look.inner, AdaptiveMarginals):
                groups = LevelGroups(domain, {})
                if purpose in paid:
                    even = {
                        bare(frame, c.name): (c, np.full(c.levels, 1 / c.levels))
                        for c in domain.columns
                    }
                    groups = look_groups(domain, frame, paid[purpose], even)
                found[purpose] = look.choose(tables[purpose], groups)
        return found

    def __call__(self, rows: Codes) -> list[NoisyCounts]:
        rehearsal = Rehearsal.of(self.rows.table(rows), self.rows.plan)
        seen = {p: rehearsal.release(look, purpose=p).value for p, look in self.looks.items()}
        return self.rows.counts(seen)


# --- membership of a person ---


def shadow_linked(spec: LinkedSpec) -> LinkedSpec:
    """The release's spec at the size of a shadow release: the same plan, for fewer persons."""
    persons, data = spec.attacks.membership.rows, spec.dataset
    rows = DeclaredRows(kind="public", value=persons)
    tables = {data.persons_name: data.persons.model_copy(update={"rows": rows})}
    return spec.model_copy(
        update={
            "dataset": data.model_copy(update={"tables": {**data.tables, **tables}}),
            "sampling": spec.sampling.model_copy(update={"persons": persons}),
        }
    )


def attack_persons(
    table: LinkedTable, spec: LinkedSpec, *, folder: Path, progress: Advance
) -> MembershipReport:
    """Membership inference against the release of a spec, on a random part of its persons.

    The target is the most isolated of them, with all visits. The black box, the noisy tables of
    whole releases and those alone are declared beforehand, and share the 5% error probability;
    `folder`, `progress` and errors are as in `attack_rows`.
    """
    shadow = shadow_linked(spec)
    # Of all persons: noise would drown an effect among few.
    plan = plan_linked(spec, VisitFrame.from_spec(spec))
    trainer = LinkedShadow(shadow, plan)
    codes, persons = trainer.rows.of(table)

    def drawn(rng: np.random.Generator) -> Board:
        chosen = rng.permutation(np.unique(persons))[: spec.attacks.membership.rows]
        own = np.isin(persons, chosen)
        rows, units = codes[own], persons[own]
        return Board(rows, isolated_targets(rows, TARGETS, rng, units), units)

    return attack_shadows(
        trainer,
        LinkedMeasurer(shadow, trainer.rows),
        drawn,
        also=("tables", "lira_online"),
        seconds=(MEASUREMENTS, 1.0),
        unit=spec.dataset.privacy_unit.meaning,
        folder=folder,
        progress=progress,
    )


# --- replay, and canaries ---


def replay_persons(
    spec: LinkedSpec, plan: ReleasePlan, *, random_pairs: int, progress: Advance
) -> Replayed:
    """Replay every look of a plan, with tables chosen here, on tables that differ by a person."""
    frame = VisitFrame.from_spec(spec)
    measured, replays = LinkedMeasurer(spec, PersonRows(frame, plan)).looks.values(), []
    looks = [*measured, *([] if plan.moments is None else [plan.moments])]
    for number, look in enumerate(looks):
        progress(number, len(looks))
        pairs = person_neighbours(frame, adjacency=plan.adjacency, random_pairs=random_pairs)
        replays.append(replay(look, pairs, domain=Domain(()), adjacency=plan.adjacency))
    progress(len(looks), len(looks))
    return merged(replays)


@dataclass(frozen=True)
class CanaryGame:
    """A person made up, among others or not, and all noisy tables of either."""

    canary: str
    measurer: LinkedMeasurer
    outside: Codes
    inside: Codes

    @classmethod
    def of(
        cls, canary: str, spec: LinkedSpec, plan: ReleasePlan, others: LinkedTable
    ) -> CanaryGame:
        """The game of one of `canaries` among `others`."""
        rows = PersonRows(VisitFrame.from_spec(spec), plan)
        codes, persons = rows.of(others)
        added, _ = rows.of(read(rows.frame, canaries(rows.frame)[canary]))
        number = int(persons.max(initial=0)) + 1
        every = np.concatenate([codes, added])
        units = np.concatenate([persons, np.full(len(added), number)])
        worlds = two_worlds(every, number, plan.adjacency, units)
        return cls(canary, LinkedMeasurer(spec, rows), *worlds)

    @property
    def claim(self) -> Claim:
        """What the plan promises of a person who is not held out, which the game knows."""
        plan = self.measurer.rows.plan
        if plan.holdout:
            plan = replace(plan, holdout=0.0)
            plan = replace(plan, epsilon=plan.epsilon_spent)
        return Claim(plan.epsilon, plan.delta, plan.profile)

    @cached_property
    def separation(self) -> float:
        """How far the worlds are apart, in standard deviations of the noise of all tables.

        [The log-likelihood ratio of the expected tables of the one world is half its square; at a
        millionth of the noise these are the tables.]
        """
        rows, part = self.measurer.rows, 1e-6
        quiet = rows.plan.map(lambda purpose, look: look.scaled(part))
        measurer = replace(self.measurer, rows=replace(rows, plan=quiet))
        ratio = two_worlds_ratio(self.outside, self.inside)
        return float(np.sqrt(2 * ratio(measurer(self.inside)))) * part

    def audit(self, *, releases: int = 2000, progress: Advance) -> Audit:
        """Tell the worlds apart by all noisy tables of so many releases of each."""
        claim, confidence = self.claim, shared_confidence(len(canaries(self.measurer.rows.frame)))
        verdict = attack_tables(
            *(self.measurer, self.outside, self.inside),
            releases=releases,
            claim=claim,
            confidence=confidence,
            progress=progress,
        )
        return Audit(
            mechanism="all looks at both tables",
            method=f"noisy tables, a person more: {self.canary}",
            unit_rows=1,
            runs=2 * releases,
            epsilon=claim.epsilon,
            delta=claim.delta,
            epsilon_lower=verdict.epsilon_lower,
            epsilon_provable=provable_epsilon(releases, delta=claim.delta, confidence=confidence),
            fault=HALF_NOISE,
            power=self.power(releases),
            refuted=verdict.refutes_claim,
        )

    def power(self, releases: int, *, noise: float = 0.5, repeats: int = 40) -> float:
        """Chance of an alarm if the noise were that part of what is planned, by simulation."""
        rng, apart = fresh_generator(), self.separation / noise
        members, alarms = np.repeat([False, True], releases), 0
        for _ in range(repeats):
            scores = (members - 0.5) * apart + rng.standard_normal(2 * releases)
            counts = Counts.at(scores, members)
            shown = judged(
                *NAME,
                GameOutcome(scores, members),
                counts,
                None,
                claim=self.claim,
                confidence=shared_confidence(len(canaries(self.measurer.rows.frame))),
            )
            alarms += shown.refutes_claim
        return alarms / repeats


# --- `synthdp audit` of a spec, or a bundle, of linked tables ---


@dataclass(frozen=True)
class LinkedAuditJob:
    """As `plan.AuditJob`; the twin of a spec is of uniform levels."""

    spec: LinkedSpec
    frame: VisitFrame
    plan: ReleasePlan
    out: Path

    @classmethod
    def of(cls, spec: LinkedSpec, out: Path) -> LinkedAuditJob:
        """The audit of a spec's plan."""
        frame = VisitFrame.from_spec(spec)
        return cls(spec, frame, plan_linked(spec, frame), out)

    def replayed(self, rows: Rows, *, pairs: int) -> AuditRecord:
        """The replay; `rows` says what the other audits will be made on."""
        with stage("replay the mechanisms"):
            replayed = replay_persons(self.spec, self.plan, random_pairs=pairs, progress=advance)
        return record_of(self.plan, rows, replayed)

    def on_twin(self, record: AuditRecord, kept: AttackFolder, bundle: Path | None) -> AuditRecord:
        """With the audits that need persons, on those of a bundle's model, if there is one."""
        persons, rng = self.spec.attacks.membership.rows, kept.coins("twin")
        if bundle is None:
            twin = read(self.frame, random_persons(self.frame, persons, rng))
        else:
            model = checked_linked(bundle, MODEL_FILES).model
            twin = drawn_persons(self.spec, model, persons, rng)
        return self._with_persons(record, kept, twin)

    def on_real(
        self, record: AuditRecord, kept: AttackFolder, folder: Path, given: Any
    ) -> AuditRecord:
        """With the audits that need persons, on those of the sources, whose paths start at
        `folder`.
        """
        streams = Streams.fresh()
        private = read_linked(
            self.spec, self.frame, folder=folder, holdout=0.0, streams=streams, given=given
        )
        found: AuditRecord = at_rows(private, lambda own: self._with_persons(record, kept, own))
        return found

    def _with_persons(
        self, record: AuditRecord, kept: AttackFolder, table: LinkedTable
    ) -> AuditRecord:
        spec, settings = self.spec, self.spec.attacks.membership
        with stage("plant canaries"):
            games = [CanaryGame.of(c, spec, self.plan, table) for c in (ALIKE, SPREAD)]
            audits = tuple(confirmed(partial(g.audit, progress=advance)) for g in games)
        record = record.model_copy(update={"audits": audits})
        if not settings.enabled:
            return record
        with stage("membership attack"):
            report = attack_persons(table, spec, folder=kept.path, progress=advance)
            unit = spec.dataset.privacy_unit.meaning
            attack = attack_facts(report, pairs=settings.pairs, unit=unit)
        return record.model_copy(update={"membership": attack})
