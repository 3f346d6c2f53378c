"""What the tests of the attacks share: forests of fewer trees, which is most of what an attack on
few models costs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from synthdp_attacks.membership import CLASSIFIERS

sys.path.insert(
    0, str(Path(__file__).parent)
)  # test files are imported by path; what they share lies beside them


@pytest.fixture(autouse=True)
def small_forests(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty trees instead of two hundred; the slow tests, which measure power and false alarms,
    grow them all.
    """
    grow = CLASSIFIERS["random_forest"]
    if "slow" not in request.keywords:
        monkeypatch.setitem(
            CLASSIFIERS, "random_forest", lambda seed: grow(seed).set_params(n_estimators=40)
        )
