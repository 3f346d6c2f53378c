"""`DATACARD.md`: what the synthetic table is, how it was made, and what it is good for.

The headings follow the Data Cards Playbook [Pushkarna, Zaldivar and Kjartansson, "Data Cards",
arXiv:2204.01075v1, section 3], as far as spec, graph and certificate know the answers. The card is
a function of those, of the noisy tables and of the synthetic rows, so that `verify` can write it
again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from synthdp.bundle.certificate.facts import Certificate
from synthdp.bundle.certificate.scores_text import in_words
from synthdp.bundle.metadata.arrows import Strength, arrows_text
from synthdp.bundle.metadata.croissant import citation
from synthdp.bundle.wording import about_column, code, plain, title_of
from synthdp.data.kinds import column_kind
from synthdp.graph.causal import CausalGraph
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.plan import TRAIN
from synthdp.spec.model import Column, ReleaseSpec
from synthdp.spec.wording import many, up

DATACARD = "DATACARD.md"
MAX_SETS = 40  # sets of columns that were measured together
MAX_SHOWN = 12  # categories or values of a column; datapackage.json has them all
NOT_FOR = """\
- decisions about a person: no row is anyone;
- results that must hold for the original: repeat them there, through the data's owner. Confidence intervals computed here as if these rows
  were real are too narrow, since they ignore the noise and the model's error;
- small groups, rare values and extremes: noise and smoothing act there most;
- relations that the model was not built to carry: see `graph.json` for those it was;
- uniqueness, linkage or duplicate studies: which rows are alike says nothing about the original's rows."""  # noqa: E501
GRAPHS = {
    "none": (
        "No causal graph: the model is a plain variational autoencoder, whose arrows mean nothing."
    ),
    "given": "The publisher gave the graph; it was not tested on the data.",
    "validate": (
        "The publisher gave the graph; its arrows were tested on noisy tables, and are marked as"
        " those found them."
    ),
    "learn": (
        "The graph was learned from noisy tables, within what the publisher required and forbade."
        " Where the search had no answer on a pair that they show to be dependent, a predictive"
        " arrow keeps it, which is no cause."
    ),
    "predict": (
        "No causal graph: arrows say which columns predict which, in the order of the spec; they"
        " are no causes. Which pairs were measured was chosen from noisy tables, and paid for."
    ),
}


NOT_COVERED = (
    " `privacy/certificate.md` says what of it the guarantee covers and what it does not: among the"
    " latter what can be inferred about a person from other people's rows, which no release of"
    " statistics can withhold."
)


def datacard(
    spec: ReleaseSpec,
    certificate: Certificate,
    graph: CausalGraph,
    tables: Sequence[NoisyTable],
    strengths: Sequence[Strength],
    *,
    day: str,
) -> str:
    """The data card; `strengths` are of the graph's links, `day` is the release's (ISO date)."""
    return "\n".join(
        [
            f"# Data card: {plain(title_of(spec.dataset))}",
            "",
            *_quoted(spec.dataset.description),
            *_summary(spec, certificate, day),
            "",
            "Cite it as:",
            "",
            code(citation(spec, certificate, day=day)),
            "",
            "## Uses",
            "",
            *_uses(spec),
            (
                "Good for: exploring, writing and testing code, teaching, and a first look at"
                " relations that the released model carries."
            ),
            "",
            "Not good for:",
            "",
            NOT_FOR,
            "",
            "## Relations that were measured",
            "",
            *_measured(spec, tables),
            "",
            *([] if not strengths else ["## Links of the model", "", *arrows_text(strengths), ""]),
            "## How it was made",
            "",
            *_making(spec, certificate, graph),
            "",
            *_quality(certificate),
            "## Columns",
            "",
            _where_from(certificate),
            "",
            "| column | type | values | may be missing | unit | description |",
            "|---|---|---|---|---|---|",
            *(_row(name, column) for name, column in spec.columns.items()),
            "",
            "## Sensitive content",
            "",
            f"The original describes {plain(certificate.unit_meaning)}.{NOT_COVERED}",
            "",
        ]
    )


def _measured(spec: ReleaseSpec, tables: Sequence[NoisyTable]) -> Iterator[str]:
    """Which columns noisy tables have together, and what that means for those that none has."""
    sets = {frozenset(t.columns) for t in tables if len(t.columns) > 1}
    pairs = {frozenset(pair) for s in sets for pair in combinations(s, 2)}
    columns = len(spec.modelled)
    if spec.estimands:
        yield "What the release was asked and paid for, with 95% intervals: `estimands.json`."
        yield ""
    if not sets:
        yield (
            "Single columns alone were measured. Every relation between columns in the rows is the"
            " model's, learned under noise of which nothing says how far off it is."
        )
        return
    yield (
        f"Noisy tables have {len(pairs)} of the {many(columns * (columns - 1) // 2, 'pair')} of"
        " columns together. `synthdp answer` tells numbers about these with 95% intervals."
        " Relations of all other columns, and beyond pairs, are the model's: nothing says how far"
        " off they are."
    )
    if len(pairs) < columns * (columns - 1) // 2:
        order = list(spec.modelled)
        named = sorted(sorted(s, key=order.index) for s in sets)
        yield ""
        yield from (f"- {', '.join(map(plain, names))}" for names in named[:MAX_SETS])
        if len(named) > MAX_SETS:
            yield f"- and {len(named) - MAX_SETS} more, in `marginals.json`"


