"""What `verify` says of noisy sums: they have the noise that was paid for, no less and no more."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from synthdp.bundle import tables_json
from synthdp.data import Domain
from synthdp.inference.estimands import estimands_json, stated_sums
from synthdp.model import chosen_contrast, contrast_name, plan_for
from synthdp.privacy import calibration
from synthdp.privacy.noise import Streams
from synthdp.privacy.plan import ReleasePlan
from synthdp.spec.model import ReleaseSpec
from synthdp.verify import Reader
from synthdp.verify.rewritten import check_estimands
from tests.builders import build_spec, skeleton
from tests.privacy.conftest import make_table

COLUMNS = {
    "sex": {"type": "categorical", "categories": ["f", "m"]},
    "old": {"type": "boolean"},
    "visits": {"type": "integer", "lower": 0, "upper": 30, "bins": 6},
}
ASKED = [
    {"kind": "question", "ask": "mean(visits) by old"},
    {"kind": "table", "columns": ["sex", "old"]},
    {"kind": "regression", "outcome": "visits", "terms": ["old", "sex"]},
    {"kind": "effect", "treated": "old", "outcome": "visits", "adjust": ["sex"]},
]
UNITS: dict[str, dict[str, Any]] = {
    "row": {"kind": "row", "meaning": "one person"},
    "id": {"kind": "id", "column": "who", "max_rows": 3, "meaning": "one person"},
}


class Bundle:
    """The files that tell of estimands, with what the ledger charged for them."""

    def __init__(self, folder: Path, unit: str) -> None:
        self.spec: ReleaseSpec = build_spec(
            COLUMNS,
            dataset=skeleton(privacy_unit=UNITS[unit])["dataset"],
            estimands=ASKED,
            privacy={
                "epsilon": 2.0,
                "delta": 1e-6,
                "shares": {"measure": 0.2, "train": 0.1, "estimands": 0.6, "moments": 0.1},
            },
        )
        self.domain, self.folder = Domain.from_spec(self.spec.columns), folder
        plan, streams = self._plan(), Streams.fresh()
        rng = np.random.default_rng(3)
        codes = np.column_stack([rng.integers(0, size, 900) for size in self.domain.sizes])
        table = make_table(self.domain, codes)
        assert plan.moments is not None
        planned: dict[str, Any] = {**plan.estimands, "moments": plan.moments}
        budget: Any = planned.pop(contrast_name("4"))
        made: dict[str, Any] = {name: m.run(table, streams) for name, m in planned.items()}
        contrast = chosen_contrast(budget, made["4"]).run(table, streams)
        made["4"] = replace(made["4"], contrast=contrast)
        self.tables: list[Any] = list(made.pop("2"))
        self.stated: dict[str, Any] = json.loads(
            json.dumps(estimands_json(self.spec, self.domain, made))
        )
        self.charges: list[Any] = [
            SimpleNamespace(kind="charge", body=dict(spend)) for spend in plan.stated_spends
        ]

    def _plan(self) -> ReleasePlan:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(calibration, "_calibrate", lambda plan_at: plan_at(1.0))
            return plan_for(self.spec, self.domain)

    def again(self) -> None:
        """Make the figures that follow from the sums."""
        sums = stated_sums(self.stated, self.spec, self.domain)
        self.stated.update(json.loads(json.dumps(estimands_json(self.spec, self.domain, sums))))

    def problems(self) -> str:
        (self.folder / "estimands.json").write_text(json.dumps(self.stated))
        (self.folder / "marginals.json").write_text(json.dumps(tables_json(self.tables)))
        reader = Reader(self.folder, parsed=self.spec, entries=self.charges)
        return "\n".join(check_estimands(reader))


@pytest.fixture(params=UNITS)
def bundle(tmp_path: Path, request: pytest.FixtureRequest) -> Bundle:
    return Bundle(tmp_path, request.param)


def test_what_was_paid_for_has_no_problems(bundle: Bundle) -> None:
    assert bundle.problems() == ""


@pytest.mark.parametrize("name", ["1", "3", "moments"])
@pytest.mark.parametrize("times", [0.5, 1 / 3, 1.001, 2.0, 3.0])
def test_other_noise_than_was_paid_for(bundle: Bundle, name: str, times: float) -> None:
    """Of more, intervals would be wider than they are; of less, narrower."""
    bundle.stated["sums"][name]["sigma"] *= times
    bundle.again()
    (said,) = bundle.problems().splitlines()
    told = name if name == "moments" else f"estimand {name}"
    assert f"{told} states noise of" in said and "which is not paid" in said


@pytest.mark.parametrize("times", [0.5, 1.001, 2.0])
def test_a_contrast_of_other_noise_or_off_its_lattice(bundle: Bundle, times: float) -> None:
    bundle.stated["sums"]["4"]["contrast"]["sigma"] *= times
    bundle.again()
    (said,) = bundle.problems().splitlines()
    assert "estimand 4, contrast states noise of" in said and "which is not paid" in said
    bundle.stated["sums"]["4"]["contrast"]["sums"][0] += 1e-3
    bundle.again()
    assert "sums of estimand 4 are none that their noise is rounded to" in bundle.problems()
    del bundle.stated["sums"]["4"]["contrast"]
    with pytest.raises(KeyError, match="contrast"):
        bundle.again()


@pytest.mark.parametrize("times", [0.5, 2.0])
def test_a_table_of_other_noise_than_was_paid_for(bundle: Bundle, times: float) -> None:
    (table,) = bundle.tables
    bundle.tables = [replace(table, sigma=table.sigma * times)]
    assert "marginals.json: has no table of sex, old, of 'estimand: 2'" in bundle.problems()


CHANGES: dict[str, tuple[Callable[[Bundle], object], str]] = {
    "a charge more": (lambda b: b.charges.append(b.charges[-1]), "not one"),
    "a charge that is gone": (
        lambda b: [b.charges.remove(c) for c in b.charges if c.body["purpose"] == "estimand: 1"],
        "0 charges of the ledger are for 'estimand: 1'",
    ),
    "moments that are not charged": (
        lambda b: [b.charges.remove(c) for c in b.charges if c.body["purpose"] == "moments"],
        "its share of moments and the charges of the ledger do not agree",
    ),
    "another figure": (
        lambda b: b.stated["estimands"][0]["figures"][0].update(estimate=1.0),
        "its figures do not follow from its sums",
    ),
    "sums between those that noise is rounded to": (
        lambda b: (b.stated["sums"]["3"]["products"].__setitem__(0, 1.0001), b.again()),
        "sums of estimand 3 are none that their noise is rounded to",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_other_changes_of_sums_and_charges(tmp_path: Path, change: str) -> None:
    bundle = Bundle(tmp_path, "row")
    spoil, problem = CHANGES[change]
    bundle.charges.sort(key=lambda c: c.body["purpose"] == "estimand: 3")
    spoil(bundle)
    assert problem in bundle.problems()
