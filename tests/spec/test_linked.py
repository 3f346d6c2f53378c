"""Specs of persons with visits: what is read, and every mistake at its line.

`linked/` has the specs of two sets: `clinic`, a simulated one, and `randhie`, person-years of the
RAND Health Insurance Experiment; domains are public knowledge.
"""

import time
from datetime import datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from synthdp import Spec
from synthdp.bundle import as_one, spec_yaml
from synthdp.errors import SpecError
from synthdp.spec import (
    json_schema,
    linked_engine,
    linked_traps,
    load_spec,
    own_text,
    parse_any,
    parse_arrow,
    parse_node,
    parse_rule,
    parse_spec,
    read,
    yaml_text,
)
from synthdp.spec.expressions.parsed import Node
from synthdp.spec.model import LinkedRule, LinkedSpec, ReleaseSpec

FOLDER = Path(__file__).with_name("linked")
CLINIC = (FOLDER / "clinic.yaml").read_text(encoding="utf-8")
RANDHIE = (FOLDER / "randhie.yaml").read_text(encoding="utf-8")
GAP = "    - visits[-1].stage -> visits.gap"
WARD = "    ward: {type: categorical, categories: [gp, clinic, emergency]}"


def linked(text: str) -> LinkedSpec:
    spec = parse_any(text, path="s.yaml")
    assert isinstance(spec, LinkedSpec)
    return spec


def with_change(old: str, new: str, text: str = CLINIC) -> str:
    assert text.count(old) >= 1
    return text.replace(old, new, 1)


def mistakes(text: str) -> str:
    with pytest.raises(SpecError) as caught:
        parse_any(text, path="s.yaml")
    return str(caught.value)


def shown(spec: LinkedSpec) -> dict[str, list[str]]:
    return {str(n): [str(c) for c in causes] for n, causes in spec.graph.arrows(spec).items()}


# --- what is read ---


def test_the_clinic_is_read() -> None:
    spec = linked(CLINIC)
    dataset = spec.dataset
    assert (dataset.persons_name, dataset.visits_name) == ("persons", "visits")
    assert dataset.persons.rows.value == 10_000 and dataset.persons.key == "person_id"
    visits = dataset.visits
    assert (visits.of, visits.order, visits.at_most, visits.at_least) == ("persons", "date", 12, 1)
    assert visits.until == datetime(2024, 12, 31) and visits.step(spec.order_column) == 1
    assert dataset.privacy_unit.meaning == "one patient with all visits"
    assert dataset.privacy_unit.max_rows == 1 and dataset.privacy_unit.whom is None
    assert (spec.birth, spec.death) == ("birth", "death")
    assert spec.rules() == (LinkedRule("birth", "birth"), LinkedRule("death", "death"))
    assert spec.privacy.shares.steps == 0.6 and spec.evaluation.targets == ("visits[+1].admitted",)
    assert spec.sampling.persons is None and dataset.out_of_domain == "refuse"


def test_the_arrows_of_the_clinic() -> None:
    """A first visit has its own law, or that of any visit without what was before."""
    drawn = shown(linked(CLINIC))
    assert list(drawn) == [
        "persons.sex", "persons.age", "persons.region", "persons.smoker",
        "visits[1].stage", "visits[1].bp", "visits[1].drug", "visits[1].ward", "visits[1].admitted",
        "visits.stage", "visits.bp", "visits.drug", "visits.ward", "visits.admitted",
        "visits.end", "visits.gap", "persons.death",
    ]  # fmt: skip
    assert drawn["visits[1].stage"] == ["persons.age", "persons.smoker"]
    assert drawn["visits.stage"] == ["visits[-1].stage", "visits[-1].drug", "persons.smoker"]
    assert drawn["visits.bp"] == ["visits[-1].bp", "visits.stage", "visits[-1].drug"]
    assert drawn["visits[1].bp"] == ["visits.stage"] and drawn["visits.ward"] == []
    assert drawn["visits.end"] == ["visits.stage", "persons.age", "visits.calendar"]
    assert drawn["visits.gap"] == ["visits[-1].stage"]
    assert drawn["persons.death"] == ["visits.stage"]


def test_person_years_in_whole_numbers_are_read() -> None:
    spec = linked(RANDHIE)
    assert spec.dataset.visits_name == "years" and spec.rules() == ()
    assert spec.dataset.visits.until is None and spec.dataset.visits.step(spec.order_column) == 1
    assert (spec.birth, spec.death) == (None, None)
    drawn = shown(spec)
    assert drawn["years.mdvis"] == ["persons.coins", "persons.health", "years[-1].mdvis"]
    assert drawn["years[1].mdvis"] == ["persons.coins", "persons.health"]
    assert drawn["persons.age"] == [] and drawn["years.end"] == ["years.number"]
    assert spec.privacy.shares.model_dump() == pytest.approx(  # shares that are left out
        {
            "persons": 0.18,
            "first": 0.18,
            "steps": 0.45,
            "ends": 0.09,
            "estimands": 0,
            "moments": 0.1,
        }
    )


