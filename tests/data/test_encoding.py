"""Values to levels and back: every value has one level, row by row, and decoding stays inside the
level.
"""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthdp.data import ColumnDomain, Domain, decode_column, edges_reached, encode, encode_column
from synthdp.spec.model import Boolean, Categorical, Column, Datetime, Integer, Number, Ordinal

COLUMNS: dict[str, Column] = {
    "category": Categorical(type="categorical", categories=("a", "b", "7")),
    "absent": Ordinal(type="ordinal", categories=("low", "high"), missing=True),
    "flag": Boolean(type="boolean"),
    "whole": Integer(type="integer", lower=-3, upper=20, spikes=(0, 20), bins=5),
    "ends": Integer(type="integer", lower=0, upper=1, spikes=(0, 1)),
    "edged": Integer(type="integer", lower=0, upper=9, spikes=(0,), edges=(1, 4), missing=True),
    "real": Number(
        type="number", lower=-1.5, upper=2.5, spikes=(0.0,), bins=7, decimals=3, missing=True
    ),
    "day": Datetime(type="datetime", lower="2020-02-01", upper="2021-03-01", bins=4, missing=True),
    "hour": Datetime(
        type="datetime", lower="2020-02-01T06:00:00", upper="2020-02-02", bins=3, resolution="hour"
    ),
}
DOMAIN = Domain.from_spec(COLUMNS)
STRANGE = [
    "", "a", "b", "7", "7.0", "true", "false", "0", "-3", "20", "21", "3.5", "1e1", "nan", "inf",
    "-inf", "2020-02-01", "01/02/2020", "2020-12-31T23:59:59", "2020-02-01T06:30:00Z",
    "2020-02-01 07:00", "9999-12-31", "0001-01-01", "canary", "=1+1", "-0.0", "1e400",
]  # fmt: skip


@pytest.mark.parametrize("column", DOMAIN.columns, ids=DOMAIN.names)
def test_every_level_decodes_into_itself(column: ColumnDomain) -> None:
    codes = np.repeat(np.arange(column.levels), 300)
    values = decode_column(column, codes, rng=np.random.default_rng(1))
    back = encode_column(column, values)
    assert back.misfits == 0
    moved = back.codes != codes
    if (
        column.type == "number"
    ):  # a drawn number may be written as the edge or spike that it is next to
        fixed = np.asarray(column.edges + column.spikes)
        moved &= (
            np.abs(values.to_numpy()[:, None] - fixed).min(
                1, initial=np.inf, where=~np.isnan(values.to_numpy())[:, None]
            )
            > 1e-3
        )
    assert not moved.any()


@pytest.mark.parametrize(
    ("lower", "upper", "decimals"),
    [(0.123, 2.46, 1), (0.04, 0.06, 1), (-2.46, -0.123, 0), (0.0, 2.3, 2)],
)
def test_written_digits_never_push_a_value_over_a_bound(
    lower: float, upper: float, decimals: int
) -> None:
    column = Domain.from_spec(
        {
            "x": Number(
                type="number", lower=lower, upper=upper, bins=2, decimals=decimals, spikes=(upper,)
            )
        }
    )["x"]
    drawn = decode_column(column, np.arange(3000) % 3, rng=np.random.default_rng(4))
    assert drawn.between(lower, upper).all() and (drawn[::3] == upper).all()
    assert encode_column(column, drawn).misfits == 0


