"""The facts of a privacy certificate: what was given out, at what cost, for whom.

`certify` collects them from public sources only: the spec, the plan, the run's ledger entries,
released scores. `synthdp.bundle.certificate_text` words them. The guarantee is that of the whole
plan (`guaranteed_epsilon`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Literal

from pydantic import Field

from synthdp import __version__
from synthdp.bundle.audit_record import AuditRecord
from synthdp.drawing import COOL, FAINT, HOT, frame, label, line, shortened
from synthdp.evaluate.dp_scores import DpScores
from synthdp.ledger.entries import Entry
from synthdp.privacy import accounting
from synthdp.privacy.calibration import secret_holdout
from synthdp.privacy.events.kinds import SecretSampleDpEvent, event_from_json, with_holdout
from synthdp.privacy.plan import INTERACTIONS, Spend, graph_purpose, spends_digest
from synthdp.privacy.private import Receipt
from synthdp.spec.load.wording import up
from synthdp.spec.model import DomainFrom, Gate, Model, Publication, ReleaseSpec, Waves, derived_of

# Raise it whenever facts or wording change: `verify` compares texts of the same format only.
FORMAT = 20
MAX_EXPECTED = 60  # figures of a plan that a ledger keeps


class Charge(Spend):
    """A planned mechanism that did look: with the hash of its ledger entry."""

    entry: str


class Purpose(Model):
    """Epsilon of one planned purpose alone, at the certificate's delta, and whether it was used."""

    purpose: str
    epsilon: float
    used: bool


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


class ExpectedFigure(Model):
    """Half of the 95% interval that plays of one figure had, and the part of them that had none."""

    estimand: str
    group: str | None
    half_width: float | None = Field(ge=0, allow_inf_nan=False)
    refused: float = Field(ge=0, le=1)


class Expected(Model):
    """What a plan expected before any row was read: `tv1`, the mean total variation of single
    columns, and the first figures of its estimands.
    """

    tv1: float = Field(ge=0, le=1)
    figures: tuple[ExpectedFigure, ...] = Field(max_length=MAX_EXPECTED)


class PriorFacts(Model):
    """Public rows that noisy tables were shrunk to: `kind` says whether they are a bundle's."""

    kind: Literal["source", "bundle"]
    name: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    licence: str | None
    statement: str


class Certificate(Model):
    """All facts of a certificate. Numbers are upper bounds.

    `advantage` is delta at epsilon 0, `balance` what all releases of the dataset had reserved with
    this one, added up, and `filtered` the epsilon to which a Gaussian filter brings them at the
    cap's delta, where it is the rule. `epsilon`, the groups and the profile are of the whole plan.
    `epsilon_spent` is composed from the charges alone: it describes this outcome and is no bound
    for the run. All of them count on nobody knowing whom a coin of chance `held_out` held out (0
    where they do not), or who is in a secret sample; `epsilon_told` is that of the whole plan to
    someone who knows both, or None.
    """

    format: int
    dataset: str
    title: str | None
    source: Literal["csv", "parquet", "sql", "builtin", "dataframe"]
    run: str
    epsilon: float
    epsilon_spent: float
    epsilon_allowed: float
    epsilon_told: float | None
    held_out: float = Field(ge=0, lt=1)
    delta: float = Field(gt=0, lt=1)
    advantage: float = Field(ge=0, le=1)
    adjacency: Literal["add_remove", "replace_one"]
    unit: Literal["row", "id", "person"]
    unit_meaning: str
    unit_rows: int
    rows: int
    rows_kind: Literal["public", "approximate"]
    out_of_domain: Literal["refuse", "clamp"]
    columns: int
    graph: Literal["none", "given", "validate", "learn", "predict"]
    constraints: tuple[str, ...] = ()
    derived: tuple[tuple[str, str], ...] = ()
    amended: tuple[str, ...] = ()
    cap: tuple[float, float] | None
    balance: tuple[float, float] | None = None
    filtered: float | None = None
    expected: Expected | None = None
    publication: Publication | None = None
    contact: str | None = None
    domain_from: DomainFrom | None = None
    prior: PriorFacts | None = Field(default=None, exclude_if=lambda prior: prior is None)
    waves: Waves | None = None
    planned: tuple[Spend, ...]
    charges: tuple[Charge, ...]
    purposes: tuple[Purpose, ...]
    groups: tuple[Group, ...]
    released: tuple[ReleasedFile, ...]
    outside_gates: tuple[Gate, ...]
    charged_gates: tuple[Gate, ...] = ()
    scores: DpScores = ()
    audit: AuditRecord | None
    program: str = Field(pattern=r"^synthdp [0-9A-Za-z.+_-]{1,40}$")
    signer: str | None = Field(pattern=r"^ed25519:[0-9a-f]{64}$")

    @property
    def finds_interactions(self) -> bool:
        """Whether the run might look for what acts on a target together."""
        return any(spend.purpose == graph_purpose(INTERACTIONS) for spend in self.planned)