def test_a_number_of_the_visit_is_no_cause_at_the_first() -> None:
    edge = "    - visits.number, persons.sex -> visits.ward"
    drawn = shown(linked(with_change(GAP, f"{GAP}\n{edge}")))
    assert drawn["visits.ward"] == ["visits.number", "persons.sex"]
    assert drawn["visits[1].ward"] == ["persons.sex"]


def test_causes_at_a_first_visit_are_of_the_same_visit_with_or_without_number() -> None:
    edge = "    - visits[1].stage, visits.bp -> visits[1].ward"
    drawn = shown(linked(with_change(GAP, f"{GAP}\n{edge}")))
    assert drawn["visits[1].ward"] == ["visits.stage", "visits.bp"] and drawn["visits.ward"] == []


def test_the_gap_before_and_an_age_at_each_visit_are_causes() -> None:
    edges = "    - visits[-1].gap, visits.age -> visits.ward\n    - visits[-1].gap -> visits.gap"
    drawn = shown(linked(with_change(GAP, f"{edges}\n    - visits.number -> visits.gap")))
    assert drawn["visits.ward"] == ["visits[-1].gap", "visits.age"]
    assert drawn["visits[1].ward"] == ["visits.age"] and drawn["visits.gap"] == [
        "visits[-1].gap",
        "visits.number",
    ]


def test_an_age_that_is_declared_is_a_column_where_no_birth_is_ruled() -> None:
    text = with_change(
        "    mdvis:", "    age: {type: integer, lower: 0, upper: 70}\n    mdvis:", RANDHIE
    )
    drawn = shown(linked(text + "    - years[-1].age -> years.age\n"))
    assert drawn["years.age"] == ["years[-1].age"]


@pytest.mark.parametrize("mode", ["predict", "none"])
def test_without_arrows_every_node_has_no_causes(mode: str) -> None:
    text = CLINIC[: CLINIC.index("graph:")] + f"graph: {{mode: {mode}}}\n"
    drawn = shown(linked(text))
    assert len(drawn) == 17 and not any(drawn.values())


def test_without_a_graph_section_there_are_no_arrows() -> None:
    spec = linked(CLINIC[: CLINIC.index("graph:")])
    assert spec.graph.mode == "none"


@pytest.mark.parametrize(
    ("resolution", "steps"), [("7 days", 7), ("1 day", 1), ("48 hours", 2), ("86400 seconds", 1)]
)
def test_the_resolution_in_steps_of_the_order(resolution: str, steps: int) -> None:
    spec = linked(with_change("resolution: 1 day", f"resolution: {resolution}"))
    assert spec.dataset.visits.step(spec.order_column) == steps


def test_the_resolution_of_whole_numbers_is_one() -> None:
    spec = linked(with_change("order: year", "order: year\n      resolution: 2", RANDHIE))
    assert spec.dataset.visits.step(spec.order_column) == 2


def test_a_spec_that_is_written_is_read_again() -> None:
    for text in (CLINIC, RANDHIE):
        spec = linked(text)
        content = spec.model_dump(mode="json", exclude_none=True)
        for columns in content["columns"].values():
            for column in columns.values():
                if "edges" in column:
                    del column["bins"]
        whole = linked(yaml_text(content))
        assert whole == spec and whole.graph.arrows(whole) == spec.graph.arrows(spec)


def test_levels_that_never_fall_never_rise_or_stay() -> None:
    rules = "  - {nondecreasing: visits.stage}\n  - {once: visits.admitted}\n"
    spec = linked(with_change("privacy:", f"{rules}  - {{nonincreasing: visits.bp}}\nprivacy:"))
    assert spec.rules()[2:] == (
        LinkedRule("nondecreasing", "stage"),
        LinkedRule("once", "admitted"),
        LinkedRule("nonincreasing", "bp"),
    )


def test_ranges_that_reach_far_have_bins_on_a_log_scale() -> None:
    edges = ", edges: [0.001, 5, 10, 20, 35, 60, 100, 160, 300, 700, 2000], spikes: [0]"
    spec = linked(with_change(edges, "", RANDHIE))
    column: Any = spec.columns["years"]["meddol"]
    assert column.spikes == (0.0,) and column.edges[1] == 1.0 and column.edges[-1] > 10_000


