"""The public basis: bounded, centred and orthogonal under its reference, monotone scales, and
refusals that name the column.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthdp.data import MAX_LEVELS, Basis, ColumnDomain, Domain, range_scale, rank_scale
from synthdp.errors import SynthdpError


def number(
    name: str,
    *,
    missing: bool = False,
    spikes: tuple[float, ...] = (),
    lower: float = -2.0,
    upper: float = 6.0,
) -> ColumnDomain:
    edges = tuple(np.linspace(lower, upper, 9)[:-1])
    labels = tuple(f"l{i}" for i in range(len(spikes) + len(edges) + missing))
    return ColumnDomain(
        name,
        "number",
        labels,
        missing,
        spikes=spikes,
        edges=edges,
        stop=upper,
        lower=lower,
        upper=upper,
    )


def category(name: str, levels: int) -> ColumnDomain:
    return ColumnDomain(name, "categorical", tuple(f"v{i}" for i in range(levels)), False)


MIXED = Domain((number("x"), number("y", missing=True), category("c", 4)))


@pytest.mark.parametrize(
    ("degree", "interaction", "terms"),
    [(1, 1, 1 + 1 + 2 + 3), (3, 1, 1 + 3 + 4 + 3), (2, 2, 1 + 2 + 3 + 3 + (1 * 2 + 1 * 3 + 2 * 3))],
)
def test_each_column_brings_its_functions_and_products_up_to_the_degree(
    degree: int, interaction: int, terms: int
) -> None:
    basis = Basis(MIXED, MIXED.names, degree=degree, interaction=interaction)
    assert len(basis.terms) == terms
    assert basis.terms[0].factors == ()
    assert max(len(t.columns) for t in basis.terms) == min(interaction, 3)


def test_functions_are_orthogonal_and_centred_for_uniform_columns() -> None:
    rows = 200_000
    rng = np.random.default_rng(0)
    values = {"x": rng.uniform(-1, 1, rows), "c": rng.integers(4, size=rows).astype(float)}
    functions = Basis(MIXED, ("x", "c"), degree=3, interaction=2)._of(values)
    moments = functions.T @ functions / rows
    off = moments - np.diag(np.diag(moments))
    assert np.abs(off).max() < 0.01
    assert np.diag(moments)[:4] == pytest.approx([1, 1 / 3, 0.25 / 5, 0.25 / 7], abs=0.005)


@settings(max_examples=60, deadline=None)
@given(
    x=st.floats(-2, 6),
    y=st.one_of(st.floats(-2, 6), st.just(float("nan"))),
    c=st.integers(0, 3),
    degree=st.integers(1, 5),
    interaction=st.integers(1, 3),
)
def test_every_function_stays_within_its_weight(
    x: float, y: float, c: int, degree: int, interaction: int
) -> None:
    basis = Basis(MIXED, MIXED.names, degree=degree, interaction=interaction)
    codes = np.array([[0, 8 if np.isnan(y) else 0, c]], dtype=np.uint16)
    row = basis.matrix(pd.DataFrame({"x": [x], "y": [y], "c": ["v0"]}), codes)
    assert np.isfinite(row).all()
    assert (np.abs(row[0]) <= [t.weight * (1 + 1e-12) for t in basis.terms]).all()
    assert (row**2).sum() <= basis.largest * (1 + 1e-12)


def test_a_missing_number_is_a_state_of_its_own() -> None:
    basis = Basis(MIXED, ("y",), degree=2)
    codes = np.array([[0, 8, 0], [0, 3, 0]], dtype=np.uint16)
    matrix = basis.matrix(pd.DataFrame({"y": [np.nan, 2.0]}), codes)
    flag = [t.factors for t in basis.terms].index((("y", 0),))
    assert matrix[:, flag].tolist() == [1.0, 0.0]
    assert np.delete(matrix[0], [0, flag]).tolist() == [0.0, 0.0]


def test_ranks_make_a_skewed_column_uniform_and_put_spikes_in_the_middle_of_their_step() -> None:
    column = number("x", spikes=(0.0,), lower=0.0, upper=8.0)
    rng = np.random.default_rng(0)
    numbers = np.where(rng.random(50_000) < 0.4, 0.0, np.minimum(rng.exponential(1.0, 50_000), 8.0))
    spike, bins = (
        float((numbers == 0).sum()),
        np.histogram(numbers[numbers > 0], np.append(column.edges, column.stop))[0],
    )
    scale = rank_scale(column, np.concatenate([[spike], bins]))
    grid = scale(np.linspace(0, 8, 1001))
    assert (np.diff(grid) >= 0).all()
    assert grid[-1] == 1.0
    assert scale(np.array([0.0]))[0] == pytest.approx(-1 + spike / 50_000, abs=0.01)
    ranks = np.sort(scale(numbers[numbers > 0]))
    assert (
        np.abs(ranks - np.linspace(-0.2, 1, len(ranks))).max() < 0.12
    )  # exponential inside bins of width one


def test_ranks_of_an_empty_or_negative_table_are_the_range() -> None:
    column = number("x")
    assert rank_scale(column, -np.ones(8))(np.array([-2.0, 2.0, 6.0])).tolist() == [-1.0, 0.0, 1.0]


def test_no_scale_leaves_its_ends_however_near_its_knots_are() -> None:
    """A slope beyond doubles gave infinite functions, of which a whole number is any number."""
    narrow = ColumnDomain("x", "number", ("a",), False, (), (0.0,), 1e-310, 0.0, 1e-310)
    edged = replace(narrow, labels=("a", "b"), edges=(0.0, 1e-310), stop=1.0, upper=1.0)
    with np.errstate(over="ignore"):
        scales = range_scale(narrow), rank_scale(edged, np.array([3.0, 1.0]))
    for scale in scales:
        assert np.abs(scale(np.linspace(0.0, 1e-310, 5))).max() <= 1.0


def test_norms_are_public_and_never_above_the_largest() -> None:
    basis = Basis(MIXED, MIXED.names, degree=2, interaction=2)
    assert basis.norm(deviations=2.0) == Basis(MIXED, MIXED.names, degree=2, interaction=2).norm(
        deviations=2.0
    )
    assert (
        1
        < basis.norm(deviations=0.0)
        < basis.norm(deviations=2.0)
        < basis.norm(deviations=1e9)
        == basis.largest**0.5
    )


def test_too_many_categories_are_refused_by_name() -> None:
    domain = Domain((number("x"), category("postcode", MAX_LEVELS + 1)))
    with pytest.raises(SynthdpError, match=r"column 'postcode' has 13 categories"):
        Basis(domain, domain.names)


@pytest.mark.parametrize("weights", [(1.0, 1.5), (-0.1,), (float("nan"),), ()])
def test_weights_that_would_break_the_bound_of_a_function_are_refused(
    weights: tuple[float, ...],
) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        Basis(MIXED, MIXED.names, weights=weights)