def certify(
    spec: ReleaseSpec,
    *,
    run: str,
    planned: Sequence[Spend],
    entries: Sequence[Entry],
    group_epsilons: Mapping[int, float],
    receipts: Mapping[str, Iterable[Receipt]],
    program: str = f"synthdp {__version__}",
    signer: str | None = None,
    audit: AuditRecord | None = None,
    scores: DpScores = (),
    balance: Mapping[str, Any] | None = None,
) -> Certificate:
    """The certificate of a run.

    Args:
        spec: the resolved spec.
        run: id of the run.
        planned: all that the run might have charged; epsilon is composed from these events.
        entries: the run's ledger entries, among them what it did charge.
        group_epsilons: epsilon at the spec's delta for groups of so many units, as the whole plan
            has it.
        receipts: for each file of the bundle that came out of rows, what paid for it.
        program: what made the release, and its version.
        signer: the public key of who signs the bundle; None for an unsigned one.
        audit: what an audit of the same spends found without real rows.
        scores: released scores of the table on real rows, where the spec has them charged.
        balance: of the dataset when the run had reserved; None before.
    """
    charges, unit, privacy = charges_of(entries), spec.dataset.privacy_unit, spec.privacy
    return Certificate(
        format=FORMAT,
        dataset=spec.dataset.id,
        title=spec.dataset.title,
        source=spec.dataset.source.kind,
        run=run,
        **_bounds(planned, spec),
        epsilon_spent=_composed(charges, spec),
        epsilon_allowed=privacy.epsilon,
        delta=privacy.delta,
        adjacency=privacy.adjacency,
        unit=unit.kind,
        unit_meaning=unit.meaning,
        unit_rows=unit.max_rows,
        rows=spec.dataset.rows.value,
        rows_kind=spec.dataset.rows.kind,
        out_of_domain=spec.dataset.out_of_domain,
        columns=len(spec.columns),
        graph=spec.graph.mode,
        constraints=spec.constraints,
        derived=tuple((n, t) for n, c in spec.columns.items() if (t := derived_of(c)) is not None),
        amended=amended_of(entries),
        cap=(privacy.cap.epsilon, privacy.cap.delta) if privacy.cap else None,
        balance=(balance["epsilon"], balance["delta"]) if balance else None,
        filtered=balance.get("together") if balance else None,
        expected=next((e.body.get("expected") for e in entries if e.kind == "reserve"), None),
        **{name: getattr(spec, name) for name in ("publication", "waves")},
        **{name: getattr(spec.dataset, name) for name in ("contact", "domain_from")},
        prior=_prior_facts(spec),
        planned=tuple(planned),
        charges=charges,
        purposes=_purposes(planned, {c.purpose for c in charges}, spec),
        groups=_groups(group_epsilons, delta=privacy.delta),
        released=tuple(
            ReleasedFile(file=f, receipts=tuple(sorted(r.entry for r in rs)))
            for f, rs in sorted(receipts.items())
        ),
        outside_gates=tuple(g for g in spec.gates if g.outside_guarantee),
        charged_gates=tuple(g for g in spec.gates if g.on_dp_score),
        scores=scores,
        audit=audit,
        program=program,
        signer=signer,
    )


