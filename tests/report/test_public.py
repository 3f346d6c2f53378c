"""The public page: self-contained, escaped, small, and what its figures and sentences say of public
numbers.
"""

import re
from dataclasses import replace
from html import unescape
from typing import Any

import numpy as np
import pytest

from synthdp.data import ColumnDomain, Domain
from synthdp.drawing import pairplot
from synthdp.evaluate.fidelity import SETTINGS, grid, most_connected, pair_plot
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.report import (
    MAX_BYTES,
    GraphView,
    PairOfColumns,
    PublicContent,
    estimand_pictures,
    estimand_table,
    hidden_levels,
    measured,
    measured_pairs,
    noise_distance,
    render_public,
    roc_points,
)

HOSTILE = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "$x$ {{ 7 * 7 }} \u202e")


def table_of(names: tuple[str, ...], levels: int = 4) -> Domain:
    return Domain(
        tuple(
            ColumnDomain(n, "categorical", tuple(f"{n}{k}" for k in range(levels)), False)
            for n in names
        )
    )


def facts(**changes: Any) -> dict[str, Any]:
    return {
        "dataset": "table",
        "title": "A table",
        "run": "run-1",
        "program": "synthdp 0.2.0",
        "epsilon": 0.9871,
        "epsilon_allowed": 1.0,
        "delta": 1e-5,
        "adjacency": "add_remove",
        "unit_meaning": "one person",
        "purposes": [
            {"purpose": "measure", "epsilon": 0.4321, "used": True},
            {"purpose": "train", "epsilon": 0.7654, "used": False},
        ],
        "groups": [
            {
                "size": 2,
                "joint_epsilon": 2.0456,
                "joint_delta": 1e-5,
                "total_epsilon": 3.1234,
                "total_delta": 2e-5,
            }
        ],
        "outside_gates": [],
        "scores": [],
        "audit": None,
        "signer": None,
        "publication": None,
        "contact": None,
        **changes,
    }


def public(
    names: tuple[str, ...] = ("sort", "kind", "size"),
    rows: int = 400,
    levels: int = 4,
    **changes: Any,
) -> PublicContent:
    domain, rng = table_of(names, levels), np.random.default_rng(0)
    codes = rng.integers(0, levels, size=(rows, len(names))).astype(np.uint16)
    codes[:, 1] = codes[:, 0]  # as dependent as can be
    counts = [np.bincount(codes[:, i], minlength=levels).astype(float) for i in range(len(names))]
    tables = [NoisyTable((n,), c, 5.0) for n, c in zip(names, counts, strict=True)]
    whole = PublicContent(
        domain=domain,
        facts=facts(),
        profile=[(0.0, 0.3), (1.0, 1e-5)],
        graph=GraphView(mode="given", svg="<svg/>", edges=((names[0], names[1], "given"),)),
        tables=tables,
        codes=codes,
        rows=rows,
        effects="<svg/>",
    )
    return replace(whole, **changes)


@pytest.mark.parametrize("names", [("sort", "kind", "size"), HOSTILE])
def test_the_page_needs_nothing_and_shows_names_as_text(names: tuple[str, ...]) -> None:
    html = render_public(
        public(names, notes=names, facts=facts(title=names[0], unit_meaning=names[1]))
    )
    assert not re.search(
        r"<(script|iframe|object|embed|link|base|form|foreignobject|img src=x)", html, re.IGNORECASE
    )
    assert not re.search(r"@import|url\((?!#)|https?://|javascript:", html)
    assert "default-src 'none'" in html
    assert "49" not in re.findall(r"\{\{.*?\}\}", html)
    assert ("{{ 7 * 7 }}" in html) == (names == HOSTILE)


def test_every_number_stands_in_a_table_and_every_figure_has_a_sentence() -> None:
    html = render_public(public())
    for said in ("0.432", "0.765", "2.05", "3.12", "2e-05", "0.987"):
        assert re.search(rf"<td>{re.escape(said)}</td>|epsilon {re.escape(said)}", html), said
    figures = re.findall(r"<figure.*?</figure>", html, re.DOTALL)
    assert len(figures) == 9
    assert all(re.search(r"<figcaption>\S.*?\.</figcaption>", f, re.DOTALL) for f in figures)
    assert all(re.search(r'role="img" aria-label="[^"]{20,}|alt="[^"]{20,}', f) for f in figures)
    assert "The largest part, 73% of the budget, is train (unused)." in html
    assert "measure: 26% (epsilon 0.256)" in html
    assert (
        "most strongly kind with sort (1.00)" in html
        or "most strongly sort with kind (1.00)" in html
    )


