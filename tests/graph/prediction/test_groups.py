"""Groups by released one-way tables, and margins that hear what was counted on groups."""

from dataclasses import replace

import numpy as np
import pytest

from synthdp.data import ColumnDomain, Domain, LevelGroups
from synthdp.graph import (
    margin_probabilities,
    one_way_probabilities,
    pooled,
    with_group_sums,
)
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


def test_groups_begin_at_round_numbers_and_one_level_stays_alone() -> None:
    money = numeric("x", 200, spikes=1)
    mass = np.exp(-np.arange(200) / 60.0)
    mass[[61, 150]] = 20.0, 10.0
    margin = np.append(0.1, 0.9 * mass / mass.sum())
    plain = starts_of(money, margin)
    groups = equal_groups(Domain((money,)), [margin]).starts["x"]
    assert len(groups) == len(plain) and {0, 1, 62, 63, 151, 152} <= {*plain} & {*groups}
    round_ones, before = (sum(money.edges[n - 1] % 5 == 0 for n in s if n) for s in (groups, plain))
    assert round_ones >= len(groups) - 6 > 2 * before, "all but those beside a single level"
    smallest = np.add.reduceat(margin, plain)[1:].min()
    assert np.add.reduceat(margin, groups)[1:].min() > smallest / 4
    dates = replace(money, type="datetime")
    assert equal_groups(Domain((dates,)), [margin]).starts["x"] == plain, "days have no round ones"


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


@pytest.mark.parametrize("uneven", [True, False])
def test_a_margin_keeps_to_sums_that_smoothing_would_leave(uneven: bool) -> None:
    """The seeds make no chance to fail. Levels of a smooth law are as near as they were."""
    column, rows = numeric("x", 160, spikes=1), 20_000.0
    law = np.exp(-((np.arange(160) - 60) ** 2) / 3000.0)
    starts = (0, *range(1, 161, 10))
    kept, smooth = [], []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        steps = np.repeat(rng.gamma(2.0, size=16), 10) if uneven else np.ones(160)
        truth = np.append(0.1, 0.9 * law * steps / (law * steps).sum())
        own = NoisyTable(("x",), rows * truth + rng.normal(0, 60, 161), 60.0)
        sums = rows * np.add.reduceat(truth, starts) + rng.normal(0, 60, 17)
        tables = [own, NoisyTable(("x",), sums, 60.0, {"x": starts})]
        noisy, total = with_group_sums(tables, "x"), pooled(tables, ()).counts
        margin = margin_probabilities(column, noisy.counts / total, noisy.sigma / total)
        (found,) = one_way_probabilities(tables, [column])
        assert found.min() >= 0 and found.sum() == pytest.approx(1)
        assert found[0] == pytest.approx(margin[0]), "a spike was not smoothed"
        kept.append(np.abs(np.add.reduceat(found - truth, starts)).sum())
        smooth.append(np.abs(np.add.reduceat(margin - truth, starts)).sum())
    assert np.sum(kept) < (0.7 if uneven else 1.05) * np.sum(smooth)


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
