"""Checks of the budget: it fits the table and the cap, and every share of it is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from synthdp.spec.load.wording import SpecMistake, claims, stated
from synthdp.spec.model import Gate, Integer, Number, ReleaseSpec, category_types
from synthdp.spec.model.rules import counts_only, engine_of, summed_numbers


def amounts(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """Delta protects whole rows, and the release stays below its cap."""
    rows, own = spec.dataset.rows.value, spec.privacy
    yield from claims(
        (own.delta * rows >= 1, "privacy.delta",
         f"got {own.delta:g}; it must be below 1 / rows = {1 / rows:.3g}",
         f"with {rows} rows choose {suggested_delta(rows)} or less: a delta this large allows one"
         " whole row to be published"),
        *((getattr(own, name) > most, f"privacy.{name}",
           f"got {getattr(own, name):g}, above the cap of {most:g}",
           "the cap bounds all releases of this dataset together; lower the release, or agree on"
           " another cap") for name, most in (own.cap or ())),
    )  # fmt: skip


def waves(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """A series has neighbours whose waves change by a person's rows alone, and a cap to plan by."""
    waves, mode = spec.waves, spec.graph.mode
    yield from claims(
        (waves and spec.privacy.adjacency == "replace_one", "privacy.adjacency",
         "replace_one cannot be used for waves: who is replaced by someone of another wave leaves"
         " one table and comes to another", "use add_remove"),
        (waves and waves.planned and not spec.privacy.cap, "waves.planned",
         "there is no cap to keep a share of for the waves to come", "set privacy.cap"),
        (waves and waves.after and mode in ("learn", "validate"), "waves.after",
         f"graph mode {mode} tests noisy tables of one wave, and earlier ones do not help it",
         "leave it out, or use graph.mode predict or given"),
        (waves and waves.after and spec.prior and spec.prior.sha256 == waves.after.sha256, "prior",
         "this is the bundle of waves.after, whose noisy tables would count twice",
         "leave prior out, or take another one"),
    )  # fmt: skip


def suggested_delta(rows: int) -> str:
    """A power of ten at least ten times below 1 / rows."""
    return f"1e-{len(str(rows)) + 1}"


