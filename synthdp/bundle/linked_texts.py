"""The files of a bundle of persons with visits that follow from the others, as `bundle.derived`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from synthdp.bundle.certificate_text import (
    about_column,
    plain,
    template,
    title_of,
)
from synthdp.bundle.content import MODEL_FILES, REPORT, written
from synthdp.bundle.deployment import DEPLOYMENT
from synthdp.bundle.derived import DERIVED, EFFECTS, Derived, as_json
from synthdp.bundle.descriptions import DATACARD, quoted_yaml, readme_facts, size_category
from synthdp.bundle.linked import (
    LinkedBundle,
    expected_noise,
    persons_of,
    table_files,
    written_columns,
)
from synthdp.bundle.noisy_values import ESTIMANDS, MARGINALS
from synthdp.bundle.signing import STATEMENT
from synthdp.bundle.table_files import (
    CROISSANT,
    croissant_file,
    croissant_head,
    label_sets,
    package_head,
    record_set,
    resource,
)
from synthdp.data.kinds import column_kind
from synthdp.files import read_text
from synthdp.graph.causal import CausalGraph, GraphEdge
from synthdp.graph.picture import arrows
from synthdp.model.visits.planning import END_NUMBERS, STEP_PAIRS, plan_linked
from synthdp.report.public.visits import Pair, VisitContent, render_visits
from synthdp.spec.model import LinkedSpec, Node

# --- the graph ---


def graph_json(b: LinkedBundle) -> dict[str, Any]:
    """The content of `graph.json`: two slices, before and now, with the persons' columns, and the
    spec's arrows as templates that hold at every visit.

    An arrow that nobody gave claims no cause: of mode predict, or of a column's own past.
    """
    spec = b.linked
    templates = [
        {"from": str(cause), "to": str(effect)}
        | ({"lag": cause.lag} if cause.lag else {})
        | ({"number": effect.number} if effect.number else {})
        | {"in_model": effect.column != spec.death or effect.table != spec.dataset.persons_name}
        for effect, causes in spec.graph.arrows(spec).items()
        for cause in causes
    ]
    return graph_of(b).to_json() | {"templates": templates}


def graph_of(b: LinkedBundle) -> CausalGraph:
    """The graph of two slices: what the spec gives, or what mode predict chose; and each column's
    own past.
    """
    spec, visits = b.linked, b.linked.dataset.visits_name
    given = spec.graph.arrows(spec)
    pairs = {
        (str(_at(cause, effect, visits)), str(effect)): "given"
        for effect, causes in given.items()
        for cause in causes
    }
    if spec.graph.mode == "predict":
        own = b.arrows
        chosen = {**own.persons, **own.first, **own.steps, b.frame.now("end"): own.end}
        pairs |= {(cause, c): "predictive" for c, causes in chosen.items() for cause in causes}
    for node in given:
        if node.table == visits and not node.number and node.column != "end":
            pairs.setdefault((str(Node(visits, node.column, lag=1)), str(node)), "predictive")
    nodes = dict.fromkeys([*(name for pair in pairs for name in pair), *map(str, given)])
    edges = (
        GraphEdge(*pair, directed=True, provenance=why)  # type: ignore[arg-type]
        for pair, why in pairs.items()
    )
    return CausalGraph(tuple(nodes), tuple(edges))


def _at(cause: Node, effect: Node, visits: str) -> Node:
    """A cause of a first visit that belongs to it is a column of the first visit."""
    own = cause.table == visits and effect.number is not None
    return Node(cause.table, cause.column, number=effect.number) if own else cause


def _graph_svg(b: LinkedBundle) -> str:
    """The two slices, without the law of the first visit; a matrix where arrows are many."""
    graph, first = graph_of(b), f"{b.linked.dataset.visits_name}[1]."
    edges = tuple(e for e in graph.edges if not {*e.pair} & {n for n in graph.nodes if first in n})
    nodes = dict.fromkeys(name for edge in edges for name in edge.pair)
    title = f"Before, now and persons: {b.linked.dataset.title or b.linked.dataset.id}"
    if not 1 <= len(edges) <= 60:  # arrows of a picture
        return graph.to_svg(title=title)
    return arrows(CausalGraph(tuple(nodes), edges), edges, title=title)


# --- descriptions ---


def _datapackage(b: LinkedBundle) -> str:
    """Two resources, of which that of visits has the persons' key as a foreign one."""
    spec, package = b.linked, package_head(b.spec, run=b.certificate.run)
    columns, data = written_columns(spec), spec.dataset
    package["resources"] = []
    for name, (csv, _) in table_files(spec).items():
        told = resource(name, columns[name], written(b.folder / csv))
        key = {"fields": data.tables[name].key}
        if name == data.persons_name:
            told["schema"]["primaryKey"] = [key["fields"]]
        else:
            to = {"resource": data.persons_name, "fields": [data.persons.key]}
            told["schema"]["foreignKeys"] = [{"fields": [key["fields"]], "reference": to}]
        package["resources"].append(told)
    return as_json(package)


