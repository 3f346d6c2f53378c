"""`DATACARD.md`: what the synthetic table is, how it was made, and what it is good for.

The headings follow the Data Cards Playbook [Pushkarna, Zaldivar and Kjartansson, "Data Cards",
arXiv:2204.01075v1, section 3], as far as spec, graph and certificate know the answers. The card is
a function of those, of the noisy tables and of the synthetic rows, so that `verify` can write it
again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import yaml

from synthdp.bundle.certificate import Certificate
from synthdp.bundle.certificate_text import about_column, code, in_words, plain, template, title_of
from synthdp.bundle.table_files import PARQUET_NAME, citation
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.data.kinds import column_kind
from synthdp.evaluate.fidelity import cramers_v
from synthdp.graph.causal import CausalGraph, GraphEdge
from synthdp.graph.level_groups import groups_of
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.plan import TRAIN
from synthdp.spec.addresses import is_pattern
from synthdp.spec.expressions.parsed import quoted
from synthdp.spec.load.wording import many, up
from synthdp.spec.model import (
    ChosenColumns,
    Column,
    Compute,
    CsvSource,
    Integer,
    Number,
    ParquetSource,
    ReleaseSpec,
    Signing,
    SqlSource,
)

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


# --- readme ---
#
# The public spec of a bundle as YAML, and the README for users of the data.
#
# A steward's spec names files, databases, servers and addresses. None of them is needed to read
# the release, so `public_spec` leaves them out or replaces them by values that still validate.


WITHHELD = "withheld"
SPEC_HEAD = """\
# The spec of this release with every default filled in. Left out: folders, database and server addresses,
# queries. `source` keeps its kind; a file keeps its name without the folder.
"""  # noqa: E501


def public_spec(spec: ReleaseSpec) -> ReleaseSpec:
    """The spec that is published.

    Kept: all that says what was released and how. Left out: which columns of the source were
    dropped or renamed. Replaced: the source's path (its last part stays), a SQL source's variable
    and query, the ledger's and MLflow's URLs, the compute backend and its address, the variable
    that names the signing key. Filled in: the number of sampled rows.
    """
    source = spec.dataset.source
    if isinstance(source, ChosenColumns):
        source = source.model_copy(update={"drop": (), "rename": {}})
    if isinstance(source, CsvSource | ParquetSource):
        last = source.path.replace("\\", "/").rstrip("/").rpartition("/")[2]
        shown = last if last and not is_pattern(last) else WITHHELD
        source = source.model_copy(update={"path": shown})
    elif isinstance(source, SqlSource):
        source = SqlSource(kind="sql", url_env=WITHHELD.upper(), query=WITHHELD)
    return spec.model_copy(
        update={
            "dataset": spec.dataset.model_copy(update={"source": source}),
            "privacy": spec.privacy.model_copy(update={"ledger": None}),
            "sampling": spec.sampling.model_copy(
                update={"rows": spec.sampling.rows or spec.dataset.rows.value}
            ),
            "tracking": spec.tracking.model_copy(update={"uri": None}),
            "compute": Compute(device=spec.compute.device),
            "signing": Signing(),
        }
    )


def spec_yaml(spec: ReleaseSpec) -> str:
    """A spec as YAML that `synthdp.spec.load.loader` reads back to an equal spec.

    Every default is written out, but for those of fields that specs are older than.
    """
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    content = spec.model_dump(mode="json", exclude_none=True)
    if not spec.graph.unseen_causes:
        del content["graph"]["unseen_causes"]
    if not spec.maps:
        del content["maps"]
    if content["dataset"]["source"].get("decimal") == ".":
        del content["dataset"]["source"]["decimal"]
    for column in content["columns"].values():
        if not column.get("values", True):
            del column["values"]
        if "edges" in column or "derived" in column:
            del column["bins"]  # the contract takes one of the three
    return SPEC_HEAD + yaml.dump(
        content, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=120
    )


def published_sha256(spec: ReleaseSpec) -> str:
    """SHA-256 of the `spec.yaml` that a bundle of `spec` has.

    The ledger holds it from the reservation on, and that of each change since. So nothing that says
    what was counted, and under which conditions, can be told otherwise later.
    """
    return hashlib.sha256(spec_yaml(public_spec(spec)).encode()).hexdigest()


def readme(spec: ReleaseSpec, certificate: Certificate, *, day: str) -> str:
    """The bundle's README, for the users of the data; `day` is that of the release (ISO date)."""
    # Quoted, so that a publisher's words cannot pass for what this page states.
    description = (spec.dataset.description or "").strip().splitlines()
    licence = "not stated: ask the publisher before you redistribute it"
    if spec.dataset.licence:
        licence = plain(spec.dataset.licence)
    text: str = template("README.md.j2").render(
        front_matter=front_matter(spec),
        title=plain(spec.dataset.title or spec.dataset.id),
        about=[f"> {plain(line)}".rstrip() for line in description],
        rows=f"{spec.sampling.rows or spec.dataset.rows.value:,}",
        constraints=[code(constraint) for constraint in spec.constraints],
        unit=plain(certificate.unit_meaning),
        program=plain(certificate.program),
        epsilon=up(certificate.epsilon),
        delta=f"{certificate.delta:g}",
        searched=_with_search(certificate),
        not_for=NOT_FOR,
        predictive=spec.graph.mode == "predict",
        question=_example_question(spec),
        estimands=_number_of_estimands(len(spec.estimands)),
        published=spec.publication is not None,
        signed=certificate.signer is not None,
        licence=licence,
        contact=plain(spec.dataset.contact or "no address is stated; ask the publisher"),
        citation=plain(citation(spec, certificate, day=day)),
    )
    return text


