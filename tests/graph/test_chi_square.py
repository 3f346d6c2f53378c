"""The noise-aware chi-square: size, power, agreement with Pearson's, and its three answers."""

import numpy as np
import pytest
from scipy.stats import chi2_contingency

from synthdp.graph import NoisyTables
from synthdp.graph.chi_square import Margins, answers, mixture_of
from synthdp.privacy.mechanisms.marginals import NoisyTable
from tests.graph.oracle import chi_square


def noisy(
    shares: np.ndarray, rows: int, sigma: float, runs: int, rng: np.random.Generator
) -> np.ndarray:
    """Tables `[runs, *shares.shape]` of multinomial counts with rounded Gaussian noise."""
    counts = (
        rng.multinomial(rows, shares.ravel() / shares.sum(), size=runs)
        .reshape(runs, *shares.shape)
        .astype(float)
    )
    return counts + np.rint(rng.normal(0, sigma, counts.shape))


def independent(
    shape: tuple[int, int, int], sparsity: float, rng: np.random.Generator
) -> np.ndarray:
    strata, rows, columns = shape
    weights = rng.dirichlet(np.full(strata, 2.0))
    margins = [
        np.outer(rng.dirichlet(np.full(rows, sparsity)), rng.dirichlet(np.full(columns, sparsity)))
        for _ in range(strata)
    ]
    return np.stack([w * m for w, m in zip(weights, margins, strict=True)])


def rejected(tables: np.ndarray, sigma: float) -> float:
    answers = chi_square(tables, np.full(len(tables), sigma), level=0.05, margin=0.1)
    return float(np.mean([a.verdict == "dependent" for a in answers]))


def test_without_noise_it_is_pearsons_statistic() -> None:
    table = np.array([[[[200.0, 310.0, 90.0], [150.0, 220.0, 130.0]]]])
    (answer,) = chi_square(table, np.zeros(1), level=0.05, margin=0.1)
    pearson = chi2_contingency(table[0, 0], correction=False)
    assert answer.statistic == pytest.approx(pearson.statistic, rel=1e-9)
    assert answer.p_value == pytest.approx(pearson.pvalue, rel=1e-6)


@pytest.mark.parametrize("sigma", [0.0, 10.0, 300.0])
@pytest.mark.parametrize(
    ("shape", "sparsity"), [((1, 2, 2), 2.0), ((4, 3, 3), 0.3), ((16, 2, 3), 0.3)]
)
def test_size_quick(shape: tuple[int, int, int], sparsity: float, sigma: float) -> None:
    rng = np.random.default_rng(7)
    tables = noisy(independent(shape, sparsity, rng), 20_000, sigma, 600, rng)
    assert rejected(tables, sigma) <= 0.07 + 2 * np.sqrt(0.07 * 0.93 / 600)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [2_000, 20_000, 100_000])
@pytest.mark.parametrize("sigma", [0.0, 1.0, 10.0, 50.0, 300.0])
@pytest.mark.parametrize(
    "shape", [(1, 2, 2), (1, 3, 3), (1, 6, 6), (4, 2, 2), (9, 3, 4), (16, 2, 3)]
)
@pytest.mark.parametrize("sparsity", [0.3, 2.0])
def test_size(rows: int, sigma: float, shape: tuple[int, int, int], sparsity: float) -> None:
    rng = np.random.default_rng(11)
    tables = noisy(independent(shape, sparsity, rng), rows, sigma, 4000, rng)
    assert rejected(tables, sigma) <= 0.07


def test_understated_noise_is_noticed() -> None:
    rng = np.random.default_rng(3)
    tables = noisy(independent((1, 3, 3), 2.0, rng), 20_000, 300.0, 400, rng)
    assert rejected(tables, 200.0) > 0.2


