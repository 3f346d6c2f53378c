"""The game where a unit has several rows: the worlds differ in all of them, and they count
together.
"""

from pathlib import Path

import numpy as np
import pytest

from synthdp_attacks import (
    AttackError,
    Codes,
    Fleet,
    FleetError,
    Game,
    MembershipReport,
    NoisyCounts,
    Others,
    Public,
    ThreatModel,
    WhiteBox,
    apart,
    attack_membership,
    column_subsets,
    declared_targets,
    isolated_targets,
    isolation,
    play,
    random_targets,
    table_score,
    targeted,
)

UNITS = np.repeat(np.arange(12) * 10, 3)  # numbers that are no positions
ROWS = np.stack([np.arange(36), UNITS], axis=1)  # every row is unique, and names its unit
TARGET = np.array([[900, 901], [902, 901]])


def echo(rows: Codes, *, seed_sequence: np.random.SeedSequence) -> WhiteBox:
    """Publishes its training rows, and how many of them a row is."""
    return WhiteBox(rows, {"copies": lambda row: float((rows == row).all(axis=1).sum())})


def echoed(folder: Path, *, units: Codes = UNITS, **threat: object) -> Game:
    return play(
        ROWS,
        TARGET,
        echo,
        pairs=8,
        rng=np.random.default_rng(1),
        fleet=Fleet(folder=folder / "f"),
        threat=ThreatModel(**threat),  # type: ignore[arg-type]
        units=units,
    )


def units_of(rows: Codes) -> list[int]:
    """The units in a released table, which has all rows of each."""
    names, counts = np.unique(rows[:, 1], return_counts=True)
    assert all(counts == np.where(names == 901, len(TARGET), 3))
    return [int(name) for name in names]


def test_worlds_differ_in_all_rows_of_the_target_and_in_nothing_else(tmp_path: Path) -> None:
    game = echoed(tmp_path)
    for rows, member in zip(game.shadows, game.shadow_members, strict=True):
        assert len(rows) == 36 + 2 * member
        assert units_of(rows) == [*np.unique(UNITS).tolist(), *([901] if member else [])]
    copies = game.shadow_scores["copies"]
    assert (copies == 2 * game.shadow_members).all()  # a score is the sum over the unit's rows


def test_another_unit_stands_in_with_all_of_its_rows(tmp_path: Path) -> None:
    game = echoed(tmp_path, relation="replace_one", rows=6)
    for pair in np.unique(game.shadow_pairs):
        first, second = (
            set(units_of(game.shadows[i])) for i in np.flatnonzero(game.shadow_pairs == pair)
        )
        assert len(first) == len(second) == 7 and len(first ^ second) == 2 and 901 in first ^ second


def test_other_units_are_drawn_whole(tmp_path: Path) -> None:
    game = echoed(tmp_path, knowledge="reference", rows=5)
    drawn = {tuple(u for u in units_of(s) if u != 901) for s in game.shadows}
    assert {len(units) for units in drawn} == {5} and len(drawn) == 4  # one for each pair


