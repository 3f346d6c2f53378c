"""The ledger that a spec names, and what it would allow, before anything is reserved.

What finding a dataset's domain in its rows has cost is asked here too (`check_domain_from`).
`synthdp init --private` finds types, bounds and categories in the rows. A release of the draft
spends beside that, and its certificate states the sum, by `dataset.domain_from`. So the ledger is
asked: every search of the dataset counts, whichever draft came of it, since all were seen.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from synthdp.errors import BUDGET, BudgetError, VerifyError, WrongTableError, budget_note
from synthdp.ledger.composition import Wave
from synthdp.ledger.entries import Balance, Bound, Entry, check_first
from synthdp.spec import addresses
from synthdp.spec.load.wording import many
from synthdp.spec.model import IdUnit, PrivacyUnit, ReleaseSpec

if TYPE_CHECKING:
    # its database's library takes long to import, and a plan without a ledger needs none
    from synthdp.ledger.ledger import Ledger


def open_ledger(spec: ReleaseSpec, spec_path: Path, *, resumed: bool = False) -> Ledger:
    """Open the ledger that the spec names, whatever folder the command runs in.

    A missing one is created, unless a run is `resumed`.

    Raises:
        BudgetError: it cannot be opened, or what was spent probably stands in another file.
    """
    from synthdp.ledger.ledger import Ledger

    address, missing = address_of(spec, spec_path)
    if missing is not None:
        if resumed:
            hint = (
                "bring it back: in a new ledger, what this run and others have spent would be"
                " forgotten"
            )
            raise BudgetError(
                f"the ledger {missing}, which held this run's reservation, is gone", hint=hint
            )
        _check_not_left_behind(spec, missing)
    return Ledger(address)


def open_book(ledger: str) -> Ledger:
    """The ledger at a path or SQLAlchemy URL, its chain verified.

    A relative path starts from the working folder.

    Raises:
        BudgetError: there is no such ledger.
        VerifyError: it was tampered with; names the row.
    """
    from synthdp.ledger.ledger import Ledger

    address, shown = addresses.sqlite_address(Path(ledger).absolute()), addresses.shown_path(ledger)
    if "://" in ledger:
        address = addresses.from_folder(ledger, Path.cwd())
        shown = addresses.shown_address(address)
    file = addresses.sqlite_file(address)
    if file is not None and not file.exists():
        raise BudgetError(
            f"no ledger at {shown}",
            hint="the first release makes it, in .synthdp/ledger.db beside the spec; name another"
            " place with --ledger",
        )
    book = Ledger(address)
    book.verify_chain()
    return book


def entries_of(spec: ReleaseSpec, spec_path: Path) -> list[Entry]:
    """All that the ledger holds; where there is none yet, nothing, and none is made.

    Raises:
        BudgetError, VerifyError: it cannot be opened or read.
    """
    if not spec.privacy.ledger and not addresses.default_ledger(addresses.home(spec_path)).exists():
        return []
    return (
        [] if address_of(spec, spec_path)[1] is not None else open_ledger(spec, spec_path).entries()
    )


def columns_sha256(spec: ReleaseSpec) -> str:
    """Digest of the names of a table's columns.

    By it the ledger shows that two dataset ids may be one table.
    """
    return hashlib.sha256(json.dumps(sorted(spec.columns)).encode()).hexdigest()


def other_ids(spec: ReleaseSpec, entries: Sequence[Entry]) -> list[str]:
    """A warning for each other dataset id of the ledger whose table has the same columns."""
    own, mine = spec.dataset.id, columns_sha256(spec)
    others = {
        e.dataset for e in entries if e.kind == "reserve" and e.body.get("columns_sha256") == mine
    } - {own}
    return [
        f"dataset {other!r} of this ledger has the same columns; if it is the same table, say"
        f" dataset.id: {other}, so that what both spend adds up"
        for other in sorted(others)
    ]


def balance_of(spec: ReleaseSpec, spec_path: Path) -> Balance:
    """What the spec's dataset has spent; where there is no ledger yet, nothing, and none is made.

    Raises:
        BudgetError: as `open_ledger`.
    """
    nothing = Balance(spec.dataset.id, 0.0, 0.0, None, None)
    if not spec.privacy.ledger and not addresses.default_ledger(addresses.home(spec_path)).exists():
        return nothing
    _, missing = address_of(spec, spec_path)
    if missing is None:
        return open_ledger(spec, spec_path).balance(spec.dataset.id)
    _check_not_left_behind(spec, missing)
    return nothing


def address_of(spec: ReleaseSpec, spec_path: Path) -> tuple[str, Path | None]:
    """The ledger's address, and its file where that is to be but is not yet."""
    address = addresses.ledger_address(spec.privacy.ledger, addresses.home(spec_path))
    file = addresses.sqlite_file(address)
    return address, file if file is not None and not file.exists() else None