def _prior_facts(spec: ReleaseSpec) -> PriorFacts | None:
    if (prior := spec.prior) is None or prior.sha256 is None:
        return None
    kind: Literal["source", "bundle"] = "source" if prior.source else "bundle"
    told = prior.model_dump(include={"sha256", "licence", "statement"})
    return PriorFacts(kind=kind, name=prior.name, **told)


def charges_of(entries: Iterable[Entry]) -> tuple[Charge, ...]:
    """The charges among ledger entries.

    Raises:
        KeyError, ValueError: a charge's body is not what a charge holds.
    """
    stated = ("purpose", "mechanism", "event")
    return tuple(
        Charge(entry=e.hash, **{name: e.body[name] for name in stated})
        for e in entries
        if e.kind == "charge"
    )


def amended_of(entries: Iterable[Entry]) -> tuple[str, ...]:
    """Fields of the spec that were changed after the reservation."""
    changed = (e.body["changed"] for e in entries if e.kind == "amend")
    return tuple(sorted({str(name) for names in changed for name in names}))


def plan_problems(planned: Sequence[Spend], entries: Sequence[Entry]) -> Iterator[str]:
    """How a run's entries differ from the plan.

    The reservation is of this plan, and each purpose is charged at most once, with its event.
    """
    events, charges = {p.purpose: p.event for p in planned}, charges_of(entries)
    reserved = {e.body.get("plan_sha256") for e in entries if e.kind == "reserve"}
    if reserved != {spends_digest(planned)}:
        yield "the reservation was made for another plan"
    if len(events) < len(planned):
        yield "a purpose is planned twice"
    if len({c.purpose for c in charges}) < len(charges):
        yield "a purpose is charged twice"
    for charge in charges:
        if charge.purpose not in events:
            yield f"{charge.purpose!r} is charged and was not planned"
        elif charge.event != events[charge.purpose]:
            yield f"{charge.purpose!r} is charged with another event than was planned"


def events_of(spends: Iterable[Spend]) -> list[Any]:
    """The privacy events of `spends`.

    Raises:
        BudgetError: an event of an unknown kind.
    """
    return [event_from_json(s.event) for s in spends]


def guaranteed_epsilon(planned: Iterable[Spend], spec: ReleaseSpec) -> float:
    """Epsilon of the run as a whole: of all that was planned, at the spec's delta and adjacency.

    Which planned charges a run makes may depend on what it released before: a search asks no more
    where the tables leave nothing to ask. The whole plan bounds every outcome of such a run
    [derived here]. Let each charge that the run leaves out be made all the same, at the end, and
    its result be dropped. This longer run makes every planned charge, so the composition of all
    planned events bounds it, in whatever order released values choose them: whichever comes first,
    its event and the product of the others', which by induction bounds what follows, bound both
    together (`accounting.compose`). What the true run gives out, including which charges it made,
    is a function of what the longer one does: post-processing, under the same bound.

    The charges of one outcome do not bound it. Let the first release a bit, and the second follow
    only where it is 1: an outcome with bit 0 has the first charge alone, and outcomes with bit 1,
    which the same guarantee must hold for, both.
    """
    return _composed(planned, spec)


def composed_of(spends: Iterable[Spend], spec: ReleaseSpec) -> tuple[Any, ...]:
    """The privacy events of `spends` as they are composed: on units that a secret coin holds out.

    Raises:
        BudgetError: an event of an unknown kind.
    """
    return with_holdout(events_of(spends), _held_out(spec), spec.privacy.adjacency)


