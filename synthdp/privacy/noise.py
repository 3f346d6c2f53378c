"""Noise and private coins. No seed exists: every key comes from the operating system, and no key of noise is stored.

(A run keeps the key of its holdout coins in its private folder until it ends, so that a resumed run holds out the same rows.)

Three independent Philox streams per run, each keyed with 128 fresh bits: Gaussian `noise`, Poisson `sampling`
of batches, and the `holdout` coins. Noise on planned tables is the discrete Gaussian of OpenDP, an exact integer
sampler [Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy", arXiv:2004.00010v4,
Algorithm 3] that draws from the operating system itself and never rounds a real number.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt


def fresh_generator() -> np.random.Generator:
    """A generator keyed with 128 bits from the operating system."""
    return np.random.Generator(np.random.Philox(key=secrets.randbits(128)))


@dataclass(frozen=True)
class Streams:
    """The private randomness of one run."""

    noise: np.random.Generator
    sampling: np.random.Generator
    holdout: np.random.Generator

    @classmethod
    def fresh(cls) -> Streams:
        """Three streams that share nothing."""
        return cls(fresh_generator(), fresh_generator(), fresh_generator())

    def __repr__(self) -> str:
        return "<Streams>"


def discrete_gaussian(counts: npt.NDArray[np.int64], *, sigma: float) -> npt.NDArray[np.int64]:
    """`counts` plus independent discrete Gaussian noise of parameter `sigma`, same shape, whole numbers."""
    noisy = _gaussian_measurement(sigma)(counts.ravel().tolist())
    return np.asarray(noisy, dtype=np.int64).reshape(counts.shape)


def rounded_gaussian(counts: npt.NDArray[np.int64], *, sigma: float, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """`counts` plus independent Gaussian noise of standard deviation `sigma` rounded to whole numbers, same shape."""
    if not (sigma > 0 and np.isfinite(sigma)):
        raise ValueError(f"sigma must be positive and finite, got {sigma}")
    noisy: npt.NDArray[np.int64] = counts + np.rint(sigma * rng.standard_normal(counts.shape)).astype(np.int64)
    return noisy


@cache
def _gaussian_measurement(sigma: float) -> Any:
    import opendp.prelude as dp  # 1.7 s of CPU: only when noise is really drawn

    if not (sigma > 0 and np.isfinite(sigma)):
        raise ValueError(f"sigma must be positive and finite, got {sigma}")
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    return dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=sigma)
