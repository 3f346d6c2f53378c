"""What the tests of the audits start from: a domain with every kind of column."""

from typing import Any

import dp_accounting
import pytest

from synthdp.audit.mechanisms.canaries import CurveClaim
from synthdp.data import ColumnDomain, Domain
from synthdp.privacy.dpsgd import layers

RANGE: Any = {"spikes": (0.0,), "edges": (-5.0, 0.0), "stop": 5.0, "lower": -5.0, "upper": 5.0}
RANGE["decimals"] = 1


def make_domain() -> Domain:
    return Domain(
        (
            ColumnDomain("a", "categorical", ("v0", "v1", "v2", "v3"), False),
            ColumnDomain("b", "boolean", ("false", "true"), False),
            ColumnDomain("c", "ordinal", ("low", "high", "missing"), True),
            ColumnDomain("n", "number", ("0", "[-5, 0)", "[0, 5]", "missing"), True, **RANGE),
            ColumnDomain("one", "categorical", ("only",), False),
        )
    )


@pytest.fixture(scope="session")
def domain() -> Domain:
    return make_domain()


def gaussian_claim(mu: float) -> CurveClaim:
    event = dp_accounting.GaussianDpEvent(1 / mu)
    return CurveClaim.of([event], delta=1e-5, adjacency="add_remove")


@pytest.fixture
def half_norms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Norms of half their size: twice the clip."""
    norms = layers.NodeLinear.norms

    def half(self: Any, a: Any, g: Any) -> Any:
        return {p: n / 2 for p, n in norms(self, a, g).items()}

    monkeypatch.setattr(layers.NodeLinear, "norms", half)
