"""Rules for what a spec leaves out of its synthesizer: public, and overruled by whatever the file
says.
"""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from synthdp.bundle import public_spec, spec_yaml
from synthdp.data import Domain
from synthdp.errors import SpecError
from synthdp.privacy.calibration import make_plan
from synthdp.spec import (
    FINE_SHARES,
    LEFT_OUT,
    PREDICT_SHARES,
    batch,
    fine_bins,
    fine_edges,
    parse_spec,
    traps,
)
from synthdp.spec.model import (
    Integer,
    Number,
    Privacy,
    ReleaseSpec,
    Shares,
    SynthesizerSettings,
    rules,
)
from tests.builders import build_spec, skeleton

ROWS = """\
synthdp: 1
dataset:
  id: people
  source: {{kind: csv, path: people.csv}}
  privacy_unit: {{kind: row, meaning: one person}}
  rows: {{kind: public, value: {rows}}}
columns:
{columns}
privacy: {{epsilon: 1, delta: 1e-8, shares: {shares}}}
graph: {graph}
synthesizer: {own}
attacks: {{membership: {{enabled: false}}}}
"""


def read(
    *,
    rows: int = 50_000,
    columns: int = 3,
    graph: str = "{mode: given, edges: [c0 -> c1]}",
    own: str = "{}",
    targets: bool = False,
) -> ReleaseSpec:
    names = "\n".join(
        f"  c{i}: {{type: integer, lower: 0, upper: 99, bins: 40}}" for i in range(columns)
    )
    shares = "{measure: 0.2, targets: 0.2, train: 0.6}" if targets else "{measure: 0.2, train: 0.8}"
    return parse_spec(
        ROWS.format(rows=rows, columns=names, graph=graph, own=own, shares=shares), path="spec.yaml"
    )


def of(**asked: object) -> tuple[int, int, int, int]:
    own = read(**asked).synthesizer  # type: ignore[arg-type]
    return own.latent, own.hidden, own.steps, own.batch


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, (2, 32, 800, 1024)),
        ({"graph": "{mode: none}"}, (4, 32, 800, 1024)),
        ({"rows": 1_000}, (2, 32, 300, 100)),
        ({"rows": 5_000, "columns": 222}, (2, 16, 300, 500)),
        ({"rows": 2_950, "columns": 948}, (1, 8, 200, 295)),
        ({"rows": 5_000_000}, (2, 32, 800, 4096)),
        ({"rows": 5_000_000, "own": "{sample: 50000}"}, (2, 32, 800, 1024)),
        ({"rows": 5_000, "own": "{sample: 50000}"}, (2, 32, 300, 500)),
        ({"rows": 3}, (2, 32, 300, 1)),
        ({"own": "{targets: [c1]}", "targets": True}, (2, 40, 800, 1024)),
    ],
)
def test_what_is_left_out_follows_the_declared_shape(
    asked: dict[str, object], found: tuple[int, int, int, int]
) -> None:
    assert of(**asked) == found


@pytest.mark.parametrize("setting", ["latent", "hidden", "steps", "batch"])
def test_what_the_file_says_stays_whatever_the_rules_would_say(setting: str) -> None:
    plain, own = read(rows=1_000), read(rows=1_000, own=f"{{{setting}: 33}}")
    assert getattr(own.synthesizer, setting) == 33
    assert plain.synthesizer.model_copy(update={setting: 33}) == own.synthesizer


