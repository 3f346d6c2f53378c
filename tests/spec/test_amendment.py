"""What of a spec may change after its run has paid: nothing that a gate on real rows rests on."""

from typing import Any

import pytest
import yaml

from synthdp.errors import SpecError
from synthdp.spec import parse_spec
from synthdp.spec.amendment import CHANGEABLE, amendment
from tests.builders import PREDICT_COLUMNS, skeleton

REAL = {"metric": "tv1", "at_most": 0.5, "outside_guarantee": True}
PUBLIC = {"metric": "tv1_noisy", "at_most": 0.5}
EFFECT = {"treated": "smoker", "outcome": "visits", "adjust": ["sex"]}
JUDGED: dict[str, Any] = {
    "classifiers": ["logistic"],
    "effects": [EFFECT],
    "max_rows": 500,
    "random_targets": 2,
    "subgroups": ["sex"],
    "targets": ["smoker"],
    "triples": 3,
}
"""Another value of each field of `evaluation` that may change where no gate is on real rows."""


def amend(changes: dict[str, Any], **sections: Any) -> tuple[str, ...]:
    """What `amendment` says of a spec of these sections whose `evaluation` is then `changes`."""
    first = {**skeleton(), "columns": PREDICT_COLUMNS, "graph": {"mode": "none"}, **sections}
    second = first | {"evaluation": first.get("evaluation", {}) | changes}
    old, new = (yaml.safe_dump(spec, sort_keys=False) for spec in (first, second))
    parsed = (parse_spec(text, path="spec.yaml") for text in (old, new))
    return amendment(*parsed, new, path="spec.yaml")


def test_every_field_of_the_evaluation_that_may_change_is_tried() -> None:
    named = [f.removeprefix("evaluation.") for f in CHANGEABLE if f.startswith("evaluation.")]
    assert sorted(named) == sorted(JUDGED)


@pytest.mark.parametrize("gates", [[], [PUBLIC]], ids=["none", "public"])
def test_what_judges_may_change_where_no_gate_is_on_real_rows(gates: list[Any]) -> None:
    assert amend(JUDGED, gates=gates) == tuple(f"evaluation.{name}" for name in sorted(JUDGED))


def test_a_gate_on_real_rows_is_tried_once_with_what_it_was_declared_with() -> None:
    """Whoever may change what a gate is computed from can try until it passes, and the certificate
    says of it that it was fixed before.
    """
    with pytest.raises(SpecError) as refused:
        amend(JUDGED, gates=[PUBLIC, REAL])
    told = {p.field for p in refused.value.problems}
    assert told == {f"evaluation.{name}" for name in JUDGED}
    hints = {str(p.hint) for p in refused.value.problems}
    assert hints == {
        "gates on real rows and published scores are fixed before anything is spent: bring the old"
        " value back"
    }


@pytest.mark.parametrize("name", JUDGED)
def test_each_of_it_alone_is_refused(name: str) -> None:
    with pytest.raises(SpecError, match=f"evaluation.{name}: is "):
        amend({name: JUDGED[name]}, gates=[REAL])