@pytest.mark.parametrize("column", DOMAIN.columns, ids=DOMAIN.names)
@settings(max_examples=60, deadline=None)
@given(values=st.lists(st.sampled_from(STRANGE) | st.none(), min_size=2, max_size=6))
def test_a_rows_level_depends_on_that_row_alone(
    column: ColumnDomain, values: list[str | None]
) -> None:
    """Sensitivity: if one value could change how another is read, one row could move every
    count.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        together = encode_column(column, pd.Series(values, dtype="str"))
        alone = [encode_column(column, pd.Series([v], dtype="str")) for v in values]
    assert together.codes.tolist() == [int(e.codes[0]) for e in alone]
    assert together.misfits == sum(e.misfits for e in alone)
    assert (together.codes < column.levels).all()


@pytest.mark.parametrize(
    ("name", "value", "label", "kind"),
    [
        ("category", "c", "a", "outside"),
        ("category", None, "a", "unexpected_missing"),
        ("absent", None, "missing", None),
        ("flag", "yes", "false", "outside"),
        ("whole", "-4", "-3 to 1", "outside"),
        ("whole", "0", "0", None),
        ("whole", "20", "20", None),
        ("whole", "2.5", None, "wrong_type"),
        ("whole", "heavy", None, "wrong_type"),
        ("edged", "9", "4 to 9", None),
        ("edged", "10", "4 to 9", "outside"),
        ("edged", None, "missing", None),
        ("real", "inf", "[1.92857, 2.5]", "outside"),
        ("real", "-0.0", "0", None),
        ("real", "nan", None, "wrong_type"),
        ("day", "2021-03-01", "2020-11-23 to 2021-03-01", None),
        ("day", "03/01/2021", None, "wrong_type"),
    ],
)
def test_misfits_are_counted_by_kind_and_get_the_nearest_level(
    name: str, value: str | None, label: str | None, kind: str | None
) -> None:
    column = DOMAIN[name]
    got = encode_column(column, pd.Series([value], dtype="str"))
    if label is not None:
        assert column.labels[int(got.codes[0])] == label
    counts = {k: getattr(got, k) for k in ("wrong_type", "outside", "unexpected_missing")}
    assert counts == {k: int(k == kind) for k in counts}


def test_typed_columns_of_parquet_and_sql_are_read_as_their_text_would_be() -> None:
    frame = pd.DataFrame(
        {
            "flag": [True, False],
            "whole": [3, 20],
            "day": pd.to_datetime(["2020-02-01", None]),
            "real": [0.5, np.nan],
        }
    )
    text = pd.DataFrame(
        {
            "flag": ["true", "false"],
            "whole": ["3", "20"],
            "day": ["2020-02-01", None],
            "real": ["0.5", None],
        },
        dtype="str",
    )
    some = Domain(tuple(DOMAIN[n] for n in ("flag", "whole", "day", "real")))
    typed, read = encode(some, frame), encode(some, text)
    np.testing.assert_array_equal(typed[0], read[0])
    assert all(e.misfits == 0 for e in (*typed[1].values(), *read[1].values()))


def test_draws_are_spread_over_their_bin_and_avoid_spikes() -> None:
    whole = DOMAIN["whole"]
    drawn = decode_column(
        whole, np.full(3000, whole.labels.index("-3 to 1")), rng=np.random.default_rng(2)
    )
    share = drawn.value_counts(normalize=True)
    assert set(share.index) == {-3, -2, -1, 1} and abs(share - 0.25).max() < 0.05  # 0 is a spike
    real = DOMAIN["real"]
    numbers = decode_column(real, np.full(4000, 2), rng=np.random.default_rng(3)).to_numpy()
    low, high = real.edges[1], real.edges[2]
    assert (
        low - 1e-3 < numbers.min()
        and numbers.max() < high + 1e-3
        and abs(numbers.mean() - (low + high) / 2) < 0.02
    )
    assert (np.round(numbers, 3) == numbers).all()


def test_values_that_are_equal_and_mean_different_categories_are_told_apart() -> None:
    """1, 1.0 and true are equal in Python; a column of text alone takes a quicker way, to the same
    levels.
    """
    column = Domain.from_spec(
        {"c": Categorical(type="categorical", categories=("1", "true", "1.5"), missing=True)}
    )["c"]
    mixed = encode_column(
        column, pd.Series([True, 1, 1.0, "1", "true", None, 1.5, False], dtype=object)
    )
    assert mixed.codes.tolist() == [1, 0, 0, 0, 1, 3, 2, 0] and mixed.outside == 1
    for kind in (object, "str"):
        text = encode_column(column, pd.Series(["true", "1", None, "1.5", "2"], dtype=kind))
        assert text.codes.tolist() == [1, 0, 3, 2, 0] and text.outside == 1


@pytest.mark.parametrize("count", [0, 1, 16, 99, 100, 300])
def test_comparisons_reach_the_edges_that_a_search_finds(count: int) -> None:
    rng = np.random.default_rng(count)
    edges = tuple(np.unique(rng.normal(size=count)).tolist())
    numbers = np.concatenate([rng.normal(size=500), edges, np.nextafter(edges, -9), [-0.0, 1e308]])
    assert np.array_equal(
        edges_reached(edges, numbers), np.searchsorted(edges, numbers, side="right")
    )