def test_a_game_goes_on_with_the_same_units_alone(tmp_path: Path) -> None:
    game = echoed(tmp_path)
    again = echoed(tmp_path)
    assert all((a == b).all() for a, b in zip(game.shadows, again.shadows, strict=True))
    with pytest.raises(FleetError, match="another"):
        echoed(tmp_path, units=UNITS // 20)


def test_a_unit_is_drawn_with_its_rows() -> None:
    others = Others(ROWS, UNITS[::-1])
    assert others.count == 12
    assert others.of(np.array([0, 11]))[:, 0].tolist() == [33, 34, 35, 0, 1, 2]
    assert Others(ROWS).count == 36 and Others(ROWS).of(np.array([4]))[:, 0].tolist() == [4]
    own, rest = apart(ROWS, 20, UNITS)
    assert own[:, 0].tolist() == [6, 7, 8] and rest.units is not None and 20 not in rest.units


def test_units_and_targets_are_checked(tmp_path: Path) -> None:
    rows, names = np.zeros((4, 2), dtype=int), np.array([5, 5, 7, 7])
    assert declared_targets(rows, [7], names) == (7,)
    for bad in ([0], [7, 7], [-1]):
        with pytest.raises(AttackError, match="with `units`, numbers that stand there"):
            declared_targets(rows, bad, names)
    with pytest.raises(AttackError, match="its number of units"):
        random_targets(rows, 3, np.random.default_rng(1), names)
    assert set(random_targets(rows, 2, np.random.default_rng(1), names)) == {5, 7}
    for units in (UNITS[:-1], UNITS / 2):
        with pytest.raises(AttackError, match="needs a whole number for each of 36 rows"):
            echoed(tmp_path, units=units)


def test_copies_in_one_unit_do_not_hide_each_other() -> None:
    rng = np.random.default_rng(2)
    rows, units = np.repeat(rng.integers(2, size=(30, 1)), 6, axis=1), np.arange(30)
    rows[10:16], units[10:16] = 3, 77  # six rows, alike, unlike all others, of one unit
    rows[20] = [2, 2, 2, 0, 0, 0]
    assert isolation(rows, neighbours=2)[11] == 0
    assert isolation(rows, neighbours=2, units=units)[11] == 1
    assert isolated_targets(rows, 2, rng, units) == (77, 20)
    assert isolated_targets(rows, 1, rng) == (20,)


def test_targeted_queries_are_summed_over_the_rows_of_the_target() -> None:
    rng, public = np.random.default_rng(3), Public((3, 3, 3))
    rows, target = rng.integers(3, size=(40, 3)), rng.integers(3, size=(2, 3))
    together = targeted(public, target, np.random.default_rng(4))(rows)
    alone = [targeted(public, row, np.random.default_rng(4))(rows) for row in target]
    assert (together == alone[0] + alone[1]).all()
    assert len(together) == len(column_subsets(3, 256, rng))


SIGMA, LEVELS, COPIES = 5.0, 4, 5


def counting(rows: Codes, *, seed_sequence: np.random.SeedSequence) -> WhiteBox:
    """Publishes one-way counts with noise, and a table that has nothing to do with its rows."""
    rng = np.random.default_rng(seed_sequence)
    tables = [
        NoisyCounts((c,), np.bincount(column, minlength=LEVELS) + rng.normal(0, SIGMA, LEVELS), 1.0)
        for c, column in enumerate(rows.T)
    ]
    return WhiteBox(rng.integers(LEVELS, size=(20, rows.shape[1])), {"tables": table_score(tables)})


def attacked(folder: Path, *, by_unit: bool) -> MembershipReport:
    rng = np.random.default_rng(6)
    rows, units = rng.integers(LEVELS - 1, size=(60, 4)), np.repeat(np.arange(12), COPIES)
    rows[units == 3] = LEVELS - 1
    assert isolated_targets(rows, 1, rng, units) == (3,)
    return attack_membership(
        rows,
        counting,
        public=Public((LEVELS,) * 4),
        targets=[3] if by_unit else np.flatnonzero(units == 3)[:1],
        pairs=120,
        rng=rng,
        fleet=Fleet(folder=folder),
        main=("tables", "lira_online"),
        extractors=(),
        classifiers=(),
        units=units if by_unit else None,
    )


@pytest.mark.check
def test_rows_of_one_unit_give_it_away_where_one_of_them_does_not(tmp_path: Path) -> None:
    """The best advantage is 2 Phi(mu / 2) - 1. Four tables tell one row by mu = 2 / 5, so .159, and
    five rows, all alike, by mu = 2, so .683.
    """
    row = attacked(tmp_path / "row", by_unit=False)
    unit = attacked(tmp_path / "unit", by_unit=True)
    assert row.main.advantage.upper < unit.main.advantage.lower
    assert unit.main.advantage.lower > 0.4 and unit.main.advantage.contains(0.683)
    assert row.main.advantage.contains(0.159)
    assert "made with the target unit from releases" in unit.conclusion
    assert "made with the target record from releases" in row.conclusion