def test_a_pair_is_shown_beside_its_noisy_table_and_what_noise_may_move() -> None:
    """Rings are where noise may be all; turned round it is the same; without a table it says so."""
    content = public()
    counts = np.array([[100.0, -3, 4, 2], [9, 100, 0, 1], [0, 3, 90, 2], [1, 0, 2, 95]])
    tables = [*content.tables, NoisyTable(("size", "kind"), counts, 4.0)]
    content = replace(content, tables=tables)
    pair = PairOfColumns.of(content, "kind", "size")
    assert pair.noisy is not None and pair.noisy == pytest.approx(counts.T / counts.sum())
    assert pair.margin == pytest.approx(1.96 * 4 / counts.sum(), rel=1e-3)
    assert pair.synthetic.sum() == pytest.approx(1) and "its shape" not in pair.about
    rows = content.codes[:, [1, 2]].tolist()
    assert pair.synthetic[3, 1] == pytest.approx(rows.count([3, 1]) / len(rows))
    hidden = int((counts < 1.96 * 4).sum())
    assert 0 < hidden < 16 and pair.to_svg().count("<circle") == hidden
    turned = PairOfColumns.of(content, "size", "kind")
    assert turned.noisy == pytest.approx(pair.noisy.T) and len(turned.to_json()["cells"]) == 16
    assert "kind0: synthetic" in str(turned)
    alone = PairOfColumns.of(content, "sort", "kind")
    assert alone.noisy is None and alone.margin is None and "the model's alone" in str(alone)
    assert "<circle" not in alone.to_svg() and "not measured" in alone.to_svg()
    hostile = PairOfColumns.of(public(HOSTILE), *HOSTILE[:2])
    assert "<script" not in hostile.to_svg() and "<img" not in hostile.to_svg()


def test_a_wide_table_stays_small() -> None:
    html = render_public(public(tuple(f"column {i}" for i in range(700)), rows=100, levels=12))
    assert len(html.encode()) <= MAX_BYTES and "first 32 of 700 columns" in html


def test_what_noise_hides_is_listed() -> None:
    content = public()
    content.tables[0].counts[3] = 14.0  # under three times 5
    table = hidden_levels(
        content.domain, [*measured(content.domain, content.codes, content.tables)]
    )
    assert [row[:2] for row in table.rows] == [("sort", "sort3")]
    assert "whether they occur at all cannot be told" in render_public(content)


def test_distances_are_against_the_noisy_counts() -> None:
    content = public()
    content.tables[0].counts[:] = [400.0, 0.0, 0.0, 0.0]
    share = np.mean(content.codes[:, 0] == 0)
    found = {c.name: c.distance for c in measured(content.domain, content.codes, content.tables)}
    assert found["sort"] == pytest.approx(1 - share)
    assert found["kind"] == pytest.approx(0, abs=1e-12)


def test_pairs_are_read_from_the_smallest_table_whatever_its_order() -> None:
    content = public()
    joint = np.zeros((4, 4))
    np.add.at(joint, (content.codes[:, 2], content.codes[:, 0]), 1.0)
    triple = np.zeros((4, 4, 4))
    np.add.at(triple, (content.codes[:, 0], content.codes[:, 1], content.codes[:, 2]), 1.0)
    tables = [
        NoisyTable(("sort", "kind", "size"), triple, 2.0),
        NoisyTable(("size", "sort"), joint, 5.0),
    ]
    found = {frozenset(p.names): p for p in measured_pairs(content.domain, content.codes, tables)}
    assert len(found) == 3
    assert all(p.distance == pytest.approx(0, abs=1e-12) for p in found.values())
    assert found[frozenset(("sort", "size"))].by_noise == pytest.approx(noise_distance(joint, 5.0))
    assert found[frozenset(("sort", "kind"))].by_noise == pytest.approx(
        noise_distance(joint, 4.0)
    )  # a sum of four cells
    moved = NoisyTable(("size", "sort"), np.roll(joint, 1, axis=0), 5.0)
    assert next(measured_pairs(content.domain, content.codes, [moved])).distance > 0.1


def test_what_noise_alone_makes_is_near_its_mean() -> None:
    rng, counts = np.random.default_rng(0), np.full(40, 500.0)
    drawn = [0.5 * np.abs(rng.normal(0, 9.0, 40)).sum() / counts.sum() for _ in range(2000)]
    assert noise_distance(counts, 9.0) == pytest.approx(np.mean(drawn), rel=0.02)
    assert noise_distance(counts, 1e9) == 1.0


def test_the_bound_on_attacks_is_that_of_the_whole_profile() -> None:
    points = roc_points([(1.0, 0.0)])
    assert all(t == pytest.approx(min(np.e * f, 1 - (1 - f) / np.e, 1)) for f, t in points)
    both = roc_points([(1.0, 0.0), (0.0, 0.05)])
    assert all(
        t == pytest.approx(min(one, f + 0.05, 1))
        for (f, t), (_, one) in zip(both, points, strict=True)
    )


