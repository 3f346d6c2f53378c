"""Features of levels: what order says, and nothing where there is none."""

import numpy as np
import pytest

from synthdp.data import Domain, level_features
from synthdp.spec.model import Boolean, Categorical, Integer, Ordinal

COLUMNS = {
    "colour": Categorical(type="categorical", categories=("r", "g", "b")),
    "flag": Boolean(type="boolean"),
    "age": Integer(type="integer", lower=0, upper=79, bins=8, missing=True),
    "gain": Integer(type="integer", lower=0, upper=99, spikes=(0,), bins=5),
    "long": Ordinal(type="ordinal", categories=tuple(str(i) for i in range(256 + 1))),
    "one": Integer(type="integer", lower=0, upper=3, bins=1),
}
DOMAIN = Domain.from_spec(COLUMNS)


@pytest.mark.parametrize("name", COLUMNS)
def test_levels_have_features_of_their_own_of_norm_one(name: str) -> None:
    features = level_features(DOMAIN[name])
    assert features.shape[0] == DOMAIN[name].levels and (features >= 0).all()
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1)
    if features.shape[0] <= 256:
        assert (
            np.linalg.matrix_rank(features) == features.shape[0]
        )  # nothing that could be learned is lost


@pytest.mark.parametrize("name", ["colour", "flag", "long", "one"])
def test_levels_without_a_usable_order_stand_alone(name: str) -> None:
    assert np.array_equal(level_features(DOMAIN[name]), np.eye(DOMAIN[name].levels))


def test_near_levels_are_alike_and_missing_is_like_none() -> None:
    features = level_features(DOMAIN["age"])
    alike = features @ features.T
    np.testing.assert_allclose(alike[0, :8], [1, 2 / 3, 1 / 3, 1 / 3, 0, 0, 0, 0], atol=1e-12)
    assert alike[8, :8].max() == 0 and alike[8, 8] == 1


def test_a_spike_stands_apart_from_bins_which_are_all_alike_a_little() -> None:
    alike = level_features(DOMAIN["gain"]) @ level_features(DOMAIN["gain"]).T
    assert alike[0, 1:].max() == 0 and alike[1:, 1:].min() > 0.2
