"""Groups, intervals, telling rows apart and the long protocol: each says nothing of equal tables,
and finds what was spoilt.
"""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from synthdp.data import Domain, encode
from synthdp.evaluate import (
    by_group,
    coverage,
    evaluate,
    group_columns,
    random_targets,
    summarize,
    two_sample,
)
from synthdp.evaluate.utility import UtilityReport, UtilityRow
from synthdp.spec.model import Boolean, Categorical, Column, Evaluation, Integer, Number, Ordinal

COLUMNS: dict[str, Column] = {
    "town": Categorical(type="categorical", categories=("big", "mid", "tiny")),
    "works": Boolean(type="boolean"),
    "rank": Ordinal(type="ordinal", categories=("low", "middle", "high")),
    "pay": Number(type="number", lower=0, upper=100, bins=8),
    "hours": Integer(type="integer", lower=0, upper=80, bins=10),
}
DOMAIN = Domain.from_spec(COLUMNS)


def people(rows: int, seed: int, *, spoilt: bool = False, shifted: float = 0.0) -> pd.DataFrame:
    """`spoilt`: in the tiny town nothing depends on anything; `shifted`: pay is so much higher."""
    rng = np.random.default_rng(seed)
    town = rng.choice(["big", "mid", "tiny"], rows, p=[0.7, 0.25, 0.05])
    works = rng.random(rows) < 0.6
    pay = np.clip(rng.normal(40 + 15 * works, 12, rows) + shifted, 0, 100)
    if spoilt:
        pay, works = (
            np.where(town == "tiny", rng.uniform(0, 100, rows), pay),
            np.where(town == "tiny", rng.random(rows) < 0.1, works),
        )
    level = np.digitize(pay + rng.normal(0, 5, rows), [40, 55])
    hours = np.clip(rng.normal(20 + 20 * works, 6, rows), 0, 80).round().astype(int)
    return pd.DataFrame(
        {
            "town": town,
            "works": np.where(works, "true", "false"),
            "rank": np.asarray(["low", "middle", "high"])[level],
            "pay": pay,
            "hours": hours,
        }
    )


def both(frame: pd.DataFrame) -> tuple[pd.DataFrame, Any]:
    return frame, encode(DOMAIN, frame)[0]


REAL, TEST = people(3000, 0), people(1500, 1)


class TestTwoSamples:
    def test_equal_tables_cannot_be_told_apart(self) -> None:
        found = two_sample(REAL, TEST, people(3000, 2), domain=DOMAIN, rng=np.random.default_rng(0))
        assert [r.compared for r in found] == ["synthetic from real"] * 2 + ["real from real"] * 2
        assert all(abs(r.auc - 0.5) < 0.06 and r.low <= r.auc <= r.high for r in found)

    def test_a_shift_is_seen_and_the_floor_stays(self) -> None:
        found = two_sample(
            REAL, TEST, people(3000, 2, shifted=12), domain=DOMAIN, rng=np.random.default_rng(0)
        )
        assert min(r.low for r in found[:2]) > 0.6 and max(r.auc for r in found[2:]) < 0.56

    def test_too_few_rows_say_nothing(self) -> None:
        assert two_sample(REAL, TEST[:30], REAL, domain=DOMAIN, rng=np.random.default_rng(0)) == ()


class TestCoverage:
    @pytest.mark.check
    def test_fresh_rows_cover_as_they_say(self) -> None:
        truth = both(people(200_000, 3))
        found = [
            coverage(truth, both(people(600, 2 * i)), both(people(600, 2 * i + 1)), domain=DOMAIN)
            for i in range(10, 40)
        ]
        assert [r.kind for r in found[0]] == [
            "shares of levels",
            "means of columns",
            "means within groups",
        ]
        for rows in zip(*found, strict=True):
            assert 0.9 <= np.mean([r.synthetic for r in rows]) <= 0.98
            assert 0.9 <= np.mean([r.held_out for r in rows if r.held_out is not None]) <= 0.98

    def test_a_shift_loses_it(self) -> None:
        found = {
            r.kind: r
            for r in coverage(
                both(REAL), both(TEST), both(people(3000, 4, shifted=6)), domain=DOMAIN
            )
        }
        assert found["means of columns"].synthetic == 0.5
        assert found["means within groups"].synthetic < 0.7

    def test_intervals_of_twice_the_rows_are_not_narrower_by_mistake(self) -> None:
        # A table held against itself: every interval holds its own middle.
        assert all(
            r.synthetic == 1 for r in coverage(both(REAL), both(TEST), both(REAL), domain=DOMAIN)
        )


