"""A spec of persons with visits: two linked tables, in order, protected per person.

A spec whose `dataset` has `tables` is a `LinkedSpec`. What is modelled has nodes of its own
(`LinkedSpec.nodes`): dates become gaps between visits, a birth the age at the first visit.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal, cast, get_args

from annotated_types import Unit
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from synthdp.spec.expressions.parsed import Node as Node
from synthdp.spec.expressions.parsed import parse_arrow, parse_node, parse_rule
from synthdp.spec.load.wording import got, same_but_for_case
from synthdp.spec.model.columns import RESOLUTION_SECONDS, Column, Datetime, Integer
from synthdp.spec.model.dataset import (
    OUT_OF_DOMAIN,
    PUBLICATION,
    Compute,
    CsvSource,
    DataFrameSource,
    DeclaredRows,
    Described,
    OutOfDomain,
    ParquetSource,
    Publication,
    Signing,
    SqlSource,
    Tracking,
)
from synthdp.spec.model.evaluation import Attacks, Clip, Gate, MembershipAttack
from synthdp.spec.model.fields import (
    AS_TEXT,
    Flag,
    Model,
    Name,
    Real,
    Slug,
    Whole,
    key,
    unique,
    wrong,
)
from synthdp.spec.model.graph import CAP, LEDGER, Budget, Cap, Part, Parts

NOT_COVERED = (
    "one table of persons and one table of their visits are covered; grandchildren (visits of"
    " visits), several child tables and many-to-many links are not"
)
CLOCKS = ("number", "calendar", "age")
"""What dates and the order of visits tell: causes, and effects of nothing."""
STEPS = ("end", "gap")
"""What is drawn beside the columns of a visit: what comes after it, and the time before it."""

PERSON = "person"
ONE_STEP = {
    *(("", ""), ("", "[+1]"), ("[1]", "[1]"), ("[1]", "[2]"), ("[2]", "[2]")),
    *((PERSON, PERSON), (PERSON, ""), (PERSON, "[1]"), (PERSON, "[2]")),
}
"""Where a treatment and an outcome may be: one step apart at most."""

ARROW = {"pattern": r"^.*\S.*->.*\S.*$"}

LinkedSource = Annotated[
    CsvSource | ParquetSource | SqlSource | DataFrameSource, Field(discriminator="kind")
]
_RESOLUTION = re.compile(r"([1-9]\d{0,8})(?: (day|hour|minute|second)s?)?")


told = key  # two tables have a field of that name


class PersonsTable(Model):
    """A row for each person."""

    source: LinkedSource = told("where its rows lie", {"kind": "csv", "path": "persons.csv"})
    key: Name = told("the column with the persons' ids; it is never released", "person_id")
    rows: DeclaredRows = told("how many persons there are", {"kind": "public", "value": 10_000})


class Ends(Model):
    """What else than stopping ends a person's visits."""

    death: Annotated[str, AfterValidator(lambda text: str(parse_node(text)))] = told(
        "the persons' column with the date of death, missing for those who live", "persons.death"
    )


def _until(value: Any) -> Any:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    read: Any = value
    if isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\d", value):
        try:
            read = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(f"got {got(value)}, a day or an hour that does not exist") from None
    if not isinstance(read, datetime) or read.tzinfo is not None:
        message = "expected a date such as 2024-12-31 without time zone, or a whole number"
        raise ValueError(f"{message}; got {got(value)}")
    return read


