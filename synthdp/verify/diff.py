"""Comparison of a second bundle with a first: budget, graph and table.

Each figure is better, worse, the same, or not comparable.

Both are verified before a word of them is believed. All figures are public; no row of the original
is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from synthdp.bundle.certificate.facts import Certificate
from synthdp.data.domain import Domain
from synthdp.errors import VerifyError
from synthdp.files import parse_json, read_text
from synthdp.graph.causal import CausalGraph
from synthdp.graph.diff import GraphDifference, difference
from synthdp.progress import Advance, Reporter
from synthdp.spec.load.loader import parse_spec
from synthdp.spec.model import ReleaseSpec
from synthdp.verify.checks import verify_bundle
from synthdp.verify.common_levels import common_levels
from synthdp.verify.quality import apart, distances

Verdict = Literal["better", "worse", "same", "different", "not comparable"]
MAX_NAMED = 10  # columns
# Relative differences of bounds that nobody acts on: noise is set so that epsilon ends within that
# of the budget, and delta moves by some times as much.
CLOSE, CLOSE_DELTA = 1e-3, 1e-2


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
    graph: GraphDifference

    def to_json(self) -> dict[str, Any]:
        """JSON object."""
        return {
            "a": str(self.a),
            "b": str(self.b),
            "findings": [asdict(f) for f in self.findings],
            "graph": self.graph.to_json(),
        }


@dataclass(frozen=True)
class Opened:
    """A verified bundle."""

    folder: Path
    spec: ReleaseSpec
    certificate: Certificate
    graph: CausalGraph
    profile: dict[float, float]

    @property
    def domain(self) -> Domain:
        """Its columns and levels."""
        return Domain.from_spec(self.spec.columns)


def compare(a: Path, b: Path, *, reporter: Reporter | None = None) -> BundleDifference:
    """Compare two bundles.

    Raises:
        VerifyError: one of them does not hold what it claims; names it, with every problem.
    """
    reporter = reporter or Reporter()
    opened = []
    for name, folder in (("first", a), ("second", b)):
        with reporter.stage(f"verify the {name} bundle") as progress:
            opened.append(open_verified(folder, progress))
    first, second = opened
    with reporter.stage("compare"):
        return differences(first, second)


def differences(a: Opened, b: Opened, *, rows: bool = True) -> BundleDifference:
    """The findings on two bundles; those on their rows only where `rows` may be read."""
    graphs = difference(a.graph, b.graph)
    stated = (*_budget(a, b), *_graph(a, b, graphs), *_table(a, b))
    return BundleDifference(
        a.folder, b.folder, (*stated, *(_quality(a, b) if rows else ())), graphs
    )


def open_verified(folder: Path, progress: Advance | None = None) -> Opened:
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


def open_stated(folder: Path) -> Opened:
    """What a bundle states, unverified.

    Raises:
        OSError, ValueError, KeyError, TypeError, SynthdpError: it is not what it should be.
    """
    return Opened(
        folder,
        parse_spec(read_text(folder / "spec.yaml"), path="spec.yaml"),
        Certificate.model_validate(parse_json(read_text(folder / "privacy/certificate.json"))),
        CausalGraph.from_json(parse_json(read_text(folder / "graph.json"))),
        {
            p["epsilon"]: p["delta"]
            for p in parse_json(read_text(folder / "privacy/profile.json"))["points"]
        },
    )


# --- budget ---


def _budget(a: Opened, b: Opened) -> Iterator[Difference]:
    one, two = a.certificate, b.certificate
    other = _other_promise(one, two)
    for what in ("adjacency", "unit_meaning", "unit_rows"):
        yield _equal("budget", what.replace("_", " "), getattr(one, what), getattr(two, what))
    yield _less("budget", "delta", one.delta, two.delta, why=other)
    why = other or (
        "at different deltas; see the whole trade-off" if one.delta != two.delta else ""
    )
    yield _less("budget", "epsilon", one.epsilon, two.epsilon, why=why)
    yield _trade_off(a, b, why=other)
    sizes = sorted({g.size for g in one.groups} & {g.size for g in two.groups})[-1:]
    for size in sizes:
        bounds = [next(g.joint_epsilon for g in c.groups if g.size == size) for c in (one, two)]
        yield _less("budget", f"epsilon of groups of {size}", bounds[0], bounds[1], why=why)


def _other_promise(one: Certificate, two: Certificate) -> str:
    """Why no numbers of two guarantees can be compared; empty if they can."""
    if one.adjacency != two.adjacency:
        return "neighbours are other tables"
    return (
        ""
        if (one.unit_meaning, one.unit_rows) == (two.unit_meaning, two.unit_rows)
        else "another unit is protected"
    )


def _trade_off(a: Opened, b: Opened, *, why: str) -> Difference:
    """The whole profile: better where delta is nowhere larger and somewhere smaller.

    It is compared at the epsilons of both.
    """
    shared = sorted(a.profile.keys() & b.profile.keys())
    above = any(b.profile[e] > a.profile[e] * (1 + CLOSE_DELTA) + 1e-13 for e in shared)
    below = any(b.profile[e] < a.profile[e] * (1 - CLOSE_DELTA) - 1e-13 for e in shared)
    at = (
        f"delta at epsilon {min(shared, key=lambda e: abs(e - a.certificate.epsilon)):g} of the"
        " whole trade-off"
        if shared
        else "whole trade-off"
    )
    values = [
        o.profile[min(shared, key=lambda e: abs(e - a.certificate.epsilon))] if shared else None
        for o in (a, b)
    ]
    if why or (above and below) or not shared:
        return Difference(
            "budget", at, values[0], values[1], "not comparable", why or "the curves cross"
        )
    return Difference(
        "budget", at, values[0], values[1], "worse" if above else "better" if below else "same"
    )


# --- graph and table ---


def _graph(a: Opened, b: Opened, found: GraphDifference) -> Iterator[Difference]:
    yield _equal("graph", "mode", a.spec.graph.mode, b.spec.graph.mode)
    changes = (
        f"{len(found.added)} added, {len(found.removed)} removed, {len(found.turned)} turned;"
        f" {found.common} in common"
    )
    yield Difference(
        "graph",
        "links",
        len(found.before.edges),
        len(found.after.edges),
        "same" if found.same else "different",
        changes,
    )
    counts = [sum(e.provenance == "refuted" for e in o.graph.edges) for o in (a, b)]
    if any(counts):
        yield Difference(
            "graph",
            "refuted arrows",
            counts[0],
            counts[1],
            "same" if counts[0] == counts[1] else "different",
        )


def _table(a: Opened, b: Opened) -> Iterator[Difference]:
    yield _equal("table", "dataset", a.spec.dataset.id, b.spec.dataset.id)
    gone, new = (
        [n for n in x.spec.columns if n not in y.spec.columns] for x, y in ((a, b), (b, a))
    )
    changed = [
        n for n, c in a.spec.columns.items() if n in b.spec.columns and c != b.spec.columns[n]
    ]
    said = {"gone": gone, "new": new, "declared otherwise": changed}
    why = "; ".join(f"{how}: {_some(names)}" for how, names in said.items() if names)
    yield Difference(
        "table",
        "columns",
        len(a.spec.columns),
        len(b.spec.columns),
        "different" if why else "same",
        why,
    )
    yield _equal("table", "rows", a.spec.sampling.rows, b.spec.sampling.rows)
    yield _equal(
        "table",
        "constraints",
        len(a.spec.constraints),
        len(b.spec.constraints),
        same=a.spec.constraints == b.spec.constraints,
    )


def _some(names: list[str]) -> str:
    return ", ".join(names[:MAX_NAMED]) + (
        f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    )


def _incomparable(why: str) -> Difference:
    return Difference("quality", "distance to the noisy tables", None, None, "not comparable", why)


def _quality(a: Opened, b: Opened) -> Iterator[Difference]:
    """Distances to the noisy tables, where both describe one dataset by levels in common."""
    if a.spec.dataset.id != b.spec.dataset.id:
        yield _incomparable("they are of different datasets")
        return
    common = common_levels(a.domain, b.domain)
    if not common.alike and not common.merged:
        yield _incomparable("no column has levels in both that could be compared")
        return
    only = "" if a.domain == b.domain else "; only of columns with the same levels"
    for found in distances(a.folder, b.folder, a.domain, b.domain):
        why = (
            f"mean total variation, {found.tables} tables; noise alone moves the difference by"
            f" {found.noise:.1g}{only}"
        )
        yield Difference(
            "quality",
            f"distance to noisy {found.ways}-way tables",
            found.a,
            found.b,
            _as_verdict(found.verdict),
            why,
        )
    between = apart(a.folder, b.folder, a.domain, b.domain)
    bins = f"; on the bins that both have: {_some([*common.merged])}" if common.merged else ""
    rest = f"; left out, other levels: {_some([*common.apart])}" if common.apart else ""
    yield Difference(
        "quality",
        "distance between the two, 1-way",
        None,
        between,
        "same" if between == 0 else "different",
        f"mean total variation{bins}{rest}",
    )


def _as_verdict(text: str) -> Verdict:
    return "better" if text == "better" else "worse" if text == "worse" else "same"


def _equal(
    topic: Literal["budget", "graph", "table"],
    what: str,
    a: Any,
    b: Any,
    *,
    same: bool | None = None,
) -> Difference:
    return Difference(
        topic, what, a, b, "same" if (a == b if same is None else same) else "different"
    )


def _less(
    topic: Literal["budget"], what: str, a: float | None, b: float | None, *, why: str
) -> Difference:
    """A bound, where less is better; None is no bound at all."""
    if why:
        return Difference(topic, what, a, b, "not comparable", why)
    if a is None or b is None:
        return Difference(
            topic, what, a, b, "same" if a is b else "better" if a is None else "worse"
        )
    if abs(a - b) <= CLOSE * max(a, b):
        return Difference(topic, what, a, b, "same")
    return Difference(topic, what, a, b, "better" if b < a else "worse")
