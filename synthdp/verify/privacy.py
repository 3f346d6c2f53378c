"""The checks of a bundle's privacy claims: spec, ledger entries, certificate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from synthdp.bundle.certificate import (
    FORMAT,
    Certificate,
    amended_of,
    composed_of,
    events_of,
    plan_problems,
)
from synthdp.bundle.content import sha256
from synthdp.bundle.descriptions import public_spec
from synthdp.bundle.write import BY_SPEC
from synthdp.ledger.composition import Wave
from synthdp.ledger.entries import GENESIS, Balance, Entry
from synthdp.privacy import accounting
from synthdp.privacy.events.kinds import kind_of, of_side
from synthdp.privacy.plan import GROUP_SIZES, SCORES, Spend, bound_of
from synthdp.privacy.private import Receipt
from synthdp.spec.amendment import CHANGEABLE
from synthdp.spec.load.loader import parse_spec
from synthdp.spec.model import ReleaseSpec
from synthdp.verify.reader import VERIFY, Reader, event_problems, wrong
from synthdp.verify.rewritten import score_problems

FILTERED, CAPS = ("mu", "lost", "together"), ("cap_epsilon", "cap_delta")  # of a balance
# May be larger, by an earlier accountant.
BOUNDS = ("epsilon", "epsilon_spent", "epsilon_told", "advantage", "purposes")


def check_spec(reader: Reader) -> Iterator[str]:
    """The spec is valid, and holds nothing that is not published."""
    reader.parsed = parse_spec(reader.text("spec.yaml"), path="spec.yaml")
    if public_spec(reader.parsed) != reader.parsed:
        yield (
            "spec.yaml: holds paths, queries or addresses that are not published, or leaves the"
            " number of sampled rows open"
        )


def check_ledger(reader: Reader) -> Iterator[str]:
    """Every entry fits its hash, the entries form a chain, and they are those of one whole run."""
    name = "privacy/ledger.json"
    content, spec = reader.json(name), reader.spec
    if len(content["entries"]) > VERIFY.entries:
        yield f"{name}: {len(content['entries'])} entries are more than any release makes"
        return
    entries = [Entry(**e) for e in content["entries"]]
    charges = [e.body["event"] for e in entries if e.kind == "charge"]
    excess = list(event_problems(charges, reader.limits))
    yield from (f"{name}: {problem}" for problem in excess)
    # Later checks compose the entries: they get none that cannot be composed.
    reader.entries = [] if excess else entries
    yield from (f"{name}: {p}" for p in _chain_problems(entries, content["run"], spec.dataset.id))
    yield from (f"{name}: {p}" for p in _run_problems(entries, spec))
    reserved = next((e.body for e in entries if e.kind == "reserve"), {})
    wave = spec.waves and Wave(spec.waves.name, spec.waves.most).to_json()
    if reserved.get("wave") != wave:
        yield f"{name}: the reservation is of another wave, or of other people, than the spec says"
    told, filtered = content.get("balance", {}), "mu" in reserved
    yield from (f"{name}: {p}" for p in _balance_problems(told, spec, filtered=filtered))
    if filtered and "mu" in told:
        yield from (f"{name}: {p}" for p in _filter_problems(told, reserved))
    told = [e.body.get("published_sha256") for e in entries if e.kind in ("reserve", "amend")]
    if told[-1:] != [sha256(reader.folder / "spec.yaml")]:
        yield (
            "spec.yaml: is not the spec that the ledger names: it may tell otherwise what was"
            " counted and paid for"
        )


def _chain_problems(entries: Sequence[Entry], run: str, dataset: str) -> Iterator[str]:
    """Entries that do not fit their hash, their run and dataset, or the entry before them."""
    for entry in entries:
        named, foreign = f"entry {entry.seq}", (entry.run, entry.dataset) != (run, dataset)
        changed = f"{named} ({entry.kind}) was changed; its hash does not fit its content"
        yield from wrong(
            (not entry.intact, changed),
            (foreign, f"{named} is of another run or dataset"),
            (entry.seq == 1 and entry.previous != GENESIS, "entry 1 does not begin a chain"),
        )
    for before, after in pairwise(entries):
        broken = after.seq == before.seq + 1 and after.previous != before.hash
        if after.seq <= before.seq or broken:
            yield f"entry {after.seq} does not follow entry {before.seq}"


def _run_problems(entries: Sequence[Entry], spec: ReleaseSpec) -> Iterator[str]:
    """How the entries are not one reservation, then charges, then a settlement that counts them.
    The spec may be amended between reservation and settlement.
    """
    kinds = [e.kind for e in entries if e.kind != "cap"]
    charges, amendments = kinds.count("charge"), kinds.count("amend")
    between = [kind for kind in kinds[1:-1] if kind != "amend"]
    order = [*kinds[:1], *between, *kinds[-1:]]
    if charges == 0 or order != ["reserve", *["charge"] * charges, "settle"]:
        yield (
            "a run is one reservation, then charges, then a settlement; got"
            f" {', '.join(kinds) or 'nothing'}"
        )
        return
    settlement = entries[-1].body
    for stated, listed, what in (
        (settlement.get("charges"), charges, "charges"),
        (settlement.get("amendments", 0), amendments, "changes of the spec"),
    ):
        if stated != listed:
            yield f"the settlement counts {stated} {what}, and {listed} are listed"
    fixed = sorted({*amended_of(entries)} - {*CHANGEABLE})
    if fixed:
        yield (
            f"{', '.join(map(repr, fixed))} was changed after the reservation, and decides what was"
            " paid for"
        )
    reserved = next(e.body for e in entries if e.kind == "reserve")
    if (reserved["epsilon"], reserved["delta"]) != (spec.privacy.epsilon, spec.privacy.delta):
        yield "the reservation is not the spec's epsilon and delta"


def _balance_problems(
    stated: dict[str, Any], spec: ReleaseSpec, *, filtered: bool
) -> Iterator[str]:
    """How the dataset's stated balance cannot be that of the moment when the run reserved. What
    other runs took stands in the publisher's ledger alone.
    """
    own, cap = spec.privacy, spec.privacy.cap
    fields = {"dataset", "epsilon", "delta", "cap_epsilon", "cap_delta"}
    if set(stated) != fields | ({*FILTERED} if filtered else set()):
        yield "the balance has not the fields of one"
        return
    if stated["dataset"] != spec.dataset.id:
        yield "the balance is of another dataset"
    for name, took in (("epsilon", own.epsilon), ("delta", own.delta)):
        spent, limit = stated[name], stated[f"cap_{name}"]
        numbers = [spent] if limit is None else [spent, limit]
        if not all(type(n) in (int, float) and math.isfinite(n) for n in numbers):
            yield f"the balance has a {name} that is no amount"
            continue
        if spent < took * (1 - VERIFY.tolerance):
            yield f"the balance says that all runs took {name} {spent:g}, and this one {took:g}"
        if not filtered and limit is not None and spent > limit * (1 + VERIFY.tolerance):
            yield f"the balance says that {name} {spent:g} was taken of {limit:g}"
        if cap is not None and limit != getattr(cap, name):
            yield f"the balance has another cap on {name} than the spec"


def _filter_problems(stated: dict[str, Any], reserved: dict[str, Any]) -> Iterator[str]:
    """How what the Gaussian filter counted of all runs cannot be so, or passes the cap."""
    amounts: list[Any] = [*map(reserved.get, FILTERED[:2]), *map(stated.get, (*FILTERED, *CAPS))]
    if not all(type(n) in (int, float) and 0 < n < math.inf for n in amounts):
        yield "the balance, or the reservation, has something else than amounts for the filter"
        return
    for name in FILTERED[:2]:
        if stated[name] < reserved[name] * (1 - VERIFY.tolerance):
            yield f"the balance says that all runs took {name} {stated[name]:g}, and this one more"
    whole = Balance(**{k: v for k, v in stated.items() if k != "together"})
    if whole.over or not _same(float(stated["together"]), whole.together):
        yield (
            f"the runs come to epsilon {whole.together:.6g} by a Gaussian filter, and the balance"
            f" says {stated['together']:g} of {whole.cap_epsilon:g}"
        )


def check_certificate(reader: Reader) -> Iterator[str]:
    """The certificate follows from spec, plan and ledger, and its numbers bound the plan."""
    spec, name = reader.spec, "privacy/certificate.json"
    raw = reader.json(name)
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        yield f"{name}: format must be {FORMAT}; another one needs another version of synthdp"
        return
    reader.certificate = stated = reader.states.model_validate(raw)
    planned, sizes = [p.event for p in stated.planned], [g.size for g in stated.groups]
    once = f"bounds for groups are computed once each, for {', '.join(map(str, GROUP_SIZES))}"
    excess = [] if len(set(sizes)) == len(sizes) and {*sizes} <= {*GROUP_SIZES} else [once]
    excess += event_problems(planned, reader.limits)
    excess = excess or list(_too_much(stated.planned, spec))
    if not excess and not reader.entries:
        excess = ["its charges are not those of a ledger that can be composed"]
    if excess:
        yield from (f"{name}: {problem}" for problem in excess)
        reader.certificate = None
        return
    if stated.epsilon > spec.privacy.epsilon * (1 + VERIFY.tolerance):
        yield (
            f"{name}: epsilon {stated.epsilon:g} is more than the spec allows,"
            f" {spec.privacy.epsilon:g}"
        )
    true = _true_certificate(stated, reader)
    if true.epsilon > spec.privacy.epsilon * (1 + VERIFY.tolerance):
        yield (
            f"{name}: its planned events compose to epsilon {true.epsilon:.6g}, more than the spec"
            f" allows, {spec.privacy.epsilon:g}"
        )
    yield from (f"{name}: {problem}" for problem in _differences(stated, true))
    yield from (
        f"privacy/ledger.json: {problem}"
        for problem in plan_problems(stated.planned, reader.entries)
    )
    events = events_of(stated.planned)
    for entry in reader.entries:
        if entry.kind == "reserve" and "mu" in entry.body:
            own, privacy = [entry.body.get(key) for key in FILTERED[:2]], spec.privacy
            least = bound_of(
                composed_of(stated.planned, spec), delta=privacy.delta, adjacency=privacy.adjacency
            )
            if not all(map(partial(_same, or_above=True), own, least)):
                yield (
                    "privacy/ledger.json: the filter counted less than what the plan costs:"
                    f" mu {least[0]:.6g}, lost {least[1]:.3g}"
                )
    for spend, event in zip(stated.planned, events, strict=True):
        why = kind_of(event).too_narrow(true.unit_rows)
        if why:
            yield f"{name}: {spend.purpose}: {why}"
        if spend.purpose != SCORES and of_side(event, held_out=False) != event:
            yield f"{name}: {spend.purpose}: says that fitted units do not move all of it"
    yield from (f"{name}: audit: {problem}" for problem in _audit_problems(stated))
    yield from (f"{name}: scores: {problem}" for problem in score_problems(stated, reader))
    yield from _group_problems(stated, spec)
    yield from _receipt_problems(stated, reader)


def _true_certificate(stated: Certificate, reader: Reader) -> Certificate:
    """The certificate of the stated plan and groups, computed again from spec and ledger."""
    groups = {
        g.size: math.inf if g.joint_epsilon is None else g.joint_epsilon for g in stated.groups
    }
    return reader.certified(
        run=reader.run,
        planned=stated.planned,
        entries=reader.entries,
        group_epsilons=groups,
        receipts={r.file: [Receipt(stated.run, h) for h in r.receipts] for r in stated.released},
        program=stated.program,
        signer=stated.signer,
        audit=stated.audit,
        scores=stated.scores,
        balance=reader.json("privacy/ledger.json")["balance"],
    )


def _differences(stated: Certificate, true: Certificate) -> Iterator[str]:
    """Fields that are not those of the true certificate; bounds may be larger, up to the whole."""
    for key in type(stated).model_fields:
        says, should = getattr(stated, key), getattr(true, key)
        if not _same(says, should, or_above=key in BOUNDS):
            simple = all(isinstance(value, str | int | float) for value in (says, should))
            got = f": says {says!r}, should be {should!r}" if simple else ""
            yield f"{key} does not follow from the spec, the plan and the ledger{got}"
    alone = [(f"purpose {p.purpose!r}", p.epsilon) for p in stated.purposes]
    for part, epsilon in (("epsilon_spent", stated.epsilon_spent), *alone):
        if epsilon > stated.epsilon * (1 + VERIFY.tolerance):
            yield f"{part}: epsilon {epsilon:.6g} is more than that of the whole plan"


def _too_much(planned: Sequence[Spend], spec: ReleaseSpec) -> Iterator[str]:
    """The first planned spend that exceeds the spec's epsilon alone; nothing more is composed."""
    allowed = spec.privacy.epsilon * (1 + VERIFY.tolerance)
    for spend in planned:
        alone = accounting.epsilon(
            composed_of([spend], spec), delta=spec.privacy.delta, adjacency=spec.privacy.adjacency
        )
        if alone > allowed:
            yield (
                f"{spend.purpose!r} alone composes to epsilon {alone:.6g}, more than the spec"
                f" allows, {spec.privacy.epsilon:g}"
            )
            return


