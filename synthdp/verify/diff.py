"""Comparison of a second bundle with a first: budget, graph and table.

Each figure is better, worse, the same, or not comparable.

Both are verified before a word of them is believed. All figures are public; no row of the original
is needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from synthdp.bundle.content import Bundle
from synthdp.bundle.linked import LinkedBundle, stated_any
from synthdp.bundle.noisy_values import ESTIMANDS, read_tables
from synthdp.bundle.table_files import CSV_NAME
from synthdp.data.column_domain import ColumnDomain
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes, encode
from synthdp.data.level_groups import LevelGroups, Starts
from synthdp.errors import OutputError, VerifyError, one_thread
from synthdp.evaluate.dp_scores import headline
from synthdp.evaluate.fidelity import nearest_distribution
from synthdp.files import read_text
from synthdp.graph.causal import GraphDifference, difference
from synthdp.progress import Advance, stage
from synthdp.report.prose import estimated, number
from synthdp.report.sections import HELD
from synthdp.spec.amendment import differing
from synthdp.verify.checks import verify_bundle

Verdict = Literal["better", "worse", "same", "different", "not comparable"]


@dataclass(frozen=True)
class Difference:
    """One fact that both bundles state; `verdict` is of the second.

    `why` says what a number cannot.
    """

    topic: Literal["budget", "graph", "quality", "table"]
    what: str
    a: str | float | None
    b: str | float | None
    verdict: Verdict
    why: str = ""


@dataclass(frozen=True)
class BundleDifference:
    """All findings, and the graphs' difference link by link."""

    a: Path
    b: Path
    findings: tuple[Difference, ...]
    graph: GraphDifference | None  # None: the first is a plan

    def to_json(self) -> dict[str, Any]:
        found = list(map(asdict, self.findings))
        return {
            "a": str(self.a),
            "b": str(self.b),
            "findings": found,
            "graph": None if self.graph is None else self.graph.to_json(),
        }


def compare(a: Path, b: Path) -> BundleDifference:
    """Compare two bundles, or a file `a` with what `synthdp plan` says and the bundle that came.

    Raises:
        VerifyError: a bundle does not hold what it claims; names it, with every problem.
        OutputError: the file is no plan.
    """
    if a.is_file():
        with stage("verify the bundle") as progress:
            return against_plan(a, open_verified(b, progress))
    opened = []
    for name, folder in (("first", a), ("second", b)):
        with stage(f"verify the {name} bundle") as progress:
            opened.append(open_verified(folder, progress))
    with stage("compare"), one_thread():
        return differences(*opened)


def against_plan(plan: Path, got: Bundle) -> BundleDifference:
    """What a file with what `synthdp plan` says expected, beside a bundle that was verified.

    Raises:
        OutputError: the file is no plan.
    """
    try:
        found = tuple(_of_plan(json.loads(read_text(plan)), got))
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
        raise OutputError(
            f"{plan} is no plan",
            hint="give plan.json of a release's output folder, or what `synthdp plan SPEC"
            " --json` prints",
        ) from None
    return BundleDifference(plan, got.folder, found, None)


def differences(a: Bundle, b: Bundle, *, rows: bool = True) -> BundleDifference:
    """The findings on two bundles; those on their rows only where `rows` may be read."""
    graphs = difference(a.graph, b.graph)
    found = (
        *_budget(a, b),
        *_graph(a, b, graphs),
        *_table(a, b),
        *(_quality(a, b) if rows else ()),
    )
    return BundleDifference(a.folder, b.folder, found, graphs)


def open_verified(folder: Path, progress: Advance | None = None) -> Bundle:
    """A bundle, once `verify` found nothing wrong with it.

    Raises:
        VerifyError: it did.
    """
    verify_bundle(folder, progress=progress)
    try:
        return open_stated(folder)
    except (OSError, ValueError) as error:
        raise VerifyError(
            f"{folder}: was changed while it was read ({type(error).__name__})",
            hint="compare copies that nobody writes to",
        ) from None


