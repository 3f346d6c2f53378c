"""`estimands.json`: what the spec's estimands were found to be, with the noisy sums behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from synthdp.privacy.mechanisms.product_sums import (
    NoisyProducts,
    ProductSums,
    SumMechanism,
    Sums,
)

ESTIMANDS = "estimands.json"


def sums_json(sums: Mapping[str, Sums]) -> dict[str, Any]:
    """Noisy sums by estimand, as JSON: arrays flattened in C order."""
    return {name: _plain(value) for name, value in sums.items()}


def _plain(value: Sums) -> dict[str, Any]:
    if isinstance(value, NoisyProducts):
        return {"sigma": value.sigma, "products": value.sums.tolist()}
    return {
        "sigma": value.sigma,
        "shape": list(value.counts.shape),
        "counts": value.counts.ravel().tolist(),
        "sums": value.sums.ravel().tolist(),
        "squares": value.squares.ravel().tolist(),
    }


def sums_from_json(stated: Mapping[str, Any], mechanism: SumMechanism) -> Sums:
    """The sums that `sums_json` stated, for the mechanism that made them.

    Raises:
        ValueError, KeyError, TypeError: they are not finite, or of other strata.
    """
    if isinstance(mechanism, ProductSums):
        arrays = {"sums": np.asarray(stated["products"], dtype=np.float64)}
    else:
        empty = (0, *mechanism.shape[1:])
        arrays = {
            name: np.asarray(stated[name], dtype=np.float64).reshape(
                mechanism.shape if name == "counts" or mechanism.number else empty
            )
            for name in ("counts", "sums", "squares")
        }
    if not all(np.isfinite(part).all() for part in arrays.values()):
        raise ValueError("sums that are not finite")
    return mechanism.unpack(arrays)
