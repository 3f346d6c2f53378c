"""Groups by released one-way tables, and margins that hear what was counted on groups."""

import numpy as np
import pytest

from synthdp.data import ColumnDomain, Domain, LevelGroups
from synthdp.graph import with_group_sums
from synthdp.graph.level_groups import (
    SETTINGS,
    LevelLaw,
    equal_groups,
    groups_of,
    on_groups,
    starts_of,
)
from synthdp.graph.predict import pair_tables
from synthdp.privacy.mechanisms.marginals import NoisyTable


def numeric(name: str, bins: int, *, spikes: int = 0, missing: bool = False) -> ColumnDomain:
    labels = tuple(f"v{i}" for i in range(spikes + bins + missing))
    edges = tuple(float(i) for i in range(bins))
    return ColumnDomain(
        name, "number", labels, missing, tuple(-1.0 - i for i in range(spikes)), edges, float(bins)
    )


def test_groups_have_about_equal_mass_and_heavy_levels_are_alone() -> None:
    column = numeric("x", 200, spikes=2, missing=True)
    rng = np.random.default_rng(0)
    for shape in (np.ones(200), rng.gamma(0.3, size=200), np.exp(-np.arange(200) / 20.0)):
        mass = shape / shape.sum()
        mass[77] = 0.3
        margin = np.concatenate([[0.2, 0.1], 0.6 * mass / mass.sum(), [0.1]])
        starts = starts_of(column, margin)
        assert starts[:3] == (0, 1, 2) and starts[-1] == 202
        assert {79, 80} <= set(starts), "level 77 of the bins is a group"
        grouped = np.add.reduceat(margin, starts)[2:-1] / 0.6
        most = np.maximum.reduceat(margin[2:-1], np.array(starts[2:-1]) - 2) / 0.6
        assert len(grouped) <= 2 * SETTINGS.max_groups
        assert (grouped <= 1.5 / SETTINGS.max_groups + most).all()


def test_few_levels_and_categories_stay() -> None:
    few, many = numeric("few", SETTINGS.few_bins), numeric("many", SETTINGS.few_bins + 1)
    words = ColumnDomain("words", "categorical", tuple(map(str, range(50))), False)
    domain = Domain((few, many, words))
    groups = equal_groups(domain, [np.full(size, 1 / size) for size in domain.sizes])
    assert list(groups.starts) == ["many"]


def test_tables_say_their_groups() -> None:
    domain = Domain((numeric("a", 6), numeric("b", 4)))
    starts = {"a": (0, 2, 5)}
    own = NoisyTable(("b",), np.ones(4), 1.0)
    pair = NoisyTable(("b", "a"), np.ones((4, 3)), 2.0, starts)
    assert groups_of([own, pair], domain) == LevelGroups(domain, starts)
    assert own.has(["b"]) and pair.has(["b"]) and not pair.has(["a"]) and not own.has(["a"])
    whole = NoisyTable(("b", "a"), np.arange(24.0).reshape(4, 6), 2.0)
    coarse = on_groups(whole, groups_of([pair], domain))
    assert coarse.starts == starts and coarse.sigma == pytest.approx(2 * np.sqrt(2))
    np.testing.assert_array_equal(coarse.counts[0], [0 + 1, 2 + 3 + 4, 5])
    np.testing.assert_array_equal(on_groups(pair, groups_of([pair], domain)).counts, pair.counts)


def test_sums_over_groups_make_levels_more_precise_and_move_none() -> None:
    """Chance to fail: below 1e-6 (mean of 4000 draws within 6 of its standard deviations)."""
    rng, starts = np.random.default_rng(1), (0, 3, 4)
    truth = np.array([50.0, 10, 0, 300, 7, 7, 7, 7])
    plain, moved, stated = [], [], 0.0
    for _ in range(4000):
        one_way = NoisyTable(("x",), truth + rng.normal(0, 10, 8), 10.0)
        sums = np.add.reduceat(truth, starts) + rng.normal(0, 4, 3)
        counted = NoisyTable(("x",), sums, 4.0, {"x": starts})
        found = with_group_sums([one_way, counted], "x")
        plain.append(one_way.counts)
        moved.append(found.counts)
        stated = found.sigma
    error = np.array(moved) - truth
    assert (np.abs(error.mean(0)) < 6 * error.std(0) / np.sqrt(4000)).all()
    assert (error.std(0) < 10).all() and error.std(0)[3] == pytest.approx(3.714, rel=0.1)
    assert np.sqrt((error**2).mean()) == pytest.approx(stated, rel=0.05)
    grouped = np.add.reduceat(error, starts, axis=1).std(0)
    exact = [(1 / (size * 100) + 1 / 16) ** -0.5 for size in (3, 1, 4)]
    np.testing.assert_allclose(grouped, exact, rtol=0.1, err_msg="that of both measurings together")


def test_pairs_are_over_groups_and_levels_follow_the_one_way_law() -> None:
    domain = Domain((numeric("a", 40), numeric("b", 3)))
    rng = np.random.default_rng(2)
    rows = np.stack([rng.integers(0, 40, 20_000), np.zeros(20_000, int)], 1)
    rows[:, 1] = rows[:, 0] // 14
    one_way = [
        NoisyTable((c.name,), np.bincount(rows[:, i], minlength=c.levels).astype(float), 1.0)
        for i, c in enumerate(domain.columns)
    ]
    law = LevelLaw(equal_groups(domain, [t.counts / 20_000 for t in one_way]), one_way)
    coarse = law.groups.of(rows)
    counts = np.zeros((law.groups.coarse["a"].levels, 3))
    np.add.at(counts, (coarse[:, 0], coarse[:, 1]), 1)
    tables = [*one_way, NoisyTable(("a", "b"), counts, 1.0, law.groups.starts)]
    seen = pair_tables(LevelLaw.of_tables(tables, domain))
    assert seen.dependent == (("a", "b"),)
    assert seen.table("a", "b").shape == counts.shape
    assert np.abs(seen.table("a", "b") - counts / 20_000).sum() / 2 < 0.01
    own = LevelLaw.of_tables(tables, domain)
    drawn = own.drawn(coarse, rng=rng)
    spread = np.bincount(drawn[:, 0], minlength=40) / 20_000
    assert np.abs(spread - one_way[0].counts / 20_000).sum() / 2 < 0.01
    assert [len(p) for p in own.coarse_margins] == list(own.groups.coarse.sizes)