def open_stated(folder: Path) -> Bundle:
    """What a bundle states, unverified; its graph and profile are read.

    Raises:
        OSError, ValueError, KeyError, TypeError, SynthdpError: it is not what it should be.
    """
    bundle = stated_any(folder)
    _ = bundle.graph, bundle.deltas
    return bundle


# --- budget ---


def _budget(a: Bundle, b: Bundle) -> Iterator[Difference]:
    one, two = a.certificate, b.certificate
    other = ""  # why no numbers of the two guarantees can be compared
    if one.adjacency != two.adjacency:
        other = "neighbours are other tables"
    elif (one.unit_meaning, one.unit_rows) != (two.unit_meaning, two.unit_rows):
        other = "another unit is protected"
    for what in ("adjacency", "unit_meaning", "unit_rows"):
        yield _equal("budget", what.replace("_", " "), getattr(one, what), getattr(two, what))
    yield _less("budget", "delta", one.delta, two.delta, why=other)
    deltas = "at different deltas; see the whole trade-off" if one.delta != two.delta else ""
    why = other or deltas
    yield _less("budget", "epsilon", one.epsilon, two.epsilon, why=why)
    yield _trade_off(a, b, why=other)
    sizes = sorted({g.size for g in one.groups} & {g.size for g in two.groups})[-1:]
    for size in sizes:
        bounds = [next(g.joint_epsilon for g in c.groups if g.size == size) for c in (one, two)]
        yield _less("budget", f"epsilon of groups of {size}", bounds[0], bounds[1], why=why)


def _trade_off(a: Bundle, b: Bundle, *, why: str) -> Difference:
    """The whole profile: better where delta is nowhere larger and somewhere smaller. It is compared
    at the epsilons of both. Noise is set so that epsilon ends within 1e-3 of the budget, and delta
    moves by some times as much: 1% of it is no difference that anybody acts on.
    """
    close = 1e-2
    shared = sorted(a.deltas.keys() & b.deltas.keys())
    above = any(b.deltas[e] > a.deltas[e] * (1 + close) + 1e-13 for e in shared)
    below = any(b.deltas[e] < a.deltas[e] * (1 - close) - 1e-13 for e in shared)
    at = "whole trade-off"
    values: tuple[float | None, float | None] = (None, None)
    if shared:
        nearest = min(shared, key=lambda e: abs(e - a.certificate.epsilon))
        at = f"delta at epsilon {nearest:g} of the whole trade-off"
        values = (a.deltas[nearest], b.deltas[nearest])
    if why or (above and below) or not shared:
        why = why or "the curves cross"
        return Difference("budget", at, *values, "not comparable", why)
    return Difference("budget", at, *values, "worse" if above else "better" if below else "same")


# --- a plan ---


def _of_plan(plan: Any, got: Bundle) -> Iterator[Difference]:
    """What was expected before any row was read, and what came: one draw of the noise."""
    stated = got.certificate
    yield _equal("table", "dataset", plan["dataset"], stated.dataset)
    yield _equal("budget", "spends", len(plan["spends"]), len(stated.planned))
    deltas = "at different deltas" if plan["delta"] != stated.delta else ""
    yield _less("budget", "delta", plan["delta"], stated.delta)
    yield _less("budget", "epsilon", plan["epsilon_spent"], stated.epsilon, why=deltas)
    if isinstance(got, LinkedBundle):
        yield from _of_noise(plan["score_noise"], got)
        return
    what, tv1 = "distance of single columns", plan["quality"]["tv1"]
    if (score := headline(stated.scores).get("tv1_dp")) is None:
        why = "no scores were paid for (evaluation.disclosure: private)"
        yield Difference("quality", what, tv1, None, "not comparable", why)
    else:
        told = f"95% interval {number(score.low)} to {number(score.high)}"
        inside = score.low <= tv1 <= score.high
        found = _less("quality", what, tv1, score.value, told=told)
        yield replace(found, verdict="same") if inside else found
    results = got.json(ESTIMANDS)["estimands"] if got.spec.estimands else ()
    figures = {(r["name"], f.get("group")): f for r in results for f in r["figures"]}
    for expected in plan["estimands"]:
        for figure in expected["figures"]:
            group = figure["group"]
            came = figures.get((expected["name"], group))
            ends = None if came is None else came.get("interval")
            half = None if ends is None else (float(ends[1]) - float(ends[0])) / 2
            none = "" if half is not None else "no figure can be told; "
            refused = f"{none}expected refused in {figure['refused']:.0%} of plays"
            name = f"half-width of {expected['text']}" + (f": {group}" if group else "")
            if came is not None:
                yield _less("quality", name, figure["half_width"], half, told=refused)


