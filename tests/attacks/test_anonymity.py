"""Singling out, linkability and inference: outcomes by hand, intervals that cover, power on planted
leaks, silence elsewhere.
"""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from planted_releases import PUBLIC, Trees, leaky, population
from scipy.stats import binom

from synthdp_attacks import (
    GUESSERS,
    AnonymityReport,
    AttackError,
    Codes,
    Public,
    Trials,
    attack_anonymity,
    attack_release,
    clopper_pearson,
    excess,
    inference,
    linkability,
    risk_of,
    singling_out,
)


def asked(share: float, *, rows: int = 300, seed: int = 1) -> AnonymityReport:
    rng = np.random.default_rng(seed)
    members, control = population(rows, rng), population(rows, rng)
    return attack_anonymity(
        leaky(members, share, rng), members, control, public=PUBLIC, secrets=[8], rng=rng
    )


def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def test_risk_is_the_papers_and_its_rates_have_exact_intervals() -> None:
    risk = risk_of("a", attack=Trials(80, 200), control=Trials(40, 160), naive=Trials(20, 200))
    assert risk.risk is not None and risk.risk.value == pytest.approx((0.4 - 0.25) / (1 - 0.25))
    assert (risk.attack, risk.control, risk.naive) == (
        clopper_pearson(80, 200),
        clopper_pearson(40, 160),
        clopper_pearson(20, 200),
    )
    assert risk.shown and risk.warnings == () and risk.guesses == 200


@pytest.mark.check
@pytest.mark.parametrize("guesses", [12, 25])
@pytest.mark.parametrize(
    ("hit", "miss"), [(0.3, 0.3), (0.05, 0.02), (0.95, 0.9), (0.9, 0.3), (0.02, 0.4), (0.5, 0.0)]
)
def test_risk_interval_covers_as_promised(guesses: int, hit: float, miss: float) -> None:
    """Exactly, by summing over every pair of counts; and the lower limit alone errs in at most 1 of
    40 runs.
    """
    truth, k = (hit - miss) / (1 - miss), np.arange(guesses + 1)
    own, other = binom.pmf(k, guesses, hit), binom.pmf(k, guesses, miss)
    covered = above = 0.0
    for a in range(guesses + 1):
        for c in range(guesses + 1):
            found = excess(Trials(a, guesses), Trials(c, guesses))
            covered += (
                own[a]
                * other[c]
                * (found is None or found.lower - 1e-9 <= truth <= found.upper + 1e-9)
            )
            above += own[a] * other[c] * (found is not None and found.lower > truth + 1e-9)
    assert covered >= 0.95 and above <= 0.025


def test_risk_interval_at_its_corners() -> None:
    every, none = excess(Trials(50, 50), Trials(0, 50)), excess(Trials(0, 50), Trials(0, 50))
    assert every is not None and (every.value, every.upper) == (1, 1) and 0.9 < every.lower < 1
    assert none is not None and none.value == 0 and -0.1 < none.lower < 0 < none.upper < 0.1
    assert excess(Trials(3, 50), Trials(50, 50)) is None
    worse = excess(Trials(0, 50), Trials(49, 50))
    assert worse is not None and worse.value == pytest.approx(-49) and worse.upper < 0


def test_what_a_low_risk_may_hide_is_told() -> None:
    def warned(attack: Trials, control: Trials, naive: Trials) -> str:
        return " ".join(risk_of("q", attack=attack, control=control, naive=naive).warnings)

    assert "does not beat the naive guess" in warned(
        Trials(60, 200), Trials(60, 200), Trials(60, 200)
    )
    assert "does not beat the naive guess" in warned(
        Trials(62, 200), Trials(60, 200), Trials(60, 200)
    )
    assert "30 guesses are few" in warned(Trials(25, 30), Trials(60, 200), Trials(0, 30))
    assert "no risk can be told" in warned(Trials(200, 200), Trials(200, 200), Trials(60, 200))
    nothing = risk_of("q", attack=Trials(0, 0), control=Trials(0, 0), naive=Trials(0, 0))
    assert nothing.warnings == ("nothing to guess",)
    assert not nothing.shown
    assert nothing.to_json()["risk"] is None


