"""A run that goes on, perhaps by another spec, goes by what it has reserved and charged."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from synthdp.errors import BudgetError, SpecError
from synthdp.privacy.plan import SCORES
from synthdp.privacy.private import _KERNEL_KEY, Receipt, Released
from synthdp.release import job as amend
from synthdp.release import open_session
from synthdp.release import run as publishing
from synthdp.spec import parse_spec
from tests.builders import PREDICT_COLUMNS, skeleton

SPEC = {**skeleton(), "columns": PREDICT_COLUMNS, "graph": {"mode": "none"}}


def entry(kind: str, **body: Any) -> SimpleNamespace:
    return SimpleNamespace(kind=kind, body=body, hash="h")


class Ledger:
    """The entries of one run, and what is added to them."""

    def __init__(self, *entries: Any) -> None:
        self.known, self.amended = list(entries), list[dict[str, Any]]()

    def run_entries(self, run: str) -> list[Any]:
        return self.known

    def amend(self, dataset: str, run: str, *, body: dict[str, Any], after: str) -> None:
        self.amended.append(body)


RESERVED = {"plan_sha256": "planned", "published_sha256": "p", "spec_sha256": "s"}


@pytest.mark.parametrize(
    "reserved",
    [RESERVED | {"plan_sha256": "another"}, {"plan_sha256": "planned"}, {"published_sha256": "p"}],
    ids=["another plan", "an old version", "no plan"],
)
def test_a_run_that_was_planned_otherwise_is_not_gone_on_with(
    reserved: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its events would not be those of the reservation, and so of the certificate."""
    job: Any = SimpleNamespace(
        spec=parse_spec(yaml.safe_dump(SPEC), path="spec.yaml"),
        plan=SimpleNamespace(digest="planned", holdout=0.0),
        folder=SimpleNamespace(run="r", journal=Path(), holdout_coins=str),
        ledger=Ledger(entry("reserve", **reserved)),
    )
    opened: list[Any] = []
    monkeypatch.setattr(open_session, "_sealed", lambda *_, **__: None)
    monkeypatch.setattr(open_session, "Session", lambda *_, **named: opened.append(named))
    with pytest.raises(BudgetError, match="was planned otherwise"):
        open_session.open_session(job)
    assert not opened
    job.ledger = Ledger(entry("reserve", **RESERVED))
    open_session.open_session(job)
    assert len(opened) == 1


@pytest.fixture
def amended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`amended(ledger, digest, section=...)`: the run goes on by a spec with these sections."""
    monkeypatch.setattr(amend.run_folder, "respecified", lambda folder, text: folder)

    def go_on(ledger: Ledger, digest: str, **sections: Any) -> None:
        monkeypatch.setattr(amend, "plan_for", lambda *_: SimpleNamespace(digest=digest, spends=()))
        folder: Any = SimpleNamespace(
            spec_text=yaml.safe_dump(SPEC), spec_path=Path("s.yaml"), run="r"
        )
        new = tmp_path / "new.yaml"
        new.write_text(yaml.safe_dump({**SPEC, **sections}))
        amend.amended(folder, ledger, new, out=tmp_path)  # type: ignore[arg-type]

    return go_on


def test_a_table_whose_scores_were_charged_is_not_changed(amended: Any) -> None:
    """Its published scores are of the table that was counted."""
    paid, scored = entry("reserve", **RESERVED), entry("charge", purpose=SCORES)
    counted = Ledger(paid, scored)
    with pytest.raises(SpecError) as refused:
        amended(counted, "planned", sampling={"rows": 99})
    assert "the published scores of this run's table were counted" in str(refused.value)
    assert not counted.amended
    trained = Ledger(paid, entry("charge", purpose="train"))
    amended(trained, "planned", sampling={"rows": 99})
    assert [body["changed"] for body in trained.amended] == [["sampling"]]


def test_a_change_that_would_change_the_plan_is_refused(amended: Any) -> None:
    ledger = Ledger(entry("reserve", **RESERVED))
    with pytest.raises(BudgetError, match="would change what run r has planned"):
        amended(ledger, "another", sampling={"rows": 99})
    assert not ledger.amended


def test_figures_carry_the_receipts_of_all_sums_that_they_are_made_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of the noisy tables too, among which contingency tables are."""

    def released(value: Any, entry: str) -> Released[Any]:
        return Released(value, frozenset({Receipt("r", entry)}), key=_KERNEL_KEY)

    heard: list[Any] = []
    monkeypatch.setattr(publishing, "estimands_json", lambda *told: heard.append(told[2]) or {})
    fitted: Any = SimpleNamespace(
        tables=released((), "tables"), sums={"1": released(11, "one"), "3": released(33, "three")}
    )
    job: Any = SimpleNamespace(
        spec=SimpleNamespace(estimands=("a",), pays_for_sums=True), domain=None
    )
    found = publishing.estimands_of(job, fitted)
    assert found is not None and heard == [{"1": 11, "3": 33}]
    assert {receipt.entry for receipt in found.receipts} == {"tables", "one", "three"}
    job.spec.pays_for_sums = False
    assert publishing.estimands_of(job, fitted) is None