class VisitsTable(Model):
    """Of each person the first `at_most` rows are kept, in order."""

    source: LinkedSource = told("where its rows lie", {"kind": "csv", "path": "visits.csv"})
    of: Name = told("the table of persons", "persons")
    key: Name = told("the column with the person's id; it is never released", "person_id")
    order: Name = told("the column that orders visits: a date, or a whole number", "date")
    at_most: Annotated[Whole, Field(ge=2, le=64), Unit("visits")] = told(
        "most visits of a person that are kept; noise grows with it",
        12,
    )
    resolution: Annotated[str, AS_TEXT] = told(
        "least time between two visits, in days, hours, minutes or seconds; of whole numbers"
        " by default 1",
        "7 days",
        default="1 day",
    )
    until: Annotated[
        datetime | int | None,
        BeforeValidator(_until),
        WithJsonSchema(
            {"anyOf": [{"type": "string", "pattern": r"^\d{4}-\d\d-\d\d"}, {"type": "integer"}]}
        ),
        Unit("that of the column"),
    ] = told(
        "end of the study; default: the upper bound of `order`",
        "2024-12-31",
        default=None,
    )
    ends: Ends | None = told(
        "what else than stopping ends a person's visits", {"death": "persons.death"}, default=None
    )
    at_least: Annotated[Whole, Field(ge=0, le=1), Unit("visits")] = told(
        "0: a person may have no visit", 0, default=1
    )

    @field_validator("resolution")
    @classmethod
    def _positive(cls, text: str) -> str:
        if not _RESOLUTION.fullmatch(text):
            message = "write a positive whole number of days, hours, minutes or seconds, e.g."
            raise ValueError(f"got {got(text)}; {message} 1 day; or one without a unit")
        return text

    def step(self, order: Column) -> int | None:
        """The resolution in steps of the column `order`; None where it has no whole ones."""
        count, unit = _RESOLUTION.fullmatch(self.resolution).groups()  # type: ignore[union-attr]
        if not isinstance(order, Datetime):
            return 1 if self.resolution == "1 day" else None if unit else int(count)
        seconds = int(count) * RESOLUTION_SECONDS[unit] if unit else 1
        return None if seconds % order.step_seconds else seconds // order.step_seconds


TABLES = {
    "persons": {
        "source": {"kind": "csv", "path": "persons.csv"},
        "key": "person_id",
        "rows": {"kind": "public", "value": 10_000},
    },
    "visits": {
        "source": {"kind": "csv", "path": "visits.csv"},
        "of": "persons",
        "key": "person_id",
        "order": "date",
        "at_most": 12,
    },
}


class PersonUnit(Model):
    """Protects a person, with all visits."""

    max_rows: ClassVar[int] = 1
    whom: ClassVar[str | None] = None

    kind: Literal["person"] = key("a person with all visits is protected", "person")
    meaning: str = key(
        "what one unit is, e.g. 'one patient with all visits'",
        "one patient with all visits",
        min_length=1,
    )


def _role(table: Any) -> str:
    """The name of a table's model: what is of another table is of its visits."""
    keys = table if isinstance(table, dict) else getattr(table, "model_fields_set", ())
    return "VisitsTable" if {"of", "order", "at_most"} & {*keys} else "PersonsTable"


LinkedTable = Annotated[
    Annotated[PersonsTable, Tag("PersonsTable")] | Annotated[VisitsTable, Tag("VisitsTable")],
    Discriminator(_role),
]


class LinkedDataset(Described):
    """Two linked tables."""

    tables: dict[Slug, LinkedTable] = key(
        "the table of persons, and that of visits, which has `of`",
        TABLES,
    )
    privacy_unit: PersonUnit = key(
        "what is protected", {"kind": "person", "meaning": "one patient with all visits"}
    )
    out_of_domain: OutOfDomain = OUT_OF_DOMAIN

    @field_validator("tables")
    @classmethod
    def _two(cls, tables: dict[str, PersonsTable | VisitsTable]) -> dict[str, Any]:
        children = [name for name, table in tables.items() if isinstance(table, VisitsTable)]
        if len(children) != 1 or len(tables) != 2:
            found = f"{len(tables) - len(children)} without `of` and {len(children)} with it"
            raise ValueError(f"got {found}; {NOT_COVERED}")
        if same_but_for_case(tables):
            raise ValueError("the tables' names differ in upper and lower case alone; rename one")
        return tables

    @property
    def persons_name(self) -> str:
        return next(n for n, table in self.tables.items() if isinstance(table, PersonsTable))

    @property
    def visits_name(self) -> str:
        return next(n for n, table in self.tables.items() if isinstance(table, VisitsTable))

    @property
    def persons(self) -> PersonsTable:
        return next(t for t in self.tables.values() if isinstance(t, PersonsTable))

    @property
    def visits(self) -> VisitsTable:
        return next(t for t in self.tables.values() if isinstance(t, VisitsTable))


