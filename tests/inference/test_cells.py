"""Roles of cells, against every value that a level holds."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthdp.data import Domain, level_of
from synthdp.errors import OutputError
from synthdp.inference import level_points, roles, value_bounds
from synthdp.spec import parse_query
from synthdp.spec.model import Integer, Number

WHOLE = Integer(type="integer", lower=-3, upper=16, bins=4, spikes=(-3, 5), missing=True)
REAL = Number(type="number", lower=0, upper=4, bins=4, spikes=(0, 1.5))
COLUMNS = {"a": WHOLE, "b": REAL}
DOMAIN = Domain.from_spec(COLUMNS)
VALUES = {
    "a": np.array([*range(-3, 17), np.nan]),
    "b": np.arange(0, 4.0001, 0.125),
}
COMPARED = st.tuples(
    st.sampled_from("ab"),
    st.sampled_from(["<", "<=", ">", ">=", "==", "!="]),
    st.sampled_from([-3, -1, 0, 0.5, 1, 1.5, 2.25, 4, 5, 7, 16]),
).map(lambda c: f"{c[0]} {c[1]} {c[2]}")
CONDITION = st.one_of(
    COMPARED,
    st.tuples(COMPARED, st.sampled_from(["and", "or", "and not"]), COMPARED).map(" ".join),
    st.just("a is missing"),
    st.just("a is not missing or b > 1"),
)


@given(CONDITION, CONDITION)
def test_a_cell_has_the_roles_of_its_values(asked: str, where: str) -> None:
    query = parse_query(f"share({asked}) where {where}", COLUMNS)
    columns = [DOMAIN[name] for name in query.columns]
    found = roles(query, columns)
    grids = np.meshgrid(*(VALUES[c.name] for c in columns), indexing="ij")
    values = {c.name: grid.ravel() for c, grid in zip(columns, grids, strict=True)}
    with np.errstate(invalid="ignore"):
        true, false = query.condition.truth(values)
        inside = query.where.truth(values)[0]
    cells = []
    for column in columns:
        numbers = values[column.name]
        known = np.nan_to_num(numbers, nan=column.lower)
        cells.append(np.where(np.isnan(numbers), column.levels - 1, level_of(column, known)))
    one, zero = inside & true, inside & false
    for role, mask in ((found.one, one), (found.zero, zero), (found.out, ~(one | zero))):
        seen = np.zeros_like(role)
        seen[tuple(cell[mask] for cell in cells)] = True
        assert (role | ~seen).all()  # what happens is known to happen
    whole = [c for c in columns if c.name == "a"]
    if len(whole) == len(columns):  # every whole number was tried: no role is made up
        assert (found.one.sum(), found.zero.sum()) == tuple(
            len(set(zip(*(cell[m] for cell in cells), strict=True))) for m in (one, zero)
        )


def test_levels_of_one_value_are_never_cut() -> None:
    column = {"n": Integer(type="integer", lower=0, upper=9, bins=10)}
    domain = Domain.from_spec(column)
    for sign, at in itertools.product([">", "<=", "=="], [0, 3.5, 9]):
        assert not roles(parse_query(f"share(n {sign} {at})", column), domain.columns).cut.any()


def test_a_spike_at_an_end_is_no_number_of_the_bin() -> None:
    low, high = value_bounds(DOMAIN["a"])
    assert low.tolist()[:3] == [-3, 5, -2] and high[2] == DOMAIN["a"].edges[1] - 1
    numbers, starts = level_points(DOMAIN["b"], [0.0])
    assert numbers[starts[2]] > 0
    assert not roles(parse_query("share(b > 0)", COLUMNS), [DOMAIN["b"]]).cut.any()


def test_too_many_cells_are_refused_with_their_number() -> None:
    fine = {n: Integer(type="integer", lower=0, upper=999, bins=1000) for n in ("x", "y")}
    with pytest.raises(OutputError, match="x, y have 1,000,000 combinations of levels"):
        roles(parse_query("share(x > 1 and y > 1)", fine), Domain.from_spec(fine).columns)
