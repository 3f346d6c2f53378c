"""Every file of a bundle by its name, and each that is a function of the others.

Spec, ledger, certificate, profile, graph, noisy counts, estimands, model and rows are primary: no
other file tells them. `DERIVED` has the rest. `write` writes what the table says, and `verify`
writes it again and compares bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from synthdp.bundle.certificate import profile_svg
from synthdp.bundle.certificate_text import effects_svg, for_people, render, template_text
from synthdp.bundle.content import MODEL_FILES, REPORT, Bundle
from synthdp.bundle.deployment import DEPLOYMENT, deployment_record, deployment_yaml
from synthdp.bundle.descriptions import (
    DATACARD,
    arrow_strengths,
    datacard,
    graph_title,
    pairs_counted,
    readme,
)
from synthdp.bundle.noisy_values import ESTIMANDS, PRIOR
from synthdp.bundle.signing import STATEMENT
from synthdp.bundle.table_files import CROISSANT, CSV_NAME, PARQUET_NAME, croissant, descriptor
from synthdp.bundle.waves import INNOVATIONS, WAVES, innovations_json, waves_told
from synthdp.evaluate.fidelity import sampling_floor
from synthdp.files import read_text
from synthdp.graph.level_groups import groups_of, on_groups
from synthdp.privacy.mechanisms.scores import compared
from synthdp.report.prose import say
from synthdp.report.public.content import About, PublicContent, mean_noise, measured_pairs
from synthdp.report.public.page import render_public
from synthdp.report.sections import GraphView, budget_left

EFFECTS = "privacy/effects.svg"


@dataclass(frozen=True)
class Derived:
    """How the text of a file follows from the bundle (None: the spec asks for no such file).

    `wrong` is what `verify` says of another text.
    """

    make: Callable[[Any], str | None]
    wrong: str


def _datacard(b: Bundle) -> str:
    linked = any(edge.structural for edge in b.graph.edges)
    strengths = arrow_strengths(b.graph, b.codes, b.domain, b.tables) if linked else ()
    groups = groups_of(b.tables, b.domain)
    tables = [on_groups(table, groups) for table in b.tables]
    pairs = tuple(measured_pairs(groups.coarse, groups.of(b.codes), tables))
    return datacard(b.spec, b.certificate, b.graph, b.tables, strengths, pairs, day=b.day)


DERIVED: dict[str, Derived] = {
    "privacy/certificate.md": Derived(
        lambda b: render(b.certificate), "does not say what privacy/certificate.json says"
    ),
    "README.md": Derived(
        lambda b: readme(b.spec, b.certificate, day=b.day),
        "does not say what spec.yaml and privacy/certificate.json say",
    ),
    "PEOPLE.md": Derived(
        lambda b: for_people(b.certificate), "does not say what privacy/certificate.json says"
    ),
    "synthdp.R": Derived(
        lambda b: template_text("synthdp.R.j2"), "is not the script that synthdp writes"
    ),
    DATACARD: Derived(
        _datacard,
        "does not say what spec.yaml, graph.json, marginals.json, synthetic.csv and"
        " privacy/certificate.json say",
    ),
    EFFECTS: Derived(
        lambda b: effects_svg(b.certificate), "does not show what privacy/certificate.json says"
    ),
    "privacy/profile.svg": Derived(
        lambda b: profile_svg(b.profile, b.certificate), "does not show privacy/profile.json"
    ),
    DEPLOYMENT: Derived(
        lambda b: (
            None
            if (record := deployment_record(b.spec, b.certificate, day=b.day)) is None
            else deployment_yaml(record)
        ),
        "does not say what spec.yaml and privacy/certificate.json say",
    ),
    "graph.svg": Derived(
        lambda b: b.graph.to_svg(title=graph_title(b.spec)), "does not show graph.json"
    ),
    "datapackage.json": Derived(
        lambda b: as_json(descriptor(b.spec, run=b.certificate.run, csv=b.csv)),
        f"does not describe {CSV_NAME} as the spec does",
    ),
    CROISSANT: Derived(
        lambda b: as_json(
            croissant(b.spec, b.certificate, day=b.day, csv=b.csv, parquet=b.parquet)
        ),
        "does not describe the table as spec.yaml and privacy/certificate.json do",
    ),
    INNOVATIONS: Derived(
        lambda b: as_json(innovations_json(b.tables, b.waves, b.spec)) if b.waves else None,
        "does not follow from waves.json and marginals.json",
    ),
    REPORT: Derived(
        lambda b: render_public(public_content(b)),
        "does not show what the bundle's other files say",
    ),
}
"""Every derived file by its name, the public report last: it shows others."""

# In a bundle only where the spec states its publication, has estimands, a prior or a wave before,
# or a key was given. SUMS lists all but the statement, which names SUMS.
BY_SPEC = (DEPLOYMENT, ESTIMANDS, PRIOR, WAVES, INNOVATIONS)
OPTIONAL = (*BY_SPEC, STATEMENT)
PRIMARY = (
    "graph.json",
    "marginals.json",
    *MODEL_FILES,
    "privacy/certificate.json",
    "privacy/ledger.json",
    "privacy/profile.json",
    "spec.yaml",
    CSV_NAME,
    PARQUET_NAME,  # derived, but its bytes differ by version: `verify` compares its rows
)
FILES = tuple(sorted({*PRIMARY, *DERIVED} - {*OPTIONAL}))


def as_json(content: object) -> str:
    """JSON for files: readable, stable, and never NaN or infinity."""
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


# --- the public report ---


def public_content(bundle: Bundle) -> PublicContent:
    """The content of the page, made of the bundle's other files and of nothing else.

    It takes no values: whatever is not published cannot get into it. Raises what parts of a
    `Bundle` do.
    """
    spec, graph = bundle.spec, bundle.json("graph.json")
    groups = groups_of(bundle.tables, bundle.domain)
    facts, drawn = bundle.certificate.model_dump(mode="json"), spec.sampling.rows
    balance = bundle.json("privacy/ledger.json")["balance"]
    floors = {
        name: sampling_floor(
            bundle.codes, bundle.domain, tables, first=drawn or 1, second=max(1, facts["rows"])
        )
        for name, tables in compared(bundle.domain).items()
    }
    return PublicContent(
        domain=groups.coarse,
        facts=facts,
        about=About(
            description=spec.dataset.description,
            licence=spec.dataset.licence,
            day=bundle.day,
            budget=budget_left(
                spec.privacy.epsilon,
                balance["epsilon"],
                balance["cap_epsilon"],
                balance.get("together"),
            ),
        ),
        effects=read_text(bundle.folder / EFFECTS),
        profile=[(float(p["epsilon"]), float(p["delta"])) for p in bundle.profile["points"]],
        graph=GraphView.of(bundle.graph, mode=spec.graph.mode, validation=graph.get("validation")),
        tables=[on_groups(table, groups) for table in bundle.tables],
        codes=groups.of(bundle.codes),
        rows=drawn or 0,
        estimands=bundle.json(ESTIMANDS)["estimands"] if spec.estimands else (),
        prior=bundle.json(PRIOR)["tables"] if spec.prior else (),
        means=mean_noise(bundle.domain, bundle.codes, bundle.tables),
        gates=bundle.gates_told,
        floors={name: round(floor, 6) for name, floor in floors.items()},
        first=spec.evaluation.targets,
        notes=(
            *((f"Note: {whom}",) if (whom := spec.dataset.privacy_unit.whom) else ()),
            *_left_out(bundle),
            *_prior(bundle),
            *waves_told(bundle.tables, bundle.waves, spec),
            *(f"Every synthetic row fulfils the constraint {text}" for text in spec.constraints),
        ),
    )


def _prior(bundle: Bundle) -> Iterator[str]:
    """What the tables were shrunk to, and how much of it they took, if to anything."""
    if (prior := bundle.spec.prior) is not None:
        used = [table["used"] for table in bundle.json(PRIOR)["tables"]]
        yield say("prior", name=prior.name, used=sum(used) / len(used), tables=len(used))


def _left_out(bundle: Bundle) -> Iterator[str]:
    """How many pairs mode predict left out, if any."""
    measured, pairs = len(pairs_counted(bundle.tables)), math.comb(len(bundle.domain), 2)
    if bundle.spec.graph.mode == "predict" and measured < pairs:
        yield say("left_out", measured=measured, pairs=pairs)
