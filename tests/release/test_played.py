"""Estimands that are played before a release: refusals and widths are those that would follow."""

from typing import Any

import numpy as np
import pytest
import yaml
from scipy.optimize import brentq

from synthdp.api.text import estimand_line
from synthdp.data import Domain
from synthdp.errors import BudgetError
from synthdp.inference import Figure, Rows, estimands
from synthdp.inference.estimands import effect_figure
from synthdp.model import plan_for
from synthdp.privacy.mechanisms.sums import SQUARE, NoisySums, StratumSums
from synthdp.release import StandIn, check_answered, played_estimands, with_noise
from synthdp.release.what_if import figures_table, reaching, what_if
from synthdp.spec import parse_spec
from synthdp.spec.model import ReleaseSpec
from tests.builders import build_spec, skeleton

COLUMNS: dict[str, Any] = {
    "visits": {"type": "integer", "lower": 0, "upper": 30, "edges": [0, 5, 10, 15, 20, 25]},
    "old": {"type": "boolean"},
    "sick": {"type": "boolean"},
}
EFFECT = {"kind": "effect", "treated": "sick", "outcome": "visits", "adjust": ["old"]}
ASKED = [
    {"kind": "question", "ask": "mean(visits) by old"},
    {"kind": "question", "ask": "share(sick)"},
    {"kind": "question", "ask": "count(sick)"},
    EFFECT,
    {"kind": "question", "ask": "quantile(visits, 0.4) by old"},
    {"kind": "regression", "outcome": "visits", "terms": ["old", "sick"]},
    {"kind": "table", "columns": ["old", "sick"]},
]
SHARES = {"measure": 0.2, "graph": 0.5, "train": 0, "estimands": 0.3}


def spec_of(
    asked: Any, *, rows: int = 20_000, epsilon: float = 1.0, columns: Any = COLUMNS
) -> ReleaseSpec:
    return build_spec(
        columns,
        rows=rows,
        estimands=asked,
        privacy={"epsilon": epsilon, "delta": 1e-6, "shares": SHARES},
        graph={"mode": "predict"},
        evaluation={"holdout": 0.0},
    )


def played(spec: ReleaseSpec) -> list[dict[str, Any]]:
    domain = Domain.from_spec(spec.columns)
    return played_estimands(spec, domain, plan_for(spec, domain))


def with_shares(**shares: float) -> dict[str, Any]:
    return {
        n: {**c, "known_shares": {"true": shares[n]}} if n in shares else c
        for n, c in COLUMNS.items()
    }


def test_what_refuses_after_a_release_is_what_refuses_in_plays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (told,) = played(spec_of([EFFECT], rows=100_000))
    assert told["refused"] == 0 and not told["likely_refused"] and told["why"] is None

    def refused(*_: object) -> Figure:
        return Figure(None, refused="as it is after a release")

    for name in ("effect_figure", "contrast_figure"):
        monkeypatch.setattr(estimands, name, refused)
    (told,) = played(spec_of([EFFECT], rows=100_000))
    assert told["refused"] == 1 and told["likely_refused"]
    assert told["why"] == "as it is after a release"


@pytest.mark.check
def test_the_law_is_what_shares_declare_and_else_one_treated_row_in_ten() -> None:
    """150 treated old rows of 1,500, under a noise that asks for some 100; of 15 none is enough."""
    laws: tuple[dict[str, float], ...] = ({}, {"sick": 0.5, "old": 0.5}, {"sick": 0.5, "old": 0.02})
    columns = (with_shares(**law) for law in laws)
    told = [played(spec_of([EFFECT], rows=1500, epsilon=2.0, columns=c))[0] for c in columns]
    unknown, even, rare = (t["figures"][0] for t in told)
    assert even["refused"] < 0.1 and rare["refused"] > 0.9 and "of 4 strata" in rare["why"]
    assert even["half_width"] < (unknown["half_width"] or 99)
    assert told[2]["refused"] < 0.1, "where both groups overlap there are enough"