def _of_noise(expected: Mapping[str, float], got: LinkedBundle) -> Iterator[Difference]:
    """What noise was expected to make of each score of linked tables, and what it made."""
    for score in got.scores:
        told = f"of noise alone; distance {estimated(score.value, score.low, score.high)}"
        was = expected.get(score.name)
        found = _less("quality", score.name, was, score.noise, told=told)
        held = was is not None and was / HELD <= score.noise <= was * HELD
        yield replace(found, verdict="same") if held else found


# --- graph and table ---


def _graph(a: Bundle, b: Bundle, found: GraphDifference) -> Iterator[Difference]:
    yield _equal("graph", "mode", a.spec.graph.mode, b.spec.graph.mode)
    changes = (
        f"{len(found.added)} added, {len(found.removed)} removed, {len(found.turned)} turned;"
        f" {found.common} in common"
    )
    links = len(found.before.edges), len(found.after.edges)
    yield _equal("graph", "links", *links, same=found.same, why=changes)
    counts = [sum(e.provenance == "refuted" for e in o.graph.edges) for o in (a, b)]
    if any(counts):
        yield _equal("graph", "refuted arrows", *counts)


def _table(a: Bundle, b: Bundle) -> Iterator[Difference]:
    yield _equal("table", "dataset", a.spec.dataset.id, b.spec.dataset.id)
    gone, new = (
        [n for n in x.spec.columns if n not in y.spec.columns] for x, y in ((a, b), (b, a))
    )
    changed = [
        n for n, c in a.spec.columns.items() if n in b.spec.columns and c != b.spec.columns[n]
    ]
    said = {"gone": gone, "new": new, "declared otherwise": changed}
    why = "; ".join(f"{how}: {_some(names)}" for how, names in said.items() if names)
    columns = len(a.spec.columns), len(b.spec.columns)
    yield _equal("table", "columns", *columns, same=not why, why=why)
    yield _equal("table", "rows", a.spec.sampling.rows, b.spec.sampling.rows)
    one, two = a.spec.constraints, b.spec.constraints
    yield _equal("table", "constraints", len(one), len(two), same=one == two)
    keys = [".".join(map(str, loc)) for loc, *_ in differing(a.published, b.published)]
    yield _equal("table", "keys of the spec", None, None, same=not keys, why=_some(keys))


def _some(names: Sequence[str], most: int = 10) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _quality(a: Bundle, b: Bundle) -> Iterator[Difference]:
    parts = [*_parts(a, b)]
    common = [common_levels(one, two) for _, _, one, two in parts]
    why = ""
    if a.spec.dataset.id != b.spec.dataset.id:
        why = "they are of different datasets"
    elif not any(c.alike or c.merged for c in common):
        why = "no column has levels in both that could be compared"
    if why:
        what = "distance to the noisy tables"
        yield Difference("quality", what, None, None, "not comparable", why)
        return
    for part, own in zip(parts, common, strict=True):
        if own.alike or own.merged:
            yield from _distances(*part, own)


class View(NamedTuple):
    """The rows of a view of a bundle of linked tables, in the place of a bundle of one table."""

    bundle: LinkedBundle
    name: str


Part = tuple[Path | View, Path | View, Domain, Domain]