class TestPairPlots:
    def test_labels_of_tiles_are_whole(self) -> None:
        names = ("hours-per-week", "capital-gain")
        table = np.ones((2, 2))
        ends = [("16 to 18 hours", "98 to 100 hours"), ("0 to 9999", "990001 to 1000000")]
        tables = [[table[0], None], [table, table[0]]]
        svg = pairplot(names, tables, ends=ends, alt="Two columns against each other.")
        told = re.findall(r">([^<]+)</text>", svg)
        assert "…" not in svg and {*names, *ends[0], *ends[1]} == {*told}

    def test_shares_are_of_both_columns(self) -> None:
        domain, codes = (
            table_of(("a", "b"), 3),
            np.array([[0, 1], [0, 1], [2, 0], [1, 1]], dtype=np.uint16),
        )
        plot = pair_plot(domain, codes, ("b", "a"), like=codes)
        assert plot.tables[0][0].tolist() == [0.25, 0.75, 0]
        assert (
            plot.tables[0][1].tolist()
            == [[0, 0, 0.25], [0.5, 0.25, 0], [0, 0, 0]]
            == plot.tables[1][0].T.tolist()
        )

    def test_categories_beyond_the_commonest_are_one(self) -> None:
        domain, like = (
            table_of(("a",), 30),
            np.repeat(np.arange(30), np.arange(30) + 1)[:, None].astype(np.uint16),
        )
        cells, sizes = grid(domain, like[::-1], like)
        assert sizes == (SETTINGS.plot_levels,)
        others = np.bincount(cells[:, 0])[-1]
        assert others == sum(range(1, 20))  # the nineteen rarest

    def test_neighbouring_levels_of_an_order_are_put_together(self) -> None:
        column = ColumnDomain("a", "ordinal", tuple(map(str, range(30))), False)
        codes = np.arange(30, dtype=np.uint16)[:, None]
        cells, sizes = grid(Domain((column,)), codes, codes)
        assert sizes == (SETTINGS.plot_levels,)
        assert (np.diff(cells[:, 0]) >= 0).all()
        assert set(np.bincount(cells[:, 0])) == {2, 3}

    def test_named_columns_come_first_then_the_strongest(self) -> None:
        strengths = np.eye(4)
        strengths[1, 2] = strengths[2, 1] = 0.8
        assert most_connected(("a", "b", "c", "d"), strengths, first=("d", "x")) == (
            "d",
            "b",
            "c",
            "a",
        )


def test_refuted_claims_stand_in_the_card() -> None:
    claim = {"x": "sort", "y": "kind", "given": [], "kind": "arrow", "status": "refuted"}
    finding = {
        **claim,
        "effect": 0.01,
        "effect_upper": 0.02,
        "smallest_detectable_effect": 0.01,
        "p_value": 0.5,
    }
    none = {"supported": 0, "refuted": 0, "undecided": 0}
    validation = {
        "findings": [finding],
        "untested": [],
        "counts": {"arrow": {**none, "refuted": 1, "supported": 2}, "independence": none},
    }
    html = render_public(public(graph=replace(public().graph, validation=validation)))
    assert (
        "1 of 3 given arrows refuted by noisy tables; 0 of 0 implied independences refuted" in html
        and 'class="card bad"' in html
        and "1 of 3 refuted" in html
    )


def test_coefficients_are_drawn_each_on_a_scale_of_its_own_unit() -> None:
    """The intercept, where all terms are zero, is in the table alone."""
    stated = {
        "text": "pay ~ age",
        "statistic": "coefficient",
        "about": ["measured"],
        "figures": [
            {"group": "(intercept)", "estimate": 900.0, "interval": [800.0, 1000.0], "rows": 50.0},
            {"group": "age", "estimate": 0.5, "interval": [0.25, 0.75], "rows": 50.0},
            {"group": "height", "estimate": 400.0, "interval": [200.0, 600.0], "rows": 50.0},
        ],
    }
    (picture,) = estimand_pictures([stated])
    svg = str(picture.svg)
    assert "age: 0.5, 0.25 to 0.75" in svg and ">0.5<" in svg and "intercept" not in svg
    (one, _), (other, _) = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', svg)
    assert one == other  # 2/3 of the way from 0 to the upper end, whatever the unit
    together = str(next(iter(estimand_pictures([{**stated, "statistic": "effect"}]))).svg)
    (one, _), (other, _) = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', together)
    assert float(one) < float(other) - 300
    assert [row[1] for row in estimand_table([stated]).rows] == ["(intercept)", "age", "height"]


def test_every_word_that_a_board_meets_is_explained() -> None:
    scored = {"name": "tv1", "target": None, "counts": [3], "sigma": 2.0, "tables": 3}
    scores = [{**scored, "value": 0.01, "low": 0.0, "high": 0.02}]
    html = unescape(render_public(public(facts=facts(scores=scores))))
    words = html[html.index('id="words"') : html.index('id="appendix"')]
    shown = html.replace(words, "")
    for term in (
        "delta",
        "noisy counts",
        "95% interval",
        "total variation",
        "Cramér's V",
        "levels",
    ):
        assert term in shown.lower() or term in shown, term
        assert term.removesuffix("s").lower() in words.lower(), term
