"""The checks of a bundle's privacy claims: spec, ledger entries, certificate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from synthdp.bundle.certificate.facts import (
    FORMAT,
    Certificate,
    PlannedSpend,
    amended_of,
    certify,
    events_of,
    plan_problems,
)
from synthdp.bundle.metadata.readme import public_spec
from synthdp.bundle.write import FILES, SCORED_FILES
from synthdp.graph.causal import CausalGraph
from synthdp.ledger.entries import GENESIS, Entry, entry_hash
from synthdp.privacy import accounting
from synthdp.privacy.events.kinds import kind_of
from synthdp.privacy.private import Receipt
from synthdp.spec.amendment import CHANGEABLE
from synthdp.spec.load.loader import parse_spec
from synthdp.spec.model import ReleaseSpec
from synthdp.verify.bounds import MAX_ENTRIES, PlanLimits, event_problems, group_problems, rows_of
from synthdp.verify.reader import Check, Reader
from synthdp.verify.scores import score_problems

TOLERANCE = (
    1e-6  # relative: another version of the accountant may round differently in the last digits
)


def _check_spec(reader: Reader) -> Iterator[str]:
    """The spec is valid, and holds nothing that is not published."""
    reader.parsed = parse_spec(reader.text("spec.yaml"), path="spec.yaml")
    if public_spec(reader.parsed) != reader.parsed:
        yield (
            "spec.yaml: holds paths, queries or addresses that are not published, or leaves the"
            " number of sampled rows open"
        )


def _check_ledger(reader: Reader) -> Iterator[str]:
    """Every entry's hash is that of its content, entries chain, and they tell one whole run."""
    content, spec = reader.json("privacy/ledger.json"), reader.spec
    if len(content["entries"]) > MAX_ENTRIES:
        yield (
            f"privacy/ledger.json: {len(content['entries'])} entries are more than any release"
            " makes"
        )
        return
    entries = [Entry(**e) for e in content["entries"]]
    beyond = list(
        event_problems(
            [e.body["event"] for e in entries if e.kind == "charge"], PlanLimits.of(spec)
        )
    )
    yield from (f"privacy/ledger.json: {problem}" for problem in beyond)
    reader.entries = (
        [] if beyond else entries
    )  # what cannot be composed is not held against anything
    for entry in entries:
        fields = {k: v for k, v in entry.to_json().items() if k != "hash"}
        if entry_hash(**fields) != entry.hash:
            yield (
                f"privacy/ledger.json: entry {entry.seq} ({entry.kind}) was changed; its hash does"
                " not fit its content"
            )
        if entry.run != content["run"] or entry.dataset != spec.dataset.id:
            yield f"privacy/ledger.json: entry {entry.seq} is of another run or dataset"
        if entry.seq == 1 and entry.previous != GENESIS:
            yield "privacy/ledger.json: entry 1 does not begin a chain"
    for before, after in pairwise(entries):
        if after.seq <= before.seq or (
            after.seq == before.seq + 1 and after.previous != before.hash
        ):
            yield f"privacy/ledger.json: entry {after.seq} does not follow entry {before.seq}"
    kinds = [e.kind for e in entries if e.kind != "cap"]
    charges, amendments = kinds.count("charge"), kinds.count("amend")
    if charges == 0 or [*kinds[:1], *(k for k in kinds[1:-1] if k != "amend"), *kinds[-1:]] != [
        "reserve",
        *["charge"] * charges,
        "settle",
    ]:
        yield (
            "privacy/ledger.json: a run is one reservation, then charges, then a settlement; got"
            f" {', '.join(kinds) or 'nothing'}"
        )
        return
    if entries[-1].body.get("charges") != charges:
        yield (
            f"privacy/ledger.json: the settlement counts {entries[-1].body.get('charges')} charges,"
            f" and {charges} are listed"
        )
    if entries[-1].body.get("amendments", 0) != amendments:
        yield (
            f"privacy/ledger.json: the settlement counts {entries[-1].body.get('amendments', 0)}"
            f" changes of the spec, and {amendments} are listed"
        )
    if strange := sorted({*amended_of(entries)} - {*CHANGEABLE}):
        yield (
            f"privacy/ledger.json: {', '.join(map(repr, strange))} was changed after the"
            " reservation, and decides what was paid for"
        )
    reserved = next(e.body for e in entries if e.kind == "reserve")
    if (reserved["epsilon"], reserved["delta"]) != (spec.privacy.epsilon, spec.privacy.delta):
        yield "privacy/ledger.json: the reservation is not the spec's epsilon and delta"


