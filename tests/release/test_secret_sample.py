"""A whole release that trains on a secret sample: what its bundle says, what is left of the sample,
and what happens when it is interrupted.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from synthdp.data import Domain
from synthdp.errors import SpecError
from synthdp.ledger import Balance
from synthdp.model import plan_for
from synthdp.privacy import accounting
from synthdp.privacy.events.kinds import event_from_json, event_to_json
from synthdp.privacy.table import Table
from synthdp.release import resume
from synthdp.release.plan_view import plan_facts
from synthdp.spec import load_spec
from synthdp.verify import PlanLimits, event_problems, verify_bundle
from tests.release.conftest import certificate, interrupt

pytestmark = pytest.mark.check

RATE = 200 / (400 * 0.8)  # of the rows that are not held out
SAMPLED = {"synthesizer": {"sample": 200}}


@pytest.fixture
def samples(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The levels of each secret sample that is drawn."""
    drawn: list[Any] = []
    true_sample = Table.sampled_codes

    def sampled(self: Table, rate: float, randomness: Any) -> Any:
        assert rate == RATE
        drawn.append(true_sample(self, rate, randomness))
        return drawn[-1]

    monkeypatch.setattr(Table, "sampled_codes", sampled)
    return drawn


def checkpoints(folder: Path) -> list[str]:
    return [p.name for p in (folder / ".run").rglob("*") if "train" in p.name]


def test_an_interrupted_training_begins_anew_on_another_sample_under_the_same_charge(
    tiny: Any, samples: list[Any]
) -> None:
    tiny.write(**SAMPLED)
    interrupt(tiny, "measure and train", 12)
    assert len(samples) == 1 and checkpoints(tiny.out) == []
    resume(tiny.out)
    assert tiny.kinds() == ["cap", "reserve", "charge", "charge", "settle"]
    first, second = samples
    assert len(first) != len(second) or (first != second).any()
    assert 120 < len(first) < 280
    assert_it_is_told_and_verified(tiny)


def assert_it_is_told_and_verified(tiny: Any) -> None:
    outcome = verify_bundle(tiny.bundle)
    assert outcome.ok
    text = (tiny.bundle / "privacy" / "certificate.md").read_text()
    assert "on a secret sample of the data points, drawn once for all of its steps" in text
    assert f"on a secret sample that each unit is in with probability {RATE:.6g}" in text
    ledger = json.loads((tiny.bundle / "privacy" / "ledger.json").read_text())
    (event,) = (
        e["body"]["event"] for e in ledger["entries"] if e["body"].get("purpose") == "train"
    )
    assert (event["event"], event["rate"]) == ("secret_sample", RATE)
    charged = [e["body"]["event"] for e in ledger["entries"] if e["kind"] == "charge"]
    known = [event_from_json(e["of"] if e["event"] == "secret_sample" else e) for e in charged]
    told = accounting.epsilon(known, delta=1e-5, adjacency="add_remove")
    short = text.partition("## In short")[2].partition("## ")[0]
    assert told == certificate(tiny.bundle)["epsilon_told"] > 1.3
    assert f"by secret coins: to whoever does, it is {told:.2f}"[:-1] in short
    assert "who was held out, and who was in the sample, epsilon is" in text
    page = (tiny.out / "internal" / "internal.html").read_text()
    assert "on a secret sample of 0.625 of the units" in page


def test_a_plan_says_it_and_another_sample_than_the_specs_is_refused(tiny: Any) -> None:
    spec = load_spec(tiny.write(**SAMPLED).spec)
    plan = plan_for(spec, Domain.from_spec(spec.columns))
    assert plan.train is not None and plan.epsilon_spent <= 1
    assert plan.train.expected_batch == pytest.approx(plan.train.rate * 200) == 64
    facts = plan_facts(spec, Balance("tiny", 0.0, 0.0, None, None))
    assert any("secret sample" in note and "0.625" in note for note in facts["notes"])
    events = [event_to_json(event) for event in plan.events]
    assert not list(event_problems(events, PlanLimits.of(spec)))
    for other in ({"sample": 210}, {"sample": None}):
        changed = spec.model_copy(update={"synthesizer": spec.synthesizer.model_copy(update=other)})
        (problem,) = event_problems(events, PlanLimits.of(changed))
        assert "smaller than the spec's" in problem


def test_a_sample_of_all_rows_is_none(tiny: Any) -> None:
    spec = load_spec(tiny.write(synthesizer={"sample": 320}).spec)
    assert PlanLimits.of(spec).sample == 1.0


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"synthesizer": {"sample": 63}}, "less than the 64 rows of an expected batch"),
        ({**SAMPLED, "privacy": {"adjacency": "replace_one"}}, "adjacency replace_one"),
    ],
)
def test_samples_that_cannot_be_are_refused(tiny: Any, changes: dict[str, Any], what: str) -> None:
    with pytest.raises(SpecError, match=what):
        load_spec(tiny.write(**changes).spec)


def test_a_unit_of_several_rows_is_in_with_all_of_them(tiny: Any, samples: list[Any]) -> None:
    """Rows of a person are alike, and no two persons are: 100 persons of 4 rows, of whom 3 stay."""
    persons = np.arange(400) // 4
    frame = pd.DataFrame(
        {
            "person": persons,
            "sex": np.where(persons % 2, "male", "female"),
            "grade": "low",
            "smoker": "yes",
            "visits": 0,
            "weight": 40 + persons * 0.8 + 0.1,
            "joined": "2021-05-05",
        }
    )
    changes = {
        "dataset": {
            "privacy_unit": {
                "kind": "id",
                "column": "person",
                "max_rows": 3,
                "meaning": "a person",
            },
            "rows": {"kind": "approximate", "value": 400},
        },
        "columns": {"weight": {"bins": 100}},
        **SAMPLED,
    }
    tiny.write(frame, **changes).release()
    (joined,) = samples
    weight = list(yaml.safe_load(tiny.spec.read_text())["columns"]).index("weight")
    assert set(np.unique(joined[:, weight], return_counts=True)[1]) == {3}
    assert verify_bundle(tiny.bundle).ok
