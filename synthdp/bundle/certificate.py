"""The facts of a privacy certificate: what was given out, at what cost, for whom.

`certify` collects them from public sources only: the spec, the run's ledger entries, the plan's group bounds.
`synthdp.bundle.certificate_text` words them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

from pydantic import Field

from synthdp import __version__
from synthdp.bundle.audit_record import AuditRecord
from synthdp.privacy import accounting
from synthdp.privacy.private import Receipt
from synthdp.spec.models import Gate, Model, ReleaseSpec

FORMAT = 5  # raise it whenever facts or wording change: `verify` compares texts of the same format only
GROUP_SIZES = (1, 2, 3, 5, 10)


class LedgerEntry(Protocol):
    """What the certificate needs of a ledger entry."""

    @property
    def kind(self) -> str: ...
    @property
    def body(self) -> dict[str, Any]: ...
    @property
    def hash(self) -> str: ...


class Charge(Model):
    """One mechanism that looked at rows: the hash of its ledger entry, why, how, and its privacy event."""

    entry: str
    purpose: str
    mechanism: str
    event: dict[str, Any]


class Purpose(Model):
    """Epsilon of one purpose alone, at the certificate's delta."""

    purpose: str
    epsilon: float


class Group(Model):
    """Bounds for `size` units together; None where the accountant gives no bound at this delta."""

    size: int = Field(ge=1)
    joint_epsilon: float | None
    joint_delta: float
    total_epsilon: float | None
    total_delta: float


class ReleasedFile(Model):
    """A file of the bundle that came out of rows, and the ledger entries that paid for it."""

    file: str
    receipts: tuple[str, ...]


class Certificate(Model):
    """All facts of a certificate. Numbers are upper bounds; epsilon is composed from the charges' events."""

    format: int
    dataset: str
    title: str | None
    run: str
    epsilon: float
    epsilon_planned: float
    epsilon_allowed: float
    delta: float
    adjacency: Literal["add_remove", "replace_one"]
    unit: Literal["row", "id"]
    unit_meaning: str
    unit_rows: int
    rows: int
    rows_kind: Literal["public", "approximate"]
    out_of_domain: Literal["refuse", "clamp"]
    columns: int
    graph: Literal["none", "given", "validate", "learn"]
    cap: tuple[float, float] | None
    charges: tuple[Charge, ...]
    purposes: tuple[Purpose, ...]
    groups: tuple[Group, ...]
    released: tuple[ReleasedFile, ...]
    outside_gates: tuple[Gate, ...]
    audit: AuditRecord | None
    program: str = Field(pattern=r"^synthdp [0-9A-Za-z.+_-]{1,40}$")
    signer: str | None = Field(pattern=r"^ed25519:[0-9a-f]{64}$")


def certify(
    spec: ReleaseSpec,
    *,
    run: str,
    entries: Sequence[LedgerEntry],
    group_epsilons: Mapping[int, float],
    receipts: Mapping[str, Iterable[Receipt]],
    program: str = f"synthdp {__version__}",
    signer: str | None = None,
    audit: AuditRecord | None = None,
    epsilon_planned: float | None = None,
) -> Certificate:
    """The certificate of a run.

    Args:
        spec: the resolved spec.
        run: id of the run.
        entries: the run's ledger entries; epsilon is composed from the events of its charges.
        group_epsilons: epsilon at the spec's delta for groups of so many units, as the plan computed it.
        receipts: for each file of the bundle that came out of rows, what paid for it.
        program: what made the release, and its version.
        signer: the public key of who signs the bundle; None for an unsigned one.
        audit: what an audit of the same spends found without real rows.
        epsilon_planned: epsilon of all that the plan held, some of which a run may not have needed; None where all was spent.
    """
    charges = charges_of(entries)
    epsilon = composed_epsilon(charges, spec)
    unit, privacy = spec.dataset.privacy_unit, spec.privacy
    return Certificate(
        format=FORMAT,
        dataset=spec.dataset.id,
        title=spec.dataset.title,
        run=run,
        epsilon=epsilon,
        epsilon_planned=epsilon if epsilon_planned is None else max(epsilon_planned, epsilon),
        epsilon_allowed=privacy.epsilon,
        delta=privacy.delta,
        adjacency=privacy.adjacency,
        unit=unit.kind,
        unit_meaning=unit.meaning,
        unit_rows=unit.max_rows if unit.kind == "id" else 1,
        rows=spec.dataset.rows.value,
        rows_kind=spec.dataset.rows.kind,
        out_of_domain=spec.dataset.out_of_domain,
        columns=len(spec.columns),
        graph=spec.graph.mode,
        cap=(privacy.cap.epsilon, privacy.cap.delta) if privacy.cap else None,
        charges=charges,
        purposes=_purposes(charges, spec),
        groups=_groups(group_epsilons, delta=privacy.delta),
        released=tuple(ReleasedFile(file=f, receipts=tuple(sorted(r.entry for r in rs))) for f, rs in sorted(receipts.items())),
        outside_gates=tuple(g for g in spec.gates if g.outside_guarantee),
        audit=audit,
        program=program,
        signer=signer,
    )


def charges_of(entries: Iterable[LedgerEntry]) -> tuple[Charge, ...]:
    """The charges among ledger entries.

    Raises:
        KeyError, ValueError: a charge's body is not what a charge holds.
    """
    return tuple(
        Charge(entry=e.hash, purpose=e.body["purpose"], mechanism=e.body["mechanism"], event=e.body["event"]) for e in entries if e.kind == "charge"
    )


def events_of(charges: Iterable[Charge]) -> list[Any]:
    """The privacy events of `charges`.

    Raises:
        BudgetError: an event of an unknown kind.
    """
    return [accounting.event_from_json(c.event) for c in charges]


def composed_epsilon(charges: Iterable[Charge], spec: ReleaseSpec) -> float:
    """Epsilon of all `charges` together, at the spec's delta and adjacency."""
    return accounting.epsilon(events_of(charges), delta=spec.privacy.delta, adjacency=spec.privacy.adjacency)


def _purposes(charges: Sequence[Charge], spec: ReleaseSpec) -> tuple[Purpose, ...]:
    """Epsilon of each purpose alone, in the order of the ledger."""
    names = dict.fromkeys(c.purpose for c in charges)
    return tuple(Purpose(purpose=n, epsilon=composed_epsilon([c for c in charges if c.purpose == n], spec)) for n in names)


def _groups(epsilons: Mapping[int, float], *, delta: float) -> tuple[Group, ...]:
    """Joint effect of k data points, and the total effect of k statuses that may influence each other.

    Total effect [derived here from Tschantz et al., section 6.3]: causes are acyclic, so the k statuses can
    be ordered such that the i-th reaches only the data points of the i-th and later ones, at most k - i + 1
    of them. Its effect is at most the joint effect of that many data points; the total is their sum, and
    deltas add up. With pure epsilon this is k (k + 1) / 2 epsilon, the paper's 3 epsilon for k = 2. A size
    that is not tabulated is bounded by the next larger one.
    """
    sizes = sorted(epsilons)
    bound = {j: epsilons[min(s for s in sizes if s >= j)] for j in range(1, sizes[-1] + 1)} if sizes else {}
    return tuple(
        Group(
            size=k,
            joint_epsilon=_finite(epsilons[k]),
            joint_delta=delta,
            total_epsilon=_finite(math.fsum(bound[j] for j in range(1, k + 1))),
            total_delta=k * delta,
        )
        for k in sizes
    )


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
