"""Ledger entries and the hash chain that ties them together.

Each entry's hash covers its content and the hash of the entry before it. So a row that was edited,
put in, moved, or taken out of the middle is seen, and named, by anyone who recomputes the chain.
Rows cut off at the end leave a shorter chain that is sound in itself. They are seen by comparing
the ledger with a bundle that was published from it (`missing`), since a bundle carries its run's
entries.

`Balance` is what a dataset has spent and may spend, and `check_first` whether a reservation fits:
the filters of the proofs in `ledger.ledger` and `ledger.composition`. It stands here, apart from
the database, so that a plan where there is no ledger yet need not import the database's library.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

from synthdp.errors import BudgetError, OutputError, VerifyError, printable
from synthdp.ledger.composition import (
    FOR_LOST,
    NOTHING,
    Cost,
    Wave,
    gaussian_delta,
    gaussian_epsilon,
    of_series,
    pure_mu,
    together,
)

GENESIS = "0" * 64
# Which process has a run, which values it uses, and what was decided on it afterwards: a bundle
# leaves these entries out.
INTERNAL = frozenset({"lease", "kept", "decision"})


@dataclass(frozen=True)
class Entry:
    """One row of the ledger."""

    seq: int
    dataset: str
    run: str
    kind: str
    body: dict[str, Any]
    at: str
    previous: str
    hash: str

    @property
    def intact(self) -> bool:
        """Whether its hash is that of its content."""
        return entry_hash(**asdict(self)) == self.hash

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, from which `entry_hash` can be recomputed."""
        return asdict(self)


def entry_hash(**fields: Any) -> str:
    """SHA-256 of an entry's canonical JSON without its hash; `previous` chains it to another."""
    content = {name: value for name, value in fields.items() if name != "hash"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def verify_entries(entries: Sequence[Entry]) -> None:
    """Recompute the chain of consecutive `entries` that begin at the ledger's first.

    The order is that of `seq`; times are shown and never compared, because clocks are set back.

    Raises:
        VerifyError: names the first row that does not fit.
    """
    previous = GENESIS
    for position, entry in enumerate(entries, start=1):
        if (entry.seq, entry.previous) != (position, previous) or not entry.intact:
            raise VerifyError(
                f"the ledger was tampered with: row {entry.seq} (run {entry.run}, {entry.kind})"
                " does not fit the chain"
            )
        previous = entry.hash


def missing(published: Sequence[Entry], ledger: Sequence[Entry]) -> tuple[Entry, ...]:
    """Entries of a published bundle that `ledger` does not hold as they were published.

    The chain says nothing of rows cut off at its end, nor of a ledger that was written anew as a
    whole; a bundle's entries do, because their hashes rest on every row before them.
    """
    kept = {e.seq: e for e in ledger}
    return tuple(e for e in published if kept.get(e.seq) != e)


def parse_row(fields: dict[str, Any]) -> Entry:
    """An entry from its database row, whose body is JSON text.

    Raises:
        VerifyError: no program of ours wrote this row; names it.
    """
    try:
        body = json.loads(fields["body"])
    except (TypeError, ValueError):
        body = None
    if not isinstance(body, dict) or not all(
        isinstance(fields[k], str) for k in ("dataset", "run", "kind", "at", "previous", "hash")
    ):
        raise VerifyError(f"the ledger was tampered with: row {fields['seq']} cannot be read")
    return Entry(**{**fields, "body": body})


# --- decision ---

Choice = Literal["yes", "no", "withdrawn"]
ANSWERS: tuple[Choice, ...] = get_args(Choice)


@dataclass(frozen=True)
class Decision:
    """What somebody decided on the bundle of a run; `withdrawn` is published and taken back.

    `bundle_sha256` is the digest of the bundle's SHA256SUMS, `at` an ISO date. `warnings` are what
    came of telling others of it.
    """

    answer: Choice
    by: str
    why: str
    at: str
    bundle_sha256: str
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.answer}, by {self.by} on {self.at}: {self.why}"


def decision_of(entries: Iterable[Entry], run: str) -> Decision | None:
    """The decision on a run's bundle that holds, which is the last one; None where nobody decided.

    Raises:
        VerifyError: no program of ours wrote it; names the row.
    """
    entry = next((e for e in reversed([*entries]) if (e.run, e.kind) == (run, "decision")), None)
    if entry is None:
        return None
    said: list[Any] = list(map(entry.body.get, ("answer", "by", "why", "bundle_sha256")))
    if said[0] not in ANSWERS or not all(isinstance(text, str) for text in said):
        raise VerifyError(f"row {entry.seq} of the ledger is no decision that can be read")
    answer, by, why, digest = said
    return Decision(answer, by, why, entry.at, digest)