def _held_out(spec: ReleaseSpec) -> float:
    kind = spec.dataset.source.kind
    return secret_holdout(spec.evaluation.held_out, spec.privacy.adjacency, kind)


def _composed(spends: Iterable[Spend], spec: ReleaseSpec) -> float:
    return accounting.epsilon(
        composed_of(spends, spec), delta=spec.privacy.delta, adjacency=spec.privacy.adjacency
    )


def _bounds(planned: Sequence[Spend], spec: ReleaseSpec) -> dict[str, Any]:
    """What the whole plan bounds, also to someone who knows whom coins left out."""
    known = (e.event if isinstance(e, SecretSampleDpEvent) else e for e in events_of(planned))
    told = accounting.epsilon(known, delta=spec.privacy.delta, adjacency=spec.privacy.adjacency)
    return {
        "epsilon": guaranteed_epsilon(planned, spec),
        "epsilon_told": _finite(told),
        "held_out": _held_out(spec),
        "advantage": _profile(planned, spec, epsilons=(0.0,))[0][1],
    }


def _purposes(planned: Sequence[Spend], used: set[str], spec: ReleaseSpec) -> tuple[Purpose, ...]:
    return tuple(
        Purpose(purpose=p.purpose, epsilon=_composed([p], spec), used=p.purpose in used)
        for p in planned
    )


def _groups(epsilons: Mapping[int, float], *, delta: float) -> tuple[Group, ...]:
    """Joint effect of k data points, and total effect of k statuses.

    Each status may influence the others.

    Total effect [derived here from Tschantz et al., section 6.3]: causes are acyclic, so the k
    statuses can be ordered such that the i-th reaches only the data points of the i-th and later
    ones, at most k - i + 1 of them. Its effect is at most the joint effect (e, d) of that many data
    points. The total is the sum of these k bounds, epsilons and deltas each added up: an account of
    what each person loses, k (k + 1) / 2 epsilon where epsilon is pure, the paper's 3 epsilon for k
    = 2. A size that is not tabulated is bounded by the next larger one.

    It is no chain of steps from one world to another: chained, (e_1, d), (e_2, d), ... give the sum
    of epsilons at a delta of d (1 + exp(e_1) + exp(e_1 + e_2) + ...), more than k d. Nor is a chain
    needed to compare two worlds. All k statuses together reach these k data points alone, so that
    changing all of them, in whatever order, has at most the joint effect (e_k, d). So (sum of e, k
    d) holds for that too, as both are larger, and the joint effect says more.
    """
    sizes = sorted(epsilons)
    most = max(sizes, default=0)
    bound = {j: epsilons[min(s for s in sizes if s >= j)] for j in range(1, most + 1)}
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


# --- profile ---
#
# One (epsilon, delta) is one point of a curve. The curve says more: at epsilon 0 delta bounds the
# advantage (true minus false positive rate) of any test for one data point, and what the same
# release offers at other deltas.


# 0, then twenty points to a decade from 0.01 to 100: a constant, so that it says nothing about a
# release.
EPSILONS = (0.0, *(round(10 ** (k / 20), 6) for k in range(-40, 41)))
FLOOR = 1e-12  # of the picture; deltas below are in the file
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 400, 70, 620, 64, 340


def profile_of(planned: Sequence[Spend], spec: ReleaseSpec) -> dict[str, Any]:
    """The content of `privacy/profile.json`: upper bounds, composed from all planned events.

    See `certificate.guaranteed_epsilon`.
    """
    points = _profile(planned, spec, epsilons=EPSILONS)
    # A bound at a smaller epsilon holds at a larger one, so the least so far is a bound: it removes
    # the rounding far below 1e-12.
    deltas = accumulate((d for _, d in points), min)
    return {
        "meaning": (
            "for each epsilon, an upper bound on the delta of everything in this bundle together,"
            " as planned, for one unit of privacy"
        ),
        "adjacency": spec.privacy.adjacency,
        "points": [{"epsilon": e, "delta": d} for (e, _), d in zip(points, deltas, strict=True)],
    }


