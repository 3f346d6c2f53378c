"""The limits of the guarantee as Markdown: what is assumed public, and what is not covered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

from synthdp.bundle.certificate.facts import Certificate
from synthdp.privacy.events.base import EventKind
from synthdp.privacy.events.kinds import OF_BATCHES, event_from_json, leaves
from synthdp.privacy.noise import NoiseKind


def query_guarantee(c: Certificate) -> str:
    """Whose guarantee it is where a database's query made the rows."""
    if c.source != "sql":
        return ""
    whose = "each row of" if c.unit == "row" else "all rows of one id in"
    return (
        f"\n\nThe rows were the answer of a query to a database: the guarantee is for {whose} that"
        " answer, and holds for the people who are stored there if the query makes one row of each"
        " stored row."
    )


def assumed_markdown(c: Certificate) -> str:
    """The section on what is assumed to be public."""
    given = {
        "none": "that no causal graph was used",
        "given": "the causal graph, which the steward drew without looking at the rows",
        "validate": (
            "the causal graph, which the steward drew without looking at the rows; what was found"
            " about it was paid for"
        ),
        "learn": (
            "the arrows that the spec requires or forbids; the learned graph itself was paid for"
        ),
        "predict": (
            "the order of the columns, which is no causal graph: an arrow says that a column"
            " predicts a later one, and claims no cause; which pairs were measured, and which have"
            " an arrow, was chosen from noisy tables that were paid for"
        ),
    }[c.graph]
    if c.rows_kind == "public":
        rows = (
            f"the number of rows, declared as {c.rows:,}: it is treated as known to everyone and is"
            " not protected"
        )
    else:
        rows = f"a declared, approximate number of rows, {c.rows:,}; the exact number was not used"
    return "\n".join(
        [
            (
                "## What is assumed to be public\n\nThe guarantee holds if the steward chose these"
                " without looking at the rows:\n"
            ),
            f"- {_domain(c)};",
            f"- {rows};",
            f"- {given};",
            (
                "- the spec itself, with every setting of the mechanisms: `spec.yaml` (file paths,"
                " queries and addresses are left out)."
            ),
        ]
    )


def _domain(c: Certificate) -> str:
    if c.domain_from is None:
        return (
            f"the domain of all {c.columns} columns: names, types, categories, bounds, bins and"
            " spikes"
        )
    return (
        f"the names of all {c.columns} columns, and what the steward changed in their domain after"
        f" run `{c.domain_from.run}` had found it; that run itself was paid for"
    )


def not_covered_markdown(c: Certificate) -> str:
    """The section on what the guarantee does not cover."""
    lines = [
        (
            "Correlated rows: a bound on each data point's effect is not a bound on what correlated"
            " data points reveal together (see Groups)."
        ),
        (
            "Inference from others: what the rows of other people say about a person, with or"
            " without that person's row."
        ),
        _presence(c),
        fitting(c),
        "Timing: how long the release took, its memory use, and whether and when it was made.",
        _steward_alone(c),
        _other_releases(c),
    ]
    noises = noises_of(x.event for x in c.planned)
    if {"lattice", "rounded"} & noises:
        lattice = on_lattice(x.event for x in c.planned)
        lines.append(f"Floating-point arithmetic: {_arithmetic(noises, lattice)}")
    for gate in c.outside_gates:
        if gate.at_most is not None:
            bound = f"at most {gate.at_most:g}"
        else:
            bound = f"at least {gate.at_least:g}"
        lines.append(
            f"**The decision to publish**: the spec asked for `{gate.metric}` {bound}, a figure"
            " computed on real rows without noise. That this bundle exists says that it held; this"
            " is outside the guarantee."
        )
    return "\n".join(["## What is not covered\n", *(f"- {line}" for line in lines)])


def _steward_alone(c: Certificate) -> str:
    exception = "but for the scores above, " if c.scores else ""
    return (
        f"What the steward alone has: {exception}the internal report and the tracking server show"
        " figures computed on real rows without noise. They must not be published."
    )


def _arithmetic(noises: Set[NoiseKind], lattice: str) -> str:
    """What is assumed of noise that is not discrete and exact; `lattice` is `on_lattice`."""
    exactly = "that the generator's Gaussians are exactly Gaussian is assumed"
    if not lattice:
        return f"{exactly}. {_noise_on_tables(noises)}"
    return (
        f"{lattice} is a 64-bit Gaussian rounded to a public lattice, so the low bits of"
        f" a result tell nothing; {exactly}. {_noise_on_tables(noises)}"
    )


def _noise_on_tables(noises: Set[NoiseKind]) -> str:
    rounded = "is a 64-bit Gaussian rounded to whole numbers"
    if "discrete" not in noises:
        return f"Noise on tables {rounded}, on the same assumption."
    planned = "Noise on planned tables is discrete and exact"
    if "rounded" not in noises:
        return f"{planned}."
    return f"{planned}; on tables chosen during the search it {rounded}."


def _presence(c: Certificate) -> str:
    if c.adjacency == "add_remove":
        return (
            "Being in the source: the guarantee covers whether a data point was used, not what is"
            " known from elsewhere about who is in the source."
        )
    return (
        "Being in the source: whether someone's data point is in the table at all is not protected;"
        " only its content is."
    )


def fitting(c: Certificate) -> str:
    """What the existence of a release says about its table."""
    conditions = ["lacks a column", "has far more rows than declared"]
    if c.out_of_domain == "refuse":
        conditions.append("holds a value outside the declared domain")
    if c.unit == "id":
        conditions.append("has a row without an id")
    elif c.rows_kind == "public":
        conditions.append("has another number of rows than declared")
    return (
        f"That the table fitted: a table that {' or '.join(conditions)} is refused, so this release"
        " says that it was not so."
    )


def _other_releases(c: Certificate) -> str:
    cap = " No cap was declared for their sum."
    if c.cap:
        epsilon, delta = c.cap
        cap = f" The steward's ledger caps their sum at epsilon {epsilon:g}, delta {delta:g}."
    return f"Other releases of dataset `{c.dataset}`: their epsilons and deltas add to these.{cap}"


def noises_of(events: Iterable[Mapping[str, Any]]) -> set[NoiseKind]:
    """The kinds of noise inside `events`."""
    return {leaf.noise for leaf in _leaves(events) if leaf.noise is not None}


def on_lattice(events: Iterable[Mapping[str, Any]]) -> str:
    """What inside `events` has Gaussian noise on a lattice: a training, sums, both; empty: none."""
    trained = {leaf.name in OF_BATCHES for leaf in _leaves(events) if leaf.noise == "lattice"}
    if len(trained) == 2:
        return "the noise of training and of sums"
    return "the training's noise" if True in trained else "noise on sums" if trained else ""


def _leaves(events: Iterable[Mapping[str, Any]]) -> Iterator[EventKind]:
    return (leaf for event in events for leaf in leaves(event_from_json(event)))
