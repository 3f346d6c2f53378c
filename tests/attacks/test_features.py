"""Extractors against values by hand and brute force; target selection; classifiers as one
family.
"""

from itertools import combinations

import numpy as np
import pytest
from scipy.stats.contingency import association

from synthdp_attacks import (
    CLASSIFIERS,
    EXTRACTORS,
    QUERIES,
    AttackError,
    Public,
    column_subsets,
    declared_targets,
    feature_matrix,
    held_out_scores,
    isolated_targets,
    isolation,
    random_targets,
    rarity,
    scores_after_fit,
)

PUBLIC = Public((2, 3))
SYNTHETIC = np.array([[0, 0], [0, 1], [1, 2], [1, 2]])
TARGET = np.array([1, 2])


def features(name: str) -> list[float]:
    return list(EXTRACTORS[name](PUBLIC, TARGET, np.random.default_rng(0))(SYNTHETIC).tolist())


def test_naive_by_hand() -> None:
    assert features("naive") == pytest.approx([0.5, 1.25, 0.5, 1.5, 0.25, 0.6875, 2, 0, 0, 3, 2, 0])


def test_histogram_by_hand() -> None:
    assert features("histogram") == [0.5, 0.5, 0.25, 0.25, 0.5]


def test_targeted_asks_for_columns_of_one_kind_of_rows() -> None:
    """Two rows of a person, one of each kind: as many agree as are alike in any set of columns."""
    public, person = Public((3, 3, 4), (2, 1)), np.array([[0, 1, 3], [2, 2, 0]])
    synthetic = np.array([[0, 1, 3], [0, 0, 3], [2, 2, 0], [2, 2, 0], [2, 2, 1]])
    extract = EXTRACTORS["targeted"](public, person, np.random.default_rng(0))
    # of persons' columns none, one, the other, both; of visits' none, one
    assert extract(synthetic).tolist() == [5, 2, 1, 1, 5, 2]


def test_correlation_against_numpy_and_scipy() -> None:
    pearson = np.corrcoef(SYNTHETIC.T)[0, 1]
    counts = np.array([[1, 1, 0], [0, 0, 2]])
    assert features("correlation") == pytest.approx([pearson, association(counts, method="cramer")])


def test_correlation_of_a_constant_column_is_zero() -> None:
    extract = EXTRACTORS["correlation"](PUBLIC, TARGET, np.random.default_rng(0))
    assert extract(np.array([[0, 0], [0, 1], [0, 2]])).tolist() == [0, 0]


def test_ensemble_is_the_three_together() -> None:
    assert features("ensemble") == features("naive") + features("histogram") + features(
        "correlation"
    )


def test_targeted_counts_rows_that_agree_on_each_set_of_columns() -> None:
    assert features("targeted") == [4, 2, 2, 2]  # {}, {0}, {1}, {0, 1}


def test_targeted_matches_brute_force_on_a_wide_table() -> None:
    rng = np.random.default_rng(4)
    synthetic, target = rng.integers(3, size=(5000, 12)), rng.integers(3, size=12)
    got = EXTRACTORS["targeted"](Public((3,) * 12), target, np.random.default_rng(9))(synthetic)
    masks = column_subsets(12, QUERIES, np.random.default_rng(9))
    assert got.tolist() == [(synthetic[:, m] == target[m]).all(axis=1).sum() for m in masks]


def test_subsets_are_different_reproducible_and_of_every_size() -> None:
    masks = column_subsets(12, 256, np.random.default_rng(5))
    assert len(np.unique(masks, axis=0)) == len(masks) == 256
    assert set(masks.sum(axis=1)) == set(range(13)) and (masks.sum(axis=1) == 1).sum() == 12
    assert (masks == column_subsets(12, 256, np.random.default_rng(5))).all()
    assert len(column_subsets(6, 256, np.random.default_rng(5))) == 2**6
    assert (
        len(column_subsets(300, 256, np.random.default_rng(5))) == 302
    )  # never without all singles


