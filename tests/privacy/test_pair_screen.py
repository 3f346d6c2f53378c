"""The screen of pairs: what a row moves a score by, the law of what is told, and its charge."""

import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import dp_accounting
import numpy as np
import pytest

from synthdp.data import ColumnDomain, Domain, LevelGroups
from synthdp.privacy import GumbelMaxDpEvent, InteractionScreen, accounting
from synthdp.privacy import noise_for as noise_of_choices
from synthdp.privacy.accounting import Adjacency
from synthdp.privacy.mechanisms import pair_screen
from synthdp.privacy.mechanisms.pair_screen import (
    COUNTING,
    MAX_LEVELS,
    MOVES,
    CountingSettings,
    PairScreen,
    association_scores,
    distances,
    noise_for,
)
from synthdp.privacy.noise import Streams
from synthdp.privacy.table import Table
from tests.privacy.conftest import SIGNIFICANCE, numeric_domain, order_law, order_p_value

MakeDomain = Callable[..., Domain]
MakeTable = Callable[[Domain, Any], Table]


def exact_norm(table: Any) -> Fraction:
    """|| T - r c^T / n ||_1, in fractions: another way to the score."""
    rows = int(table.sum())
    if not rows:
        return Fraction(0)
    r, c = table.sum(1).tolist(), table.sum(0).tolist()
    cells = product(range(len(r)), range(len(c)))
    return sum((abs(int(table[i, j]) - Fraction(r[i] * c[j], rows)) for i, j in cells), Fraction(0))


def all_pairs(domain: Domain) -> tuple[tuple[str, str], ...]:
    return tuple(combinations(domain.names, 2))


def levels_of(domain: Domain, rows: int, rng: np.random.Generator) -> Any:
    """Levels that depend on each other."""
    common = rng.random(rows)
    return np.column_stack(
        [((common + rng.random(rows)) / 2 * size).astype(np.uint16) for size in domain.sizes]
    )


@pytest.mark.parametrize("most", [4, 9, MAX_LEVELS])
def test_scores_are_the_floor_of_the_norm_however_the_columns_are_cut(
    most: int, domain_of: MakeDomain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair_screen, "MAX_LEVELS", most)
    monkeypatch.setattr(pair_screen, "COUNTING", CountingSettings(block_rows=7))
    domain, rng = domain_of(2, 4, 3, 3, 1, 5), np.random.default_rng(0)
    pairs = (*all_pairs(domain)[::-1], ("c", "a"))
    for rows in (0, 1, 2, 7, 61):
        codes = levels_of(domain, rows, rng)
        scores = association_scores(codes, LevelGroups(domain, {}), pairs)
        for pair, score in zip(pairs, scores.tolist(), strict=True):
            a, b = (domain.index(name) for name in pair)
            table = np.zeros((domain.sizes[a], domain.sizes[b]), dtype=np.int64)
            np.add.at(table, (codes[:, a], codes[:, b]), 1)
            assert score == math.floor(exact_norm(table))
        assert rows < 60 or scores.max() > 10


