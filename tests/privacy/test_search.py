"""Searches by sieve and selection keep to their budget, and release replies alone."""

from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pytest

from synthdp.audit import merged, neighbours, replay
from synthdp.data import Codes, Domain
from synthdp.privacy import (
    STATISTICS,
    GroupedRows,
    HowMany,
    RankQuery,
    Selection,
    SelectionBudget,
    SparseVector,
    SparseVectorBudget,
    SparseVectorReply,
    Which,
    level,
    variance_floor,
)
from synthdp.privacy.noise import Streams
from synthdp.privacy.table import Table
from tests.audit.mechanism_examples import EXAMPLES

DomainOf = Callable[..., Domain]
TableOf = Callable[[Domain, Codes], Table]
CRITICAL = 2.0
TINY, HUGE = 1e-3, 1e4


def query(x: str, y: str, *given: str) -> RankQuery:
    return RankQuery(x, y, given, CRITICAL, variance_floor("kendall", CRITICAL), 0.0, 10.0)


@pytest.fixture
def table(domain_of: DomainOf, table_of: TableOf) -> tuple[Domain, Table]:
    """b follows a, c is alone, d follows c; 2000 rows."""
    rng, domain = np.random.default_rng(0), domain_of(2, 2, 2, 2)
    a, c = rng.integers(0, 2, (2, 2000))
    flips = rng.random((2, 2000)) < 0.2
    return domain, table_of(domain, np.column_stack([a, a ^ flips[0], c, c ^ flips[1]]))


PAIRS = [query(*pair) for pair in ("ab", "ac", "ad", "bc", "bd", "cd")]


def asks(
    questions: list[RankQuery], heard: list[SparseVectorReply | None]
) -> Generator[RankQuery, SparseVectorReply | None, None]:
    for question in questions:
        heard.append((yield question))


def sieve(
    domain: Domain,
    questions: list[RankQuery],
    *,
    passes: int = 9,
    rate: float = 1.0,
    noise: float = TINY,
    examine: float | None = TINY,
) -> SparseVector:
    scales = noise, noise, examine
    budget = SparseVectorBudget(domain, "kendall", passes, rate, 2000.0, *scales)
    return budget.choose(lambda: asks(questions, []))


def test_without_noise_the_sieve_tells_the_truth(table: tuple[Domain, Table]) -> None:
    domain, rows = table
    replies = sieve(domain, PAIRS).run(rows, Streams.fresh())
    assert [r.above for r in replies] == [False, True, True, True, True, False]
    for reply, asked in zip(replies, PAIRS, strict=True):
        measured = GroupedRows.of(rows.fit_codes, domain).measure("kendall", asked)
        assert np.isnan(reply.score) != reply.above
        if reply.above:
            assert reply.score == pytest.approx(measured.score / 16, abs=0.5)
            assert reply.variance == pytest.approx(measured.variance / 4, abs=1)


def test_strata_separate(
    table: tuple[Domain, Table], table_of: TableOf, domain_of: DomainOf
) -> None:
    rng, domain = np.random.default_rng(1), domain_of(2, 2, 3)
    z = rng.integers(0, 3, 5000)
    x, y = (rng.random((2, 5000)) < 0.2 + 0.3 * z).astype(int)
    questions = [query("a", "b"), query("a", "b", "c")]
    rows = table_of(domain, np.column_stack([x, y, z]))
    replies = sieve(domain, questions).run(rows, Streams.fresh())
    assert [r.above for r in replies] == [False, True]


@pytest.mark.parametrize("passes", [0, 1, 3, 9])
def test_passes_are_never_exceeded(table: tuple[Domain, Table], passes: int) -> None:
    domain, rows = table
    replies = sieve(domain, PAIRS, passes=passes).run(rows, Streams.fresh())
    assert sum(r.above for r in replies) == min(passes, 4)
    assert len(replies) == {0: 0, 1: 2, 3: 4, 9: 6}[passes]


