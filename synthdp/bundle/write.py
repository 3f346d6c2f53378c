"""The public bundle: the one place where anything leaves the steward's machine for others.

Everything that came out of rows must arrive as `Released`, with receipts that the ledger on disk
still honours; anything else is refused by type before a byte is written. The folder appears whole
or not at all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

import pandas as pd

from synthdp.bundle.certificate.audit_record import AuditRecord
from synthdp.bundle.certificate.effects import effects_svg
from synthdp.bundle.certificate.facts import Certificate, PlannedSpend, certify, plan_problems
from synthdp.bundle.certificate.profile import profile_of, profile_svg
from synthdp.bundle.certificate.text import render
from synthdp.bundle.folder import SUMS, check_target, new_folder
from synthdp.bundle.metadata.croissant import CROISSANT, croissant, written
from synthdp.bundle.metadata.datacard import DATACARD, datacard
from synthdp.bundle.metadata.datapackage import CSV_NAME, descriptor, write_csv
from synthdp.bundle.metadata.deployment import DEPLOYMENT, deployment_record, deployment_yaml
from synthdp.bundle.metadata.parquet import PARQUET_NAME, write_parquet
from synthdp.bundle.metadata.readme import graph_title, public_spec, readme, spec_yaml, tables_json
from synthdp.bundle.report_page import REPORT, public_report
from synthdp.bundle.signing.keys import Signer
from synthdp.bundle.signing.statement import STATEMENT, make_statement, sign
from synthdp.errors import BoundaryError, VerifyError
from synthdp.evaluate.dp_scores import ChargedScore, DpScores
from synthdp.graph.causal import CausalGraph
from synthdp.graph.validation import ValidationReport
from synthdp.ledger.entries import INTERNAL, Entry, entry_hash
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.noise import fresh_generator
from synthdp.privacy.private import Receipt, Released
from synthdp.spec.model import ReleaseSpec

MODEL_FILES = ("model.json", "model.safetensors")
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
# In a bundle only where the spec states its publication, or a key was given. SUMS lists the first
# and not the second: the statement names SUMS.
OPTIONAL = (DEPLOYMENT, STATEMENT)
WRITING = (
    "certificate",
    "table",
    "descriptions and profile",
    "public report",
)  # steps of `write_bundle`
SCORED_FILES = (
    DATACARD,
    "privacy/certificate.json",
    "privacy/certificate.md",
    REPORT,
)  # those that tell released scores
PUBLIC_PROVENANCE = {"given", "required"}


class LedgerReader(Protocol):
    """What the bundle needs of the ledger on disk."""

    def verify_chain(self) -> None: ...
    def run_entries(self, run: str) -> Sequence[Entry]: ...


class Saves(Protocol):
    """A model that writes `model.safetensors` and `model.json` into a folder."""

    def save(self, folder: Path) -> object: ...


@dataclass(frozen=True, kw_only=True)
class BundleContent:
    """All that goes into a bundle.

    `graph` may be a plain `CausalGraph` only where the spec gives every arrow; a graph that was
    validated or learned on rows is `Released`. `planned` and `group_epsilons` are of the whole
    plan, with what the run did not
    need: its spends, and units in a group -> epsilon at the spec's delta. `synthetic` has the
    spec's columns and number of rows. `validation` is what released tables say of a given graph.
    `audit` was made without real rows. `scores` are there exactly where the spec has them charged.
    """

    spec: ReleaseSpec
    run: str
    planned: tuple[PlannedSpend, ...]
    group_epsilons: dict[int, float]
    synthetic: Released[pd.DataFrame]
    model: Released[Any]
    tables: Released[tuple[NoisyTable, ...]]
    graph: CausalGraph | Released[CausalGraph]
    validation: Released[ValidationReport] | None = None
    audit: AuditRecord | None = None
    scores: Released[DpScores] | None = None


def write_bundle(
    folder: Path,
    content: BundleContent,
    *,
    ledger: LedgerReader,
    force: bool,
    signer: Signer | None = None,
    begin: Callable[[str], None] = lambda what: None,
) -> Path:
    """Write the bundle of a release to `folder`, atomically; returns the folder. Without a `signer`
    it says that it is unsigned.

    `begin` hears of each of the `WRITING` by name.

    Raises:
        BoundaryError: something from rows is not `Released`, its receipts are not in the ledger, or
            a charge was not planned.
        OutputError: `folder` exists (and not `force`), or cannot be written.
        VerifyError: the ledger on disk was tampered with.
    """
    entries = check_content(content, ledger)
    check_target(folder, force=force)
    with new_folder(folder, force=force) as draft:
        _write_all(draft, content, entries, signer, begin)
    return folder


# --- what may cross ---


def check_content(content: BundleContent, ledger: LedgerReader) -> list[Entry]:
    """Refuse all that is not paid for; returns the run's ledger entries.

    Raises:
        BoundaryError, VerifyError: as `write_bundle`.
    """
    receipts = _receipts(content)
    ledger.verify_chain()
    entries = [e for e in ledger.run_entries(content.run) if e.kind not in INTERNAL]
    for file, wanted in receipts.items():
        _check_receipts(file, wanted, {e.hash: e for e in entries}, content.run)
    for problem in plan_problems(content.planned, entries):
        _refuse("plan", f"does not cover the ledger: {problem}")
    _check_table(content)
    if content.audit is not None and content.audit.rows == "real":
        _refuse("audit", "was made on real rows: its figures are for the steward alone")
    return entries


def _receipts(content: BundleContent) -> dict[str, frozenset[Receipt]]:
    """Receipts of each file that came out of rows; refuses values of any other type than they must
    have.
    """
    receipts = _table_receipts(content)
    if (content.scores is not None) != content.spec.evaluation.dp_scores:
        _refuse(
            "scores",
            "must be there where the spec's evaluation.disclosure is charged, and nowhere else",
        )
    if content.scores is None:
        return receipts
    paid = _released("scores", content.scores, tuple).receipts
    if not all(isinstance(s, ChargedScore) for s in content.scores.value):
        raise BoundaryError("bundle: scores must be ChargedScore values")
    return receipts | {file: receipts.get(file, frozenset()) | paid for file in SCORED_FILES}


def _table_receipts(content: BundleContent) -> dict[str, frozenset[Receipt]]:
    """Receipts of what every bundle has."""
    receipts = {
        **dict.fromkeys(
            (CSV_NAME, PARQUET_NAME),
            _released("synthetic", content.synthetic, pd.DataFrame).receipts,
        ),
        "marginals.json": _released("tables", content.tables, tuple).receipts,
        **dict.fromkeys(MODEL_FILES, _released("model", content.model, None).receipts),
    }
    if not all(isinstance(t, NoisyTable) for t in content.tables.value):
        raise BoundaryError("bundle: tables must be NoisyTable values")
    receipts[REPORT] = receipts[CSV_NAME] | receipts["marginals.json"]
    graph = content.graph
    if (
        content.validation is None
        and isinstance(graph, CausalGraph)
        and _from_spec_alone(graph, content.spec)
    ):
        return receipts
    paid = _released("graph", graph, CausalGraph).receipts
    if content.validation is not None:
        paid |= _released("validation", content.validation, ValidationReport).receipts
    return (
        receipts
        | dict.fromkeys(("graph.json", "graph.svg"), paid)
        | {REPORT: receipts[REPORT] | paid}
    )


def _from_spec_alone(graph: CausalGraph, spec: ReleaseSpec) -> bool:
    """Whether no row had a say in the graph: also in mode learn, where the spec decides every pair
    and nothing was measured.
    """
    if spec.graph.mode == "learn":
        return graph == CausalGraph.from_spec(spec.graph, tuple(spec.modelled))
    return (
        spec.graph.mode in ("none", "given")
        and {e.provenance for e in graph.edges} <= PUBLIC_PROVENANCE
    )


def _released(name: str, value: object, inner: type | None) -> Released[Any]:
    """`value` if it is `Released`, holds an `inner` (or else something that can save itself), and
    was paid for.
    """
    if type(value) is not Released:
        _refuse(
            name,
            f"is {type(value).__name__}, not Released: only what came out of a charged mechanism"
            " may be published",
        )
    released: Released[Any] = value
    held = released.value
    if not (isinstance(held, inner) if inner else callable(getattr(type(held), "save", None))):
        _refuse(name, f"holds {type(held).__name__}, which a bundle does not take there")
    if not released.receipts:
        _refuse(name, "carries no receipt")
    return released


def _check_receipts(
    file: str, receipts: frozenset[Receipt], entries: dict[str, Entry], run: str
) -> None:
    for receipt in receipts:
        entry = entries.get(receipt.entry)
        if receipt.run != run:
            _refuse(file, f"has a receipt of run {receipt.run}, but this is run {run}")
        if entry is None or entry.kind != "charge" or entry.run != run:
            _refuse(
                file,
                f"has the receipt {receipt.entry[:12]}, and the ledger has no such charge of run"
                f" {run}",
            )
        if entry_hash(**{k: v for k, v in entry.to_json().items() if k != "hash"}) != entry.hash:
            raise VerifyError(f"the ledger's row {entry.seq} does not match its hash")


def _check_table(content: BundleContent) -> None:
    frame, spec = content.synthetic.value, public_spec(content.spec)
    if sorted(map(str, frame.columns)) != sorted(spec.columns):
        _refuse("synthetic", "does not have exactly the spec's columns")
    if len(frame) != spec.sampling.rows:
        _refuse(
            "synthetic",
            f"must have the spec's {spec.sampling.rows} rows: any other number could depend on the"
            " real table",
        )


def _refuse(name: str, why: str) -> NoReturn:
    raise BoundaryError(f"bundle: {name} {why}")


# --- the files ---


def _write_all(
    draft: Path,
    content: BundleContent,
    entries: list[Entry],
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
        receipts=_receipts(content),
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
    day = entries[-1].at[:10]
    texts = {
        "spec.yaml": spec_yaml(spec),
        "README.md": readme(spec, facts, day=day),
        DATACARD: datacard(spec, facts, graph, day=day),
        CROISSANT: as_json(croissant(spec, facts, day=day, csv=csv, parquet=parquet)),
        "graph.json": as_json(
            graph.to_json()
            | ({"validation": content.validation.value.to_json()} if content.validation else {})
        ),
        "graph.svg": graph.to_svg(title=graph_title(spec)),
        "marginals.json": as_json(tables_json(content.tables.value)),
        "datapackage.json": as_json(
            descriptor(spec, run=content.run, csv_bytes=csv.bytes, csv_sha256=csv.sha256)
        ),
        "privacy/ledger.json": as_json(
            {"run": content.run, "entries": [e.to_json() for e in entries]}
        ),
        **_disclosure(spec, facts, entries),
    }
    for name, text in texts.items():
        _write_text(draft / name, text)
    begin(page)
    _write_text(draft / REPORT, public_report(draft))  # of the files above alone
    listed = sorted({*texts, CSV_NAME, PARQUET_NAME, REPORT, *MODEL_FILES})
    _write_text(draft / SUMS, "".join(f"{sha256(draft / n)}  {n}\n" for n in listed))
    if signer is not None:
        _write_text(draft / STATEMENT, _statement(draft, [*listed, SUMS], facts, signer))


def _disclosure(spec: ReleaseSpec, facts: Certificate, entries: list[Entry]) -> dict[str, str]:
    """The certificate in all its forms, for people, programs and registers."""
    profile = profile_of(facts.planned, spec)
    record = deployment_record(spec, facts, day=entries[-1].at[:10])
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
        _refuse(
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
