"""What the steward reads about effects, groups, intervals and rows that can be told apart."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from synthdp.data import ColumnDomain, Domain
from synthdp.evaluate import (
    CoverageRow,
    Dependence,
    EffectRow,
    Estimate,
    EvaluationReport,
    IndependenceReport,
    IndependenceRow,
    SubgroupRow,
    TwoSampleRow,
    summarize,
)
from synthdp.evaluate.fidelity import fidelity, pair_plot
from synthdp.evaluate.utility import UtilityReport, UtilityRow
from synthdp.report import Budget, ReportContent, analysis, render

DOMAIN = Domain(tuple(ColumnDomain(n, "categorical", ("x", "y"), False) for n in ("<b>a", "c")))
CODES = np.array([[0, 0], [1, 1], [0, 1], [1, 1]], dtype=np.uint16)
PAPER = UtilityReport(
    (
        UtilityRow("c", "knn", "accuracy", 0.8, 0.75, 0.05, 0.0, 0.1),
        UtilityRow("d", "knn", "accuracy", 0.8, 0.77, 0.03, 0.0, 0.1),
    )
)


def report(**changes: Any) -> EvaluationReport:
    near = fidelity(CODES, CODES, DOMAIN, triples=0)
    plot = pair_plot(DOMAIN, CODES, DOMAIN.names, like=CODES)
    whole = EvaluationReport(
        near,
        near,
        UtilityReport(()),
        {},
        summarize(("c", "d"), PAPER),
        (
            TwoSampleRow("synthetic from real", "knn", 0.61, 0.55, 0.66),
            TwoSampleRow("real from real", "knn", 0.9, 0.8, 0.95),
        ),
        (
            CoverageRow("means of columns", 8, 0.625, 0.91),
            CoverageRow("shares of levels", 8, 0.975, None),
        ),
        (
            SubgroupRow("c", "x", 0.0123, 0.02, 0.31, 0.1, 0.71, 0.64),
            SubgroupRow("c", "y", 0.98, 0.97, 0.01, 0.02, None, None),
        ),
        (
            EffectRow(
                "c == 'x' against all other rows",
                "pay",
                ("d",),
                Estimate(1.234, 0.1),
                Estimate(-0.5, 0.1),
            ),
            EffectRow("rare", "pay", (), None, None),
        ),
        IndependenceReport(
            (IndependenceRow("a", "c", ("d",), Dependence(0.02, 0.01), Dependence(0.34, 0.01)),), 1
        ),
        (plot, plot),
    )
    return replace(whole, **changes)


def page(**changes: Any) -> str:
    budget = Budget(
        epsilon=1,
        epsilon_planned=1,
        epsilon_spent=1,
        delta=1e-6,
        adjacency="add_remove",
        unit="one person",
    )
    return render(
        ReportContent(
            title="T",
            run="r",
            created="now",
            domain=DOMAIN,
            budget=budget,
            evaluation=report(**changes),
        )
    )


@pytest.fixture(scope="module")
def whole() -> str:
    """The page with everything judged; drawing it takes a while."""
    return page()


@pytest.mark.parametrize(
    "said",
    [
        (
            "In 0 of 1 effects the 95% interval of synthetic rows holds the estimate of real rows;"
            " the sign turns for c =="
        ),
        (
            "with AUC 0.61 (0.55 to 0.66; knn). 0.5 would be guessing; wherever it draws the line,"
            " it picks out at most about 22% more of the synthetic"
        ),
        "means of columns 62%, shares of levels 98%. For means of columns they are too narrow",
        (
            "0 of 1 independences that the graph implies hold in the synthetic rows, and 1 in the"
            " real ones"
        ),
        (
            "1 of 2 groups are more than twice as far from the real rows as held-out rows of the"
            " group are: c: x."
        ),
        (
            "Over 2 columns drawn at random, learning on synthetic rows costs on average 4 points"
            " of accuracy"
        ),
        "Above the diagonal the real rows",
    ],
)
def test_it_says_what_to_conclude(whole: str, said: str) -> None:
    assert said in whole.replace("&#39;", "'")


def test_every_number_is_in_a_table(whole: str) -> None:
    for cell in (
        "1.23",
        "-0.5",
        "too few rows",
        "0.610",
        "0.900",
        "62.5%",
        "91.0%",
        "1.23%",
        "0.31",
        "71.0%",
        "0.340",
        "0.05",
    ):
        assert f"<td>{cell}</td>" in whole, cell
    assert "<b>a" not in whole and "&lt;b&gt;a" in whole


def test_what_was_not_done_is_said() -> None:
    nothing = page(
        two_sample=(),
        coverage=(),
        independences=None,
        effects=(),
        subgroups=(),
        pairs=None,
        paper=None,
    )
    assert "Nothing was analysed." in nothing
    assert "No column has groups that could be judged." in nothing
    assert "One column has no pairs." in nothing
    assert analysis(None).notes == ()


def test_rows_that_cannot_be_told_apart_and_honest_intervals() -> None:
    html = page(
        two_sample=(TwoSampleRow("synthetic from real", "knn", 0.5, 0.46, 0.54),),
        coverage=(CoverageRow("means of columns", 8, 0.94, 0.95),),
    )
    each = [
        CoverageRow(kind, 8, share, 0.95)
        for kind, share in (
            ("means of columns", 0.73),
            ("shares of levels", 0.5),
            ("differences", 0.92),
        )
    ]
    assert "For means of columns and shares of levels they are too narrow" in page(
        coverage=tuple(each)
    )
    assert "no better than guessing" in html and "That is about what they say." in html