def _profile(
    planned: Sequence[Spend], spec: ReleaseSpec, *, epsilons: Sequence[float]
) -> list[tuple[float, float]]:
    """Delta at each of `epsilons`."""
    points = accounting.delta_profile(
        composed_of(planned, spec), epsilons=epsilons, adjacency=spec.privacy.adjacency
    )
    return [(epsilon, min(max(delta, 0.0), 1.0)) for epsilon, delta in points]


def profile_svg(profile: dict[str, Any], certificate: Certificate) -> str:
    """The profile as a picture; `verify` draws it again from the file's own numbers."""
    points = [(float(p["epsilon"]), float(p["delta"])) for p in profile["points"]]
    shown = [(e, d) for e, d in points if d >= FLOOR]
    most = max([certificate.epsilon * 1.25, *(e for e, _ in shown)])

    def place(epsilon: float, delta: float) -> tuple[float, float]:
        height = math.log10(max(delta, FLOOR)) / math.log10(FLOOR)
        return LEFT + (RIGHT - LEFT) * epsilon / most, TOP + (BOTTOM - TOP) * height

    path = " ".join(
        f"{'M' if i == 0 else 'L'}{x:.1f},{y:.1f}"
        for i, (x, y) in enumerate(place(e, d) for e, d in shown)
    )
    x, y = place(certificate.epsilon, certificate.delta)
    words = f"certificate: epsilon {up(certificate.epsilon)}, delta {certificate.delta:g}"
    title = f"Delta at every epsilon: {certificate.title or certificate.dataset}"
    scope = "Upper bounds for everything in the bundle together, for one unit of privacy."
    body = [
        label(20, 28, shortened(title, most=60), size=16, bold=True),
        label(20, 48, scope, size=12),
        *_axes(most, place),
        f'<path d="{path}" fill="none" stroke="{COOL}" stroke-width="2.4"/>',
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{HOT}"/>',
    ]
    # Above the falling curve on its right, or below it on its left.
    if x < (LEFT + RIGHT) / 2:
        body.append(label(x + 9, y - 8, words, size=12, colour=HOT))
    else:
        body.append(label(x - 9, y + 18, words, anchor="end", size=12, colour=HOT))
    some = shown[:: max(1, len(shown) // 8)]
    listed = "; ".join(f"epsilon {e:g}: delta {d:.3g}" for e, d in some)
    return frame(
        body,
        name="profile",
        title=title,
        description=f"A falling curve. {listed}.",
        width=WIDTH,
        height=HEIGHT,
    )


def _axes(most: float, place: Any) -> Iterator[str]:
    for power in range(0, 13, 2):
        _, y = place(0.0, 10.0**-power)
        yield line(LEFT, y, RIGHT, y, colour="#dddddd")
        yield label(
            LEFT - 8, y + 4, f"1e-{power}" if power else "1", anchor="end", size=11, colour=FAINT
        )
    scale = 10.0 ** math.floor(math.log10(most / 6))
    step = next(m * scale for m in (1, 2, 5, 10) if m * scale >= most / 6)
    for i in range(int(most / step) + 1):
        x, y = place(i * step, FLOOR)
        yield line(x, y, x, y + 5, colour=FAINT)
        yield label(x, y + 19, f"{i * step:g}", anchor="middle", size=11, colour=FAINT)
    yield label((LEFT + RIGHT) / 2, HEIGHT - 18, "epsilon", anchor="middle")
    middle = f"{(TOP + BOTTOM) / 2:.1f}"
    turned = f'transform="rotate(-90 24 {middle})"'
    yield f'<text x="24" y="{middle}" {turned} text-anchor="middle">delta</text>'