def _with_search(certificate: Certificate) -> dict[str, str] | None:
    """Epsilon and delta of the release and of the search for its columns; None without one."""
    own = certificate.domain_from
    if own is None:
        return None
    return {
        "epsilon": up(certificate.epsilon + own.epsilon),
        "delta": f"{certificate.delta + own.delta:g}",
    }


def _number_of_estimands(count: int) -> str:
    """In words, or nothing where there are none."""
    return "" if count == 0 else "one result" if count == 1 else f"{count} results"


def _example_question(spec: ReleaseSpec) -> str:
    """A question that one measured column answers."""
    for name, column in spec.modelled.items():
        if quoted(name) == name and isinstance(column, Integer | Number):
            return f"mean({name})"
    return "count()"


def graph_title(spec: ReleaseSpec) -> str:
    """Title of `graph.svg`."""
    kind = "Predictive" if spec.graph.mode == "predict" else "Causal"
    return f"{kind} graph of {spec.dataset.title or spec.dataset.id}"


# --- arrows ---
#
# How strong each link of the graph is in the synthetic rows: post-processing of what is published.
#
# Strength is Cramér's V, with Bergsma's correction (`synthdp.evaluate.fidelity`), on the levels
# or groups of levels that pairs were counted on.


MAX_ARROWS = 15  # links that are listed
WEAK = 0.1  # Cramér's V of a small effect between columns of two levels [Cohen 1988]
BEHIND = {
    "given": "drawn by the publisher, not tested",
    "required": "required by the publisher, not tested",
    "learned": "found on noisy tables",
    "supported": "drawn by the publisher; noisy tables support it",
    "refuted": "drawn by the publisher; noisy tables speak against it",
    "undecided": "drawn by the publisher; noisy tables do not decide",
    "predictive": "noisy tables show a dependence; no cause",
}


@dataclass(frozen=True)
class Strength:
    """A link, Cramér's V of its columns, and whether some noisy table has both."""

    edge: GraphEdge
    v: float
    measured: bool


def arrow_strengths(
    graph: CausalGraph, codes: Codes, domain: Domain, tables: Sequence[NoisyTable]
) -> tuple[Strength, ...]:
    """Of all links of a graph, the strongest first; `codes` are levels `[rows, columns]`."""
    groups = groups_of(tables, domain)
    coarse = groups.of(codes)
    together = [set(table.columns) for table in tables]

    def strength(edge: GraphEdge) -> Strength:
        a, b = (domain.index(name) for name in edge.pair)
        width = groups.coarse.columns[b].levels
        cells = coarse[:, a].astype(np.int64) * width + coarse[:, b]
        size = groups.coarse.columns[a].levels * width
        counts = np.bincount(cells, minlength=size).reshape(-1, width)
        v = round(float(cramers_v(counts, np.zeros(1, dtype=np.int64))[0]), 2)
        return Strength(edge, v, any(set(edge.pair) <= columns for columns in together))

    found = [strength(edge) for edge in graph.edges if edge.structural]
    return tuple(sorted(found, key=lambda s: (-s.v, s.edge)))


