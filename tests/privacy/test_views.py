"""Tables with weights, and mechanisms on views: noise as it is charged."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from synthdp.data import Domain, LevelGroups
from synthdp.errors import BoundaryError
from synthdp.privacy import OnView, RoundedGaussianDpEvent, as_view
from synthdp.privacy.mechanisms.marginals import AdaptiveMarginals, NoisyMarginals
from synthdp.privacy.noise import Streams
from synthdp.privacy.table import Table

MakeDomain = Callable[..., Domain]
WEIGHTS = (1.0, 3.0, 2.0)


def measured(tables: tuple[object, ...]) -> list[float]:
    return [float(np.std(t.counts)) for t in tables]  # type: ignore[attr-defined]


def test_tables_with_weights_cost_what_one_does(
    domain_of: MakeDomain, table_of: Callable[..., Table]
) -> None:
    """Over its noise a row moves all tables together by one over the budget's noise, no more."""
    domain = domain_of(4000)
    budget = AdaptiveMarginals(domain, 10.0)
    chosen = budget.choose([("a",)] * 3, None, WEIGHTS)
    assert chosen.event(2) == budget.event(2)
    moved = math.sqrt(math.fsum(1 / sigma**2 for sigma in chosen.sigmas))
    assert moved == pytest.approx(1 / 10.0)
    assert [s * w for s, w in zip(chosen.sigmas, WEIGHTS, strict=True)] == pytest.approx(
        [10 * math.sqrt(14)] * 3
    )
    tables = chosen.run(table_of(domain, np.zeros((0, 1), np.uint16)), Streams.fresh())
    for found, sigma in zip(measured(tables), chosen.sigmas, strict=True):
        assert 0.85 < found / sigma < 1.15
    kept = budget.choose([("a",)]).unpack(chosen.pack(tables))
    assert [t.sigma for t in kept] == [t.sigma for t in tables]


@pytest.mark.parametrize("weights", [(1.0,), (1.0, 0.0), (1.0, -1.0), (1.0, 1.0, 1.0)])
def test_each_table_has_a_positive_weight(
    weights: tuple[float, ...], domain_of: MakeDomain
) -> None:
    with pytest.raises(ValueError):
        AdaptiveMarginals(domain_of(3), 1.0).choose([("a",)] * 2, None, weights)


def test_a_view_has_the_event_of_so_many_rows_and_the_noise_that_it_names(
    domain_of: MakeDomain, table_of: Callable[..., Table]
) -> None:
    domain = domain_of(4000)
    budget = OnView(AdaptiveMarginals(domain, 33.0), "steps", 11)
    assert budget.event(1) == RoundedGaussianDpEvent(33.0, 11)
    assert budget.event(2) == RoundedGaussianDpEvent(33.0, 22)
    assert budget.scaled(2.0).event(1) == RoundedGaussianDpEvent(66.0, 11)
    chosen = budget.choose([("a",), ("a",)], LevelGroups(domain, {}), (1.0, 2.0))
    empty = as_view(table_of(domain, np.zeros((0, 1), np.uint16)), "steps")
    for found, sigma in zip(
        measured(chosen.run(empty, Streams.fresh())), chosen.chosen.sigmas, strict=True
    ):
        assert 0.85 < found / sigma < 1.15
    fixed = OnView(NoisyMarginals(domain, (("a",),), 7.0), "steps", 11).for_unit(1)
    assert fixed.inner.sampler == "rounded" and fixed.event(1) == fixed.inner.event(11)
    (noisy,) = fixed.run(empty, Streams.fresh())
    assert 0.85 < float(np.std(noisy.counts)) / 7.0 < 1.15
    assert OnView(NoisyMarginals(domain, (("a",),), 7.0), "persons", 1).for_unit(
        1
    ).inner.sampler == ("discrete")


def test_a_mechanism_counts_the_rows_of_its_own_view(
    domain_of: MakeDomain, table_of: Callable[..., Table]
) -> None:
    domain = domain_of(3)
    codes = np.array([[0], [2], [2]], np.uint16)
    table = as_view(table_of(domain, codes), "steps")
    quiet = OnView(NoisyMarginals(domain, (("a",),), 1e-9, sampler="rounded"), "steps", 2)
    (noisy,) = quiet.run(table, Streams.fresh())
    assert noisy.counts.tolist() == [1, 0, 2]
    for wrong in (table, table_of(domain, codes)):
        with pytest.raises(BoundaryError):
            replace(quiet, view="persons").run(wrong, Streams.fresh())
