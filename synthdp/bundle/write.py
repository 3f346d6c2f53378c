"""The public bundle: the only output of a release that is meant for others.

Everything that came out of rows must be `Released`, with receipts of charges in the ledger on disk
(`synthdp.bundle.content`). The folder appears whole or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from synthdp.bundle.audit_record import AuditRecord
from synthdp.bundle.certificate import Certificate, certify, profile_of, profile_svg
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
from synthdp.bundle.deployment import DEPLOYMENT
from synthdp.bundle.derived import DERIVED, EFFECTS, Derived, as_json
from synthdp.bundle.descriptions import public_spec, spec_yaml
from synthdp.bundle.noisy_values import ESTIMANDS, PRIOR, heaps_json, tables_json
from synthdp.bundle.signing import STATEMENT, Signer, make_statement, sign
from synthdp.bundle.table_files import CSV_NAME, PARQUET_NAME, write_csv, write_parquet
from synthdp.bundle.waves import WAVES, waves_json
from synthdp.files import SUMS
from synthdp.ledger.entries import Balance, Entry, balance_at_reservation
from synthdp.privacy.noise import fresh_generator
from synthdp.privacy.plan import ReleasePlan
from synthdp.privacy.private import Released
from synthdp.progress import Steps
from synthdp.spec.model import ReleaseSpec

if TYPE_CHECKING:
    from synthdp.ledger.ledger import Ledger

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
    write_text(draft / "spec.yaml", spec_yaml(bundle.published))
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
    spec = public_spec(spec)
    facts = certify(spec, **planned_facts(plan), audit=audit)
    word(Bundle(Path(), spec, facts, day="2000-01-01"), DERIVED)


def planned_facts(plan: ReleasePlan) -> dict[str, Any]:
    """What `certify` is told of a run that has not begun."""
    told = {"planned": plan.stated_spends, "group_epsilons": plan.group_epsilons}
    return {"run": "planned", "entries": (), "receipts": {}, **told}


def word(bundle: Bundle, derived: Mapping[str, Derived], *also: str) -> None:
    """Make, and leave, what a bundle will say of its plan."""
    profile_svg(profile_of(bundle.certificate.planned, bundle.spec), bundle.certificate)
    for name in ("privacy/certificate.md", EFFECTS, DEPLOYMENT, *also):
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
