"""What describes a release in its bundle: `DATACARD.md`, `README.md`, the public `spec.yaml`,
and `privacy/deployment.yaml`, a tier 3 record of the OpenDP Deployments Registry.

The data card says what the synthetic table is, how it was made, and what it is good for. Its
headings follow the Data Cards Playbook [Pushkarna, Zaldivar and Kjartansson, "Data Cards",
arXiv:2204.01075v1, section 3], as far as spec, graph and certificate know the answers. The card is
a function of those, of the noisy tables and of the synthetic rows, so that `verify` can write it
again.

The record is a function of the public spec, the certificate and the day the run was settled, so
that `verify` can write it again and compare. What only the publisher knows - curator, region,
intended use, reasons - is the spec's `publication`; without that section there is no record, since
a register must not be told what nobody stated. `schemas/deployment.schema.json` says where the
fields come from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import combinations
from typing import Any, TypeVar, cast

import numpy as np
import yaml
from jinja2 import Template

from synthdp.bundle.certificate import Certificate
from synthdp.bundle.certificate_text import (
    about_column,
    environment,
    noises_of,
    on_lattice,
    plain,
    template,
    template_text,
    title_of,
)
from synthdp.bundle.table_files import PARQUET_NAME, citation
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.data.kinds import column_kind
from synthdp.evaluate.fidelity import cramers_v
from synthdp.files import text_sha256
from synthdp.graph.causal import CausalGraph, GraphEdge
from synthdp.graph.level_groups import groups_of
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.plan import TRAIN
from synthdp.report.public.content import MeasuredPair
from synthdp.spec.addresses import is_pattern
from synthdp.spec.expressions.parsed import quoted
from synthdp.spec.load.wording import up
from synthdp.spec.model import (
    ChosenColumns,
    Compute,
    CsvSource,
    Integer,
    LinkedSpec,
    Number,
    ParquetSource,
    ReleaseSpec,
    Signing,
    Source,
    SqlSource,
)
from synthdp.spec.writing import yaml_text

DATACARD = "DATACARD.md"
AnySpec = TypeVar("AnySpec", bound=ReleaseSpec | LinkedSpec)


def datacard(
    spec: ReleaseSpec,
    certificate: Certificate,
    graph: CausalGraph,
    tables: Sequence[NoisyTable],
    strengths: Sequence[Strength],
    found: Sequence[MeasuredPair],
    *,
    day: str,
) -> str:
    """The data card; `strengths` are of the graph's links, `day` is the release's (ISO date).

    `found` are the pairs that were measured, the same as on the page.
    """
    order = list(spec.modelled)
    sets = {frozenset(t.columns) for t in tables if len(t.columns) > 1}
    both = {pair for p in found if p.sound for pair in (p.names, p.names[::-1])}
    sound = ((name, [other for other in order if (name, other) in both]) for name in order)
    publication = spec.publication
    curators = publication.curators if publication is not None else ()
    return template("datacard.md.j2").render(
        **readme_facts(spec, certificate, day),
        title=plain(title_of(spec.dataset)),
        publisher=", ".join(f"{plain(c.name)} ({c.type.lower()})" for c in curators)
        or "not stated",
        sets=sorted(sorted(s, key=order.index) for s in sets),
        most_sets=40,
        measured=len(pairs_counted(tables)),
        sound=[(name, partners) for name, partners in sound if partners],
        unsound=sum(not pair.sound for pair in found),
        pairs=len(order) * (len(order) - 1) // 2,
        links=arrows_text(strengths),
        edges=sum(edge.structural for edge in graph.edges),
        loose=len(graph.undirected),
        trained=any(p.purpose == TRAIN for p in certificate.planned),
        together=graph.together,
        columns=[
            (
                name,
                column.type,
                column_kind(column).in_words(column, most=12),  # datapackage.json has them all
                "yes" if column.missing else "no",
                column.unit or "",
                about_column(column),
            )
            for name, column in spec.columns.items()
        ],
    )


def pairs_counted(tables: Sequence[NoisyTable]) -> set[frozenset[str]]:
    """The pairs of columns that some table has together."""
    return {frozenset(pair) for table in tables for pair in combinations(table.columns, 2)}


def readme_facts(spec: ReleaseSpec, certificate: Certificate, day: str) -> dict[str, Any]:
    """What both pages on the data say."""
    licence = spec.dataset.licence
    return {
        "spec": spec,
        "c": certificate,
        "own": certificate.domain_from,
        "day": day,
        "rows": spec.sampling.rows or spec.dataset.rows.value,
        "unit": plain(certificate.unit_meaning),
        "licence": plain(licence or "not stated: ask the publisher before you redistribute it"),
        "citation": citation(spec, certificate, day=day),
    }


# --- the public spec, and the README ---
#
# A steward's spec names files, databases, servers and addresses. None of them is needed to read the
# release, so `public_spec` leaves them out or replaces them by values that still validate.


WITHHELD = "withheld"
SPEC_HEAD = """\
# The spec of this release with every default filled in. Left out: folders, database and server addresses,
# queries. `source` keeps its kind; a file keeps its name without the folder.
"""  # noqa: E501


def public_spec(spec: AnySpec) -> AnySpec:
    """The spec that is published.

    Kept: all that says what was released and how. Left out: which columns of the source were
    dropped or renamed. Replaced: the paths of source and prior (their last part stays), a SQL
    source's variable and query, the ledger's and MLflow's URLs, the compute backend and its
    address, the variable that names the signing key, the folder of the wave before. Filled in: the
    number of sampled rows, or persons.
    """
    shown: dict[str, Any] = {
        "privacy": spec.privacy.model_copy(update={"ledger": None}),
        "tracking": spec.tracking.model_copy(update={"uri": None}),
        "signing": Signing(),
    }
    drawn: dict[str, int]
    if isinstance(spec, LinkedSpec):
        tables = {name: _shown_source(table) for name, table in spec.dataset.tables.items()}
        shown |= {"dataset": spec.dataset.model_copy(update={"tables": tables})}
        shown |= {"compute": Compute()}
        drawn = {"persons": spec.sampling.persons or spec.dataset.persons.rows.value}
    else:
        shown |= {"dataset": _shown_source(spec.dataset)}
        shown |= {"compute": Compute(device=spec.compute.device)}
        if (prior := spec.prior) is not None:
            name = {"source" if prior.source else "bundle": prior.name}
            shown |= {"prior": prior.model_copy(update=name)}
        if (waves := spec.waves) is not None and waves.after is not None:
            after = waves.after.model_copy(update={"bundle": WITHHELD})
            shown |= {"waves": waves.model_copy(update={"after": after})}
        drawn = {"rows": spec.sampling.rows or spec.dataset.rows.value}
    shown |= {"sampling": spec.sampling.model_copy(update=drawn)}
    return cast("AnySpec", spec.model_copy(update=shown))


def _shown_source(table: Any) -> Any:
    """A dataset or a linked table, its source without what `public_spec` leaves out."""
    source: Source = table.source
    if isinstance(source, ChosenColumns):
        source = source.model_copy(update={"drop": (), "rename": {}})
    if isinstance(source, CsvSource | ParquetSource):
        last = source.path.replace("\\", "/").rstrip("/").rpartition("/")[2]
        shown = last if last and not is_pattern(last) else WITHHELD
        source = source.model_copy(update={"path": shown})
    elif isinstance(source, SqlSource):
        source = SqlSource(kind="sql", url_env=WITHHELD.upper(), query=WITHHELD)
    return table.model_copy(update={"source": source})


def spec_yaml(spec: ReleaseSpec | LinkedSpec) -> str:
    """A spec as YAML that `synthdp.spec.load.loader` reads back to an equal spec.

    Every default is written out, but for those of fields that specs are older than.
    """
    content = spec.model_dump(mode="json", exclude_none=True)
    tables = content["columns"].values()
    if not isinstance(spec, LinkedSpec):
        tables = [content["columns"]]
        if not spec.graph.unseen_causes:
            del content["graph"]["unseen_causes"]
        if not spec.maps:
            del content["maps"]
        if content["dataset"]["source"].get("decimal") == ".":
            del content["dataset"]["source"]["decimal"]
        if content.get("publication", {}).get("decision") == "optional":
            del content["publication"]["decision"]
    for column in (column for table in tables for column in table.values()):
        for name in ("values", "known_shares"):
            if not column.get(name, True):
                del column[name]
        if "edges" in column or "derived" in column:
            del column["bins"]  # the contract takes one of the three
    return SPEC_HEAD + yaml_text(content, width=120)


def published_sha256(spec: AnySpec) -> str:
    """SHA-256 of the `spec.yaml` that a bundle of `spec` has.

    The ledger holds it from the reservation on, and that of each change since. So nothing that says
    what was counted, and under which conditions, can be told otherwise later.
    """
    return text_sha256(spec_yaml(public_spec(spec)))


def readme(spec: ReleaseSpec, certificate: Certificate, *, day: str) -> str:
    """The bundle's README, for the users of the data; `day` is that of the release (ISO date)."""
    measured = (
        name
        for name, column in spec.modelled.items()
        if quoted(name) == name and isinstance(column, Integer | Number)
    )
    return template("README.md.j2").render(
        **readme_facts(spec, certificate, day),
        front_matter=front_matter(spec),
        question=next((f"mean({name})" for name in measured), "count()"),
    )


