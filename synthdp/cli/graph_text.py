"""Causal graphs as text: links with their provenance, claims with their status, differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from synthdp.graph.causal import CausalGraph, GraphEdge
from synthdp.graph.diff import GraphDifference
from synthdp.graph.validation import ClaimEvidence, ValidationReport, validation_sentences
from synthdp.spec.load.wording import many, up

if TYPE_CHECKING:
    from synthdp.release.graph_only import GraphOutcome

MAX_OPEN = 20


def graph_text(graph: CausalGraph) -> str:
    """All links in column order of their effects, aligned; then groups and unseen causes."""
    rank = {n: i for i, n in enumerate(graph.nodes)}
    links = sorted(
        (e for e in graph.edges if e.structural), key=lambda e: (rank[e.effect], rank[e.cause])
    )
    lines = [
        f"{many(len(graph.nodes), 'column')}, {many(len(graph.directed), 'arrow')},"
        f" {many(len(graph.undirected), 'link')}"
        " of unknown direction"
    ]
    lines += _aligned([(_words(e), e.provenance) for e in links])
    lines += [f"group {name}: {', '.join(names)}" for name, names in graph.groups.items()]
    lines += [f"unseen common cause: {', '.join(names)}" for names in graph.latent]
    if graph.pag is not None:
        lines.append("if causes may be unseen (o: not known, <->: neither causes the other):")
        lines += [f"  {link}{'   visible' if link.visible else ''}" for link in graph.pag]
    shown = [" - ".join(pair) for pair in graph.open_pairs[:MAX_OPEN]]
    if shown:
        more = (
            f", and {len(graph.open_pairs) - MAX_OPEN} more"
            if len(graph.open_pairs) > MAX_OPEN
            else ""
        )
        lines.append(f"not enough evidence for or against: {', '.join(shown)}{more}")
    return "\n".join(lines)


def validation_text(found: ValidationReport) -> str:
    """Every claim with its status, refuted ones first.

    Each line has the largest effect that was not excluded, and the smallest that its test could
    have detected.
    """
    order = {"refuted": 0, "undecided": 1, "supported": 2}
    rows = [
        (f.status, str(f.claim), _effect(f))
        for f in sorted(found.findings, key=lambda f: order[f.status])
    ]
    counts = found.counts()
    head = [
        f"{kind}s: {', '.join(f'{n} {status}' for status, n in counts[kind].items())}"
        for kind in ("arrow", "independence")
    ]
    told = validation_sentences(found.to_json(), len(found.graph.directed))
    return "\n".join([*head, *told, *_aligned(rows)])


def outcome_text(outcome: GraphOutcome) -> str:
    """A finished graph run."""
    cost: Mapping[str, Any] = outcome.to_json()["privacy"]
    out = outcome.job.out
    lines = [
        graph_text(outcome.graph),
        *([validation_text(outcome.validation)] if outcome.validation else []),
        (
            f"epsilon {up(cost['epsilon_planned'])} of {cost['epsilon_allowed']:g} reserved (the"
            f" graph's share), at delta {cost['delta']:g}{_used(cost)}, run {cost['run']}"
        ),
        f"graph    {out / 'graph.json'}, {out / 'graph.svg'}",
        (
            f"spec     {out / 'graph.yaml'}   (its `graph` section can be pasted into a spec; using"
            " it costs nothing more)"
        ),
    ]
    return "\n".join(lines)


def _used(cost: Mapping[str, Any]) -> str:
    if cost["epsilon_spent"] > cost["epsilon_planned"] * (1 - 1e-9):
        return ""
    return f" ({cost['epsilon_spent']:.4f} used on this outcome, which is no bound)"


def difference_text(difference: GraphDifference) -> str:
    """What differs, and by how much."""
    kinds = {"added": difference.added, "removed": difference.removed}
    lines = [f"{kind:<8} {_words(e)}" for kind, edges in kinds.items() for e in edges]
    lines += [
        f"{'turned':<8} {_words(before)}  is now  {_words(after)}"
        for before, after in difference.turned
    ]
    lines += [
        f"only in {side}: {', '.join(names)}" for side, names in difference.columns.items() if names
    ]
    head = (
        f"{many(difference.common, 'link')} in common, {len(difference.added)} added,"
        f" {len(difference.removed)} removed, {len(difference.turned)} turned"
    )
    return "\n".join(
        [
            head,
            *lines,
            f"structural Hamming distance {difference.distance}, F1 of arcs {difference.f1:.3f}",
        ]
    )


def _words(edge: GraphEdge) -> str:
    return f"{edge.cause} {'->' if edge.directed else '--'} {edge.effect}"


def _effect(finding: ClaimEvidence) -> str:
    answer = finding.answer
    upper, detectable = (
        f"{bound:.3g}" if bound < float("inf") else "any"
        for bound in (answer.effect_upper, answer.detectable)
    )
    return f"effect {answer.effect:.3g}, at most {upper}, smallest detectable {detectable}"


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [
        max((len(row[i]) for row in rows), default=0) for i in range(len(rows[0]) if rows else 0)
    ]
    return [
        "  "
        + "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
