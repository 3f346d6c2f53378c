"""Texts that many rows have: threshold, noise, accounting, and what neighbours differ by."""

import math
from dataclasses import replace
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.common import DifferentialPrivacyParameters
from scipy.stats import norm

from synthdp.errors import BudgetError
from synthdp.privacy import (
    FrequentTexts,
    RoundedGaussianDpEvent,
    TextBudget,
    ThresholdedGaussianDpEvent,
    accounting,
    threshold_for,
)
from synthdp.privacy.accounting import Adjacency
from synthdp.privacy.calibration import make_domain_plan
from synthdp.privacy.events.kinds import event_from_json, event_to_json
from synthdp.privacy.noise import Key, Streams
from synthdp.privacy.table import Table
from tests.privacy.conftest import SIGNIFICANCE, fit_p_value, rounded_law


def table(**columns: list[str]) -> Table:
    frame = pd.DataFrame(
        {n: pd.Series(pd.arrays.ArrowExtensionArray(pa.array(v))) for n, v in columns.items()}
    )
    rows = len(frame)
    return Table(np.zeros((rows, 0), np.uint16), frame, np.zeros(rows, dtype=bool), {})


class Exact(Streams):
    """No noise, and what was hidden."""

    def kept_counts(self, counts: Any, *, sigma: float, threshold: int) -> dict[Key, int]:
        return dict(sorted(counts.items()))


def told_alone(counts: tuple[int, ...], threshold: int, sigma: float) -> float:
    """The probability that any key with these counts is told."""
    return 1 - math.prod(float(norm.cdf((threshold - 0.5 - a) / sigma)) for a in counts)


# --- the threshold ---


@pytest.mark.parametrize("rows", [1, 2, 3, 5])
@pytest.mark.parametrize("columns", [1, 2, 7])
@pytest.mark.parametrize("delta", [0.2, 1e-3, 1e-7])
def test_no_unit_has_a_key_alone_told_with_more_than_delta(
    rows: int, columns: int, delta: float
) -> None:
    """However its rows share the keys of each column; and one count less would be too little."""
    chosen = TextBudget(3.0, delta, rows).choose({str(i): "text" for i in range(columns)})
    sigma, threshold = 3.0 * math.sqrt(columns), chosen.threshold
    assert chosen.sigma == sigma

    def worst(threshold: int) -> float:
        splits = [
            counts
            for keys in range(1, rows + 1)
            for counts in combinations_with_replacement(range(1, rows + 1), keys)
            if sum(counts) <= rows
        ]
        one = max(told_alone(counts, threshold, sigma) for counts in splits)
        return 1 - (1 - one) ** columns

    assert threshold - 0.5 >= rows
    assert worst(threshold) <= delta * (1 + 1e-9)
    if delta < 0.1 and threshold - 1.5 >= rows:  # of rare events the union bound is nearly exact
        assert worst(threshold - 1) > 0.7 * delta


def test_a_key_of_one_unit_is_told_as_rarely_as_stated() -> None:
    """At a delta that can be seen: 20,000 runs with a new key in each of 4 columns."""
    delta, runs = 0.05, 20_000
    chosen = TextBudget(2.0, delta, 1).choose({str(i): "text" for i in range(4)})
    keys = {(str(column), f"{run}"): 1 for column in range(4) for run in range(runs)}
    kept = Streams.fresh().kept_counts(keys, sigma=chosen.sigma, threshold=chosen.threshold)
    told = len({text for _, text in kept})
    exact = told_alone((1,) * 4, chosen.threshold, chosen.sigma)
    deviation = math.sqrt(runs * exact * (1 - exact))
    assert exact <= delta and abs(told - runs * exact) < 6 * deviation
    lower = Streams.fresh().kept_counts(keys, sigma=chosen.sigma, threshold=chosen.threshold - 2)
    assert len({text for _, text in lower}) > runs * delta  # a threshold too low is seen


def test_the_threshold_of_a_unit_of_more_rows_is_refused() -> None:
    budget = TextBudget(2.0, 1e-6, 2)
    assert budget.event(1) == ThresholdedGaussianDpEvent(2.0, 1e-6, 1)
    with pytest.raises(BudgetError, match="units of at most 2 rows"):
        budget.event(3)
    assert threshold_for(5.0, delta=1e-6, rows_per_unit=3) > threshold_for(
        5.0, delta=1e-6, rows_per_unit=1
    )


# --- noise ---


