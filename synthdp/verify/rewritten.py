"""The checks that write again what follows from the rest of a bundle, and compare: texts, pictures,
the table's other forms, scores, and figures of estimands; and the check of the graph.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np

from synthdp.bundle.certificate import Certificate, profile_of
from synthdp.bundle.descriptions import DEPLOYMENT, deployment_record, schema_problems
from synthdp.bundle.noisy_values import ESTIMANDS, WAVES, chain_problems, read_tables, waves_from
from synthdp.bundle.table_files import CSV_NAME, PARQUET_NAME, arrow_schema, group_rows, row_groups
from synthdp.data.domain import Domain
from synthdp.evaluate.dp_scores import dp_scores_of, headline
from synthdp.graph.causal import CausalGraph
from synthdp.graph.discovery import algorithm_named
from synthdp.graph.knowledge import Knowledge
from synthdp.graph.predict import prediction_order
from synthdp.graph.validation import SETTINGS as VALIDATION
from synthdp.graph.validation import STATUSES, Implication, claimed
from synthdp.inference.estimands import (
    estimands_json,
    measured_contrasts,
    measured_sums,
    stated_sums,
)
from synthdp.model.estimands import contrast_name, estimand_name
from synthdp.privacy.events.kernel import GaussianSumsDpEvent
from synthdp.privacy.events.kinds import event_from_json, event_to_json
from synthdp.privacy.mechanisms.marginals import sampler_for
from synthdp.privacy.mechanisms.scores import ScoreBudget, Scored, compared
from synthdp.privacy.mechanisms.sums import (
    GRID,
    SQUARE,
    ContrastBudget,
    NoisyProducts,
    NoisySums,
    SumMechanism,
    Sums,
)
from synthdp.privacy.plan import INTERACTIONS, MOMENTS, SCORES, estimand_purpose, graph_purpose
from synthdp.spec.model import Column, ReleaseSpec
from synthdp.verify.reader import VERIFY, Check, Reader, wrong


def rewritten(reader: Reader, file: str) -> Iterator[str]:
    """The file is what its function makes of the bundle's other files, to the byte.

    It is there exactly where the spec asks for it.
    """
    if reader.bundle is None:
        return
    derived = reader.derived[file]
    expected = derived.make(reader.bundle)
    if expected is None and reader.holds(file):
        yield f"{file}: does not belong in this bundle; its spec asks for none"
    elif expected is not None and not reader.holds(file):
        yield f"{file}: is missing; its spec asks for it"
    elif expected is not None and reader.text(file) != expected:
        yield f"{file}: {derived.wrong}"


def check_profile(reader: Reader) -> Iterator[str]:
    """The profile bounds what the planned events compose to, and the picture shows it. It gives
    delta at every epsilon of the grid. An earlier accountant may have found larger ones.
    """
    name = "privacy/profile.json"
    if reader.certificate is None:
        return
    stated, true = reader.json(name), profile_of(reader.certificate.planned, reader.spec)
    if not isinstance(stated, dict) or stated | {"points": None} != true | {"points": None}:
        yield f"{name}: is not the profile of this release"
        return
    points = [(p["epsilon"], p["delta"]) for p in stated["points"]]
    if [e for e, _ in points] != [p["epsilon"] for p in true["points"]]:
        yield f"{name}: its epsilons are not the public grid"
        return
    for (epsilon, delta), bound in zip(points, (p["delta"] for p in true["points"]), strict=True):
        # Another version of the accountant may differ in the last digits.
        if not bound * (1 - 1e-6) - 1e-13 <= delta <= 1:
            below = f"below what the planned events give, {bound:.6g}"
            why = "no probability" if delta > 1 else below
            yield f"{name}: at epsilon {epsilon:g} delta {delta:.6g} is {why}"
    yield from rewritten(reader, "privacy/profile.svg")


def check_deployment(reader: Reader) -> Iterator[str]:
    """The registry's record is there where the spec asks for it, right, and valid."""
    yield from rewritten(reader, DEPLOYMENT)
    if reader.bundle is not None and reader.spec.publication and reader.holds(DEPLOYMENT):
        # Of the expected record: the YAML of the file is never parsed, since it may be a bomb.
        record = deployment_record(reader.spec, reader.bundle.certificate, day=reader.day)
        yield from (f"{DEPLOYMENT}: {p}" for p in schema_problems(record))


