"""Attacks on one release: each score by hand or brute force, power on planted leaks, and nothing
found where nothing is.
"""

import json
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from planted_releases import PUBLIC, Trees, leaky, population
from scipy.stats import binom

from synthdp_attacks import (
    SCORES,
    AttackError,
    CategoricalKernel,
    Codes,
    Counts,
    Public,
    ShadowFreeReport,
    View,
    advantage,
    attack_release,
    best_threshold,
    closest,
    hamming,
    likeliest_bandwidth,
)


def game(
    share: float, *, rows: int = 200, seed: int = 1, attacks: tuple[str, ...] = tuple(SCORES)
) -> ShadowFreeReport:
    rng = np.random.default_rng(seed)
    members, others, reference = (population(rows, rng) for _ in range(3))
    return attack_release(
        leaky(members, share, rng),
        members,
        others,
        reference,
        public=PUBLIC,
        rng=rng,
        attacks=attacks,
    )


def kernel(x: Codes, row: Codes, sizes: tuple[int, ...], width: float) -> float:
    return float(
        np.prod(
            [
                1.0 if s == 1 else 1 - width if a == b else width / (s - 1)
                for a, b, s in zip(x, row, sizes, strict=True)
            ]
        )
    )


def test_density_is_the_kernels_mean_and_sums_to_one() -> None:
    sizes = (2, 3, 1, 4)
    domain = np.array(list(product(*(range(s) for s in sizes))))
    rows = np.random.default_rng(1).integers(0, sizes, size=(7, 4))
    density = np.exp(CategoricalKernel(Public(sizes), rows, 0.15).log_density(domain))
    assert density == pytest.approx(
        [np.mean([kernel(x, r, sizes, 0.15) for r in rows]) for x in domain], rel=1e-5
    )
    assert density.sum() == pytest.approx(1, rel=1e-5)


def test_leaving_one_out_leaves_out_that_row_only() -> None:
    sizes = (2, 3, 4)
    rows = np.random.default_rng(2).integers(0, sizes, size=(600, 3))  # more than one chunk
    expected = [
        np.log(np.mean([kernel(rows[i], r, sizes, 0.2) for j, r in enumerate(rows) if j != i]))
        for i in (0, 5, 599)
    ]
    own = CategoricalKernel(Public(sizes), rows, 0.2)._log_sums(rows, leave_out=True)[
        [0, 5, 599]
    ] - np.log(599)
    assert own == pytest.approx(expected, rel=1e-5)


def test_bandwidth_is_narrow_where_rows_repeat_and_wide_where_they_do_not() -> None:
    rng = np.random.default_rng(3)
    few, many = np.repeat(rng.integers(4, size=(5, 9)), 60, axis=0), rng.integers(4, size=(300, 9))
    assert likeliest_bandwidth(PUBLIC, few, rng) == 0.01
    assert likeliest_bandwidth(PUBLIC, many, rng) >= 0.3


def test_distances_by_brute_force_over_chunks() -> None:
    rng = np.random.default_rng(4)
    asked, rows = rng.integers(3, size=(50, 6)), rng.integers(3, size=(30, 6))
    brute = np.array([[(a != b).sum() for b in rows] for a in asked])
    parts = list(hamming(asked, rows, cells=100))
    assert len(parts) > 1 and (np.concatenate([d for _, d in parts]) == brute).all()
    assert (closest(asked, rows) == brute.min(axis=1)).all()


def test_distance_scores_by_hand() -> None:
    view = View(
        Public((4, 4, 4)),
        np.array([[0, 0, 0], [0, 0, 1], [3, 3, 3]]),
        np.array([[0, 0, 2], [3, 3, 3]]),
        seed=1,
    )
    asked = np.array([[0, 0, 0], [3, 3, 3], [1, 1, 1], [0, 3, 0]])
    assert SCORES["distance"](view, asked).tolist() == [0, 0, -2, -1]
    assert SCORES["relative_distance"](view, asked).tolist() == [1, 0, 1, 1]
    assert SCORES["monte_carlo"](view, asked) == pytest.approx(
        [1 / 3, 1 / 3, 0, 0]
    )  # radius: the median of 0, 0, 2, 1 is .5
    assert (SCORES["domias"](view, asked)[:1] > 0).all()


@pytest.mark.check
@pytest.mark.parametrize("name", SCORES)
def test_every_score_is_greater_for_copied_rows_and_never_sees_who_is_asked_first(
    name: str,
) -> None:
    rng = np.random.default_rng(5)
    members, others, reference = (population(150, rng) for _ in range(3))
    view = View(PUBLIC, leaky(members, 1.0, rng), reference, seed=3)
    scores = SCORES[name](view, np.concatenate([members, others]))
    assert np.isfinite(scores).all() and scores[:150].mean() > scores[150:].mean()
    order = rng.permutation(300)
    assert np.allclose(SCORES[name](view, np.concatenate([members, others])[order]), scores[order])


def test_threshold_is_the_best_one_and_lies_between_scores() -> None:
    rng = np.random.default_rng(6)
    for _ in range(20):
        members = rng.permutation(np.arange(30) < 12)
        scores = np.round(rng.normal(size=30) + members, 1)
        levels = np.unique(scores)
        tried = [levels[0] - 1, *((levels[:-1] + levels[1:]) / 2), levels[-1] + 1]
        best = max(advantage(Counts.at(scores, members, threshold=t)).value for t in tried)
        assert advantage(
            Counts.at(scores, members, threshold=best_threshold(scores, members))
        ).value == pytest.approx(best)