def test_kept_counts_have_the_noise_that_is_charged_and_no_other() -> None:
    keys = {("a", str(i)): 1000 for i in range(20_000)}

    def drawn(sigma: float) -> np.ndarray:
        kept = Streams.fresh().kept_counts(keys, sigma=sigma, threshold=-(10**6))
        assert len(kept) == len(keys)
        return np.array(list(kept.values())) - 1000

    counts = drawn(6.0)
    assert fit_p_value(counts, rounded_law, 6.0) > SIGNIFICANCE
    for wrong in (0.7, 1.3):
        assert fit_p_value(counts, rounded_law, 6.0 * wrong) < SIGNIFICANCE
        assert fit_p_value(drawn(6.0 * wrong), rounded_law, 6.0) < SIGNIFICANCE


def test_keys_come_in_their_own_order_and_only_above_the_threshold() -> None:
    counts = {("b", "x"): 10**6, ("a", "z"): 10**6, ("a", "y"): 10**6, ("a", "rare"): 0}
    kept = Streams.fresh().kept_counts(counts, sigma=1.0, threshold=1000)
    assert list(kept) == [("a", "y"), ("a", "z"), ("b", "x")]
    assert Streams.fresh().kept_counts({}, sigma=1.0, threshold=1) == {}


# --- what is counted ---


def hidden(rows: Table, chosen: FrequentTexts) -> dict[tuple[str, str], int]:
    told = replace(chosen).run(rows, Exact.fresh()).counts
    return {(name, text): n for name, own in told.items() for text, n in own.items()}


def test_texts_are_counted_as_a_loop_would_and_missing_words_never() -> None:
    rows = table(
        city=["Bonn", "Köln", "Bonn", "", "NA", "=1"], pay=["7", "7.0", "x", "+7", "", "8"]
    )
    chosen = TextBudget(1.0, 1e-3).choose({"city": "text", "pay": "whole"})
    assert hidden(rows, chosen) == {
        ("city", "Bonn"): 2,
        ("city", "Köln"): 1,
        ("pay", "7"): 3,
        ("pay", "8"): 1,
    }


def test_numbers_are_counted_as_they_are_written_and_missing_ones_never() -> None:
    frame = pd.DataFrame(
        {"pay": [7.0, 0.1 + 0.2, 7.0, np.nan], "age": pd.array([30, 30, None, 31], "Int64")}
    )
    rows = Table(np.zeros((4, 0), np.uint16), frame, np.array([False, False, False, True]), {})
    chosen = TextBudget(1.0, 1e-3, keys="numbers").choose({"pay": "number", "age": "number"})
    assert hidden(rows, chosen) == {
        ("age", "30.0"): 2,
        ("pay", "0.30000000000000004"): 1,
        ("pay", "7.0"): 2,
    }
    assert "on numbers that occur" in chosen.budget.name


@pytest.mark.parametrize("rows", [1, 3])
def test_a_unit_moves_known_keys_no_further_than_is_charged(rows: int) -> None:
    """All ways to take its rows: the longest move of known keys is charged, and is reached."""
    base = [("p", "s"), ("p", "t"), ("q", "s")]
    chosen = TextBudget(1.0, 1e-3, rows).choose({"a": "text", "b": "text"})
    allowed = rows * math.sqrt(2)
    texts, longest = [(a, b) for a in "pqn" for b in "stn"], 0.0
    before = hidden(table(a=[r[0] for r in base], b=[r[1] for r in base]), chosen)
    for unit in combinations_with_replacement(texts, rows):
        both = [*base, *unit]
        after = hidden(table(a=[r[0] for r in both], b=[r[1] for r in both]), chosen)
        moved = math.sqrt(sum((after[key] - before[key]) ** 2 for key in before))
        alone = [after[key] for key in after.keys() - before.keys()]
        assert moved <= allowed + 1e-9
        assert told_alone(tuple(alone), chosen.threshold, chosen.sigma) <= 1e-3
        longest = max(longest, moved)
    assert longest == pytest.approx(allowed)


def test_what_is_told_survives_the_journal() -> None:
    chosen = TextBudget(1.0, 1e-3).choose({"a": "text", "b": "text"})
    for own in ({"a": ["ä", "b,c", "]"], "b": ["1"]}, {"a": [], "b": []}):
        value = chosen.run(
            table(a=own["a"] or ["", ""], b=(own["b"] * 3) or ["", ""]), Exact.fresh()
        )
        again = chosen.unpack(chosen.pack(value))
        assert (again.counts, again.sigma, again.threshold) == (
            value.counts,
            value.sigma,
            value.threshold,
        )
    with pytest.raises(ValueError, match="another column"):
        TextBudget(1.0, 1e-3).choose({"b": "text"}).unpack(
            chosen.pack(chosen._value({("a", "x"): 1}))
        )


