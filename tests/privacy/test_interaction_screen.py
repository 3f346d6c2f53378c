"""The screen of interactions: what a row moves a sum by, the law of what is told, its charge."""

from collections import Counter
from collections.abc import Callable
from itertools import combinations
from typing import Any

import dp_accounting
import numpy as np
import pytest
from scipy import stats

from synthdp.data import Domain
from synthdp.privacy import (
    ChosenInteractions,
    Family,
    GaussianSumsDpEvent,
    GumbelMaxDpEvent,
    InteractionScreen,
    PackedSigns,
    SameLevel,
    Sign,
    ToldSum,
)
from synthdp.privacy.noise import Streams
from synthdp.privacy.table import Table
from tests.privacy.conftest import SIGNIFICANCE, order_law, order_p_value

MakeDomain = Callable[..., Domain]
MakeTable = Callable[[Domain, Any], Table]
FAMILIES = (Family((0,), 1, 4), Family((0, 1), 2, 4), Family((3, 0, 1), 2, 3))


def signs_of(domain: Domain) -> tuple[Sign, ...]:
    """Every other level of each column."""
    return tuple(Sign(c.name, tuple(i % 2 == 1 for i in range(c.levels))) for c in domain.columns)


def plain_sums(codes: Any, families: tuple[Family, ...]) -> list[int]:
    """The sums one by one, another way."""
    values = 1 - 2 * (codes.astype(int) % 2)
    return [
        int(np.prod(values[:, [*family.shared, last]], axis=1).sum())
        for family in families
        for last in range(family.first, family.stop)
    ]


def screen_of(
    domain: Domain, kept: int, noise: float, *, rows: float = 0.0, floor: float = 0.0
) -> ChosenInteractions:
    """Of products of four columns; 0 is expected of each without `rows`."""
    signs = signs_of(domain)
    drawn = PackedSigns.of(np.zeros((1, len(domain)), np.uint16), domain, signs)
    return InteractionScreen(domain, kept, noise).choose(
        signs, FAMILIES, drawn, rows=rows, floor=floor
    )


@pytest.mark.parametrize("rows", [0, 1, 63, 64, 65, 1000])
def test_packed_sums_are_those_of_the_signs(rows: int, domain_of: MakeDomain) -> None:
    domain, rng = domain_of(2, 3, 5, 4), np.random.default_rng(rows)
    codes = np.column_stack([rng.integers(0, n, rows) for n in domain.sizes]).astype(np.uint16)
    packed = PackedSigns.of(codes, domain, signs_of(domain))
    assert packed.sums(FAMILIES).tolist() == plain_sums(codes, FAMILIES)
    assert packed.sums(()).tolist() == []
    same = PackedSigns.of(codes, domain, (*signs_of(domain), SameLevel("b", "c")))
    expected = np.where(codes[:, 1] == codes[:, 2], -1, 1) * (1 - 2 * (codes[:, 0] % 2).astype(int))
    assert same.sums((Family((0,), 4, 5),)).tolist() == [int(expected.sum())]
    # times itself, every row has 1
    itself = packed.sums(FAMILIES[2:], packed.product((3, 0, 1, 2)))
    assert itself.tolist() == [rows]


@pytest.mark.parametrize("rows_of_unit", [1, 3])
def test_no_unit_moves_a_sum_further_than_is_charged(
    rows_of_unit: int, domain_of: MakeDomain
) -> None:
    """One unit of any rows, on tables of any size: by exactly its rows where all of them agree."""
    domain, furthest, replaced = domain_of(2, 2, 3, 2), 0, 0
    signs, rng = signs_of(domain), np.random.default_rng(0)

    def drawn(rows: int) -> Any:
        levels = [rng.integers(0, size, rows) for size in domain.sizes]
        return np.column_stack(levels).astype(np.uint16)

    for _ in range(200):
        shared, units = drawn(int(rng.integers(0, 70))), [drawn(rows_of_unit) for _ in range(2)]
        units.append(np.repeat(drawn(1), rows_of_unit, axis=0))
        before = PackedSigns.of(shared, domain, signs).sums(FAMILIES)
        sums = [
            PackedSigns.of(np.concatenate([shared, unit]), domain, signs).sums(FAMILIES)
            for unit in units
        ]
        furthest = max(furthest, *(int(np.abs(one - before).max()) for one in sums))
        for one, other in combinations(sums, 2):
            replaced = max(replaced, int(np.abs(one - other).max()))
    assert furthest == rows_of_unit and replaced == 2 * rows_of_unit


def test_the_event_is_of_a_choice_and_a_sum_so_many_times(domain_of: MakeDomain) -> None:
    event = InteractionScreen(domain_of(2, 2), 4, 30.0).event(3)
    both = dp_accounting.ComposedDpEvent(
        (GumbelMaxDpEvent(30.0, 1, 3), GaussianSumsDpEvent(10.0, 2.0))
    )
    assert event == dp_accounting.SelfComposedDpEvent(both, 4)


