"""`synthdp budget`: its table, its waterfall as SVG, and the check against what was published."""

import json
import re
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from test_conformance import TABLE, execute

from synthdp.cli import budget_facts, budget_svg, budget_text
from synthdp.cli.main import main
from synthdp.errors import VerifyError
from synthdp.ledger import Ledger, open_book
from synthdp.verify import check_published

pytestmark = pytest.mark.check

Make = Callable[..., Any]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def book(tmp_path: Path, reserve: Make, charge: Make) -> Ledger:
    """Runs of 1 (settled), 0.5 (open) and 0.75 under a cap of 3; another dataset without a cap."""
    ledger = Ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    for run, epsilon, by in (
        ("r1", 1.0, "Ada"),
        ("r2", 0.5, "<b>Bob & co</b>"),
        ("r3", 0.75, None),
    ):
        reserve(ledger, run, epsilon, body={"by": by, "unit": "one person"})
    charge(ledger, "r1")
    charge(ledger, "r1", "train")
    ledger.settle("adult", "r1")
    charge(ledger, "r2")
    reserve(ledger, "q1", 0.25, dataset="clinic", cap=None, body={"unit": "one visit"})
    reserve(ledger, "q2", 0.25, dataset="clinic", cap=None, body={"unit": "one patient"})
    return ledger


def bundle_of(book: Ledger, run: str, folder: Path) -> Path:
    """The part of a bundle that tells what the ledger held."""
    (folder / "privacy").mkdir(parents=True)
    entries = [e.to_json() for e in book.run_entries(run)]
    (folder / "privacy" / "ledger.json").write_text(
        json.dumps({"run": run, "entries": entries}), encoding="utf-8"
    )
    return folder


def test_facts_say_what_was_spent_on_what_and_by_whom(book: Ledger) -> None:
    adult, clinic = budget_facts(book, None)
    assert [(r["run"], r["by"], r["epsilon"], r["on"], r["settled"]) for r in adult["runs"]] == [
        ("r1", "Ada", 1.0, ["measure", "train"], True),
        ("r2", "<b>Bob & co</b>", 0.5, ["measure"], False),
        ("r3", "not stated", 0.75, [], False),
    ]
    assert (adult["epsilon"], adult["cap_epsilon"], clinic["cap_epsilon"]) == (2.25, 3.0, None)


def test_the_text_says_what_each_run_took_and_all_runs_up_to_it_together(book: Ledger) -> None:
    text = budget_text(budget_facts(book, "adult"))
    rows = [line.split() for line in text.splitlines()[1:]]
    found = {w: r[r.index(w) - 2 : r.index(w)] for r in rows for w in ("r1", "r2", "r3") if w in r}
    assert found == {"r1": ["1", "1"], "r2": ["0.5", "1.5"], "r3": ["0.75", "2.25"]}
    assert ["left", "0.75", "3"] in rows
    assert "epsilon 2.25 spent, of 3, 0.75 left" in text
    assert "Ada" in text and "measure, train (settled)" in text and "measure (open" in text


def test_what_cannot_be_added_or_was_overspent_is_said(book: Ledger) -> None:
    assert "different units (one patient; one visit)" in budget_text(budget_facts(book, "clinic"))
    assert "warning" not in budget_text(budget_facts(book, "adult"))
    book.set_cap("adult", epsilon=1.0, delta=1e-4)
    text, picture = (
        budget_text(budget_facts(book, "adult")),
        budget_svg(budget_facts(book, "adult")),
    )
    assert (
        "more is spent than the cap allows" in text
        and "more is spent than the cap allows" in picture
    )
    assert "0 left" in text


def test_the_picture_is_well_formed_self_contained_and_to_scale(book: Ledger) -> None:
    picture = budget_svg(budget_facts(book, None))
    root = ElementTree.fromstring(picture)
    assert not re.search(r"href|<script|<image|url\(|@import", picture)
    assert "<b>" not in picture and "&lt;b&gt;Bob &amp; co" in picture
    boxes = [
        (float(r.get("x", 0)), float(r.get("width", 0)))
        for r in root.iter(f"{SVG}rect")
        if r.get("height") == "16"
    ]
    adult, clinic = boxes[:4], boxes[4:]
    unit = adult[0][1]  # one epsilon
    assert [w / unit for _, w in adult] == pytest.approx([1, 0.5, 0.75, 0.75], abs=0.01)
    for (x, w), (following, _) in pairwise(adult):
        assert x + w == pytest.approx(following, abs=0.2)
    assert len(clinic) == 2
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    assert all(
        0 <= float(t.get("x", 0)) <= width and 0 < float(t.get("y", 0)) <= height
        for t in root.iter(f"{SVG}text")
    )


def test_a_ledger_that_lost_what_was_published_is_noticed(book: Ledger, tmp_path: Path) -> None:
    bundle = bundle_of(book, "r2", tmp_path / "bundle")
    assert check_published(book.entries(), bundle) == 2
    last = book.entries()[-1].seq
    execute(book.url, f"delete from {TABLE} where seq > 6")
    book.verify_chain()  # by itself the shorter chain is sound
    assert last > 6
    with pytest.raises(VerifyError, match=r"row 8 \(run r2, charge\) is gone"):
        check_published(book.entries(), bundle)


def test_a_bundle_that_was_changed_proves_nothing(book: Ledger, tmp_path: Path) -> None:
    bundle = bundle_of(book, "r1", tmp_path / "bundle")
    path = bundle / "privacy" / "ledger.json"
    for content in (
        path.read_text().replace('"epsilon": 1.0', '"epsilon": 2.0'),
        '{"entries": []}',
        "{}",
        "no JSON",
        '{"entries": [{"seq": 1}]}',
    ):
        path.write_text(content)
        with pytest.raises(VerifyError):
            check_published(book.entries(), bundle)
    with pytest.raises(VerifyError):
        check_published(book.entries(), tmp_path / "nowhere")


def test_the_command(
    book: Ledger,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bundle, ledger, picture = (
        bundle_of(book, "r3", tmp_path / "bundle"),
        str(tmp_path / "ledger.db"),
        tmp_path / "budget.svg",
    )

    def run(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["synthdp", "budget", "--ledger", ledger, *arguments])
        try:
            main()
        except SystemExit as stop:
            return int(stop.code or 0)
        return 0

    assert run("adult", "--check", str(bundle), "--svg", str(picture)) == 0
    assert "all 1 entries that it published are in the ledger" in capsys.readouterr().out
    ElementTree.fromstring(picture.read_text())
    execute(open_book(ledger).url, f"delete from {TABLE} where seq > 3")
    assert run("--check", str(bundle)) == 6
    assert "row 4 (run r3, reserve) is gone" in capsys.readouterr().err
