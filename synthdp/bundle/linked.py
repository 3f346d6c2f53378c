"""The bundle of persons with visits: two tables, what was measured by view, and the model.

What the parts for one table ask of a spec, `as_one` tells them of linked tables: a person is the
row that is protected. So ledger, certificate and signature are those of one table.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np
import pandas as pd

from synthdp.bundle.certificate import Certificate, certify
from synthdp.bundle.content import MAX_ROWS, Bundle, is_linked
from synthdp.bundle.noisy_values import MARGINALS, sums_from_json, table_from_json, tables_json
from synthdp.bundle.table_files import typed_frame
from synthdp.data.column_domain import ColumnDomain
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes, encode_column, read_values
from synthdp.data.kinds import column_kind
from synthdp.data.level_groups import LevelGroups, Starts
from synthdp.data.visits import (
    OUTER,
    PERSONS,
    SECOND,
    STEPS,
    CodedVisits,
    Floats,
    Views,
    VisitFrame,
    views_of,
)
from synthdp.errors import OutputError, VerifyError
from synthdp.evaluate.visits import Compared, VisitScore, noise_of, score_of, visit_scores
from synthdp.files import check_sums, parse_json, read_text
from synthdp.graph.level_groups import on_groups
from synthdp.model.visits.fit import Chosen, Looks, Tables, level_starts, measure
from synthdp.model.visits.laws import VisitModel, groups_of_views, load_visits
from synthdp.model.visits.planning import VisitArrows, person_sums, plan_linked
from synthdp.privacy.calibration import expected_fit_rows
from synthdp.privacy.linked import ChosenOnView, OnView
from synthdp.privacy.mechanisms.marginals import NoisyMarginals, NoisyTable
from synthdp.privacy.mechanisms.sums import NoisyProducts
from synthdp.privacy.plan import ESTIMAND, MOMENTS, ReleasePlan
from synthdp.privacy.table import Columns
from synthdp.report.prose import estimated
from synthdp.report.public.content import PairOfColumns
from synthdp.spec.load.loader import own_spec, parse_any
from synthdp.spec.load.wording import nearest
from synthdp.spec.model import (
    VISIT_SCORES,
    Column,
    Dataset,
    Evaluation,
    Graph,
    Integer,
    LinkedSpec,
    Privacy,
    ReleaseSpec,
    RowUnit,
    Sampling,
)
from synthdp.spec.model.rules import linked_engine

T = TypeVar("T")
U = TypeVar("U")
Viewed = dict[str, tuple[str, tuple[NoisyTable, ...]]]
"""The view and the noisy tables of each purpose."""

LAWS = {
    PERSONS: "persons: one row of each",
    OUTER: "first and last visits: one row of each person with visits",
    SECOND: "second visits, each with the first: one row of each person with two",
    STEPS: "visits after the first, each with the one before, all numbers together",
}
"""What the rows of each view are, in words."""


# --- the spec ---


def persons_of(spec: LinkedSpec) -> int:
    """How many persons are written."""
    return spec.sampling.persons or spec.dataset.persons.rows.value


def as_one(spec: LinkedSpec) -> ReleaseSpec:
    """What parts for one table ask of a spec: its row is the person, and its columns are all."""
    data = spec.dataset
    told = {name: getattr(data, name) for name in type(data).model_fields if name != "tables"}
    rules = list[str]()
    for rule in spec.constraints:
        rules += [rule] if isinstance(rule, str) else [f"{k}: {v}" for k, v in rule.items()]
    out = spec.evaluation.held_out
    return ReleaseSpec.model_construct(
        synthdp=1,
        dataset=Dataset.model_construct(
            **told
            | {
                "source": data.persons.source,
                "rows": data.persons.rows,
                "privacy_unit": RowUnit(kind="row", meaning=data.privacy_unit.meaning),
            }
        ),
        columns={f"{t}.{name}": c for t in data.tables for name, c in spec.columns[t].items()},
        privacy=Privacy.model_construct(
            **{
                n: getattr(spec.privacy, n)
                for n in type(spec.privacy).model_fields
                if n != "shares"
            }
        ),
        graph=Graph.model_construct(mode=spec.graph.mode),
        constraints=tuple(rules),
        evaluation=Evaluation(enabled=out > 0, holdout=out),
        sampling=Sampling(rows=persons_of(spec), rake=False),
        compute=spec.compute.model_copy(update={"engine": linked_engine(spec)}),
        **{n: getattr(spec, n) for n in ("attacks", "tracking", "publication", "signing")},
    )


def own_as_one(path: Path) -> ReleaseSpec:
    """A steward's own spec, of linked tables `as_one`; raises as `load_spec`."""
    spec = own_spec(path)
    return as_one(spec) if isinstance(spec, LinkedSpec) else spec