@pytest.mark.parametrize("name", EXTRACTORS)
def test_every_extractor_is_finite_of_one_length_and_blind_to_row_order(name: str) -> None:
    rng = np.random.default_rng(6)
    public = Public((4, 2, 5))
    sets = [
        np.stack([rng.integers(s, size=50) for s in public.sizes], axis=1) for _ in range(3)
    ] + [np.zeros((50, 3), dtype=np.int64)]
    extract = EXTRACTORS[name](public, sets[0][0], np.random.default_rng(0))
    matrix = feature_matrix(extract, sets)
    assert matrix.ndim == 2 and np.isfinite(matrix).all()
    assert np.allclose(matrix, feature_matrix(extract, [s[::-1] for s in sets]))
    assert np.allclose(matrix, feature_matrix(extract, [s.astype(np.uint16) for s in sets]))


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_every_classifier_learns_scores_that_mean_member_above_zero(name: str) -> None:
    rng = np.random.default_rng(7)
    members = np.arange(80) % 2 == 0
    informative = rng.normal(size=(80, 30)) + 3.0 * members[:, None] * (np.arange(30) < 3)
    scores = scores_after_fit(name, informative[:40], members[:40], informative[40:], seed=1)
    assert ((scores > 0) == members[40:]).mean() >= 0.85
    assert (
        scores == scores_after_fit(name, informative[:40], members[:40], informative[40:], seed=1)
    ).all()


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_held_out_scores_never_see_the_twin(name: str) -> None:
    """Features that only name the pair: seen twins would give the answer away, unseen ones leave
    nothing to learn.
    """
    rng = np.random.default_rng(8)
    pairs = np.repeat(np.arange(20), 2)
    members = np.arange(40) % 2 == 0
    identity = rng.normal(size=(20, 10))[pairs]
    held = held_out_scores(name, identity, members, pairs, seed=1)
    assert (held[members] == held[~members]).all()  # twins look the same and get the same score
    assert len(held_out_scores(name, identity[:4], members[:4], pairs[:4], seed=1)) == 4


def test_isolation_and_rarity_by_brute_force() -> None:
    rng = np.random.default_rng(9)
    rows = rng.integers(4, size=(300, 5)).astype(np.uint16)
    distances = np.array([[(a != b).mean() for b in rows] for a in rows])
    np.fill_diagonal(distances, np.inf)
    assert isolation(rows, neighbours=3) == pytest.approx(
        np.sort(distances, axis=1)[:, :3].mean(axis=1)
    )
    assert rarity(np.array([[0], [0], [0], [1]])) == pytest.approx(
        [np.log(4 / 3)] * 3 + [np.log(4)]
    )


def test_isolated_targets_find_the_outlier_and_random_ones_do_not_only() -> None:
    rng = np.random.default_rng(10)
    rows = np.repeat(rng.integers(3, size=(20, 1)), 6, axis=1)
    rows[13] = [0, 1, 2, 0, 1, 2]
    assert isolated_targets(rows, 2, rng)[0] == 13
    assert len(set(random_targets(rows, 20, rng))) == 20
    for choose in (random_targets, isolated_targets):
        with pytest.raises(AttackError, match="21 targets"):
            choose(rows, 21, rng)


def test_declared_targets_are_checked() -> None:
    rows = np.zeros((3, 2), dtype=int)
    assert declared_targets(rows, [2, 0]) == (2, 0)
    assert declared_targets(rows, np.array([2, 0])) == (2, 0)  # type: ignore[arg-type]
    for bad in ([0, 0], [3], [-1]):
        with pytest.raises(AttackError, match="needs different positions within the table"):
            declared_targets(rows, bad)
    for none in ([], 1, [0.5], [[0, 1]], ["a"]):
        with pytest.raises(AttackError, match=r"^targets=.* needs a list of row positions"):
            declared_targets(rows, none)  # type: ignore[arg-type]


def test_all_pairs_of_columns_are_correlated() -> None:
    extract = EXTRACTORS["correlation"](
        Public((2,) * 5), np.zeros(5, dtype=int), np.random.default_rng(0)
    )
    assert len(extract(np.random.default_rng(1).integers(2, size=(9, 5)))) == 2 * len(
        list(combinations(range(5), 2))
    )