class TestSubgroups:
    def test_only_the_spoilt_group_is_far_off(self) -> None:
        rows = by_group(
            both(people(8000, 0)), both(people(4000, 1)), both(people(8000, 2, spoilt=True)),
            domain=DOMAIN, columns=("town", "works"), target="works", rng=np.random.default_rng(0),
        )  # fmt: skip
        assert [r.share_real for r in rows] == sorted(r.share_real for r in rows) and len(rows) == 5
        by = {r.level: r for r in rows}
        tiny, big = by["tiny"], by["big"]
        assert tiny.tv1
        assert tiny.floor
        assert tiny.tv1 > 2 * tiny.floor
        assert big.tv1
        assert big.floor
        assert big.tv1 < 2 * big.floor
        assert tiny.share_real == pytest.approx(0.05, abs=0.01)
        assert tiny.accuracy_real is not None
        assert tiny.accuracy_real > 0.8

    def test_few_test_rows_tell_no_accuracy(self) -> None:
        rows = by_group(
            both(REAL),
            both(TEST[:100]),
            both(REAL),
            domain=DOMAIN,
            columns=("town",),
            target="works",
            rng=np.random.default_rng(0),
        )
        assert rows[0].level == "tiny"
        assert rows[0].accuracy_real is None
        assert rows[-1].accuracy_real is not None

    def test_named_columns_or_the_fewest_categories(self) -> None:
        assert group_columns(DOMAIN, ("rank",)) == ("rank",)
        assert group_columns(DOMAIN, ()) == ("works", "town", "rank")


class TestLongProtocol:
    def test_targets_are_public_and_repeatable(self) -> None:
        assert random_targets(DOMAIN, 3) == random_targets(DOMAIN, 3)
        assert len(random_targets(DOMAIN, 99)) == 5

    def test_the_gap_is_over_targets_in_points(self) -> None:
        def row(target: str, learner: str, difference: float) -> UtilityRow:
            return UtilityRow(
                target, learner, "accuracy", 0.9, 0.9 - difference, difference, None, None
            )

        rows = (
            row("a", "knn", 0.02),
            row("a", "logistic", 0.04),
            row("b", "knn", 0.01),
            row("b", "logistic", 0.01),
        )
        (gap,) = summarize(("a", "b"), UtilityReport(rows)).gaps
        assert gap.value == pytest.approx(2.0) and gap.low is not None and gap.high is not None
        assert gap.high - gap.value == pytest.approx(
            12.7062 * 1.0, rel=1e-4
        )  # t with one degree of freedom, deviation sqrt(2) / sqrt(2)


@pytest.mark.check
def test_everything_at_once_is_plain_json() -> None:
    import json

    settings = Evaluation(
        targets=("works",), classifiers=("logistic",), random_targets=2, max_rows=400
    )
    frames = REAL[:400], TEST[:300], people(400, 6)
    report = evaluate(*frames, domain=DOMAIN, settings=settings, rng=np.random.default_rng(0))
    plain = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert report.paper is not None
    assert len(report.paper.utility.rows)
    assert {r["classifier"] for r in plain["paper"]["utility"]["rows"]} >= {"ridge"}
    assert plain["pairs"]["real"]["columns"][0] == "works"
    assert plain["effects"] == []
    assert plain["independences"] is None