def _parts(a: Bundle, b: Bundle) -> Iterator[Part]:
    """What is compared, with its columns: the rows of both, of linked tables view by view."""
    if isinstance(a, LinkedBundle) and isinstance(b, LinkedBundle):
        for view, domain in a.frame.views.items():
            yield View(a, view), View(b, view), domain, b.frame.views[view]
    elif not isinstance(a, LinkedBundle) and not isinstance(b, LinkedBundle):
        yield a.folder, b.folder, a.domain, b.domain


def _distances(
    a: Path | View, b: Path | View, one: Domain, two: Domain, common: CommonLevels
) -> Iterator[Difference]:
    rows = f", rows of {a.name}" if isinstance(a, View) else ""
    only = "" if one == two else "; only of columns with the same levels"
    sides = Sides.read(a, b, one, two)
    for found in distances(sides):
        why = (
            f"mean total variation, {found.tables} tables; noise alone moves the difference by"
            f" {found.noise:.1g}{only}"
        )
        what = f"distance to noisy {found.ways}-way tables{rows}"
        yield Difference("quality", what, found.a, found.b, found.verdict, why)
    between = apart(sides)
    bins = f"; on the bins that both have: {_some(common.merged)}" if common.merged else ""
    rest = f"; left out, other levels: {_some(common.apart)}" if common.apart else ""
    verdict: Verdict = "same" if between == 0 else "different"
    what, why = f"distance between the two, 1-way{rows}", f"mean total variation{bins}{rest}"
    yield Difference("quality", what, None, between, verdict, why)


def _equal(
    topic: Literal["budget", "graph", "table"],
    what: str,
    a: Any,
    b: Any,
    *,
    same: bool | None = None,
    why: str = "",
) -> Difference:
    equal = a == b if same is None else same
    return Difference(topic, what, a, b, "same" if equal else "different", why)


def _less(
    topic: Literal["budget", "quality"],
    what: str,
    a: float | None,
    b: float | None,
    *,
    why: str = "",
    told: str = "",
) -> Difference:
    """A bound, where less is better; None is no bound at all. `why` says that nothing can be said
    of the two, and `told` what else is to be said.
    """
    if why:
        return Difference(topic, what, a, b, "not comparable", why)
    if a is None or b is None:
        verdict: Verdict = "same" if a is b else "better" if a is None else "worse"
        return Difference(topic, what, a, b, verdict, told)
    if abs(a - b) <= 1e-3 * max(a, b):  # noise is set so that epsilon ends within that
        return Difference(topic, what, a, b, "same", told)
    return Difference(topic, what, a, b, "better" if b < a else "worse", told)


# --- quality ---
#
# Distances of two synthetic tables to what was measured. Tables that both bundles measured on the
# same data are first pooled by inverse variance: neither is then held to a reference that is the
# other's alone. No row of the original is needed, and nothing is spent.


FloatArray = npt.NDArray[np.float64]


class Cells(NamedTuple):
    """The cells of a table: its columns, and the groups of levels of those that have any."""

    columns: tuple[str, ...]
    starts: tuple[tuple[str, Starts], ...] = ()


@dataclass(frozen=True)
class PooledTable:
    """A noisy table, its counts `[cells]` in C order, and the parameter of its noise, in counts."""

    counts: FloatArray
    sigma: float

    def pooled(self, other: PooledTable) -> PooledTable:
        """Both, averaged by inverse variance."""
        mine, theirs = self.sigma**-2, other.sigma**-2
        return PooledTable(
            (mine * self.counts + theirs * other.counts) / (mine + theirs), (mine + theirs) ** -0.5
        )


@dataclass(frozen=True)
class Distance:
    """Mean total variation of two synthetic tables to the same noisy tables, in [0, 1].

    Each noisy table is over `ways` columns.

    `noise` is the standard deviation of their difference when the tables are measured again
    (`_noise_of`).
    """

    ways: int
    tables: int
    a: float
    b: float
    noise: float

    @property
    def verdict(self) -> Verdict:
        """What the second is, compared with the first."""
        if abs(self.b - self.a) <= 2 * self.noise:  # standard deviations
            return "same"
        return "better" if self.b < self.a else "worse"


