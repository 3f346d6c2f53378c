"""Features of a column's levels, which are public, as layers take them: what the proofs of `layers`
and `clipped_layer` ask of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from synthdp.errors import BoundaryError
from synthdp.privacy.dpsgd.settings import MAX_STRETCH

MAX_LEVELS = 1024  # of a column with features
MIN_KEPT = 0.25  # of the norm of an output's gradient, by the features of a node
Features = Sequence[
    Tensor
]  # for each column one vector per level, `[levels, features]`; see `data.features`


def check_features(features: Features) -> None:
    """Refuse features that the proofs do not hold for.

    A matrix of numbers of at least 0 stretches by at most the root of the largest row sum of its
    product with its transpose.
    """
    for own in features:
        if len(own) > MAX_LEVELS:
            raise BoundaryError(f"features are for at most {MAX_LEVELS} levels")
        if not bool((own >= 0).all()) or not float(own.square().sum(1).max()) <= 1 + 1e-6:
            raise BoundaryError(
                "features of a level must be numbers of at least 0, of norm at most 1"
            )
        if float((own @ own.sum(0)).max()) > MAX_STRETCH**2:
            raise BoundaryError(f"features stretch a gradient by more than {MAX_STRETCH}")


def check_kept(features: Features) -> None:
    """Refuse features that may cancel: they keep at least `MIN_KEPT` of any gradient's norm."""
    for own in features:
        kept = float(torch.linalg.eigvalsh((own @ own.T).double())[0])
        if not kept >= MIN_KEPT**2:
            raise BoundaryError(f"features keep less than {MIN_KEPT:g} of a gradient")


def block_diagonal(features: Features) -> Tensor:
    """All features as one sparse matrix `[rows, features]`."""
    check_features(features)
    places, values, row, column = [], [], 0, 0
    for own in features:
        places.append(own.nonzero().T + torch.tensor([[row], [column]]))
        values.append(own[own != 0])
        row, column = row + own.shape[0], column + own.shape[1]
    return torch.sparse_coo_tensor(
        torch.cat(places, 1), torch.cat(values), (row, column), check_invariants=False
    ).coalesce()
