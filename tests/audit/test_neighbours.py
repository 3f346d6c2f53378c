"""Neighbouring tables: they are, with all corner cases, and know nothing but the domain."""

import numpy as np
import pytest

from synthdp.audit import Pair, neighbours
from synthdp.data import Domain
from synthdp.privacy.accounting import Adjacency

BATCH, MAX_ROWS = 8, 3


@pytest.fixture(scope="module")
def pairs(domain: Domain) -> list[Pair]:
    return list(neighbours(domain, batch=BATCH, max_rows=MAX_ROWS, random_pairs=50))


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_tables_differ_by_the_rows_of_one_unit(domain: Domain, adjacency: Adjacency) -> None:
    for pair in neighbours(
        domain, batch=BATCH, max_rows=MAX_ROWS, adjacency=adjacency, random_pairs=50
    ):
        for side, unit in zip(pair.sides(domain), (pair.before, pair.after), strict=True):
            place = pair.place
            codes = side.table.codes
            assert np.array_equal(codes[place : place + len(unit)], unit)
            assert np.array_equal(
                np.delete(codes, slice(place, place + len(unit)), axis=0), pair.shared
            )
            assert (codes < np.array(domain.sizes)).all() and codes.dtype == np.uint16
        assert 1 <= pair.unit_rows <= MAX_ROWS
        if adjacency == "replace_one":
            assert pair.held_out or len(pair.before) == len(pair.after)
        else:
            assert min(len(pair.before), len(pair.after)) == 0


def test_shared_rows_have_one_identity_and_the_same_values(
    domain: Domain, pairs: list[Pair]
) -> None:
    for pair in pairs:
        first, second = pair.sides(domain)
        for side in (first, second):
            assert len(set(side.identity)) == len(side.identity) == len(side.table.fit_codes)
            shared = side.identity[side.identity < len(pair.shared)]
            assert np.array_equal(shared, np.arange(len(pair.shared)))
        unit = [set(s.identity[s.identity >= len(pair.shared)]) for s in (first, second)]
        assert not unit[0] & unit[1]
        both = [
            s.table.frame[~s.table.held_out][s.identity < len(pair.shared)].reset_index(drop=True)
            for s in (first, second)
        ]
        assert both[0].equals(both[1])


def test_the_corners_are_there(domain: Domain, pairs: list[Pair]) -> None:
    added = [p for p in pairs if not p.held_out]
    assert any(len(p.shared) == 0 for p in added)
    whole = {(len(p.shared), p.unit_rows) for p in added}
    assert {(n, 1) for n in (BATCH - 1, BATCH, 2 * BATCH - 1, 2 * BATCH, 3 * BATCH)} <= whole
    assert any(
        p.unit_rows == MAX_ROWS and len(np.unique(np.concatenate([p.before, p.after]), axis=0)) == 1
        for p in added
    )
    for i, size in enumerate(domain.sizes):
        for level in {0, size - 1}:
            lone = [
                p
                for p in added
                if (np.concatenate([p.before, p.after])[:, i] == level).all()
                and not (p.shared[:, i] == level).any()
            ]
            assert lone or size == 1
    assert {p.place == 0 for p in added} == {True, False} and any(
        0 < p.place < len(p.shared) for p in added
    )
    assert any(len(p.before) for p in added) and any(len(p.after) for p in added)
    counts = {int((p.shared[:, 0] == domain.sizes[0] - 1).sum()) for p in added if "rare" in p.name}
    assert {0, 1, 2, 3, 4, 9} <= counts


def test_any_number_of_random_pairs(domain: Domain) -> None:
    few, many = (len(list(neighbours(domain, batch=BATCH, random_pairs=n))) for n in (0, 700))
    assert many == few + 700


def test_a_held_out_unit_is_in_the_table_and_not_among_the_rows_of_the_fit(
    domain: Domain, pairs: list[Pair]
) -> None:
    held = [p for p in pairs if p.held_out]
    assert held
    for pair in held:
        first, second = pair.sides(domain)
        assert len(second.table.codes) == len(first.table.codes) + 1
        assert np.array_equal(first.table.fit_codes, second.table.fit_codes)