def test_univariate_predicates_are_levels_of_one_synthetic_row() -> None:
    synthetic = np.array(
        [[0, 0], [1, 0], [1, 2], [0, 0]]
    )  # only level 2 of the second column is of one row
    one, two, none = (
        np.array([[0, 2], [0, 0]]),
        np.array([[0, 2], [1, 2]]),
        np.array([[0, 0], [1, 1]]),
    )
    for members, control, expected in ((one, two, (1, 0)), (one, none, (1, 0)), (two, one, (0, 1))):
        risk = singling_out(synthetic, members, control, public=Public((2, 3)), rng=rng(), width=1)
        assert risk.attack is not None and risk.control is not None
        assert (risk.attack.value, risk.control.value) == expected and risk.guesses == 1


def test_multivariate_predicates_single_out_a_synthetic_row() -> None:
    """A copied table: whatever singles out a synthetic row singles out the row it copies; of fresh
    rows, few.
    """
    members = population(300, rng())
    risk = singling_out(
        members[::-1], members, population(300, np.random.default_rng(4)), public=PUBLIC, rng=rng()
    )
    assert risk.attack is not None and risk.control is not None and risk.naive is not None
    assert risk.attack.value == 1
    assert risk.control.value < 0.4
    assert risk.naive.value < 0.2
    assert risk.guesses > 100
    assert singling_out(members, members, members, public=PUBLIC, rng=rng(), guesses=7).guesses == 7


def test_both_tables_are_cut_to_one_size() -> None:
    """A predicate true of one row in 50 would single out a row of a small table, and never of a
    large one: no sign of a leak.
    """
    draw = np.random.default_rng(5)
    synthetic = population(60, draw)
    small, large = population(60, draw), population(20_000, draw)
    for members, control in ((small, large), (large, small)):
        risk = singling_out(synthetic, members, control, public=PUBLIC, rng=rng())
        assert risk.risk is not None and risk.risk.lower <= 0 <= risk.risk.upper


def test_halves_are_linked_through_their_own_row_only() -> None:
    """All rows differ in both halves: a copied table links everybody, another one nobody."""
    rows = np.stack([np.arange(100), np.arange(100), np.arange(100)], axis=1)
    other = np.stack([np.arange(100), np.roll(np.arange(100), 1), np.arange(100)], axis=1)
    risk = linkability(rows[::-1], rows, other, parties=([0], [1]), rng=rng())
    assert risk.attack is not None and risk.control is not None and risk.naive is not None
    assert (risk.attack.value, risk.control.value) == (1, 0) and risk.naive.value < 0.1
    wide = linkability(rows, other, other, parties=([0], [1]), rng=rng(), neighbours=100)
    assert wide.attack is not None and wide.attack.value == 1


def test_ties_link_by_chance_and_not_by_a_common_rule() -> None:
    """All synthetic rows are equally far: two parties meet as often as two who draw rows at
    random.
    """
    synthetic, targets = np.zeros((50, 2), dtype=int), np.ones((500, 2), dtype=int)
    risk = linkability(synthetic, targets, targets, parties=([0], [1]), rng=rng())
    assert risk.attack is not None and risk.attack.value < 0.06


@pytest.mark.parametrize("guesser", GUESSERS)
def test_secrets_are_guessed_from_what_is_known_and_nothing_else(guesser: str) -> None:
    draw = np.random.default_rng(6)
    known = draw.integers(4, size=(300, 3))
    rows = np.column_stack([known, known[:, 0]])  # the secret is the first column again
    noise = np.column_stack([draw.integers(4, size=(300, 3)), draw.integers(4, size=300)])
    risk = inference(
        rows, rows, noise, public=Public((4,) * 4), secret=3, rng=rng(), guesser=guesser
    )
    assert risk.attack is not None and risk.control is not None and risk.naive is not None
    assert risk.attack.value == 1 and risk.control.value < 0.4
    assert risk.naive.value == pytest.approx(np.bincount(rows[:, 3]).max() / 300)
    blind = inference(
        rows, rows, rows, public=Public((4,) * 4), secret=3, rng=rng(), guesser=guesser, known=[1]
    )
    assert blind.attack is not None and blind.attack.value < 0.5