# --- accounting ---


@pytest.mark.parametrize(("adjacency", "times"), [("add_remove", 1), ("replace_one", 2)])
def test_the_event_costs_the_gaussian_and_the_delta(adjacency: Adjacency, times: int) -> None:
    event = ThresholdedGaussianDpEvent(5.0, 1e-4, 2)
    assert event_from_json(event_to_json(event)) == event
    noisy = accounting.compose([RoundedGaussianDpEvent(5.0, 2)], adjacency)
    lost = pld.from_privacy_parameters(
        DifferentialPrivacyParameters(0.0, 1e-4), value_discretization_interval=accounting.FINE
    )
    for _ in range(times):
        noisy = noisy.compose(lost)
    own = accounting.compose([event], adjacency)
    for epsilon in (0.0, 0.3, 1.0, 3.0):
        gaussian = accounting.compose([event.gaussian], adjacency).get_delta_for_epsilon(epsilon)
        expected = 1 - (1 - gaussian) * (1 - 1e-4) ** times
        assert own.get_delta_for_epsilon(epsilon) == pytest.approx(
            noisy.get_delta_for_epsilon(epsilon), rel=1e-9
        )
        assert own.get_delta_for_epsilon(epsilon) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("size", [2, 3, 10])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("columns", [1, 2, 40])
@pytest.mark.parametrize("delta", [1e-3, 1e-7])
def test_a_group_of_units_has_no_key_alone_told_with_more_than_it_is_charged(
    size: int, rows: int, columns: int, delta: float
) -> None:
    """However its rows share the keys of each column, at the threshold for one unit."""
    noise = 40.0
    chosen = TextBudget(noise, delta, rows).choose({str(i): "text" for i in range(columns)})
    widened = chosen.budget.event(rows).widened(size)
    assert widened is not None and widened.sensitivity == size * rows
    together = size * rows
    one = max(
        told_alone((together - k + 1, *[1] * (k - 1)), chosen.threshold, chosen.sigma)
        for k in range(1, together + 1)
    )
    assert 1 - (1 - one) ** columns <= widened.delta
    assert delta < widened.delta < 100 * size * delta
    assert TextBudget(0.5, delta, rows).event(rows).widened(size * 10) is None


@pytest.mark.parametrize("unit", [1, 2])
def test_the_charge_is_not_below_the_exact_law_of_a_small_table(unit: int) -> None:
    """Hockey-stick divergence of all that can be told of its own keys or the table's."""
    sigma, delta = 2.0, 0.02
    threshold = threshold_for(sigma, delta=delta, rows_per_unit=unit)
    counts = np.arange(-40, 80)

    def law(count: int) -> Any:
        """Of what is told of a key with this count: nothing, or a noisy count."""
        upper, lower = (counts + 0.5 - count) / sigma, (counts - 0.5 - count) / sigma
        each = norm.cdf(upper) - norm.cdf(lower)
        return np.append(each[counts >= threshold], each[counts < threshold].sum())

    for shared in range(unit + 1):
        own = law(3 + shared), law(3)
        for epsilon in (0.0, 0.2, 0.5, 1.0):
            alone = told_alone((1,) * (unit - shared), threshold, sigma)
            with_unit, without = own
            # What the unit's own keys tell without it never occurs.
            forward = (
                alone
                + (1 - alone)
                * np.maximum(with_unit - math.exp(epsilon) / (1 - alone) * without, 0).sum()
            )
            backward = np.maximum(without - math.exp(epsilon) * (1 - alone) * with_unit, 0).sum()
            charged = accounting.compose(
                [ThresholdedGaussianDpEvent(sigma, delta, unit)], "add_remove"
            ).get_delta_for_epsilon(epsilon)
            assert max(forward, backward) <= charged + 1e-12


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("rows", [1, 3])
def test_the_plan_meets_its_total(adjacency: Adjacency, rows: int) -> None:
    plan = make_domain_plan(9, epsilon=0.5, delta=1e-7, adjacency=adjacency, rows_per_unit=rows)
    assert 0.499 < plan.epsilon_spent <= 0.5
    assert plan.texts is not None and plan.texts.rows_per_unit == rows
    without = replace(plan, texts=replace(plan.texts, delta=1e-12))
    assert without.epsilon_spent < plan.epsilon_spent
    sigmas = plan.forms.sigmas if plan.forms else ()
    assert len(sigmas) == 18 and max(sigmas) == pytest.approx(1.5 * min(sigmas))