def _audit_problems(stated: Certificate) -> Iterator[str]:
    """An audit is of these spends, is public, and did not refute them. Its figures cannot be
    checked here.
    """
    if stated.audit is None:
        return
    covered = stated.audit.covers((p.purpose, p.event) for p in stated.planned)
    yield from wrong(
        (stated.audit.rows == "real", "was made on real rows, and is no part of a bundle"),
        (not covered, "is of other spends than were planned"),
    )
    yield from stated.audit.refuted


def _group_problems(stated: Certificate, spec: ReleaseSpec) -> Iterator[str]:
    if 1 not in {g.size for g in stated.groups}:
        yield "privacy/certificate.json: groups do not begin with one unit"
    for group in stated.groups:
        if (bound := group.joint_epsilon) is None:
            continue
        true = _group_bound(stated.planned, group.size, spec)
        if true > bound * (1 + VERIFY.tolerance):
            yield (
                f"privacy/certificate.json: groups of {group.size}: epsilon {bound:.6g} is below"
                f" what the planned events give, {true:.6g}"
            )


def _group_bound(planned: Sequence[Spend], size: int, spec: ReleaseSpec) -> float:
    """Epsilon for groups of `size` units, from the planned events. Under add/remove a group is one
    unit with `size` times the rows; under replace-one, for very large groups, and for events that
    cannot be widened, the generic group bound is used.
    """
    delta, adjacency = spec.privacy.delta, spec.privacy.adjacency
    rows = size * spec.dataset.privacy_unit.max_rows
    events = composed_of(planned, spec)
    if adjacency == "add_remove" and rows <= accounting.MAX_GROUP_ROWS:
        widened = [kind_of(event).widened(size) for event in events]
        if None not in widened:
            return accounting.epsilon(widened, delta=delta, adjacency=adjacency)
    return accounting.group_epsilon(events, size=size, delta=delta, adjacency=adjacency)


