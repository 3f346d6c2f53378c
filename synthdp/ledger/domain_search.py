"""What finding a dataset's domain in its rows has cost, and whether a spec says so.

`synthdp init --private` finds types, bounds and categories in the rows. A release of the draft
spends beside that, and its certificate states the sum, by `dataset.domain_from`. So the ledger is
asked: every search of the dataset counts, whichever draft came of it, since all were seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from synthdp.errors import BudgetError
from synthdp.ledger.entries import Entry
from synthdp.spec.model import IdUnit, PrivacyUnit, ReleaseSpec

FIRST_LOOK = "forms"
"""Purpose of the first look of a search; written in ledgers."""
ROUNDING = 1e-9
"""Relative error of a sum of declared budgets."""


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
    slack = 1 + ROUNDING
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