def test_the_closest_rows_vote() -> None:
    synthetic = np.array([[0, 0, 1], [0, 0, 1], [0, 0, 2], [1, 1, 0]])
    guess = GUESSERS["closest"](
        synthetic[:, :2], synthetic[:, 2], np.array([[0, 0], [1, 1], [2, 0], [2, 2]]), 0
    )
    assert guess.tolist() == [
        1,
        0,
        1,
        1,
    ]  # the last two are one and two columns away from their closest rows


@pytest.mark.check
def test_a_copied_table_shows_every_risk_and_trees_some() -> None:
    report = asked(1.0)
    assert [risk.question for risk in report.risks] == [
        "singling out by one column",
        "singling out by several columns",
        "linking 5 columns with 4",
        "inferring column 8 by closest",
        "inferring column 8 by forest",
    ]
    assert len(report.shown) == 4 and report.shown[0].question == "singling out by several columns"
    assert "4 of 5 attacks learned more" in report.conclusion and "not a proof" in report.conclusion
    draw = np.random.default_rng(7)
    members, control = population(400, draw), population(400, draw)
    trees = attack_anonymity(
        Trees()(members, seed_sequence=np.random.SeedSequence(2)),
        members,
        control,
        public=PUBLIC,
        secrets=[8],
        rng=draw,
    )
    assert "singling out by several columns" in {risk.question for risk in trees.shown}


@pytest.mark.check
def test_a_private_release_shows_no_risk() -> None:
    report = asked(0.0, seed=2)
    assert report.shown == () and report.conclusion.startswith("None of 5 attacks")
    assert "2 of them beat no naive guess" in report.conclusion
    assert [risk.beats_naive for risk in report.risks] == [False, True, False, True, True]
    assert report.risks[0].warnings == (
        "nothing to guess",
    )  # no level of four is of one row among 300
    written = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert written["risks"][0]["risk"] is None and "publish only if" in written["confidential"]
    assert asked(0.0, seed=2) == report


@pytest.mark.check
@pytest.mark.parametrize(
    "form", [lambda table: table.astype(np.uint16), lambda table: table.tolist()]
)
def test_codes_of_any_kind_give_the_same_report(form: Callable[[Codes], Codes]) -> None:
    draw = np.random.default_rng(8)
    tables = [population(60, draw) for _ in range(4)]
    plain, other = (
        (
            attack_anonymity(*made[:3], public=PUBLIC, secrets=[8], rng=np.random.default_rng(9)),
            attack_release(*made, public=PUBLIC, rng=np.random.default_rng(9)),
        )
        for made in (tables, [form(table) for table in tables])
    )
    assert plain == other


PARTIES: list[tuple[Any, str]] = [
    (([0], []), r"^parties\[1\]=\[\]; needs a list of column positions, at least one"),
    (([0, 1], [1, 2]), "both parties hold column 1"),
    (([0], [9]), r"^parties\[1\] names column 9; the table has columns 0 to 8"),
    (([0], [-3]), r"^parties\[1\] names column -3; .* never from the end"),
    (([0, 0], [3]), r"^parties\[0\]=\[0, 0\]; a column stands there twice"),
    (([0],), "needs two lists"),
]