def written_columns(spec: LinkedSpec) -> dict[str, dict[str, Column]]:
    """The columns of both tables as they are written: the key first."""
    most, found = max(2, persons_of(spec)), {}
    for name in (spec.dataset.persons_name, spec.dataset.visits_name):
        key = Integer(
            type="integer", lower=1, upper=most, bins=1, description="the person, from 1: no id"
        )
        found[name] = {spec.dataset.tables[name].key: key, **spec.columns[name]}
    return found


def table_files(spec: LinkedSpec) -> dict[str, tuple[str, str]]:
    """The files of each table, CSV and Parquet, persons first. They have the tables' names where
    these are plain words that no other file has.
    """
    names = {spec.dataset.persons_name: "persons", spec.dataset.visits_name: "visits"}
    plain = all(re.fullmatch(r"[a-z][a-z0-9_-]{0,40}", name) for name in names)
    taken = {"synthetic", "model", "privacy"} & {*names}
    shown = {name: name if plain and not taken else other for name, other in names.items()}
    return {name: (f"{stem}.csv", f"{stem}.parquet") for name, stem in shown.items()}


# --- the certificate ---


class LinkedCertificate(Certificate):
    """The certificate of persons with visits; numbers of rows are numbers of persons.

    `tables` are the names of both, and of each person the first `at_most` visits were read.
    `sensitivities` has the most rows of a person in each planned look.
    """

    unit: Literal["person"]
    tables: tuple[str, str]
    at_most: int
    order: str
    sensitivities: tuple[tuple[str, int], ...]


def certify_linked(spec: LinkedSpec, plan: ReleasePlan, **facts: Any) -> LinkedCertificate:
    """The certificate of a run of a public spec; `facts` are as of `certificate.certify`."""
    data, made = spec.dataset, certify(as_one(spec), **facts)
    looks = tuple(
        (s.purpose, s.mechanism.rows if isinstance(s.mechanism, OnView) else 1) for s in plan.spends
    )
    return LinkedCertificate(
        **{name: getattr(made, name) for name in Certificate.model_fields}
        | {"unit": "person", "tables": (data.persons_name, data.visits_name)}
        | {"at_most": data.visits.at_most, "order": data.visits.order, "sensitivities": looks}
    )


# --- noisy tables ---


def linked_tables_json(
    tables: Tables, plan: ReleasePlan, dependent: Sequence[Columns]
) -> dict[str, Any]:
    """Noisy tables as JSON, each with the purpose that paid for it, its view, and its law; and the
    pairs that mode predict found `dependent`.
    """
    told = []
    for purpose, own in tables.items():
        look = plan.linked[purpose]
        about: dict[str, Any] = {"purpose": purpose, "view": look.view, "law": LAWS[look.view]}
        about |= {"rows_of_a_person": look.rows}
        told += [about | stated for stated in tables_json(own)["tables"]]
    return {"tables": told} | ({"dependent": [*map(list, dependent)]} if dependent else {})


# --- looks that were taken, taken again on what they gave ---


@dataclass(frozen=True)
class Given(Generic[T]):
    """A published value in the place of a `Released` one."""

    value: T

    def map(self, change: Callable[[T], U]) -> Given[U]:
        """A function of it."""
        return Given(change(self.value))

    def zip(self, other: Given[U]) -> Given[tuple[T, U]]:
        """Both."""
        return Given((self.value, other.value))


@dataclass(frozen=True)
class PublishedLooks:
    """Published tables in the place of looks at rows: what a run counted next, and with what noise,
    follows from the spec and from these.
    """

    plan: ReleasePlan
    tables: Mapping[str, tuple[NoisyTable, ...]]

    def release(
        self, mechanism: OnView[NoisyMarginals] | ChosenOnView, *, purpose: str
    ) -> Given[tuple[NoisyTable, ...]]:
        """The tables of a purpose.

        Raises:
            VerifyError: they are not those that the mechanism makes.
        """
        known, asked = self.tables.get(purpose, ()), [*_tables_of(mechanism)]
        if [t.columns for t in known] != [columns for columns, *_ in asked]:
            raise VerifyError(f"{MARGINALS}: {purpose}: its tables are not those of the spec")
        for table, (columns, sigma, groups, shape) in zip(known, asked, strict=True):
            name = f"{MARGINALS}: {purpose}: table {', '.join(columns)}"
            if {n: tuple(s) for n, s in table.starts.items()} != groups:
                raise VerifyError(f"{name}: groups levels otherwise than the tables of levels do")
            if table.counts.shape != shape:
                raise VerifyError(f"{name}: its shape is not that of its levels")
            if not np.isfinite(table.counts).all() or (table.counts % 1).any():
                raise VerifyError(f"{name}: a count is not whole, as noisy counts are")
            if not math.isclose(table.sigma, sigma, rel_tol=1e-6):
                raise VerifyError(f"{name}: states other noise than the plan gives it")
        return Given(known)


