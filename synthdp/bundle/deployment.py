"""The release as a tier 3 record of the OpenDP Deployments Registry: `privacy/deployment.yaml`.

A function of the public spec, the certificate and the day the run was settled, so that `verify` can
write it again and compare. What only the publisher knows - curator, region, intended use, reasons -
is the spec's `publication`; without that section there is no record, since a register must not be
told what nobody stated. `schemas/deployment.schema.json` says where the fields come from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from synthdp.bundle.certificate import Certificate
from synthdp.bundle.certificate_text import describe_event, fitting, noises_of, on_lattice, plain
from synthdp.spec.load.wording import up
from synthdp.spec.model import Publication, ReleaseSpec

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
    title = plain(spec.dataset.title or spec.dataset.id)
    curators = [c.name for c in publication.curators]
    return {
        "url_slug": _slug(" ".join([title, *curators, day[:4], certificate.run])),
        "deployment": {
            "basic": _basic(spec, publication, title=title, day=day),
            "dp_variant": _variant(spec, certificate),
            "privacy_loss": _privacy_loss(spec, certificate),
            "deployment_model": _model(certificate),
            "implementation": _implementation(spec, certificate, publication),
            "administrative": {
                "status": "Draft",
                "registry_authors": list(publication.authors) or curators,
                "tier": 3,
            },
        },
    }


def deployment_yaml(record: dict[str, Any]) -> str:
    """The record as YAML in the registry's form.

    Texts of several lines are `|` blocks, none is folded.
    """
    import yaml

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
    for error in sorted(validator.iter_errors(record), key=lambda e: [str(p) for p in e.path]):
        yield f"{'.'.join(map(str, error.path)) or 'record'}: {error.message[:200]}"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "release"


def _basic(spec: ReleaseSpec, publication: Publication, *, title: str, day: str) -> dict[str, Any]:
    about = f"{plain(spec.dataset.description)} " if spec.dataset.description else ""
    rows = spec.sampling.rows or spec.dataset.rows.value
    sector = {"data_product_sector": publication.sector} if publication.sector else {}
    return {
        "name": title,
        "data_curators": [
            {"data_curator_name": plain(c.name), "data_curator_type": c.type}
            for c in publication.curators
        ],
        "description": (
            f"{about}A synthetic table of {rows:,} rows and {len(spec.columns)} columns, the model"
            " that drew it, and the noisy tables that were measured."
        ),
        "intended_use": plain(publication.intended_use),
        "data_product_type": "Synthetic data",
        "data_product_region": plain(publication.region),
        **sector,
        "publication_date": day,
    }


def _variant(spec: ReleaseSpec, c: Certificate) -> dict[str, Any]:
    fixed = c.rows_kind == "public" and c.unit == "row" and c.adjacency == "replace_one"
    size = f"{c.rows:,} rows" if fixed else "any number of rows"
    unprotected = [
        "The spec, with the domain of every column: names, types, categories, bounds and bins. "
        + _domain_from(c)
    ]
    if c.rows_kind == "public":
        unprotected.append(f"The declared number of rows, {c.rows:,}.")
    unprotected += [
        f"That the release was published says that {g.metric} was {_bound(g.at_most, g.at_least)},"
        " computed on real rows without noise."
        for g in c.outside_gates
    ]
    unprotected += [fitting(c), "Timing and size of the computation."]
    return {
        "variant_name": "Approximate DP",
        "data_domain": (
            f"Tables of {size} over {c.columns} columns whose domains `spec.yaml` declares; "
            + (
                "values outside a domain are clamped to it."
                if spec.dataset.out_of_domain == "clamp"
                else "a table with values outside a domain is refused."
            )
        ),
        "unprotected_quantities": _listed(unprotected),
    }


def _domain_from(c: Certificate) -> str:
    if c.domain_from is None:
        return "They were declared and not computed from rows."
    own = c.domain_from
    return (
        f"They were found in the rows by run {own.run}, at epsilon {own.epsilon:g} and delta"
        f" {own.delta:g} beside those stated here."
    )


def _bound(at_most: float | None, at_least: float | None) -> str:
    return f"at most {at_most:g}" if at_most is not None else f"at least {at_least:g}"


def _privacy_loss(spec: ReleaseSpec, c: Certificate) -> dict[str, Any]:
    move = "adding or removing" if c.adjacency == "add_remove" else "replacing"
    if c.unit == "row":
        unit, what = f"One row: {plain(c.unit_meaning)}", "one row"
    else:
        unit = f"All rows of one id: {plain(c.unit_meaning)}"
        what = f"all rows of one id, of which at most {c.unit_rows} (a random choice) are used"
    number = {"number_of_privacy_units": c.rows} if c.unit == "row" else {}
    groups = ", ".join(
        f"{g.size}: {'no bound' if g.joint_epsilon is None else up(g.joint_epsilon)}"
        for g in c.groups
        if g.size > 1
    )
    return {
        "privacy_unit": unit,
        "privacy_unit_details": (
            f"Two tables are adjacent if one is made from the other by {move} {what}. "
            f"Epsilon at the same delta for groups of several units: {groups}."
        ),
        **number,
        "privacy_parameters": {"epsilon": float(up(c.epsilon)), "delta": c.delta},
        "privacy_parameters_details": (
            "Everything that the run had planned, and so everything in the bundle together:"
            f" epsilon {up(c.epsilon)} of {spec.privacy.epsilon:g} allowed, at delta {c.delta:g}."
            f" `privacy/profile.json` gives delta at every other epsilon.{_less(c)}"
        ),
    }


def _less(c: Certificate) -> str:
    if all(p.used for p in c.purposes):
        return ""
    return (
        " This outcome did not need all of it: what was used composes to epsilon"
        f" {up(c.epsilon_spent)}, which is no bound for the run."
    )


def _model(c: Certificate) -> dict[str, Any]:
    cap = (
        f" A ledger caps all of them together at epsilon {c.cap[0]:g}, delta {c.cap[1]:g}."
        if c.cap
        else " No cap is declared for all of them together."
    )
    return {
        "model_name": "Central",
        "model_name_details": (
            "The steward holds the table and runs synthdp on it; only the bundle leaves."
        ),
        "trust_assumptions": _listed(
            [
                (
                    "The steward is trusted with the rows, to have run the program as stated, to"
                    f" have {_domain_trust(c)} without looking at the rows, and to keep the"
                    " internal report and the tracking server to themselves."
                ),
                (
                    "Users and everyone else who sees the bundle are not trusted: they may know all"
                    " other rows and may collude."
                ),
                "The operating system's random numbers are trusted.",
            ]
        ),
        "actors": "The steward, who holds the rows; downstream users of the bundle; the public.",
        "release_type": "One release",
        "release_type_details": (
            f"Other releases of dataset `{c.dataset}` would add their epsilons and deltas to"
            f" these.{cap}"
        ),
        "data_source_type": "Static",
        "data_source_type_details": "One table, read once.",
        "access_type": "Non-interactive",
        "access_type_details": (
            "Users have the bundle alone; sampling its model is post-processing. Nobody queries the"
            " rows."
        ),
    }


def _domain_word(c: Certificate) -> str:
    if c.domain_from is None:
        return "declared domain; nothing is fitted to rows"
    return "domain that was found and paid for; nothing else is fitted to rows"


def _domain_trust(c: Certificate) -> str:
    return "chosen the declared domain" if c.domain_from is None else "changed the found domain"


def _implementation(spec: ReleaseSpec, c: Certificate, publication: Publication) -> dict[str, Any]:
    gated = (
        "Gates on figures from real rows were asked for; see the unprotected quantities."
        if c.outside_gates
        else "No figure from real rows without noise decided what was published."
    )
    raked = "weighted to the noisy tables and resampled, " if spec.sampling.rake else ""
    return {
        "preprocessing_and_hyperparameter_tuning": (
            f"Values are encoded by the {_domain_word(c)}. Settings come"
            f" from the spec or from public rules of rows, columns and epsilon. {gated} Whether"
            " settings were tuned on these rows outside the program is the curator's to state."
        ),
        "mechanisms": _listed([*_mechanisms(c), _security(c)]),
        "composition": (
            "All planned mechanisms, whether this run used them or not, composed at once by"
            " numerical privacy loss distributions (dp-accounting, pessimistic discretisation)."
            " Their events are in `privacy/certificate.json`."
        ),
        "post_processing": (
            f"The synthetic rows are drawn from the model, {raked}decoded to declared"
            " values and written in random order."
        ),
        "justification": (
            plain(publication.justification)
            if publication.justification
            else "Not stated by the curator."
        ),
        "utility": (
            "Figures on real rows without noise are kept from the public, as they are not private."
            " `marginals.json` holds noisy tables to compare with"
            f"{', and the certificate scores that were paid for' if c.scores else ''}."
        ),
        "additional_information": (
            f"Run {c.run}. The bundle holds a certificate, ledger entries and checksums; `synthdp"
            " verify` checks them offline."
        ),
    }


def _mechanisms(c: Certificate) -> list[str]:
    used = {p.purpose for p in c.purposes if p.used}
    return [
        f"{plain(x.purpose)}:"
        f" {describe_event(x.event)}{'' if x.purpose in used else ' (planned, unused)'}"
        for x in c.planned
    ]


def _security(c: Certificate) -> str:
    events = [x.event for x in c.planned]
    noises, lattice = noises_of(events), on_lattice(events)
    libraries = ["OpenDP (discrete Gaussian, exact on whole numbers)"] * ("discrete" in noises)
    libraries += ["Opacus"] * ("training" in lattice) + ["dp-accounting"]
    return (
        f"Implemented by {c.program} with {', '.join(libraries)}. "
        + (
            "Noise on tables is a 64-bit Gaussian rounded to whole numbers. "
            if "discrete" not in noises
            else ""
        )
        + (
            f"{lattice[0].upper()}{lattice[1:]} is a 64-bit Gaussian rounded to a public lattice. "
            if lattice
            else ""
        )
        + "Keys of the generators come from the operating system. Not interactive; nothing was done"
        " against timing. No mechanism looks at a row before its cost was written to a ledger."
    )


def _listed(items: list[str]) -> str:
    """A Markdown list."""
    return "\n".join(f"- {item}" for item in items) + "\n"