def arrows_text(strengths: Sequence[Strength]) -> Iterator[str]:
    """The links as a table of Markdown; nothing where there are none."""
    if not strengths:
        return
    weak = sum(s.v < WEAK for s in strengths)
    yield (
        "How strong each link is in the synthetic rows, by Cramér's V: 0 is none, 1 means that one"
        " column tells the other. It is the model's figure, after noise and without an interval."
        f" {weak} of {len(strengths)} are weak (below {WEAK:g})."
    )
    yield ""
    yield from ("| link | V | in one noisy table | what stands behind it |", "|---|---|---|---|")
    for s in strengths[:MAX_ARROWS]:
        link = (" → " if s.edge.directed else " - ").join(map(plain, s.edge.pair))
        measured = "yes" if s.measured else "no"
        yield f"| {link} | {s.v:.2f} | {measured} | {BEHIND[s.edge.provenance]} |"
    if len(strengths) > MAX_ARROWS:
        rest = strengths[MAX_ARROWS:]
        yield ""
        yield f"{len(rest)} more have a V of {rest[0].v:.2f} or less."


# --- front matter ---
#
# The head of a bundle's README as dataset hubs read it: YAML between two lines of dashes.
#
# `datasets.load_dataset` finds there which of the files holds the rows. [Source: the dataset card
# of Hugging Face's hub, huggingface.co/docs/hub/datasets-cards.]


# The hub's own names of licences, which are SPDX's in small letters but for these.
_RENAMED = {"odc-by-1.0": "odc-by", "odbl-1.0": "odbl", "pddl-1.0": "pddl"}
_LICENCES = {
    *_RENAMED.values(),
    *("cc0-1.0", "cc-by-4.0", "cc-by-sa-4.0", "cc-by-nd-4.0", "cc-by-nc-4.0", "cc-by-nc-sa-4.0"),
    *("cc-by-nc-nd-4.0", "cdla-permissive-2.0", "etalab-2.0", "mit", "apache-2.0", "bsd-3-clause"),
}
_SIZES = ("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "10M<n<100M", "100M<n<1B")


def front_matter(spec: ReleaseSpec) -> str:
    """The lines between the dashes, and the dashes; of the spec alone."""
    size = size_category(spec.sampling.rows or spec.dataset.rows.value)
    head = {
        "pretty_name": quoted_yaml(title_of(spec.dataset)),
        **_licence(spec.dataset.licence),
        "size_categories": f"[{quoted_yaml(size)}]",
    }
    rest = {
        "tags": ["synthetic", "differential-privacy", "tabular"],
        "configs": [{"config_name": "default", "data_files": PARQUET_NAME}],
    }
    lines = "".join(f"{key}: {value}\n" for key, value in head.items())
    return f"---\n{lines}{yaml.safe_dump(rest, sort_keys=False)}---\n"


def quoted_yaml(words: str) -> str:
    """A text in YAML's quotes, its signs as codes: readers of Markdown that do not know of such a
    head draw nothing of it.

    >>> print(quoted_yaml("Patients <b>"))
    "Patients \\U0000003cb\\U0000003e"
    """
    plain = " ".join(words.split())
    return '"' + "".join(c if c.isalnum() or c == " " else f"\\U{ord(c):08x}" for c in plain) + '"'


def size_category(rows: int) -> str:
    """The hub's name for so many rows.

    >>> size_category(999), size_category(1000)
    ('n<1K', '1K<n<10K')
    """
    bounds = (10 ** (3 + i) for i in range(len(_SIZES)))
    named = dict(zip(bounds, _SIZES, strict=True))
    return next((name for bound, name in named.items() if rows < bound), "1B<n<10B")


def _licence(stated: str | None) -> dict[str, str]:
    if not stated:
        return {}
    name = _RENAMED.get(stated.lower(), stated.lower())
    if name in _LICENCES:
        return {"license": name}
    return {"license": "other", "license_name": quoted_yaml(stated)}
