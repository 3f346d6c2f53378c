"""Small networks with random weights: what the tests of the model start from."""

from collections.abc import Sequence

import numpy as np
import torch

from synthdp.model import CausalVae, Synthesizer, arrays
from synthdp.model.ancestral import Architecture


def quiet(done: int, total: int) -> None:
    """A progress that nobody looks at."""


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_network(
    sizes: Sequence[int],
    parents: Sequence[tuple[int, ...]],
    latent_of: Sequence[tuple[int, ...]],
    *,
    hidden: int = 8,
    spread: float = 0.7,
    direct: bool = False,
) -> CausalVae:
    shape = Architecture(tuple(sizes), tuple(parents), tuple(latent_of), hidden, direct)
    vae = CausalVae(shape, generator=generator(1))
    with torch.no_grad():
        for i, p in enumerate(vae.parameters()):
            p.normal_(0, spread, generator=generator(i))
        if direct:
            vae.get_buffer("direct").normal_(0, spread, generator=generator(99))
    return vae


def synthesizer_of(vae: CausalVae, names: Sequence[str]) -> Synthesizer:
    return Synthesizer(tuple(names), vae.architecture, arrays(vae.state_dict()))


def shares(codes: np.ndarray, column: int, levels: int) -> np.ndarray:
    """Of each level of a column."""
    return np.bincount(codes[:, column], minlength=levels) / len(codes)