def check_waves(reader: Reader) -> Iterator[str]:
    """The waves before are those whose digest the spec states, each by the one after it."""
    if reader.holds(WAVES) != bool(reader.spec.waves and reader.spec.waves.after):
        yield f"{WAVES}: must be there where the spec states a wave before, and nowhere else"
    elif reader.holds(WAVES):
        waves = waves_from(reader.json(WAVES))
        yield from (f"{WAVES}: {problem}" for problem in chain_problems(waves, reader.spec))


def by_others(file: str) -> tuple[str, Check]:
    """The check of a file that follows from the others: it is made again, and compared."""
    return file, partial(rewritten, file=file)


# --- forms ---
#
# Parquet has the rows of the CSV, and both descriptions are those of spec and files. A stranger's
# Parquet is opened with bounds on its footer, and a group of rows is only decoded if it states the
# size that the spec's columns can have.


def check_parquet(reader: Reader) -> Iterator[str]:
    """The spec's columns and types, and in the same order the rows of the CSV."""
    path, csv = reader.folder / PARQUET_NAME, reader.folder / CSV_NAME
    yield from parquet_problems(path, csv, reader.spec.columns, reader.spec.sampling.rows or 0)


def parquet_problems(
    path: Path, csv: Path, columns: Mapping[str, Column], rows: int
) -> Iterator[str]:
    """How a table's Parquet is not that of its CSV and columns.

    No group of rows may be larger than dictionaries of all labels, and a number in each cell.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    size, written = group_rows(columns), Domain.written(columns).columns
    page = 256  # bytes that a page or a label takes beyond its content
    labels = sum(len(label.encode()) + page for column in written for label in column.labels)
    fixed, most = labels + page * len(written), 64 << 20  # bytes, and entries of a list
    try:
        with pq.ParquetFile(
            path, thrift_string_size_limit=most, thrift_container_size_limit=most
        ) as file:
            footer, places = file.metadata, range(file.metadata.num_row_groups)
            if not file.schema_arrow.equals(arrow_schema(columns), check_metadata=True):
                yield f"{path.name}: its columns and types are not the spec's"
            elif footer.num_rows != rows or len(places) != -(-rows // size):
                yield f"{path.name}: does not hold the spec's {rows} rows in groups of {size}"
            elif any(
                g.num_rows > size or g.total_byte_size > fixed + 24 * g.num_rows * len(written)
                for g in map(footer.row_group, places)
            ):
                yield f"{path.name}: a group of rows is larger than the spec's columns can be"
            elif any(
                a != b
                for a, b in zip_longest(map(file.read_row_group, places), row_groups(csv, columns))
            ):
                yield f"{path.name}: its rows are not those of {csv.name}"
    except (pa.ArrowException, OSError, ValueError) as error:
        yield f"{path.name}: cannot be read and compared with {csv.name} ({type(error).__name__})"


# --- graph ---


ACTIVE_SVG = re.compile(
    r"<script|<!DOCTYPE|<!ENTITY|<foreignObject|\son\w+\s*=|javascript:|(href|src)\s*=\s*[\"'](?!#)",
    re.IGNORECASE,
)
CLAIM_KINDS = ("arrow", "independence")


def check_graph(reader: Reader) -> Iterator[str]:
    """The graph is over the spec's columns and without cycles, and the picture runs no code.

    Where the spec gives the graph, its arrows are those of the spec. In mode predict they go along
    the spec's order.
    """
    spec, columns = reader.spec, list(reader.spec.modelled)
    content = reader.json("graph.json")
    if isinstance(content, dict) and content.get("nodes", columns) != columns:
        yield "graph.json: its nodes are not the spec's columns"
        return
    graph = CausalGraph.from_json(content)
    given = CausalGraph.from_spec(spec.graph, tuple(columns))
    if spec.graph.mode in ("none", "given") and set(graph.edges) != set(given.edges):
        yield "graph.json: its arrows are not the spec's"
    if spec.graph.mode == "predict":
        yield from _order_problems(graph, spec)
    found = {e.body["purpose"] for e in reader.charges}
    if graph.together and graph_purpose(INTERACTIONS) not in found:
        yield "graph.json: says what acts together, and nothing was charged for finding it"
    open_pairs = Knowledge.from_spec(spec.graph, tuple(columns)).undecided_pairs
    marked = spec.graph.mode == "learn" and spec.graph.unseen_causes and bool(open_pairs)
    if (graph.pag is not None) != marked:
        has, asks = ("no", "asks") if marked else ("a", "does not ask")
        yield f"graph.json: has {has} pag, and the spec's graph.unseen_causes {asks} for one"
    yield from _validation_problems(content.get("validation"), graph, reader)
    for problem in rewritten(reader, "graph.svg"):
        active = ACTIVE_SVG.search(reader.text("graph.svg"))
        yield "graph.svg: holds a script, an entity or a link" if active else problem


def _order_problems(graph: CausalGraph, spec: ReleaseSpec) -> Iterator[str]:
    """Links of mode predict that are no arrows of prediction along the spec's order."""
    unpredictive = any(e.provenance != "predictive" or not e.directed for e in graph.edges)
    link = "a link is no arrow of prediction, and the spec's graph mode is predict"
    unknown = "has groups or unseen causes, which graph mode predict does not know"
    yield from wrong(
        (unpredictive, f"graph.json: {link}"),
        (bool(graph.groups or graph.latent), f"graph.json: {unknown}"),
    )
    order = prediction_order(spec.graph, tuple(spec.modelled), spec.evaluation.targets)
    place = {name: i for i, name in enumerate(order)}
    if backward := [e for e in graph.edges if place[e.cause] > place[e.effect]]:
        arrow = f"{backward[0].cause} -> {backward[0].effect}"
        yield f"graph.json: the arrow {arrow} goes back in the spec's order"


