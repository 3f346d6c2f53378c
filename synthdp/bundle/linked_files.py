"""The files of a bundle of persons with visits: those that follow from the others, as
`bundle.write` has them of one table, and how all are written, as it does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from synthdp.bundle.certificate_text import about_column, plain, template, title_of
from synthdp.bundle.content import (
    MODEL_FILES,
    REPORT,
    check_paid,
    check_target,
    new_folder,
    refuse,
    released,
    written,
)
from synthdp.bundle.descriptions import (
    DATACARD,
    DEPLOYMENT,
    public_spec,
    quoted_yaml,
    readme_facts,
    size_category,
)
from synthdp.bundle.linked import (
    LinkedBundle,
    as_one,
    certify_linked,
    expected_noise,
    linked_tables_json,
    persons_of,
    table_files,
    written_columns,
)
from synthdp.bundle.noisy_values import ESTIMANDS, MARGINALS, sums_json
from synthdp.bundle.signing import STATEMENT, Signer
from synthdp.bundle.table_files import (
    CROISSANT,
    croissant_file,
    croissant_head,
    label_sets,
    package_head,
    record_set,
    resource,
    write_csv,
    write_parquet,
)
from synthdp.bundle.write import (
    DERIVED,
    EFFECTS,
    Derived,
    as_json,
    planned_facts,
    sum_and_sign,
    word,
    write_texts,
)
from synthdp.data.kinds import column_kind
from synthdp.files import read_text
from synthdp.graph.causal import CausalGraph, GraphEdge
from synthdp.graph.picture import arrows
from synthdp.ledger.entries import balance_at_reservation
from synthdp.model.visits.fit import FittedVisits
from synthdp.model.visits.laws import VisitModel, save_visits
from synthdp.model.visits.planning import END_NUMBERS, STEP_PAIRS, plan_linked
from synthdp.privacy.mechanisms.sums import NoisyProducts
from synthdp.privacy.plan import MOMENTS, ReleasePlan
from synthdp.privacy.private import Receipt, Released
from synthdp.report.public.visits import Pair, VisitContent, render_visits
from synthdp.spec.model import LinkedSpec, Node

if TYPE_CHECKING:
    from synthdp.ledger.ledger import Ledger

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


LINKED_DERIVED: Mapping[str, Derived] = {
    "privacy/certificate.md": DERIVED["privacy/certificate.md"],
    "README.md": Derived(_readme, DERIVED["README.md"].wrong),
    "PEOPLE.md": DERIVED["PEOPLE.md"],
    DATACARD: Derived(_datacard, DERIVED["README.md"].wrong),
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
"""As `write.DERIVED`."""


def linked_files(spec: LinkedSpec) -> tuple[str, ...]:
    """Every file of a bundle, but for its sums and what `write.OPTIONAL` names."""
    privacy = ("privacy/certificate.json", "privacy/ledger.json", "privacy/profile.json")
    tables = [file for pair in table_files(spec).values() for file in pair]
    primary = {MARGINALS, *MODEL_FILES, *privacy, "spec.yaml", *tables}
    primary |= {ESTIMANDS} if spec.estimands else set()
    return tuple(sorted({*primary, *LINKED_DERIVED} - {DEPLOYMENT, STATEMENT}))


# --- written ---


@dataclass(frozen=True, kw_only=True)
class LinkedContent:
    """All that goes into a bundle: both tables as frames, persons first, what was fitted, and
    figures of estimands, and sums of numbers, where the spec has any.
    """

    spec: LinkedSpec
    run: str
    plan: ReleasePlan
    synthetic: Released[tuple[pd.DataFrame, pd.DataFrame]]
    fitted: FittedVisits
    estimands: Released[dict[str, Any]] | None = None
    moments: Released[NoisyProducts] | None = None


def _receipts(content: LinkedContent) -> dict[str, frozenset[Receipt]]:
    """Receipts of each file that came out of rows."""
    frames = released("synthetic", content.synthetic, tuple)
    tables = released("tables", content.fitted.tables, Mapping)
    model = released("model", content.fitted.model, VisitModel)
    if len(frames.value[0]) != persons_of(content.spec):
        refuse("synthetic", f"must have the spec's {persons_of(content.spec)} persons")
    found = {file: frames.receipts for pair in table_files(content.spec).values() for file in pair}
    if (content.moments is not None) != (content.plan.moments is not None):
        refuse("moments", "must be there where they are planned, and nowhere else")
    counted = tables.receipts
    if content.moments is not None:
        counted |= released("moments", content.moments, NoisyProducts).receipts
    found |= {MARGINALS: counted, **dict.fromkeys(MODEL_FILES, model.receipts)}
    if content.spec.graph.mode == "predict":
        found |= dict.fromkeys(("graph.json", "graph.svg"), tables.receipts)
    if (content.estimands is not None) != bool(content.spec.estimands):
        refuse("estimands", "must be there where the spec has any, and nowhere else")
    if content.estimands is not None:
        found[ESTIMANDS] = released("estimands", content.estimands, dict).receipts
    return found | {REPORT: frames.receipts | tables.receipts}


def write_linked(
    folder: Path,
    content: LinkedContent,
    *,
    ledger: Ledger,
    force: bool,
    signer: Signer | None = None,
    check: Callable[[LinkedBundle], None] = lambda _: None,
) -> Path:
    """Write the bundle of a release to `folder`, atomically; returns the folder; raises as
    `write.write_bundle`, and what `check` raises of the draft, which is then deleted.
    """
    receipts, planned = _receipts(content), content.plan.stated_spends
    entries = check_paid(content.run, planned, receipts, ledger)
    check_target(folder, force=force)
    spec, plan = public_spec(content.spec), content.plan
    facts = certify_linked(
        spec,
        plan,
        run=content.run,
        planned=planned,
        entries=entries,
        group_epsilons=plan.group_epsilons,
        receipts=receipts,
        signer=signer.identity if signer else None,
        balance=(balance := balance_at_reservation(ledger.entries(), content.run)).to_json(),
    )
    columns, files = written_columns(spec), table_files(spec)
    tables, fitted = zip(files.items(), content.synthetic.value, strict=True), content.fitted
    moments = {} if content.moments is None else {MOMENTS: content.moments.value}
    counts = linked_tables_json(fitted.tables.value, plan, fitted.arrows.dependent)
    stated = {MARGINALS: counts | sums_json(moments)}
    stated |= {} if content.estimands is None else {ESTIMANDS: content.estimands.value}
    with new_folder(folder, force=force) as draft:
        for (name, (csv, parquet)), frame in tables:
            write_csv(frame, columns[name], draft / csv)
            write_parquet(draft / csv, columns[name], draft / parquet)
        save_visits(fitted.model.value, draft)
        bundle = LinkedBundle(draft, as_one(spec), facts, entries[-1].at[:10], spec)
        write_texts(bundle, LINKED_DERIVED, entries, balance, stated)
        check(bundle)
        sum_and_sign(draft, facts, signer)
    return folder


def foresee_linked(spec: LinkedSpec, plan: ReleasePlan) -> None:
    """Compute and word all that a certificate will say of a plan, as `write.foresee` does."""
    spec = public_spec(spec)
    facts = certify_linked(spec, plan, **planned_facts(plan))
    word(LinkedBundle(Path(), as_one(spec), facts, "2000-01-01", spec), LINKED_DERIVED, DATACARD)
