"""Answers of tables and of bundles: tiers, bounds, scaling, refusals, text and JSON."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthdp import Bundle
from synthdp.data import Domain, LevelGroups
from synthdp.errors import OutputError, QueryError, VerifyError
from synthdp.inference import Answer, answer_tables, next_time
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.spec import parse_query
from synthdp.spec.model import ReleaseSpec
from tests.inference.conftest import counted, drawn_levels, heavy, spec_with

PAIR = [("age", "smoker"), ("age",), ("smoker",)]
STARTS = {"age": (0, 2, 3, 7)}
CONDITIONS = {
    "age": "age >= 37",
    "sex": "sex == 'male'",
    "smoker": "smoker",
    "visits": "visits > 1",
    "seen": "seen < '2024-05-17'",
    "weight kg": "`weight kg` <= 70",
}


def asked(
    text: str, spec: ReleaseSpec, domain: Domain, tables: list[NoisyTable] | tuple[NoisyTable, ...]
) -> Answer:
    return answer_tables(parse_query(text, spec.columns), spec, domain, tables)


def exact(domain: Domain, *sets: tuple[str, ...], **more: Any) -> list[NoisyTable]:
    """Tables without noise of 1,000 rows."""
    codes, rng = drawn_levels(domain, 1000, 3), np.random.default_rng(1)
    return [counted(domain, codes, names, sigma=0, rng=rng, **more) for names in sets]


def values_of(domain: Domain, name: str, rows: int = 1000) -> Any:
    return drawn_levels(domain, rows, 3)[:, domain.index(name)].astype(float)


# --- figures without noise are those of the rows ---


def test_shares_means_and_counts(spec: ReleaseSpec, domain: Domain) -> None:
    smoker, visits = values_of(domain, "smoker"), values_of(domain, "visits")
    sex = values_of(domain, "sex")
    tables = exact(domain, ("sex", "smoker"), ("sex", "visits"))
    known = smoker < 2
    answer = asked("share(smoker)", spec, domain, tables)
    assert answer.tier == "A" and answer.estimate == pytest.approx((smoker[known] == 1).mean())
    men = known & (sex == 1)
    answer = asked("share(smoker) by sex", spec, domain, tables)
    assert answer.figures[1].estimate == pytest.approx((smoker[men] == 1).mean())
    assert answer.figures[1].rows == pytest.approx(men.sum())
    assert "rows that lack smoker are left out" in answer.about
    seen = (visits < 5) & (sex == 0)
    answer = asked("mean(visits) where sex == 'female'", spec, domain, tables)
    assert answer.estimate == pytest.approx(visits[seen].mean())
    assert answer.figures[0].bounds is None  # levels of one number tell all
    answer = asked("count(smoker is missing)", spec, domain, tables)
    assert answer.estimate == pytest.approx((smoker == 2).sum())
    with pytest.raises(OutputError, match="one figure for each group of 'sex'"):
        _ = asked("share(smoker) by sex", spec, domain, tables).estimate


def test_a_quantile_is_the_level_that_reaches_it(spec: ReleaseSpec, domain: Domain) -> None:
    visits = values_of(domain, "visits")
    answer = asked("quantile(visits, 0.5)", spec, domain, exact(domain, ("visits",)))
    assert answer.estimate == np.quantile(visits[visits < 5], 0.5, method="inverted_cdf")
    assert answer.figures[0].of_rows == (answer.estimate, answer.estimate)


def test_the_interval_is_that_of_the_rows_where_there_is_no_noise(
    spec: ReleaseSpec, domain: Domain
) -> None:
    answer = asked("share(smoker)", spec, domain, exact(domain, ("smoker",)))
    low, high = answer.interval
    p, rows = answer.estimate, answer.figures[0].rows
    half = 1.96 * np.sqrt(p * (1 - p) / rows)
    assert (low, high) == pytest.approx((p - half, p + half), abs=2e-3)
    assert answer.figures[0].of_rows == pytest.approx((p, p), abs=2e-3)


def test_groups_of_two_columns_are_those_of_where(spec: ReleaseSpec, domain: Domain) -> None:
    codes, rng = drawn_levels(domain, 1000, 3), np.random.default_rng(1)
    tables = [counted(domain, codes, ("sex", "smoker", "visits"), sigma=2, rng=rng)]
    answer = asked("mean(visits) by smoker, sex", spec, domain, tables)
    assert answer.tier == "A"
    assert [figure.group for figure in answer.figures] == [
        f"{smoker}, {sex}" for smoker in ("no", "yes", "missing") for sex in ("female", "male")
    ]
    where = "mean(visits) where smoker is missing and sex == 'male'"
    alone = asked(where, spec, domain, tables).figures[0]
    assert answer.figures[-1] == replace(alone, group="missing, male")
    pairs = exact(domain, ("sex", "smoker"), ("sex", "visits"))
    unmeasured = asked("mean(visits) by sex, smoker", spec, domain, pairs)
    assert unmeasured.tier == "C" and unmeasured.unmeasured == (("sex", "smoker", "visits"),)
    with pytest.raises(OutputError, match="'age' has 8 levels, 'seen' has 12 levels"):
        asked("share(smoker) by age, seen, sex", spec, domain, pairs)


def test_a_sum_is_of_the_whole_table(domain: Domain) -> None:
    visits, sex = values_of(domain, "visits"), values_of(domain, "sex")
    tables, spec = exact(domain, ("sex", "visits")), spec_with(holdout=0.2)
    answer = asked("sum(visits) by sex", spec, domain, tables)
    men = (sex == 1) & (visits < 5)
    figure = answer.figures[1]
    assert figure.estimate == pytest.approx(visits[men].sum() / 0.8)
    assert figure.rows == pytest.approx(men.sum() / 0.8)
    coins = 1.96 * np.sqrt((visits[men] ** 2).sum() / 0.8 * 0.2 / 0.8)
    low, high = figure.interval
    assert (high - low) / 2 == pytest.approx(coins, rel=0.01)
    assert any("the tables count the 80% that coins left" in said for said in answer.about)


def test_a_sum_of_numbers_inside_levels_has_bounds(spec: ReleaseSpec, domain: Domain) -> None:
    age = values_of(domain, "age")
    (figure,) = asked("sum(age) where age >= 25", spec, domain, exact(domain, ("age",))).figures
    low, high = figure.bounds
    assert low == pytest.approx((10 * age[age > 2]).sum())
    assert high == pytest.approx((10 * age[age >= 2] + 9).sum())
    (figure,) = asked("sum(age)", spec, domain, exact(domain, ("age",))).figures
    assert figure.at_middles == pytest.approx([(10 * age + 4.5).sum()] * 2, rel=0.01)


def test_bounded_means_are_told_at_middles_too(spec: ReleaseSpec, domain: Domain) -> None:
    age = values_of(domain, "age")
    answer = asked("mean(age)", spec, domain, exact(domain, ("age",)))
    (figure,) = answer.figures
    middle, half = (10 * age + 4.5).mean(), 1.96 * (10 * age).std() / np.sqrt(len(age))
    assert figure.at_middles == pytest.approx((middle - half, middle + half), rel=1e-3)
    assert figure.interval[0] == pytest.approx(figure.at_middles[0] - 4.5, abs=0.01)
    head, line = str(answer).splitlines()[1:3]
    assert head.split("  ")[-2:] == ["at middles of levels", "rows"] and line.count(" to ") == 2
    for other in ("mean(visits)", "mean(age) where age > 33"):
        assert (
            asked(other, spec, domain, exact(domain, (other[5:].partition(")")[0],)))
            .figures[0]
            .at_middles
            is None
        )


def test_an_estimate_beyond_the_range_is_not_told(spec: ReleaseSpec, domain: Domain) -> None:
    """Noise in far levels outweighs the rows: the mean of the noisy counts is below the range."""
    counts = np.array([900.0, 0, 0, 0, -25, -25, -25, -25])
    answer = asked("mean(age)", spec, domain, [NoisyTable(("age",), counts, 20.0)])
    (figure,) = answer.figures
    assert figure.estimate is None and figure.refused is None and answer.estimate is None
    assert figure.interval[0] == 0.0 and 0 < figure.interval[1] < 20
    assert "estimate" not in answer.to_json()["figures"][0]
    assert "lost in noise" in str(answer) and "0 to" in str(answer)


# --- what levels do not tell ---


@pytest.mark.check
@given(st.integers(0, 79), st.sampled_from(["share(smoker)", "mean(visits)", "count(smoker)",
                                            "share(age >= 40)", "mean(age)"]))  # fmt: skip
def test_bounds_hold_whatever_lies_inside_the_levels(cut: int, statistic: str) -> None:
    """Ages are drawn at random inside their levels; the true answer is never outside."""
    spec = spec_with()
    domain = Domain.from_spec(spec.columns)
    codes = drawn_levels(domain, 1000, 3)
    rng = np.random.default_rng(cut)
    starts = {"age": (0, 2, 3, 7)}
    sets = [("age", "smoker"), ("age", "visits"), ("age",), ("smoker",)]
    tables = [
        counted(domain, codes, s, sigma=0, rng=rng, starts=starts if len(s) > 1 else None)
        for s in sets
    ]
    answer = asked(f"{statistic} where age >= {cut}", spec, domain, tables)
    age = 10 * codes[:, 0] + rng.integers(0, 10, 1000)
    smoker, visits = codes[:, 2], codes[:, 3].astype(float)
    chosen = age >= cut
    known = chosen & (smoker < 2)
    with np.errstate(invalid="ignore"):
        truth = {
            "share(smoker)": np.divide((smoker[known] == 1).sum(), known.sum()),
            "mean(visits)": visits[chosen & (visits < 5)].mean() if chosen.any() else np.nan,
            "count(smoker)": float((chosen & (smoker == 1)).sum()),
            "share(age >= 40)": (age[chosen] >= 40).mean() if chosen.any() else np.nan,
            "mean(age)": age[chosen].mean() if chosen.any() else np.nan,
        }[statistic]
    (figure,) = answer.figures
    if figure.estimate is None:
        assert known.sum() < 40 or cut >= 70
        return
    low, high = figure.bounds or (figure.estimate, figure.estimate)
    assert low - 1e-6 <= truth <= high + 1e-6
    if figure.bounds is not None and statistic.startswith("count"):
        assert any("which the condition cuts" in said for said in answer.about)


def test_the_ends_of_levels_are_exact(spec: ReleaseSpec, domain: Domain) -> None:
    tables = exact(domain, *PAIR)
    assert asked("share(smoker) where age >= 40", spec, domain, tables).figures[0].bounds is None
    cut = asked("share(smoker) where age >= 41", spec, domain, tables)
    assert cut.figures[0].bounds is not None
    assert any("age by 40 to 49, which the condition cuts" in said for said in cut.about)


def test_one_column_is_answered_on_levels_where_groups_are_cut(
    spec: ReleaseSpec, domain: Domain
) -> None:
    tables = exact(domain, ("age", "smoker"), starts=STARTS) + exact(domain, ("age",))
    age = values_of(domain, "age")
    answer = asked("share(age >= 50)", spec, domain, tables)  # inside the group 30 to 69
    assert answer.figures[0].bounds is None
    assert answer.estimate == pytest.approx((age >= 5).mean())
    pair = asked("share(smoker) where age >= 50", spec, domain, tables)
    assert pair.figures[0].bounds is not None


# --- whom an answer is of ---


def test_counts_are_scaled_to_the_whole_table(domain: Domain) -> None:
    kept, whole = spec_with(holdout=0.2), spec_with()
    tables = exact(domain, ("smoker",))
    part = asked("count(smoker)", kept, domain, tables)
    full = asked("count(smoker)", whole, domain, tables)
    assert part.estimate == pytest.approx(full.estimate / 0.8)
    low, high = part.interval
    coins = 1.96 * np.sqrt(part.estimate * 0.2 / 0.8)
    assert high - low == pytest.approx(2 * coins, rel=0.01)
    assert any("the tables count the 80% that coins left" in said for said in part.about)
    same = asked("share(smoker)", kept, domain, tables).estimate
    assert same == pytest.approx(asked("share(smoker)", whole, domain, tables).estimate)


def test_rows_of_one_person_widen_the_interval(domain: Domain) -> None:
    unit = {"kind": "id", "column": "patient", "max_rows": 4, "meaning": "one patient"}
    tables = exact(domain, ("smoker",))
    one = asked("share(smoker)", spec_with(), domain, tables)
    four = asked("share(smoker)", spec_with(privacy_unit=unit), domain, tables)
    widths = [float(a.interval[1] - a.interval[0]) for a in (one, four)]
    assert widths[1] == pytest.approx(2 * widths[0], rel=0.02)
    assert any("at most 4 random rows of each id (one patient)" in said for said in four.about)


def test_rows_of_one_person_widen_a_quantile(domain: Domain) -> None:
    """100 rows in each of eight levels: of 800, 360 lie below; 28 rows more or less, then 83."""
    tables = [NoisyTable(("age",), np.full(8, 100.0), 1e-3)]
    for most, ends in ((1, (30, 39)), (9, (20, 49))):
        unit = {"kind": "id", "column": "patient", "max_rows": most, "meaning": "one patient"}
        told = asked("quantile(age, 0.45)", spec_with(privacy_unit=unit), domain, tables)
        assert told.interval == ends


def test_whom_figures_are_of_is_said_where_an_id_has_several_rows(domain: Domain) -> None:
    unit = {"kind": "id", "column": "patient", "max_rows": 1, "meaning": "one patient"}
    of_ids, tables = spec_with(privacy_unit=unit), exact(domain, ("smoker",))
    whom = of_ids.dataset.privacy_unit.whom
    assert whom is not None and "one random row of each id (one patient)" in whom
    assert whom in asked("share(smoker)", of_ids, domain, tables).about
    counts = asked("count(smoker)", of_ids, domain, tables).about
    assert whom in counts and "rows of the whole table that max_rows leaves" in counts
    assert not any("random row" in s for s in asked("count()", spec_with(), domain, tables).about)


def test_clamped_bounds_are_said(domain: Domain) -> None:
    spec = spec_with(out_of_domain="clamp")
    answer = asked("mean(visits)", spec, domain, exact(domain, ("visits",)))
    assert "visits of 0 to 4: what lies beyond counts as the nearer end" in answer.about


# --- tiers ---


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("share(age > 200)", "200 lies outside the domain of age, 0 to 79"),
        ("count(-3 <= age)", "-3 lies outside the domain of age, 0 to 79"),
        ("mean(visits) where age in (5, 99)", "99 lies outside the domain of age, 0 to 79"),
        (
            "median(age) where `weight kg` < 20.5",
            "20.5 lies outside the domain of weight kg, 30 to 130",
        ),
        (
            "share(seen >= '2031-05-01')",
            "2031-05-01 lies outside the domain of seen, 2024-01-01 to 2024-12-31",
        ),
        ("share(age <= 79 and age >= 0)", None),
        ("share(seen > '2024-12-30T12:00')", None),
        ("share(smoker or sex == 'male')", None),
    ],
)
def test_a_value_outside_the_domain_is_said_with_what_is_allowed(
    text: str, said: str | None, spec: ReleaseSpec, domain: Domain
) -> None:
    about = asked(text, spec, domain, exact(domain, *combinations(domain.names, 2))).about
    told = [sentence.partition(";")[0] for sentence in about if "outside" in sentence]
    assert told == ([] if said is None else [said])


def test_a_pair_that_was_not_measured_is_model_only(spec: ReleaseSpec, domain: Domain) -> None:
    tables = exact(domain, ("age", "smoker"), ("sex",))
    answer = asked("share(smoker) by sex", spec, domain, tables)
    assert answer.tier == "C" and answer.unmeasured == (("sex", "smoker"),)
    assert any("privacy.pairs [sex, smoker]" in said for said in answer.about)


def test_three_columns_that_two_pairs_answer_are_spanned(spec: ReleaseSpec, domain: Domain) -> None:
    tables = exact(domain, ("sex", "smoker"), ("sex", "visits"))
    text = "count((sex == 'male' and smoker) or (sex == 'female' and visits > 1))"
    answer = asked(text, spec, domain, tables)
    sex, smoker, visits = (values_of(domain, n) for n in ("sex", "smoker", "visits"))
    truth = ((sex == 1) & (smoker == 1)) | ((sex == 0) & (visits > 1) & (visits < 5))
    assert answer.tier == "B" and answer.estimate == pytest.approx(truth.sum(), rel=1e-6)
    assert asked("share(smoker) where visits > 1 by sex", spec, domain, tables).tier == "C"


names = st.lists(st.sampled_from(sorted(CONDITIONS)), min_size=1, max_size=3, unique=True)


@given(names, st.sampled_from(["share({})", "count({})", "mean(visits)", "quantile(age, 0.3)"]),
       st.sets(st.sampled_from(list(combinations(CONDITIONS, 2))), max_size=6))  # fmt: skip
def test_tier_c_never_has_an_interval(
    columns: list[str], form: str, pairs: set[tuple[str, str]]
) -> None:
    spec = spec_with()
    domain = Domain.from_spec(spec.columns)
    rng = np.random.default_rng(7)
    sets = [*((name,) for name in CONDITIONS), *sorted(pairs)]
    codes = drawn_levels(domain, 400, 8)
    tables = [counted(domain, codes, s, sigma=2, rng=rng) for s in sets]
    where = " and ".join(CONDITIONS[name] for name in columns[1:])
    text = form.format(CONDITIONS[columns[0]]) + (f" where {where}" if where else "")
    query = parse_query(text, spec.columns)
    answer = answer_tables(query, spec, domain, tables)
    together = any(set(query.columns) <= set(s) for s in sets)
    assert (answer.tier == "A") is together
    if len(query.columns) == 2 and not together:
        assert answer.tier == "C"
    if answer.tier == "C":
        assert all(f.interval is None and f.of_rows is None for f in answer.figures)
        assert answer.unmeasured and "interval" not in json.dumps(answer.to_json()["figures"])
    assert ("no interval" in str(answer)) is (answer.tier == "C")


# --- refusals ---


def test_few_rows_are_refused_with_their_number(spec: ReleaseSpec, domain: Domain) -> None:
    codes, rng = drawn_levels(domain, 1000, 3), np.random.default_rng(2)
    tables = [counted(domain, codes, ("age", "smoker"), sigma=40, rng=rng)]
    answer = asked("share(smoker) where age >= 70", spec, domain, tables)
    (figure,) = answer.figures
    assert figure.estimate is None and figure.interval is None and answer.interval is None
    assert figure.refused is not None and "too few rows: about" in figure.refused
    assert "too few rows" in str(answer)


def test_too_many_groups_are_refused(domain: Domain) -> None:
    fine = replace(domain["age"], labels=tuple(map(str, range(200))), edges=tuple(range(200)))
    wide = Domain((fine, *domain.columns[1:]))
    table = NoisyTable(("age", "smoker"), np.full((200, 3), 50.0), 1.0)
    with pytest.raises(OutputError, match="column 'age' has 200 levels, and `by` takes 128"):
        asked("share(smoker) by age", spec_with(), wide, [table])


def test_beyond_the_cells_that_are_looked_at_it_is_model_only(domain: Domain) -> None:
    columns = tuple(
        replace(c, labels=tuple(map(str, range(80))), edges=tuple(range(80)), missing=False)
        if c.name in ("age", "visits", "weight kg")
        else c
        for c in domain.columns
    )
    wide = Domain(columns)
    rng = np.random.default_rng(1)
    tables = [
        NoisyTable(s, rng.normal(9, 1, (80, 80)), 1.0)
        for s in combinations(("age", "visits", "weight kg"), 2)
    ]
    text = "share(age > 3 and visits > 3 and `weight kg` > 3)"
    assert asked(text, spec_with(), wide, tables).tier == "C"


# --- the bundle, the command line ---


def test_the_bundle_answers(small_bundle: Callable[..., Path]) -> None:
    bundle = Bundle(small_bundle(("age", "smoker"), ("smoker",), ("sex",), ("seen",)))
    answer = bundle.answer("share(smoker) where age >= 40")
    assert answer.tier == "A" and answer.interval is not None
    low, high = answer.interval
    assert low < answer.estimate < high
    dated = bundle.answer("quantile(seen, 0.5)")
    assert dated.interval is not None
    assert str(dated.interval[0]) < str(dated.estimate) < "2024-12-31"
    drawn = bundle.answer("share(smoker) by sex")
    rows = bundle.path / "synthetic.csv"
    assert drawn.tier == "C" and [f.group for f in drawn.figures] == ["female", "male"]
    import pandas as pd

    frame = pd.read_csv(rows, dtype=str, keep_default_na=False)
    women = frame[(frame["sex"] == "female") & (frame["smoker"] != "")]
    assert drawn.figures[0].estimate == pytest.approx((women["smoker"] == "yes").mean())
    assert bundle.answer("mean(visits) by sex").figures[0].estimate is not None
    counts = bundle.answer("count(smoker) by sex").figures
    assert sum(f.estimate for f in counts) < 1000


def test_a_changed_file_is_refused(small_bundle: Callable[..., Path]) -> None:
    folder = small_bundle(("smoker",))
    text = (folder / "marginals.json").read_text()
    (folder / "marginals.json").write_text(text.replace("3.0", "0.1"))
    with pytest.raises(VerifyError, match=r"marginals\.json .* was changed"):
        Bundle(folder).answer("share(smoker)")


def test_tables_that_do_not_agree_are_refused(
    small_bundle: Callable[..., Path], domain: Domain
) -> None:
    from tests.inference.conftest import write_bundle_of

    codes, rng = drawn_levels(domain, 1000, 3), np.random.default_rng(2)
    tables = [counted(domain, codes, s, sigma=3, rng=rng) for s in PAIR]
    tables[1] = replace(tables[1], counts=tables[1].counts + 40)
    folder = write_bundle_of(small_bundle(("sex",)), tables, codes, domain)
    with pytest.raises(VerifyError, match="do not agree on age, smoker: chi-square"):
        Bundle(folder).answer("share(smoker) where age >= 40")


def test_the_command_line_prints_text_and_json(
    small_bundle: Callable[..., Path], synthdp: Any
) -> None:
    folder, text = small_bundle(("age", "smoker"), ("sex",)), "share(smoker) where age >= 40"
    told = synthdp("answer", folder, text)
    printed = told.out.splitlines()
    assert told.code == 0 and printed[0] == f"{text}   (A, measured)"
    assert printed[1].split() == ["estimate", "95%", "interval", "rows"]
    assert printed[3] == "- measured: a noisy table has age and smoker"
    facts = json.loads(synthdp("answer", folder, text, "--json").out)
    assert facts["tier"] == "A" and facts["level"] == 0.95
    assert set(facts["figures"][0]) == {"rows", "estimate", "interval", "of_rows"}
    assert facts["unit"] is None
    assert "(C, model only: no interval)" in synthdp("answer", folder, "share(smoker) by sex").out
    wrong = synthdp("answer", folder, "share(smokr)", "--json")
    problem = json.loads(wrong.out)["problems"][0]
    assert wrong.code == 2 and problem["column"] == 7
    assert problem["hint"] == "did you mean 'smoker'?"


@pytest.mark.check
def test_an_answer_needs_neither_torch_nor_pandas(small_bundle: Callable[..., Path]) -> None:
    folder = str(small_bundle(("age", "smoker")))
    assert heavy(f"Bundle({folder!r}).answer('share(smoker) by age')") == ""


def test_mistakes_come_before_the_tables(small_bundle: Callable[..., Path]) -> None:
    folder = small_bundle(("smoker",))
    (folder / "synthetic.csv").unlink()
    with pytest.raises(QueryError, match="character 7"):
        Bundle(folder).answer("share(smokr)")
    assert Bundle(folder).answer("share(smoker)").tier == "A"  # needs no rows
    with pytest.raises(VerifyError, match=r"synthetic\.csv"):
        Bundle(folder).answer("share(smoker) by sex")


def test_groups_of_levels_are_those_of_the_tables(domain: Domain) -> None:
    groups = LevelGroups(domain, STARTS)
    assert groups.coarse["age"].labels == ("0 to 19", "20 to 29", "30 to 69", "70 to 79")


def test_a_table_of_three_columns_is_an_estimand_of_the_next_release() -> None:
    told = next_time(["age", "sex", "smoker"], 5)
    assert "estimands: [{kind: table, columns: [age, sex, smoker]}]" in told
    assert "privacy.pairs [age, sex]" in next_time(["age", "sex"], 5)
