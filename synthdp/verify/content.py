"""The checks of what a bundle publishes: table, noisy counts and model; that of the graph is in
`rewritten`.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from synthdp.bundle.noisy_values import (
    PRIOR,
    earlier_waves,
    read_heaps,
    read_prior,
    read_tables,
    tables_of,
)
from synthdp.bundle.table_files import CSV_NAME, check_header
from synthdp.data.domain import ColumnDomain, Domain
from synthdp.data.encoding import Codes, encode_column
from synthdp.data.kinds import column_kind
from synthdp.data.level_groups import LevelGroups
from synthdp.errors import VerifyError
from synthdp.graph.causal import CausalGraph
from synthdp.graph.level_groups import LevelLaw, groups_of
from synthdp.graph.predict import prior_used
from synthdp.graph.prior import paired
from synthdp.graph.waves import with_earlier
from synthdp.model.constraints import Constraints
from synthdp.model.synthesizer import Synthesizer
from synthdp.privacy.events.kernel import ThresholdedGaussianDpEvent
from synthdp.privacy.events.kinds import event_from_json, kind_of
from synthdp.privacy.mechanisms.frequent_texts import TextBudget
from synthdp.privacy.noise import fresh_generator
from synthdp.privacy.plan import HEAPS, SERVES, TABLE_USES
from synthdp.privacy.table import Columns
from synthdp.verify.reader import VERIFY, Reader, wrong

PICKLE_STARTS = (b"\x80", b"PK\x03\x04", b"(", b"c", b"]", b"}")


# --- the table ---


def check_csv(reader: Reader) -> Iterator[str]:
    """The table has the spec's header and number of rows, and fits its domain and constraints."""
    spec, path = reader.spec, reader.folder / CSV_NAME
    domain = Domain.written(spec.columns)
    constraints = Constraints.from_spec(spec, Domain.from_spec(spec.columns))
    rows = 0
    outside, miscomputed, violated = Counter[str](), Counter[str](), Counter[str]()
    try:
        for chunk, codes in parts_of(path, domain, spec.sampling.rows or 0, outside):
            rows += len(chunk)
            _keep(reader, np.column_stack([codes[name] for name in spec.modelled]))
            for name, differs in constraints.derived.wrong_in(chunk).items():
                miscomputed[name] += int(differs.sum())
            for text, wrong in constraints.violated_in(chunk).items():
                violated[text] += int(wrong.sum())
    except VerifyError as error:
        yield str(error)
        return
    if rows != spec.sampling.rows:
        yield f"{CSV_NAME}: has {rows} rows; the spec says {spec.sampling.rows}"
    yield from outside_told(path, outside)
    for name, count in (+miscomputed).items():
        yield f"{CSV_NAME}: {name!r} is not what the spec computes it from in {count} rows"
    for text, count in (+violated).items():
        yield f"{CSV_NAME}: {count} rows do not fulfil the constraint {text!r}"


def parts_of(
    path: Path, domain: Domain, rows: int, outside: Counter[str]
) -> Iterator[tuple[pd.DataFrame, dict[str, npt.NDArray[np.uint16]]]]:
    """An untrusted CSV of `rows` rows at most, a part at a time: its text, and levels by column.
    `outside` counts the values of each column that are not in its domain.

    Raises:
        VerifyError: it is larger, or a line has other fields than `domain`.
    """
    if path.stat().st_size > most_bytes(domain, rows):
        raise VerifyError(
            f"{path.name}: is larger than a table of the spec's columns and rows can be"
        )
    check_header(path, domain.names)
    try:
        for chunk in chunks(path):
            if tuple(chunk.columns) != domain.names:
                raise VerifyError(f"{path.name}: its header is not the spec's columns in order")
            codes = {}
            for column in domain.columns:
                misfits, codes[column.name] = misfits_of(column, chunk[column.name])
                outside[column.name] += misfits
            yield chunk, codes
    except pd.errors.ParserWarning:
        raise VerifyError(f"{path.name}: a row has more fields than the header") from None


def outside_told(path: Path, outside: Counter[str]) -> Iterator[str]:
    """What `outside` of `parts_of` says."""
    for name, count in (+outside).items():
        yield f"{path.name}: column {name!r}: {count} values are not in the declared domain"


def chunks(path: Path) -> Iterator[pd.DataFrame]:
    """The table as text, a part at a time.

    Raises:
        pd.errors.ParserWarning: a row has more fields than the header.
    """
    options: dict[str, Any] = {"dtype": str, "keep_default_na": False, "na_filter": False}
    options |= {"chunksize": 200_000, "skip_blank_lines": False, "index_col": False}
    with warnings.catch_warnings():
        # By default pandas drops surplus fields with a warning only.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        with pd.read_csv(path, encoding="utf-8", **options) as chunks:
            yield from chunks