def _validation_problems(stated: Any, graph: CausalGraph, reader: Reader) -> Iterator[str]:
    """The validation of a given graph fits the graph: claims, counts and marks on the arrows. Each
    claim is one that the spec's graph makes, and there is one claim for each pair.
    """
    settings, columns = reader.spec.graph, tuple(reader.spec.modelled)
    if (stated is not None) != (settings.mode == "validate"):
        yield (
            f"graph.json: has {'no' if stated is None else 'a'} validation, and the spec's graph"
            f" mode is {settings.mode}"
        )
    if stated is None or settings.mode != "validate":
        return
    given = CausalGraph.from_spec(settings, columns)
    claims = [Implication(f["x"], f["y"], tuple(f["given"]), f["kind"]) for f in stated["findings"]]
    kinds = [claim.kind for claim in claims]
    left = [Implication(u["x"], u["y"], tuple(u["given"]), u["kind"]) for u in stated["untested"]]
    known = all(kind in CLAIM_KINDS for kind in (*kinds, *(claim.kind for claim in left)))
    if not known or kinds.count("independence") > VALIDATION.max_tables:
        yield "graph.json: validation: holds more claims than are tested, or one of no kind"
        return
    domain = Domain.from_spec(reader.spec.columns)
    distinct = len({frozenset((c.x, c.y)) for c in (*claims, *left)}) == len(claims) + len(left)
    by_tables = algorithm_named(settings.algorithm).tests is None
    most = VALIDATION.max_cells if by_tables else math.inf
    if not distinct or not all(claimed(given, c, domain, max_cells=most) for c in claims):
        yield (
            "graph.json: validation: holds a claim twice, or one that the spec's graph does not"
            " make"
        )
    statuses = [(f["kind"], f["status"]) for f in stated["findings"]]
    counts = {kind: {s: statuses.count((kind, s)) for s in STATUSES} for kind in CLAIM_KINDS}
    refuted = settings.on_refuted == "fail" and any(s == "refuted" for _, s in statuses)
    found = {(f["x"], f["y"]): f["status"] for f in stated["findings"] if f["kind"] == "arrow"}
    arrows = {pair: found.get(pair, "given") for pair in given.directed}
    if settings.on_refuted == "drop":
        arrows = {pair: status for pair, status in arrows.items() if status != "refuted"}
    marks = {e.pair: e.provenance for e in graph.edges} != arrows
    name, withheld = "graph.json: validation", "which the spec says withholds the bundle"
    yield from wrong(
        (stated["counts"] != counts, f"{name}: its counts are not those of its findings"),
        (refuted, f"{name}: a claim is refuted, {withheld}"),
        (marks, "graph.json: its arrows are not marked as its validation found them"),
    )