def _tables_of(mechanism: Any) -> Iterator[Any]:
    """Of each table that a look makes its columns, noise, groups of levels, and shape."""
    chosen = isinstance(mechanism, ChosenOnView)
    look, own = (mechanism.budget, mechanism.chosen) if chosen else (mechanism, mechanism.inner)
    starts: Mapping[str, Starts] = getattr(own, "starts", {})
    for columns, sigma in zip(own.tables, own.sigmas, strict=True):
        groups = {n: starts[n] for n in columns if n in starts}
        coarse = LevelGroups(look.domain, groups).coarse
        yield columns, sigma, groups, tuple(coarse[n].levels for n in columns)


@dataclass(frozen=True)
class Foreseen:
    """Tables of even counts in the place of looks at rows, of which noise and shape are known."""

    plan: ReleasePlan
    rows: Mapping[str, float]

    def release(
        self, mechanism: OnView[NoisyMarginals] | ChosenOnView, *, purpose: str
    ) -> Given[tuple[NoisyTable, ...]]:
        """The tables that the mechanism makes."""
        look = mechanism.budget if isinstance(mechanism, ChosenOnView) else mechanism
        found = []
        for columns, sigma, groups, shape in _tables_of(mechanism):
            even = np.full(shape, self.rows[look.view] / math.prod(shape))
            found.append(NoisyTable(columns, even, sigma, groups))
        return Given(tuple(found))


def foreseen(spec: LinkedSpec, plan: ReleasePlan) -> Tables:
    """Even tables of the looks whose tables are known before any row is read, by purpose."""
    frame = VisitFrame.from_spec(spec)
    looks: Any = Foreseen(plan, _expected_rows(spec, frame))
    if spec.graph.mode != "predict":
        seen, _ = measure(looks, spec, frame)
        return seen.value
    known = Looks(looks, spec, frame)
    known.estimands()
    return known.seen.value


def _expected_rows(spec: LinkedSpec, frame: VisitFrame) -> dict[str, float]:
    """Rows of each view: of as many persons as are declared, each with half of the steps."""
    persons = float(expected_fit_rows(as_one(spec)))
    return {n: persons * (frame.most - 1) / 2 if n == STEPS else persons for n in frame.views}


def expected_noise(spec: LinkedSpec, plan: ReleasePlan) -> dict[str, float]:
    """What noise alone is expected to make of each score, before any row is read.

    In mode predict, which chooses what it counts, nothing is said of steps.
    """
    frame = VisitFrame.from_spec(spec)
    rows = _expected_rows(spec, frame)
    groups: dict[str, list[tuple[int, float]]] = {}
    for purpose, tables in foreseen(spec, plan).items():
        if spec.graph.mode == "predict" and purpose.startswith(ESTIMAND):
            continue
        look = plan.linked[purpose]
        for table in tables:
            name = score_of(frame, look.view, table.columns)
            groups.setdefault(name or "", []).append((table.counts.size, table.sigma))
    return {
        name: min(1.0, noise_of(groups[name], rows[STEPS if name == "tv_steps_dp" else PERSONS])[0])
        for name in VISIT_SCORES
        if name in groups
    }


# --- what a bundle states ---


class CountedView(NamedTuple):
    """The columns of a view, noisy tables of them, and levels of synthetic rows."""

    domain: Domain
    tables: Sequence[NoisyTable]
    codes: Codes


