"""The steward's page: self-contained, escaped, complete, small; and what its figures and sentences
say.
"""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synthdp import drawing
from synthdp.data import ColumnDomain, Domain
from synthdp.evaluate import EvaluationReport
from synthdp.evaluate.fidelity import fidelity
from synthdp.evaluate.utility import UtilityReport, UtilityRow
from synthdp.report import (
    MAX_BYTES,
    Budget,
    GateResult,
    GraphView,
    Look,
    PageLimits,
    ReportContent,
    association_text,
    attack_tables,
    crosses,
    most_advantage,
    number,
    render,
    roc_bound,
    tables,
    write_internal_report,
)
from synthdp.report import fidelity as said_of_fidelity
from synthdp.report import utility as said_of_utility

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "$\\frac{1}{0}$ {{ 7 * 7 }}",
    "new\nline\u202e #010101 ☃ 漢字",
]
GRAPH_SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><script>alert(2)</script></svg>'
)


def domain(names: list[str], levels: int = 4) -> Domain:
    def column(i: int, name: str) -> ColumnDomain:
        if i % 2:
            edges = tuple(float(e) for e in range(levels))
            return ColumnDomain(
                name,
                "integer",
                tuple(f"{i}_{k}" for k in range(levels)),
                False,
                edges=edges,
                stop=float(levels),
                upper=levels - 1.0,
            )
        return ColumnDomain(name, "categorical", tuple(f"{name}{k}" for k in range(levels)), False)

    return Domain(tuple(column(i, name) for i, name in enumerate(names)))


def judged(table: Domain, rows: int = 200) -> EvaluationReport:
    rng = np.random.default_rng(0)
    real, test, synthetic = (
        rng.integers(0, np.asarray(table.sizes), size=(rows, len(table))).astype(np.uint16)
        for _ in range(3)
    )
    found = (
        UtilityRow(table.names[0], "logistic", "auc", 0.9123, 0.8765, 0.0358, 0.0211, 0.0507),
        UtilityRow(table.names[0], "logistic", "accuracy", None, None, None, None, None),
        UtilityRow(table.names[-1], "ridge", "r2", 0.5432, 0.5321, 0.0111, -0.0031, 0.0213),
    )
    useful = UtilityReport(found, (f"{table.names[0]}, logistic on real rows: ConvergenceWarning",))
    return EvaluationReport(
        fidelity(real, synthetic, table, triples=5),
        fidelity(real, test, table, triples=5),
        useful,
        {"fidelity": 0.1},
        equal=fidelity(real, synthetic, table, triples=5),
    )


def interval(value: float) -> dict[str, float]:
    return {"value": value, "lower": value - 0.1, "upper": value + 0.1}


def attack(**changes: Any) -> dict[str, Any]:
    row = {
        "extractor": "targeted",
        "classifier": "logistic",
        "models": 40,
        "advantage": interval(0.123),
        "auc": interval(0.567),
        "precision": None,
    }
    return {
        "conclusion": (
            "The attack did not tell them apart. This is a sanity check, not a proof of privacy."
        ),
        "main": row,
        "claim": {"epsilon": 1.0, "delta": 1e-5, "ceiling_advantage": 0.107},
        "refutes_claim": False,
        "roc": [[0.0, 0.0], [0.1, 0.15], [0.5, 0.6], [1.0, 1.0]],
        "table": [row, {**row, "classifier": "forest"}],
        "warnings": ["few models"],
        **changes,
    }


def content(names: list[str] | None = None, **changes: Any) -> ReportContent:
    table = domain(names or ["sort", "age", "kind"])
    whole = ReportContent(
        title="A table",
        run="run-1",
        created="5 November 2026",
        domain=table,
        budget=Budget(
            epsilon=1.0,
            epsilon_planned=0.9871,
            epsilon_spent=0.9871,
            delta=1e-5,
            adjacency="add_remove",
            unit="one person",
            steps=(
                Look(purpose="measure", mechanism="discrete Gaussian", epsilon=0.4021, used=True),
                Look(purpose="train", mechanism="subsampled Gaussian", epsilon=0.585, used=True),
            ),
            group_epsilons={2: 2.0456, 3: 3.1234},
            cap_epsilon=3.0,
            dataset_spent=1.3457,
        ),
        gates=(GateResult(metric="tv1_noisy", bound="at most 0.05", value=0.0123, passed=True),),
        tv1_noisy=0.0123,
        evaluation=judged(table),
        graph=GraphView(
            mode="given", svg=GRAPH_SVG, edges=((table.names[0], table.names[1], "given"),)
        ),
        attack=attack(),
        misfits={
            table.names[0]: {"wrong type": 0, "outside the domain": 17, "unexpected missing": 3}
        },
        timings={"train": 31.25},
    )
    return replace(whole, **changes)