# --- scores ---


def score_problems(stated: Certificate, reader: Reader) -> Iterator[str]:
    """How the certificate's scores differ from those of spec, charge and noisy counts."""
    spec = reader.spec
    if not spec.evaluation.dp_scores:
        if stated.scores:
            yield "are there, and the spec has none charged"
        return
    charges = reader.paid(SCORES)
    if not charges or not stated.scores:
        yield "the spec has them charged, and they are missing, or their charge is"
        return
    sigma = stated.scores[0].sigma
    domain = Domain.from_spec(spec.columns)
    budget = ScoreBudget(
        domain,
        tuple(t for t in spec.evaluation.targets if not domain[t].ranged),
        sigma,
        sampler_for(spec.dataset.privacy_unit.max_rows),
    )
    if event_to_json(budget.event(spec.dataset.privacy_unit.max_rows)) != charges[0]:
        yield "have not the noise, or the number, that the ledger's charge paid for"
    # A distance has one noisy count, the score of a target two.
    sizes = [len(score.counts) for score in stated.scores]
    if (sizes.count(1), sizes.count(2)) != (len(compared(domain)), len(budget.targets)):
        yield "are not as many as the spec has charged"
        return
    counts = [s.counts for s in stated.scores]
    misplaced = np.array([c[0] for c in counts if len(c) == 1], dtype=np.int64)
    answers = np.array([c for c in counts if len(c) == 2], dtype=np.int64).reshape(-1, 2)
    rows = np.zeros((0, len(domain)), dtype=np.uint16)
    scored = Scored(rows, misplaced, answers, sigma)
    true = dp_scores_of(spec, domain, scored, read_tables(reader.folder))
    if [s.model_dump() for s in stated.scores] != [s.model_dump() for s in true]:
        yield "do not follow from their noisy counts and marginals.json"
    figures = headline(stated.scores)
    for gate in stated.charged_gates:
        found = figures.get(gate.metric)
        if found is None or gate.margin(found.value) < 0:
            yield (
                f"the gate on {gate.metric} does not hold, which the spec says withholds the bundle"
            )


# --- estimands ---


def check_estimands(reader: Reader) -> Iterator[str]:
    """Every figure follows from the sums, and the sums have the noise that the ledger charged."""
    spec = reader.spec
    domain = Domain.from_spec(spec.columns)
    second = measured_contrasts(spec, domain)
    names = {estimand_name(i) for i in range(len(spec.estimands))} | set(map(contrast_name, second))
    asked = set(map(estimand_purpose, names))
    charged = {e.body["purpose"] for e in reader.charges}
    if paid := sorted(p for p in charged - asked if p.startswith(estimand_purpose(""))):
        yield f"spec.yaml: lacks the estimand that the ledger charged as {paid[0]!r}"
    if (MOMENTS in charged) != (spec.privacy.shares.moments > 0):
        yield "spec.yaml: its share of moments and the charges of the ledger do not agree"
    if reader.holds(ESTIMANDS) != spec.pays_for_sums:
        yield f"{ESTIMANDS}: must be there where the spec pays for sums, and nowhere else"
    if not spec.pays_for_sums or not reader.holds(ESTIMANDS):
        return
    stated = reader.json(ESTIMANDS)
    sums = stated_sums(stated, spec, domain)
    true = json.loads(json.dumps(estimands_json(spec, domain, sums)))
    if not alike(stated, true):
        yield f"{ESTIMANDS}: its figures do not follow from its sums and the spec"
    yield from _missing_tables(reader)
    for name, value in sums.items():
        if not on_lattice(value):
            yield f"{ESTIMANDS}: sums of {_told(name)} are none that their noise is rounded to"
        yield from _noise_problems(reader, name, value.sigma, measured_sums(spec, domain)[name])
        if isinstance(value, NoisySums) and value.contrast is not None:
            sigma = value.contrast.sigma
            yield from _noise_problems(reader, contrast_name(name), sigma, second[name])


