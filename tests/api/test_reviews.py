"""A finished release before who decides on it: what keeps a decision from being written, and what
is written where.
"""

import json
import shutil
from pathlib import Path

import pytest

import synthdp as face
from synthdp.api import reviews
from synthdp.bundle import write_bundle
from synthdp.errors import OutputError
from synthdp.ledger import open_book
from synthdp.report import write_internal_report
from tests.bundle.conftest import SPEC, make_release
from tests.malicious.test_names import HOSTILE
from tests.report.test_report import content

pytestmark = pytest.mark.check
PLAN = {"dataset": "clinic", "spends": [1], "delta": 1e-5, "epsilon_spent": 2.0,
        "quality": {"tv1": 0.05}, "estimands": []}  # fmt: skip
NOT_CROSSED = {"audits": "no", "unit": "no", "declarations": "cannot say", "same table": "no",
               "selection": "no"}  # fmt: skip
SAID = {"by": "A. Reviewer", "why": "the board agreed", "uses": "teaching", "answer": "yes"}


def make_finished(out: Path) -> Path:
    """A finished release with hostile names and texts."""
    text = SPEC.replace("meaning: one visit", f"meaning: {json.dumps(HOSTILE[1])}")
    out.mkdir(exist_ok=True)
    release = make_release(out, text)
    write_bundle(out / "bundle", release.content, ledger=release.ledger, force=False)
    write_internal_report(out / "internal", content([HOSTILE[0], HOSTILE[3], "kind"]))
    (out / "plan.json").write_text(json.dumps(PLAN))
    return out


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_finished(tmp_path_factory.mktemp("finished"))


@pytest.fixture(scope="module")
def review(finished: Path) -> reviews.Review:
    return reviews.review(finished, str(finished / "ledger.db"))


@pytest.fixture
def out(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "out"))


def test_a_yes_goes_into_the_ledger_and_the_form(out: Path, review: reviews.Review) -> None:
    ledger = str(out / "ledger.db")
    before = open_book(ledger).entries()
    made = reviews.record(out, review, SAID | NOT_CROSSED, ledger)
    assert face.Bundle(out / "bundle").decision(ledger=ledger) == made
    assert made.why == "the board agreed (for: teaching)"
    assert len(open_book(ledger).entries()) == len(before) + 1
    form = (out / "decision.md").read_text()
    assert (out / "decision.md").stat().st_mode & 0o777 == 0o600
    assert form.startswith("# Decision: yes\n") and "- May be used for: teaching\n" in form
    assert f"- Made for: {review.facts['Made for']}\n" in form
    assert "- Unit that is protected: " in form and ", one row\n" in form
    assert "declarations: was a bound" in form and form.count("cannot say") == 1
    assert "- Must not be used for: ....." in form and made.bundle_sha256 in form
    assert all(" ".join(gate[:2]) in form for gate in review.gates[1:])
    with pytest.raises(OutputError, match="changed meanwhile; nothing was recorded"):
        reviews.record(out, review, SAID | NOT_CROSSED | {"answer": "no"}, ledger)
    reviews.record(out, reviews.review(out, ledger), SAID | {"answer": "withdrawn"}, ledger)
    assert (out / "decision.md").read_text().startswith("# Decision: withdrawn\n")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"answer": "perhaps"}, "no answer is chosen"),
        ({"by": " "}, "Decided by: blank"),
        ({"unit": ""}, "red line not answered: unit"),
        ({"unit": "maybe"}, "red line not answered: unit"),
        ({"same table": "yes"}, "red line crossed: same table"),
    ],
)
def test_what_is_open_keeps_a_yes_from_being_written(
    out: Path, review: reviews.Review, said: dict[str, str], told: str
) -> None:
    ledger = str(out / "ledger.db")
    with pytest.raises(OutputError, match=f"nothing was recorded: {told}"):
        reviews.record(out, review, SAID | NOT_CROSSED | said, ledger)
    assert reviews.review(out, ledger) == review and not (out / "decision.md").exists()
    assert reviews.still_open(review, SAID | {"answer": "no"}) == []


def test_a_bundle_that_does_not_verify_gets_no_yes(out: Path) -> None:
    (out / "bundle" / "synthetic.csv").write_text("changed")
    found = reviews.review(out, str(out / "ledger.db"))
    assert reviews.still_open(found, SAID | NOT_CROSSED) == ["red line crossed: verify"]
    assert len(found.expected) == 1 and reviews.rows_of(out) == ("visits.csv",)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("x/y", "give the output folder"),
        (".run/state.json", "its run has not ended: `synthdp resume"),
        ("internal/internal.html", "a gate withheld it"),
        ("privacy/ledger.json", "this is a bundle"),
    ],
)
def test_what_is_no_finished_release_is_refused(tmp_path: Path, made: str, told: str) -> None:
    (tmp_path / made).parent.mkdir(parents=True)
    (tmp_path / made).write_text("{}")
    with pytest.raises(OutputError, match="nothing to decide on") as refused:
        reviews.finished(tmp_path)
    assert told in str(refused.value)
