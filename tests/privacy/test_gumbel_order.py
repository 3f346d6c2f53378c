"""The order of noisy scores: its law, whatever bits are at hand; and rounding decides nothing."""

import time
from collections import Counter
from typing import Any

import numpy as np
import pytest

from synthdp.privacy import noise
from synthdp.privacy.noise import largest
from tests.privacy.conftest import SIGNIFICANCE, order_law, order_p_value

SCORES = np.array([0, 3, 5, 5], dtype=np.int64)
DRAWS = 4000


def p_value(
    rng: np.random.Generator, *, drawn: float, charged: float, told: int, draws: int = DRAWS
) -> float:
    orders = Counter(
        tuple(largest(SCORES, scale=drawn, count=told, generator=rng).tolist())
        for _ in range(draws)
    )
    return order_p_value(orders, order_law(SCORES, charged, told))


@pytest.mark.check
@pytest.mark.parametrize("word", [1, 2, 5, 64])
@pytest.mark.parametrize("told", [1, 2, 4])
def test_orders_have_the_law_of_their_scale(
    word: int, told: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few bits at a time, too. A right law is refused with chance 1e-7 over all seeds."""
    monkeypatch.setattr(noise, "WORD", word)
    rng = np.random.default_rng(word)
    draws = DRAWS if word == 64 else DRAWS // 8
    assert p_value(rng, drawn=3.0, charged=3.0, told=told, draws=draws) > SIGNIFICANCE
    if word == 64:
        for wrong in (0.7, 1.3):
            assert p_value(rng, drawn=3.0 * wrong, charged=3.0, told=told) < SIGNIFICANCE


@pytest.mark.parametrize("word", [1, 3, 64])
def test_intervals_in_doubles_hold_those_in_decimals(
    word: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the first words, the last ones and any others, and for scores of any size."""
    monkeypatch.setattr(noise, "WORD", word)
    rng, last = np.random.default_rng(0), (1 << word) - 1
    ends = [0, 1, 2, 3, 1000, last // 2, last - 1000, last - 2, last - 1, last]
    words = sorted({min(max(w, 0), last) for w in ends})
    words += [int(2 ** (word * u)) - 1 for u in rng.random(200)]
    bits = np.array(words, dtype=np.uint64)
    scores = rng.integers(-(10**6), 10**9, len(bits))
    for scale in (0.37, 1.0, 1531.0881026550144):
        noisy, error = noise._in_doubles(scores / scale, bits)
        low, high = noise._in_decimals(scores.tolist(), scale, words, word)
        assert (noisy - error <= np.array(low, dtype=float)).all()
        assert (noisy + error >= np.array(high, dtype=float)).all()
        usual = (bits > 1 << 20) & (bits < last - (1 << 20))
        assert not usual.any() or (error[usual] < 1e-3).all()


def test_what_doubles_cannot_tell_apart_is_decided_by_more_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Equal words of equal scores: the bits that follow decide, drawn until they differ."""
    words = iter([[7, 7, 9], [4, 4, 4], [9, 1, 5]])
    monkeypatch.setattr(
        noise, "_drawn", lambda count, _: np.array(next(words), dtype=np.uint64)[:count]
    )
    nobody: Any = None
    told = largest(np.zeros(3, dtype=np.int64), scale=1.0, count=2, generator=nobody)
    assert told.tolist() == [1, 0]


def test_rounding_is_what_would_have_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores between which doubles see no difference: the larger one comes first all the same."""
    words = iter([[1 << 62] * 2, [5, 5]])
    monkeypatch.setattr(
        noise, "_drawn", lambda count, _: np.array(next(words), dtype=np.uint64)[:count]
    )
    nobody: Any = None
    scores = np.array([2**60, 2**60 + 1], dtype=np.int64)
    assert scores[0] / 3.0 == scores[1] / 3.0
    assert largest(scores, scale=3.0, count=1, generator=nobody).tolist() == [1]


def test_all_are_told_where_there_are_no_more() -> None:
    rng = np.random.default_rng(0)
    assert sorted(largest(SCORES, scale=1.0, count=9, generator=rng).tolist()) == [0, 1, 2, 3]
    none = largest(SCORES[:0], scale=1.0, count=1, generator=rng)
    assert none.tolist() == []


@pytest.mark.check
def test_strong_scores_cost_no_more_than_weak_ones() -> None:
    """450,000 scores with 900 far above the others: OpenDP took 200 CPU seconds."""
    rng = np.random.default_rng(0)
    scores = rng.normal(0, 200, 450_000).astype(np.int64)
    scores[::500] += rng.integers(10_000, 90_000, 900)
    started = time.process_time()
    told = largest(scores, scale=1531.0, count=2850, generator=rng)
    assert time.process_time() - started < 5
    assert len(set(told.tolist())) == 2850
    # the least of the strong ones, 6.5 scales up, is lost with chance .01
    assert sum(place % 500 == 0 for place in told.tolist()) > 880