@dataclass(frozen=True)
class LinkedBundle(Bundle):
    """What the bundle of persons with visits in `folder` states; `spec` is `as_one` of `linked`."""

    linked: LinkedSpec

    @classmethod
    def stated(cls, folder: Path) -> LinkedBundle:
        """What a bundle states, unverified; raises as `Bundle.stated`."""
        spec = parse_any(read_text(folder / "spec.yaml"), path="spec.yaml")
        if not isinstance(spec, LinkedSpec):
            raise ValueError("a spec of one table")
        facts = parse_json(read_text(folder / "privacy/certificate.json"))
        day = str(parse_json(read_text(folder / "privacy/ledger.json"))["entries"][-1]["at"])[:10]
        return cls(folder, as_one(spec), LinkedCertificate.model_validate(facts), day, spec)

    @property
    def published(self) -> LinkedSpec:
        """The spec as it was written."""
        return self.linked

    @cached_property
    def frame(self) -> VisitFrame:
        """The public frame of both tables."""
        return VisitFrame.from_spec(self.linked)

    @cached_property
    def looks(self) -> Viewed:
        """The view and the noisy tables of `marginals.json`, by purpose."""
        found = Viewed()
        for one in self.json(MARGINALS)["tables"]:
            _, known = found.get(one["purpose"], ("", ()))
            found[one["purpose"]] = one["view"], (*known, table_from_json(one))
        return found

    @cached_property
    def measured(self) -> dict[str, tuple[NoisyTable, ...]]:
        """The noisy tables by purpose."""
        return {purpose: own for purpose, (_, own) in self.looks.items()}

    @cached_property
    def moments(self) -> NoisyProducts | None:
        """The noisy sums of `marginals.json`, if numbers are added up."""
        if not self.frame.summed:
            return None
        found = sums_from_json(self.json(MARGINALS)[MOMENTS], person_sums(self.frame))
        assert isinstance(found, NoisyProducts)
        return replace(found, sigma=float(self.json(MARGINALS)[MOMENTS]["sigma"]))

    @cached_property
    def groups(self) -> dict[str, LevelGroups]:
        """The groups of levels that pairs were counted on, by view."""
        return groups_of_views(self.frame, self.starts)

    @cached_property
    def chosen(self) -> Chosen:
        """What it states that was chosen."""
        pairs = self.json(MARGINALS).get("dependent", ())
        return Chosen(self.measured, tuple((str(a), str(b)) for a, b in pairs))

    @cached_property
    def starts(self) -> dict[str, Starts]:
        """The groups of the levels of fine columns, by their names in their table."""
        return level_starts(self.frame, self.measured, self.chosen.starts())

    def counted(self, view: str) -> CountedView:
        """A view on the groups of levels that its pairs were counted on."""
        groups = self.groups[view]
        tables = [on_groups(table, groups) for table in self.of_view(view)]
        return CountedView(groups.coarse, tables, groups.of(self.views.codes[view]))

    def pair(self, first: str, second: str) -> PairOfColumns:
        """Two columns of one view: of that which counted them together, where there is one.

        Raises:
            OutputError: no view has both.
        """
        views = [v for v, d in self.frame.views.items() if {first, second} <= {*d.names}]
        if not views:
            known = sorted({n for d in self.frame.views.values() for n in d.names})
            near = next(
                (m for n in (first, second) if n not in known if (m := nearest(n, known))), ""
            )
            hint = near or f"name two columns of the same person and visits: {', '.join(known)}"
            raise OutputError(f"there is no pair of {first!r} and {second!r}", hint=hint)
        found = (v for v in views if any({first, second} <= {*t.columns} for t in self.of_view(v)))
        view = next(found, views[0])
        told = PairOfColumns.of(self.counted(view), first, second)
        return replace(told, about=f"{told.about}; rows are {LAWS[view]}")

    def of_view(self, view: str) -> tuple[NoisyTable, ...]:
        """The noisy tables of the rows of a view."""
        return tuple(t for of, own in self.looks.values() if of == view for t in own)

    @cached_property
    def arrows(self) -> VisitArrows:
        """The arrows of the spec, or those that the published tables show.

        Raises:
            VerifyError: the tables are not those that the spec's looks make.
        """
        looks: Any = PublishedLooks(plan_linked(self.linked, self.frame), self.measured)
        seen, arrows = measure(looks, self.linked, self.frame, self.chosen)
        if seen.value.keys() != self.measured.keys():
            raise VerifyError(f"{MARGINALS}: has tables of a look that the spec does not make")
        if self.chosen.dependent != arrows.dependent:
            other = {*self.chosen.dependent} ^ {*arrows.dependent}
            names = " and ".join(min(other, default=("the pairs",)))
            raise VerifyError(f"{MARGINALS}: whether {names} depend is not as its tables show it")
        return arrows

    @cached_property
    def model(self) -> VisitModel:
        """The model.

        Raises:
            VerifyError: it is damaged.
        """
        return load_visits(self.folder, self.frame)

    @cached_property
    def views(self) -> Views:
        """Levels of the first `MAX_ROWS` persons, by view, as real ones are read."""
        frame, data = self.frame, self.linked.dataset
        read: dict[str, pd.DataFrame] = {}
        for name, (csv, _) in table_files(self.linked).items():
            most = MAX_ROWS * (frame.most if name == data.visits_name else 1)
            read[name] = pd.read_csv(
                self.folder / csv, nrows=most, dtype=str, keep_default_na=False, na_filter=False
            )
        persons, visits = read[data.persons_name], read[data.visits_name]
        owner = visits[data.visits.key].to_numpy(np.int64) - 1
        visits, owner = visits[owner < len(persons)], owner[owner < len(persons)]
        when = _dates(visits, frame.order)
        assert when is not None
        births, deaths = _dates(persons, frame.birth), _dates(persons, frame.death)
        coded = _codes(persons, frame.columns), _codes(visits, frame.of_visits)
        return views_of(frame, CodedVisits(*coded, owner, when, births, deaths))

    @cached_property
    def compared(self) -> tuple[tuple[str, Compared], ...]:
        """Each noisy table beside the synthetic one, with its purpose."""
        found = []
        for purpose, (view, tables) in self.looks.items():
            for table in tables:
                groups = LevelGroups(self.frame.views[view], table.starts)
                coarse, own = groups.of(self.views.codes[view]), groups.coarse
                cells = np.zeros(len(coarse), np.int64)
                for name in table.columns:
                    cells = cells * own[name].levels + coarse[:, own.index(name)]
                drawn = np.bincount(cells, minlength=table.counts.size).astype(np.float64)
                labels = tuple(own[name].labels for name in table.columns)
                shaped = drawn.reshape(table.counts.shape)
                told = Compared(view, table.columns, labels, table.counts, shaped, table.sigma)
                found.append((purpose, told))
        return tuple(found)

    @cached_property
    def scores(self) -> tuple[VisitScore, ...]:
        """How far it is from the real tables, by its noisy ones."""
        return visit_scores(self.frame, [table for _, table in self.compared])

    @property
    def sources(self) -> list[tuple[Path, Mapping[str, Column]]]:
        """Its CSV files, each with its columns: the persons' first."""
        columns, files = written_columns(self.linked), table_files(self.linked)
        return [(self.folder / csv, columns[name]) for name, (csv, _) in files.items()]

    @property
    def gates_told(self) -> tuple[str, ...]:
        """Its gates in words, each with the interval whose upper end it is held against."""
        known = {s.name: s for s in self.scores}
        return tuple(
            f"{g.metric} {g.bound}: {estimated(s.value, s.low, s.high)},"
            f" {g.outcome(s.high, (s.low, s.high))}"
            for g in self.linked.gates
            if (s := known.get(g.metric)) is not None
        )

    @cached_property
    def typed(self) -> dict[str, pd.DataFrame]:
        """Both tables with the columns' own types, by their names."""
        columns, files = written_columns(self.linked), table_files(self.linked)
        return {n: typed_frame(self.folder / files[n][0], columns[n]) for n in columns}


