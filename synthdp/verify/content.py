"""The checks of what a bundle publishes: table, graph, noisy counts, model."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from synthdp.bundle.metadata.datapackage import CSV_NAME, check_header
from synthdp.bundle.metadata.readme import graph_title
from synthdp.data.domain import ColumnDomain, Domain
from synthdp.data.encoding import Codes, encode_column
from synthdp.data.kinds import column_kind
from synthdp.errors import VerifyError
from synthdp.graph.causal import CausalGraph
from synthdp.graph.discovery.measuring import MAX_CELLS
from synthdp.graph.implications import MAX_TABLES, Implication, claimed
from synthdp.graph.validation import STATUSES
from synthdp.model.constraints import Constraints
from synthdp.model.synthesizer import Synthesizer
from synthdp.privacy.events.kinds import event_from_json, kind_of
from synthdp.privacy.noise import fresh_generator
from synthdp.privacy.plan import SCORES
from synthdp.verify.reader import Check, Reader

CHUNK_ROWS = 200_000
MAX_KEPT = 50_000  # rows
LONGEST_NUMBER = 32  # characters of a number or a date
ACTIVE_SVG = re.compile(
    r"<script|<!DOCTYPE|<!ENTITY|<foreignObject|\son\w+\s*=|javascript:|(href|src)\s*=\s*[\"'](?!#)",
    re.IGNORECASE,
)
PICKLE_STARTS = (b"\x80", b"PK\x03\x04", b"(", b"c", b"]", b"}")


# --- the table ---


def _check_csv(reader: Reader) -> Iterator[str]:
    """Header in the spec's order, the spec's number of rows, every value in its domain, every row
    as the constraints say.
    """
    spec, path = reader.spec, reader.folder / CSV_NAME
    domain, rows = Domain.written(spec.columns), 0
    constraints = Constraints.from_spec(spec, Domain.from_spec(spec.columns))
    if path.stat().st_size > most_bytes(domain, spec.sampling.rows or 0):
        yield f"{CSV_NAME}: is larger than a table of the spec's columns and rows can be"
        return
    try:
        check_header(path, domain.names)
    except VerifyError:
        yield f"{CSV_NAME}: its header is not the spec's columns in order"
        return
    bad, broken, wrong = (
        dict.fromkeys(domain.names, 0),
        dict.fromkeys(spec.constraints, 0),
        dict.fromkeys(constraints.derived.names, 0),
    )
    options: dict[str, Any] = {
        "dtype": str,
        "keep_default_na": False,
        "na_filter": False,
        "encoding": "utf-8",
        "index_col": False,
    }
    with warnings.catch_warnings():
        warnings.simplefilter(
            "error", pd.errors.ParserWarning
        )  # pandas would drop surplus fields with a warning only
        try:
            with pd.read_csv(
                path, chunksize=CHUNK_ROWS, skip_blank_lines=False, **options
            ) as chunks:
                for chunk in chunks:
                    if tuple(chunk.columns) != domain.names:
                        yield f"{CSV_NAME}: its header is not the spec's columns in order"
                        return
                    rows += len(chunk)
                    codes = {}
                    for column in domain.columns:
                        misfits, codes[column.name] = _misfits(column, chunk[column.name])
                        bad[column.name] += misfits
                    _keep(reader, np.column_stack([codes[name] for name in spec.modelled]))
                    for text, violated in constraints.violated_in(chunk).items():
                        broken[text] += int(violated.sum())
                    for name, differs in constraints.derived.wrong_in(chunk).items():
                        wrong[name] += int(differs.sum())
        except pd.errors.ParserWarning:
            yield f"{CSV_NAME}: a row has more fields than the header"
            return
    if rows != spec.sampling.rows:
        yield f"{CSV_NAME}: has {rows} rows; the spec says {spec.sampling.rows}"
    yield from (
        f"{CSV_NAME}: column {name!r}: {count} values are not in the declared domain"
        for name, count in bad.items()
        if count
    )
    yield from (
        f"{CSV_NAME}: {name!r} is not what the spec computes it from in {count} rows"
        for name, count in wrong.items()
        if count
    )
    yield from (
        f"{CSV_NAME}: {count} rows do not fulfil the constraint {text!r}"
        for text, count in broken.items()
        if count
    )


def most_bytes(domain: Domain, rows: int) -> int:
    """The most bytes that a table of `rows` rows and its header take in CSV: UTF-8 with every
    quotation mark doubled.
    """

    def quoted(texts: Iterable[str]) -> int:
        return sum(2 * len(text.encode()) + 4 for text in texts)

    widest = sum(
        max(LONGEST_NUMBER, *(len(label.encode()) for label in c.labels)) for c in domain.columns
    )
    return quoted(domain.names) + rows * (2 * widest + 4 * len(domain))


def _keep(reader: Reader, codes: Codes) -> None:
    """Keep rows to hold against the model, each with the same chance: no forger knows which."""
    wanted = max(1, reader.spec.sampling.rows or 1)
    chosen = (
        codes
        if wanted <= MAX_KEPT
        else codes[fresh_generator().random(len(codes)) < MAX_KEPT / wanted]
    )
    if len(chosen) and sum(map(len, reader.rows)) <= 2 * MAX_KEPT:
        reader.rows.append(chosen)


def _misfits(column: ColumnDomain, text: pd.Series[str]) -> tuple[int, npt.NDArray[np.uint16]]:
    """Number of values that the domain does not hold, read as strictly as they were written; and
    the levels of the others.
    """
    kind = column_kind(column)
    values = kind.parsed(column, text)
    malformed = int(kind.malformed(column, text, values).sum())
    encoded = encode_column(column, values)
    return malformed or encoded.misfits, encoded.codes


# --- graph, counts, model ---


def _check_graph(reader: Reader) -> Iterator[str]:
    """A graph without cycles over the spec's columns; the spec's own where it is given. The picture
    runs no code.
    """
    spec = reader.spec
    content = reader.json("graph.json")
    if isinstance(content, dict) and content.get("nodes", list(spec.modelled)) != list(
        spec.modelled
    ):
        yield "graph.json: its nodes are not the spec's columns"
        return
    graph = CausalGraph.from_json(content)
    own = CausalGraph.from_spec(spec.graph, tuple(spec.modelled))
    if spec.graph.mode in ("none", "given") and set(graph.edges) != set(own.edges):
        yield "graph.json: its arrows are not the spec's"
    yield from _validation_problems(content.get("validation"), graph, reader)
    picture = reader.text("graph.svg")
    if picture != graph.to_svg(title=graph_title(spec)):
        yield (
            "graph.svg:"
            f" {'holds a script, an entity or a link' if ACTIVE_SVG.search(picture) else 'does not show graph.json'}"  # noqa: E501
        )


def _validation_problems(stated: Any, graph: CausalGraph, reader: Reader) -> Iterator[str]:
    """What was found of a given graph: of claims that the spec's graph makes, counted right, and
    the same as its arrows say.
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
    found = [Implication(f["x"], f["y"], tuple(f["given"]), f["kind"]) for f in stated["findings"]]
    if sum(c.kind == "independence" for c in found) > MAX_TABLES or any(
        c.kind not in ("arrow", "independence") for c in found
    ):
        yield "graph.json: validation: holds more claims than are tested, or one of no kind"
        return
    domain = Domain.from_spec(reader.spec.columns)
    once = len({frozenset((c.x, c.y)) for c in found}) == len(found)  # of a pair there is one claim
    if not once or not all(claimed(given, c, domain, max_cells=MAX_CELLS) for c in found):
        yield (
            "graph.json: validation: holds a claim twice, or one that the spec's graph does not"
            " make"
        )
    statuses = [(f["kind"], f["status"]) for f in stated["findings"]]
    if stated["counts"] != {
        kind: {s: statuses.count((kind, s)) for s in STATUSES} for kind in ("arrow", "independence")
    }:
        yield "graph.json: validation: its counts are not those of its findings"
    arrows = {(f["x"], f["y"]): f["status"] for f in stated["findings"] if f["kind"] == "arrow"}
    expected = {pair: arrows.get(pair, "given") for pair in given.directed}
    if settings.on_refuted == "drop":
        expected = {pair: status for pair, status in expected.items() if status != "refuted"}
    if settings.on_refuted == "fail" and any(status == "refuted" for _, status in statuses):
        yield "graph.json: validation: a claim is refuted, which the spec says withholds the bundle"
    if {e.pair: e.provenance for e in graph.edges} != expected:
        yield "graph.json: its arrows are not marked as its validation found them"


