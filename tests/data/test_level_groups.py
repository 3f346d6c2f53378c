"""Groups of levels: each level in one group, sums that keep the total, levels drawn by law."""

from typing import Any

import numpy as np
import pytest

from synthdp.data import Domain, LevelGroups, encode_column
from synthdp.spec.model import Boolean, Column, Integer, Number

COLUMNS: dict[str, Column] = {
    "flag": Boolean(type="boolean"),
    "age": Integer(
        type="integer", lower=0, upper=9, spikes=(0,), edges=tuple(range(1, 10)), missing=True
    ),
    "real": Number(type="number", lower=0.0, upper=2.0, bins=8, decimals=2),
}
DOMAIN = Domain.from_spec(COLUMNS)
GROUPS = LevelGroups(DOMAIN, {"age": (0, 1, 4, 5, 10), "real": (0, 2, 6)})


def test_a_group_is_a_wider_bin() -> None:
    """Encoded on the coarse domain, any value has the group of its level on the fine one."""
    coarse = GROUPS.coarse
    assert coarse.sizes == (2, 5, 3)
    assert coarse["age"].labels == ("0", "1 to 3", "4", "5 to 9", "missing")
    assert coarse["real"].labels == ("[0, 0.5)", "[0.5, 1.5)", "[1.5, 2]")
    import pandas as pd

    ages = pd.Series([*map(str, range(10)), ""]).replace("", None)
    reals = pd.Series(np.arange(0, 2.001, 0.01).round(2).astype(str))
    for name, values in (("age", ages), ("real", reals)):
        fine = encode_column(DOMAIN[name], values).codes
        own = encode_column(coarse[name], values).codes
        np.testing.assert_array_equal(GROUPS.group_of(name)[fine], own)


def test_every_row_lies_in_the_group_of_its_level() -> None:
    codes = np.array([[1, level, level % 8] for level in range(11)], dtype=np.uint16)
    groups = GROUPS.of(codes)
    assert groups.dtype == np.uint16
    np.testing.assert_array_equal(groups[:, 0], 1)
    np.testing.assert_array_equal(groups[:, 1], [0, 1, 1, 1, 2, 3, 3, 3, 3, 3, 4])
    np.testing.assert_array_equal(groups[:, 2], [0, 0, 1, 1, 1, 1, 2, 2, 0, 0, 1])
    assert codes[10, 1] == 10, "what was given is not changed"


def test_sums_keep_the_total_and_follow_the_rows() -> None:
    rng = np.random.default_rng(0)
    codes = np.stack([rng.integers(0, size, 5000) for size in DOMAIN.sizes], 1)
    groups = GROUPS.of(codes)
    for i, (name, size) in enumerate(zip(DOMAIN.names, DOMAIN.sizes, strict=True)):
        counts = np.bincount(codes[:, i], minlength=size).astype(float)
        np.testing.assert_array_equal(
            GROUPS.sums(name, counts), np.bincount(groups[:, i], minlength=GROUPS.coarse.sizes[i])
        )
    table = np.arange(88.0).reshape(8, 11)
    np.testing.assert_array_equal(
        GROUPS.sums("age", table, 1).sum(1), table.sum(1), err_msg="the axis of the levels"
    )


def test_levels_are_drawn_by_their_law_inside_the_group() -> None:
    """Stratified: the share of a level differs from its law by less than one row of its group."""
    margins = [np.array([0.5, 0.5]), np.array([5, 1, 2, 3, 7, 0, 0, 4, 4, 0, 2.0]), np.zeros(8)]
    groups = np.zeros((1700, 3), dtype=np.uint16)
    groups[:, 1] = np.repeat(np.arange(5), [100, 600, 100, 800, 100])
    levels = GROUPS.drawn(groups, margins, rng=np.random.default_rng(1))
    np.testing.assert_array_equal(GROUPS.of(levels), groups)
    drawn = np.bincount(levels[:, 1], minlength=11)
    expected = np.array([100, 100, 200, 300, 100, 0, 0, 400, 400, 0, 100])
    assert np.abs(drawn - expected).max() <= 1
    assert set(levels[:, 2]) == {0, 1}, "a group without mass is drawn from evenly"


def test_without_groups_nothing_changes() -> None:
    none = LevelGroups(DOMAIN, {})
    codes = np.array([[0, 10, 7]], dtype=np.uint16)
    assert none.coarse is DOMAIN
    np.testing.assert_array_equal(none.of(codes), codes)
    np.testing.assert_array_equal(none.drawn(codes, [], rng=np.random.default_rng(0)), codes)


@pytest.mark.parametrize(
    "starts",
    [
        {"flag": (0,)},
        {"nobody": (0,)},
        {"age": ()},
        {"age": (0, 4, 10)},  # the spike with a bin
        {"age": (0, 1, 4)},  # the missing level with a bin
        {"age": (1, 4, 10)},
        {"age": (0, 1, 1, 10)},
        {"age": (0, 1, 5, 4, 10)},
        {"age": (0, 1, 10, 11)},
        {"real": (0, 8)},
        {"real": (0, 2.0)},
        {"real": (0, "2")},
        {"real": (0, True)},
    ],
)
def test_what_are_no_groups_is_refused(starts: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no groups of levels"):
        LevelGroups(DOMAIN, starts)