def _check_certificate(reader: Reader) -> Iterator[str]:
    """The certificate's facts are those of the spec and the ledger, its charges are planned, and
    its numbers bound the plan.
    """
    spec, name = reader.spec, "privacy/certificate.json"
    raw = reader.json(name)
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        yield f"{name}: format must be {FORMAT}; another one needs another version of synthdp"
        return
    reader.certificate = stated = Certificate.model_validate(raw)
    beyond = [
        *group_problems(stated.groups),
        *event_problems([p.event for p in stated.planned], PlanLimits.of(spec)),
    ]
    beyond = beyond or list(_too_much(stated.planned, spec))
    if beyond or not reader.entries:
        yield from (
            f"{name}: {problem}"
            for problem in beyond or ("its charges are not those of a ledger that can be composed",)
        )
        reader.certificate = None
        return
    if stated.epsilon > spec.privacy.epsilon * (1 + TOLERANCE):
        yield (
            f"{name}: epsilon {stated.epsilon:g} is more than the spec allows,"
            f" {spec.privacy.epsilon:g}"
        )
    receipts = {r.file: [Receipt(stated.run, h) for h in r.receipts] for r in stated.released}
    groups = {
        g.size: math.inf if g.joint_epsilon is None else g.joint_epsilon for g in stated.groups
    }
    true = certify(
        spec,
        run=reader.run,
        planned=stated.planned,
        entries=reader.entries,
        group_epsilons=groups,
        receipts=receipts,
        program=stated.program,
        signer=stated.signer,
        audit=stated.audit,
        scores=stated.scores,
    )
    if true.epsilon > spec.privacy.epsilon * (1 + TOLERANCE):
        yield (
            f"{name}: its planned events compose to epsilon {true.epsilon:.6g}, more than the spec"
            f" allows, {spec.privacy.epsilon:g}"
        )
    for key in Certificate.model_fields:
        if not _same(getattr(stated, key), getattr(true, key)):
            yield (
                f"{name}: {key} does not follow from the spec, the plan and the"
                f" ledger{_got(getattr(stated, key), getattr(true, key))}"
            )
    yield from (
        f"privacy/ledger.json: {problem}"
        for problem in plan_problems(stated.planned, reader.entries)
    )
    yield from (
        f"{name}: {p.purpose}: {why}"
        for p, event in zip(stated.planned, events_of(stated.planned), strict=True)
        if (why := kind_of(event).too_narrow(true.unit_rows))
    )
    yield from (f"{name}: audit: {problem}" for problem in _audit_problems(stated))
    yield from (f"{name}: scores: {problem}" for problem in score_problems(stated, reader))
    yield from _group_problems(stated, spec)
    yield from _receipt_problems(stated, reader, spec)


def _too_much(planned: Sequence[PlannedSpend], spec: ReleaseSpec) -> Iterator[str]:
    """The first planned spend that passes the spec's epsilon alone: then nothing more is
    composed.
    """
    allowed = spec.privacy.epsilon * (1 + TOLERANCE)
    for spend in planned:
        alone = accounting.epsilon(
            events_of([spend]), delta=spec.privacy.delta, adjacency=spec.privacy.adjacency
        )
        if alone > allowed:
            yield (
                f"{spend.purpose!r} alone composes to epsilon {alone:.6g}, more than the spec"
                f" allows, {spec.privacy.epsilon:g}"
            )
            return


def _audit_problems(stated: Certificate) -> Iterator[str]:
    """An audit must be of these spends, public, and not have refuted them. Its figures cannot be
    checked here.
    """
    if stated.audit is None:
        return
    if stated.audit.rows == "real":
        yield "was made on real rows, and is no part of a bundle"
    if not stated.audit.covers((p.purpose, p.event) for p in stated.planned):
        yield "is of other spends than were planned"
    yield from stated.audit.refuted