def test_a_strategy_hears_its_replies_and_nothing_else(table: tuple[Domain, Table]) -> None:
    domain, rows = table
    heard: list[SparseVectorReply | None] = []
    budget = sieve(domain, PAIRS, noise=5.0, examine=None).budget
    released = budget.choose(partial(asks, PAIRS, heard)).run(rows, Streams.fresh())
    assert tuple(heard) == released
    assert all(np.isnan([r.score, r.variance]).all() for r in released)


def test_a_sample_is_a_sample(table: tuple[Domain, Table]) -> None:
    domain, rows = table
    own = GroupedRows.of(rows.fit_codes, domain)
    half = own.sample(Streams.fresh().poisson_batch(len(own), rate=0.5))
    assert 850 < len(half) < 1150
    assert half.measure("kendall", PAIRS[0]).weight == pytest.approx(
        own.measure("kendall", PAIRS[0]).weight * len(half) / len(own), rel=0.02
    )
    assert sum(r.above for r in sieve(domain, PAIRS, rate=0.5).run(rows, Streams.fresh())) >= 2


def test_grouping_rows_changes_no_count(domain_of: DomainOf) -> None:
    """Also where rows are too wide to be one whole number."""
    rng, wide = np.random.default_rng(2), domain_of(*[16] * 14)
    codes = rng.integers(0, 16, (500, 14)).astype(np.uint16)
    grouped = GroupedRows.of(codes, wide)
    narrow = GroupedRows.of(codes[:, :3], domain_of(16, 16, 16))
    assert len(grouped) == len(narrow) == 500
    one, other = (rows.measure("kendall", query("a", "b", "c")) for rows in (grouped, narrow))
    assert one == other


def test_no_rows_are_answered_too(domain_of: DomainOf, table_of: TableOf) -> None:
    domain = domain_of(2, 2, 2, 2)
    empty = table_of(domain, np.zeros((0, 4), dtype=np.uint16))
    assert len(sieve(domain, PAIRS).run(empty, Streams.fresh())) == 6
    assert selection(domain, PAIRS, draws=3).run(empty, Streams.fresh()) is not None


@pytest.mark.parametrize("rows_per_unit", [1, 3])
def test_what_is_charged_does_not_depend_on_rows_or_strategy(
    table: tuple[Domain, Table], rows_per_unit: int
) -> None:
    domain, _ = table
    one, other = sieve(domain, PAIRS), sieve(domain, PAIRS[:1])
    assert one.event(rows_per_unit) == other.event(rows_per_unit) == one.budget.event(rows_per_unit)
    scaled = one.budget.scaled(2.0)
    assert scaled.examine_deviation == 2 * one.budget.examine_deviation
    assert scaled.sieve_deviation == 2 * one.budget.sieve_deviation


# --- selection ---


def chooses(
    questions: list[RankQuery], heard: list[int | None]
) -> Generator[HowMany | Which, int | None, Any]:
    many = yield HowMany(tuple((q,) for q in questions))
    heard.append(many)
    for _ in range(many or 0):
        heard.append((yield Which(tuple(questions))))


def selection(
    domain: Domain,
    questions: list[RankQuery],
    *,
    draws: int,
    noise: float = TINY,
    heard: list[int | None] | None = None,
) -> Selection:
    own = [] if heard is None else heard
    budget = SelectionBudget(domain, "kendall", draws, 2000.0, noise)
    return budget.choose(lambda: chooses(questions, own))


def test_without_noise_selection_tells_the_truth(table: tuple[Domain, Table]) -> None:
    domain, rows = table
    many, *which = selection(domain, PAIRS, draws=9).run(rows, Streams.fresh())
    assert many == 4
    own = GroupedRows.of(rows.fit_codes, domain)
    levels = [level("kendall", q, own.measure("kendall", q)) for q in PAIRS]
    assert which == [int(np.argmax(levels))] * 4