def graph_title(spec: ReleaseSpec) -> str:
    """Title of `graph.svg`."""
    kind = "Predictive" if spec.graph.mode == "predict" else "Causal"
    return f"{kind} graph of {spec.dataset.title or spec.dataset.id}"


# --- arrows ---
#
# How strong each link of the graph is in the synthetic rows: post-processing of what is published.
# Strength is Cramér's V, with Bergsma's correction (`synthdp.evaluate.fidelity`), on the levels or
# groups of levels that pairs were counted on.


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
        a, b = map(domain.index, edge.pair)
        width = groups.coarse.columns[b].levels
        cells = coarse[:, a].astype(np.int64) * width + coarse[:, b]
        size = groups.coarse.columns[a].levels * width
        counts = np.bincount(cells, minlength=size).reshape(-1, width)
        v = round(float(cramers_v(counts, np.zeros(1, dtype=np.int64))[0]), 2)
        return Strength(edge, v, any(set(edge.pair) <= columns for columns in together))

    found = [strength(edge) for edge in graph.edges if edge.structural]
    return tuple(sorted(found, key=lambda s: (-s.v, s.edge)))


def arrows_text(strengths: Sequence[Strength]) -> str:
    """The links as a table of Markdown; nothing where there are none."""
    if not strengths:
        return ""
    weak = sum(s.v < WEAK for s in strengths)
    known = {"links": strengths, "weak": weak, "limit": WEAK, "most": MAX_ARROWS, "behind": BEHIND}
    return template("links.md.j2").render(known).removesuffix("\n")


