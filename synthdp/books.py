"""The ledger that a spec names, and what it would allow, before anything is reserved."""

from __future__ import annotations

from pathlib import Path

from synthdp.privacy.ledger import Ledger
from synthdp.spec import models as spec


def open_ledger(release: spec.ReleaseSpec, spec_path: Path) -> Ledger:
    """The ledger that the spec names; by default one file beside the spec."""
    return Ledger(release.privacy.ledger or f"sqlite:///{spec_path.resolve().parent / '.synthdp' / 'ledger.db'}")


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
