"""Each kind of estimand that a spec can name is known to every room that serves estimands."""

from pathlib import Path
from typing import get_args

from synthdp.inference.estimands import ESTIMAND_KINDS
from synthdp.model import ESTIMAND_SUMS
from synthdp.spec.model import Estimand

ROOT = Path(__file__).parents[2] / "synthdp"


def test_each_kind_is_measured_and_told() -> None:
    models = get_args(get_args(Estimand)[0])
    kinds = {get_args(model.model_fields["kind"].annotation)[0] for model in models}
    assert kinds == ESTIMAND_SUMS.keys() == ESTIMAND_KINDS.keys()


def test_nothing_asks_an_estimand_for_its_class() -> None:
    asking = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in ROOT.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if "isinstance(" in line and "Estimand" in line
    ]
    assert asking == []