def test_scores_on_groups_are_those_of_the_coarser_columns() -> None:
    domain = numeric_domain("x", "y")
    groups = LevelGroups(domain, {"x": (0, 2)})
    codes = levels_of(domain, 50, np.random.default_rng(1))
    coarse = np.column_stack([codes[:, 0] // 2, codes[:, 1]])
    score = association_scores(codes, groups, [("x", "y")])
    assert score == association_scores(coarse, LevelGroups(groups.coarse, {}), [("x", "y")])
    assert score != association_scores(codes, LevelGroups(domain, {}), [("x", "y")])


@pytest.mark.check
@pytest.mark.parametrize("rows_of_unit", [1, 3])
def test_no_unit_moves_a_score_further_than_is_charged(rows_of_unit: int) -> None:
    """One unit in any cells, on many tables; and some unit moves it as far as is charged."""
    rng, furthest, replaced = np.random.default_rng(0), 0, 0
    for _ in range(400):
        shape = tuple(rng.integers(1, 9, 2))
        law = rng.dirichlet(np.full(math.prod(shape), rng.choice([0.05, 0.5, 5.0])))
        table = rng.multinomial(rng.choice([0, 1, 5, 200, 5000]), law).reshape(shape)
        apart = exact_norm(table)
        units = [
            rng.multinomial(rows_of_unit, np.eye(table.size)[cell]).reshape(shape)
            for cell in {0, table.size - 1, int(table.argmin())}
        ]
        moved = [exact_norm(table + unit) for unit in units]
        for norm in moved:
            assert abs(norm - apart) < MOVES * rows_of_unit
            furthest = max(furthest, abs(math.floor(norm) - math.floor(apart)))
        for one, other in combinations(moved, 2):
            assert abs(one - other) < 2 * MOVES * rows_of_unit
            replaced = max(replaced, abs(math.floor(one) - math.floor(other)))
    assert MOVES * rows_of_unit - 1 <= furthest <= MOVES * rows_of_unit
    # one unit replaces another: by less than twice that, and by more than once
    assert replaced <= 2 * MOVES * rows_of_unit


def test_sums_beyond_64_bits_are_whole_and_exact() -> None:
    rows = 3 * COUNTING.many_rows
    half = rows // 2
    counts = np.diag([float(half), float(half)])
    margin, starts = np.array([float(half), float(half)]), np.array([0])
    assert distances(rows, counts, margin, margin, starts, starts).tolist() == [[rows]]


# --- what is told ---

SCORES = np.array([0, 3, 5, 5], dtype=np.int64)


def drawn(scale: float) -> Counter[tuple[int, ...]]:
    streams = Streams.fresh()
    return Counter(
        tuple(streams.noisy_top(SCORES, scale=scale, count=2).tolist()) for _ in range(8000)
    )


@pytest.mark.check
def test_the_largest_have_the_law_of_their_scale_and_no_other() -> None:
    """A right one is refused with chance 1e-7. Wrong ones fail at 1e-20 and below."""
    counts, scale = drawn(3.0), 3.0
    assert order_p_value(counts, order_law(SCORES, scale, 2)) > SIGNIFICANCE
    for wrong in (0.7, 1.3):
        assert order_p_value(counts, order_law(SCORES, scale * wrong, 2)) < SIGNIFICANCE
        assert order_p_value(drawn(scale * wrong), order_law(SCORES, scale, 2)) < SIGNIFICANCE


@pytest.mark.check
@pytest.mark.parametrize("wrong", [0.7, 1.0, 1.3])
def test_a_screen_draws_the_noise_that_it_charges(
    wrong: float, domain_of: MakeDomain, table_of: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scale is that of the event: a right one is refused with chance 1e-7."""
    domain = domain_of(2, 2, 2)
    screen = PairScreen(domain, kept=1, noise=2.0 * wrong).choose(all_pairs(domain))
    scores = np.array([0, 8, 16], dtype=np.int64)
    monkeypatch.setattr(pair_screen, "association_scores", lambda *_: scores)
    table, streams = table_of(domain, np.zeros((4, 3))), Streams.fresh()
    told = Counter((all_pairs(domain).index(screen.run(table, streams)[0]),) for _ in range(8000))
    charged = PairScreen(domain, kept=1, noise=2.0).event(1).event
    assert charged == GumbelMaxDpEvent(8.0, MOVES)
    right = order_p_value(told, order_law(scores, charged.scale, 1)) > SIGNIFICANCE
    assert right == (wrong == 1.0)


@pytest.mark.parametrize(
    ("rows", "adjacency"), [(1, "add_remove"), (3, "add_remove"), (1, "replace_one")]
)
def test_two_that_are_told_cost_no_more_than_is_charged(
    rows: int, adjacency: Adjacency, domain_of: MakeDomain
) -> None:
    """The exact law of both places, over scores and all moves of them."""
    screen = PairScreen(domain_of(2, 2, 2), kept=2, noise=9.0)
    moved = MOVES * rows * (2 if adjacency == "replace_one" else 1)
    profile = dict(
        accounting.delta_profile(
            [screen.event(rows)], epsilons=(0.0, 0.1, 0.3), adjacency=adjacency
        )
    )
    worst = dict.fromkeys(profile, 0.0)
    for scores in product((0, 30, 60), repeat=3):
        one = np.array(list(order_law(scores, 36.0, 2).values()))
        for moves in product((-moved, 0, moved), repeat=3):
            other = order_law([s + m for s, m in zip(scores, moves, strict=True)], 36.0, 2)
            gap = one[None] - np.exp(list(worst))[:, None] * np.array(list(other.values()))
            found = np.maximum(gap, 0).sum(1)
            worst = {e: max(worst[e], f) for e, f in zip(worst, found, strict=True)}
    for epsilon, charged in profile.items():
        assert worst[epsilon] <= charged
    assert worst[0.0] > 0.5 * profile[0.0]


def test_a_strong_pair_is_told_and_survives_the_journal(
    domain_of: MakeDomain, table_of: MakeTable
) -> None:
    """Two pairs of 2000 rows under noise of scale 4: another is told with chance exp(-200)."""
    domain, rng = domain_of(3, 3, 3, 3), np.random.default_rng(0)
    codes = rng.integers(0, 3, (2000, 4)).astype(np.uint16)
    codes[:, 2] = codes[:, 0]
    codes[:1500, 3] = codes[:1500, 1]
    screen = PairScreen(domain, kept=2, noise=1.0).choose(all_pairs(domain))
    told = screen.run(table_of(domain, codes), Streams.fresh())
    assert told == (("a", "c"), ("b", "d"))
    assert screen.unpack(screen.pack(told)) == told
    assert screen.unpack(screen.pack(())) == ()
    for wrong in ([[0, 4]], [[0, 1, 2]], [[0, 1]] * 3, [[0.0, 1.0]]):
        with pytest.raises(ValueError, match="not"):
            screen.unpack({"pairs": np.array(wrong)})
    none = PairScreen(domain, kept=2, noise=1.0).choose(())
    assert none.run(table_of(domain, codes), Streams.fresh()) == ()


def test_a_column_of_too_many_levels_is_refused(domain_of: MakeDomain) -> None:
    screen = PairScreen(domain_of(2, MAX_LEVELS + 1, 2), kept=1, noise=1.0)
    assert screen.choose([("a", "c")]).pairs == (("a", "c"),)
    with pytest.raises(ValueError, match="2049 levels; at most 2048"):
        screen.choose([("a", "b")])


@pytest.mark.parametrize(
    ("kind", "kept", "noise"),
    [(PairScreen, 900, noise_for(0.3, 900)), (InteractionScreen, 8, noise_of_choices(0.3, 8))],
)
def test_noise_is_that_of_a_gaussian_as_costly(kind: Any, kept: int, noise: float) -> None:
    """Within a tenth: where a calibration starts."""
    domain = Domain((ColumnDomain("x", "categorical", ("p", "q"), False),))
    screen = kind(domain, kept, noise)
    costs = [
        accounting.epsilon([event], delta=1e-6, adjacency="add_remove")
        for event in (screen.event(1), dp_accounting.GaussianDpEvent(1 / 0.3))
    ]
    assert costs[0] == pytest.approx(costs[1], rel=0.1)
    assert screen.scaled(2.0).noise == 2 * screen.noise