def test_half_widths_have_the_noise_and_the_sampling() -> None:
    """Of two arms of 100,000 rows; numbers spread by .15 of the range."""
    asked = [{**EFFECT, "adjust": []}]
    spec = spec_of(asked, rows=200_000, epsilon=8.0, columns=with_shares(sick=0.5))
    ((figure,),) = (told["figures"] for told in played(spec))
    sampling = 1.96 * 0.15 * 30 * np.sqrt(2 / 100_000)
    planned = plan_for(spec, Domain.from_spec(spec.columns)).estimands["1"]
    assert isinstance(planned, StratumSums)
    noise = 15 * planned.sigma / 100_000 * np.sqrt(2 * (1 + 0.4**2))  # of S and of n, u about -.4
    assert figure["noise"] == pytest.approx(noise, rel=0.05)
    low, high = figure["between"]
    half = np.hypot(sampling, 1.96 * noise)
    assert figure["half_width"] == pytest.approx(half, rel=0.2) and low < half < high
    assert low > 1.96 * noise, "rows without any spread"


def test_shares_that_are_not_declared_are_drawn_and_declared_ones_are_not() -> None:
    """Of a treated share of a half by declaration; else of any, in each of 80 tables."""
    for shares, spread in (({"sick": 0.5}, (0, 0.05)), ({}, (0.2, 0.4))):
        spec = spec_of([{**EFFECT, "adjust": []}], rows=100_000, columns=with_shares(**shares))
        domain = Domain.from_spec(spec.columns)
        planned: Any = plan_for(spec, domain).estimands["1"]
        stand_in = StandIn(spec, domain, spec.estimands[0], drawn=True)
        drawn = stand_in.sums(planned, np.random.default_rng(1))
        counts = [next(drawn).counts.ravel() for _ in range(80)]  # type: ignore[union-attr]
        treated = [n[0] / n.sum() for n in counts]
        assert np.mean(treated) == pytest.approx(0.5, abs=0.1)
        assert spread[0] <= np.std(treated) <= spread[1]


def test_played_noise_is_that_of_each_sum() -> None:
    zero, rng = NoisySums(*(np.zeros(4000) for _ in range(3)), 0.0), np.random.default_rng(2)
    spec = spec_of(ASKED[:1])
    planned: Any = plan_for(spec, Domain.from_spec(spec.columns)).estimands["1"]
    sums: Any = with_noise(zero, spec.estimands[0], planned.scaled(3 / planned.sigma), rng)
    spread = [part.std() for part in (sums.counts, sums.sums, sums.squares)]
    assert spread == pytest.approx([3, 3, 3 / SQUARE], rel=0.05)
    assert sums.sigma == pytest.approx(3) and sums.contrast is None


def planned_sigma(asked: Any, rows: int) -> float:
    spec = spec_of(asked, rows=rows)
    mechanism: Any = plan_for(spec, Domain.from_spec(spec.columns)).estimands["1"]
    return float(mechanism.sigma)


def test_estimands_have_equal_parts_of_their_share() -> None:
    """Two looks of as much noise cost what one of a root of two less does."""
    one, two = (planned_sigma([EFFECT] * k, 100_000) for k in (1, 2))
    assert two / one == pytest.approx(np.sqrt(2), rel=0.03)


def test_a_quantile_is_checked_by_the_noise_of_all_its_levels() -> None:
    """Two groups of six levels: a group's rows have root 6 times the noise of a count."""
    asked = [{"kind": "question", "ask": "quantile(visits, 0.4) by old"}]
    least = 2 * 4 * planned_sigma(asked, 100_000)
    planned_sigma(asked, round(2.6 * least))
    with pytest.raises(BudgetError, match="in 2 strata"):
        planned_sigma(asked, round(2.3 * least))


def test_treatment_is_not_as_frequent_in_all_strata() -> None:
    """Log odds of treatment have a deviation of .6 between strata: .85 the difference of two."""
    spec = spec_of([EFFECT], rows=100_000, columns=with_shares(old=0.5))
    domain = Domain.from_spec(spec.columns)
    planned: Any = plan_for(spec, domain).estimands["1"]
    drawn = StandIn(spec, domain, spec.estimands[0]).sums(planned, np.random.default_rng(1))
    counts = [next(drawn).counts.reshape(2, -1) for _ in range(80)]  # type: ignore[union-attr]
    odds = np.log([n[0] / n[1] for n in counts])
    assert 0.65 < np.std(odds[:, 0] - odds[:, 1]) < 1.05


