"""White-box attacks: scores of the target travel with the game, and the likelihood ratios are as
good as theory allows and no better.
"""

from collections.abc import Callable
from math import exp
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom, norm
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis

from synthdp_attacks import (
    FALSE_ALARMS,
    LIKELIHOODS,
    MAIN,
    AttackError,
    CategoricalKernel,
    Claim,
    Codes,
    Counts,
    Fleet,
    MembershipReport,
    NoisyCounts,
    OfflineLira,
    OnlineLira,
    Public,
    ThreatModel,
    Trainer,
    WhiteBox,
    advantage,
    attack_membership,
    best_table_advantage,
    play,
    table_ratio,
    table_score,
)

ROWS = np.random.default_rng(0).integers(3, size=(60, 4))
PUBLIC = Public((3,) * 4)
PAIRS = ((0, 1), (2, 3), (1, 2))


def noisy_tables(
    rows: Codes, sigma: float, rng: np.random.Generator, *, said: float | None = None
) -> list[NoisyCounts]:
    """Three pair tables with Gaussian noise of `sigma` counts, which call it `said`."""
    exact = [np.bincount(3 * rows[:, a] + rows[:, b], minlength=9).reshape(3, 3) for a, b in PAIRS]
    return [
        NoisyCounts(pair, counts + rng.normal(scale=sigma, size=(3, 3)), said or sigma)
        for pair, counts in zip(PAIRS, exact, strict=True)
    ]


def releaser(sigma: float, *, rest: Codes | None = None, said: float | None = None) -> Trainer:
    """Publishes noisy tables, and a synthetic set that is pure noise; whoever knows `rest` has the
    exact ratio.
    """

    def train(rows: Codes, *, seed_sequence: np.random.SeedSequence) -> WhiteBox:
        rng = np.random.default_rng(seed_sequence)
        tables = noisy_tables(rows, sigma, rng, said=said)
        scores = {"tables": table_score(tables)} | (
            {"ratio": table_ratio(tables, rest)} if rest is not None else {}
        )
        return WhiteBox(rng.integers(3, size=(30, 4)), scores)

    return train