class LinkedShares(Parts):
    """Relative weights that sum to 1."""

    persons: Part = key("for tables of persons", 0.15, default=0.2)
    first: Part = key("for tables of first visits, of which each person has one", 0.15, default=0.2)
    steps: Part = key("for tables of later visits, each with the one before", 0.5, default=0.5)
    ends: Part = key(
        "for tables of what comes after a visit: the next, the last, a death", 0.1, default=0.1
    )
    estimands: Part = key("for numbers that are asked for", 0.1, default=0.0)
    moments: Part = key(
        "for sums of numbers, a person's visits together; 0.1 where shares are left out and"
        " noise allows",
        0.1,
        default=0.0,
    )


class LinkedPrivacy(Budget):
    """The guarantee per person, and how its budget is split."""

    shares: LinkedShares = key(
        "how the budget is split",
        {"persons": 0.15, "first": 0.15, "steps": 0.5, "ends": 0.1, "estimands": 0.1},
        default=LinkedShares(),
    )
    cap: Cap | None = CAP
    ledger: str | None = LEDGER


def _read_by(parse: Callable[[Any], object]) -> Callable[[Any], Any]:
    """What checks that a value is read by `parse`, and leaves it as it is written."""
    return lambda given: (parse(given), given)[1]


def _target(text: str) -> str:
    if parse_node(text).lag not in (0, -1) or parse_node(text).number:
        raise ValueError(f"got {got(text)}; write visits[+1].column: a column of the next visit")
    return text


ArrowText = Annotated[str, AfterValidator(_read_by(parse_arrow)), Field(json_schema_extra=ARROW)]


class LinkedGraph(Model):
    """What is known of the causes, at a visit and from the visit before."""

    mode: Literal["given", "predict", "none"] = key(
        "as in a spec of one table",
        "predict",
        default="given",
    )
    edges: Annotated[tuple[ArrowText, ...], AfterValidator(unique)] = key(
        "visits.x is at the same visit, visits[-1].x at the one before, visits[1].x at the"
        " first; also causes visits.number, visits.calendar, visits.age, visits[-1].gap, and"
        " effects visits.gap, visits.end",
        ["visits[-1].stage, persons.sex -> visits.stage", "visits.stage -> visits.end"],
        default=(),
    )

    def arrows(self, spec: LinkedSpec) -> dict[Node, tuple[Node, ...]]:
        """The causes of every node of a checked spec, in the order written, none where none are.

        Causes of a first visit that belong to it are without a number, as those of any visit are. A
        column without arrows of its own to its first visit has those to any visit, without what
        is of the visit before, and without the visit's number.
        """
        given = dict[Node, dict[Node, None]]()
        for causes, effects in map(parse_arrow, self.edges):
            for effect in effects:
                own = given.setdefault(effect, {})
                own.update((replace(c, number=None) if effect.number else c, None) for c in causes)
        visits = spec.dataset.visits_name
        for node in spec.nodes():
            if node.number and node not in given:
                number = Node(visits, "number")
                template = given.get(replace(node, number=None), {})
                given[node] = {c: None for c in template if not c.lag and c != number}
        return {node: tuple(given.get(node, ())) for node in spec.nodes()}


@dataclass(frozen=True)
class LinkedRule:
    """What holds in every person that is written; `column` is of the persons for birth and death,
    of the visits for all others."""

    kind: Literal["birth", "death", "nondecreasing", "nonincreasing", "once"]
    column: str


RuleText = Annotated[
    str | dict[str, str],
    BeforeValidator(_read_by(parse_rule), json_schema_input_type=str | dict[str, str]),
]


class LinkedEvaluation(Model):
    """Judging on real persons, for the steward."""

    enabled: Flag = key("whether to judge at all", False, default=True)
    holdout: Annotated[Real, Field(ge=0, lt=0.9), Unit("probability")] = key(
        "chance of a person to be kept out of every look",
        0.1,
        default=0.0,
    )
    targets: Annotated[
        tuple[Annotated[str, AfterValidator(_target)], ...], AfterValidator(unique)
    ] = key(
        "columns of the next visit that are predicted",
        ["visits[+1].admitted"],
        default=(),
    )

    @property
    def held_out(self) -> float:
        """The chance of each person to be kept out: none is where nothing is judged."""
        return self.holdout if self.enabled else 0.0


VisitMetric = Literal["tv_persons_dp", "tv_counts_dp", "tv_first_dp", "tv_last_dp", "tv_steps_dp"]
VISIT_SCORES: tuple[VisitMetric, ...] = get_args(VisitMetric)
"""Distances of a release to the real tables, as noisy tables bound them: of persons' columns, of
how many visits there are, of columns of first and of last visits, and from visit to visit."""