def _check_not_left_behind(spec: ReleaseSpec, file: Path) -> None:
    """Refuse to begin a second ledger beside one in the working folder.

    Relative addresses once led to the working folder: a ledger that was begun there must not be
    forgotten.
    """
    passed = addresses.sqlite_file(addresses.from_folder(spec.privacy.ledger or "", Path.cwd()))
    if passed is not None and passed.exists():
        raise BudgetError(
            f"privacy.ledger leads to {file}, from the spec's folder, where there is no ledger;"
            f" there is one in the working folder, {passed}",
            hint=(
                "if that one has this dataset's spends, move it to the spec's folder; if not, give"
                " the command in another folder"
            ),
        )


def check_affordable(spec: ReleaseSpec, balance: Balance, facts: Mapping[str, Any]) -> None:
    """Refuse early what the ledger would refuse later, by the `ledger_facts` of the plan, and what
    would leave planned waves to come less than this one; the reservation itself decides.

    Raises:
        BudgetError: the cap does not allow the spec's budget, or that of each wave to come.
    """
    privacy = spec.privacy
    bound = math.inf if facts["mu"] is None else facts["mu"], facts["lost"]
    wanted: dict[str, Any] = {"epsilon": privacy.epsilon, "delta": privacy.delta, "bound": bound}
    check_first(balance, cap=cap_of(spec), wave=wave_of(spec), **wanted)
    if "waves" in facts and not facts["waves"]["fits"]:
        end = facts["waves"]
        raise BudgetError(
            f"the cap leaves too little for {many(end['to_come'], 'wave')} to come (waves.planned):"
            f" if each takes what this one does, all come to epsilon {end['spent_at_end']:.4g}",
            hint="lower privacy.epsilon, plan fewer waves, or have the data's owner raise the cap",
        )


def ledger_facts(spec: ReleaseSpec, balance: Balance, bound: Bound) -> dict[str, Any]:
    """Epsilon of the dataset before and after a run of this `bound`, by which `rule`; its cap; and
    the bound, `mu` being None where there is none. Where waves are planned, how many are to come,
    and whether each may take as much.
    """
    cap, privacy, wave = cap_of(spec), spec.privacy, wave_of(spec)
    if balance.cap_epsilon is None and cap is not None:
        balance = replace(balance, cap_epsilon=cap[0], cap_delta=cap[1])
    after = balance.after(privacy.epsilon, privacy.delta, bound, wave)
    facts = {
        "spent_before": balance.together,
        "spent_after": after.together,
        "cap": balance.cap_epsilon,
        "cap_delta": balance.cap_delta,
        "rule": after.rule,
        "mu": bound[0] if math.isfinite(bound[0]) else None,
        "lost": bound[1],
    }
    if wave is None or spec.waves is None or spec.waves.planned is None:
        return facts
    to_come, end = max(0, spec.waves.planned - len(after.waves)), after
    for i in range(to_come):
        end = end.after(privacy.epsilon, privacy.delta, bound, Wave(f"to come: {i}", wave.most))
    return facts | {
        "waves": {"to_come": to_come, "spent_at_end": end.together, "fits": end.over is None}
    }


def wave_of(spec: ReleaseSpec) -> Wave | None:
    """The wave that a run of the spec is of, as the ledger has it."""
    return None if spec.waves is None else Wave(spec.waves.name, spec.waves.most)


def steward_name() -> str:
    """Who answers for the spend, where they wish to be named.

    The bundle publishes the ledger's entries, so the name is cut to 200 characters.
    """
    return os.environ.get("SYNTHDP_STEWARD", "not stated")[:200]


def cap_of(spec: ReleaseSpec) -> tuple[float, float] | None:
    cap = spec.privacy.cap
    return None if cap is None else (cap.epsilon, cap.delta)


@dataclass
class Account:
    """The run whose budget an error has to report.

    There is none until the run's ledger is open and its folder exists.
    """

    ledger: Ledger | None = None
    run: str = ""
    folder: Path | None = None
    again: str = ""  # the command that goes on with the run
    unspent: str = "nothing was spent"

    def note(self, error: BaseException) -> str:
        """What the run has spent and what can still be done."""
        unspent = f"{BUDGET}{self.unspent}"
        if self.ledger is None:
            return unspent
        try:
            entries = self.ledger.run_entries(self.run)
        except (BudgetError, VerifyError):
            return (
                f"{BUDGET}the ledger cannot say what run {self.run} has spent; `synthdp budget` can"
                " when it is back"
            )
        reserved = next((e.body for e in entries if e.kind == "reserve"), None)
        if reserved is None:
            return unspent
        charged = [e.body["purpose"] for e in entries if e.kind == "charge"]
        looks = (
            f"{', '.join(charged[:5])}{' and more' if len(charged) > 5 else ''}"
            if charged
            else "nothing"
        )
        spent = (
            f"{BUDGET}epsilon {reserved['epsilon']:g} at delta {reserved['delta']:g} stays spent,"
            f" reserved by run {self.run}; charged so far: {looks}"
        )
        kept = self.folder is not None and self.folder.exists()
        if isinstance(error, WrongTableError):
            return f"{spent}; what was measured is kept in {self.folder}"
        return (
            f"{spent}; {self.again} goes on, and pays nothing again"
            if kept
            else f"{spent}; the run is over, and another one pays again"
        )


