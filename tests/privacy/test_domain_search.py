"""What looking for columns in the rows has cost: every search of a dataset, whoever used it."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from synthdp.errors import BudgetError
from synthdp.ledger import check_domain_from, search_cost
from synthdp.release import private_init
from synthdp.spec.model import DomainFrom, ReleaseSpec
from tests.builders import build_spec, skeleton

SPEC = build_spec({"a": {"type": "boolean"}})
RUNS = "20260101-0123456789aa", "20260101-0123456789ab"
BODY = {"epsilon": 0.5, "delta": 1e-7, "unit_column": None, "rows_per_unit": 1}


def searched(**more: Any) -> Any:
    """The ledger's entries of two searches of one dataset."""
    return [
        SimpleNamespace(dataset=SPEC.dataset.id, run=run, kind=kind, body=said)
        for run in RUNS
        for kind, said in (("reserve", BODY | more), ("charge", {"purpose": "forms"}))
    ]


def stating(epsilon: float = 1.0, delta: float = 2e-7, **dataset: Any) -> ReleaseSpec:
    own = DomainFrom(run=RUNS[1], epsilon=epsilon, delta=delta)
    spec = build_spec({"a": {"type": "boolean"}}, dataset=skeleton(**dataset)["dataset"])
    named = spec.dataset.model_copy(update={"domain_from": own})
    return spec.model_copy(update={"dataset": named})


def test_all_searches_of_a_dataset_count() -> None:
    """The later of two drafts states both, since both were seen."""
    assert search_cost(searched(), SPEC.dataset.id) == (1.0, 2e-7)
    check_domain_from(stating(), searched())
    for less in (stating(epsilon=0.5), stating(delta=1e-7)):
        with pytest.raises(BudgetError, match="together reserved 1 at 2e-07"):
            check_domain_from(less, searched())
    with pytest.raises(BudgetError, match="does not say so"):
        check_domain_from(SPEC, searched())


ID = {"kind": "id", "column": "who", "max_rows": 3, "meaning": "one person"}


@pytest.mark.parametrize(
    ("unit", "rows", "protected"),
    [(None, 1, False), ("who", 2, False), ("whose", 3, False), ("who", 3, True), ("who", 4, True)],
)
def test_a_search_protects_what_the_release_does(
    unit: str | None, rows: int, protected: bool
) -> None:
    """The sum of both bounds a unit whose rows both protect together, and no more rows."""
    known = searched(unit_column=unit, rows_per_unit=rows)
    expected = nullcontext() if protected else pytest.raises(BudgetError, match="another privacy")
    with expected:
        check_domain_from(stating(privacy_unit=ID), known)


class Stop(Exception):
    """The draft is about to be written."""


def test_a_second_draft_states_what_both_searches_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Any] = []

    def draft(*_: Any, cost: Any, **__: Any) -> None:
        heard.append(cost)
        raise Stop

    ledger = SimpleNamespace(entries=searched)
    job: Any = SimpleNamespace(ledger=ledger, plan=None, folder=SimpleNamespace(run=RUNS[1]))
    stand_ins: dict[str, Any] = {
        "request_spec": lambda _: "",
        "parse_spec": lambda *_, **__: SPEC,
        "init_plan": lambda _: None,
        "_check_noise": lambda *_: None,
        "option_warnings": lambda _: (),
        "_job": lambda *_, **__: job,
        "dropped_if_unpaid": lambda _: nullcontext(),
        "open_session": lambda *_, **__: None,
        "_look": lambda *_: (SimpleNamespace(missing_words=()), ()),
        "private_draft": draft,
    }
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(private_init, name, stand_in)
    with pytest.raises(Stop):
        private_init.private_init(SimpleNamespace(), Path("a.csv"), Path("draft.yaml"))  # type: ignore[arg-type]
    assert heard == [(1.0, 2e-7)]