@pytest.mark.parametrize("true", [0, 1, 2, 6])
def test_how_many_counts_from_none_to_all(table: tuple[Domain, Table], true: int) -> None:
    domain, rows = table
    easy, never = replace(PAIRS[1], slack=1e4, least_weight=0.0), replace(PAIRS[0], slack=-1e5)
    asked = [easy] * true + [never] * (6 - true)
    assert selection(domain, asked, draws=1).run(rows, Streams.fresh()) == (true,)


def test_a_group_counts_by_its_best(table: tuple[Domain, Table]) -> None:
    domain, rows = table

    def asking() -> Generator[HowMany | Which, int | None, None]:
        yield HowMany(((PAIRS[0], PAIRS[1]), (PAIRS[0], PAIRS[5])))

    budget = SelectionBudget(domain, "kendall", 1, 2000.0, TINY)
    assert budget.choose(asking).run(rows, Streams.fresh()) == (1,)


@pytest.mark.parametrize("draws", [0, 1, 3])
def test_draws_are_never_exceeded(table: tuple[Domain, Table], draws: int) -> None:
    domain, rows = table
    heard: list[int | None] = []
    chosen = selection(domain, PAIRS, draws=draws, heard=heard).run(rows, Streams.fresh())
    assert len(chosen) == draws and tuple(heard) == chosen


def test_much_noise_hides_the_rows(table: tuple[Domain, Table]) -> None:
    domain, rows = table
    streams = Streams.fresh()
    chosen = selection(domain, PAIRS, draws=2, noise=HUGE)
    assert len({chosen.run(rows, streams)[-1] for _ in range(200)}) > 3
    asked = sieve(domain, PAIRS, noise=HUGE, examine=None)
    firsts = [asked.run(rows, streams)[0].above for _ in range(200)]
    assert 60 < sum(firsts) < 140


# --- both ---


@pytest.mark.parametrize("kind", [SparseVector, Selection])
def test_packed_values_come_back(kind: type, domain_of: DomainOf, table_of: TableOf) -> None:
    domain = domain_of(2, 3, 2)
    codes = np.random.default_rng(3).integers(0, 2, (60, 3))
    for mechanism in EXAMPLES[kind](domain):
        value = mechanism.run(table_of(domain, codes), Streams.fresh())
        back = mechanism.unpack(mechanism.pack(value))
        assert repr(back) == repr(value)


@pytest.mark.check
@pytest.mark.parametrize("kind", [SparseVector, Selection])
@pytest.mark.parametrize(
    ("rows_per_unit", "adjacency"), [(1, "add_remove"), (3, "add_remove"), (1, "replace_one")]
)
def test_neighbours_differ_by_what_is_charged(
    kind: type, rows_per_unit: int, adjacency: Any, domain_of: DomainOf, figure: Callable[..., None]
) -> None:
    domain = domain_of(2, 3, 2, 4)
    mechanisms = EXAMPLES[kind](domain)
    replays = []
    own = {"domain": domain, "rows_per_unit": rows_per_unit, "adjacency": adjacency}
    how = {"batch": 8, "max_rows": rows_per_unit, "adjacency": adjacency, "random_pairs": 10}
    for mechanism in mechanisms:
        replays.append(replay(mechanism, islice(neighbours(domain, **how), 0, None, 2), **own))
    found = merged(replays)
    assert not found.findings
    assert found.largest_share > 0.1
    name = f"{kind.__name__}: neighbours replayed, {rows_per_unit} rows, {adjacency}"
    figure(name, found.pairs, found.pairs)


@pytest.mark.check
def test_a_sieve_that_claims_less_than_its_rows_move_is_found(
    domain_of: DomainOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    domain = domain_of(2, 2, 2)
    moved = replace(STATISTICS["kendall"], score_moves=10, variance_moves=2)
    monkeypatch.setitem(STATISTICS, "kendall", moved)  # type: ignore[arg-type]
    mechanism = EXAMPLES[SparseVector](domain)[0]
    pairs = neighbours(domain, batch=8, max_rows=1, adjacency="add_remove", random_pairs=10)
    assert replay(mechanism, pairs, domain=domain).findings
