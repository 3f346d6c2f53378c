"""Checks of the budget: it fits the table and the cap, and every share of it is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from synthdp.spec.checks.problem import CrossProblem, stated
from synthdp.spec.model import ReleaseSpec, category_types

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
        message = (
            f"{stated(spec, *where, 'measure')}; the noisy marginals that everything starts from"
            " need a share"
        )
        yield CrossProblem((*where, "measure"), message, "e.g. 0.2")


def pairs(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    share, pairs = spec.privacy.shares.pairs, spec.privacy.pairs
    if pairs and share == 0:
        message = f"{stated(spec, 'privacy', 'shares', 'pairs')}; measuring pairs needs a share"
        hint = "e.g. shares: {measure: 0.2, pairs: 0.2, train: 0.6}"
        yield CrossProblem(("privacy", "shares", "pairs"), message, hint)
    if share > 0 and not pairs:
        message = f"got {share:g}, and privacy.pairs names no pair"
        yield CrossProblem(("privacy", "shares", "pairs"), message, "name pairs, or set it to 0")


def pairs_twice(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    seen: set[frozenset[str]] = set()
    for i, pair in enumerate(spec.privacy.pairs):
        if frozenset(pair) in seen:
            message = f"{pair[0]} and {pair[1]} are named twice"
            hint = "a pair is measured once, in either order"
            yield CrossProblem(("privacy", "pairs", i), message, hint)
        seen.add(frozenset(pair))


def pairs_unused(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    if spec.privacy.pairs and not (spec.sampling.rake and spec.sampling.balance):
        hint = "set sampling.rake and sampling.balance to true, or name no pairs"
        message = (
            "measured pairs guide the choice of rows, which sampling turns off: their budget would"
            " be wasted"
        )
        yield CrossProblem(("privacy", "pairs"), message, hint)


def pair_cells(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    for i, (first, second) in enumerate(spec.privacy.pairs):
        if first in spec.columns and second in spec.columns:
            cells = spec.columns[first].level_count * spec.columns[second].level_count
            if cells > MAX_PAIR_CELLS:
                hint = "noise drowns a table with so many cells; name a pair of columns with fewer"
                hint += " levels, or use wider bins"
                message = f"a table of {cells:,} cells; at most {MAX_PAIR_CELLS:,} are measured"
                yield CrossProblem(("privacy", "pairs", i), message, hint)


def targets(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    share, names = spec.privacy.shares.targets, spec.synthesizer.targets
    if names and share == 0 and spec.graph.mode != "predict":
        yield CrossProblem(
            ("privacy", "shares", "targets"),
            f"{stated(spec, 'privacy', 'shares', 'targets')}; the targets' stage needs a share",
            "e.g. shares: {measure: 0.2, targets: 0.2, train: 0.6}",
        )
    if share > 0 and not names:
        message = f"got {share:g}, and synthesizer.targets names no column"
        hint = "name columns there, or set it to 0"
        yield CrossProblem(("privacy", "shares", "targets"), message, hint)


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
        message = (
            f"{stated(spec, 'privacy', 'shares', 'graph')}; graph mode {mode} looks at the data and"
            " needs a share of the budget"
        )
        yield CrossProblem(("privacy", "shares", "graph"), message, hint)
    if mode in ("none", "given") and share > 0:
        hint = "set it to 0 and give its part to measure or train, or use another mode"
        message = f"got {share:g}; graph mode {mode} spends nothing on the graph"
        yield CrossProblem(("privacy", "shares", "graph"), message, hint)


# --- gates ---
#
# One that nothing could fail protects nobody, and one that chance alone fails costs a whole budget.


JUDGED = ("tv1", "tv2", "tv3", "tstr_auc", "tstr_ratio")
CLASSIFIED = ("tstr_auc", "tstr_ratio")


def judged(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """Gates on how good the rows are, where nobody looks."""
    for i, gate in enumerate(spec.gates):
        where, judged = ("gates", i, "metric"), gate.metric in JUDGED
        if judged and not spec.evaluation.enabled:
            hint = "set evaluation.enabled: true, or delete the gate"
            yield CrossProblem(
                where, f"{gate.metric} is never computed: evaluation is not enabled", hint
            )
        elif judged and spec.evaluation.holdout == 0:
            message = f"{gate.metric} needs test rows, and evaluation.holdout is 0"
            yield CrossProblem(where, message, "e.g. holdout: 0.2")


def classified(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """Gates on classifiers that learn nothing."""
    evaluation = spec.evaluation
    for i, gate in enumerate(spec.gates):
        if (
            gate.metric in CLASSIFIED
            and evaluation.enabled
            and evaluation.holdout > 0
            and not evaluation.targets
        ):
            message = f"{gate.metric} needs classifiers, and evaluation.targets is empty"
            yield CrossProblem(
                ("gates", i, "metric"), message, "name at least one column in evaluation.targets"
            )


def attacked(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """Gates on an attack that is not made."""
    for i, gate in enumerate(spec.gates):
        if gate.attacked and not spec.attacks.membership.enabled:
            message = f"{gate.metric} is never computed: the membership attack is not enabled"
            yield CrossProblem(("gates", i, "metric"), message, "enable it, or delete the gate")


def dp_scores(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """Gates on scores that are not paid for, or that this spec has not."""
    categories = [
        t for t in spec.evaluation.targets if t in spec.columns and not spec.columns[t].ranged
    ]
    for i, gate in enumerate(spec.gates):
        where = ("gates", i, "metric")
        if gate.on_dp_score and not spec.evaluation.dp_scores:
            message = f"{gate.metric} is never computed: no score is charged"
            yield CrossProblem(where, message, "set evaluation.disclosure: private")
        elif gate.metric == "tstr_accuracy_dp" and not categories:
            hint = f"name a {category_types()} column in evaluation.targets"
            message = (
                f"{gate.metric} needs a target with categories, and evaluation.targets names none"
            )
            yield CrossProblem(where, message, hint)
        elif gate.metric == "tv2_dp" and len(spec.modelled) < 2:
            yield CrossProblem(
                where, f"{gate.metric} needs two columns, and there is one", "bound tv1_dp"
            )


def decidable(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """Gates on an attack that nothing could fail, or that chance decides with so few models."""
    pairs = spec.attacks.membership.pairs
    for i, gate in enumerate(spec.gates):
        if not gate.attacked or gate.at_most is None or not spec.attacks.membership.enabled:
            continue
        decide = _bound_on_epsilon if gate.attacked == "epsilon_lower" else _upper_limit
        problem = decide(gate.attacked, gate.at_most, pairs - pairs // 2, spec)
        if problem:
            yield CrossProblem(("gates", i, "at_most"), *problem)


def _bound_on_epsilon(
    _: str, bound: float, models: int, spec: ReleaseSpec
) -> tuple[str, str] | None:
    """What is wrong with a limit on the proved lower bound of epsilon, and what to do.

    Without a leak, something is proved of epsilon in at most 5% of releases.
    """
    # The attacks' statistics take a second to import, which other specs need not wait for.
    from synthdp.spec.checks.chance import provable

    claim, delta = spec.privacy.epsilon, spec.privacy.delta
    if bound < 0:
        message = "and nothing can pass it: what is proved of epsilon is never below 0"
        return f"got {bound:g}, {message}", f"give 0 to {claim:g}"
    if bound > claim:
        message = f"got {bound:g}, above the claim of epsilon {claim:g}"
        return message, f"a lower bound above the claim refutes it: at most {claim:g}"
    if (most := provable(models, delta)) <= bound:
        need = _least_pairs(lambda n: provable(n, delta) > bound)
        more = f"set attacks.membership.pairs to at least {need}"
        more = "no number of pairs is enough" if need is None else more
        return f"nothing can fail it: {_told(models)} prove at most epsilon {most:.2f}", more
    return None


def _upper_limit(figure: str, bound: float, models: int, _: ReleaseSpec) -> tuple[str, str] | None:
    """What is wrong with a limit on the upper end of an attack's interval, and what to do."""
    from synthdp.spec.checks.chance import TPR_MODELS, lowest_limit

    if bound >= 1:
        message = "and nothing can fail it: no advantage, AUC or rate is above 1"
        return f"got {bound:g}, {message}", "give less than 1"
    if figure == "tpr_upper" and models < TPR_MODELS:
        message = (
            f"a true-positive rate at 1% false positives needs {TPR_MODELS} test models in each"
            f" world, there are {models}"
        )
        return message, f"set attacks.membership.pairs: {2 * TPR_MODELS}"
    if bound >= (least := lowest_limit(figure, models)):
        return None
    need = _least_pairs(lambda n: lowest_limit(figure, n) <= bound)
    more = f"or set attacks.membership.pairs: {need}"
    more = f"no number of pairs is enough for {bound:g}" if need is None else more
    message = f"got {bound:g}, which chance alone exceeds:"
    if least >= 1:
        message += f" with {_told(models)} it exceeds every limit below 1"
        return message, more.removeprefix("or ")
    message += f" without any leak {_told(models)} measure more in over 5% of releases"
    hint = f"give at least {least:g}, the lowest limit that makes sense with so many"
    return message, f"{hint}; {more}"


def _told(models: int) -> str:
    return f"{models} test models in each world (half of attacks.membership.pairs)"


def _least_pairs(enough: Callable[[int], bool]) -> int | None:
    """The fewest pairs, in steps of twenty, whose test models are `enough`, or None.

    It is None where no allowed number is enough.
    """
    return next((2 * models for models in range(10, 5001, 10) if enough(models)), None)
