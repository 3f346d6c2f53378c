"""The public bundle: the only output of a release that is meant for others.

Everything that came out of rows must be `Released`, with receipts of charges in the ledger on disk
(`synthdp.bundle.content`). The folder appears whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

from synthdp.bundle.audit_record import AuditRecord
from synthdp.bundle.certificate import Certificate, PlannedSpend, certify, profile_of, profile_svg
from synthdp.bundle.certificate_text import render
from synthdp.bundle.content import (
    MODEL_FILES,
    BundleContent,
    LedgerReader,
    check_content,
    check_target,
    new_folder,
    receipts_of,
    refuse,
)
from synthdp.bundle.deployment import DEPLOYMENT, deployment_record, deployment_yaml
from synthdp.bundle.descriptions import (
    DATACARD,
    datacard,
    graph_title,
    public_spec,
    readme,
    spec_yaml,
)
from synthdp.bundle.effects import effects_svg
from synthdp.bundle.noisy_values import ESTIMANDS, tables_json
from synthdp.bundle.report_page import REPORT, link_strengths, public_report
from synthdp.bundle.signing import STATEMENT, Signer, make_statement, sign
from synthdp.bundle.table_files import (
    CROISSANT,
    CSV_NAME,
    PARQUET_NAME,
    croissant,
    descriptor,
    write_csv,
    write_parquet,
    written,
)
from synthdp.files import SUMS
from synthdp.ledger.entries import Balance, Entry, balance_at_reservation
from synthdp.privacy.noise import fresh_generator
from synthdp.privacy.private import Released
from synthdp.spec.model import ReleaseSpec

FILES = (
    DATACARD,
    "README.md",
    CROISSANT,
    "datapackage.json",
    "graph.json",
    "graph.svg",
    "marginals.json",
    *MODEL_FILES,
    "privacy/certificate.json",
    "privacy/certificate.md",
    "privacy/effects.svg",
    "privacy/ledger.json",
    "privacy/profile.json",
    "privacy/profile.svg",
    REPORT,
    "spec.yaml",
    CSV_NAME,
    PARQUET_NAME,
)
# In a bundle only where the spec states its publication, has estimands, or a key was given. SUMS
# lists the first two and not the third: the statement names SUMS.
BY_SPEC = (DEPLOYMENT, ESTIMANDS)
OPTIONAL = (*BY_SPEC, STATEMENT)
WRITING = (
    "certificate",
    "table",
    "descriptions and profile",
    "public report",
)  # steps of `write_bundle`


class Saves(Protocol):
    """A model that writes `model.safetensors` and `model.json` into a folder."""

    def save(self, folder: Path) -> object: ...


def write_bundle(
    folder: Path,
    content: BundleContent,
    *,
    ledger: LedgerReader,
    force: bool,
    signer: Signer | None = None,
    begin: Callable[[str], None] = lambda what: None,
) -> Path:
    """Write the bundle of a release to `folder`, atomically; returns the folder.

    Without a `signer` the bundle says that it is unsigned.

    `begin` is called with the name of each of the `WRITING` when it begins.

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
        _write_all(draft, content, entries, balance, signer, begin)
    return folder


