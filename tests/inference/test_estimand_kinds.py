"""Each kind of estimand that a spec can name is known to every room that serves estimands."""

from typing import get_args

from synthdp.inference.estimands import ESTIMAND_KINDS
from synthdp.model import ESTIMAND_SUMS
from synthdp.spec.model import Estimand


def test_each_kind_is_measured_and_told() -> None:
    models = get_args(get_args(Estimand)[0])
    kinds = {get_args(model.model_fields["kind"].annotation)[0] for model in models}
    assert kinds == ESTIMAND_SUMS.keys() == ESTIMAND_KINDS.keys()