def check_said(what: str, text: str, *, longest: int) -> None:
    """Refuse a text that a page or a terminal could show as something else, or not at all.

    Raises:
        OutputError: it is blank, longer than `longest` characters, or has one that cannot be seen.
    """
    shown = printable(text).replace("\n", "\\n").replace("\t", "\\t")
    if text.strip() and len(text) <= longest and shown == text:
        return
    raise OutputError(
        f"{what}: got {shown[:60]!r}, {len(text)} characters",
        hint=f"allowed: 1 to {longest:,} characters of one line, each of which can be seen; nothing"
        " was recorded",
    )


# --- balance ---


TOLERANCE = 1e-9  # caps are decimal fractions; 0.1 + 0.2 must fit a cap of 0.3
Bound = tuple[float, float]
"""`mu` and `lost` of a run's plan (`ledger.composition`)."""


@dataclass(frozen=True)
class Balance:
    """What a dataset has spent and may spend; `cap_*` are None where no cap was set.

    `epsilon` and `delta` are sums. `mu` and `lost` are those of all runs together by the Gaussian
    filter (`ledger.composition`): `mu` is 0 where no run has fixed the rule yet, and None where
    sums count. Where a person may be in `most` waves of a series, all of these are of the `waves`
    that cost most, and of runs that name none (`ledger.composition`).
    """

    dataset: str
    epsilon: float
    delta: float
    cap_epsilon: float | None
    cap_delta: float | None
    mu: float | None = 0.0
    lost: float = 0.0
    most: int | None = None
    waves: Mapping[str, Cost] = field(default_factory=dict)

    @property
    def together(self) -> float:
        """Epsilon of all runs together, by the rule that holds for them; by the filter at the delta
        of the cap.
        """
        if not self.mu or self.cap_delta is None:
            return self.epsilon
        return gaussian_epsilon(self.mu, (1 - FOR_LOST) * self.cap_delta)

    @property
    def rule(self) -> str:
        """The rule, in words."""
        rule = "a Gaussian filter" if self.mu else "addition"
        return rule if self.most is None else f"{rule} of the {self.most} largest waves"

    @property
    def over(self) -> Literal["epsilon", "delta"] | None:
        """Which part of the cap is passed, if any."""
        if self.cap_epsilon is None or self.cap_delta is None:
            return None
        epsilon, delta = (cap * (1 + TOLERANCE) for cap in (self.cap_epsilon, self.cap_delta))
        passed = self.epsilon > epsilon, self.delta > delta
        if self.mu:
            tail = gaussian_delta(epsilon, self.mu)
            passed = tail > (1 - FOR_LOST) * delta, self.lost > FOR_LOST * delta
        return "epsilon" if passed[0] else "delta" if passed[1] else None

    def after(
        self, epsilon: float, delta: float, bound: Bound | None, wave: Wave | None = None
    ) -> Balance:
        """With one run more, of this `bound` and `wave`; a dataset's first one fixes the rule."""
        own = (epsilon, delta, *(bound or (pure_mu(epsilon), delta)))
        most, waves, old, new = self.most, self.waves, NOTHING, own
        if wave is not None:
            before = waves.get(wave.name, NOTHING)
            most, waves = wave.most, {**waves, wave.name: together([before, own])}
            old, new = of_series(NOTHING, self.waves, most), of_series(NOTHING, waves, most)
        added = (new[0] - old[0], new[1] - old[1], new[2] ** 2 - old[2] ** 2, new[3] - old[3])
        spent = replace(
            self,
            epsilon=self.epsilon + added[0],
            delta=self.delta + added[1],
            mu=None,
            most=most,
            waves=waves,
        )
        if self.mu is None or (self.mu == 0 and (bound is None or self.cap_epsilon is None)):
            return spent
        filtered = replace(spent, mu=math.sqrt(self.mu**2 + added[2]), lost=self.lost + added[3])
        return spent if self.mu == 0 and filtered.over else filtered

    def to_json(self) -> dict[str, Any]:
        """As a bundle publishes it: with what the filter has, where that is the rule."""
        told = {n: v for n, v in asdict(self).items() if n not in ("mu", "most", "waves")}
        if not self.mu:
            return {name: value for name, value in told.items() if name != "lost"}
        return told | {"mu": self.mu, "together": self.together}


def balance_of_entries(dataset: str, entries: Sequence[Entry]) -> Balance:
    """The balance of a dataset, from all entries that name it."""
    caps = [e.body for e in entries if e.kind == "cap"]
    reserved = [e.body for e in entries if e.kind == "reserve"]
    cap = caps[-1] if caps else {"epsilon": None, "delta": None}
    costs: dict[str | None, list[Cost]] = {None: []}
    most: int | None = None
    for b in reserved:
        own = (b["mu"], b["lost"]) if "mu" in b else (pure_mu(b["epsilon"]), b["delta"])
        wave = b.get("wave") or {"name": None, "most": most}
        most = wave["most"]
        costs.setdefault(wave["name"], []).append((b["epsilon"], b["delta"], *own))
    always = together(costs.pop(None))
    waves = {str(name): together(own) for name, own in costs.items()}
    epsilon, delta, mu, lost = of_series(always, waves, most)
    balance = Balance(dataset, epsilon, delta, cap["epsilon"], cap["delta"], mu, lost, most, waves)
    adds = bool(reserved) and "mu" not in reserved[0]
    return replace(balance, mu=None, lost=0.0) if adds else balance