def measured_tables(bundle: Path | View) -> dict[Cells, PooledTable]:
    """The noisy tables of a verified bundle; several of the same columns are pooled."""
    found: dict[Cells, PooledTable] = {}
    read = bundle.bundle.of_view(bundle.name) if isinstance(bundle, View) else read_tables(bundle)
    for table in read:
        cells = Cells(table.columns, tuple(sorted(table.starts.items())))
        new = PooledTable(table.counts.ravel(), table.sigma)
        found[cells] = found[cells].pooled(new) if cells in found else new
    return found


def references(
    a: Mapping[Cells, PooledTable], b: Mapping[Cells, PooledTable]
) -> dict[Cells, PooledTable]:
    """The tables of both bundles, pooled where both have them."""
    return {
        c: a[c].pooled(b[c]) if c in a and c in b else (a if c in a else b)[c]
        for c in sorted({*a, *b})
    }


@dataclass(frozen=True)
class Sides:
    """What is compared of two bundles, whose tables are read once: the tables that either measured,
    and shares of their cells in the rows of each (`shares`), with those of the columns alone.

    Tables of columns that have the same levels are compared, and ranges with other bins on the bins
    that both have (`alone`, by column: the cells of either side).
    """

    against: Mapping[Cells, PooledTable]
    alone: Sequence[tuple[Cells, Cells]]
    shares: tuple[Mapping[Cells, FloatArray], Mapping[Cells, FloatArray]]

    @classmethod
    def read(
        cls, a: Path | View, b: Path | View, domain: Domain, other: Domain | None = None
    ) -> Sides:
        """Both have the `domain`, or the first has it and the second the `other`."""
        other = domain if other is None else other
        common = common_levels(domain, other)
        measured = [
            {c: t for c, t in measured_tables(bundle).items() if {*common.alike} >= {*c.columns}}
            for bundle in (a, b)
        ]
        against = references(*measured)
        alone = [(Cells((name,)), Cells((name,))) for name in common.alike]
        for name in common.merged:
            one, two = (Cells((name,), ((name, starts),)) for starts in common.starts[name])
            alone.append((one, two))
        first, second = (
            synthetic_shares(bundle, own, tuple({*against, *(cells[side] for cells in alone)}))
            for side, (bundle, own) in enumerate(((a, domain), (b, other)))
        )
        return cls(against, alone, (first, second))


def distances(sides: Sides) -> Iterator[Distance]:
    """Distances of both bundles' rows to what either measured, by number of columns."""
    against, shares = sides.against, sides.shares
    for ways in sorted({len(c.columns) for c in against}):
        chosen = [c for c in against if len(c.columns) == ways]
        true = {c: nearest_distribution(against[c].counts) for c in chosen}
        means = [float(np.mean([np.abs(s[c] - true[c]).sum() / 2 for c in chosen])) for s in shares]
        noise = _noise_of(shares, {c: against[c] for c in chosen})
        yield Distance(ways, len(chosen), means[0], means[1], noise)


def _noise_of(
    shares: Sequence[Mapping[Cells, FloatArray]], against: Mapping[Cells, PooledTable]
) -> float:
    """Standard deviation of the difference of two mean distances. Noise is added to the reference
    64 times (a parametric bootstrap). The seed is fixed, so that a comparison can be
    repeated; nothing here hides anything.
    """
    rng, moved = np.random.default_rng(0), np.zeros(64)
    for columns, table in against.items():
        for i in range(len(moved)):
            noise = rng.normal(0, table.sigma, len(table.counts))
            again = nearest_distribution(table.counts + noise)
            first, second = (float(np.abs(own[columns] - again).sum()) for own in shares)
            moved[i] += (second - first) / 2
    return float(np.std(moved, ddof=1)) / len(against)