def most_bytes(domain: Domain, rows: int) -> int:
    """The most bytes of a CSV table with `rows` rows and a header.

    The text is UTF-8, and every character may be a quotation mark, which is doubled.
    """
    header = sum(2 * len(name.encode()) + 4 for name in domain.names)
    labels = (map(len, map(str.encode, c.labels)) for c in domain.columns)
    widest = sum(max(32, *lengths) for lengths in labels)  # no number or date is longer
    return header + rows * (2 * widest + 4 * len(domain))


def _keep(reader: Reader, codes: Codes) -> None:
    """Keep a sample of the rows to compare with the model. Each row has the same probability, and
    no forger can know which rows are chosen.
    """
    if (wanted := reader.spec.sampling.rows or 1) > VERIFY.kept:
        codes = codes[fresh_generator().random(len(codes)) < VERIFY.kept / wanted]
    if len(codes) and sum(map(len, reader.rows)) <= 2 * VERIFY.kept:
        reader.rows.append(codes)


def misfits_of(column: ColumnDomain, text: pd.Series[str]) -> tuple[int, npt.NDArray[np.uint16]]:
    """Number of values outside the domain, and the levels of all values `[rows]`.

    Values are read as strictly as they were written.
    """
    kind = column_kind(column)
    values = kind.parsed(column, text)
    malformed = int(kind.malformed(column, text, values).sum())
    encoded = encode_column(column, values)
    return malformed or encoded.misfits, encoded.codes


# --- counts, model ---


def check_marginals(reader: Reader) -> Iterator[str]:
    """The noisy tables have the domain's shape, and no more precision than was paid for; a prior is
    what they say."""
    domain = Domain.from_spec(reader.spec.columns)
    precision, grouped = 0.0, dict[str, tuple[int, ...]]()
    for table in reader.json("marginals.json")["tables"]:
        columns = list(map(str, table["columns"]))
        name = f"marginals.json: table {', '.join(columns)}"
        if len(set(columns)) != len(columns) or not set(columns) <= set(domain.names):
            yield f"{name}: is not over the spec's columns"
            continue
        starts = {c: tuple(s) for c, s in table.get("starts", {}).items()}
        if not starts.keys() <= set(columns):
            yield f"{name}: groups levels of a column that it does not have"
            continue
        if any(grouped.setdefault(c, s) != s for c, s in starts.items()):
            yield f"{name}: groups levels otherwise than the tables before it"
            continue
        try:
            coarse = LevelGroups(domain, starts).coarse
        except ValueError as error:
            yield f"{name}: has {error}"
            continue
        shape = [coarse[c].levels for c in columns]
        if table["shape"] != shape or len(table["counts"]) != math.prod(shape):
            yield f"{name}: its shape is not {shape}"
        counts = np.asarray(table["counts"], dtype=np.float64)
        if not np.isfinite(counts).all():
            yield f"{name}: a count is not a number"
        elif (counts % 1).any():
            yield f"{name}: a count is not whole, as noisy counts are"
        if not table["sigma"] > 0:
            yield f"{name}: sigma must be above 0"
            continue
        precision += table["sigma"] ** -2
    paid = sum(
        kind_of(event_from_json(e.body["event"])).table_precision
        for e in reader.charges
        if {*TABLE_USES} <= {*SERVES.get(e.body["purpose"], TABLE_USES)}  # those of a graph, too
    )
    if precision > paid * (1 + 1e-9):
        yield "marginals.json: claims less noise than the ledger's charges paid for"
    yield from (f"marginals.json: heaps: {problem}" for problem in _heap_problems(reader, domain))
    yield from _prior_problems(reader)


def _heap_problems(reader: Reader, domain: Domain) -> Iterator[str]:
    """How the heaps are not what the ledger's charge paid for: whole noisy counts from a threshold
    on, of numbers inside bounds, in the columns that the spec names.
    """
    spec, told, charges = reader.spec, read_heaps(reader.folder), reader.paid(HEAPS)
    asked = spec.privacy.shares.heaps > 0
    if (told is not None, len(charges)) != (asked, int(asked)):
        yield "the spec's share for them, the charges and what was told do not agree"
        return
    if told is None:
        return
    event = event_from_json(charges[0])
    if not isinstance(event, ThresholdedGaussianDpEvent):
        yield "their charge is of another kind"
        return
    budget = TextBudget(event.sigma, event.delta, spec.dataset.privacy_unit.max_rows, "numbers")
    paid = budget.choose(dict.fromkeys(spec.privacy.heaps, "number"))
    counts = [n for own in told.counts.values() for n in own.values()]
    sure = math.isclose(told.sigma, paid.sigma, rel_tol=VERIFY.tolerance)
    numbers = [(domain[name], float(n)) for name, own in told.counts.items() for n in own]
    outside = any(not column.lower <= number <= column.upper for column, number in numbers)
    yield from wrong(
        (not sure or told.threshold != paid.threshold, "have not the noise that was paid for"),
        (min(counts, default=paid.threshold) < paid.threshold, "a count is below the threshold"),
        (tuple(told.counts) != spec.privacy.heaps, "are not of the columns that the spec names"),
        (outside, "a number is out of its column's bounds"),
    )