def _missing_tables(reader: Reader) -> Iterator[str]:
    """Contingency tables that were paid for and are not among the noisy tables."""
    tables = {(t.columns, t.sigma) for t in read_tables(reader.folder) if not t.starts}
    for i, estimand in enumerate(reader.spec.estimands):
        if not estimand.table:
            continue
        purpose = estimand_purpose(estimand_name(i))
        events = map(event_from_json, reader.paid(purpose))
        inner = [getattr(event, "event", event) for event in events]
        sigmas = [float(event.sigma) for event in inner if getattr(event, "sigma", 0.0)]
        if not any(
            columns == estimand.table and math.isclose(sigma, paid, rel_tol=VERIFY.tolerance)
            for columns, sigma in tables
            for paid in sigmas
        ):
            yield f"marginals.json: has no table of {', '.join(estimand.table)}, of {purpose!r}"


def _noise_problems(
    reader: Reader, name: str, stated: float, measured: SumMechanism | ContrastBudget
) -> Iterator[str]:
    """Noise that is not that of the one charge for these sums."""
    purpose = MOMENTS if name == MOMENTS else estimand_purpose(name)
    events = reader.paid(purpose)
    if len(events) != 1:
        yield f"{ESTIMANDS}: {len(events)} charges of the ledger are for {purpose!r}, not one"
        return
    charged = event_from_json(events[0])
    moved = reader.spec.dataset.privacy_unit.max_rows * measured.sensitivity
    sigma = getattr(charged, "noise_multiplier", math.nan) * moved
    covered = isinstance(charged, dp_accounting.GaussianDpEvent)
    if isinstance(charged, GaussianSumsDpEvent):
        covered = charged.replaced >= measured.event(1).replaced * (1 - VERIFY.tolerance)
    if not covered or not math.isclose(stated, sigma, rel_tol=VERIFY.tolerance):
        yield f"{ESTIMANDS}: {_told(name)} states noise of {stated:.6g}, which is not paid"


def _told(name: str) -> str:
    return name if name == MOMENTS else f"estimand {name}"


def on_lattice(value: Sums) -> bool:
    """Whether sums are whole parts of `GRID`, to which their mechanism rounds them.

    >>> import numpy as np
    >>> on_lattice(NoisyProducts(np.array([1.5, -2.25]), 1.0))
    True
    >>> on_lattice(NoisyProducts(np.array([1.5, 0.1]), 1.0))
    False
    """
    if isinstance(value, NoisyProducts):
        parts = [value.sums]
    else:
        contrast = [] if value.contrast is None else [value.contrast.sums]
        parts = [value.counts, value.sums, value.squares * SQUARE, *contrast]
    return not any((part * GRID % 1).any() for part in parts)


def alike(stated: Any, true: Any) -> bool:
    """Equal, where numbers may differ in their last digits.

    >>> alike({"a": [1.0, "x"]}, {"a": [1.0 + 1e-9, "x"]}), alike([1.0], [1.1])
    (True, False)
    """
    if isinstance(stated, dict) and isinstance(true, dict):
        return stated.keys() == true.keys() and all(alike(stated[k], true[k]) for k in true)
    if isinstance(stated, list) and isinstance(true, list):
        return len(stated) == len(true) and all(map(alike, stated, true))
    if isinstance(stated, bool) or isinstance(true, bool):
        return stated is true
    if isinstance(stated, int | float) and isinstance(true, int | float):
        return math.isclose(stated, true, rel_tol=VERIFY.tolerance, abs_tol=1e-9)
    return bool(stated == true)
