"""Shares of blocks in drawn laws, on tables that mode predict chose and grouped by its noise."""

import numpy as np
import pytest
from scipy.stats import t

from benchmarks.inference import HOLDOUT, Setting
from benchmarks.inference_models import MODELS, levels, spec_of
from synthdp.data import Domain
from synthdp.graph.level_groups import groups_of
from synthdp.inference import LeastSquares, Posterior, measured
from tests.chance import seeded

pytestmark = pytest.mark.slow

M, RELEASES = 20, 40


@pytest.mark.parametrize("rows", [2_000, 20_000])
@pytest.mark.parametrize("model", list(MODELS))
def test_blocks_of_pairs_are_held(model: str, rows: int) -> None:
    """All pairs of five columns at epsilon 1; the shares of the drawn laws, without rows' noise."""
    draw = MODELS[model].draw
    spec = spec_of(model, "predict", rows=rows, epsilon=1.0, holdout=HOLDOUT)
    domain = Domain.from_spec(spec.columns)
    population = levels(domain, draw(np.random.default_rng(99), 400_000, None))
    setting = Setting.of(spec)
    pairs, hits, count, refused = 0, 0, 0, 0
    with seeded(f"{model} {rows}"):
        for release in range(RELEASES):
            rng = np.random.default_rng([release, rows])
            tables = setting.tables(levels(domain, draw(rng, rows, None)))
            found = groups_of(tables, domain).of(population)
            posterior = Posterior(
                LeastSquares(measured(tables, domain, domain.names, grouped=True))
            )
            tries = [posterior.drawn(rng) for _ in range(2 * M)]
            laws = [drawn for drawn in tries if drawn is not None][:M]
            refused += sum(drawn is None for drawn in tries)
            for blocks in posterior.blocks.values():
                if len(blocks.groups) == 1:
                    continue
                pairs += 1
                sizes = [*blocks.sizes.values()]
                places = [labels[found[:, axis]] for axis, labels in blocks.groups.items()]
                label = np.ravel_multi_index(places, sizes)
                truth = np.bincount(label, minlength=blocks.count) / len(label)
                shares = np.stack([blocks.sums_of(drawn) for drawn in laws])
                half = t.ppf(0.975, M - 1) * np.sqrt((1 + 1 / M) * shares.var(axis=0, ddof=1))
                hits += int((np.abs(shares.mean(axis=0) - truth) <= half).sum())
                count += blocks.count
    print(
        f"{model} {rows}: {hits / count:.3f} of {count}, {pairs / RELEASES:.1f} pairs,"
        f" {refused} of {2 * M * RELEASES} draws refused"
    )
    assert 0.93 < hits / count < 0.975
    assert refused < 0.05 * 2 * M * RELEASES
