"""Published scores: what one unit moves, what is counted, and that the noise is what is charged."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest

from synthdp.audit import neighbours, replay
from synthdp.data import Codes, Domain
from synthdp.privacy.events.kinds import event_to_json
from synthdp.privacy.mechanisms import scores
from synthdp.privacy.mechanisms.scores import (
    PairSettings,
    ScoreBudget,
    Scorecard,
    ScoreCounts,
    Scored,
    compared,
    mean_misplaced,
)
from synthdp.privacy.noise import Integers, Streams
from synthdp.privacy.table import Table, count_tables
from tests.privacy.conftest import SIGNIFICANCE, Silent, discrete_law, fit_p_value

MakeDomain = Callable[..., Domain]


def drawn(domain: Domain, rows: int, seed: int = 0) -> Codes:
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.integers(0, size, rows) for size in domain.sizes]).astype(np.uint16)


def cards(domain: Domain, targets: Sequence[str], seed: int = 0) -> list[Scorecard]:
    rng = np.random.default_rng(seed)
    return [
        Scorecard(t, tuple(rng.integers(-9, 10, (size, domain[t].levels)) for size in domain.sizes))
        for t in targets
    ]


def chosen(
    domain: Domain, targets: tuple[str, ...] = (), sigma: float = 2.0, rows: int = 5
) -> ScoreCounts:
    return ScoreBudget(domain, targets, sigma).choose(drawn(domain, rows), cards(domain, targets))


def table_of(codes: Codes, held_out: Sequence[int] = ()) -> Table:
    frame = pd.DataFrame(index=pd.RangeIndex(len(codes)))  # scores read levels alone
    return Table(codes, frame, np.isin(np.arange(len(codes)), held_out), {})


def misplaced(real: Codes, synthetic: Codes, domain: Domain, tables: Sequence[Any]) -> int:
    """Of real rows that are counted in memory."""
    return mean_misplaced(lambda some: count_tables(real, domain, some), synthetic, domain, tables)


# --- what one unit moves ---


def test_no_unit_moves_misplaced_rows_further_than_its_rows(domain_of: MakeDomain) -> None:
    """Over all small tables and units of up to two rows; some unit moves them by all its rows."""
    domain = domain_of(2, 2)
    cells = list(itertools.product(range(2), range(2)))
    furthest = {1: 0, 2: 0}

    def of_size(below: int) -> list[Any]:
        each = (itertools.combinations_with_replacement(cells, size) for size in range(below))
        return [*itertools.chain.from_iterable(each)]

    for synthetic in ([(0, 0)], [(0, 0), (1, 1), (1, 1)], [(0, 1), (1, 0)]):
        for tables in compared(domain).values():
            drawn = np.array(synthetic, dtype=np.uint16)
            count = {}
            for rows in of_size(5):
                real = np.array(rows, dtype=np.uint16).reshape(-1, 2)
                count[rows] = misplaced(real, drawn, domain, tables)
            for shared in of_size(3):
                for before, after in itertools.product(of_size(3), of_size(3)):
                    both = (tuple(sorted((*shared, *unit))) for unit in (before, after))
                    one, other = (count[rows] for rows in both)
                    moved, rows = abs(one - other), max(len(before), len(after))
                    assert moved <= rows, (synthetic, shared, before, after)
                    furthest[rows or 1] = max(furthest[rows or 1], moved)
    assert furthest == {1: 1, 2: 2}


def test_no_unit_moves_means_over_many_tables_further(domain_of: MakeDomain) -> None:
    """At random, with wider tables; some move a good part of what is allowed."""
    domain, rng, most = domain_of(3, 5, 2, 4), np.random.default_rng(1), 0
    for trial in range(80):
        k = 1 + trial % 4
        synthetic = drawn(domain, 1 + trial % 9, trial)
        shared = drawn(domain, trial % 30, trial + 1000)
        before, after = (
            drawn(domain, int(rng.integers(0, k + 1)), trial + more) for more in (2000, 3000)
        )
        for tables in compared(domain).values():
            one, two = (
                misplaced(np.vstack([shared, unit]), synthetic, domain, tables)
                for unit in (before, after)
            )
            assert abs(one - two) <= max(len(before), len(after))
            most = max(most, abs(one - two))
    assert most >= 2


@dataclass(frozen=True, eq=False)
class Broken(ScoreCounts):
    """Scores with a hole where a bug goes."""

    bug: Callable[[Scored, Table], Scored] = lambda scored, table: scored
    factor: int = 1

    def run(self, table: Table, randomness: Any) -> Scored:
        class Times(Silent):
            def discrete_gaussian(self, counts: Integers, *, sigma: float) -> Integers:
                noisy: Integers = randomness.discrete_gaussian(counts * outer.factor, sigma=sigma)
                return noisy

        outer = self
        return self.bug(super().run(table, Times.fresh()), table)


def test_the_replay_finds_no_fault_and_would(domain_of: MakeDomain) -> None:
    domain = domain_of(3, 2)
    every = list(neighbours(domain, batch=8, max_rows=2))
    pairs = [*every[::8], *[p for p in every if p.held_out][:3]]
    mechanism = chosen(domain, ("a", "b"))
    right = replay(mechanism, pairs, domain=domain, rows_per_unit=2)
    assert right.findings == () and right.largest_share == 1 and pairs[-1].held_out
    doubled = Broken(mechanism.budget, mechanism.synthetic, mechanism.scorecards, factor=2)
    told = replay(doubled, pairs, domain=domain, rows_per_unit=2).findings
    assert {f.differs for f in told} == {"moved"}

    def exact(scored: Scored, table: Table) -> Scored:
        return Scored(scored.codes, np.array([len(table.codes), 0]), scored.answers, scored.sigma)

    leaks = Broken(mechanism.budget, mechanism.synthetic, mechanism.scorecards, bug=exact)
    told = replay(leaks, pairs, domain=domain, rows_per_unit=2).findings
    assert {f.differs for f in told} >= {"output"}


@pytest.mark.parametrize("rows", [1, 3])
def test_the_event_is_of_each_score_and_of_the_units_rows(rows: int, domain_of: MakeDomain) -> None:
    event = event_to_json(chosen(domain_of(3, 2), ("b",), sigma=7.0).event(rows))
    own = {"event": "discrete_gaussian", "sigma": 7.0, "sensitivity": rows}
    misplaced, answers = ({"event": "repeated", "count": count, "of": own} for count in (2, 1))
    assert event == {"event": "all", "of": [misplaced, {"event": "held_out", "of": answers}]}
    alone = event_to_json(chosen(domain_of(3, 2), (), sigma=7.0).event(rows))
    assert alone == misplaced


@pytest.mark.parametrize("sampler", ["discrete", "rounded"])
def test_a_unit_that_counts_on_the_other_side_of_the_holdout_is_told(
    sampler: Any, domain_of: MakeDomain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held-out rows among the misplaced ones, and fitted rows among answers, are no more than one
    would pay for that knows who is held out.
    """
    domain = domain_of(3, 2)
    every = list(neighbours(domain, batch=8))
    pairs = {False: [p for p in every if not p.held_out][::9]}
    pairs[True] = [p for p in every if p.held_out]
    budget = ScoreBudget(domain, ("a", "b"), 2.0, sampler)
    mechanism = budget.choose(drawn(domain, 5), cards(domain, budget.targets))

    def found(held_out: bool) -> set[str]:
        told = replay(mechanism, pairs[held_out], domain=domain).findings
        return {finding.differs for finding in told}

    assert found(False) == found(True) == set()
    with monkeypatch.context() as patch:
        patch.setattr(Table, "fit_codes", property(lambda table: table.codes))
        assert (found(False), found(True)) == (set(), {"moved"})
    true = Table.add_up
    with monkeypatch.context() as patch:
        patch.setattr(Table, "add_up", lambda table, what, side: true(table, what, "all"))
        assert (found(False), found(True)) == ({"moved"}, set())