def _check_marginals(reader: Reader) -> Iterator[str]:
    """Tables over the spec's columns, of the domain's shape, no more precise than what was paid
    for.
    """
    domain = Domain.from_spec(reader.spec.columns)
    precision = 0.0
    for table in reader.json("marginals.json")["tables"]:
        columns = [str(c) for c in table["columns"]]
        name = f"marginals.json: table {', '.join(columns)}"
        if len(set(columns)) != len(columns) or not set(columns) <= set(domain.names):
            yield f"{name}: is not over the spec's columns"
            continue
        shape = [domain[c].levels for c in columns]
        if table["shape"] != shape or len(table["counts"]) != math.prod(shape):
            yield f"{name}: its shape is not {shape}"
        if not np.isfinite(np.asarray(table["counts"], dtype=np.float64)).all():
            yield f"{name}: a count is not a number"
        if not table["sigma"] > 0:
            yield f"{name}: sigma must be above 0"
            continue
        precision += table["sigma"] ** -2
    paid = sum(
        kind_of(event_from_json(e.body["event"])).table_precision
        for e in reader.charges
        if e.body["purpose"] != SCORES
    )
    if precision > paid * (1 + 1e-9):
        yield "marginals.json: claims less noise than the ledger's charges paid for"


def _check_model(reader: Reader) -> Iterator[str]:
    """The model is safetensors, finite, and has the tensors and shapes that model.json states."""
    from safetensors import SafetensorError, safe_open

    path = reader.folder / "model.safetensors"
    model = reader.json("model.json")
    yield from _architecture_problems(model, reader)
    stated = model["shapes"]
    try:
        with safe_open(path, framework="numpy") as file:
            shapes = {name: list(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
            narrow = [name for name in shapes if file.get_slice(name).get_dtype() != "F32"]
            infinite = [
                name
                for name in shapes
                if name not in narrow and not np.isfinite(file.get_tensor(name)).all()
            ]
    except SafetensorError:
        with path.open("rb") as raw:
            pickled = raw.read(4).startswith(PICKLE_STARTS)
        yield "model.safetensors: is not a safetensors file" + (
            "; it looks like a pickle, which can run code: do not open it" if pickled else ""
        )
        return
    if shapes != stated:
        names = sorted(n for n in {*shapes, *stated} if shapes.get(n) != stated.get(n))
        yield (
            "model.safetensors: tensors and shapes are not those of model.json:"
            f" {', '.join(names[:5])}"
        )
    yield from (f"model.safetensors: {name} is not of 32-bit floating point" for name in narrow)
    yield from (f"model.safetensors: {name} holds NaN or infinity" for name in infinite)
    if shapes == stated and not narrow and not infinite:
        Synthesizer.load(reader.folder)


def _architecture_problems(model: dict[str, Any], reader: Reader) -> Iterator[str]:
    """The model is over the spec's columns and levels, and each column's parents are those of the
    graph.
    """
    domain = Domain.from_spec(reader.spec.columns)
    columns, architecture = model["columns"], model["architecture"]
    if columns != list(domain.names) or architecture["sizes"] != list(domain.sizes):
        yield "model.json: columns or levels are not the spec's"
        return
    graph = CausalGraph.from_json(reader.json("graph.json"))
    for column, parents in zip(columns, architecture["parents"], strict=True):
        if {columns[p] for p in parents} != set(graph.parents(column)):
            yield f"model.json: the parents of {column!r} are not those of graph.json"


CONTENT_CHECKS: dict[str, tuple[str, Check]] = {
    "table": (CSV_NAME, _check_csv),
    "graph": ("graph.json", _check_graph),
    "noisy counts": ("marginals.json", _check_marginals),
    "model": ("model.safetensors", _check_model),
}