def _codes(table: pd.DataFrame, domain: Domain) -> Codes:
    kinds = ((c, column_kind(c).parsed(c, table[c.name])) for c in domain.columns)
    none = np.zeros((len(table), 0), np.uint16)
    return np.column_stack([none, *(encode_column(c, v).codes for c, v in kinds)])


def _dates(table: pd.DataFrame, own: ColumnDomain | None) -> Floats | None:
    if own is None:
        return None
    return read_values(own, column_kind(own).parsed(own, table[own.name])).numbers


def stated_any(folder: Path) -> Bundle:
    """What a bundle of one table or of linked ones states, unverified; raises as
    `Bundle.stated`.
    """
    return (LinkedBundle if is_linked(folder) else Bundle).stated(folder)


def checked_linked(bundle: Path, names: Sequence[str] = ()) -> LinkedBundle:
    """What a bundle states in files whose sums hold, among them `names`.

    Raises:
        VerifyError: a file was changed, or is not what it should be.
    """
    check_sums(bundle, ("spec.yaml", "privacy/certificate.json", "privacy/ledger.json", *names))
    try:
        return LinkedBundle.stated(bundle)
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        what = f"cannot read {bundle} ({type(error).__name__})"
        raise VerifyError(what, hint=f"see `synthdp verify {bundle}`") from None