@pytest.mark.check
def test_the_noise_is_that_of_the_charge_and_no_other(domain_of: MakeDomain) -> None:
    domain, targets = domain_of(2), ("a",) * 1200
    for factor, accepted in ((1.0, True), (0.7, False), (1.3, False)):
        mechanism = chosen(domain, targets, sigma=6.0 * factor)
        table = table_of(drawn(domain, 40), held_out=range(20))
        noisy, exact = (mechanism.run(table, s.fresh()).answers for s in (Streams, Silent))
        noise = noisy - exact
        assert (fit_p_value(noise.ravel(), discrete_law, 6.0) > SIGNIFICANCE) is accepted, factor


# --- what is counted ---


def test_misplaced_rows_are_rows_times_total_variation(
    domain_of: MakeDomain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scores, "PAIRS", PairSettings(cells_at_once=16))  # several passes
    domain = domain_of(3, 4, 2)
    real, synthetic = drawn(domain, 500, 1), drawn(domain, 70, 2) // 2
    for tables in compared(domain).values():
        found = []
        for columns in tables:
            at = [domain.index(c) for c in columns]
            shares = [np.zeros([domain[c].levels for c in columns]) for _ in range(2)]
            for share, codes in zip(shares, (real, synthetic), strict=True):
                np.add.at(share, tuple(codes[:, at].T), 1 / len(codes))
            found.append(500 * 0.5 * np.abs(shares[0] - shares[1]).sum())
        assert misplaced(real, synthetic, domain, tables) == int(np.mean(found) + 1e-6)
    assert misplaced(real[:0], synthetic, domain, tables) == 0