def shares(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """What needs a share of the budget has one, and every share buys something."""
    mode, written = spec.graph.mode, "shares" in spec.privacy.model_fields_set
    pairs, targets, estimands = spec.privacy.pairs, spec.synthesizer.targets, spec.estimands
    heaps, engine = spec.privacy.heaps, engine_of(spec.dataset.source, spec.compute)
    searched, trained = mode in ("validate", "learn", "predict"), mode != "predict"
    search = "e.g. shares: {measure: 0.15, graph: 0.15, train: 0.7}"
    if mode == "predict":
        search = "most of the budget belongs here; leave out shares, and it gets 0.8 of it"
    needs: list[tuple[str, object, str, str]] = [
        ("train", trained, "the model cannot be trained without a share of the budget",
         "most of the budget belongs here, e.g. 0.8; only graph mode predict needs none"),
        ("measure", True, "the noisy marginals that everything starts from need a share",
         "e.g. 0.2"),
        ("pairs", pairs, "measuring pairs needs a share",
         "e.g. shares: {measure: 0.2, pairs: 0.2, train: 0.6}"),
        ("targets", targets and trained, "the targets' stage needs a share",
         "e.g. shares: {measure: 0.2, targets: 0.2, train: 0.6}"),
        ("heaps", heaps, "looking for heaps needs a share", "e.g. 0.1, taken from the others"),
        # Where shares are left out, the rules give these two theirs.
        ("estimands", estimands and written, "estimands need a share of the budget",
         "e.g. 0.15, taken from the others; or delete estimands"),
        ("graph", searched and (written or trained),
         f"graph mode {mode} looks at the data and needs a share of the budget", search),
    ]  # fmt: skip
    buys: list[tuple[str, object, str, str]] = [
        ("pairs", pairs, ", and privacy.pairs names no pair", "name pairs, or set it to 0"),
        ("targets", targets, ", and synthesizer.targets names no column",
         "name columns there, or set it to 0"),
        ("estimands", estimands, ", and there are no estimands", "name some, or set it to 0"),
        ("moments", not counts_only(spec), ", and engine sql counts and adds up nothing",
         "set it to 0, or use another engine"),
        ("moments", summed_numbers(spec), ", and no column is a number", "set it to 0"),
        ("moments", len(summed_numbers(spec)) <= 1000, ", for more than 1,000 numbers",
         "set it to 0"),
        ("heaps", heaps, ", and no column of numbers leaves out bins and spikes",
         "name columns in privacy.heaps, or set it to 0"),
        ("heaps", engine == "memory", f", and engine {engine} tells no heaps", "set it to 0"),
        ("graph", searched, f"; graph mode {mode} spends nothing on the graph",
         "set it to 0 and give its part to measure or train, or use another mode"),
    ]  # fmt: skip
    own, at = spec.privacy.shares, ("privacy", "shares")
    yield from claims(
        *((needed and not getattr(own, name), (*at, name), f"{stated(spec, *at, name)}; {message}",
           hint) for name, needed, message, hint in needs),
        *((getattr(own, name) and not used, (*at, name), f"got {getattr(own, name):g}{message}",
           hint) for name, used, message, hint in buys),
    )  # fmt: skip


def pairs(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """Measured pairs are named once, small, and used."""
    named, most = list(map(frozenset, spec.privacy.pairs)), 1 << 18
    used = spec.sampling.rake and spec.sampling.balance
    yield from claims(
        (named and not used, "privacy.pairs",
         "measured pairs guide the choice of rows, which sampling turns off: their budget would be"
         " wasted", "set sampling.rake and sampling.balance to true, or name no pairs"),
    )  # fmt: skip
    for i, pair in enumerate(spec.privacy.pairs):
        where, cells = ("privacy", "pairs", i), spec.cells(pair)
        yield from claims(
            (named.index(named[i]) < i, where, f"{pair[0]} and {pair[-1]} are named twice",
             "a pair is measured once, in either order"),
            (cells > most, where, f"a table of {cells:,} cells; at most {most:,} are measured",
             "noise drowns a table with so many cells; name a pair of columns with fewer levels, or"
             " use wider bins"),
        )  # fmt: skip


def heaps(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """Columns in which heaps are looked for are modelled numbers."""
    for i, name in enumerate(spec.privacy.heaps):
        if not isinstance(spec.modelled.get(name), Integer | Number):
            message = f"{name!r} is no modelled column of type integer or number"
            yield SpecMistake(("privacy", "heaps", i), message, "name columns of numbers")


def target_levels(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    if spec.graph.mode == "predict":
        return  # it has no stage for targets, which `checks.graph` says
    for i, name in enumerate(spec.synthesizer.targets):
        levels = spec.columns[name].level_count if name in spec.columns else 0
        if levels > spec.synthesizer.hidden:
            hint = (
                "choose wider bins, raise synthesizer.hidden, or leave it out: the model learns it"
                " with the others"
            )
            message = f"column {name!r} has {levels} levels; a target has at most as many as"
            yield SpecMistake(("synthesizer", "targets", i), f"{message} synthesizer.hidden", hint)


# --- gates ---
#
# One that nothing could fail protects nobody, and one that chance alone fails costs a whole budget.


def gates(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """Gates are on figures that are computed, and can fail for another reason than chance."""
    for i, gate in enumerate(spec.gates):
        if problem := _never_computed(spec, gate):
            yield SpecMistake(("gates", i, "metric"), *problem)
        elif gate.attacked and gate.at_most is not None:
            decide = _bound_on_epsilon if gate.attacked == "epsilon_lower" else _upper_limit
            pairs = spec.attacks.membership.pairs
            if problem := decide(gate.attacked, gate.at_most, pairs - pairs // 2, spec):
                yield SpecMistake(("gates", i, "at_most"), *problem)


def _never_computed(spec: ReleaseSpec, gate: Gate) -> tuple[str, str] | None:
    """Why nobody computes the figure of a gate, and what to do."""
    evaluation, metric, never = spec.evaluation, gate.metric, f"{gate.metric} is never computed:"
    judged = metric in ("tv1", "tv2", "tv3", "tstr_auc", "tstr_ratio")
    targets = (spec.columns[name] for name in evaluation.targets if name in spec.columns)
    rows: list[tuple[object, str, str]] = [
        (judged and not evaluation.enabled, f"{never} evaluation is not enabled",
         "set evaluation.enabled: true, or delete the gate"),
        (judged and evaluation.holdout == 0,
         f"{metric} needs test rows, and evaluation.holdout is 0", "e.g. holdout: 0.2"),
        (judged and metric.startswith("tstr") and not evaluation.targets,
         f"{metric} needs classifiers, and evaluation.targets is empty",
         "name at least one column in evaluation.targets"),
        (gate.attacked and not spec.attacks.membership.enabled,
         f"{never} the membership attack is not enabled", "enable it, or delete the gate"),
        (gate.on_dp_score and not evaluation.dp_scores, f"{never} no score is charged",
         "set evaluation.disclosure: private"),
        (metric == "tstr_accuracy_dp" and all(column.ranged for column in targets),
         f"{metric} needs a target with categories, and evaluation.targets names none",
         f"name a {category_types()} column in evaluation.targets"),
        (metric == "tv2_dp" and len(spec.modelled) < 2,
         f"{metric} needs two columns, and there is one", "bound tv1_dp"),
    ]  # fmt: skip
    return next(((message, hint) for holds, message, hint in rows if holds), None)


def _bound_on_epsilon(
    _: str, bound: float, models: int, spec: ReleaseSpec
) -> tuple[str, str] | None:
    """What is wrong with a limit on what is proved of epsilon: without a leak, something in 5%."""
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
    """The fewest pairs, in steps of twenty, whose test models are `enough`; None where none are."""
    return next((2 * models for models in range(10, 5001, 10) if enough(models)), None)
