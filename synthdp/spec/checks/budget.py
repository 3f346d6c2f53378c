"""Checks of the budget: it fits the table and the cap, and every share of it is used."""

from __future__ import annotations

from collections.abc import Iterator

from synthdp.spec.checks.problem import CrossProblem, stated
from synthdp.spec.model import ReleaseSpec

MAX_PAIR_CELLS = 1 << 18  # of a measured table


def delta(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    rows, delta = spec.dataset.rows.value, spec.privacy.delta
    if delta * rows >= 1:
        hint = (
            f"with {rows} rows choose {suggested_delta(rows)} or less: a delta this large allows"
            " one whole row to be published"
        )
        yield CrossProblem(
            ("privacy", "delta"), f"got {delta:g}; it must be below 1 / rows = {1 / rows:.3g}", hint
        )


def suggested_delta(rows: int) -> str:
    """A power of ten at least ten times below 1 / rows."""
    return f"1e-{len(str(rows)) + 1}"


def cap(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    cap = spec.privacy.cap
    for name in ("epsilon", "delta") if cap else ():
        asked, most = getattr(spec.privacy, name), getattr(cap, name)
        if asked > most:
            hint = (
                "the cap bounds all releases of this dataset together; lower the release, or agree"
                " on another cap"
            )
            yield CrossProblem(("privacy", name), f"got {asked:g}, above the cap of {most:g}", hint)


def shares(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    shares, where = spec.privacy.shares, ("privacy", "shares")
    if shares.train == 0 and spec.graph.mode != "predict":
        yield CrossProblem(
            (*where, "train"),
            f"{stated(spec, *where, 'train')}; the model cannot be trained without a share of the"
            " budget",
            "most of the budget belongs here, e.g. 0.8; only graph mode predict needs none",
        )
    if shares.measure == 0:
        yield CrossProblem(
            (*where, "measure"),
            f"{stated(spec, *where, 'measure')}; the noisy marginals that everything starts from"
            " need a share",
            "e.g. 0.2",
        )


def pairs(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    share, pairs = spec.privacy.shares.pairs, spec.privacy.pairs
    if pairs and share == 0:
        yield CrossProblem(
            ("privacy", "shares", "pairs"),
            f"{stated(spec, 'privacy', 'shares', 'pairs')}; measuring pairs needs a share",
            "e.g. shares: {measure: 0.2, pairs: 0.2, train: 0.6}",
        )
    if share > 0 and not pairs:
        yield CrossProblem(
            ("privacy", "shares", "pairs"),
            f"got {share:g}, and privacy.pairs names no pair",
            "name pairs, or set it to 0",
        )


def pairs_twice(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    seen: set[frozenset[str]] = set()
    for i, pair in enumerate(spec.privacy.pairs):
        if frozenset(pair) in seen:
            yield CrossProblem(
                ("privacy", "pairs", i),
                f"{pair[0]} and {pair[1]} are named twice",
                "a pair is measured once, in either order",
            )
        seen.add(frozenset(pair))


def pairs_unused(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    if spec.privacy.pairs and not (spec.sampling.rake and spec.sampling.balance):
        hint = "set sampling.rake and sampling.balance to true, or name no pairs"
        yield CrossProblem(
            ("privacy", "pairs"),
            "measured pairs guide the choice of rows, which sampling turns off: their budget would"
            " be wasted",
            hint,
        )


def pair_cells(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    for i, (first, second) in enumerate(spec.privacy.pairs):
        if first in spec.columns and second in spec.columns:
            cells = spec.columns[first].level_count * spec.columns[second].level_count
            if cells > MAX_PAIR_CELLS:
                hint = (
                    "noise drowns a table with so many cells; name a pair of columns with fewer"
                    " levels, or use wider bins"
                )
                yield CrossProblem(
                    ("privacy", "pairs", i),
                    f"a table of {cells:,} cells; at most {MAX_PAIR_CELLS:,} are measured",
                    hint,
                )


def targets(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    share, names = spec.privacy.shares.targets, spec.synthesizer.targets
    if names and share == 0 and spec.graph.mode != "predict":
        yield CrossProblem(
            ("privacy", "shares", "targets"),
            f"{stated(spec, 'privacy', 'shares', 'targets')}; the targets' stage needs a share",
            "e.g. shares: {measure: 0.2, targets: 0.2, train: 0.6}",
        )
    if share > 0 and not names:
        yield CrossProblem(
            ("privacy", "shares", "targets"),
            f"got {share:g}, and synthesizer.targets names no column",
            "name columns there, or set it to 0",
        )


def target_levels(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    if spec.graph.mode == "predict":
        return  # it has no stage for targets, which `checks.graph` says
    for i, name in enumerate(spec.synthesizer.targets):
        levels = spec.columns[name].level_count if name in spec.columns else 0
        if levels > spec.synthesizer.hidden:
            hint = (
                "choose wider bins, raise synthesizer.hidden, or leave it out: the model learns it"
                " with the others"
            )
            message = (
                f"column {name!r} has {levels} levels; a target has at most as many as"
                " synthesizer.hidden"
            )
            yield CrossProblem(("synthesizer", "targets", i), message, hint)


def graph_share(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    share, mode = spec.privacy.shares.graph, spec.graph.mode
    if mode == "predict" and "shares" not in spec.privacy.model_fields_set:
        return  # the rules for what is left out give it one
    if mode in ("validate", "learn", "predict") and share == 0:
        hint = "e.g. shares: {measure: 0.15, graph: 0.15, train: 0.7}"
        if mode == "predict":
            hint = "most of the budget belongs here; leave out shares, and it gets 0.8 of it"
        yield CrossProblem(
            ("privacy", "shares", "graph"),
            f"{stated(spec, 'privacy', 'shares', 'graph')}; graph mode {mode} looks at the data and"
            " needs a share of the budget",
            hint,
        )
    if mode in ("none", "given") and share > 0:
        hint = "set it to 0 and give its part to measure or train, or use another mode"
        yield CrossProblem(
            ("privacy", "shares", "graph"),
            f"got {share:g}; graph mode {mode} spends nothing on the graph",
            hint,
        )
