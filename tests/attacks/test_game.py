"""The game: what differs between worlds, who is split from whom, and that the bits stay with the
game.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synthdp_attacks import (
    AttackError,
    Codes,
    Fleet,
    FleetError,
    Game,
    Public,
    ThreatModel,
    Trainer,
    play,
)
from tests.attacks.runners import deadly

TARGET = np.array([9, 9, 9])
ROWS = np.arange(120).reshape(40, 3) % 7 + np.arange(40)[:, None] * 10 + 100  # every row is unique


def echo(rows: Codes, *, seed_sequence: np.random.SeedSequence) -> Codes:
    """A releaser that publishes its training rows: lets a test see what was trained on."""
    return rows


def has_target(rows: Codes) -> bool:
    return bool((rows == TARGET).all(axis=1).any())


def echoed(
    folder: Path,
    *,
    target: Codes = TARGET,
    trainer: Trainer = echo,
    pairs: int = 8,
    seed: int = 1,
    fleet: dict[str, Any] | None = None,
    **more: Any,
) -> Game:
    own, rng = Fleet(folder=folder / "f", **(fleet or {})), np.random.default_rng(seed)
    return play(ROWS, target, trainer, pairs=pairs, rng=rng, fleet=own, **more)


def test_bits_are_true_and_half_the_pairs_are_challenges(tmp_path: Path) -> None:
    game = echoed(tmp_path, pairs=9)
    assert [has_target(s) for s in game.shadows] == game.shadow_members.tolist()
    outcome = game.reveal(np.array([1.0 if has_target(s) else -1.0 for s in game.challenges]))
    assert ((outcome.scores > 0) == outcome.members).all()
    assert (len(game.shadows), len(game.challenges)) == (8, 10) and outcome.members.sum() == 5
    assert repr(game) == "Game(lost=0)"  # neither rows nor bits in a log or a traceback


def test_a_score_is_needed_for_each_challenge(tmp_path: Path) -> None:
    game = echoed(tmp_path)
    for bad in (np.zeros(3), np.full(8, np.nan)):
        with pytest.raises(AttackError, match="one finite score"):
            game.reveal(bad)


def test_add_remove_drops_the_target_and_nothing_else(tmp_path: Path) -> None:
    game = echoed(tmp_path)
    for rows, member in zip(game.shadows, game.shadow_members, strict=True):
        assert len(rows) == 40 + member
        rest = rows[~(rows == TARGET).all(axis=1)]
        assert (np.sort(rest[:, 0]) == np.sort(ROWS[:, 0])).all()
    assert game.row_counts_differ(Public((1000,) * 3))


def test_of_rows_of_several_kinds_the_first_alone_are_counted(tmp_path: Path) -> None:
    """Persons are as many as were asked for; how many visits they have is for attacks to see."""
    game = echoed(tmp_path)
    for last, told in ((9, False), (10, True)):  # the target is of the second kind, or the first
        assert game.row_counts_differ(Public((last + 1, 1000, 1000), (1, 2))) == told


def test_replace_one_puts_a_fresh_row_in_its_place(tmp_path: Path) -> None:
    game = echoed(tmp_path, threat=ThreatModel(relation="replace_one", rows=20))
    assert {len(rows) for rows in game.shadows} == {21} and not game.row_counts_differ(
        Public((1000,) * 3)
    )
    for pair in np.unique(game.shadow_pairs):
        first, second = (
            {tuple(r) for r in game.shadows[i]} for i in np.flatnonzero(game.shadow_pairs == pair)
        )
        assert len(first - second) == len(second - first) == 1 and tuple(TARGET) in first ^ second


def test_the_target_has_no_fixed_place_among_the_rows(tmp_path: Path) -> None:
    game = echoed(tmp_path, pairs=20)
    places = {
        int(np.flatnonzero((s == TARGET).all(axis=1))[0]) for s in game.shadows if has_target(s)
    }
    assert len(places) > 5


def rest_of(rows: Codes) -> frozenset[int]:
    return frozenset(int(v) for v in rows[:, 0]) - {int(TARGET[0])}


def test_models_of_a_pair_share_the_rest_and_are_never_split(tmp_path: Path) -> None:
    game = echoed(tmp_path, threat=ThreatModel(knowledge="reference", rows=15), pairs=12)
    shadow_rests, challenge_rests = (
        [rest_of(s) for s in game.shadows],
        [rest_of(s) for s in game.challenges],
    )
    assert len(set(shadow_rests)) == len(shadow_rests) / 2 == 6
    assert not set(shadow_rests) & set(challenge_rests)
    for pair in np.unique(game.shadow_pairs):
        assert (
            len({rest_of(game.shadows[i]) for i in np.flatnonzero(game.shadow_pairs == pair)}) == 1
        )


def test_with_knowledge_of_the_rest_all_models_share_it(tmp_path: Path) -> None:
    game = echoed(tmp_path, threat=ThreatModel(rows=15))
    assert len({rest_of(s) for s in (*game.shadows, *game.challenges)}) == 1


def test_in_a_control_the_target_is_in_neither_world(tmp_path: Path) -> None:
    played = echoed(tmp_path, control=True)
    assert not any(has_target(s) for s in (*played.shadows, *played.challenges))
    reused = echoed(tmp_path / "other", pairs=16).control(np.random.default_rng(2))
    assert not any(has_target(s) for s in (*reused.shadows, *reused.challenges))
    assert len(reused.shadows) + len(reused.challenges) == 8


def noisy(rows: Codes, *, seed_sequence: np.random.SeedSequence) -> Codes:
    return np.random.default_rng(seed_sequence.spawn(1)[0]).choice(rows, size=10)


def released(game: Game) -> list[list[list[int]]]:
    return [s.tolist() for s in (*game.shadows, *game.challenges)]


def test_models_are_independent_of_each_other(tmp_path: Path) -> None:
    game = echoed(tmp_path, trainer=noisy, pairs=6)
    assert len({str(s) for s in released(game)}) == 12


def test_the_same_seed_continues_and_another_is_refused(tmp_path: Path) -> None:
    first = echoed(tmp_path)
    before = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "f").iterdir()}
    assert released(echoed(tmp_path)) == released(first)
    assert {p.name: p.stat().st_mtime_ns for p in (tmp_path / "f").iterdir()} == before
    for changed in ({"seed": 2}, {"threat": ThreatModel(rows=10)}, {"control": True}):
        with pytest.raises(FleetError, match="another run"):
            echoed(tmp_path, **changed)


def test_pairs_spoilt_by_a_killing_training_are_dropped_whole(tmp_path: Path) -> None:
    game = echoed(tmp_path, pairs=6, fleet={"runner": deadly, "attempts": 2})
    assert game.lost == 1 and len(game.shadows) + len(game.challenges) == 10
    assert sum(game.shadow_members) == len(game.shadows) / 2


REFUSED: dict[str, dict[str, Any]] = {
    "pairs=3": {"pairs": 3},
    "one encoding": {"target": TARGET[:2]},
    "lower `rows`": {"threat": ThreatModel(relation="replace_one", rows=40)},
    "say how many": {"threat": ThreatModel(knowledge="reference")},
    "returned float64": {"trainer": lambda rows, *, seed_sequence: rows / 2},
}


@pytest.mark.parametrize("told", REFUSED)
def test_what_cannot_be_played_is_refused(tmp_path: Path, told: str) -> None:
    with pytest.raises(AttackError, match=told):
        echoed(tmp_path, **REFUSED[told])


def test_an_unknown_relation_is_refused() -> None:
    with pytest.raises(AttackError, match="allowed: add_remove, replace_one"):
        ThreatModel(relation="bounded")  # type: ignore[arg-type]


def test_codes_outside_the_domain_are_refused() -> None:
    public = Public((2, 3))
    assert public.checked(np.array([[1, 2]]), "t").tolist() == [[1, 2]]
    for bad in (
        np.array([[2, 0]]),
        np.array([[-1, 0]]),
        np.array([[0.0, 1.0]]),
        np.array([[0, 1, 1]]),
    ):
        with pytest.raises(AttackError, match=r"^t: "):
            public.checked(bad, "t")
