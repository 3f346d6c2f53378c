"""Means by measured sums: equal to those of the rows where there is no noise, and covered."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import yaml

from synthdp.data import Domain
from synthdp.inference import Answer, Figure, Z, answer_tables, narrower
from synthdp.model import plan_for
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.mechanisms.sums import NoisyProducts
from synthdp.privacy.plan import ReleasePlan
from synthdp.privacy.table import count_tables
from synthdp.spec import parse_query, parse_spec
from synthdp.spec.model import ReleaseSpec
from tests.builders import skeleton
from tests.privacy.conftest import encoded_table

COLUMNS: dict[str, Any] = {
    "arm": {"type": "categorical", "categories": ["a", "b", "c"]},
    "old": {"type": "boolean"},
    "x": {"type": "number", "lower": 0, "upper": 100, "bins": 16},
    "part": {"type": "number", "lower": 0, "upper": 100, "bins": 16, "missing": True},
}
Floats = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator, Floats], Floats]


@cache
def spec_of(rows: int, epsilon: float = 1.0) -> ReleaseSpec:
    """All pairs are measured, and moments at their default share, or at .1 where that is none."""
    shares = {"measure": 0.2, "pairs": 0.3, "train": 0.4, "moments": 0.1}
    privacy = {"epsilon": epsilon, "delta": 1e-6, "shares": shares}
    text = yaml.safe_dump(
        {**skeleton(rows), "columns": COLUMNS, "privacy": privacy, "graph": {"mode": "none"}}
    )
    return parse_spec(text, path="spec.yaml")


COLUMNS_READ = spec_of(20_000).columns


def drawn(rows: int, law: Draw, rng: np.random.Generator) -> pd.DataFrame:
    arm = rng.choice(3, rows, p=[0.6, 0.3, 0.1])
    x = law(rng, arm.astype(float)).clip(0, 100)
    part = np.where(rng.random(rows) < 0.2 + 0.1 * arm, np.nan, x)
    old = np.where(rng.random(rows) < 0.4 + 0.2 * (x > 40), "true", "false")
    return pd.DataFrame({"arm": np.array(list("abc"))[arm], "old": old, "x": x, "part": part})


@cache
def plan_of(rows: int, epsilon: float) -> ReleasePlan:
    spec = spec_of(rows, epsilon)
    return plan_for(spec, Domain.from_spec(spec.columns))


Released = tuple[list[NoisyTable], NoisyProducts | None]


def released(
    frame: pd.DataFrame,
    rng: np.random.Generator,
    *,
    epsilon: float = 1.0,
    noise: float = 1.0,
    pairs: bool = True,
) -> Released:
    """The tables and the sums of these rows, with so many times the planned noise."""
    domain = Domain.from_spec(COLUMNS_READ)
    plan, table = plan_of(len(frame), epsilon), encoded_table(domain, frame)
    assert plan.measure and plan.pairs and plan.moments
    found = list[NoisyTable]()
    for mechanism in (plan.measure, plan.pairs)[: 1 + pairs]:
        scales = mechanism.scales or (1.0,) * len(mechanism.tables)
        counted = count_tables(table.codes, domain, mechanism.tables)
        for columns, counts, scale in zip(mechanism.tables, counted, scales, strict=True):
            sigma = noise * mechanism.sigma * scale
            found.append(NoisyTable(columns, counts + rng.normal(0, sigma, counts.shape), sigma))
    sums, sigma = plan.moments.without_noise(table).sums, noise * plan.moments.sigma
    return found, NoisyProducts(sums + rng.normal(0, sigma, sums.shape), sigma)


def ask(text: str, frame: pd.DataFrame, known: Released, *, epsilon: float = 1.0) -> Answer:
    spec = spec_of(len(frame), epsilon)
    query = parse_query(text, spec.columns)
    return answer_tables(query, spec, Domain.from_spec(spec.columns), *known)


def normal(rng: np.random.Generator, arm: Floats) -> Floats:
    return rng.normal(45 + 5 * arm, 12)


def lognormal(rng: np.random.Generator, arm: Floats) -> Floats:
    return np.exp(rng.normal(0.9 + 0.4 * arm, 0.8))


def zero_inflated(rng: np.random.Generator, arm: Floats) -> Floats:
    return np.where(rng.random(len(arm)) < 0.6 - 0.2 * (arm > 0), 0.0, rng.gamma(2, 8, len(arm)))


LAWS: dict[str, Draw] = {"normal": normal, "lognormal": lognormal, "zero-inflated": zero_inflated}


# --- without noise ---


def test_without_noise_means_are_those_of_the_rows_and_only_sampling_is_left() -> None:
    rng = np.random.default_rng(1)
    frame = drawn(20_000, normal, rng)
    known = released(frame, rng, noise=1e-9)
    for text, own in {
        "mean(x)": [frame.x],
        "mean(part)": [frame.part.dropna()],
        "mean(x) by arm": [frame.x[frame.arm == arm] for arm in "abc"],
        "mean(part) by old": [frame.part[frame.old == old].dropna() for old in ("false", "true")],
        "mean(x) where arm == 'b' or arm == 'c'": [frame.x[frame.arm != "a"]],
    }.items():
        answer = ask(text, frame, known)
        assert answer.tier == "A" and "sums of the numbers" in answer.about[0]
        for figure, rows in zip(answer.figures, own, strict=True):
            assert figure.estimate == pytest.approx(rows.mean(), abs=0.03)
            assert figure.of_rows == pytest.approx((rows.mean(),) * 2, abs=0.03)
            assert figure.interval is not None and figure.by_levels is not None
            half = 1.96 * rows.std() / np.sqrt(len(rows))
            low, high = map(float, figure.interval)
            assert (high - low) / 2 == pytest.approx(half, rel=0.05)


def test_the_spread_is_taken_a_deviation_of_its_noise_too_large() -> None:
    """Of exact counts and sums that are said to be noisy: what sampling adds to an interval."""
    rng = np.random.default_rng(6)
    frame = drawn(20_000, normal, rng)
    tables, sums = released(frame, rng, noise=1e-9)
    assert sums is not None

    def sampled(text: str, noise: float) -> float:
        """The variance of sampling of the sum of u, of the first figure (if of all rows)."""
        said = [NoisyTable(t.columns, t.counts, noise * 1e9 * t.sigma) for t in tables]
        known = said, NoisyProducts(sums.sums, noise * 1e9 * sums.sigma)
        (figure, *_) = ask(text, frame, known).figures
        assert figure.interval and figure.of_rows
        halves = [(float(e[1]) - float(e[0])) / 2 for e in (figure.interval, figure.of_rows)]
        return float((halves[0] ** 2 - halves[1] ** 2) * (len(frame) / (50 * Z)) ** 2)

    assert sampled("mean(x)", 1.0) - sampled("mean(x)", 1e-9) == pytest.approx(
        1e9 * sums.sigma, rel=0.1
    )
    assert sampled("mean(x) by arm", 1.0) > 1.005 * sampled("mean(x) by arm", 1e-9)


@pytest.mark.parametrize(
    "text",
    ["mean(x) where x > 50", "mean(x) by arm, old", "median(x)", "mean(x) where part > 50"],
)
def test_what_sums_do_not_tell_is_answered_as_before(text: str) -> None:
    rng = np.random.default_rng(2)
    frame = drawn(20_000, normal, rng)
    tables, sums = released(frame, rng, noise=1e-9)
    with_sums = ask(text, frame, (tables, sums))
    assert with_sums.to_json() == ask(text, frame, (tables, None)).to_json()


def test_a_pair_that_no_table_has_is_answered_by_sums_and_a_lacking_number_is_not() -> None:
    """Without a pair nobody knows how many of an arm have the number."""
    rng = np.random.default_rng(3)
    frame = drawn(20_000, normal, rng)
    known = released(frame, rng, pairs=False)
    answer = ask("mean(x) by arm", frame, known)
    assert answer.tier == "A" and all(f.interval and not f.by_levels for f in answer.figures)
    assert ask("mean(part) by arm", frame, known).tier == "C"
    assert ask("mean(part)", frame, known).tier == "A"


def test_the_figure_of_less_noise_is_taken_whatever_it_says() -> None:
    """With much noise of sums the tables answer, as they would have."""
    rng = np.random.default_rng(4)
    frame = drawn(20_000, normal, rng)
    tables, sums = released(frame, rng)
    assert sums is not None
    loud = NoisyProducts(sums.sums, 100 * sums.sigma)
    said = [ask("mean(x)", frame, (tables, known)) for known in (None, loud, sums)]
    assert said[0].to_json() == said[1].to_json() and said[2].figures[0].by_levels


def test_the_narrower_interval_is_not_taken_for_being_so() -> None:
    """But for the noise that it was to have."""
    by_sums, by_levels = (Figure(None, 100.0, 5.0, (5.0 - h, 5.0 + h)) for h in (0.1, 1.0))
    assert narrower((by_sums, 2.0), by_levels, 1.0) is by_levels
    assert narrower((by_sums, 1.0), by_levels, 2.0).by_levels == (4.0, 6.0)


# --- coverage ---


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_means_are_covered_and_narrow_with_rows_and_epsilon(
    law: str, figure: Callable[..., None]
) -> None:
    """200 releases of each size, each of new rows; truths of a million. Five figures of a release
    share rows and noise: the share that is covered has a standard error of .01.
    """
    rng = np.random.default_rng(5)
    whole = drawn(1_000_000, LAWS[law], rng)
    asked = {"mean(x)": [whole.x.mean()], "mean(part)": [whole.part.mean()]}
    asked["mean(x) by arm"] = [whole.x[whole.arm == arm].mean() for arm in "abc"]
    widths = dict[tuple[int, float], list[float]]()
    for rows, epsilon in ((5_000, 1.0), (20_000, 1.0), (20_000, 4.0), (80_000, 1.0)):
        hits, told, first = 0, 0, list[float]()
        for _ in range(200):
            frame = drawn(rows, LAWS[law], rng)
            known = released(frame, rng, epsilon=epsilon)
            for text, truths in asked.items():
                for found, truth in zip(
                    ask(text, frame, known, epsilon=epsilon).figures, truths, strict=True
                ):
                    if found.interval is None or (found.by_levels is None and found.bounds):
                        continue  # a bounded answer covers more
                    low, high = map(float, found.interval)
                    told, hits = told + 1, hits + (low <= truth <= high)
                    if text == "mean(x)":
                        first.append(high - low)
        print(law, rows, epsilon, hits / told, told, np.median(first))
        figure(f"means by sums: {law}, {rows} rows, epsilon {epsilon:g}", hits, told)
        assert 0.92 <= hits / told <= 0.98
        widths[rows, epsilon] = first
    medians = {key: float(np.median(found)) for key, found in widths.items()}
    assert medians[20_000, 4.0] < medians[20_000, 1.0] / 1.4
    assert medians[80_000, 1.0] < medians[20_000, 1.0] / 2 < medians[5_000, 1.0] / 4