def _croissant(b: LinkedBundle) -> str:
    """Two record sets, of which that of visits refers to the persons' key."""
    spec, columns = b.linked, written_columns(b.linked)
    content = croissant_head(b.spec, b.certificate, day=b.day)
    content["distribution"] = [
        croissant_file(written(b.folder / file), kind, f"{name}, {about}")
        for name, pair in table_files(spec).items()
        for file, (kind, about) in zip(
            pair,
            (("text/csv", "as text"), ("application/x-parquet", "with their types")),
            strict=True,
        )
    ]
    sets = [
        record_set(name, columns[name], parquet) for name, (_, parquet) in table_files(spec).items()
    ]
    persons, visits = sets
    persons["key"] = {"@id": persons["field"][0]["@id"]}
    visits["field"][0]["references"] = {"field": persons["key"]}
    for name, own in columns.items():
        sets += label_sets(own, f"{name}.")
    return as_json(content | {"recordSet": sets})


def _common(b: LinkedBundle) -> dict[str, Any]:
    spec, data = b.linked, b.linked.dataset
    files = table_files(spec)
    return readme_facts(b.spec, b.certificate, b.day) | {
        "linked": spec,
        "persons": persons_of(spec),
        "files": files,
        "people": data.persons_name,
        "events": data.visits_name,
        "keys": {name: table.key for name, table in data.tables.items()},
        "title": plain(title_of(b.spec.dataset)),
        "rules": b.spec.constraints,
    }


def _readme(b: LinkedBundle) -> str:
    files = table_files(b.linked)
    head = {"pretty_name": quoted_yaml(title_of(b.spec.dataset))}
    head["size_categories"] = f"[{quoted_yaml(size_category(persons_of(b.linked)))}]"
    return template("README_visits.md.j2").render(
        _common(b), head=head, configs={name: pair[1] for name, pair in files.items()}
    )


def _datacard(b: LinkedBundle) -> str:
    """It says of what is measured only what spec and plan say, so that it is known beforehand."""
    columns = [
        (
            table,
            name,
            column.type,
            column_kind(column).in_words(column, most=12),
            "yes" if column.missing else "no",
            column.unit or "",
            about_column(column),
        )
        for table, own in written_columns(b.linked).items()
        for name, column in own.items()
    ]
    arrows = [
        f"{', '.join(map(str, causes))} -> {effect}"
        for effect, causes in b.linked.graph.arrows(b.linked).items()
        if causes
    ]
    return template("datacard_visits.md.j2").render(_common(b), columns=columns, arrows=arrows)


# --- the report ---


def visit_content(b: LinkedBundle) -> VisitContent:
    """The content of the public page, made of the bundle's other files and of nothing else."""
    frame = b.frame
    pairs = [
        (p, Pair(**{f.name: getattr(table, f.name) for f in fields(table)}))
        for p, table in b.compared
    ]
    number, end = frame.now("number"), frame.now("end")
    own_past = {(frame.before(c.name), frame.now(c.name)) for c in frame.of_visits.columns}
    counts = [p for purpose, p in pairs if purpose == END_NUMBERS]
    return VisitContent(
        facts=b.certificate.model_dump(mode="json"),
        persons=persons_of(b.linked),
        day=b.day,
        mode=b.linked.graph.mode,
        arrows=len(b.graph.edges),
        profile=[(float(p["epsilon"]), float(p["delta"])) for p in b.profile["points"]],
        effects=read_text(b.folder / EFFECTS),
        graph=_graph_svg(b),
        scores=b.scores,
        expected=expected_noise(b.linked, plan_linked(b.linked, frame)),
        gates=b.gates_told,
        numbers=next(p for p in counts if p.columns == (number,)),
        ends=next(p for p in counts if p.columns == (number, end)).summed(),
        steps=[p for purpose, p in pairs if purpose == STEP_PAIRS and p.columns in own_past],
        singles=[p for purpose, p in pairs if len(p.columns) == 1 and purpose != END_NUMBERS],
        every=[p for _, p in pairs],
    )


def _said(files: str) -> str:
    return f"does not say what {files} say"


LINKED_DERIVED: Mapping[str, Derived] = {
    "privacy/certificate.md": DERIVED["privacy/certificate.md"],
    "README.md": Derived(_readme, _said("spec.yaml and privacy/certificate.json")),
    "PEOPLE.md": DERIVED["PEOPLE.md"],
    DATACARD: Derived(_datacard, _said("spec.yaml and privacy/certificate.json")),
    **{name: DERIVED[name] for name in (EFFECTS, "privacy/profile.svg", DEPLOYMENT)},
    "graph.json": Derived(
        lambda b: as_json(graph_json(b)), "is not the graph of spec.yaml and marginals.json"
    ),
    "graph.svg": Derived(_graph_svg, "does not show graph.json"),
    "datapackage.json": Derived(_datapackage, "does not describe the tables as the spec does"),
    CROISSANT: Derived(
        _croissant, "does not describe the tables as spec.yaml and privacy/certificate.json do"
    ),
    REPORT: Derived(
        lambda b: render_visits(visit_content(b)), "does not show what the bundle's other files say"
    ),
}
"""As `derived.DERIVED`."""


def linked_files(spec: LinkedSpec) -> tuple[str, ...]:
    """Every file of a bundle, but for its sums and what `derived.OPTIONAL` names."""
    privacy = ("privacy/certificate.json", "privacy/ledger.json", "privacy/profile.json")
    tables = [file for pair in table_files(spec).values() for file in pair]
    primary = {MARGINALS, *MODEL_FILES, *privacy, "spec.yaml", *tables}
    primary |= {ESTIMANDS} if spec.estimands else set()
    return tuple(sorted({*primary, *LINKED_DERIVED} - {DEPLOYMENT, STATEMENT}))
