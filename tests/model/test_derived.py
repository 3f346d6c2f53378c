"""Derived columns: exact, typed and bounded as declared, and checked again from the text."""

from io import StringIO
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pydantic import TypeAdapter

from synthdp.bundle import write_csv_blocks
from synthdp.data import Domain
from synthdp.errors import SpecError
from synthdp.model import Constraints, Derived
from synthdp.spec import check, load_spec, parse_spec
from synthdp.spec.model import Column, ReleaseSpec
from tests.builders import build_spec

WHOLE = {"type": "integer", "lower": 0, "upper": 20}
REAL = {"type": "number", "lower": -5, "upper": 5, "decimals": 2}
DAY = {"type": "datetime", "lower": "2020-01-01", "upper": "2021-12-31"}
COLUMNS: dict[str, Any] = {
    "change": REAL,
    "after": REAL | {"lower": -8, "upper": 8, "derived": "before + change"},
    "before": REAL,
    "seen": WHOLE,
    "left": WHOLE | {"missing": True},
    "all": WHOLE | {"upper": 30, "missing": True, "derived": "seen + left"},
    "half": WHOLE | {"upper": 10, "derived": "seen / 2"},
    "share": {"type": "number", "lower": 0, "upper": 1, "missing": True}
    | {"derived": "left / (seen + left)"},
    "sex": {"type": "categorical", "categories": ["Female", "Male"]},
    "in": DAY | {"upper": "2020-12-31"},
    "out": DAY | {"missing": True, "derived": "`in` + left"},
    "noon": DAY | {"resolution": "hour", "derived": "`in` + 0.5"},
    "days": {"type": "number", "lower": 0, "upper": 400, "decimals": 0}
    | {"derived": "`in` - `in` + seen"},
}
MODELLED = [name for name, column in COLUMNS.items() if "derived" not in column]


def release(columns: dict[str, Any] | None = None, **changes: Any) -> ReleaseSpec:
    return check(build_spec(columns or COLUMNS, rows=5000, **changes))


def drawn(rows: int = 4000, **changes: Any) -> tuple[Constraints, pd.DataFrame]:
    """Rows with derived columns of levels that are drawn evenly."""
    spec = release(**changes)
    domain, rng = Domain.from_spec(spec.columns), np.random.default_rng(1)
    held = Constraints.from_spec(spec, domain)
    codes = held.draw(
        lambda n: np.column_stack([rng.integers(0, s, n) for s in domain.sizes]).astype(np.uint16),
        rows,
        rng=rng,
    )
    return held, held.derived.added(held.decode(codes, rng=rng))


def as_text(frame: pd.DataFrame) -> pd.DataFrame:
    text = StringIO()
    write_csv_blocks([frame], release().columns, text)
    return pd.read_csv(StringIO(text.getvalue()), dtype=str, keep_default_na=False, na_filter=False)


def test_what_is_written_is_what_the_other_columns_give() -> None:
    held, frame = drawn()
    assert list(frame.columns) == list(COLUMNS)
    np.testing.assert_array_equal(
        frame["after"], (frame["before"] + frame["change"]).round(2).clip(-8, 8)
    )
    assert (frame["after"].abs() == 8).any() and frame["after"].dtype == np.float64
    assert (
        frame["half"].dtype == np.int64 and ((frame["half"] - frame["seen"] / 2).abs() <= 0.5).all()
    )
    total = frame["seen"] + frame["left"]
    pd.testing.assert_series_equal(frame["all"], total.clip(upper=30).rename("all"))
    assert frame["all"].isna().any() and str(frame["all"].dtype) == "Int64"
    empty = frame["left"].isna() | (total == 0)
    np.testing.assert_array_equal(frame["share"].isna(), empty)
    np.testing.assert_allclose(
        frame["share"][~empty], (frame["left"] / total)[~empty].astype(float), atol=5e-5
    )
    days = (frame["out"] - frame["in"]).dt.days
    np.testing.assert_array_equal(days.isna(), frame["left"].isna())
    assert (days.dropna() == frame["left"].dropna()).all() and (
        frame["noon"] - frame["in"] == pd.Timedelta(hours=12)
    ).all()
    assert not any(wrong.any() for wrong in held.derived.wrong_in(as_text(frame)).values())


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("after", "8.01"),
        ("after", "0.117"),
        ("after", ""),
        ("all", "31"),
        ("half", "3"),
        ("share", "0.51"),
        ("out", "2020-02-30"),
        ("noon", ""),
    ],
)
def test_any_other_value_is_seen_in_the_text(column: str, value: str) -> None:
    held, frame = drawn(50)
    text = as_text(frame)
    text.loc[7, column] = value if text.loc[7, column] != value else "1"
    found = held.derived.wrong_in(text)
    assert {
        name: np.flatnonzero(wrong).tolist() for name, wrong in found.items() if wrong.any()
    } == {column: [7]}