class Page(HTMLParser):
    """Tags with attributes, visible text, ids."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._silent = 0
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._silent += tag == "style"

    def handle_endtag(self, tag: str) -> None:
        self._silent -= tag == "style"

    def handle_data(self, data: str) -> None:
        self.text += "" if self._silent else data + " "


def names_of_tags(page: Page) -> set[str]:
    return {tag for tag, _ in page.tags}


@pytest.mark.check
@pytest.mark.parametrize("names", [None, HOSTILE])
def test_the_page_needs_nothing_and_runs_nothing(names: list[str] | None) -> None:
    html = render(content(names, title=names[0] if names else "A table", notes=tuple(names or ())))
    page = Page(html)
    assert not names_of_tags(page) & {
        "script",
        "iframe",
        "object",
        "embed",
        "link",
        "base",
        "form",
        "foreignobject",
        "animate",
    }
    for tag, attributes in page.tags:
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            assert (
                name == "http-equiv"
                or not re.search(r"https?:|//|javascript:", value or "")
                or name in ("alt", "aria-label")
            ), (tag, name, value)
            if name in ("src", "href", "xlink:href"):
                assert value is not None and value.startswith(("#", "data:image/"))
    assert not re.search(r"@import|url\((?!#)", html)
    assert any(
        a.get("http-equiv") == "Content-Security-Policy"
        and "default-src 'none'" in str(a["content"])
        for _, a in page.tags
    )


@pytest.mark.check
def test_hostile_names_are_shown_as_text() -> None:
    page = Page(render(content(HOSTILE)))
    for name in HOSTILE[:3]:
        assert name in page.text
    assert "#010101" in page.text  # a category that spells a stand-in colour stays as it is
    assert len([t for t, _ in page.tags if t == "img"]) == 1  # the graph's picture


@pytest.mark.check
def test_ids_are_unique_and_references_resolve() -> None:
    html = render(content())
    page = Page(html)
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))
    wanted = re.findall(r'(?:url\(#|href="#)([^)"]+)', html)
    assert len(wanted) >= 13 and set(wanted) <= set(ids)


@pytest.mark.check
def test_it_says_on_top_that_it_is_confidential_and_figures_are_described() -> None:
    page = Page(render(content()))
    assert (
        page.text.split("A table: internal report ", 2)[1]
        .strip()
        .startswith("Confidential: do not share")
    )
    pictures = [a for tag, a in page.tags if tag == "svg"]
    assert len(pictures) == 1 + 3 + 1 + 2 + 1  # budget, columns, association, AUC and R², ROC
    assert all(a.get("role") == "img" and len(a.get("aria-label") or "") > 20 for a in pictures)
    assert all(a.get("alt") for tag, a in page.tags if tag == "img")
    figures_found = sum(tag == "figure" for tag, _ in page.tags)
    assert figures_found == sum(tag == "figcaption" for tag, _ in page.tags) == len(pictures) + 1


def test_every_number_is_in_the_appendix_and_in_the_json(tmp_path: Path) -> None:
    whole = content()
    path = write_internal_report(tmp_path / "new" / "folder", whole)
    assert path == tmp_path / "new" / "folder" / "internal.html"
    text = Page(path.read_text(encoding="utf-8")).text
    appendix = text[text.index("Attack and audits, in numbers") :]
    assert whole.evaluation is not None and whole.evaluation.fidelity is not None
    near = whole.evaluation.fidelity
    expected = [f"{tv:.4f}" for group in (near.by_column, near.by_triple) for tv in group.values()]
    expected += [f"{tv:.4f}" for tv in near.pairs[np.triu_indices(len(near.pairs), 1)]]
    expected += [
        f"{share:.4%}"
        for shares in (near.shares_real, near.shares_synthetic)
        for column in shares.values()
        for share in column
    ]
    expected += [f"{near.association_real[0, 1]:.3f}", f"{near.association_synthetic[0, 1]:.3f}"]
    expected += ["0.912", "0.876", "0.0358", "0.0211", "0.0507", "0.543", "0.532", "-0.0031"]
    expected += [
        "0.402",
        "0.585",
        "2.05",
        "3.12",
        "0.123",
        "0.567",
        "0.107",
        "31.25",
        "0.987",
        "1.35",
        "0.0123",
    ]
    for figure in expected:
        assert figure in appendix, figure
    assert "17" in text[text.index("Data problems") : text.index("Appendix: every number")]
    numbers = json.loads((path.parent / "internal.json").read_text(encoding="utf-8"))
    assert numbers["evaluation"]["fidelity"]["tv1"] == near.tv1
    assert numbers["attack"]["roc"] == whole.attack["roc"] if whole.attack else False
    assert numbers["budget"]["group_epsilons"] == {"2": 2.0456, "3": 3.1234}
    assert numbers["misfits"]["sort"]["outside the domain"] == 17
    assert "not to be shared" in numbers["confidential"]


def test_pairs_of_columns_are_listed_furthest_off_first_with_their_own_figures() -> None:
    whole = content()
    assert whole.evaluation is not None and whole.evaluation.fidelity is not None
    near = whole.evaluation.fidelity
    table = next(
        t for t in tables(whole, PageLimits(2, 10, 1)) if t.caption.startswith("Pairs of columns")
    )
    place = list(near.by_column).index
    assert [row[2] for row in table.rows] == [
        f"{tv:.4f}" for tv in sorted(near.pairs[np.triu_indices(len(near.pairs), 1)])[::-1][:2]
    ]
    assert all(row[2] == f"{near.pairs[place(row[0]), place(row[1])]:.4f}" for row in table.rows)
    assert table.left_out == len(near.pairs) * (len(near.pairs) - 1) // 2 - 2


@pytest.mark.check
def test_a_wide_table_stays_below_the_size_limit(tmp_path: Path) -> None:
    names = [f"a column with a rather long name, number {i}" for i in range(110)]
    table = domain(names, levels=300)
    wide = content(names, domain=table, evaluation=judged(table, rows=50))
    path = write_internal_report(tmp_path, wide)
    assert path.stat().st_size <= MAX_BYTES
    assert "more rows are in internal.json" in path.read_text(encoding="utf-8")
    assert (
        len(
            json.loads((tmp_path / "internal.json").read_text())["evaluation"]["fidelity"][
                "by_pair"
            ]["tv"]
        )
        == 110
    )


@pytest.mark.check
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"evaluation": None}, "Evaluation is turned off"),
        (
            {
                "evaluation": EvaluationReport(
                    None, None, UtilityReport((), ("not available: no rows",)), {}
                )
            },
            "There are no rows to compare",
        ),
        ({"attack": None}, "No attack was run"),
        ({"attack": {"auc": 0.5, "advantage": 0.01}}, "advantage over guessing is 0.01"),
        ({"attack": attack(roc=[])}, "did not tell them apart"),
        ({"attack": attack(refutes_claim=True)}, "the claim is disproved"),
        (
            {"attack": attack(roc=[[0.0, 0.6], [1.0, 1.0]])},
            "as a curve from few models may by chance",
        ),
        ({"graph": None}, "No graph was given"),
        ({"graph": GraphView(mode="none")}, "no causal arrows"),
        ({"gates": ()}, "sets no gates"),
        (
            {"gates": (GateResult(metric="tv1", bound="at most 0.01", value=None, passed=False),)},
            "Withheld: 1 of 1 gates failed (tv1 at most 0.01: ",
        ),
        ({"misfits": {}}, "Every value lies in"),
    ],
)
def test_what_is_absent_or_wrong_is_said(changes: dict[str, Any], says: str) -> None:
    assert says in Page(render(content(**changes))).text


@pytest.mark.check
def test_numbers_that_are_not_finite_do_not_break_the_json(tmp_path: Path) -> None:
    write_internal_report(
        tmp_path, content(tv1_noisy=float("nan"), attack=attack(epsilon_lower=float("inf")))
    )
    numbers = json.loads((tmp_path / "internal.json").read_text())
    assert numbers["tv1_noisy"] is None and numbers["attack"]["epsilon_lower"] is None


# --- sentences ---


def test_fidelity_sentence_compares_samples_of_equal_size() -> None:
    report = judged(domain(["sort", "age"]))
    near, floor = report.fidelity, report.floor
    assert near is not None and floor is not None

    def said(equal: float, other: float) -> str:
        return said_of_fidelity(near, replace(floor, tv1=other), replace(near, tv1=equal))

    assert "as near as another sample would be" in said(0.02, 0.02)
    assert "as near as another sample would be" in said(0.01, 0.02)
    assert "3.0 times as far as another sample" in said(0.06, 0.02)
    assert "sample" not in said_of_fidelity(near, None, None)


def test_association_sentence_names_the_pair_and_the_direction() -> None:
    report = judged(domain(["sort", "age", "kind"])).fidelity
    assert report is not None
    real = np.eye(3)
    synthetic = np.eye(3)
    real[0, 2] = real[2, 0] = 0.5
    said = association_text(replace(report, association_real=real, association_synthetic=synthetic))
    assert "1 of 3 pairs" in said and "sort with kind (-0.50, weaker" in said
    assert "No pair" in association_text(
        replace(report, association_real=real, association_synthetic=real)
    )


def test_utility_sentence_counts_what_is_beyond_chance() -> None:
    lost = UtilityRow("t", "random_forest", "auc", 0.9, 0.8, 0.1, 0.05, 0.15)
    same = UtilityRow("t", "logistic", "auc", 0.9, 0.89, 0.01, -0.02, 0.03)
    assert "1 of 2 learners" in said_of_utility([lost, same])
    assert "0.100 (random forest on t)" in said_of_utility([lost, same])
    assert "No learner" in said_of_utility([same])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.12345, "0.123"),
        (12345.6, "12,346"),
        (None, "not available"),
        (float("nan"), "not available"),
    ],
)
def test_numbers_as_text(value: float | None, text: str) -> None:
    assert number(value) == text


# --- figures ---


def test_roc_bound_is_the_two_sided_region() -> None:
    rate, e = np.array([0.0, 0.1, 0.5, 1.0]), np.e
    np.testing.assert_allclose(
        roc_bound([(1.0, 0.01)], rate), [0.01, 0.1 * e + 0.01, 1 - 0.49 / e, 1.0]
    )
    np.testing.assert_allclose(roc_bound([(0.0, 0.0)], rate), rate)
    both = roc_bound([(1.0, 0.0), (0.0, 0.05)], rate)
    assert both == pytest.approx([0.0, 0.15, 0.55, 1.0])
    assert not crosses([(0.0, 0.0), (0.1, 0.27), (1.0, 1.0)], [(1.0, 0.0)])
    assert crosses([(0.1, 0.28)], [(1.0, 0.0)])


def test_the_most_advantage_is_where_the_region_is_widest() -> None:
    rates = np.linspace(0, 1, 100_001)
    for point in ((1.0, 0.01), (0.0, 0.2), (3.0, 1e-5)):
        widest = float(np.max(np.asarray(roc_bound([point], rates)) - rates))
        assert most_advantage([point]) == pytest.approx(widest, abs=1e-4)


def test_labels_are_text_and_figures_follow_the_page() -> None:
    shares = np.array([0.5, 0.3, 0.2])
    svg = drawing.overlay(
        ("$x_1$", "<b>", "c"), shares, shares[::-1], ordered=False, alt='say "hi"'
    )
    assert ">$x_1$</text>" in svg and ">&lt;b&gt;</text>" in svg
    assert "var(--real)" in svg and "var(--synthetic)" in svg and "xmlns" not in svg
    assert 'aria-label="say &quot;hi&quot;"' in svg


def test_many_categories_are_pooled_and_none_is_lost() -> None:
    shares = np.full(40, 1 / 40)
    svg = drawing.overlay([f"c{i}" for i in range(40)], shares, shares, ordered=False, alt="many")
    assert "28 others" in svg


def test_lost_and_invented_association_have_colours_of_their_own() -> None:
    difference = np.array([[0.0, 0.0], [-0.3, 0.0]])
    lost = drawing.heat(["a", "b"], difference, most=0.3, alt="lost")
    invented = drawing.heat(["a", "b"], -difference, most=0.3, alt="invented")
    assert "var(--real)" in lost and "var(--synthetic)" not in lost and ">-.30<" in lost
    assert "var(--synthetic)" in invented and "var(--real)" not in invented


def test_attack_tables_take_what_is_there() -> None:
    tables = attack_tables(
        {
            "auc": 0.5,
            "main": {"advantage": interval(0.1)},
            "odd": [1, 2],
            "points": [[0, 1]],
            "table": [{"a": 1}, {"b": None}],
        }
    )
    assert tables[0].rows == (("auc", "0.5"), ("main: advantage", "0.1 (0 to 0.2)"))
    assert [t.rows for t in tables[1:]] == [
        (("1", "1"), ("2", "2")),
        (("0", "1"),),
        (("1", ""), ("", "not available")),
    ]