def test_what_cannot_be_asked_is_refused() -> None:
    rows = population(40, rng())
    tables: tuple[Codes, Codes, Codes] = (rows, rows, rows)
    with pytest.raises(AttackError, match="1 to 9 columns"):
        singling_out(*tables, public=PUBLIC, rng=rng(), width=10)
    with pytest.raises(AttackError, match="no multivariate"):
        singling_out(rows[:, :1], rows[:, :1], rows[:, :1], public=Public((4,)), rng=rng())
    for parties, told in PARTIES:
        for asked in (
            lambda p: linkability(*tables, parties=p, rng=rng()),
            lambda p: attack_anonymity(*tables, public=PUBLIC, secrets=[], parties=p, rng=rng()),
        ):
            with pytest.raises(AttackError, match=told):
                asked(parties)
    for guesses in (0, -1, 2.5, True):
        for attack in (
            lambda n: linkability(*tables, parties=([0], [1]), rng=rng(), guesses=n),
            lambda n: inference(*tables, public=PUBLIC, secret=2, rng=rng(), guesses=n),
            lambda n: singling_out(*tables, public=PUBLIC, rng=rng(), guesses=n),
            lambda n: attack_anonymity(*tables, public=PUBLIC, secrets=[], rng=rng(), guesses=n),
        ):
            with pytest.raises(
                AttackError, match=f"guesses={guesses}; needs a whole number of at least 1"
            ):
                attack(guesses)
    with pytest.raises(AttackError, match="secrets names column 9; the table has columns 0 to 8"):
        attack_anonymity(*tables, public=PUBLIC, secrets=[0, 9], rng=rng())
    with pytest.raises(AttackError, match="number of synthetic rows, 40"):
        linkability(*tables, parties=([0], [1]), rng=rng(), neighbours=41)
    for secret, known, told in (
        (9, None, "secret names column 9"),
        (2, [2, 3], "leave it out there"),
        (2, [], "at least one"),
        (2, [11], "known names column 11"),
        (2, [1, 1], "stands there twice"),
    ):
        with pytest.raises(AttackError, match=told):
            inference(*tables, public=PUBLIC, secret=secret, known=known, rng=rng())
    with pytest.raises(AttackError, match="unknown guesser mlp; known: closest, forest"):
        inference(*tables, public=PUBLIC, secret=2, guesser="mlp", rng=rng())
    with pytest.raises(AttackError, match="control has 9 rows"):
        attack_anonymity(rows, rows, rows[:9], public=PUBLIC, secrets=[0], rng=rng())
    with pytest.raises(AttackError, match=r"^members: a code lies outside"):
        attack_anonymity(rows, rows + 4, rows, public=PUBLIC, secrets=[0], rng=rng())
    with pytest.raises(AttackError, match="one column"):
        attack_anonymity(
            rows[:, :1], rows[:, :1], rows[:, :1], public=Public((4,)), secrets=[0], rng=rng()
        )


GAMES = 300


def rare(rows: Codes, draw: np.random.Generator) -> Codes:
    """The rows and a column of 1000 levels, of which most that occur occur once: something for the
    univariate predicates.
    """
    return np.column_stack([rows, np.minimum(draw.geometric(1 / 150, size=len(rows)), 999)])


@pytest.mark.slow
def test_false_alarms_and_power_of_each_question(figure: Callable[..., None]) -> None:
    """Private releases, and releases that copy half of their rows, 300 games each on 300 rows."""
    public = Public((*PUBLIC.sizes, 1000))
    shown: dict[str, list[int]] = {}
    for seed in range(GAMES):
        for place, share in enumerate((0.0, 0.5)):
            draw = np.random.default_rng(seed)
            members, control, fresh = (rare(population(300, draw), draw) for _ in range(3))
            copied = np.concatenate([members[: round(share * 300)], fresh[round(share * 300) :]])
            tables = (copied, members, control)
            for risk in attack_anonymity(
                *tables,
                public=public,
                secrets=[8],
                parties=([0, 2, 4, 6, 8], [1, 3, 5, 7, 9]),
                rng=draw,
            ).risks:
                shown.setdefault(risk.question, [0, 0])[place] += risk.shown
    assert len(shown) == 5
    for question, (alarms, caught) in shown.items():
        figure(f"one release, {question}: private releases without an alarm", GAMES - alarms, GAMES)
        figure(f"one release, {question}: releases with half of copies caught", caught, GAMES)
        assert alarms <= binom.ppf(0.999, GAMES, 0.025), (question, alarms)
        assert caught > GAMES / 5, (question, caught)