def test_rows_are_computed_whatever_their_index_and_constraints_read_the_values_that_are_written() -> (  # noqa: E501
    None
):
    held, frame = drawn(constraints=["after <= 7", "all > 3", "noon > '2020-02-01T11:00:00'"])
    assert (
        frame["after"].max() == 7
        and frame["all"].min() == 4
        and frame["noon"].min() >= pd.Timestamp("2020-02-01T12:00:00")
    )
    assert not any(v.any() for v in held.violated_in(as_text(frame)).values())
    part = frame[MODELLED][frame["seen"] > 10].iloc[::-1]
    pd.testing.assert_frame_equal(
        held.derived.added(part), frame.loc[part.index], check_dtype=False
    )


def test_without_derived_columns_rows_stay_as_they_are() -> None:
    columns = {
        n: TypeAdapter(Column).validate_python(c) for n, c in COLUMNS.items() if n in MODELLED
    }
    frame = pd.DataFrame({"before": [1.0]})
    assert (
        Derived.from_spec(columns).added(frame) is frame
        and Derived.from_spec(columns).wrong_in(frame) == {}
    )


def test_the_domain_has_modelled_columns_alone() -> None:
    spec = release()
    assert list(Domain.from_spec(spec.columns).names) == MODELLED == list(spec.modelled)
    assert Domain.from_spec(spec.columns).derived == tuple(n for n in COLUMNS if n not in MODELLED)
    assert Domain.written(spec.columns).names == tuple(COLUMNS)


@pytest.mark.parametrize(
    ("column", "says"),
    [
        (
            {"derived": "before + chance"},
            "columns.new.derived: character 10: unknown column 'chance'",
        ),
        (
            {"derived": "before + after"},
            "character 10: column 'after' is computed from others itself",
        ),
        ({"derived": "new + 1"}, "character 1: column 'new' is computed from others itself"),
        ({"derived": "3"}, "is not computed from numbers or dates of other columns"),
        ({"derived": "sex"}, "column 'sex' is not computed from numbers or dates"),
        ({"derived": "before > 3"}, "is not allowed in an expression"),
        ({"derived": "abs(before)"}, "a call is not allowed"),
        ({"derived": "`in`"}, "computes a date, and a column of type number holds numbers"),
        ({"derived": "left + 1"}, "'left' may be missing"),
        ({"derived": "1 / seen"}, "it divides by what may be 0"),
        ({"derived": "seen / 0"}, "it divides by what may be 0"),
        ({"derived": "before", "bins": 3}, "columns.new.bins: bins say how a column is modelled"),
        ({"derived": "before", "spikes": [0]}, "spikes say how a column is modelled"),
    ],
)
def test_mistakes_are_refused_before_anything_is_spent(column: dict[str, Any], says: str) -> None:
    with pytest.raises(SpecError) as caught:
        release(COLUMNS | {"new": {"type": "number", "lower": 0, "upper": 1, **column}})
    assert says in str(caught.value) and len(caught.value.problems) == 1


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"graph": {"mode": "given", "edges": ["before -> after"]}}, "graph.edges #1"),
        (
            {
                "graph": {
                    "mode": "given",
                    "edges": ["before -> change"],
                    "tiers": [["before"], ["after"]],
                }
            },
            "graph.tiers #2 #1",
        ),
        ({"synthesizer": {"targets": ["half"]}}, "synthesizer.targets #1"),
        ({"sampling": {"even": ["half"]}}, "sampling.even #1"),
        ({"evaluation": {"targets": ["half"]}}, "evaluation.targets #1"),
        (
            {"evaluation": {"effects": [{"treated": "seen > 3", "outcome": "after"}]}},
            "evaluation.effects #1.outcome",
        ),
        (
            {"evaluation": {"effects": [{"treated": "after > 3", "outcome": "seen"}]}},
            "evaluation.effects #1.treated",
        ),
        (
            {"privacy": {"epsilon": 1, "delta": 1e-5, "pairs": [["after", "seen"]]}},
            "privacy.pairs #1 #1",
        ),
    ],
)
def test_they_have_no_place_where_rows_are_looked_at(changes: dict[str, Any], where: str) -> None:
    import yaml

    whole = release().model_dump(mode="json", exclude_unset=True) | changes
    with pytest.raises(SpecError) as caught:
        parse_spec(yaml.safe_dump(whole, sort_keys=False), path="s.yaml")
    assert any(
        p.field == where and "is computed from others" in p.message for p in caught.value.problems
    ), str(caught.value)


def test_a_constraint_over_one_is_one_over_what_it_is_computed_from() -> None:
    with pytest.raises(SpecError, match="is an equation between numbers"):
        release(constraints=["after == 0"])
    with pytest.raises(SpecError, match="a constraint reads column 'before'"):
        release(constraints=["after < 3"], sampling={"even": ["before"]})
    with pytest.raises(SpecError, match="none of 50,000 rows"):
        release(constraints=["after > 8"])


def test_a_public_spec_is_read_back(tmp_path: Any) -> None:
    from synthdp.bundle import public_spec, spec_yaml
    from synthdp.spec import fill_defaults

    spec = public_spec(fill_defaults(release()))
    (tmp_path / "spec.yaml").write_text(spec_yaml(spec))
    assert load_spec(tmp_path / "spec.yaml") == spec
