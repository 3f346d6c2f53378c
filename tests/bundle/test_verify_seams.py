"""Seams of `verify` that a changed copy of it once passed all tests without: what was reserved, and
how exactly numbers must agree.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from synthdp.bundle import sha256
from synthdp.ledger import Entry, entry_hash
from synthdp.privacy.plan import MEASURE, PAIRS, SERVES, estimand_purpose, graph_purpose
from synthdp.spec.model import Gate
from synthdp.verify import Reader, check_marginals
from tests.builders import build_spec
from tests.bundle.conftest import edit_json, problems

CERTIFICATE, LEDGER = "privacy/certificate.json", "privacy/ledger.json"


def chain(entries: list[dict[str, Any]]) -> None:
    """Give entries the hashes that fit their content."""
    before: dict[str, Any] | None = None
    for entry in entries:
        if before is not None and entry["seq"] == before["seq"] + 1:
            entry["previous"] = before["hash"]
        entry["hash"] = entry_hash(**{k: v for k, v in entry.items() if k != "hash"})
        before = entry


@pytest.mark.parametrize(
    "amount", [{"epsilon": 0.5}, {"epsilon": 30.0}, {"delta": 1e-9}, {"delta": 1e-3}]
)
def test_another_budget_reserved_than_the_spec_states(
    bundle: Path, amount: dict[str, float]
) -> None:
    """With every hash as it must be."""

    def forge(content: Any) -> None:
        content["entries"][0]["body"].update(amount)
        chain(content["entries"])

    edit_json(bundle / LEDGER, forge)
    assert "privacy/ledger.json: the reservation is not the spec's epsilon and delta" in problems(
        bundle
    )


@pytest.mark.parametrize("field", ["privacy.epsilon", "evaluation.holdout", "columns.sex"])
def test_a_change_of_what_was_paid_for(bundle: Path, field: str) -> None:
    """The ledger lists it as a change of the spec, counted by the settlement, with every hash as it
    must be. Of a field that may change the same bundle says that its certificate does not follow.
    """

    def amend(changed: str) -> str:
        def forge(content: Any) -> None:
            *paid, settlement = content["entries"]
            body = {"by": "a", "spec_sha256": "0" * 64, "changed": [changed]}
            body |= {"published_sha256": sha256(bundle / "spec.yaml")}
            amended = paid[-1] | {"kind": "amend", "body": body, "seq": settlement["seq"]}
            settlement["body"]["amendments"] = 1
            settlement["seq"] += 1
            content["entries"] = [*paid, amended, settlement]
            chain(content["entries"])

        kept = (bundle / LEDGER).read_bytes()
        edit_json(bundle / LEDGER, forge)
        found = problems(bundle)
        (bundle / LEDGER).write_bytes(kept)
        return found

    said = f"{field!r} was changed after the reservation, and decides what was paid for"
    assert said in amend(field)
    free = amend("dataset.title")
    assert "was changed after the reservation" not in free and "amended" in free, free


def test_a_hundredth_of_a_percent_less_is_found(bundle: Path) -> None:
    """The last digits may differ, and no more."""

    def lower(facts: Any) -> None:
        facts["epsilon"] *= 1 - 1e-4
        facts["groups"][2]["joint_epsilon"] *= 1 - 1e-4

    edit_json(bundle / CERTIFICATE, lower)
    found = problems(bundle)
    assert "certificate.json: epsilon does not follow" in found and "groups of 3: epsilon" in found


def test_a_hundredth_of_a_percent_beyond_the_spec_is_found(bundle: Path) -> None:
    stated = json.loads((bundle / CERTIFICATE).read_text())["epsilon"]
    text = (bundle / "spec.yaml").read_text()
    assert "  epsilon: 3.0\n" in text
    (bundle / "spec.yaml").write_text(
        text.replace("  epsilon: 3.0\n", f"  epsilon: {stated * (1 - 1e-4)!r}\n", 1)
    )
    found = problems(bundle)
    assert "is more than the spec allows" in found
    assert "its planned events compose to epsilon" in found


BALANCES = {
    "it leaves out this run": {"epsilon": 0.5},
    "more was taken than the cap": {"epsilon": 10.0},
    "another cap": {"cap_epsilon": 30.0},
    "no cap": {"cap_epsilon": None, "cap_delta": None},
    "another dataset": {"dataset": "other"},
    "a text": {"epsilon": "3"},
    "a negative delta": {"delta": -1},
    "something more": {"left": 6.0},
}


@pytest.mark.parametrize("change", BALANCES.values(), ids=list(BALANCES))
def test_a_balance_that_cannot_be_true(bundle: Path, change: dict[str, Any]) -> None:
    """`verify` refuses the page's answer to how much budget is left."""
    edit_json(bundle / LEDGER, lambda c: c["balance"].update(change))
    assert "privacy/ledger.json: the balance" in problems(bundle)


def test_the_balance_is_that_of_the_reservation(bundle: Path) -> None:
    """Another run had taken .5 before."""
    stated = json.loads((bundle / LEDGER).read_text())
    assert stated["balance"] == {
        "dataset": stated["entries"][0]["dataset"],
        "epsilon": 3.5,
        "delta": pytest.approx(1.1e-5),
        "cap_epsilon": 9,
        "cap_delta": 1e-3,
    }
    page = (bundle / "report.html").read_text()
    assert "epsilon 5.5 of 9 is left: this release took 3, all so far took 3.5" in page


@pytest.mark.parametrize(
    ("bound", "value", "held"),
    [
        ({"at_most": 0.2}, 0.2, True),
        ({"at_most": 0.2}, 0.21, False),
        ({"at_least": 0.8}, 0.8, True),
        ({"at_least": 0.8}, 0.79, False),
    ],
)
def test_a_gate_on_a_published_score_is_held_against_it_again(
    bound: dict[str, float], value: float, held: bool
) -> None:
    assert (Gate(metric="tstr_accuracy_dp", **bound).margin(value) >= 0) == held  # type: ignore[arg-type]


@pytest.mark.parametrize("purpose", [*SERVES, graph_purpose("pairs"), estimand_purpose("1")])
def test_only_charges_for_tables_pay_for_the_precision_of_tables(
    tmp_path: Path, purpose: str
) -> None:
    """Counts of anything else have the same event, and would allow tables of less noise."""
    columns = {"sex": {"type": "categorical", "categories": ["female", "male"]}}
    tables = [{"columns": ["sex"], "shape": [2], "sigma": 2.0, "counts": [10, 12]}]
    (tmp_path / "marginals.json").write_text(json.dumps({"tables": tables}))
    event = {"event": "discrete_gaussian", "sigma": 2.0, "sensitivity": 1}
    body = {"purpose": purpose, "mechanism": "counts", "event": event}
    charge = Entry(1, "people", "run", "charge", body, "2026-01-01", "", "")
    reader = Reader(tmp_path, parsed=build_spec(columns), entries=[charge])
    found = list(check_marginals(reader))
    pays = purpose in (MEASURE, PAIRS) or purpose not in SERVES
    assert (not found) == pays, found
