"""Sampled benchmark networks and a measurer with simulated noise."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from benchmarks.bif import BayesianNetwork, read_bif
from synthdp.data import Domain
from synthdp.graph.discovery.measured_pc import Measure
from synthdp.privacy.mechanisms.marginals import NoisyTable

Measurer = Callable[..., Measure]


def zcdp_rho(epsilon: float, delta: float) -> float:
    """zCDP budget of which (epsilon, delta) follows: epsilon = rho + 2 sqrt(rho ln(1 / delta)) (Bun
    and Steinke 2016).
    """
    log = np.log(1 / delta)
    return float((np.sqrt(log + epsilon) - np.sqrt(log)) ** 2)


@pytest.fixture(scope="session")
def network() -> Callable[[str], BayesianNetwork]:
    def read(name: str) -> BayesianNetwork:
        return read_bif(Path(__file__).parent / "data" / f"{name}.bif")

    return read


@pytest.fixture(scope="session")
def measurer() -> Measurer:
    """Measure with rounded Gaussian noise: k tables of a round with share s get variance k / (s
    rho) (replace-one).
    """

    def make(
        codes: np.ndarray,
        domain: Domain,
        *,
        shares: Mapping[str, float],
        epsilon: float,
        rng: np.random.Generator,
    ) -> Measure:
        rho = zcdp_rho(epsilon, 1e-3)

        def measure(round_: str, tables: Sequence[tuple[str, ...]]) -> tuple[NoisyTable, ...]:
            sigma = float(np.sqrt(len(tables) / (shares[round_] * rho)))
            return tuple(_table(codes, domain, columns, sigma, rng) for columns in tables)

        return measure

    return make


def _table(
    codes: np.ndarray,
    domain: Domain,
    columns: tuple[str, ...],
    sigma: float,
    rng: np.random.Generator,
) -> NoisyTable:
    sizes = [domain[n].levels for n in columns]
    cell = np.ravel_multi_index(
        [codes[:, domain.index(n)].astype(np.int64) for n in columns], sizes
    )
    counts = np.bincount(cell, minlength=int(np.prod(sizes))).reshape(sizes).astype(np.float64)
    return NoisyTable(columns, counts + np.rint(rng.normal(0, sigma, sizes)), sigma)