def attacked(
    folder: Path,
    trainer: Trainer,
    *,
    pairs: int = 100,
    seed: int = 1,
    judge: str = "lira_online",
    **more: object,
) -> MembershipReport:
    defaults: dict[str, object] = {
        "main": ("tables", judge),
        "extractors": (),
        "classifiers": (),
        "targets": [0],
    }
    return attack_membership(
        ROWS,
        trainer,
        public=PUBLIC,
        pairs=pairs,
        rng=np.random.default_rng(seed),
        fleet=Fleet(folder=folder),
        **{**defaults, **more},  # type: ignore[arg-type]
    )


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Balle and Wang (2018), Theorem 8 (v3), for tables that are mu-GDP."""
    return float(norm.cdf(mu / 2 - epsilon / mu) - exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu))


def test_ratio_is_the_one_of_the_two_gaussians() -> None:
    rng = np.random.default_rng(3)
    tables, target = (
        [
            NoisyCounts(t.columns, t.counts, s)
            for t, s in zip(noisy_tables(ROWS, 2.0, rng), (2.0, 1.0, 0.5), strict=True)
        ],
        ROWS[5],
    )
    expected = 0.0
    for table in tables:
        count = sum(
            tuple(row[list(table.columns)]) == tuple(target[list(table.columns)]) for row in ROWS
        )
        seen = table.counts[tuple(target[list(table.columns)])]
        expected += norm.logpdf(seen, count + 1, table.sigma) - norm.logpdf(
            seen, count, table.sigma
        )
    assert table_ratio(tables, ROWS)(target) == pytest.approx(expected)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
def test_table_attacks_are_as_strong_as_the_closed_form(sigma: float) -> None:
    """20,000 noise draws of each world: the exact ratio attains 2 Phi(mu / 2) - 1, and the plain
    score only needs the right threshold.
    """
    rng, target, rest = np.random.default_rng(4), ROWS[0], ROWS[1:]
    mu = np.sqrt(3) / sigma
    scores = {}
    for member, rows in ((True, ROWS), (False, rest)):
        clean = noisy_tables(rows, 1e-12, rng)
        noise = rng.normal(scale=sigma, size=(20_000, 3))
        draws = [
            [NoisyCounts(t.columns, t.counts + n, sigma) for t, n in zip(clean, row, strict=True)]
            for row in noise[:2_000]
        ]
        ratios = np.array([table_ratio(tables, rest)(target) for tables in draws])
        sums = np.array([table_score(tables)(target) for tables in draws])
        assert np.corrcoef(ratios, sums)[0, 1] == pytest.approx(1)
        assert (sums.mean(), sums.std()) == (pytest.approx(sums.mean()), pytest.approx(1, abs=0.06))
        scores[member] = (ratios, sums)
    gap = (scores[True][0] > 0).mean() - (scores[False][0] > 0).mean()
    assert gap == pytest.approx(2 * norm.cdf(mu / 2) - 1, abs=0.05)
    assert best_table_advantage(noisy_tables(ROWS, sigma, rng)) == pytest.approx(
        2 * norm.cdf(mu / 2) - 1
    )
    assert scores[True][1].mean() - scores[False][1].mean() == pytest.approx(mu, abs=0.12)


def test_online_ratio_is_quadratic_discriminant_analysis() -> None:
    rng = np.random.default_rng(5)
    members = np.arange(60) % 2 == 0
    scores = rng.normal(size=(60, 1)) * np.where(members, 2.0, 1.0)[:, None] + members[:, None]
    asked = np.linspace(-6, 6, 25)[:, None]
    reference = (
        QuadraticDiscriminantAnalysis(priors=[0.5, 0.5])
        .fit(scores, members)
        .decision_function(asked)
    )
    assert OnlineLira().fit(scores, members).decision_function(asked) == pytest.approx(reference)


def test_offline_ratio_looks_at_models_without_the_target_only() -> None:
    rng = np.random.default_rng(6)
    members = np.arange(4000) % 2 == 0
    scores = rng.normal(3, 2, size=(4000, 1))
    other = np.where(members[:, None], 99.0, scores)
    fitted = OfflineLira().fit(scores, members)
    assert (
        fitted.decision_function(scores)
        == OfflineLira().fit(other, members).decision_function(scores)
    ).all()
    assert (fitted.decision_function(scores) > 0).mean() == pytest.approx(FALSE_ALARMS, abs=0.02)
    assert np.diff(fitted.decision_function(np.array([[1.0], [2.0]])))[0] == pytest.approx(
        0.5, abs=0.02
    )


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_scores_that_do_not_vary_stay_finite(name: str) -> None:
    members = np.arange(10) % 2 == 0
    same, apart = np.zeros((10, 1)), members[:, None] * 1e6
    assert np.isfinite(LIKELIHOODS[name]().fit(same, members).decision_function(same)).all()
    judged = LIKELIHOODS[name]().fit(apart, members).decision_function(apart)
    assert np.isfinite(judged).all() and ((judged > 0) == members).all()


def test_scores_of_the_target_keep_their_model_and_their_bit(tmp_path: Path) -> None:
    """A score that counts the target's copies in the training rows: the game must lay it beside the
    right set and bit.
    """

    def telling(rows: Codes, *, seed_sequence: np.random.SeedSequence) -> WhiteBox:
        return WhiteBox(
            rows,
            {
                "copies": lambda record: float((rows == record).all(axis=1).sum()),
                "rows": lambda record: float(len(rows)),
            },
        )

    target = np.array([9, 9, 9, 9])
    game = play(
        ROWS, target, telling, pairs=9, rng=np.random.default_rng(1), fleet=Fleet(folder=tmp_path)
    )
    assert game.shadow_scores["copies"].tolist() == game.shadow_members.astype(float).tolist()
    assert game.shadow_scores["rows"].tolist() == [len(s) for s in game.shadows]
    outcome = game.reveal(game.challenge_scores["copies"] - 0.5)
    assert ((outcome.scores > 0) == outcome.members).all()
    control = play(
        ROWS,
        target,
        telling,
        pairs=20,
        rng=np.random.default_rng(1),
        fleet=Fleet(folder=tmp_path / "c"),
    ).control(np.random.default_rng(2))
    assert not control.shadow_scores["copies"].any()
    assert not control.challenge_scores["copies"].any()
    assert control.shadow_scores["rows"].tolist() == [len(s) for s in control.shadows]
    assert "copies" not in repr(game)


def test_a_verdict_of_tables_reaches_what_theory_allows(tmp_path: Path) -> None:
    """mu = 3.5: the best advantage is .917; the claim of epsilon 1 is refuted, as the black box
    cannot.
    """
    report = attacked(
        tmp_path,
        releaser(0.5, rest=ROWS[1:]),
        pairs=60,
        claim=Claim(1.0, 1e-5),
        extractors=("histogram",),
        classifiers=("logistic",),
    )
    best = 2 * norm.cdf(np.sqrt(3)) - 1
    assert (report.main.extractor, report.main.classifier) == ("tables", "lira_online")
    assert (
        report.main.advantage.contains(best) and report.refutes_claim and report.epsilon_lower > 1.5
    )
    assert report.control is not None and report.control.contains(0)
    rows = {(row.extractor, row.classifier): row for row in report.table}
    assert set(rows) == {
        ("histogram", "logistic"),
        *((s, j) for s in ("tables", "ratio") for j in LIKELIHOODS),
    }
    assert rows["ratio", "lira_online"].advantage.contains(best)
    assert rows["tables", "lira_offline"].auc.value > 0.95
    assert rows["histogram", "logistic"].advantage.value < 0.5
    assert report.to_json()["main"]["extractor"] == "tables"


@pytest.mark.check
def test_an_impostor_with_a_tenth_of_its_noise_passes_the_black_box_and_fails_the_white_one(
    tmp_path: Path,
) -> None:
    """Tables said to have noise for epsilon 1 and given a tenth of it, behind a synthetic set that
    shows nothing.
    """
    said = 7.0
    claim = Claim(
        1.0,
        1e-5,
        tuple(
            (float(e), max(0.0, gaussian_delta(e, np.sqrt(3) / said)))
            for e in np.linspace(0, 1, 11)
        ),
    )
    impostor = releaser(said / 10, said=said)
    white = attacked(tmp_path, impostor, claim=claim)
    black = attacked(tmp_path, impostor, claim=claim, main=("targeted", "random_forest"))
    assert white.refutes_claim and not black.refutes_claim and black.main.advantage.contains(0)
    honest = attacked(tmp_path / "honest", releaser(said), claim=claim)
    assert not honest.refutes_claim


@pytest.mark.check
def test_a_white_box_declared_beside_the_black_one_refutes_for_both(tmp_path: Path) -> None:
    """The impostor again, in one report: what one attack finds speaks for all, and all share the 5%
    of error.
    """
    impostor, claim = releaser(0.3, said=7.0), Claim(1.0, 1e-5)
    both = attacked(
        tmp_path,
        impostor,
        claim=claim,
        pairs=50,
        main=("targeted", "random_forest"),
        also=(("tables", "lira_online"),),
    )
    black, white = both.declared
    assert [v.name for v in both.declared] == [
        "targeted with random_forest",
        "tables with lira_online",
    ]
    assert not black.refutes_claim and white.refutes_claim and both.refutes_claim
    assert "The attack tables with lira_online refutes the claim" in both.conclusion
    assert [a["refutes_claim"] for a in both.to_json()["declared"]] == [False, True]
    alone = attacked(tmp_path, impostor, claim=claim, pairs=50)
    assert 0 < white.epsilon_lower < alone.epsilon_lower
    assert both.epsilon_provable < alone.epsilon_provable
    assert white.row == alone.main and both.main.advantage.contains(0)
    blind = attacked(
        tmp_path / "blind",
        releaser(1e6, said=7.0),
        claim=claim,
        pairs=50,
        main=("targeted", "random_forest"),
        also=(("tables", "lira_online"),),
    )
    assert not blind.refutes_claim and "None of 2 attacks" in blind.conclusion
    with pytest.raises(AttackError, match="unknown judge of tables random_forest"):
        attacked(tmp_path / "no", releaser(1.0), also=(("tables", "random_forest"),))


@pytest.mark.check
def test_a_model_that_learnt_its_rows_by_heart_is_seen_by_its_likelihood_on_every_target(
    tmp_path: Path,
) -> None:
    """A kernel density of half of the rows, drawn afresh for each model: the target's
    log-likelihood says whether it is among them.
    """

    def remembering(rows: Codes, *, seed_sequence: np.random.SeedSequence) -> WhiteBox:
        rng = np.random.default_rng(seed_sequence)
        model = CategoricalKernel(PUBLIC, rows, 0.1)
        sampled = rng.integers(3, size=(30, 4))
        return WhiteBox(
            sampled, {"likelihood": lambda record: float(model.log_density(record[None, :])[0])}
        )

    threat = ThreatModel(relation="replace_one", knowledge="reference", rows=30)
    for judge in LIKELIHOODS:
        report = attacked(
            tmp_path,
            remembering,
            main=("likelihood", judge),
            targets=[0, 7],
            threat=threat,
            pairs=40,
        )
        assert report.main.auc.value >= 0.8
        assert report.main.models == 40
        assert all(gap.value > 0.2 for gap in report.per_target)
        assert report.control is not None and report.control.contains(0)


@pytest.mark.check
def test_a_white_box_that_ignores_its_rows_gives_nothing_away(tmp_path: Path) -> None:
    def ignorant(rows: Codes, *, seed_sequence: np.random.SeedSequence) -> WhiteBox:
        rng = np.random.default_rng(seed_sequence)
        return WhiteBox(
            rng.integers(3, size=(30, 4)),
            {"elbo": lambda record: float(rng.normal()), "constant": lambda record: 1.0},
        )

    for judge in LIKELIHOODS:
        report = attacked(tmp_path, ignorant, main=("elbo", judge), claim=Claim(0.1, 0.0), seed=2)
        assert report.main.advantage.contains(0)
        assert report.main.auc.contains(0.5)
        assert not report.refutes_claim
        assert all(row.advantage.contains(0) and row.auc.contains(0.5) for row in report.table)
        assert len(report.table) == 4


@pytest.mark.check
def test_what_cannot_be_scored_is_refused(tmp_path: Path) -> None:
    def scoring(score: Callable[[Codes], float], name: str = "elbo") -> Trainer:
        return lambda rows, *, seed_sequence: WhiteBox(ROWS, {name: score})

    with pytest.raises(AttackError, match="score elbo of the target is not one finite number"):
        attacked(tmp_path / "a", scoring(lambda record: -np.inf), main=("elbo", "lira_online"))
    with pytest.raises(AttackError, match="not one finite number"):
        attacked(tmp_path / "b", scoring(lambda record: record), main=("elbo", "lira_online"))  # type: ignore[arg-type,return-value]
    with pytest.raises(AttackError, match="is named naive, which is an extractor"):
        attacked(
            tmp_path / "c", scoring(lambda record: 0.0, "naive"), main=("targeted", "logistic")
        )
    with pytest.raises(
        AttackError, match=r"unknown extractor or white-box score elbo; .*returned tables"
    ):
        attacked(tmp_path / "d", releaser(1.0), pairs=10, main=("elbo", "lira_online"))
    with pytest.raises(
        AttackError, match="unknown judge of tables random_forest; known: lira_online, lira_offline"
    ):
        attacked(tmp_path / "e", releaser(1.0), main=("tables", "random_forest"))
    with pytest.raises(AttackError, match="different names"):
        attacked(
            tmp_path / "f",
            lambda rows, *, seed_sequence: WhiteBox(rows, {str(len(rows)): lambda record: 0.0}),
            main=MAIN,
        )
    with pytest.raises(AttackError, match="one axis for each"):
        NoisyCounts((0, 1), np.zeros(3), 1.0)
    with pytest.raises(AttackError, match="above 0"):
        NoisyCounts((0,), np.zeros(3), 0.0)
    with pytest.raises(AttackError, match="no noisy tables"):
        table_score([])


@pytest.mark.slow
def test_false_alarms_and_power_of_each_ratio(figure: Callable[..., None]) -> None:
    """Shadow and challenge scores as the tables give them, without the game around: 4000 plays of
    50 + 50 models.
    """
    rng, plays, models = np.random.default_rng(8), 4000, 100
    members = np.arange(models) % 2 == 0
    for name, make in LIKELIHOODS.items():
        for world, shift in (("without the target", 0.0), ("power against mu = 1", 1.0)):
            alarms = 0
            for _ in range(plays):
                shadows, challenges = (
                    rng.normal(size=(models, 1)) + shift * members[:, None] for _ in range(2)
                )
                scores = make().fit(shadows, members).decision_function(challenges)
                alarms += not advantage(Counts.at(scores, members)).contains(0)
            if shift:
                assert alarms > 0.4 * plays
                figure(f"{name}: {world}, intervals that exclude 0", alarms, plays)
            else:
                assert alarms <= binom.ppf(0.999, plays, 0.05)
                figure(f"{name}: {world}, intervals that contain 0", plays - alarms, plays)


@pytest.mark.slow
def test_noisy_tables_are_refuted_where_their_claim_is_false_and_only_there(
    tmp_path: Path, figure: Callable[..., None]
) -> None:
    """Whole games of 60 pairs: the exact profile of the tables as claim, with all of their noise
    and with a fifth of it.
    """
    games, sigma = 60, 2.0
    claim = Claim(
        1.0,
        gaussian_delta(1.0, np.sqrt(3) / sigma),
        tuple((float(e), gaussian_delta(e, np.sqrt(3) / sigma)) for e in np.linspace(0, 3, 31)),
    )
    refuted = dict.fromkeys((sigma, sigma / 5), 0)
    controls = 0
    for real in refuted:
        for seed in range(games):
            report = attacked(
                tmp_path / f"{real}-{seed}",
                releaser(real, said=sigma),
                pairs=60,
                seed=seed,
                claim=claim,
            )
            refuted[real] += report.refutes_claim
            controls += report.control is not None and report.control.contains(0)
    figure("noisy tables: true claims not refuted", games - refuted[sigma], games)
    figure("noisy tables: a fifth of the noise, refuted", refuted[sigma / 5], games)
    assert refuted[sigma] <= binom.ppf(0.999, games, 0.05) and refuted[sigma / 5] > 0.9 * games
    assert controls >= 2 * games - binom.ppf(0.999, 2 * games, 0.05)