@pytest.mark.check
def test_the_lines_of_the_plan() -> None:
    spec = spec_of(ASKED, rows=100_000)
    lines = [estimand_line(told) for told in played(spec)]
    assert lines[0].startswith("estimand 1, mean(visits) by old: 95% interval of about ± 0.")
    assert "in false (noise alone ± 0." in lines[0]
    assert "%" in lines[1] and " rows" in lines[2] and "rows in each cell" in lines[6]
    assert "in old=true" in lines[5] and not any("refused" in line for line in lines)
    (thin,) = (estimand_line(told) for told in played(spec_of([EFFECT], rows=300)))
    assert " of 100 plays: " in thin and "of 4 strata have fewer than" in thin
    (partly,) = (estimand_line(told) for told in played(spec_of([EFFECT], rows=2000)))
    assert "in where both groups overlap (noise alone" in partly
    assert "; the average over all rows: refused in " in partly


@pytest.mark.check
def test_plans_say_where_numbers_are_clipped() -> None:
    asked = [
        {"kind": "question", "ask": "mean(visits) by old", "clip": [0, 12]},
        {"kind": "effect", "treated": "sick", "outcome": "visits", "adjust": [], "clip": [1, 9]},
        {"kind": "regression", "outcome": "visits", "terms": ["old"], "clips": {"visits": [2, 8]}},
        {"kind": "question", "ask": "mean(visits)", "clip": [0, 30]},
    ]
    lines = [estimand_line(told) for told in played(spec_of(asked))]
    for line, clip in zip(lines, ["0 to 12", "1 to 9", "2 to 8"], strict=False):
        assert f"(visits clipped to {clip}, of 0 to 30): 95% interval" in line
    assert lines[3].startswith("estimand 4, mean(visits): 95%"), "bounds are no clip"


@pytest.mark.check
def test_a_condition_that_stand_in_rows_never_meet_is_taken_to_be_rare() -> None:
    """Whether a real row is exactly 29.5 no law says."""
    column = {"type": "number", "lower": 0, "upper": 30, "edges": [0, 15]}
    asked = [
        {"kind": "question", "ask": "mean(visits) where pay == 29.5"},
        {"kind": "effect", "treated": "pay == 29.5", "outcome": "visits", "adjust": ["old"]},
    ]
    assert [told["refused"] for told in played(spec_of(asked, columns=COLUMNS | {"pay": column}))]
    for told in played(spec_of(asked, columns=COLUMNS | {"pay": column})):
        assert told["refused"] == 0


def test_ranges_of_an_effect_are_played_and_not_the_bins() -> None:
    """Of thirty bins each is too thin; of two ranges at the middle of the first bell none is."""
    column = {"type": "number", "lower": 0, "upper": 30, "bins": 30}
    asked = [{**EFFECT, "adjust": adjust} for adjust in ({"pay": [0, 9]}, ["pay"])]
    both = [played(spec_of([a], rows=20_000, columns=COLUMNS | {"pay": column})) for a in asked]
    ranges, bins = (told["figures"][0]["refused"] for (told,) in both)
    assert ranges == 0 and bins == 1


def test_an_estimand_that_is_likely_refused_is_not_paid_for() -> None:
    fine, thin = spec_of([EFFECT], rows=100_000), spec_of([EFFECT], rows=300)
    check_answered(played(fine))
    with pytest.raises(BudgetError, match="likely to be paid for and refused, in") as told:
        check_answered(played(thin))
    assert "nothing was read or spent" in told.value.message
    assert "--accept-refusals" in (told.value.hint or "")


def text_of(rows: int) -> str:
    privacy = {"epsilon": 1.0, "delta": 1e-6, "shares": SHARES}
    content = {**skeleton(rows), "columns": COLUMNS, "estimands": [EFFECT], "privacy": privacy}
    content["graph"] = {"mode": "predict"}
    return yaml.safe_dump(content, sort_keys=False)


