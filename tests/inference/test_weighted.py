"""Weighted answers: those of the rows without noise, and of visits where one of each was drawn."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synthdp.data import Domain
from synthdp.errors import QueryError, SpecError
from synthdp.inference import Figure, answer_bundle, answer_tables, ask_the_same
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.spec import parse_query, parse_spec
from synthdp.spec.model import ReleaseSpec
from tests.inference.conftest import COLUMNS, counted, drawn_levels, stated, write_bundle_of

SHARE = "share(smoker) weighted by visits"


def _figure(spec: ReleaseSpec, domain: Domain, text: str, *tables: NoisyTable) -> Figure:
    (figure,) = answer_tables(parse_query(text, spec.columns), spec, domain, tables).figures
    return figure


def test_without_noise_it_is_that_of_the_rows(spec: ReleaseSpec, domain: Domain) -> None:
    """Those who lack the weight or what is asked about are left out."""
    codes, rng = drawn_levels(domain, 3000, 3), np.random.default_rng(1)
    age = replace(domain["age"], edges=tuple(range(8)), stop=8, upper=7)
    fine = Domain((age, *domain.columns[1:]))
    table = counted(fine, codes, ("age", "sex", "smoker", "visits"), sigma=0, rng=rng)
    sex, smoker, visits = codes[:, 1], codes[:, 2], codes[:, 3] * 1.0
    for text, value, asked in (
        (SHARE, smoker == 1, smoker < 2),
        (SHARE.replace("weighted", "where sex == 'male' weighted"), smoker == 1,
         (smoker < 2) & (sex == 1)),
        ("mean(age) weighted by visits", codes[:, 0], smoker < 9),
        ("mean(visits) weighted by visits", visits, smoker < 9),
    ):  # fmt: skip
        kept = asked & (visits < 5)
        w, v = visits[kept], value[kept] * 1.0
        r = np.average(v, weights=w)
        half = 1.96 * np.sqrt((w**2 * (v - r) ** 2).sum()) / w.sum()
        figure = _figure(spec, fine, text, table)
        assert figure.estimate == pytest.approx(r, abs=1e-9) and figure.rows == pytest.approx(
            kept.sum()
        )
        assert figure.interval == pytest.approx((r - half, r + half), abs=0.1 * half)
        assert figure.of_rows == pytest.approx((r, r), rel=1e-2) and figure.bounds is None


def test_bounds_hold_what_levels_do_not_tell(spec: ReleaseSpec, domain: Domain) -> None:
    """Whatever weights, numbers and conditions inside levels are, the figure is in the bounds."""
    codes, rng = drawn_levels(domain, 4000, 4), np.random.default_rng(2)
    table = counted(domain, codes, ("age", "smoker", "visits"), sigma=0, rng=rng)
    smoker, visits = codes[:, 2], codes[:, 3]
    for text in (
        "share(smoker) weighted by age",
        "mean(age) weighted by visits",
        "mean(visits) where age >= 25 weighted by age",
        "share(visits >= 3) where age >= 25 weighted by age",
    ):
        figure = _figure(spec, domain, text, table)
        assert figure.bounds is not None
        low, high = map(float, figure.bounds)
        for age in (
            codes[:, 0] * 10 + rng.integers(0, 10, len(codes)),
            codes[:, 0] * 10 + 9 * (smoker == 1),
            codes[:, 0] * 10 + 9 * (visits > 2),
            codes[:, 0] * 10 + 9 * (codes[:, 0] > 3),
        ):
            of = {"age": age, "smoker": smoker == 1, "visits": visits}
            known = (visits < 5) if "visits" in text else (smoker < 2)
            known &= (age >= 25) if "where" in text else True
            value = of["smoker"] if "smoker" in text else of["age"]
            value = visits >= 3 if ">= 3" in text else visits if "mean(visits" in text else value
            weights = of[text.rsplit(" ", 1)[1]]
            truth = np.average(value[known] * 1.0, weights=weights[known])
            assert low - 1e-9 <= truth <= high + 1e-9, text


def test_one_drawn_visit_of_each_tells_of_all_visits() -> None:
    """200 tables of persons with 1 to 12 visits, of whom one visit each was drawn and counted.

    The share of visits is in 95% of intervals, and the share of persons in far fewer.
    """
    columns: dict[str, Any] = {
        "ill": {"type": "boolean", "false": "no", "true": "yes"},
        "visits": {"type": "integer", "lower": 1, "upper": 12, "bins": 12},
    }
    spec = parse_spec(_text(columns), path="persons")
    domain, rng = Domain.from_spec(spec.columns), np.random.default_rng(7)
    query = parse_query("share(ill) weighted by visits", spec.columns)
    plain = parse_query("share(ill)", spec.columns)
    risk = np.linspace(0.1, 0.6, 12)  # of a visit of a person with that many
    law = 0.7 ** np.arange(12) / (0.7 ** np.arange(12)).sum()
    truth = (law * np.arange(1, 13) * risk).sum() / (law * np.arange(1, 13)).sum()
    found = {"weighted": 0, "plain": 0, "rows": 0}
    for _ in range(200):
        visits = rng.choice(12, 3000, p=law)
        ill = rng.random(3000) < risk[visits]
        codes = np.column_stack([ill, visits]).astype(np.uint16)
        table = counted(domain, codes, ("ill", "visits"), sigma=6, rng=rng)
        (one,) = answer_tables(query, spec, domain, [table]).figures
        (other,) = answer_tables(plain, spec, domain, [table]).figures
        assert one.interval and other.interval and one.of_rows
        drawn = np.average(ill, weights=visits + 1)
        found["weighted"] += bool(one.interval[0] <= truth <= one.interval[1])
        found["plain"] += bool(other.interval[0] <= truth <= other.interval[1])
        found["rows"] += bool(one.of_rows[0] <= drawn <= one.of_rows[1])
    assert 0.905 <= found["weighted"] / 200 <= 0.99 and 0.905 <= found["rows"] / 200 <= 0.99
    assert found["plain"] < 20


def _text(columns: dict[str, Any], **more: Any) -> str:
    import json

    return json.dumps(stated() | {"columns": columns} | more)


def test_what_noise_hides_is_refused(spec: ReleaseSpec, domain: Domain) -> None:
    codes, rng = drawn_levels(domain, 300, 5), np.random.default_rng(3)
    table = counted(domain, codes, ("smoker", "visits"), sigma=200, rng=rng)
    assert "too few rows" in str(_figure(spec, domain, SHARE, table).refused)


def test_a_bundle_tells_it_by_its_rows_without_a_table(
    tmp_path: Path, spec: ReleaseSpec, domain: Domain
) -> None:
    codes, rng = drawn_levels(domain, 2000, 6), np.random.default_rng(4)
    tables = [
        counted(domain, codes, (name,), sigma=1, rng=rng) for name in ("age", "smoker", "visits")
    ]
    bundle = write_bundle_of(tmp_path / "b", tables, codes, domain)
    answer = answer_bundle(bundle, SHARE)
    known = (codes[:, 2] < 2) & (codes[:, 3] < 5)
    truth = np.average(codes[known, 2], weights=codes[known, 3])
    assert answer.tier == "C" and answer.estimate == pytest.approx(truth)
    mean = answer_bundle(bundle, "mean(visits) weighted by visits")
    known = codes[:, 3] < 5
    assert mean.tier == "A"
    assert mean.estimate == pytest.approx(
        np.average(codes[known, 3], weights=codes[known, 3]), 0.01
    )
    assert "a row counts as often as its visits says" in mean.about


def test_how_it_is_written(spec: ReleaseSpec, domain: Domain) -> None:
    for text, told in {
        "count() weighted by visits": "a count has no weights",
        "median(age) weighted by visits": "a quantile has no weights",
        "share(smoker) weighted by sex": "column 'sex' has no mean: it holds no numbers",
        "share(smoker) weighted by vsits": "unknown column 'vsits'",
        "share(smoker) weighted by": "the name of one column is needed here",
        "share(smoker) weighted visits": "cannot be read from here",
    }.items():
        with pytest.raises(QueryError, match=told):
            parse_query(text, spec.columns)
    asked = parse_query("mean(age) weighted  by visits where age > 3 by sex", spec.columns)
    assert (asked.weight, asked.by, asked.column) == ("visits", ("sex",), "age")
    plain = parse_query("mean(age) where age > 3 by sex", spec.columns)
    assert not ask_the_same(asked, plain, domain) and ask_the_same(asked, asked, domain)
    below = COLUMNS | {"visits": {"type": "integer", "lower": -1, "upper": 4, "bins": 6}}
    with pytest.raises(QueryError, match="'visits' goes down to -1"):
        parse_query(SHARE, parse_spec(_text(below), path="x").columns)
    paid = {"estimands": [{"kind": "question", "ask": SHARE}]}
    with pytest.raises(SpecError, match="a weighted share is not paid for by itself"):
        parse_spec(_text(COLUMNS, **paid), path="x")