@pytest.mark.check
@pytest.mark.parametrize("wrong", [0.7, 1.0, 1.3])
def test_choices_and_sums_have_the_noise_that_is_charged(
    wrong: float, domain_of: MakeDomain, table_of: MakeTable
) -> None:
    """The scale is that of the event: a right one is refused with chance 1e-7."""
    domain, streams, noise = domain_of(2, 2, 2, 2), Streams.fresh(), 6.0
    codes = np.zeros((8, 4), np.uint16)
    codes[:, 1], codes[:3, 3] = np.arange(8) % 2, 1
    table, exact = table_of(domain, codes), np.array(plain_sums(codes, FAMILIES))
    screen = screen_of(domain, 1, noise * wrong)
    told = [screen.run(table, streams)[0] for _ in range(8000)]
    places = {tuple(screen.signs[k] for k in screen.places(i)): i for i in range(len(exact))}
    chosen = Counter((places[one.factors],) for one in told)
    right = order_p_value(chosen, order_law(np.abs(exact), noise, 1)) > SIGNIFICANCE
    assert right == (wrong == 1.0)
    noises = np.array([one.noisy - exact[places[one.factors]] for one in told])
    # rounding adds a twelfth to the variance
    squares = float((noises**2).sum()) / (noise**2 + 1 / 12)
    chance = 2 * min(stats.chi2.cdf(squares, len(noises)), stats.chi2.sf(squares, len(noises)))
    assert (chance > SIGNIFICANCE) == (wrong == 1.0)


def test_a_parity_is_told_once_and_survives_the_journal(
    domain_of: MakeDomain, table_of: MakeTable
) -> None:
    """3000 rows under noise of scale 1, and a floor that chance does not pass."""
    domain, rng = domain_of(2, 2, 2, 2), np.random.default_rng(0)
    codes = rng.integers(0, 2, (3000, 4)).astype(np.uint16)
    codes[:, 0] = codes[:, 1] ^ codes[:, 2] ^ (rng.random(3000) < 0.1)
    signs = signs_of(domain)
    model = PackedSigns.of(rng.integers(0, 2, (8000, 4)).astype(np.uint16), domain, signs)
    screen = InteractionScreen(domain, 5, 1.0).choose(
        signs, FAMILIES, model, rows=3000.0, floor=400.0
    )
    told = screen.run(table_of(domain, codes), Streams.fresh())
    assert told[0].factors == signs[:3] and told[0].noisy > 2000
    assert len(told) == 2 and abs(told[1].apart) < 400  # nothing else, and there it ends
    assert screen.unpack(screen.pack(told)) == told and screen.unpack(screen.pack(())) == ()
    kept = screen.pack(told)
    for wrong in (
        {"columns": kept["columns"] + 4},
        {"columns": kept["columns"][:, :2]},
        {"minus": kept["minus"].astype(bool)},
        {"sums": kept["sums"][:1]},
    ):
        with pytest.raises(ValueError, match="not"):
            screen.unpack(kept | wrong)
    with pytest.raises(ValueError, match="not"):
        screen.unpack(screen.pack(told * 3))


def test_what_was_told_is_known_whatever_signs_are_chosen_anew(domain_of: MakeDomain) -> None:
    """A run that goes on chooses its signs on other rows."""
    domain = domain_of(2, 3, 3)
    other = Sign("c", (True, False, True))
    signs = (*signs_of(domain), SameLevel("b", "c"), other)
    drawn = PackedSigns.of(np.zeros((0, 3), np.uint16), domain, signs)
    budget = InteractionScreen(domain, 3, 1.0)
    first = budget.choose(signs, (Family((0,), 3, 5),), drawn, rows=1.0, floor=0.0)
    told = (ToldSum((signs[0], signs[3]), 7, -2), ToldSum((signs[0], signs[1], other), 3, 1))
    again = budget.choose(signs[:1], (), drawn, rows=1.0, floor=0.0)
    assert again.unpack(first.pack(told)) == told


def test_what_one_sum_explains_moves_what_is_expected_of_others(
    domain_of: MakeDomain, table_of: MakeTable
) -> None:
    """Two columns that are equal in the model: what goes with one is not told of the other."""
    domain, rng = domain_of(2, 2, 2, 2), np.random.default_rng(1)
    codes = rng.integers(0, 2, (4000, 4)).astype(np.uint16)
    codes[:, 2] = codes[:, 1]
    codes[:, 0] = codes[:, 1]
    signs = signs_of(domain)
    for alike, expected in ((True, 2), (False, 3)):
        drawn = rng.integers(0, 2, (8000, 4)).astype(np.uint16)
        drawn[:, 2] = drawn[:, 1] if alike else drawn[:, 2]
        model = PackedSigns.of(drawn, domain, signs)
        screen = InteractionScreen(domain, 5, 1.0).choose(
            signs, FAMILIES[:1], model, rows=4000.0, floor=500.0
        )
        assert len(screen.run(table_of(domain, codes), Streams.fresh())) == expected


def test_wrong_signs_and_families_are_refused(domain_of: MakeDomain, table_of: MakeTable) -> None:
    domain = domain_of(2, 3)
    budget, signs = InteractionScreen(domain, 1, 1.0), signs_of(domain)
    drawn = PackedSigns.of(np.zeros((0, 2), np.uint16), domain, signs)
    wrong: list[tuple[Any, Any]] = [
        ((Sign("b", (True, False)),), ()),
        (signs, (Family((0,), 1, 3),)),
        (signs, (Family((0,), 1, 1),)),
        (signs, (Family((), 0, 1),)),
        (signs * 3, (Family((0, 1, 2, 3, 4), 5, 6),)),
    ]
    for own, families in wrong:
        with pytest.raises(ValueError, match="sign"):
            budget.choose(own, families, drawn, rows=1.0, floor=0.0)
    none = budget.choose(signs, (), drawn, rows=1.0, floor=0.0)
    assert none.run(table_of(domain, np.zeros((4, 2))), Streams.fresh()) == ()
    assert none.unpack(none.pack(())) == ()
    with pytest.raises(ValueError, match="no such product"):
        none.places(0)