def test_distances_are_of_fitted_rows_and_answers_of_held_out_ones(domain_of: MakeDomain) -> None:
    domain = domain_of(2, 3)
    codes, mechanism = drawn(domain, 60, 4), chosen(domain, ("b",))
    held = np.arange(0, 60, 3)
    whole = mechanism.run(table_of(codes, held), Silent.fresh())
    fitted = np.delete(codes, held, axis=0)
    assert whole.misplaced.tolist() == [
        misplaced(fitted, mechanism.synthetic, domain, t) for t in compared(domain).values()
    ]
    points = mechanism.scorecards[0].points
    right = sum(int(np.argmax(points[0][a] + points[1][b])) == b for a, b in codes[held])
    assert whole.answers.tolist() == [[len(held) - right, right]] and 0 < right < len(held)
    assert mechanism.run(table_of(codes), Silent.fresh()).answers.tolist() == [[0, 0]]


def test_an_answer_is_of_its_row_alone(domain_of: MakeDomain) -> None:
    domain = domain_of(4, 3, 5)
    card, codes = cards(domain, ["c"])[0], drawn(domain, 300)
    assert card.answers(codes).tolist() == [card.answers(row[None]).item() for row in codes]


def test_what_is_compared_follows_from_the_domain(
    domain_of: MakeDomain, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list(compared(domain_of(3))) == ["tv1"]
    assert compared(domain_of(2, 1025, 1025))["tv2"] == (("a", "b"), ("a", "c"))
    monkeypatch.setattr(scores, "PAIRS", PairSettings(pairs=10))
    wide = domain_of(*[2] * 26)
    compared.cache_clear()
    first = compared(wide)["tv2"]
    compared.cache_clear()
    assert len(first) == len(set(first)) == 10 and compared(wide)["tv2"] == first
    compared.cache_clear()


def test_counts_survive_the_journal_with_their_table_and_nothing_else_does(
    domain_of: MakeDomain,
) -> None:
    domain = domain_of(3, 2)
    mechanism = chosen(domain, ("a",))
    value = mechanism.run(table_of(drawn(domain, 30), [1, 2, 3]), Streams.fresh())
    packed = mechanism.pack(value)
    budget, others = ScoreBudget(domain, ("a",), 2.0), cards(domain, ["a"], seed=9)
    again = budget.choose(drawn(domain, 5, seed=9), others).unpack(packed)
    assert np.array_equal(again.codes, mechanism.synthetic)
    assert again.misplaced.tolist() == value.misplaced.tolist()
    assert again.answers.tolist() == value.answers.tolist() and again.sigma == 2.0
    shorter = {"misplaced": packed["misplaced"][:1]}
    codes = {"codes": packed["codes"] + 3}, {"codes": packed["codes"][:2]}
    for wrong in (*codes, shorter, {"answers": np.zeros((1, 2))}):
        with pytest.raises(ValueError, match="not "):
            mechanism.unpack(packed | wrong)


def test_what_was_not_planned_is_refused(domain_of: MakeDomain) -> None:
    domain, budget = domain_of(3, 2), ScoreBudget(domain_of(3, 2), ("a",), 2.0)
    for synthetic, own, told in (
        (drawn(domain, 0), cards(domain, ["a"]), "at least one synthetic row"),
        (drawn(domain, 3), cards(domain, ["b"]), "planned"),
        (drawn(domain, 3), [Scorecard("a", cards(domain_of(3, 4), ["a"])[0].points)], "levels"),
    ):
        with pytest.raises(ValueError, match=told):
            budget.choose(synthetic, own)


@pytest.mark.parametrize("beyond", [0, 1])
def test_counts_of_more_rows_than_sixty_four_bits_hold_are_exact(beyond: int) -> None:
    """At rows x drawn of 2^63 - 1, just above, and at the most rows that are read."""
    rows, drawn_rows = (2**63 - 1) // 7 + beyond, 7
    ours, theirs = np.array([rows, 0], dtype=np.int64), np.array([0, 7], dtype=np.int64)
    assert scores._misplaced(ours, theirs, rows, drawn_rows) == 7 * rows
    assert scores._misplaced(ours, np.array([7, 0]), rows, drawn_rows) == 0
    most, many = 16 * 2_000_000_000 + 1_000_000, 2_000_000_000
    found = scores._misplaced(np.array([most - 3, 3]), np.array([0, many]), most, many)
    assert found == (most - 3) * many