def test_lists_of_categories_lie_in_files(tmp_path: Path) -> None:
    (tmp_path / "wards.txt").write_text("gp\nclinic\n")
    text = with_change("[gp, clinic, emergency]", "{file: wards.txt}")
    (tmp_path / "s.yaml").write_text(text)
    assert linked(own_text(tmp_path / "s.yaml")).columns["visits"]["ward"].labels == (
        "gp",
        "clinic",
    )
    (tmp_path / "wards.txt").unlink()
    with pytest.raises(SpecError, match=r"37:43: columns\.visits\.ward\.categories: the list in"):
        own_text(tmp_path / "s.yaml")


def test_a_spec_without_tables_is_read_as_before() -> None:
    text = Path(__file__).with_name("complete_spec.yaml").read_text(encoding="utf-8")
    one = parse_any(text, path="s.yaml")
    assert isinstance(one, ReleaseSpec) and one == parse_spec(text, path="s.yaml")


def test_only_who_asks_for_linked_tables_gets_them(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(CLINIC)
    told = r"s\.yaml:5:3: dataset\.tables: this is of one table, and the spec of this"
    for refuses in (
        lambda path: parse_spec(CLINIC, path=str(path)),
        load_spec,
        lambda path: Spec.load(path).content,
    ):
        with pytest.raises(SpecError, match=told):
            refuses(tmp_path / "s.yaml")


def test_the_schema_for_editors_knows_both() -> None:
    validator = jsonschema.Draft202012Validator(json_schema())

    def errors(text: str) -> list[str]:
        tree, _ = read(text)
        assert tree is not None
        return sorted(e.json_path for e in validator.iter_errors(tree.value()))

    assert errors(CLINIC) == errors(RANDHIE) == []
    assert errors(with_change("at_most: 12", "at_most: 1")) == ["$.dataset.tables.visits"]
    assert errors(with_change("edges:\n", "edges: [visits.x]\n  edge:\n")) != []
    assert errors(with_change("persons.birth <= visits.date", "[1]")) == ["$.constraints[0]"]


# --- nodes ---


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("visits.stage", Node("visits", "stage")),
        (" visits[-1].stage ", Node("visits", "stage", lag=1)),
        ("visits[+1].stage", Node("visits", "stage", lag=-1)),
        ("visits[12].stage", Node("visits", "stage", number=12)),
        ("visits.blood pressure", Node("visits", "blood pressure")),
        ("visits.a.b", Node("visits", "a.b")),
        ("`a.b`[2].`c, d -> e`", Node("a.b", "c, d -> e", number=2)),
        ("`a``b`.c", Node("a`b", "c")),
    ],
)
def test_a_node_is_read_and_written(text: str, node: Node) -> None:
    assert parse_node(text) == node and parse_node(str(node)) == node
    assert parse_arrow(f"{node}, a.b -> {node}") == ((node, Node("a", "b")), (node,))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("stage", "'stage' names no column of a table; write table.column"),
        ("", "'' names no column"),
        ("visits.", "names no column"),
        ("[1].x", "names no column"),
        ("visits[1]x", "names no column"),
        ("visits[0].x", r"\[0\] in 'visits\[0\].x' is no visit: \[1\] is the first"),
        ("visits[-0].x", "is no visit"),
        ("visits[k].x", "is no visit"),
        ("visits[1.5].x", "is no visit"),
    ],
)
def test_what_is_no_node(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_node(text)


@pytest.mark.parametrize(
    "text", ["a.b", "a.b ->", "-> a.b", "a.b -> c.d -> e.f", "a.b,, c.d -> e.f"]
)
def test_what_is_no_arrow(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected \"cause, cause -> effect\"|names no column"):
        parse_arrow(text)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("persons.birth < visits.date", "rules are `persons.birth <= visits.date`"),
        ({"nodecreasing": "visits.x"}, "did you mean 'nondecreasing'?"),
        ({"once": "visits.x", "nondecreasing": "visits.y"}, "got a map; rules are"),
        ({"once": ["visits.x"]}, "once needs one column, such as visits.stage; got a list"),
        ({"once": "visits[-1].x"}, "a rule holds at every visit; write visits.x"),
        ("persons.birth <= visits[1].date", "a rule holds at every visit; write visits.date"),
        (3, "got 3; rules are"),
    ],
)
def test_what_is_no_rule(given: Any, told: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_rule(given)
    assert told in str(caught.value)


# --- mistakes ---

DATASET = [
    ("of: persons", "of: person", "12:11: dataset.tables.visits.of: 'person' is no table of"
     " persons; one table of persons and one table of their visits are covered; grandchildren"),
    ("      of: persons\n", "", "10:5: dataset.tables.visits.of: missing; it is required"),
    ("    visits:\n", "    drugs: {source: {kind: csv, path: d.csv}, of: visits, key: k, order: d,"
     " at_most: 3}\n    visits:\n", "5:3: dataset.tables: got 1 without `of` and 2 with it; one"
     " table of persons and one table of their visits are covered"),
    ("    visits:\n", "    PERSONS:\n", "5:3: dataset.tables: the tables' names differ in upper and"
     " lower case alone"),
    ("key: person_id\n      rows", "key: sex\n      rows", "8:12: dataset.tables.persons.key:"
     " column 'sex' is also listed under columns; an id is never modelled"),
    ("kind: csv, path: visits.csv", "kind: builtin, name: eedi", "11:22:"
     " dataset.tables.visits.source.kind: got 'builtin'; allowed: csv, parquet, sql, dataframe"),
    ("kind: csv, path: visits.csv", "kind: sql, url_env: A, query: select max(a) from v", "11:46:"
     " dataset.tables.visits.source.query: has an aggregate: one stored row could change many"),
    ("kind: csv, path: visits.csv", "kind: parquet, path: s3://b/v", "persons.source.kind: engine"
     " arrow reads both tables from Parquet, and this is csv"),
    ("kind: csv, path: visits.csv", "kind: parquet, path: v, levels_only: true", "levels_only keeps"
     " no values, and visits are put in order by them"),
    ("path: visits.csv", "path: visits.csv, drop: [bp]", "11:52: dataset.tables.visits.source.drop"
     " #1: column 'bp' is declared"),
    ("path: visits.csv", "path: ~/visits.csv", "11:33: dataset.tables.visits.source.path: an"
     " address or a home folder is not read, only a local file\n    hint: copy the file here and"
     " give its path"),
    ("path: persons.csv", "path: persons.csv, missing_values: [never]", "category 'never' also"
     " stands for a missing value (dataset.tables.persons.source.missing_values)"),
    ("order: date", "order: dat", "14:14: dataset.tables.visits.order: unknown column 'dat' of"
     " visits\n    hint: did you mean 'date'?"),
    ("order: date", "order: stage", "29:19: columns.visits.stage.type: visits are in order of a"
     " date or a whole number, and this is ordinal"),
    ("order: date\n      at_most: 12\n      resolution: 1 day", "order: bp\n      at_most: 12\n"
     "      resolution: 2 days", "16:19: dataset.tables.visits.resolution: got '2 days', and 'bp'"
     " is in whole numbers\n    hint: write a whole number without a unit"),
    ("bins: 40", "bins: 40, missing: true", "columns.visits.date.missing: a visit without a place"),
    ("at_most: 12", "at_most: 1", "15:16: dataset.tables.visits.at_most: got 1; it must be at least"
     " 2"),
    ("at_most: 12", "at_most: 65", "got 65; it must be at most 64"),
    ("at_most: 12", "at_most: 12\n      at_least: 2", "16:17: dataset.tables.visits.at_least: got"
     " 2; it must be at most 1"),
    ("resolution: 1 day", "resolution: 0 days", "16:19: dataset.tables.visits.resolution: got '0"
     " days'; write a positive whole number of days"),
    ("resolution: 1 day", "resolution: 6 hours", "got '6 hours', and 'date' is in whole days"),
    ("resolution: 1 day", "resolution: 7", "hint: write a number of days"),
    ("until: 2024-12-31", "until: 2024-13-31", "17:14: dataset.tables.visits.until: got"
     " '2024-13-31', a day or an hour that does not exist"),
    ("until: 2024-12-31", "until: 2025-12-31", "17:14: dataset.tables.visits.until: got 2025-12-31;"
     " it must be above 2015-01-01 and at most 2024-12-31, the bounds of 'date'"),
    ("until: 2024-12-31", "until: 2015-01-01", "it must be above 2015-01-01"),
    ("until: 2024-12-31", "until: 2024-12-31T12:00Z", "without time zone, or a whole number; got"
     " '2024-12-31T12:00Z'"),
    ("until: 2024-12-31", "until: 12", "got 12, and 'date' is a date"),
    ("until: 2024-12-31", "until: true", "expected a date such as 2024-12-31 without time zone, or"
     " a whole number; got true"),
    ("death: persons.death}", "death: persons.deth}", "18:21: dataset.tables.visits.ends.death:"
     " unknown column 'deth' of persons\n    hint: did you mean 'death'?"),
    ("death: persons.death}", "death: visits.date}", "got visits.date\n    hint: name a column of"
     " persons"),
    ("death: persons.death}", "death: persons.sex}", "persons.sex is categorical, and must be a"
     " date"),
    ("death: persons.death}", "death: persons.birth}", "hint: set columns.persons.birth.missing:"
     " true"),
    ("kind: person,", "kind: row,", "dataset.privacy_unit.kind: got 'row'; allowed: person"),
    ("synthdp: 1", "synthdp: 1\nrounds: []", "2:1: rounds: unknown key"),
    ("synthdp: 1", "synthdp: 1\ncompute: {engine: dask}", "2:19: compute.engine: linked tables are"
     " not counted by dask\n    hint: use arrow, which reads the same Parquet files part by part"),
]  # fmt: skip
COLUMNS = [
    ("  visits:\n    date", "  visit:\n    date", "20:1: columns: 'visit' is no table; list columns"
     " below persons and visits"),
    (WARD, "    ward: {type: date}", "37:18: columns.visits.ward.type: got 'date'; allowed:"),
    (WARD, "    ward: {type: integer, lower: 5, upper: 1}", "37:34: columns.visits.ward.lower:"
     " lower 5 must be below upper 1"),
    (WARD, "    ward: {type: categorical, categories: [a], missing_codes: [b]}", "37:63:"
     " columns.visits.ward.missing_codes: codes of missing values"),
    (WARD, "    ward: {type: integer, lower: 0, upper: 9, derived: bp + 1}", "37:56:"
     " columns.visits.ward.derived: columns of linked tables are not computed"),
    (WARD, "    ward: {type: boolean, values: {ja: yes}}", "37:40: columns.visits.ward.values.ja:"
     " 'yes' is no category of the column"),
    (WARD, "".join(f"    w{i}: {{type: integer, lower: 0, upper: 9999, bins: 1024}}\n" for i in
     range(65)), "27:3: columns.visits: all columns together have"),
    (WARD, "    '=ward': {type: boolean}", "the name starts like a spreadsheet formula"),
    ("    drug:", "    number: {type: boolean}\n    drug:", "36:13: columns.visits.number:"
     " visits.number is what arrows call something that visits themselves tell"),
    ("    sex:", "    age: {type: integer, lower: 0, upper: 9}\n    sex:", "columns.persons.age"),
]  # fmt: skip
BUDGET = [
    ("delta: 1e-5", "delta: 1e-4", "44:10: privacy.delta: got 0.0001; it must be below 1 / rows"),
    ("delta: 1e-5", "delta: 1e-5\n  adjacency: replace_one", "replace_one cannot be used where one"
     " unit has up to 12 rows"),
    ("delta: 1e-5", "delta: 1e-5\n  cap: {epsilon: 0.5, delta: 1e-5}", "above the cap of 0.5"),
    ("delta: 1e-5", "delta: 1e-5\n  ledger: ''", "privacy.ledger: an address cannot be empty"),
    ("steps: 0.6", "steps: 0.7", "45:11: privacy.shares: shares must sum to 1, got 1.1"),
    ("first: 0.15, steps: 0.6", "first: 0, steps: 0.75", "45:34: privacy.shares.first: got 0; every"
     " law needs a share"),
    ("steps: 0.6", "steps: 0.5, estimands: 0.1", "privacy.shares.estimands: got 0.1, and there are"
     " no estimands"),
]  # fmt: skip
RULES = [
    ("persons.birth <= visits.date", "persons.birth <= visits.dat", "40:5: constraints #1: got"
     " persons.birth <= visits.dat\n    hint: rules are `persons.birth <= visits.date`"),
    ("persons.birth <= visits.date", "persons.birth <= persons.death", "got persons.birth <="
     " persons.death"),
    ("persons.birth <= visits.date", "persons.sex <= visits.date", "40:5: constraints #1:"
     " persons.sex is categorical, and must be a date"),
    ("persons.birth <= visits.date", "persons.birt <= visits.date", "hint: did you mean 'birth'?"),
    ("      ends: {death: persons.death}\n", "", "40:5: constraints #2: persons.death does not end"
     " visits\n    hint: set dataset.tables.visits.ends: {death: persons.death}"),
    ("lower: 1920-01-01, upper: 1999-12-31", "lower: 2025-01-01, upper: 2026-12-31", "the bounds of"
     " persons.birth leave no person for it"),
    ("privacy:", "  - persons.birth <= visits.date\nprivacy:", "42:5: constraints #3: there is such"
     " a rule above"),
    ("privacy:", "  - {once: visits.admitted}\n  - {nonincreasing: visits.admitted}\nprivacy:",
     "43:5: constraints #4: there is such a rule above"),
    ("privacy:", "  - {nondecreasing: visits.drug}\nprivacy:", "42:5: constraints #3: visits.drug"
     " is categorical, whose levels have no order"),
    ("privacy:", "  - {once: visits.stage}\nprivacy:", "visits.stage has 4"),
    ("privacy:", "  - {once: visits.foo}\nprivacy:", "unknown column 'foo' of visits"),
    ("privacy:", "  - {once: visits.date}\nprivacy:", "once is of a column of visits beside their"
     " order, got visits.date"),
    ("privacy:", "  - {once: persons.sex}\nprivacy:", "got persons.sex"),
    ("persons.birth <= visits.date", "persons.birth < visits.date", "40:5: constraints #1: got"
     " 'persons.birth < visits.date'; rules are"),
]  # fmt: skip
ARROWS = {
    "visits[-1].stag -> visits.gap": "unknown column 'stag' of visits\n    hint: did you mean",
    "visit[-1].stage -> visits.gap": "unknown table 'visit' in visit[-1].stage\n    hint: did you",
    "visits[-2].stage -> visits.gap": "visits[-2].stage: arrows reach back to the visit before",
    "visits[-3].stage -> visits.gap": "[-1], and no further",
    "visits[+1].stage -> visits.gap": "visits[+1].stage: an arrow does not go back in time",
    "visits[2].stage -> visits.ward": "by its number only the first visit has a law of its own",
    "visits[0].stage -> visits.gap": "[0] in 'visits[0].stage' is no visit",
    "visits[1].stage -> visits.ward": "skips the visits between",
    "visits.gap -> visits.ward": "visits.gap: the gap before a visit is no cause of it yet",
    "visits.stage -> visits.gap": "goes back in time: the gap comes before the visit",
    "visits.calendar -> visits.gap": "hint: write visits[-1].calendar",
    "visits.end -> visits.ward": "visits.end: who has a visit did not stop before it",
    "visits[-1].end -> visits.ward": "visits[-1].end: who has a visit did not stop before it",
    "visits.date -> visits.ward": "the order of visits is modelled by the gaps between them",
    "persons.sex -> visits.date": "as a cause write visits.calendar or visits.number, as an effect",
    "persons.birth -> visits.ward": "persons.birth is modelled by the age at the first visit",
    "persons.death -> visits.ward": "persons.death: death comes after all visits, and is an effect",
    "visits.bp -> persons.sex": "goes from a visit back to the person\n    hint: turn it round",
    "visits[-1].bp -> persons.death": "is of another visit than the last, which death follows",
    "persons.sex -> visits.calendar": "it follows from the order of visits, and is a cause alone",
    "persons.sex -> visits[1].end": "visits[1].end: one law holds for all visits",
    "persons.sex -> visits[-1].ward": "visits[-1].ward: an effect is at any visit, or at the first",
    "persons.sex -> visits[2].ward": "visits[2].ward: an effect is at any visit, or at the first",
    "visits[-1].bp -> visits[1].ward": "has no visit before the first to come from",
    "visits.ward -> visits.ward": "leads to itself\n    hint: write visits[-1].ward",
    "persons.sex -> persons.sex": "leads to itself",
    "persons[1].sex -> visits.gap": "persons[1].sex: a person has one row of persons",
    "persons.smoker -> visits.stage": "arrow persons.smoker -> visits.stage is written twice",
    "stage -> visits.gap": "'stage' names no column of a table",
    "visits.stage, visits.gap": 'expected "cause, cause -> effect", got',
    "visits.bp -> visits.stage": "the graph has a cycle: visits.stage -> visits.bp -> visits.stage",
    "visits.bp -> visits[1].stage": "the graph has a cycle at the first visit: visits.stage ->",
}
TARGETS = {
    "visits[-1].admitted": "58:13: evaluation.targets #1: got 'visits[-1].admitted'; write visits",
    "visits[+2].admitted": "write visits[+1].column: a column of the next visit",
    "visits.admitted": "got visits.admitted\n    hint: write visits[+1].column",
    "visits[+1].admited": "unknown column 'admited' of visits\n    hint: did you mean 'admitted'?",
    "visits[+1].date": "unknown column 'date'",
    "persons.sex": "got persons.sex",
}


@pytest.mark.parametrize(("old", "new", "told"), [*DATASET, *COLUMNS, *BUDGET, *RULES])
def test_a_mistake_is_told_at_its_line(old: str, new: str, told: str) -> None:
    found = mistakes(with_change(old, new))
    assert told in found and "Parquet is read from s3" not in found


def test_engine_arrow_reads_both_tables_from_parquet() -> None:
    both = CLINIC.replace("kind: csv, path: ", "kind: parquet, path: ")
    away = both.replace("path: visits.csv", "path: v/*.parquet")
    for text, engine in ((both, "memory"), (away, "arrow"), (both + ARROW, "arrow")):
        spec = linked(text)
        assert linked_engine(spec) == as_one(spec).compute.engine == engine
    told = "source.path: in memory linked tables are read from one local file each"
    assert told in mistakes(away + ARROW.replace("arrow", "memory"))
    assert mistakes(CLINIC + ARROW).count("this is csv") == 2


ARROW = "\ncompute: {engine: arrow}\n"
ASKED = "kind: sql, url_env: CLINIC_URL, query: 'select * from"


def test_engine_sql_reads_both_tables_by_queries() -> None:
    one = CLINIC.replace("kind: csv, path: visits.csv", f"{ASKED} visits'")
    both = one.replace("kind: csv, path: persons.csv", f"{ASKED} persons'")
    sql = ARROW.replace("arrow", "sql")
    for text, engine in ((one, "memory"), (both, "memory"), (both + sql, "sql")):
        spec = linked(text)
        assert linked_engine(spec) == as_one(spec).compute.engine == engine
    told = ":22: dataset.tables.persons.source.kind: engine sql reads both tables by a query of a"
    assert told in mistakes(one + sql)
    assert mistakes(CLINIC + sql).count("and this is csv") == 2
    joined = both.replace("from visits'", "from visits join wards using (ward)'")
    (warned,) = [w for w in linked_traps(linked(joined)) if "query" in w]
    assert warned.startswith("dataset.tables.visits.source.query has a join")


@pytest.mark.parametrize(("edge", "told"), ARROWS.items())
def test_a_wrong_arrow_is_told_at_its_line(edge: str, told: str) -> None:
    found = mistakes(with_change(GAP, f"    - {edge}"))
    assert "  s.yaml:55:7: graph.edges #7: " in found and told in found
    assert found.startswith("1 mistake in the spec")


ESTIMANDS = {
    "treatment: visits.drug, outcome: 'visits[4].bp'": "visits[4].bp is not one of a single step",
    "treatment: 'visits[-1].drug', outcome: visits.bp": "is not one of a single step forward",
    "treatment: visits.drug, outcome: persons.sex": "is not one of a single step forward",
    "treatment: visits.drog, outcome: visits.bp": "hint: did you mean 'drug'?",
    "treatment: visits.drug, outcome: visits.date": "estimands #1.outcome: unknown column 'date'",
    "treatment: people.sex, outcome: visits.bp": "unknown table 'people'\n    hint: persons or",
    "treatment: persons.birth, outcome: visits.bp": "unknown column 'birth'",
    "treatment: visits, outcome: visits.bp": "names no column of a table",
    "treatment: visits.drug, outcome: visits.stage, level: '9'": "visits.stage has no level '9'",
    "treatment: visits.drug, outcome: visits.bp, reference: '2'": "visits.drug has no level '2'",
    "treatment: visits.drug, outcome: visits.bp, clip: [160, 100]": "the first end lies below",
    "treatment: visits.drug, outcome: visits.stage, clip: [0, 1]": "stage holds no numbers",
    "treatment: visits.drug, outcome: visits.stage, steps: 2": "visits.x on visits[+1].y, 11 at",
    "treatment: visits.drug, outcome: 'visits[+1].stage', steps: 12": "11 at most",
    "treatment: visits.drug, outcome: 'visits[+1].stage', steps: 0": "estimands #1.steps",
}


def with_estimand(estimand: str, text: str = CLINIC) -> str:
    text = with_change("steps: 0.6", "steps: 0.5, estimands: 0.1", text)
    return with_change(
        "evaluation:", f"estimands: [{{kind: effect, {estimand}}}]\nevaluation:", text
    )


@pytest.mark.parametrize(("estimand", "told"), ESTIMANDS.items())
def test_a_wrong_estimand_is_told(estimand: str, told: str) -> None:
    assert told in mistakes(with_estimand(estimand))


def test_estimands_are_paid_for_and_say_what_confounds() -> None:
    asked = "treatment: visits.drug, outcome: 'visits[+1].stage', level: 3, adjust: [visits.stage]"
    spec = linked(with_estimand(asked))
    assert spec.estimands[0].level == "3" and spec.estimands[0].adjust == ("visits.stage",)
    assert linked(spec_yaml(spec)) == spec
    unpaid = with_estimand(asked).replace("steps: 0.5, estimands: 0.1", "steps: 0.6")
    assert "privacy.shares.estimands: not written, and so 0; estimands need" in mistakes(unpaid)
    free = with_estimand("treatment: visits.drug, outcome: visits.bp")
    free = (
        free[: free.index("graph:")]
        + "graph: {mode: predict}\n"
        + free[free.index("estimands: [") :]
    )
    assert "estimands #1: graph mode predict declares no causes" in mistakes(free)


def test_a_question_may_be_an_estimand() -> None:
    ask = "mean(visits.bp) by visits[later].number"
    asked = with_estimand("treatment: visits.drug, outcome: visits.bp").replace(
        "{kind: effect, treatment: visits.drug, outcome: visits.bp}",
        f"{{kind: question, ask: '{ask}', clip: [100, 160]}}",
    )
    spec = linked(asked)
    assert [(e.kind, e.clip) for e in spec.estimands] == [("question", (100, 160))]
    assert linked(spec_yaml(spec)) == spec
    assert "only a mean is clipped" in mistakes(asked.replace("mean(", "median("))
    assert "the first end lies below" in mistakes(asked.replace("[100, 160]", "[160, 100]"))
    assert "estimands #1.ask" in mistakes(asked.replace(ask, ""))


@pytest.mark.parametrize(("target", "told"), TARGETS.items())
def test_a_wrong_target_is_told(target: str, told: str) -> None:
    assert told in mistakes(with_change("visits[+1].admitted", target))


def test_a_cycle_between_persons_is_told() -> None:
    edges = "    - persons.sex -> persons.region\n    - persons.region -> persons.sex"
    found = mistakes(with_change(GAP, edges))
    assert (
        "56:7: graph.edges #8: the graph has a cycle: persons.sex -> persons.region -> p" in found
    )


def test_a_level_that_may_be_missing_has_no_order() -> None:
    text = with_change("true: 1}", "true: 1, missing: true}")
    found = mistakes(with_change("privacy:", "  - {once: visits.admitted}\nprivacy:", text))
    assert "visits.admitted may be missing, and a missing value has no place in an order" in found


def test_an_age_needs_a_birth() -> None:
    found = mistakes(with_change("persons.birth <= visits.date", "{once: visits.admitted}"))
    assert "49:7: graph.edges #1: persons.age needs a date of birth" in found


def test_dates_of_persons_need_dates_of_visits() -> None:
    birth = "    birth: {type: datetime, lower: 1920-01-01, upper: 1999-12-31}\n    coins:"
    text = with_change("    coins:", birth, RANDHIE)
    text = with_change("privacy:", "constraints: [persons.birth <= years.year]\nprivacy:", text)
    assert "'year', the order of visits, a whole number" in mistakes(text)


def test_modes_without_arrows_and_with_them() -> None:
    found = mistakes(with_change("mode: given", "mode: predict"))
    assert "48:3: graph.edges: has no effect: graph mode is predict" in found
    found = mistakes(CLINIC[: CLINIC.index("\n  edges:")])
    assert "graph.edges: missing or empty; mode given needs at least one arrow" in found


def test_visits_hold_something() -> None:
    text = CLINIC[: CLINIC.index("    stage:")] + CLINIC[CLINIC.index("privacy:") :]
    text = text[: text.index("graph:")]
    assert "columns.visits: visits have no column beside 'date'" in mistakes(text)


def test_mistakes_of_several_sections_are_told_at_once() -> None:
    text = with_change("delta: 1e-5", "delta: 1e-3")
    text = with_change("order: date", "order: dat", with_change("key: person_id", "key: sex", text))
    assert mistakes(text).startswith("3 mistakes in the spec")


@pytest.mark.check
def test_many_arrows_are_refused_at_once() -> None:
    causes = ", ".join(f"visits[-1].c{i}" for i in range(40_000))
    begun = time.process_time()
    found = mistakes(with_change(GAP, f"    - {causes} -> visits.gap, visits.ward, visits.end"))
    assert "120,018 arrows; there may be at most 100,000" in found
    mistakes(with_change(GAP, f"    - {causes} -> visits.gap"))
    mistakes(with_change(GAP, f"    - visits.{' ' * 100_000}. -> visits.gap"))
    mistakes(with_change(GAP, f"    - {'`' * 100_001}"))
    assert time.process_time() - begun < 20


# --- traps and commands ---


def test_names_that_tell_of_ids_are_warned_of() -> None:
    assert linked_traps(linked(CLINIC)) == []
    text = with_change("    drug:", "    patient_id: {type: boolean}\n    drug:")
    assert linked_traps(linked(text)) == [
        "columns.visits: 'patient_id' sounds like an id; an id is never released"
    ]
    text = with_change("    drug:", "    Bp: {type: boolean}\n    drug:")
    assert linked_traps(linked(text))[0].startswith("columns.visits: 'bp' and 'Bp' differ in upper")
