"""Calibrated biases: the model's own margins become the released ones, and its dependence stays."""

import numpy as np
import pytest
import torch

from synthdp.model import CausalVae, Synthesizer
from tests.model.conftest import random_network, shares, synthesizer_of

SIZES, PARENTS = (3, 4, 2), ((), (0,), (0, 1))
TARGETS = [
    np.asarray([0.6, 0.3, 0.1]),
    np.asarray([0.0, 0.5, 0.499, 0.001]),
    np.asarray([0.85, 0.15]),
]
ROWS = 60_000


def trained() -> Synthesizer:
    vae = random_network(SIZES, PARENTS, ((0, 1, 2),), hidden=6, spread=1.0)
    return synthesizer_of(vae, "abc")


def margins(synthesizer: Synthesizer) -> list[np.ndarray]:
    codes = synthesizer.sample(ROWS, rng=np.random.default_rng(1))
    return [shares(codes, i, s) for i, s in enumerate(SIZES)]


def worst(synthesizer: Synthesizer) -> float:
    return max(
        float(np.abs(m - t).sum()) / 2 for m, t in zip(margins(synthesizer), TARGETS, strict=True)
    )


def test_margins_become_the_targets() -> None:
    before = trained()
    after = before.calibrated(TARGETS, rows=ROWS, rng=np.random.default_rng(2))
    assert worst(before) > 0.1 and worst(after) < 0.008
    assert margins(after)[1][0] == 0  # a level that the tables rule out is not drawn
    assert all(np.isfinite(w).all() for w in after.weights.values())


def test_nothing_but_biases_moves() -> None:
    before = trained()
    after = before.calibrated(TARGETS, rows=4096, rng=np.random.default_rng(2))
    known = before.weights
    moved = {n for n, weight in after.weights.items() if not np.array_equal(weight, known[n])}
    assert moved == {"decode_levels.bias"}


def test_odds_ratios_given_the_parents_stay() -> None:
    """Biases shift log odds by the same amount for every parent."""
    before, z, codes = trained(), torch.zeros(2, 1), torch.tensor([[0, 1, 0], [2, 3, 0]])
    after = before.calibrated(TARGETS, rows=4096, rng=np.random.default_rng(2))
    ratios = []
    for made in (before, after):
        vae = CausalVae(made.architecture, generator=torch.Generator().manual_seed(0))
        vae.load_state_dict({k: torch.from_numpy(v) for k, v in made.weights.items()})
        odds = vae.column_logits(2, codes, z).detach()
        odds = odds[:, 1] - odds[:, 0]
        ratios.append(float(odds[1] - odds[0]))
    assert ratios[0] == pytest.approx(ratios[1], abs=1e-4)