@contextmanager
def budget_noted(unspent: str = Account.unspent) -> Iterator[Account]:
    """Add a note of what was spent to any error that ends a run, a Ctrl-C included.

    `errors.budget_note` reads the note. An error that has one keeps it: a run knows more than the
    command around it.
    """
    account = Account(unspent=unspent)
    try:
        yield account
    except BaseException as error:
        if budget_note(error) is None:
            error.add_note(account.note(error))
        raise


# --- domain search ---


FIRST_LOOK = "forms"
"""Purpose of the first look of a search; written in ledgers."""


def searched_unit(unit: PrivacyUnit) -> dict[str, Any]:
    """What a search protects, for its reservation."""
    if isinstance(unit, IdUnit):
        return {"unit_column": unit.column, "rows_per_unit": unit.max_rows}
    return {"unit_column": None, "rows_per_unit": 1}


def searches(entries: Sequence[Entry], dataset: str) -> dict[str, Mapping[str, Any]]:
    """Reservations of the runs that looked for the columns of a dataset, by run."""
    looked = {
        e.run
        for e in entries
        if e.dataset == dataset and e.kind == "charge" and e.body["purpose"] == FIRST_LOOK
    }
    return {
        e.run: e.body
        for e in entries
        if e.kind == "reserve" and e.dataset == dataset and e.run in looked
    }


def search_cost(entries: Sequence[Entry], dataset: str) -> tuple[float, float]:
    """Epsilon and delta of all searches of a dataset together."""
    found = searches(entries, dataset).values()
    return sum(body["epsilon"] for body in found), sum(body["delta"] for body in found)


def check_domain_from(spec: ReleaseSpec, entries: Sequence[Entry]) -> None:
    """Refuse a spec that does not state what the searches of its dataset have cost.

    Raises:
        BudgetError: `dataset.domain_from` is missing, names no search of the ledger, states less
            than all of them reserved, or they protected less than the spec's privacy unit.
    """
    dataset, stated = spec.dataset.id, spec.dataset.domain_from
    found, (epsilon, delta) = searches(entries, dataset), search_cost(entries, dataset)
    last = list(found)[-1:]
    hint = (
        "".join(
            f"say dataset.domain_from: {{run: {run}, epsilon: {epsilon:.12g}, delta: {delta:.12g}}}"
            for run in last
        )
        + "; nothing was spent"
    )
    if stated is None:
        if found:
            raise BudgetError(
                f"run {last[0]} looked for the columns of dataset {dataset} in its rows (`synthdp"
                " init --private`), and the spec does not say so",
                hint=hint,
            )
        return
    if stated.run not in found:
        raise BudgetError(
            f"dataset.domain_from: run {stated.run} looked for the columns, says the spec; the"
            f" ledger of dataset {dataset} holds no such reservation",
            hint=(
                "name the ledger of that run as privacy.ledger, and keep dataset.id as `synthdp"
                " init --private` wrote it; nothing was spent"
            ),
        )
    slack = 1 + 1e-9  # relative error of a sum of declared budgets
    if stated.epsilon * slack < epsilon or stated.delta * slack < delta:
        raise BudgetError(
            f"dataset.domain_from states epsilon {stated.epsilon:g} at delta {stated.delta:g}; all"
            f" searches of dataset {dataset} together reserved {epsilon:g} at {delta:g}",
            hint=hint,
        )
    _check_unit(spec, found)


def _check_unit(spec: ReleaseSpec, found: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse a release that protects more rows together than a search did."""
    own = searched_unit(spec.dataset.privacy_unit)
    for run, body in found.items():
        if (
            body.get("unit_column") != own["unit_column"]
            or body.get("rows_per_unit", 0) < own["rows_per_unit"]
        ):
            raise BudgetError(
                f"run {run}, which looked for the columns, protected another privacy unit than"
                " dataset.privacy_unit, or fewer rows of one",
                hint=(
                    "keep the unit that `synthdp init --private` wrote, or find the columns again"
                    " under the new unit and another dataset.id; nothing was spent"
                ),
            )
