"""The ledger that a spec names, and what it would allow, before anything is reserved."""

from __future__ import annotations

from pathlib import Path

from synthdp.addresses import from_folder, home, ledger_address, sqlite_file
from synthdp.errors import BudgetError
from synthdp.privacy.ledger import Ledger
from synthdp.spec import models as spec


def open_ledger(release: spec.ReleaseSpec, spec_path: Path, *, resumed: bool = False) -> Ledger:
    """The ledger that the spec names, whatever folder the command runs in; made where it does not exist, unless a run is `resumed`.

    Raises:
        BudgetError: it cannot be opened, or what was spent probably stands in another file.
    """
    address = ledger_address(release.privacy.ledger, home(spec_path))
    file = sqlite_file(address)
    if file is not None and not file.exists():
        if resumed:
            hint = "bring it back: in a new ledger, what this run and others have spent would be forgotten"
            raise BudgetError(f"the ledger {file}, which held this run's reservation, is gone", hint=hint)
        _check_not_left_behind(release, file)
    return Ledger(address)


def _check_not_left_behind(release: spec.ReleaseSpec, file: Path) -> None:
    """Relative addresses once led to the working folder: a ledger that was begun there must not be forgotten."""
    passed = sqlite_file(from_folder(release.privacy.ledger or "", Path.cwd()))
    if passed is not None and passed.exists():
        raise BudgetError(
            f"privacy.ledger leads to {file}, from the spec's folder, where there is no ledger; there is one in the working folder, {passed}",
            hint="if that one has this dataset's spends, move it to the spec's folder; if not, give the command in another folder",
        )


def check_affordable(release: spec.ReleaseSpec, ledger: Ledger) -> None:
    """Refuse early what the ledger would refuse later; the reservation itself decides.

    Raises:
        BudgetError: the cap does not allow the spec's budget.
    """
    ledger.check(release.dataset.id, epsilon=release.privacy.epsilon, delta=release.privacy.delta, cap=cap_of(release))


def cap_of(release: spec.ReleaseSpec) -> tuple[float, float] | None:
    """The spec's cap."""
    cap = release.privacy.cap
    return None if cap is None else (cap.epsilon, cap.delta)
