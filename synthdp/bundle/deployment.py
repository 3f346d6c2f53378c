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
from functools import cache
from importlib.resources import files
from typing import Any

import yaml
from jinja2 import Template

from synthdp.bundle.certificate import Certificate
from synthdp.bundle.certificate_text import environment, noises_of, on_lattice, plain, template_text
from synthdp.spec.load.wording import up
from synthdp.spec.model import ReleaseSpec

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