def test_the_threshold_is_not_fitted_to_what_it_is_measured_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Scores of pure noise: the best threshold on 20 + 20 rows gains .2 or more on those rows, and
    nothing on others.
    """
    rng = np.random.default_rng(7)
    monkeypatch.setitem(SCORES, "domias", lambda view, asked: rng.normal(size=len(asked)))
    monkeypatch.setattr(
        "synthdp_attacks.one_release.population", lambda view, asked: np.zeros(len(asked))
    )
    gaps = [game(0.0, rows=40, seed=seed, attacks=()).main.advantage.value for seed in range(100)]
    assert abs(np.mean(gaps)) < 0.06  # 3.5 standard deviations of the mean


def test_a_copied_table_shows_its_rows_and_the_density_ratio_beats_the_distance() -> None:
    report = game(1.0, rows=250)
    assert report.main.attack == "domias"
    assert report.main.auc.lower > 0.75
    assert report.main.advantage.lower > 0.2
    assert report.control.contains(0.5)
    assert report.conclusion.startswith("The release shows which rows")
    by_name = {row.attack: row.auc.value for row in report.table}
    assert set(by_name) == set(SCORES) and by_name["domias"] > by_name["distance"] > 0.6
    assert "no bound on epsilon" in report.conclusion and "not a proof" in report.conclusion


def test_a_tree_generator_shows_its_rows() -> None:
    rng = np.random.default_rng(8)
    members, others, reference = (population(300, rng) for _ in range(3))
    synthetic = Trees()(members, seed_sequence=np.random.SeedSequence(1))
    assert (
        attack_release(
            synthetic, members, others, reference, public=PUBLIC, rng=rng, attacks=()
        ).main.auc.lower
        > 0.6
    )


def test_a_private_release_shows_nothing_to_any_attack() -> None:
    report = game(0.0, seed=3)
    assert all(row.auc.contains(0.5) and row.advantage.contains(0) for row in report.table)
    assert len(report.table) == len(SCORES)
    assert report.conclusion.startswith("The attack did not tell")


@pytest.mark.parametrize("mixed_in", ["members", "non_members"])
def test_a_reference_that_holds_rows_of_one_side_is_told(mixed_in: str) -> None:
    """Without the warning, control rows in the reference would make an innocent release look
    guilty.
    """
    rng = np.random.default_rng(9)
    sides = {"members": population(200, rng), "non_members": population(200, rng)}
    report = attack_release(
        population(200, rng), **sides, reference=sides[mixed_in], public=PUBLIC, rng=rng, attacks=()
    )
    assert not report.control.contains(0.5) and any("one population" in w for w in report.warnings)
    assert report.conclusion.startswith("Members and control rows differ even")
    assert mixed_in == "members" or report.main.auc.lower > 0.5


def test_rates_that_the_rows_are_too_few_for_are_said_to_be_so() -> None:
    report = game(1.0, rows=120, attacks=("domias",))
    written = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert written["main"]["tpr_at_fpr_0.001"] == "too few control rows: needs 1000, has 120"
    assert 0.1 < written["main"]["tpr_at_fpr_0.01"]["value"] <= 1
    assert any("only 120 rows" in w for w in report.warnings)
    assert any("FPR of 0.001" in w for w in report.warnings)
    assert "publish only if" in written["confidential"] and written["table"] == [written["main"]]


def test_what_cannot_be_attacked_is_refused() -> None:
    rng = np.random.default_rng(10)
    rows = population(40, rng)
    with pytest.raises(AttackError, match="unknown attack dcr; known: domias, logan"):
        attack_release(rows, rows, rows, rows, public=PUBLIC, rng=rng, attacks=("dcr",))
    with pytest.raises(AttackError, match="reference has 9 rows"):
        attack_release(rows, rows, rows, rows[:9], public=PUBLIC, rng=rng)
    with pytest.raises(AttackError, match=r"^synthetic: a code lies outside"):
        attack_release(rows + 4, rows, rows, rows, public=PUBLIC, rng=rng)
    with pytest.raises(AttackError, match="above 0 and below"):
        CategoricalKernel(PUBLIC, rows, 0.5)


GAMES = 300


@pytest.mark.slow
def test_false_alarms_and_power_of_each_attack(figure: Callable[..., None]) -> None:
    """Private releases and releases that copy a fifth of their rows, 300 games each on 4 x 200
    rows.
    """
    quiet = [game(0.0, seed=seed) for seed in range(GAMES)]
    planted = [game(0.2, seed=GAMES + seed) for seed in range(GAMES)]
    limit = binom.ppf(0.999, GAMES, 0.05)
    for place, name in enumerate(SCORES):
        silent = sum(r.table[place].auc.contains(0.5) for r in quiet)
        caught = sum(r.table[place].auc.lower > 0.5 for r in planted)
        gaps = sum(r.table[place].advantage.contains(0) for r in quiet)
        print(f"{name}: advantage silent in {gaps} of {GAMES}")
        assert GAMES - min(silent, gaps) <= limit, (name, silent, gaps)
        figure(f"one release, {name}: private releases without an alarm", silent, GAMES)
        figure(f"one release, {name}: releases with a fifth of copies caught", caught, GAMES)
    assert sum(r.control.contains(0.5) for r in planted) >= GAMES - limit
    assert sum(r.main.auc.lower > 0.5 for r in planted) > GAMES / 3