def balance_at_reservation(entries: Sequence[Entry], run: str) -> Balance:
    """The balance of the dataset of `run` right after this run had reserved its budget.

    It is what a bundle publishes: later runs change nothing of it, so that it can be looked up.

    Raises:
        StopIteration: the run has no reservation among `entries`.
    """
    own = next(e for e in entries if e.run == run and e.kind == "reserve")
    until = [e for e in entries if e.dataset == own.dataset and e.seq <= own.seq]
    return balance_of_entries(own.dataset, until)


def check_first(
    balance: Balance,
    *,
    epsilon: float,
    delta: float,
    cap: tuple[float, float] | None,
    bound: Bound | None = None,
    wave: Wave | None = None,
) -> Balance:
    """Check that a ledger of this `balance` would accept a run of (epsilon, delta) now; returns
    what the balance then is.

    It is the filter of the ledger's proofs, and the agreement of spec and ledger on the cap.
    `cap` is the spec's, and becomes the dataset's where there was none. `bound` is what the
    Gaussian filter needs to know of the run's plan; without it, it assumes the worst. `wave` is the
    run's, of a series.

    Raises:
        BudgetError: it would not.
    """
    if balance.cap_epsilon is None and cap is not None:
        balance = replace(balance, cap_epsilon=cap[0], cap_delta=cap[1])
    if cap is not None and cap != (balance.cap_epsilon, balance.cap_delta):
        raise BudgetError(
            f"the spec's cap for dataset {balance.dataset} is epsilon {cap[0]:g}, delta {cap[1]:g};"
            f" the ledger's is epsilon {balance.cap_epsilon:g}, delta {balance.cap_delta:g}",
            hint="correct the spec, or change the ledger's cap with `synthdp budget --set-cap`",
        )
    later = balance.after(epsilon, delta, bound, wave)
    if later.over is None:
        return later
    name, filtered = later.over, bool(later.mu)
    need, spent, limit = (
        (epsilon, balance.together, later.cap_epsilon)
        if name == "epsilon"
        else (later.lost - balance.lost, balance.lost, FOR_LOST * (later.cap_delta or 0.0))
        if filtered
        else (delta, balance.delta, later.cap_delta)
    )
    left = f"{max((limit or 0.0) - spent, 0):.4g} left on dataset {balance.dataset}"
    if filtered and name == "epsilon":
        left = f"which makes {later.together:.4g} of all runs of dataset {balance.dataset} together"
    raise BudgetError(
        f"{name}: needs {need:g}, {left}; cap {limit:g}, spent {spent:g}"
        + (", by a Gaussian filter" if filtered else ""),
        hint=(
            "lower the spec's budget, or have the data's owner raise the cap with `synthdp"
            " budget --set-cap`"
        ),
    )


def check_amounts(*amounts: float) -> None:
    """Refuse a NaN, which compares with nothing, and a negative spend, which would add to the cap.

    Raises:
        BudgetError: an amount is not finite, or negative.
    """
    if not all(math.isfinite(a) and a >= 0 for a in amounts):
        raise BudgetError(
            "epsilon and delta must be finite and not negative, got"
            f" {', '.join(f'{a:g}' for a in amounts)}"
        )


def same_reservation(reservation: Entry, dataset: str, wanted: dict[str, Any]) -> Entry:
    """The run's reservation, if it is the one that the run asks for; who asks may have changed.

    Raises:
        BudgetError: the run asks for another one.
    """
    free = dict.fromkeys(("by", "mu", "lost"))  # numbers that follow from the plan
    same_body = {**reservation.body, **free} == {**wanted, **free}
    if reservation.dataset != dataset or not same_body:
        raise BudgetError(
            f"run {reservation.run} already has another reservation, on dataset"
            f" {reservation.dataset}",
            hint="start a new release",
        )
    return reservation


def check_neighbours(entries: Sequence[Entry], wanted: dict[str, Any]) -> None:
    """Refuse another neighbour relation than earlier runs had: such epsilons do not add up.

    Raises:
        BudgetError: an earlier reservation has another one.
    """
    asked = wanted.get("adjacency")
    for entry in entries:
        earlier = entry.body.get("adjacency") if entry.kind == "reserve" else None
        if None not in (asked, earlier) and asked != earlier:
            raise BudgetError(
                f"run {entry.run} released dataset {entry.dataset} with {earlier} neighbours, and"
                f" the spec says {asked}: such spends do not add up",
                hint=f"say privacy.adjacency: {earlier}",
            )
