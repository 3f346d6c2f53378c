"""What looking for columns in the rows has cost: every search of a dataset, whoever used it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from synthdp.errors import BudgetError
from synthdp.ledger.domain_search import check_domain_from, search_cost
from synthdp.spec.model import DomainFrom, ReleaseSpec
from tests.builders import build_spec


def test_all_searches_of_a_dataset_count() -> None:
    """The later of two drafts states both, since both were seen."""
    spec = build_spec({"a": {"type": "boolean"}})
    dataset, runs = spec.dataset.id, ("20261124-0123456789aa", "20261124-0123456789ab")
    body = {"epsilon": 0.5, "delta": 1e-7, "unit_column": None, "rows_per_unit": 1}
    entries = [
        SimpleNamespace(dataset=dataset, run=run, kind=kind, body=said)
        for run in runs
        for kind, said in (("reserve", body), ("charge", {"purpose": "forms"}))
    ]
    assert search_cost(entries, dataset) == (1.0, 2e-7)  # type: ignore[arg-type]

    def stating(epsilon: float) -> ReleaseSpec:
        own = DomainFrom(run=runs[1], epsilon=epsilon, delta=2e-7)
        named = spec.dataset.model_copy(update={"domain_from": own})
        return spec.model_copy(update={"dataset": named})

    check_domain_from(stating(1.0), entries)  # type: ignore[arg-type]
    with pytest.raises(BudgetError, match="together reserved 1 at 2e-07"):
        check_domain_from(stating(0.5), entries)  # type: ignore[arg-type]
    with pytest.raises(BudgetError, match="does not say so"):
        check_domain_from(spec, entries)  # type: ignore[arg-type]
