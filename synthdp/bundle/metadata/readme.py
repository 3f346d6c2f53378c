"""The public spec of a bundle as YAML, and the README for users of the data.

A steward's spec names files, databases, servers and addresses. None of them is needed to read the
release, so `public_spec` leaves them out or replaces them by values that still validate.
"""

from __future__ import annotations

import hashlib
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from synthdp.bundle.certificate.facts import Certificate
from synthdp.bundle.metadata.croissant import citation
from synthdp.bundle.metadata.datacard import NOT_FOR
from synthdp.bundle.metadata.front_matter import front_matter
from synthdp.bundle.wording import code, plain
from synthdp.spec.addresses import is_pattern
from synthdp.spec.expressions.names import quoted
from synthdp.spec.model import (
    ChosenColumns,
    Compute,
    CsvSource,
    Integer,
    Number,
    ParquetSource,
    ReleaseSpec,
    Signing,
    SqlSource,
)
from synthdp.spec.wording import up

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
    text: str = _template("README.md.j2").render(
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


def _template(name: str) -> Template:
    """A Markdown template of this package. It escapes nothing: each value is quoted before."""
    return Environment(
        loader=PackageLoader("synthdp.bundle.metadata", "templates"),
        autoescape=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    ).get_template(name)


def graph_title(spec: ReleaseSpec) -> str:
    """Title of `graph.svg`."""
    kind = "Predictive" if spec.graph.mode == "predict" else "Causal"
    return f"{kind} graph of {spec.dataset.title or spec.dataset.id}"