def test_a_published_spec_holds_what_the_rules_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that other rules, of a later version, change nothing of a bundle."""
    spec = read(rows=1_000)
    monkeypatch.setattr(rules, "steps", lambda _: 800)
    assert read(rows=1_000).synthesizer.steps != spec.synthesizer.steps
    assert (
        parse_spec(spec_yaml(public_spec(spec)), path="spec.yaml").synthesizer == spec.synthesizer
    )


def test_the_reference_says_what_the_rules_do() -> None:
    said = {
        name: str(field.description) for name, field in SynthesizerSettings.model_fields.items()
    }
    assert "300 below 10,000 rows, 200 beyond 400 columns" in said["steps"]
    assert "16 beyond 64 columns, 8 beyond 400" in said["hidden"]
    assert "1 beyond 400 columns" in said["latent"]
    assert "below 5,120, 512 up to" in said["batch"] and "most 4,096" in said["batch"]
    few, wide, widest = read(rows=10_000), read(columns=65), read(columns=401)
    assert [read(rows=9_999).synthesizer.steps, few.synthesizer.steps] == [300, 800]
    assert [s.synthesizer.hidden for s in (read(columns=64), wide, widest)] == [32, 16, 8]
    assert (widest.synthesizer.latent, widest.synthesizer.steps) == (1, 200)


def test_a_batch_is_a_part_of_the_rows() -> None:
    sizes = [batch(rows) for rows in range(1, 400_000, 7)]
    assert all(0 < size < max(2, 7 * i + 1) for i, size in enumerate(sizes)) and sizes == sorted(
        sizes
    )


# --- pairs that are left out ---


def test_a_share_for_pairs_that_names_none_is_for_all_of_them() -> None:
    """Those of targets first; not those with very many cells; and never where pairs are named."""
    columns: dict[str, Any] = {
        "a": {"type": "integer", "lower": 0, "upper": 9},
        "b": {"type": "integer", "lower": 0, "upper": 999, "bins": 1000},
        "c": {"type": "integer", "lower": 0, "upper": 999, "bins": 1000},
        "label": {"type": "boolean"},
    }

    def spec(mode: str = "given", **privacy: Any) -> ReleaseSpec:
        shares = {"measure": 0.2, "pairs": 0.3, "train": 0.5}
        sections = {
            "columns": columns,
            "graph": {"mode": mode} | ({"edges": ["a -> label"]} if mode == "given" else {}),
            "privacy": {"epsilon": 1.0, "delta": 1e-6, "shares": shares, **privacy},
            "evaluation": {"targets": ["label"]},
        }
        return parse_spec(yaml.safe_dump({**skeleton(), **sections}), path="spec.yaml")

    found = spec()
    assert found.privacy.pairs == (
        ("a", "label"),
        ("b", "label"),
        ("c", "label"),
        ("a", "b"),
        ("a", "c"),
    )
    assert spec("none").privacy.pairs == found.privacy.pairs
    assert spec(pairs=[["a", "b"]]).privacy.pairs == (("a", "b"),)
    plain = {"measure": 0.2, "train": 0.8}
    assert spec(shares=plain).privacy.pairs == ()
    scales = make_plan(found, Domain.from_spec(found.columns)).pairs
    assert scales is not None
    half, full = scales.scales[0], scales.scales[-1]
    assert scales.scales == (half,) * 3 + (full,) * 2 and full == 2 * half
    assert sum(s**-2 for s in scales.scales) == pytest.approx(5), "the cost of equal noise"


# --- bins that are left out ---

LOOSE: dict[str, Any] = {
    "age": {"type": "integer", "lower": 0, "upper": 120, "spikes": [0]},
    "price": {"type": "number", "lower": 0.1, "upper": 9.93, "decimals": 2},
    "pay": {"type": "integer", "lower": 0, "upper": 1_000_000},
    "day": {"type": "datetime", "lower": "2001-01-01", "upper": "2020-12-31"},
    "told": {"type": "number", "lower": 0.0, "upper": 1.0, "bins": 5},
    "sex": {"type": "boolean"},
}


def loose(mode: str = "predict", **privacy: Any) -> ReleaseSpec:
    text = yaml.safe_dump(
        {**skeleton(50_000), "columns": LOOSE, "graph": {"mode": mode}}
        | ({"privacy": {"epsilon": 1.0, "delta": 1e-5, **privacy}} if privacy else {})
    )
    return parse_spec(text, path="spec.yaml")


def test_mode_predict_gives_fine_bins_to_ranges_that_leave_them_out() -> None:
    spec = loose()
    domain = Domain.from_spec(spec.columns)
    assert [domain[name].levels for name in ("age", "price", "pay", "day")] == [121, 983, 208, 731]
    assert spec.columns["told"].edges is None and domain["told"].levels == 5  # type: ignore[union-attr]
    shares = spec.privacy.shares
    assert shares.moments == LEFT_OUT.moments
    assert shares.measure / shares.graph == pytest.approx(FINE_SHARES.measure / FINE_SHARES.graph)
    age = domain["age"]
    assert age.labels[:3] == ("0", "1", "2"), "the spike, then every other age"
    assert domain["price"].labels[:2] == ("[0.1, 0.11)", "[0.11, 0.12)")
    assert domain["pay"].labels[:3] == ("0", "1", "2"), "none of something is a level"
    assert domain["pay"].labels[-2:] == ("890000 to 944999", "945000 to 1000000")


@pytest.mark.parametrize("mode", ["predict", "none"])
@pytest.mark.parametrize(("lower", "upper"), [(-4e299, 4e299), (0.0, 1e300), (-1e9, 1e17)])
def test_the_widest_ranges_have_no_more_bins_than_a_spec_may(
    lower: float, upper: float, mode: str
) -> None:
    wide = {"type": "number", "lower": lower, "upper": upper}
    stated = {**skeleton(), "columns": {"x": wide}, "graph": {"mode": mode}}
    column = parse_spec(yaml.safe_dump(stated), path="spec.yaml").columns["x"]
    type(column).model_validate(column.model_dump(exclude={"bins"}))


@pytest.mark.parametrize(("lower", "upper"), [(0.0, 1e-310), (-6e299, 6e299)])
def test_a_range_that_nothing_can_be_computed_on_is_refused(lower: float, upper: float) -> None:
    column = {"type": "number", "lower": lower, "upper": upper, "bins": 1}
    stated = {**skeleton(), "columns": {"x": column}}
    with pytest.raises(SpecError, match="between 1e-300 and 1e300 wide"):
        parse_spec(yaml.safe_dump(stated), path="spec.yaml")


def test_heaps_are_looked_for_where_bins_hold_several_numbers_and_are_left_out() -> None:
    spec = loose()
    assert spec.privacy.heaps == ("pay",), "price has a bin a number, age a spike, told bins"
    assert spec.privacy.shares.heaps == LEFT_OUT.heaps
    assert loose(epsilon=0.03).privacy.heaps == (), "noise would leave nothing of them"
    assert loose("none").privacy.shares.heaps == 0
    shares = {"measure": 0.3, "graph": 0.6, "train": 0.0}
    assert loose(shares=shares | {"measure": 0.4}).privacy.heaps == ()
    assert loose(shares=shares | {"heaps": 0.1}).privacy.heaps == ("pay",)
    named = loose(shares=shares | {"heaps": 0.1}, heaps=["told"])
    assert named.privacy.heaps == ("told",), "a name in the spec wins"


@pytest.mark.parametrize(
    ("privacy", "said"),
    [
        ({"heaps": ["pay"], "shares": {"measure": 0.4, "graph": 0.6, "train": 0}}, "needs a share"),
        ({"heaps": ["sex"]}, "no modelled column of type integer or number"),
        ({"heaps": ["day"]}, "no modelled column of type integer or number"),
        ({"heaps": ["nobody"]}, "unknown column"),
    ],
)
def test_heaps_are_of_columns_of_numbers_and_need_a_share(
    privacy: dict[str, Any], said: str
) -> None:
    with pytest.raises(SpecError, match=said):
        loose(**privacy)


def test_wide_money_in_bins_of_one_width_is_warned_of() -> None:
    pay = {"type": "integer", "lower": 0, "upper": 1_000_000}
    (told,) = traps(build_spec({"pay": {**pay, "bins": 20}, "age": {**pay, "upper": 100}}))
    assert told.startswith("columns.pay.bins: of 20 bins, each 50,000 wide, one may")
    for own in ({}, {"edges": [0, 10, 500]}):
        assert traps(build_spec({"pay": pay | own})) == []


@pytest.mark.parametrize(
    ("rows", "epsilon", "columns", "bins"),
    [
        (100, 1.0, 1, 128),
        (5000, 0.3, 14, 128),
        (5000, 1.0, 14, 512),
        (15_000, 1.0, 14, 512),
        (15_000, 1.0, 400, 64),
        (10**7, 10.0, 2, 512),
    ],
)
def test_fine_bins_are_fewer_where_noise_is_larger(
    rows: int, epsilon: float, columns: int, bins: int
) -> None:
    spec = build_spec(
        {f"x{i}": {"type": "integer", "lower": 0, "upper": 999} for i in range(columns)},
        rows=rows,
        privacy={"epsilon": epsilon, "delta": 1e-9},
    )
    assert fine_bins(spec) == bins


@pytest.mark.parametrize(
    ("mode", "privacy"),
    [("none", {}), ("predict", {"shares": {"measure": 0.2, "graph": 0.4, "train": 0.4}})],
)
def test_other_models_keep_the_usual_bins(mode: str, privacy: dict[str, Any]) -> None:
    """Training sees levels, so that it has no groups."""
    domain = Domain.from_spec(loose(mode, **privacy).columns)
    assert domain["price"].levels == domain["day"].levels == 32
    assert domain["pay"].levels == 30 and domain["pay"].labels[6] == "16 to 24", "on a log scale"


@given(
    upper=st.integers(10_000, 2**40),
    near=st.integers(-(2**40), 100),
    most=st.sampled_from([16, 32, 64, 256, 512]),
    whole=st.booleans(),
)
def test_bins_of_far_reaching_ranges_widen_evenly(
    upper: int, near: int, most: int, whole: bool
) -> None:
    """No bin of 100 and more is wider than its neighbour by what would make a smooth law rough."""
    column = (Integer if whole else Number)(
        type="integer" if whole else "number", lower=near, upper=upper
    )
    edges = np.array(fine_edges(column, most), dtype=float)
    assert edges[0] == near and (np.diff(edges) > 0).all() and edges[-1] < upper
    assert len(edges) <= most or len(edges) <= 10 * math.log10(upper - min(near, 0)) + 4
    far = edges[1:][edges[1:] >= 100]
    ratios = far[1:] / far[:-1]
    assert len(far) < 3 or ratios.max() - 1 < 1.8 * (ratios.min() - 1)


def test_the_contract_tells_the_shares_that_mode_predict_gets() -> None:
    told = str(Privacy.model_fields["shares"].description)
    for shares in (PREDICT_SHARES, FINE_SHARES):
        parts = f"measure {shares.measure:g}, graph {shares.graph:g}, train {shares.train:g}"
        assert parts in told
    assert f"; {LEFT_OUT.estimands:g} where" in str(Shares.model_fields["estimands"].description)


def test_told_bins_are_kept_and_so_are_the_shares_that_go_with_them() -> None:
    columns = {name: {**c, "bins": 7} for name, c in LOOSE.items() if c["type"] != "boolean"}
    spec = parse_spec(
        yaml.safe_dump({**skeleton(), "columns": columns, "graph": {"mode": "predict"}}), path="s"
    )
    assert spec.privacy.shares == PREDICT_SHARES
    assert set(Domain.from_spec(spec.columns).sizes) <= {7, 8}


@given(
    lower=st.integers(-10_000, 10_000),
    span=st.integers(1, 10_000_000),
    decimals=st.integers(0, 6),
    spikes=st.lists(st.integers(0, 10), max_size=3, unique=True),
)
def test_fine_bins_cover_the_range_and_hold_values(
    lower: int, span: int, decimals: int, spikes: list[int]
) -> None:
    whole = Integer(
        type="integer",
        lower=lower,
        upper=lower + span,
        spikes=tuple(lower + s for s in spikes if s <= span),
    )
    real = Number(
        type="number", lower=lower / 8, upper=(lower + span) / 8, decimals=max(decimals, 1)
    )
    for column in (whole, real):
        edges = fine_edges(column, 512)
        assert 1 <= len(edges) <= 2 * 512 + 1
        assert all(a < b for a, b in itertools.pairwise(edges)) and edges[-1] <= column.upper
        first = whole.lower + (whole.lower in whole.spikes) if column is whole else real.lower
        assert edges[0] == first
        again = type(column).model_validate({**column.model_dump(exclude={"bins"}), "edges": edges})
        Domain.from_spec({"x": again})
