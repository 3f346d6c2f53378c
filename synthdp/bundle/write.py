"""The public bundle: the only output of a release that is meant for others.

Spec, ledger, certificate, profile, graph, noisy counts, estimands, model and rows are primary: no
other file tells them. `DERIVED` has the rest. `write_bundle` writes what the table says, and
`verify` writes it again and compares bytes.

Everything that came out of rows must be `Released`, with receipts of charges in the ledger on disk
(`synthdp.bundle.content`). The folder appears whole or not at all.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from synthdp.bundle import descriptions
from synthdp.bundle.audit_record import AuditRecord
from synthdp.bundle.certificate import Certificate, certify, profile_of, profile_svg
from synthdp.bundle.certificate_text import (
    effects_svg,
    for_people,
    render,
    template_text,
)
from synthdp.bundle.content import (
    MODEL_FILES,
    REPORT,
    Bundle,
    BundleContent,
    check_content,
    check_target,
    new_folder,
    receipts_of,
    refuse,
    sha256,
)
from synthdp.bundle.noisy_values import (
    ESTIMANDS,
    INNOVATIONS,
    PRIOR,
    WAVES,
    heaps_json,
    innovations_json,
    tables_json,
    waves_json,
    waves_told,
)
from synthdp.bundle.signing import STATEMENT, Signer, make_statement, sign
from synthdp.bundle.table_files import (
    CROISSANT,
    CSV_NAME,
    PARQUET_NAME,
    croissant,
    descriptor,
    write_csv,
    write_parquet,
)
from synthdp.evaluate.fidelity import sampling_floor
from synthdp.files import SUMS, read_text
from synthdp.graph.level_groups import groups_of, on_groups
from synthdp.ledger.entries import Balance, Entry, balance_at_reservation
from synthdp.privacy.mechanisms.scores import compared
from synthdp.privacy.noise import fresh_generator
from synthdp.privacy.plan import ReleasePlan
from synthdp.privacy.private import Released
from synthdp.progress import Steps
from synthdp.report.prose import say
from synthdp.report.public.content import About, PublicContent, mean_noise, measured_pairs
from synthdp.report.public.page import render_public
from synthdp.report.sections import GraphView, budget_left
from synthdp.spec.model import ReleaseSpec

if TYPE_CHECKING:
    from synthdp.ledger.ledger import Ledger


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
    strengths = descriptions.arrow_strengths(b.graph, b.codes, b.domain, b.tables) if linked else ()
    groups = groups_of(b.tables, b.domain)
    tables = [on_groups(table, groups) for table in b.tables]
    pairs = tuple(measured_pairs(groups.coarse, groups.of(b.codes), tables))
    return descriptions.datacard(
        b.spec, b.certificate, b.graph, b.tables, strengths, pairs, day=b.day
    )


DERIVED: dict[str, Derived] = {
    "privacy/certificate.md": Derived(
        lambda b: render(b.certificate), "does not say what privacy/certificate.json says"
    ),
    "README.md": Derived(
        lambda b: descriptions.readme(b.spec, b.certificate, day=b.day),
        "does not say what spec.yaml and privacy/certificate.json say",
    ),
    "PEOPLE.md": Derived(
        lambda b: for_people(b.certificate), "does not say what privacy/certificate.json says"
    ),
    "synthdp.R": Derived(
        lambda b: template_text("synthdp.R.j2"), "is not the script that synthdp writes"
    ),
    descriptions.DATACARD: Derived(
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
    descriptions.DEPLOYMENT: Derived(
        lambda b: (
            None
            if (record := descriptions.deployment_record(b.spec, b.certificate, day=b.day)) is None
            else descriptions.deployment_yaml(record)
        ),
        "does not say what spec.yaml and privacy/certificate.json say",
    ),
    "graph.svg": Derived(
        lambda b: b.graph.to_svg(title=descriptions.graph_title(b.spec)), "does not show graph.json"
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
BY_SPEC = (descriptions.DEPLOYMENT, ESTIMANDS, PRIOR, WAVES, INNOVATIONS)
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
    measured = len(descriptions.pairs_counted(bundle.tables))
    pairs = math.comb(len(bundle.domain), 2)
    if bundle.spec.graph.mode == "predict" and measured < pairs:
        yield say("left_out", measured=measured, pairs=pairs)


# Steps of `write_bundle`.
WRITING = ("certificate", "table", "descriptions and profile", "public report")


def write_bundle(
    folder: Path,
    content: BundleContent,
    *,
    ledger: Ledger,
    force: bool,
    signer: Signer | None = None,
) -> Path:
    """Write the bundle of a release to `folder`, atomically; returns the folder.

    Without a `signer` the bundle says that it is unsigned.

    Raises:
        BoundaryError: something from rows is not `Released`, its receipts are not in the ledger, or
            a charge was not planned.
        OutputError: `folder` exists (and not `force`), or cannot be written.
        VerifyError: the ledger on disk was tampered with.
    """
    entries = check_content(content, ledger)
    check_target(folder, force=force)
    with new_folder(folder, force=force) as draft:
        balance = balance_at_reservation(ledger.entries(), content.run)
        _write_all(draft, content, entries, balance, signer)
    return folder


def _write_all(
    draft: Path,
    content: BundleContent,
    entries: list[Entry],
    balance: Balance,
    signer: Signer | None,
) -> None:
    steps, (certifying, tabling, describing, showing) = Steps(len(WRITING)), WRITING
    steps.begin(certifying)
    spec = descriptions.public_spec(content.spec)
    facts = certify(
        spec,
        run=content.run,
        planned=content.planned,
        entries=entries,
        group_epsilons=content.group_epsilons,
        receipts=receipts_of(content),
        signer=signer.identity if signer else None,
        audit=content.audit,
        scores=content.scores.value if content.scores else (),
        balance=balance.to_json(),
    )
    steps.begin(tabling)
    frame = content.synthetic.value
    order = fresh_generator().permutation(len(frame))  # row order must carry nothing
    write_csv(frame.iloc[order], spec.columns, draft / CSV_NAME)
    write_parquet(draft / CSV_NAME, spec.columns, draft / PARQUET_NAME)
    _write_model(draft, content.model.value)
    steps.begin(describing)
    told_heaps = content.heaps.value if content.heaps else None
    graph = content.graph.value if isinstance(content.graph, Released) else content.graph
    found = {"validation": content.validation.value.to_json()} if content.validation else {}
    stated = {
        "graph.json": graph.to_json() | found,
        "marginals.json": tables_json(content.tables.value) | heaps_json(told_heaps),
        **({ESTIMANDS: content.estimands.value} if content.estimands else {}),
        **({PRIOR: content.prior.value} if content.prior else {}),
        **({WAVES: waves_json(content.waves)} if content.waves else {}),
    }
    bundle = Bundle(draft, spec, facts, day=entries[-1].at[:10])
    write_texts(bundle, DERIVED, entries, balance, stated, showing=lambda: steps.begin(showing))
    sum_and_sign(draft, facts, signer)


def write_texts(
    bundle: Bundle,
    derived: Mapping[str, Derived],
    entries: Sequence[Entry],
    balance: Balance,
    stated: Mapping[str, object],
    *,
    showing: Callable[[], None] = lambda: None,
) -> None:
    """Write what a bundle states, `stated` by its file and what every bundle does, and what is
    derived of that; `showing` is called before its report.
    """
    draft, facts = bundle.folder, bundle.certificate
    told = [e.to_json() for e in entries]
    write_text(draft / "spec.yaml", descriptions.spec_yaml(bundle.published))
    for name, content in {
        **stated,
        "privacy/ledger.json": {"run": facts.run, "balance": balance.to_json(), "entries": told},
        "privacy/certificate.json": facts.model_dump(mode="json"),
        "privacy/profile.json": profile_of(facts.planned, bundle.spec),
    }.items():
        write_text(draft / name, as_json(content))
    for name, own in derived.items():
        if name == REPORT:
            showing()
        text = own.make(bundle)
        if text is not None:
            write_text(draft / name, text)


def sum_and_sign(draft: Path, facts: Certificate, signer: Signer | None) -> None:
    """Write the sums of all files, and the statement of who signs them."""
    names = sorted(p.relative_to(draft).as_posix() for p in draft.rglob("*") if p.is_file())
    write_text(draft / SUMS, "".join(f"{sha256(draft / n)}  {n}\n" for n in names))
    if signer is not None:
        digests = {n: sha256(draft / n) for n in (*names, SUMS)}
        statement = make_statement(digests, facts.model_dump(mode="json"))
        write_text(draft / STATEMENT, as_json(sign(statement, signer)))


def foresee(spec: ReleaseSpec, plan: ReleasePlan, audit: AuditRecord | None = None) -> None:
    """Compute and word all that a certificate will say of a plan, before anything is charged.

    What cannot be computed is an error here, and nothing is lost by it.
    """
    spec = descriptions.public_spec(spec)
    facts = certify(spec, **planned_facts(plan), audit=audit)
    word(Bundle(Path(), spec, facts, day="2000-01-01"), DERIVED)


def planned_facts(plan: ReleasePlan) -> dict[str, Any]:
    """What `certify` is told of a run that has not begun."""
    told = {"planned": plan.stated_spends, "group_epsilons": plan.group_epsilons}
    return {"run": "planned", "entries": (), "receipts": {}, **told}


def word(bundle: Bundle, derived: Mapping[str, Derived], *also: str) -> None:
    """Make, and leave, what a bundle will say of its plan."""
    profile_svg(profile_of(bundle.certificate.planned, bundle.spec), bundle.certificate)
    for name in ("privacy/certificate.md", EFFECTS, descriptions.DEPLOYMENT, *also):
        derived[name].make(bundle)


def write_text(path: Path, text: str) -> None:
    """Write a text file of a bundle, with its folder."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")


def _write_model(draft: Path, model: Any) -> None:
    before = set(draft.iterdir())
    model.save(draft)
    written = {p.name for p in set(draft.iterdir()) - before}
    if written != set(MODEL_FILES):
        refuse(
            "model",
            f"wrote {', '.join(sorted(written))}; a bundle takes {', '.join(MODEL_FILES)} and"
            " nothing else",
        )