def apart(sides: Sides) -> float:
    """Mean total variation between the one-way tables of the two synthetic tables, in [0, 1]."""
    one, two = sides.shares
    return float(np.mean([np.abs(one[a] - two[b]).sum() / 2 for a, b in sides.alone]))


def synthetic_shares(
    bundle: Path | View, domain: Domain, tables: Sequence[Cells]
) -> dict[Cells, FloatArray]:
    """Shares of the cells of each table in a verified bundle's synthetic rows.

    Each has shape `[cells]` in C order.
    """
    groups = {c: LevelGroups(domain, dict(c.starts)) for c in tables}
    counts = {c: np.zeros(groups[c].coarse.cells(c.columns), np.int64) for c in tables}
    for codes in _levels_in(bundle, domain):
        for table in tables:
            own = groups[table]
            levels = [own.group_of(n)[codes[:, domain.index(n)]] for n in table.columns]
            sizes = [own.coarse[n].levels for n in table.columns]
            cells = np.ravel_multi_index(tuple(levels), tuple(sizes))
            counts[table] += np.bincount(cells, minlength=len(counts[table]))
    return {c: n / max(1, n.sum()) for c, n in counts.items()}


def _levels_in(bundle: Path | View, domain: Domain) -> Iterator[Codes]:
    """Levels of a bundle's rows, block by block."""
    if isinstance(bundle, View):
        yield bundle.bundle.views.codes[bundle.name]
        return
    options: dict[str, Any] = {"dtype": str, "keep_default_na": False, "na_values": [""]}
    with pd.read_csv(bundle / CSV_NAME, chunksize=100_000, encoding="utf-8", **options) as chunks:
        for chunk in chunks:
            yield encode(domain, chunk)[0]


# --- common levels: equal ones, or common bins ---


@dataclass(frozen=True)
class CommonLevels:
    """Columns of two domains by what their levels have in common.

    `alike` have the same levels, `merged` are ranges that are compared on the bins that begin in
    both, `apart` are columns of both whose levels have too little in common. `starts` has the first
    level of each common bin of the merged columns, of both domains.
    """

    alike: tuple[str, ...]
    merged: tuple[str, ...]
    apart: tuple[str, ...]
    starts: dict[str, tuple[Starts, Starts]]


def common_levels(a: Domain, b: Domain) -> CommonLevels:
    """What two domains have in common.

    >>> from synthdp.spec.model import Integer
    >>> whole = {"type": "integer", "lower": 0, "upper": 99}
    >>> ages = [Integer(**whole, edges=edges) for edges in ((0, 20, 40, 60), (0, 40, 50, 60))]
    >>> common_levels(*(Domain.from_spec({"age": age}) for age in ages)).starts
    {'age': ((0, 2, 3), (0, 1, 3))}
    """
    both = [name for name in a.names if name in b.names]
    alike = tuple(name for name in both if a[name] == b[name])
    starts = {
        name: found for name in both if name not in alike and (found := _starts(a[name], b[name]))
    }
    rest = tuple(name for name in both if name not in alike and name not in starts)
    return CommonLevels(alike, tuple(starts), rest, starts)


def _starts(one: ColumnDomain, other: ColumnDomain) -> tuple[Starts, Starts] | None:
    """First levels of the common groups of two ranges; None where they have no two bins alike."""
    shared = set(one.edges) & set(other.edges)
    bare = [replace(column, edges=(), labels=(), grouped=False) for column in (one, other)]
    if not one.ranged or bare[0] != bare[1] or len(shared) < 2:
        return None
    return _begins(one, shared), _begins(other, shared)


def _begins(column: ColumnDomain, shared: set[float]) -> Starts:
    spikes = len(column.spikes)
    bins = [spikes + i for i, edge in enumerate(column.edges) if edge in shared]
    missing = [] if column.missing_level is None else [column.missing_level]
    return (*range(spikes), *bins, *missing)