def _group_problems(stated: Certificate, spec: ReleaseSpec) -> Iterator[str]:
    if 1 not in {g.size for g in stated.groups}:
        yield "privacy/certificate.json: groups do not begin with one unit"
    for group in stated.groups:
        bound = math.inf if group.joint_epsilon is None else group.joint_epsilon
        true = _group_bound(stated.planned, group.size, spec)
        if true > bound * (1 + TOLERANCE):
            yield (
                f"privacy/certificate.json: groups of {group.size}: epsilon {bound:.6g} is below"
                f" what the planned events give, {true:.6g}"
            )


def _group_bound(planned: Sequence[PlannedSpend], size: int, spec: ReleaseSpec) -> float:
    """Epsilon for groups of `size` units, from the planned events.

    Under add/remove a group is one unit with `size` times the rows, whose events follow from those
    that were planned; under replace-one, for very large groups, and for events that cannot be
    widened, the generic group bound is used.
    """
    delta, adjacency = spec.privacy.delta, spec.privacy.adjacency
    rows = size * rows_of(spec)
    events = events_of(planned)
    if adjacency == "add_remove" and rows <= accounting.MAX_GROUP_ROWS:
        widened = [kind_of(event).widened(size) for event in events]
        if None not in widened:
            return accounting.epsilon(widened, delta=delta, adjacency=adjacency)
    return accounting.group_epsilon(events, size=size, delta=delta, adjacency=adjacency)


def _receipt_problems(stated: Certificate, reader: Reader, spec: ReleaseSpec) -> Iterator[str]:
    """Each file out of rows names charges that paid for it."""
    needed = {
        "synthetic.csv",
        "synthetic.parquet",
        "marginals.json",
        "model.json",
        "model.safetensors",
        "report.html",
    }
    if spec.graph.mode == "validate" or (
        spec.graph.mode == "learn" and not _nothing_learnt(reader, spec)
    ):
        needed |= {"graph.json", "graph.svg"}
    if spec.evaluation.dp_scores:
        needed |= {*SCORED_FILES}
    charges = {e.hash for e in reader.charges}
    by_file = {r.file: set(r.receipts) for r in stated.released}
    for file in sorted(needed):
        if not by_file.get(file):
            yield f"privacy/certificate.json: {file} has no receipt"
    for file, receipts in by_file.items():
        if file not in FILES:
            yield f"privacy/certificate.json: {file!r} is not a file of a bundle"
        if receipts - charges:
            yield f"privacy/certificate.json: {file} has a receipt that is no charge of the ledger"


def _nothing_learnt(reader: Reader, spec: ReleaseSpec) -> bool:
    """Whether the graph is what the spec says without any row."""
    return CausalGraph.from_json(reader.json("graph.json")) == CausalGraph.from_spec(
        spec.graph, tuple(spec.modelled)
    )


def _same(stated: Any, true: Any) -> bool:
    """Equal, where numbers may differ in their last digits."""
    if isinstance(stated, float) and isinstance(true, float):
        return math.isclose(stated, true, rel_tol=TOLERANCE, abs_tol=1e-12)
    if isinstance(stated, tuple) and isinstance(true, tuple):
        return len(stated) == len(true) and all(map(_same, stated, true))
    if hasattr(stated, "model_dump") and type(stated) is type(true):
        return all(_same(getattr(stated, k), getattr(true, k)) for k in type(stated).model_fields)
    return bool(stated == true)


def _got(stated: Any, true: Any) -> str:
    simple = isinstance(stated, str | int | float) and isinstance(true, str | int | float)
    return f": says {stated!r}, should be {true!r}" if simple else ""


PRIVACY_CHECKS: dict[str, tuple[str, Check]] = {
    "spec": ("spec.yaml", _check_spec),
    "ledger": ("privacy/ledger.json", _check_ledger),
    "certificate": ("privacy/certificate.json", _check_certificate),
}