@pytest.mark.check
def test_other_budgets_have_their_estimands_and_reach_a_half_width() -> None:
    text = text_of(4000)
    head, rows = figures_table(what_if(text, [0.05, 4]))
    refused = next(row for row in rows if "overlap: refused" in row[0])
    assert len(head) == 3 and float(refused[2][:-1]) < 10 and float(refused[1][:-1]) > 50
    (told,) = played(parse_spec(text, path="s"))
    now = min(figure["half_width"] for figure in told["figures"])
    (told,) = reaching(text, parse_spec(text, path="s"), 0.8 * now)
    assert not told["reached"] and told["least"] < 0.8 * now
    assert 1 < told["epsilon"] < 4 and 0.3 < told["share"] < 0.95
    for factor, reached in ((1.2, True), (0.7, False)):
        content = yaml.safe_load(text)
        content["privacy"]["epsilon"] = factor * told["epsilon"]
        (found,) = played(parse_spec(yaml.safe_dump(content), path="s"))
        assert (min(f["half_width"] for f in found["figures"]) <= 0.8 * now) == reached
    (easy,) = reaching(text, parse_spec(text, path="s"), 2 * now)
    (never,) = reaching(text, parse_spec(text, path="s"), 0.01)
    assert easy["reached"] and easy["epsilon"] is None
    assert never["epsilon"] is never["share"] is None and never["least"] > 0.01


@pytest.mark.slow
def test_probabilities_of_refusal_are_calibrated_and_widths_are_right() -> None:
    """Of designs with declared shares, whose treatment goes by the strata, and undeclared spreads:
    Brier's score is .1 at most, and of those that are told half widths lie within a factor of 1.5,
    and in the range that is told, in nine of ten.
    """
    rng, scores, widths = np.random.default_rng(34), [], []
    for _ in range(40):
        score, width = simulated(rng)
        scores.append(score)
        widths += width
    assert np.mean(scores) <= 0.1 and len(widths) > 15
    half, low, high = np.array(widths).T
    assert np.mean(np.abs(np.log(half)) < np.log(1.5)) >= 0.9
    assert np.mean((low <= 1) & (high >= 1)) >= 0.9


def simulated(rng: np.random.Generator) -> tuple[float, list[list[float]]]:
    """Of 60 releases of a random design Brier's score, and the played half width and its range over
    the median one, if most are told.
    """
    minor, treated, rows = rng.uniform(0.05, 0.4), rng.uniform(0.08, 0.5), rng.integers(800, 8000)
    law = np.outer([1 - minor, minor], [0.5, 0.5])
    lift = rng.normal(0, 0.4, (2, 1)) + rng.normal(0, 0.4, (1, 2))
    at = brentq(lambda c: (law / (1 + np.exp(-c - lift))).sum() - treated, -10, 10)
    often, spread = 1 / (1 + np.exp(-at - lift)), rng.uniform(3, 6)
    columns = {
        **with_shares(old=float(minor), sick=float(treated)),
        "town": {"type": "categorical", "categories": ["a", "b"], "known_shares": {"a": 0.5}},
    }
    asked = [{**EFFECT, "adjust": ["old", "town"]}]
    spec = spec_of(asked, rows=int(rows), epsilon=float(rng.choice([2, 4, 8])), columns=columns)
    domain = Domain.from_spec(spec.columns)
    try:
        planned = plan_for(spec, domain).estimands["1"]
    except BudgetError:  # it would be refused however rows are spread
        return 0.0, []
    assert isinstance(planned, StratumSums) and planned.number is not None
    (told,) = played(spec)
    means, widths = rng.normal(10, 3, (2, 2, 2)), []
    for _ in range(60):
        n = rng.multinomial(rows, np.stack([law * often, law * (1 - often)]).ravel())
        drawn = [rng.normal(m, spread, k) for m, k in zip(means.ravel(), n, strict=True)]
        u = [np.clip((y - 15) / 15, -1, 1) for y in drawn]
        parts = ([k, v.sum(), (v**2).sum()] for k, v in zip(n, u, strict=True))
        counts, total, squares = np.array([*parts], float).T.reshape(3, 2, 2, 2)
        exact = NoisySums(counts, total, squares, 0.0)
        sums = with_noise(exact, spec.estimands[0], planned, rng)
        assert isinstance(sums, NoisySums)
        found = effect_figure(sums, planned.number, Rows())
        if found.interval is not None:
            widths.append((float(found.interval[1]) - float(found.interval[0])) / 2)
    refused, p = 1 - len(widths) / 60, told["figures"][0]["refused"]
    score = refused * (1 - p) ** 2 + (1 - refused) * p**2
    half, between = (told["figures"][0][name] for name in ("half_width", "between"))
    usual = float(np.median(widths)) if widths else 0.0
    return score, [[w / usual for w in (half, *between)]] if len(widths) > 30 and half else []