class LinkedGate(Gate):
    """A bound for the upper end of a score's interval, or the bundle is withheld."""

    metric: VisitMetric = key(  # type: ignore[assignment]
        "the bounded distance, by its upper end",
        "tv_persons_dp",
    )

    @model_validator(mode="after")
    def _a_distance(self) -> LinkedGate:
        if self.at_most is None:
            raise wrong(("at_least", f"{self.metric} is better the lower it is; give at_most"))
        return self

    @property
    def on_dp_score(self) -> bool:
        """It is a published score, so that the gate is inside the guarantee."""
        return True


Place = Annotated[str, AfterValidator(_read_by(parse_node))]


class LinkedEffect(Model):
    """The effect of a treatment on an outcome, by a table of both and of what is adjusted for."""

    kind: Literal["effect"] = key("an effect of one step", "effect")
    treatment: Place = key(
        "the column that acts, of visits, of the first (visits[1].x), or of persons",
        "visits.drug",
    )
    outcome: Place = key(
        "visits.y at the same visit, visits[+1].y at the next one; visits[1].y or visits[2].y"
        " by number",
        "visits[+1].stage",
    )
    adjust: Annotated[tuple[Place, ...], AfterValidator(unique)] | None = key(
        "columns held fixed; default: those that the graph asks for",
        ["visits.stage", "persons.smoker"],
        default=None,
    )
    level: Annotated[str, AS_TEXT] | None = key(
        "the outcome's level whose share is told; default: true, or a number's mean",
        "3",
        default=None,
    )
    reference: Annotated[str, AS_TEXT] | None = key(
        "the treatment's level that others are compared with; default: the first",
        "0",
        default=None,
    )
    clip: Clip | None = key(
        "where an outcome's numbers end, which its own levels then count; default: in about a"
        " dozen groups",
        [100, 160],
        default=None,
    )
    steps: Annotated[Whole, Field(ge=1, le=12), Unit("visits")] = key(
        "at how many visits in a row the treatment is set, before the outcome, visits[+1].y",
        3,
        default=1,
    )


class LinkedQuestion(Model):
    """A question of `synthdp answer`, by a table of its own columns."""

    kind: Literal["question"] = key("a question", "question")
    ask: Annotated[str, Field(min_length=1, max_length=1000)] = key(
        "share(CONDITION), count(CONDITION), mean(COLUMN) or quantile(COLUMN, P), perhaps"
        " `where CONDITION`, `by COLUMN, COLUMN`",
        "share(visits.stage == '3') by visits[later].number",
    )
    clip: Clip | None = key(
        "where a mean's numbers end; default: the column's bounds", [100, 160], default=None
    )


LinkedEstimand = Annotated[LinkedEffect | LinkedQuestion, Field(discriminator="kind")]


class LinkedSampling(Model):
    """How many persons are drawn, free of charge."""

    persons: Annotated[Whole, Field(ge=1, le=2_000_000_000), Unit("persons")] | None = key(
        "persons to write; default: the declared number", 10_000, default=None
    )


