"""The report's section on columns that look like functions of others: the warning stands above the
lines, and lines are shown as they are to be pasted.
"""

import json
from pathlib import Path

import pytest
import yaml

from synthdp.evaluate import Suggestion, SuggestionReport
from synthdp.report import render, write_internal_report
from tests.report.test_report import HOSTILE, Page, content

pytestmark = pytest.mark.check

LINE = "- '`it''s: p1` <= p2'"
QUOTED = Suggestion("constraint", ("it's: p1", "p2"), LINE, "", 8000, 0.99975)
ORDER = Suggestion("constraint", ("a", "b"), "- a <= b", "", 7000, 0.25)
WORDS = Suggestion("words", ("day", "month"), "", "the month of day", 6000, None)
REPORT = SuggestionReport((QUOTED, ORDER, WORDS), 8000, 12, 0)


def section(report: SuggestionReport | None) -> str:
    """The text of the section, white space as single blanks."""
    text = Page(render(content(suggestions=report))).text
    text = text[text.index("Columns that could be declared") : text.index("Appendix: every number")]
    return " ".join(text.split())


def test_the_warning_stands_above_the_lines() -> None:
    text = section(REPORT)
    for said in ("come from the real rows and cost no budget", "that is a leak", "a public fact"):
        assert text.index(said) < text.index(LINE)
    assert (
        "in 12 columns of 8,000 real rows: 2 that a line of the spec could declare and 1 that it"
        " has no line for." in text
    )
    assert f"it's: p1, p2 constraints {LINE} all 8,000 100.0%" in text
    assert "constraints - a <= b all 7,000 25.0%" in text
    assert "the spec has no line for it the month of day all 6,000 no rows" in text
    assert "fewer than 1 in 100" in text


@pytest.mark.parametrize(
    ("report", "says"),
    [
        (None, "Evaluation is turned off"),
        (SuggestionReport((), 8000, 12, 0), "No column looks like a function of others"),
        (SuggestionReport((), 8000, 12, 5), "(5 further columns were not looked at)"),
        (SuggestionReport((ORDER,), 8, 2, 0), "1 that a line of the spec could declare."),
        (SuggestionReport((WORDS,), 8, 2, 0), "real rows: 1 that it has no line for."),
    ],
)
def test_what_was_looked_at_is_said(report: SuggestionReport | None, says: str) -> None:
    assert says in section(report)
    if report is None or not report.suggestions:
        assert "leak" not in section(report)


def test_names_of_columns_are_text_and_the_numbers_are_in_the_json(tmp_path: Path) -> None:
    hostile = [
        Suggestion("constraint", (name,), f"- `{name}` <= 1", name, 90, 0.5) for name in HOSTILE
    ]
    whole = content(suggestions=SuggestionReport(tuple(hostile), 90, 4, 0))
    page = Page(write_internal_report(tmp_path, whole).read_text(encoding="utf-8"))
    assert "script" not in {tag for tag, _ in page.tags} and HOSTILE[0] in page.text
    told = json.loads((tmp_path / "internal.json").read_text(encoding="utf-8"))["suggestions"]
    assert told["suggestions"][0]["broken"] == 0.5 and told["rows"] == 90
    assert yaml.safe_load(LINE) == ["`it's: p1` <= p2"]