def _prior_problems(reader: Reader) -> Iterator[str]:
    """The prior is there exactly where the spec has one, by its digest: counts of the same public
    rows in all of its tables, which are those that the model follows, used as much as they say.
    """
    stated = reader.spec.prior
    if (stated is not None) != reader.holds(PRIOR):
        has = "is missing, and the spec has a prior"
        yield f"{PRIOR}: {has if stated else 'does not belong in this bundle; the spec has none'}"
        return
    prior = read_prior(reader.folder)
    if stated is None or prior is None:
        return
    if stated.sha256 is None:
        yield "spec.yaml: its prior has no digest"
    domain, counts = Domain.from_spec(reader.spec.columns), dict(prior.counts)
    earlier = tables_of(earlier_waves(reader.folder, reader.spec), domain)
    tables = with_earlier(read_tables(reader.folder), earlier)
    law = LevelLaw.of_tables(tables, domain, prior)
    known, groups = [n for n in domain.names if (n,) in counts], law.groups
    shapes: dict[Columns, tuple[int, ...]] = {(n,): (domain[n].levels,) for n in known}
    if reader.json("model.json")["architecture"].get("direct", False):
        pairs = (pair for pair in paired(tables, domain.names) if {*pair} <= {*known})
        shapes |= {(a, b): (groups.coarse[a].levels, groups.coarse[b].levels) for a, b in pairs}
    if not known or {names: table.shape for names, table in counts.items()} != shapes:
        yield f"{PRIOR}: its tables are not those of the spec's columns and the measured pairs"
        return
    sums = {n: groups.sums(n, counts[n,]) for n in known}
    rows = {float(alone.sum()) for alone in sums.values()}
    counted = all((t >= 0).all() and not (t % 1).any() for t in counts.values())
    agree = all(
        np.array_equal(table.sum(1 - axis), sums[name])
        for names, table in counts.items()
        if len(names) > 1
        for axis, name in enumerate(names)
    )
    if not counted or not agree or len(rows) > 1 or 0 in rows:
        yield f"{PRIOR}: its tables are not counts of the same rows"
        return
    used = prior_used(law)
    stating = {tuple(t["columns"]): float(t["used"]) for t in reader.json(PRIOR)["tables"]}
    if any(not math.isclose(stating[n], used[n], abs_tol=VERIFY.used) for n in used):
        yield f"{PRIOR}: what was used of it does not follow from it and the noisy tables"


def check_model(reader: Reader) -> Iterator[str]:
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
            wide = [name for name in shapes if name not in narrow]
            infinite = [name for name in wide if not np.isfinite(file.get_tensor(name)).all()]
    except SafetensorError:
        with path.open("rb") as raw:
            pickled = raw.read(4).startswith(PICKLE_STARTS)
        yield "model.safetensors: is not a safetensors file" + (
            "; it looks like a pickle, which can run code: do not open it" if pickled else ""
        )
        return
    if shapes != stated:
        names = sorted(n for n in {*shapes, *stated} if shapes.get(n) != stated.get(n))
        wrong = ", ".join(names[:5])
        yield f"model.safetensors: tensors and shapes are not those of model.json: {wrong}"
    yield from (f"model.safetensors: {name} is not of 32-bit floating point" for name in narrow)
    yield from (f"model.safetensors: {name} holds NaN or infinity" for name in infinite)
    if shapes == stated and not narrow and not infinite:
        Synthesizer.load(reader.folder)


def _architecture_problems(model: dict[str, Any], reader: Reader) -> Iterator[str]:
    """The model has the spec's columns and levels, and the parents of the graph."""
    domain = Domain.from_spec(reader.spec.columns)
    columns, architecture = model["columns"], model["architecture"]
    levels = groups_of(read_tables(reader.folder), domain).coarse.sizes
    if columns != list(domain.names) or architecture["sizes"] != list(levels):
        yield "model.json: columns or levels are not the spec's"
        return
    graph = CausalGraph.from_json(reader.json("graph.json"))
    for column, parents in zip(columns, architecture["parents"], strict=True):
        if {columns[p] for p in parents} != set(graph.parents(column)):
            yield f"model.json: the parents of {column!r} are not those of graph.json"