class LinkedSpec(Model):
    """One release of persons with visits."""

    synthdp: Literal[1] = key("version of this contract", 1)
    dataset: LinkedDataset = key(
        "the two tables, and what of them is protected",
        {
            "id": "clinic",
            "tables": TABLES,
            "privacy_unit": {"kind": "person", "meaning": "one patient with all visits"},
        },
    )
    columns: dict[Name, Annotated[dict[Name, Column], Field(min_length=1)]] = key(
        "what each column may hold, by table and name",
        {
            "persons": {
                "sex": {"type": "categorical", "categories": ["F", "M"]},
                "birth": {"type": "datetime", "lower": "1920-01-01", "upper": "1999-12-31"},
            },
            "visits": {
                "date": {"type": "datetime", "lower": "2015-01-01", "upper": "2024-12-31"},
                "stage": {"type": "ordinal", "categories": [0, 1, 2, 3]},
            },
        },
    )
    constraints: Annotated[tuple[RuleText, ...], Field(max_length=100)] = key(
        "what holds in every synthetic person: orders, and levels that never fall, never"
        " rise, or stay once reached",
        ["persons.birth <= visits.date", {"nondecreasing": "visits.stage"}],
        default=(),
    )
    privacy: LinkedPrivacy = key(
        "the budget", {"epsilon": 1.0, "delta": 1e-5, "shares": {"steps": 0.4, "estimands": 0.1}}
    )
    graph: LinkedGraph = key(
        "what is known of the causes",
        {"mode": "given", "edges": ["visits[-1].stage, persons.sex -> visits.stage"]},
        default=LinkedGraph(mode="none"),
    )
    estimands: Annotated[tuple[LinkedEstimand, ...], Field(max_length=20)] = key(
        "effects and questions, each for an equal part of their share",
        [
            {
                "kind": "effect",
                "treatment": "persons.sex",
                "outcome": "visits[1].stage",
                "level": "3",
            }
        ],
        default=(),
    )
    evaluation: LinkedEvaluation = key(
        "how the result is judged on real persons, for the steward",
        {"targets": ["visits[+1].stage"]},
        default=LinkedEvaluation(),
    )
    sampling: LinkedSampling = key(
        "the persons that are written", {"persons": 10_000}, default=LinkedSampling()
    )
    gates: tuple[LinkedGate, ...] = key(
        "bounds that must hold or the bundle is withheld",
        [{"metric": "tv_persons_dp", "at_most": 0.1}],
        default=(),
    )
    attacks: Attacks = key(
        "attacks on the release, for the steward; none without this section",
        {"membership": {"rows": 300, "pairs": 40}},
        default=Attacks(membership=MembershipAttack(enabled=False)),
    )
    tracking: Tracking = key("where the release is logged", {"enabled": False}, default=Tracking())
    compute: Compute = key("where the work is done", {"threads": 2}, default=Compute())
    publication: Publication | None = PUBLICATION
    signing: Signing = key("who vouches for the bundle", {"required": False}, default=Signing())

    @model_validator(mode="before")
    @classmethod
    def _of_one_table(cls, given: Any) -> Any:
        refused = {
            "prior": "a prior is of one table; of linked ones nothing is shrunk yet",
            "waves": "linked tables are released without waves: the budgets of all releases add up;"
            " delete it",
        }
        for name in refused.keys() & (given if isinstance(given, dict) else {}):
            raise wrong((name, refused[name]))
        return given

    @model_validator(mode="after")
    def _columns_of_tables(self) -> LinkedSpec:
        tables = self.dataset.tables
        if strange := [name for name in self.columns if name not in tables]:
            message = f"{strange[0]!r} is no table; list columns below {' and '.join(tables)}"
            raise wrong(("columns", message))
        if lacking := [name for name in tables if name not in self.columns]:
            raise wrong(("columns", f"columns of table {lacking[0]!r} are missing"))
        return self

    def rules(self) -> tuple[LinkedRule, ...]:
        found = list[LinkedRule]()
        for kind, nodes in map(parse_rule, self.constraints):
            named: Any = kind
            if kind == "<=":
                named = "birth" if nodes[0].table == self.dataset.persons_name else "death"
            found.append(LinkedRule(named, nodes[kind == "<=" and named == "death"].column))
        return tuple(found)

    @property
    def order_column(self) -> Datetime | Integer:
        column: Any = self.columns[self.dataset.visits_name][self.dataset.visits.order]
        return cast(Datetime | Integer, column)

    @property
    def birth(self) -> str | None:
        """The persons' column that a rule says is before every visit."""
        return next((rule.column for rule in self.rules() if rule.kind == "birth"), None)

    @property
    def death(self) -> str | None:
        """The persons' column with the date of death."""
        ends = self.dataset.visits.ends
        return parse_node(ends.death).column if ends else None

    def nodes(self) -> tuple[Node, ...]:
        """What is modelled, in the spec's order: columns of persons, with `age` (at the first
        visit) in the place of a birth; columns of the first visit and of the later ones, but for
        the order; what ends visits; the gap before one; the death."""
        persons, visits = self.dataset.persons_name, self.dataset.visits_name
        of_visits = [n for n in self.columns[visits] if n != self.dataset.visits.order]
        made = [
            Node(persons, "age" if name == self.birth else name)
            for name in self.columns[persons]
            if name != self.death
        ]
        made += [Node(visits, name, number=1) for name in of_visits]
        made += [Node(visits, name) for name in (*of_visits, *STEPS)]
        return (*made, *([Node(persons, self.death)] if self.death else []))