@pytest.mark.parametrize("sigma", [0.0, 100.0])
def test_power_is_as_stated(sigma: float) -> None:
    """At the effect that is called detectable, about four of five runs find it (2 x 2: the effect
    is exact).
    """
    rng = np.random.default_rng(5)
    (flat,) = chi_square(np.full((1, 1, 2, 2), 5_000.0), np.array([sigma]), level=0.05, margin=0.1)
    shares = 0.25 * (1 + flat.detectable * np.array([[[1.0, -1.0], [-1.0, 1.0]]]))
    assert rejected(noisy(shares, 20_000, sigma, 1500, rng), sigma) == pytest.approx(0.8, abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize(
    ("levels", "rows", "sigma"), [(3, 2000, 20), (5, 20_000, 60), (12, 20_000, 30)]
)
@pytest.mark.parametrize("skew", [0.0, 1.0, 1.5, 2.5])
@pytest.mark.parametrize("effect", [0.05, 0.1, 0.25])
def test_what_is_excluded_is_not_there(
    pooled: bool, levels: int, rows: int, sigma: float, skew: float, effect: float
) -> None:
    """In 95 of 100 draws: an effect that is spread over all levels, in any direction, is not both
    overlooked and above the bound. One among rare levels alone may be, and the words say so.
    """
    rng, false = np.random.default_rng(8), 0
    law = 1 / np.arange(1, levels + 1) ** skew
    law /= law.sum()
    root, names = np.sqrt(law), ("a", "b")
    for _ in range(400):
        z = rng.standard_normal((levels, levels))
        z -= np.outer(root, root @ z)
        z -= np.outer(z @ root, root)
        table = np.outer(law, law) + effect * np.outer(root, root) * z / np.linalg.norm(z)
        table = np.maximum(table, 0) / np.maximum(table, 0).sum()
        apart = np.outer(table.sum(1), table.sum(0))
        counts = rng.multinomial(rows, table.ravel()).reshape(table.shape)
        noisy = NoisyTable(names, counts + rng.normal(0, sigma, counts.shape), sigma)
        ones = [
            NoisyTable((name,), counts.sum(1 - i) + rng.normal(0, sigma, levels), sigma)
            for i, name in enumerate(names)
        ]
        tables = NoisyTables([noisy], ones if pooled else ())
        (answer,) = tables.average_partial([("a", "b", ())], level=0.05, margin=0.01)
        true = np.sqrt(((table - apart) ** 2 / apart).sum())
        false += answer.verdict != "dependent" and bool(true > answer.effect_upper)
    assert false <= 400 * 0.05 + 3 * np.sqrt(400 * 0.05 * 0.95)


def test_effect_is_estimated_and_bounded() -> None:
    rng = np.random.default_rng(6)
    shares = 0.25 * (1 + 0.2 * np.array([[[1.0, -1.0], [-1.0, 1.0]]]))
    answers = chi_square(
        noisy(shares, 20_000, 50.0, 500, rng), np.full(500, 50.0), level=0.05, margin=0.1
    )
    assert np.median([a.effect for a in answers]) == pytest.approx(0.2, abs=0.01)
    assert np.mean([a.effect_upper >= 0.2 for a in answers]) >= 0.92


def test_three_answers_and_none_without_data() -> None:
    flat = np.full((1, 1, 2, 2), 10_000.0)
    assert chi_square(flat, np.array([10.0]), level=0.05, margin=0.05)[0].verdict == "independent"
    assert chi_square(flat, np.array([3_000.0]), level=0.05, margin=0.05)[0].verdict == "undecided"
    assert (
        chi_square(
            flat + np.array([[2_000.0, 0], [0, 0]]), np.array([10.0]), level=0.05, margin=0.05
        )[0].verdict
        == "dependent"
    )
    (silent,) = chi_square(np.full((1, 2, 2, 2), -5.0), np.array([10.0]), level=0.05, margin=0.05)
    assert silent.verdict == "undecided" and silent.p_value == 1 and np.isinf(silent.detectable)
    assert silent.to_json()["smallest_detectable_effect"] is None


def test_strata_that_say_nothing_prevent_a_claim_of_independence() -> None:
    table = np.zeros((1, 8, 2, 2))
    table[0, 0] = 2_000.0
    table[0, 1:] = 500.0  # each too small for its noise, together most of the table
    (answer,) = chi_square(table, np.array([400.0]), level=0.05, margin=10.0)
    assert answer.verdict == "undecided"


# --- margins of other tables ---


def skewed(levels: int, w: float) -> np.ndarray:
    """A law `[levels, levels]` with a trend of Cohen's w between columns whose levels fall off."""
    share = 1.0 / np.arange(1, levels + 1) ** 1.5
    share /= share.sum()
    x = np.arange(levels) - (np.arange(levels) * share).sum()
    flat = np.outer(share, share)
    trend = flat * np.outer(x, x)
    size = np.sqrt((trend**2 / flat).sum())
    return np.maximum(flat + w * trend / size, 0.0)


def with_margins(law: np.ndarray, rows: int, sigma: float, of_margins: float, runs: int) -> float:
    """How often a table without strata is rejected with margins of noise `of_margins`."""
    rng = np.random.default_rng(12)
    counts = rng.multinomial(rows, law.ravel() / law.sum(), size=runs).reshape(runs, *law.shape)
    cells = counts + rng.normal(0, sigma, counts.shape)
    left, right = (
        counts.sum(axis) + rng.normal(0, of_margins, (runs, law.shape[2 - axis])) for axis in (2, 1)
    )
    margins = Margins(
        *(left, right, (left.sum(1) + right.sum(1)) / 2),
        (
            *np.full((2, runs), of_margins),
            np.full(runs, of_margins * np.sqrt(sum(law.shape) / 4)),
        ),
    )
    mixture = mixture_of(cells[:, None], np.full(runs, sigma), margins)
    found = answers(mixture, level=0.05, margin=0.1)
    return float(np.mean([a.verdict == "dependent" for a in found]))


@pytest.mark.parametrize("of_margins", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("sigma", [5.0, 30.0, 100.0])
@pytest.mark.parametrize(("shape", "sparsity"), [((2, 8), 2.0), ((6, 6), 0.3), ((12, 12), 0.3)])
def test_size_with_margins_of_other_tables(
    shape: tuple[int, int], sparsity: float, sigma: float, of_margins: float
) -> None:
    law = independent((1, *shape), sparsity, np.random.default_rng(7))[0]
    found = with_margins(law, 5_000, sigma, of_margins * sigma, 600)
    assert found <= 0.07 + 2 * np.sqrt(0.07 * 0.93 / 600)


def test_margins_of_other_tables_show_what_noise_of_many_cells_hides() -> None:
    """A trend of w = .1 in 12 skewed levels; by the table's own margins hardly anything is seen."""
    law = skewed(12, 0.1)
    assert with_margins(law, 20_000, 30.0, 10.0, 200) > 0.9
    assert with_margins(law, 20_000, 30.0, 30.0, 200) > 0.8
    own = noisy(law[None], 20_000, 30.0, 200, np.random.default_rng(3))
    assert rejected(own, 30.0) < 0.3


def test_with_exact_margins_and_without_noise_it_is_pearsons_statistic() -> None:
    table = np.array([[200.0, 310.0, 90.0], [150.0, 220.0, 130.0]])
    margins = Margins(
        table.sum(1)[None], table.sum(0)[None], np.array([table.sum()]), (np.zeros(1),) * 3
    )
    (answer,) = answers(mixture_of(table[None, None], np.zeros(1), margins), level=0.05, margin=0.1)
    pearson = chi2_contingency(table, correction=False)
    assert answer.statistic == pytest.approx(pearson.statistic, rel=1e-6)


def test_tables_lend_each_other_their_margins() -> None:
    """A table's own noise is in no margin; one with more noise than a cell is not used."""
    law, rng = skewed(12, 0.1), np.random.default_rng(4)
    p = {"own": list[float](), "one-way": list[float](), "noisy": list[float]()}
    for _ in range(60):
        counts = rng.multinomial(20_000, law.ravel() / law.sum()).reshape(law.shape)
        pair = NoisyTable(("a", "b"), counts + rng.normal(0, 30, law.shape), 30.0)
        for name, sigma in (("own", None), ("one-way", 15.0), ("noisy", 31.0)):
            one_way = (
                ()
                if sigma is None
                else (
                    NoisyTable((n,), counts.sum(axis) + rng.normal(0, sigma, 12), sigma)
                    for n, axis in (("a", 1), ("b", 0))
                )
            )
            (answer,) = NoisyTables([pair], one_way).answer(
                [("a", "b", ())], level=0.05, margin=0.01
            )
            p[name].append(answer.p_value)
    assert p["own"] == p["noisy"]
    assert np.mean(np.array(p["one-way"]) < 0.05) > 0.8 > 0.3 > np.mean(np.array(p["own"]) < 0.05)