def _write_all(
    draft: Path,
    content: BundleContent,
    entries: list[Entry],
    balance: Balance,
    signer: Signer | None,
    begin: Callable[[str], None],
) -> None:
    certificate, table, description, page = WRITING
    begin(certificate)
    spec = public_spec(content.spec)
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
    )
    graph = content.graph.value if isinstance(content.graph, Released) else content.graph
    frame = content.synthetic.value
    begin(table)
    order = fresh_generator().permutation(len(frame))  # row order must carry nothing
    write_csv(frame.iloc[order], spec.columns, draft / CSV_NAME)
    write_parquet(draft / CSV_NAME, spec.columns, draft / PARQUET_NAME)
    _write_model(draft, content.model.value)
    begin(description)
    csv, parquet = (written(draft / n, sha256(draft / n)) for n in (CSV_NAME, PARQUET_NAME))
    day, tables = entries[-1].at[:10], content.tables.value
    strengths = link_strengths(draft, spec, graph, tables)
    texts = {
        "spec.yaml": spec_yaml(spec),
        "README.md": readme(spec, facts, day=day),
        DATACARD: datacard(spec, facts, graph, tables, strengths, day=day),
        CROISSANT: as_json(croissant(spec, facts, day=day, csv=csv, parquet=parquet)),
        "graph.json": as_json(
            graph.to_json()
            | ({"validation": content.validation.value.to_json()} if content.validation else {})
        ),
        "graph.svg": graph.to_svg(title=graph_title(spec)),
        "marginals.json": as_json(tables_json(tables)),
        "datapackage.json": as_json(
            descriptor(spec, run=content.run, csv_bytes=csv.bytes, csv_sha256=csv.sha256)
        ),
        "privacy/ledger.json": _ledger_json(content.run, balance, entries),
        **({ESTIMANDS: as_json(content.estimands.value)} if content.estimands else {}),
        **_disclosure(spec, facts, day=day),
    }
    for name, text in texts.items():
        _write_text(draft / name, text)
    begin(page)
    _write_text(draft / REPORT, public_report(draft))  # of the files above alone
    listed = sorted({*texts, CSV_NAME, PARQUET_NAME, REPORT, *MODEL_FILES})
    _write_text(draft / SUMS, "".join(f"{sha256(draft / n)}  {n}\n" for n in listed))
    if signer is not None:
        _write_text(draft / STATEMENT, _statement(draft, [*listed, SUMS], facts, signer))


def _ledger_json(run: str, balance: Balance, entries: list[Entry]) -> str:
    """The run's entries, and what all runs on the dataset had taken."""
    told = [e.to_json() for e in entries]
    return as_json({"run": run, "balance": asdict(balance), "entries": told})


def foresee(
    spec: ReleaseSpec,
    planned: Sequence[PlannedSpend],
    *,
    group_epsilons: Mapping[int, float],
    audit: AuditRecord | None = None,
) -> None:
    """Compute and word all that a certificate will say of a plan, before anything is charged.

    What cannot be computed is an error here, and nothing is lost by it.
    """
    spec = public_spec(spec)
    facts = certify(
        spec,
        run="planned",
        planned=planned,
        entries=(),
        group_epsilons=group_epsilons,
        receipts={},
        audit=audit,
    )
    _disclosure(spec, facts, day="2000-01-01")


def _disclosure(spec: ReleaseSpec, facts: Certificate, *, day: str) -> dict[str, str]:
    """The certificate in all its forms, for people, programs and registers."""
    profile = profile_of(facts.planned, spec)
    record = deployment_record(spec, facts, day=day)
    return {
        "privacy/certificate.json": as_json(facts.model_dump(mode="json")),
        "privacy/certificate.md": render(facts),
        "privacy/effects.svg": effects_svg(facts),
        "privacy/profile.json": as_json(profile),
        "privacy/profile.svg": profile_svg(profile, facts),
        **({DEPLOYMENT: deployment_yaml(record)} if record else {}),
    }


def _statement(draft: Path, names: list[str], facts: Certificate, signer: Signer) -> str:
    statement = make_statement({n: sha256(draft / n) for n in names}, facts.model_dump(mode="json"))
    return as_json(sign(statement, signer))


def _write_text(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")


def _write_model(draft: Path, model: Saves) -> None:
    before = set(draft.iterdir())
    model.save(draft)
    written = {p.name for p in set(draft.iterdir()) - before}
    if written != set(MODEL_FILES):
        refuse(
            "model",
            f"wrote {', '.join(sorted(written))}; a bundle takes {', '.join(MODEL_FILES)} and"
            " nothing else",
        )


def as_json(content: object) -> str:
    """JSON for files: readable, stable, and never NaN or infinity."""
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def sha256(path: Path) -> str:
    """Hex digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