def _receipt_problems(stated: Certificate, reader: Reader) -> Iterator[str]:
    """Each file that came out of rows names the charges that paid for it."""
    charges = {e.hash for e in reader.charges}
    by_file = {r.file: set(r.receipts) for r in stated.released}
    name, known = "privacy/certificate.json", (*reader.files, *BY_SPEC)
    for file in sorted(reader.from_rows()):
        yield from wrong((not by_file.get(file), f"{name}: {file} has no receipt"))
    for file, receipts in by_file.items():
        unpaid = f"{name}: {file} has a receipt that is no charge of the ledger"
        yield from wrong(
            (file not in known, f"{name}: {file!r} is not a file of a bundle"),
            (bool(receipts - charges), unpaid),
        )


def _same(stated: Any, true: Any, *, or_above: bool = False) -> bool:
    """Equal, where numbers may differ in their last digits, or be larger `or_above`."""
    if isinstance(stated, float) and isinstance(true, float):
        larger = or_above and true < stated < math.inf
        return larger or math.isclose(stated, true, rel_tol=VERIFY.tolerance, abs_tol=1e-12)
    if isinstance(stated, tuple) and isinstance(true, tuple):
        same = partial(_same, or_above=or_above)
        return len(stated) == len(true) and all(map(same, stated, true))
    if hasattr(stated, "model_dump") and type(stated) is type(true):
        parts = [tuple(getattr(x, k) for k in type(x).model_fields) for x in (stated, true)]
        return _same(*parts, or_above=or_above)
    return bool(stated == true)
