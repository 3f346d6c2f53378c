"""Wide tables in mode predict: when a screen chooses pairs, what it finds, and what it spends."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from synthdp.data import ColumnDomain, Domain
from synthdp.graph import COLUMNS, SCREEN, GraphResult, find_graph, predict, rounds
from synthdp.graph.level_groups import LevelLaw
from synthdp.graph.predict import (
    ALL,
    CHOSEN,
    ROUNDS,
    SCREENED,
    SCREENED_SHARES,
    SETTINGS,
    STRONGEST,
    PairTables,
    pair_tables,
    planned_pairs,
    possible_pairs,
    strongest,
)
from synthdp.privacy.mechanisms.marginals import ChosenMarginals, NoisyMarginals, NoisyTable
from synthdp.privacy.mechanisms.pair_screen import MAX_LEVELS, ChosenScreen, PairScreen
from synthdp.privacy.plan import MEASURE, ReleasePlan, needed
from synthdp.privacy.private import Released
from synthdp.privacy.session import Rehearsal
from synthdp.spec.model import Graph

Codes = npt.NDArray[np.uint16]
PREDICT = Graph(mode="predict")
IN_TURN = [COLUMNS, SCREEN, SCREENED, CHOSEN, STRONGEST]


def domain_of(columns: int, *, levels: int = 4) -> Domain:
    labels = tuple(f"v{i}" for i in range(levels))
    return Domain(
        tuple(ColumnDomain(f"c{i}", "categorical", labels, False) for i in range(columns))
    )


# --- the rule ---


def limit(columns: int) -> float:
    """Rows over noise at which a table of so many columns is no longer screened."""
    return ROUNDS.clear * math.sqrt(math.comb(columns, 2))


@pytest.mark.parametrize(
    ("columns", "times", "kept"),
    [
        (40, 0.99, 80),
        (40, 1.01, None),
        (39, 0.01, None),
        (63, 1.01, None),
        (64, 0.99, 128),
        (64, 1.01, 2000),
    ],
)
def test_tables_are_screened_where_noise_hides_pairs_or_there_are_too_many(
    columns: int, times: float, kept: int | None
) -> None:
    """63 columns have 1,953 pairs, 64 have 2,016."""
    domain, over = domain_of(columns), times * limit(columns)
    planned = rounds(PREDICT, domain, rows=1e4, rows_over_noise=over)
    if kept is None:
        assert list(planned) == [ALL, CHOSEN]
        return
    screen = planned[SCREEN](0.3)
    assert list(planned) == IN_TURN and isinstance(screen, PairScreen) and screen.kept == kept
    counts = rounds(PREDICT, domain, rows=1e4, rows_over_noise=over, counts_only=True)
    assert list(counts) == [ALL, CHOSEN]


def test_the_rounds_share_the_whole_budget() -> None:
    """A screen of k pairs starts as k looks of squared mu 1 / noise^2 each."""
    assert sum(SCREENED_SHARES.values()) == pytest.approx(1)
    planned: dict[str, Any] = {
        n: make(0.7)
        for n, make in rounds(PREDICT, domain_of(50), rows=1, rows_over_noise=1).items()
    }
    screen = planned.pop(SCREEN)
    spent = screen.kept / screen.noise**2 + sum(r.noise_multiplier**-2 for r in planned.values())
    assert spent == pytest.approx(0.7**2)


def test_a_screen_looks_at_no_column_that_is_too_wide_for_it() -> None:
    wide = tuple(str(i) for i in range(MAX_LEVELS + 1))
    domain = Domain((*domain_of(3).columns, ColumnDomain("w", "categorical", wide, False)))
    assert len(possible_pairs(domain, ())) == 6
    screened = possible_pairs(domain, (), screened=True)
    assert screened == [("c0", "c1"), ("c1", "c2"), ("c0", "c2")]


# --- what is found and spent ---


class Recorder(Rehearsal):
    """A rehearsal that keeps what it was asked for."""

    asked: dict[str, Any]

    def release(self, mechanism: Any, *, purpose: str) -> Released[Any]:
        self.asked = {**getattr(self, "asked", {}), purpose.removeprefix("graph: "): mechanism}
        return super().release(mechanism, purpose=purpose)


def run(
    codes: Codes, domain: Domain, *, mu: float, targets: Sequence[str] = (), screened: bool = True
) -> tuple[GraphResult, Recorder]:
    over = 1.0 if screened else math.inf
    planned = rounds(PREDICT, domain, rows=len(codes), rows_over_noise=over)
    plan = ReleasePlan(
        1000.0,
        1e-5,
        "add_remove",
        1,
        measure=NoisyMarginals(domain, tuple((name,) for name in domain.names), 20.0),
        graph={name: make(mu) for name, make in planned.items()},
    )
    releaser = Recorder(codes, domain, plan)
    known: Any = releaser.release(needed(plan.measure, MEASURE), purpose=MEASURE)
    return find_graph(releaser, PREDICT, domain, known=known, targets=targets), releaser


def near_functions(columns: int, rows: int) -> Codes:
    """Uniform columns of four levels; c40 repeats c3 turned about, c70 follows c5 mostly."""
    rng = np.random.default_rng(5)
    codes = rng.integers(0, 4, (rows, columns)).astype(np.uint16)
    codes[:, 40] = 3 - codes[:, 3]
    same = rng.random(rows) < 0.9
    codes[same, 70] = codes[same, 5]
    return codes


@pytest.mark.check
def test_a_near_function_among_80_columns_is_found() -> None:
    """At epsilon 1 (mu .26): noise of scale 500 on scores of 3,750 and 3,400, 160 of 3,081 are
    told, which 500 log(3081 / 160) = 1,500 reaches. Cells of 625 rows have noise of 109, then less;
    with all pairs counted it is 290.
    """
    domain, codes = domain_of(80), near_functions(80, 2500)
    result, releaser = run(codes, domain, mu=0.26, targets=["c0"])
    assert {("c3", "c40"), ("c5", "c70")} <= {e.pair for e in result.graph.edges}
    assert result.tables is not None
    measured: Any = result.tables.value
    known = [NoisyTable((n,), np.full(4, 625.0), 10.0) for n in domain.names]
    seen = pair_tables(LevelLaw.of_tables((*known, *measured), domain))
    assert seen.pairs["c3", "c40"].mutual_information > 0.85 * math.log(4)
    assert ("c3", "c40") in releaser.asked[STRONGEST].tables
    of_target = {pair for pair in possible_pairs(domain, ()) if "c0" in pair}
    assert of_target <= set(releaser.asked[SCREENED].tables)
    assert len(releaser.asked[SCREENED].tables) == 79 + 2 * 80


def test_what_a_screen_tells_first_is_measured_a_third_time_though_others_look_stronger() -> None:
    """Pairs of .3 nats score 1,750; noise of scale 37 on 903 pairs, of which 88 are told."""
    rng, domain = np.random.default_rng(5), domain_of(44)
    codes = rng.integers(0, 4, (2500, 44)).astype(np.uint16)
    for first, second in (41, 43), (40, 42):
        same = rng.random(2500) < 0.5
        codes[same, second] = codes[same, first]
    _, releaser = run(codes, domain, mu=2.6, targets=["c0"])
    third = set(releaser.asked[STRONGEST].tables)
    assert {("c41", "c43"), ("c40", "c42")} <= third and len(third) <= SETTINGS.first


@pytest.mark.parametrize("rows", [0, 1, 300], ids=["no row", "one row", "no dependence"])
def test_all_rounds_spend_what_was_planned_whatever_the_rows_say(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predict, "ROUNDS", replace(ROUNDS, min_columns=5))
    codes = np.random.default_rng(0).integers(0, 4, (rows, 6)).astype(np.uint16)
    _, releaser = run(codes, domain_of(6), mu=0.1)
    assert list(releaser.asked) == [MEASURE, *IN_TURN]
    for name, planned in releaser.plan.graph.items():
        mechanism = releaser.asked[name]
        assert isinstance(mechanism, ChosenScreen if name == SCREEN else ChosenMarginals)
        assert mechanism.event(1) == planned.event(1)
    assert releaser.asked[STRONGEST].tables


def test_where_all_columns_are_targets_all_their_pairs_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(predict, "ROUNDS", replace(ROUNDS, min_columns=2))
    domain, codes = domain_of(3), np.zeros((50, 3), np.uint16)
    _, releaser = run(codes, domain, mu=0.1, targets=domain.names)
    assert set(releaser.asked[SCREENED].tables) == set(combinations(domain.names, 2))


def test_a_plan_counts_on_as_many_pairs_as_are_counted() -> None:
    codes, domain = np.zeros((30, 45), np.uint16), domain_of(45)
    _, releaser = run(codes, domain, mu=0.1, targets=["c7"])
    told = planned_pairs(domain, releaser.plan, ["c7"])
    assert len(told) == len(set(told)) == len(releaser.asked[SCREENED].tables) == 44 + 90
    _, plain = run(codes[:, :5], domain_of(5), mu=0.1)
    assert planned_pairs(domain_of(5), plain.plan, ()) == possible_pairs(domain_of(5), ())


def seen(shares: Sequence[float]) -> PairTables:
    """Tables without noise: the share of rows in which both columns of a pair are the same."""
    domain = domain_of(2 * len(shares))
    tables = [NoisyTable((n,), np.full(4, 250.0), 1.0) for n in domain.names]
    for i, share in enumerate(shares):
        counts = 1000 * (share * np.eye(4) / 4 + (1 - share) / 16)
        tables.append(NoisyTable((f"c{2 * i}", f"c{2 * i + 1}"), counts, 1.0))
    return pair_tables(LevelLaw.of_tables(tables, domain))


def test_the_strongest_pairs_are_those_above_half_a_nat() -> None:
    assert strongest(seen([0.3, 1.0, 0.9])) == [("c2", "c3"), ("c4", "c5")]
    assert strongest(seen([0.3, 0.5])) == [("c2", "c3")]
    assert len(strongest(seen([0.0]))) == 1
    told = [("c0", "c1"), ("c4", "c5")]
    assert strongest(seen([0.3, 1.0, 0.9]), told) == [("c2", "c3"), ("c4", "c5"), ("c0", "c1")]