# --- front matter: the head of the README as dataset hubs read it ---
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


DEPLOYMENT = "privacy/deployment.yaml"
HEAD = (
    "# A tier 3 record for the OpenDP Deployments Registry"
    " (github.com/opendp/deployments-registry-data), as a draft for its reviewers.\n"
)


def deployment_record(
    spec: ReleaseSpec, certificate: Certificate, *, day: str
) -> dict[str, Any] | None:
    """The record, its fields in the registry's order; None where the spec states no `publication`.

    Args:
        spec: the public spec.
        certificate: the release's certificate.
        day: when the run was settled, as YYYY-MM-DD.
    """
    publication = spec.publication
    if publication is None:
        return None
    c, unit_is_row = certificate, certificate.unit == "row"
    events = [x.event for x in c.planned]
    title = plain(spec.dataset.title or spec.dataset.id)
    curators = [one.name for one in publication.curators]
    fixed = c.rows_kind == "public" and unit_is_row and c.adjacency == "replace_one"
    groups = (
        f"{g.size}: {'no bound' if g.joint_epsilon is None else up(g.joint_epsilon)}"
        for g in c.groups
        if g.size > 1
    )
    texts = {
        "spec": spec,
        "publication": publication,
        "c": c,
        "own": c.domain_from,
        "title": title,
        "unit": plain(c.unit_meaning),
        "rows": spec.sampling.rows or spec.dataset.rows.value,
        "size": f"{c.rows:,} rows" if fixed else "any number of rows",
        "added": c.adjacency == "add_remove",
        "groups": ", ".join(groups),
        "used": {p.purpose for p in c.purposes if p.used},
        "unused": not all(p.used for p in c.purposes),
        "noises": noises_of(events),
        "lattice": on_lattice(events),
    }
    named = " ".join([title, *curators, day[:4], c.run])
    values = {
        "$slug": re.sub(r"[^a-z0-9]+", "-", named.lower()).strip("-") or "release",
        "$curators": [
            {"data_curator_name": plain(one.name), "data_curator_type": one.type}
            for one in publication.curators
        ],
        "$sector": publication.sector,
        "$day": day,
        "$units": c.rows if unit_is_row else None,
        "$parameters": {"epsilon": float(up(c.epsilon)), "delta": c.delta},
        "$authors": list(publication.authors) or curators,
    }

    def filled(part: Any) -> Any:
        if isinstance(part, dict):
            made = {key: filled(value) for key, value in part.items()}
            return {key: value for key, value in made.items() if value is not None}
        if not isinstance(part, str):
            return part
        return values[part] if part in values else _compiled(part).render(texts)

    record: dict[str, Any] = filled(yaml.safe_load(template_text("deployment.yaml.j2")))
    return record


@cache
def _compiled(part: str) -> Template:
    return environment().from_string(part)


def deployment_yaml(record: dict[str, Any]) -> str:
    """The record as YAML in the registry's form.

    Texts of several lines are `|` blocks, none is folded.
    """

    class Dumper(yaml.SafeDumper):
        pass

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar(
            "tag:yaml.org,2002:str", value, style="|" if "\n" in value else None
        )

    Dumper.add_representer(str, text)
    return HEAD + yaml.dump(
        record, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=1 << 20
    )


def schema_problems(record: Any) -> Iterator[str]:
    """What keeps `record` from being a valid tier 3 record, as 'field: what is wrong'."""
    from jsonschema import Draft202012Validator

    schema = json.loads(
        files("synthdp.bundle")
        .joinpath("schemas/deployment.schema.json")
        .read_text(encoding="utf-8")
    )
    validator = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    for error in sorted(validator.iter_errors(record), key=lambda e: list(map(str, e.path))):
        yield f"{'.'.join(map(str, error.path)) or 'record'}: {error.message[:200]}"