def _quoted(description: str | None) -> Iterator[str]:
    """Quoted, so that a publisher's words cannot pass for what this page states."""
    lines = (description or "").strip().splitlines()
    yield from (f"> {plain(line)}".rstrip() for line in lines)
    yield from [""] * bool(lines)


def _summary(spec: ReleaseSpec, certificate: Certificate, day: str) -> Iterator[str]:
    rows = spec.sampling.rows or spec.dataset.rows.value
    unit = plain(certificate.unit_meaning)
    original = unit if certificate.unit == "row" else "one row of the original"
    licence = "not stated: ask the publisher before you redistribute it"
    if spec.dataset.licence:
        licence = plain(spec.dataset.licence)
    signer = certificate.signer or "nobody: nothing in the bundle proves who made it"
    yield from ("## Summary", "", "| | |", "|---|---|")
    yield f"| made | {day}, by {certificate.program}, run `{certificate.run}` |"
    yield f"| publisher | {_publisher(spec)} |"
    yield f"| contact | {plain(spec.dataset.contact or 'not stated')} |"
    yield f"| rows, columns | {rows:,} synthetic rows, {len(spec.columns)} columns |"
    yield f"| one row is | made up, like {original} |"
    yield f"| licence | {licence} |"
    yield (
        f"| guarantee | epsilon {up(certificate.epsilon)} at delta {certificate.delta:g},"
        f" for {unit}{_domain_cost(certificate)} |"
    )
    yield f"| signed by | {signer} |"


def _where_from(certificate: Certificate) -> str:
    own = certificate.domain_from
    if own is None:
        return (
            "Types, bounds and categories were declared by the publisher, and are supposed not to"
            " be read off the data."
        )
    return (
        "Types, bounds and categories were found in the data under differential privacy, by run"
        f" `{own.run}` at epsilon {own.epsilon:g}, and may have been changed by the publisher. What"
        " was not found counts as the first category, or as the nearest bound."
    )


def _domain_cost(certificate: Certificate) -> str:
    own = certificate.domain_from
    if own is None:
        return ""
    return (
        "; with the run that found the columns' domain epsilon"
        f" {up(certificate.epsilon + own.epsilon)} at delta {certificate.delta + own.delta:g}"
    )


def _publisher(spec: ReleaseSpec) -> str:
    if spec.publication is None:
        return "not stated"
    return ", ".join(f"{plain(c.name)} ({c.type.lower()})" for c in spec.publication.curators)


def _uses(spec: ReleaseSpec) -> Iterator[str]:
    if spec.publication is not None:
        yield "The publisher intends it for:"
        yield ""
        yield from _quoted(spec.publication.intended_use)


def _making(spec: ReleaseSpec, certificate: Certificate, graph: CausalGraph) -> Iterator[str]:
    yield (
        "Each look at the original was planned and charged before it was taken"
        " (`privacy/ledger.json`):"
    )
    yield ""
    yield from (f"- {plain(p.purpose)}: {plain(p.mechanism)}" for p in certificate.planned)
    yield ""
    predictive = spec.graph.mode == "predict"
    count = sum(edge.structural for edge in graph.edges)
    links = many(count, "arrow" if predictive else "link")
    has = ("There is" if count == 1 else "There are") if predictive else "It has"
    yield f"{GRAPHS[spec.graph.mode]} {has} {links}, in `graph.json`."
    if spec.graph.mode in ("given", "validate", "learn"):
        yield (
            "An arrow says what the model draws first; that it is a cause in the world is the"
            " publisher's claim, or a finding with errors."
        )
    if predictive:
        yield _fitted(certificate)
    if spec.sampling.rake:
        yield (
            "The rows were chosen so that their one-way tables fit the noisy ones in"
            " `marginals.json`."
        )
    if spec.constraints:
        yield "Every row fulfils the constraints that the publisher declared:"
        yield ""
        yield from (code(c) for c in spec.constraints)


def _fitted(certificate: Certificate) -> str:
    """How mode predict came to its model: from noisy tables, by DP-SGD where it was planned."""
    if any(p.purpose == TRAIN for p in certificate.planned):
        return "A log-linear model was fitted to the noisy tables, and DP-SGD trained it further."
    return "A log-linear model was fitted to the noisy tables alone: nothing was trained by DP-SGD."


def _quality(certificate: Certificate) -> Iterator[str]:
    if certificate.scores:
        yield from (
            "## Quality",
            "",
            "Counted on the original with noise that was paid for (`privacy/certificate.md`):",
            "",
        )
        yield from (f"- {in_words(score)}" for score in certificate.scores)
        yield ""


def _row(name: str, column: Column) -> str:
    cells = [
        name,
        column.type,
        column_kind(column).in_words(column, most=MAX_SHOWN),
        "yes" if column.missing else "no",
        column.unit or "",
        about_column(column),
    ]
    return f"| {' | '.join(plain(c) for c in cells)} |"
