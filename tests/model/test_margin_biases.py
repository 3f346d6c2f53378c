"""Calibrated biases: the model's own margins become the released ones, and its dependence stays."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from synthdp.model.architecture import Architecture
from synthdp.model.network import CausalVae
from synthdp.model.synthesizer import Synthesizer, arrays

SIZES, PARENTS = (3, 4, 2), ((), (0,), (0, 1))
TARGETS = [
    np.asarray([0.6, 0.3, 0.1]),
    np.asarray([0.0, 0.5, 0.499, 0.001]),
    np.asarray([0.85, 0.15]),
]
ROWS = 60_000


def trained() -> Synthesizer:
    vae = CausalVae(
        Architecture(SIZES, PARENTS, ((0, 1, 2),), hidden=6),
        generator=torch.Generator().manual_seed(1),
    )
    with torch.no_grad():
        for i, p in enumerate(vae.parameters()):
            p.normal_(0, 1, generator=torch.Generator().manual_seed(i))
    return Synthesizer(
        ("a", "b", "c"),
        vae.architecture,
        arrays(vae.state_dict()),
    )


def margins(synthesizer: Synthesizer) -> list[np.ndarray]:
    codes = synthesizer.sample(ROWS, rng=np.random.default_rng(1))
    return [np.bincount(codes[:, i], minlength=s) / ROWS for i, s in enumerate(SIZES)]


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
    moved = {
        name
        for name, weight in after.weights.items()
        if not np.array_equal(weight, before.weights[name])
    }
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
