"""Rows follow counts and means by stratum that were paid for, and not the noise of them."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from synthdp.data import Codes, Domain
from synthdp.graph import GraphResult
from synthdp.model import Placed, sampling, strata_to_follow, untrained
from synthdp.model.ancestral import Architecture
from synthdp.model.fit import Fitted
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.mechanisms.sums import NoisySums, Sums
from synthdp.privacy.private import _KERNEL_KEY, Receipt, Released
from synthdp.spec.model import ReleaseSpec
from tests.builders import build_spec

ROWS = 4000
COLUMNS: dict[str, Any] = {
    "sex": {"type": "categorical", "categories": ["female", "male"]},
    "grade": {"type": "ordinal", "categories": ["low", "middle", "high"]},
    "visits": {"type": "integer", "lower": 0, "upper": 9, "bins": 10},
}
ASKED = [
    {"kind": "question", "ask": "mean(visits) where grade >= 'middle' by sex"},
    {"kind": "question", "ask": "share(visits > 4) by sex"},
]


def spec_of(**sampling_: Any) -> ReleaseSpec:
    shares = {"measure": 0.5, "train": 0, "estimands": 0.5}
    return build_spec(
        COLUMNS,
        rows=ROWS,
        privacy={"epsilon": 1.0, "delta": 1e-5, "shares": shares},
        graph={"mode": "predict"},
        estimands=ASKED,
        sampling={"rows": ROWS, "oversample": 4, **sampling_},
    )


def true_rows() -> Codes:
    """Visits depend on sex, which the model does not know."""
    rng = np.random.default_rng(0)
    sex, grade = rng.integers(0, 2, ROWS), rng.integers(0, 3, ROWS)
    visits = rng.binomial(9, np.where(sex == 1, 0.65, 0.35))
    return np.column_stack([sex, grade, visits]).astype(np.uint16)


def measured(spec: ReleaseSpec, codes: Codes, sigma: float) -> dict[str, Sums]:
    """The sums of the estimands over some rows, which state noise of `sigma` and have none."""
    domain, found = Domain.from_spec(spec.columns), dict[str, Sums]()
    empty = {n: NoisySums(*(np.zeros((2, 2)),) * 3, sigma) for n in ("1", "2")}
    for name, one in zip(("1", "2"), strata_to_follow(spec, domain, empty, ROWS), strict=True):
        placed, shape = one.placed(codes, np.random.default_rng(0)), one.mechanism.shape
        size = int(np.prod(shape))
        counts, sums = (
            np.bincount(placed.strata, placed.numbers**k, size + 1)[:size].reshape(shape)
            for k in (0, 1)
        )
        found[name] = NoisySums(counts, sums, counts, sigma)
    return found


def drawn(spec: ReleaseSpec, sums: dict[str, Sums]) -> Codes:
    """Rows of a model whose columns are independent, with the margins of the true rows."""
    domain, codes = Domain.from_spec(spec.columns), true_rows()
    tables = tuple(
        NoisyTable((c.name,), np.bincount(codes[:, i], minlength=c.levels).astype(float), 1.0)
        for i, c in enumerate(domain.columns)
    )

    def released(value: Any) -> Any:
        return Released(value, frozenset({Receipt("run", "0")}), key=_KERNEL_KEY)

    model = untrained(domain, Architecture(domain.sizes, ((),) * 3, ((0, 1, 2),) * 2, 4))
    graph = cast(GraphResult, SimpleNamespace(tables=None, earlier=()))
    paid = {name: released(value) for name, value in sums.items()}
    fitted = Fitted(released(tables), graph, released(model), paid)
    rng = np.random.default_rng(1)
    return sampling.sample(fitted, spec, rng=rng, progress=lambda *_: None).value


def by_sex(codes: Codes) -> np.ndarray[Any, Any]:
    """Means of visits of grades from the middle on, and shares above four, by sex."""
    sex, grade, visits = codes.T
    means = [visits[(sex == s) & (grade >= 1)].mean() / 9 for s in (0, 1)]
    return np.array([*means, *((visits[sex == s] > 4).mean() for s in (0, 1))])


@pytest.mark.parametrize("even", [[], ["visits"]], ids=["chosen", "drawn again"])
def test_rows_follow_what_was_measured_by_stratum(even: list[str]) -> None:
    spec = spec_of(even=even)
    followed = by_sex(drawn(spec, measured(spec, true_rows(), sigma=5.0)))
    plain = by_sex(drawn(spec, {}))
    assert np.abs(followed - by_sex(true_rows())).max() < 0.04
    assert np.abs(plain - by_sex(true_rows())).max() > 0.12


def test_differences_that_noise_explains_are_not_followed() -> None:
    spec = spec_of()
    loud = by_sex(drawn(spec, measured(spec, true_rows(), sigma=2000.0)))
    assert np.abs(loud - by_sex(drawn(spec, {}))).max() < 0.06


def test_weights_keep_their_total_and_meet_counts_and_means() -> None:
    spec, rng = spec_of(), np.random.default_rng(2)
    sums = measured(spec, true_rows(), sigma=0.01)
    strata = strata_to_follow(spec, Domain.from_spec(spec.columns), sums, ROWS)[0]
    pool = np.column_stack([rng.integers(0, n, 20_000) for n in (2, 3, 10)]).astype(np.uint16)
    placed, weights = strata.placed(pool, rng), rng.random(20_000)
    moved = strata.pull(weights, placed).on(weights)
    assert moved.sum() == pytest.approx(weights.sum())
    counts = np.bincount(placed.strata, moved, 3) * ROWS / moved.sum()
    assert counts[:2] == pytest.approx(strata.sums.counts.ravel(), rel=1e-3)
    totals = np.bincount(placed.strata, moved * placed.numbers, 3) * ROWS / moved.sum()
    assert totals[:2] == pytest.approx(strata.sums.sums.ravel(), abs=ROWS * 1e-3)
    nobody = Placed(np.full(20_000, strata.size), np.zeros(20_000))
    assert strata.pull(weights, nobody).on(weights) == pytest.approx(weights)
