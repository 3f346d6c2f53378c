"""Chances of a column given all others of a row, against the model's whole law."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch

from synthdp.model import ancestral
from synthdp.model.architecture import Architecture
from synthdp.model.network import CausalVae
from synthdp.model.synthesizer import Synthesizer, arrays

SIZES, PARENTS = (2, 3, 2, 5, 1), ((2,), (0, 2), (), (0, 1, 2), (3,))
NAMES = ("a", "b", "c", "d", "e")  # c -> a -> b -> d, and e has one level
CELLS = np.stack(np.unravel_index(np.arange(int(np.prod(SIZES))), SIZES), 1).astype(np.uint16)


def model(latent_of: tuple[tuple[int, ...], ...], *, direct: bool = False) -> CausalVae:
    vae = CausalVae(
        Architecture(SIZES, PARENTS, latent_of, hidden=8, direct=direct),
        generator=torch.Generator().manual_seed(1),
    )
    with torch.no_grad():
        for i, p in enumerate(vae.parameters()):
            p.normal_(0, 0.7, generator=torch.Generator().manual_seed(i))
        if direct:
            table = vae.get_buffer("direct")
            table.normal_(0, 0.7, generator=torch.Generator().manual_seed(99))
    return vae


@torch.no_grad()
def law(vae: CausalVae) -> npt.NDArray[np.float64]:
    """Probability of every cell, z summed out over many draws."""
    z = torch.randn(
        20_000, len(vae.architecture.latent_of), generator=torch.Generator().manual_seed(2)
    )
    found = []
    for cell in CELLS.astype(np.int64):
        codes = torch.from_numpy(cell).expand(len(z), -1)
        said = [
            vae.column_logits(c, codes, z).log_softmax(1)[:, cell[c]] for c in range(len(SIZES))
        ]
        found.append(float(torch.stack(said).sum(0).exp().mean()))
    return np.array(found).reshape(SIZES)


@pytest.mark.check
@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize(
    ("points", "off"), [(32, 0.1), pytest.param(4096, 0.01, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    "latent_of", [((0, 1, 3),) * 2, ((0,), (3,)), ((0,),)], ids=["all", "each its own", "a alone"]
)
def test_chances_are_those_of_the_whole_law(
    latent_of: tuple[tuple[int, ...], ...],
    points: int,
    off: float,
    direct: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ancestral, "SETTINGS", ancestral.AncestralSettings(points=points))
    vae = model(latent_of, direct=direct)
    joint = law(vae)
    synthesizer = Synthesizer(NAMES, vae.architecture, arrays(vae.state_dict()))
    for column, probabilities in enumerate(
        synthesizer.probabilities(CELLS, range(4), rng=np.random.default_rng(3))
    ):
        wanted = np.moveaxis(
            joint / joint.sum(column, keepdims=True), column, -1
        )  # [other columns, levels]
        others = np.delete(CELLS, column, axis=1)
        np.testing.assert_allclose(probabilities, wanted[tuple(others.T)], atol=off)


def test_what_was_drawn_again_counts_for_the_next_column() -> None:
    vae = model(((0, 1, 3),))
    synthesizer = Synthesizer(NAMES, vae.architecture, arrays(vae.state_dict()))
    codes = CELLS.copy()
    each = synthesizer.probabilities(codes, [0, 1], rng=np.random.default_rng(4))
    next(each)
    codes[:, 0] = 1
    changed = CELLS.copy()
    changed[:, 0] = 1
    (wanted,) = synthesizer.probabilities(changed, [1], rng=np.random.default_rng(4))
    np.testing.assert_allclose(next(each), wanted, atol=0.06)
