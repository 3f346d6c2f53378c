"""A yes or no on a bundle: it stands in the ledger, costs nothing, and `export` goes by it."""

import json
import shutil
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import synthdp as face
from synthdp.bundle import write_bundle
from synthdp.cli import budget_facts
from synthdp.errors import BudgetError, GateError, OutputError, VerifyError, budget_note
from synthdp.ledger import Decision, Lease, Ledger, database, decision_of, open_book
from synthdp.release.gates import red_lines
from synthdp.sample import write_table
from synthdp.verify import decided, digest_of, inspect_bundle
from tests.builders import audit_record, one_audit

pytestmark = pytest.mark.check

BY = {"by": "A. Reviewer", "why": "approved by the board"}


class Out:
    """An output folder with a bundle, and the ledger of its run."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bundle = folder, folder / "bundle"
        self.address = str(folder / "ledger.db")

    @property
    def book(self) -> Ledger:
        return open_book(self.address)

    def decide(self, answer: Any, **said: Any) -> Decision:
        return face.Bundle(self.bundle).decide(answer, ledger=self.address, **(BY | said))

    def export(self, name: str = "clinic", *, at_hand: bool = True) -> str:
        entries = self.book.entries() if at_hand else None
        address = f"sqlite:///{self.folder / 'warehouse.db'}"
        return write_table(self.bundle, address, name, ledger=entries).decision


@pytest.fixture
def out(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Out:
    monkeypatch.chdir(tmp_path)
    return Out(Path(shutil.copytree(made.parent, tmp_path / "out")))


@pytest.fixture
def waiting(
    build: Callable[..., Any], spec_text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Out:
    """A release whose spec wants a decision."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    text = spec_text.replace("  sector: Healthcare", "  sector: Healthcare\n  decision: required")
    release = build(tmp_path / "out", text)
    write_bundle(tmp_path / "out" / "bundle", release.content, ledger=release.ledger, force=False)
    return Out(tmp_path / "out")


def test_the_last_decision_holds_and_none_costs_anything(out: Out) -> None:
    before, facts = out.book.balance("clinic"), budget_facts(out.book, None)
    digest, bundle = digest_of(out.bundle), face.Bundle(out.bundle)
    assert bundle.decision(ledger=out.address) is None
    for answer in ("yes", "no", "yes", "withdrawn"):
        found = out.decide(answer)
        assert found == bundle.decision(ledger=out.address)
        assert (found.answer, found.by, found.bundle_sha256) == (answer, "A. Reviewer", digest)
    book = out.book  # its chain is verified
    assert [e.body["answer"] for e in book.entries()[-4:]] == ["yes", "no", "yes", "withdrawn"]
    assert book.balance("clinic") == before and budget_facts(book, None) == facts
    assert digest_of(out.bundle) == digest and not inspect_bundle(out.bundle).problems
    rows = len(book.entries())
    out.decide("withdrawn")  # given twice, it is one
    assert len(book.entries()) == rows
    out.decide("withdrawn", why="another reason")
    assert len(book.entries()) == rows + 1


@pytest.mark.parametrize("answer", ["no", "withdrawn"])
def test_export_refuses_a_no(out: Out, answer: str) -> None:
    assert out.export("before") == "nobody has decided on it"
    out.decide("yes")
    assert out.export("agreed").startswith("decided: yes, by A. Reviewer on 2")
    out.decide(answer)
    with pytest.raises(GateError, match=f"not to be given out: {answer}, by A. Reviewer"):
        out.export()
    assert "not known" in out.export("elsewhere", at_hand=False)


def test_export_refuses_a_blank_where_the_spec_wants_a_decision(waiting: Out) -> None:
    assert "decision: required" in (waiting.bundle / "spec.yaml").read_text()
    for at_hand, hint in ((True, "synthdp decide"), (False, "--ledger")):
        with pytest.raises(GateError, match=r"publication\.decision: required") as refused:
            waiting.export(at_hand=at_hand)
        assert hint in str(refused.value.hint)
    assert not (waiting.folder / "warehouse.db").exists()
    waiting.decide("yes")
    assert waiting.export().startswith("decided: yes")


def test_the_spec_says_nothing_of_decisions_where_none_is_wanted(made: Path) -> None:
    assert "decision" not in (made / "spec.yaml").read_text()


def test_a_decision_on_other_files_of_the_run_is_told(out: Out) -> None:
    sums = out.bundle / "SHA256SUMS"
    text = sums.read_text()
    sums.write_text(text + "\n")
    face.Bundle(out.bundle).decide("no", ledger=out.address, **BY)
    sums.write_text(text)
    told = decided(out.bundle, out.book.entries())
    assert told.startswith("decided (on other files of this run): no, by A. Reviewer")
    out.book.decide("clinic", "run-1", bundle_sha256="0" * 64, answer="yes", **BY)
    with pytest.raises(VerifyError, match="other files than those that were decided on"):
        out.export()


def test_an_edited_decision_is_named(out: Out) -> None:
    out.decide("no")
    row = len(out.book.entries())
    with closing(sqlite3.connect(out.address)) as connection:
        connection.execute("update synthdp_ledger set body = replace(body, '\"no\"', '\"yes\"')")
        connection.commit()
    named = rf"tampered with: row {row} \(run run-1, decision\)"
    for read in (out.decide, lambda _: face.Bundle(out.bundle).decision(ledger=out.address)):
        with pytest.raises(VerifyError, match=named):
            read("yes")


def test_what_no_program_of_ours_decided_is_named(out: Out) -> None:
    with database.writing(out.book._engine) as connection:
        body = {"answer": "perhaps", "by": "me", "why": "x", "bundle_sha256": ""}
        entry = database.append(connection, "clinic", "run-1", "decision", body)
    with pytest.raises(VerifyError, match=f"row {entry.seq} of the ledger is no decision"):
        face.Bundle(out.bundle).decision(ledger=out.address)


def test_an_entry_of_a_kind_that_a_program_does_not_know_is_no_charge(out: Out) -> None:
    """As an earlier version meets a decision, and this one whatever comes later."""
    before, facts = out.book.balance("clinic"), budget_facts(out.book, None)
    with database.writing(out.book._engine) as connection:
        database.append(connection, "clinic", "run-1", "ballot", {"epsilon": 5, "purpose": "x"})
    assert out.book.balance("clinic") == before and budget_facts(out.book, None) == facts
    assert decision_of(out.book.entries(), "run-1") is None


def test_a_run_goes_on_after_a_decision_and_its_bundle_has_none(
    build: Callable[..., Any], tmp_path: Path
) -> None:
    release = build(tmp_path)
    first = write_bundle(tmp_path / "a", release.content, ledger=release.ledger, force=False)
    release.ledger.decide("clinic", "run-1", bundle_sha256=digest_of(first), answer="yes", **BY)
    second = write_bundle(tmp_path / "b", release.content, ledger=release.ledger, force=False)
    kinds = {e["kind"] for e in json.loads((second / "privacy/ledger.json").read_text())["entries"]}
    assert kinds == {"reserve", "charge", "settle"} and not inspect_bundle(second).problems
    with pytest.raises(BudgetError, match="has not settled"):
        release.ledger.decide("clinic", "run-2", bundle_sha256="", answer="yes", **BY)
    release.ledger.reserve("clinic", "run-2", epsilon=0.1, delta=1e-6, cap=None, body={})
    lease = Lease(release.ledger, dataset="clinic", run="run-2")
    lease.settle()
    release.ledger.decide("clinic", "run-2", bundle_sha256="", answer="no", **BY)
    assert Lease(release.ledger, dataset="clinic", run="run-2").settled


def test_decisions_at_once_are_all_recorded_in_order(out: Out) -> None:
    def decide(i: int) -> str:
        book, digest = Ledger(f"sqlite:///{out.address}"), digest_of(out.bundle)
        said = {"by": f"reviewer {i}", "why": "x"}
        made = book.decide("clinic", "run-1", bundle_sha256=digest, answer="no", **said)
        return str(made.body["by"])

    with ThreadPoolExecutor(8) as pool:
        said = {*pool.map(decide, range(8))}
    entries = [e for e in out.book.entries() if e.kind == "decision"]
    assert said == {e.body["by"] for e in entries} and len(entries) == 8
    assert [e.seq for e in entries] == list(range(entries[0].seq, entries[0].seq + 8))
    last = decision_of(entries, "run-1")
    assert last is not None and last.by == entries[-1].body["by"]


@pytest.mark.parametrize("name", ["Zoë O'Brien; drop table x", "名前 <b>&amp;</b>", "x" * 200])
def test_odd_names_stay_as_they_are(out: Out, name: str) -> None:
    assert out.decide("no", by=name).by == name
    found = face.Bundle(out.bundle).decision(ledger=out.address)
    assert found is not None and found.by == name


@pytest.mark.parametrize(
    "name", ["", " \u00a0", "a\nb", "a\tb", "\x1b[31mred", "\u202etxt", "\udcff", "x" * 201]
)
def test_what_cannot_be_seen_or_has_no_end_is_refused(out: Out, name: str) -> None:
    before = out.book.entries()
    for said in ({"by": name}, {"why": name * 20}):
        with pytest.raises(OutputError, match="nothing was recorded") as refused:
            out.decide("no", **said)
        assert all(c == "\n" or c.isprintable() for c in str(refused.value))
        assert budget_note(refused.value) == "budget: nothing was spent"
    with pytest.raises(OutputError, match="yes, no, withdrawn; got 'maybe'"):
        out.decide("maybe")
    assert out.book.entries() == before


def test_a_red_line_refuses_a_yes_and_not_a_no(out: Out) -> None:
    ticks = {line.what: line for line in red_lines(out.bundle, out.book.entries())}
    assert {t.what for t in ticks.values() if t.state == "ok"} == {"verify", "epsilon"}
    assert ticks["selection"].found.startswith("one of 2 runs")
    planned = face.Bundle(out.bundle).certificate.planned
    for refuted in (False, True):
        record = audit_record(rows="real", spends=planned, audits=(one_audit(refuted=refuted),))
        (out.folder / "internal").mkdir(exist_ok=True)
        (out.folder / "internal" / "audit.json").write_text(record.model_dump_json())
        ticks = {line.what: line for line in red_lines(out.bundle, out.book.entries())}
        assert ticks["audits"].state == ("crossed" if refuted else "ok")
    with pytest.raises(VerifyError, match="must not be published, and no yes was recorded"):
        out.decide("yes")
    (out.bundle / "README.md").write_text("changed")
    (line,) = red_lines(out.bundle, out.book.entries())
    assert "README.md" in line.found and line.state == "crossed"
    assert out.decide("no").answer == "no"


def test_the_ledger_is_that_of_the_releases_spec(
    out: Out, spec_text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def recorded(spec: str) -> None:
        record = {"run": "run-1", "dataset": "clinic", "experiment": "x", "spec": spec}
        (out.folder / "internal").mkdir(exist_ok=True)
        (out.folder / "internal" / "tracking.json").write_text(json.dumps(record))

    bundle = face.Bundle(out.bundle)
    with pytest.raises(BudgetError, match="no ledger at hand has the entries of run run-1"):
        bundle.decision()
    (tmp_path / "spec.yaml").write_text(
        spec_text.replace("////home/steward/ledger.db", "///out/ledger.db")
    )
    recorded("spec.yaml")  # whoever made the folder may not say where to look from here
    with pytest.raises(BudgetError):
        bundle.decision()
    recorded(str(tmp_path / "spec.yaml"))
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    made = bundle.decide("no", **BY)
    assert made.answer == "no" and "MLflow was not told" in made.warnings[0]
    assert "password" not in made.warnings[0]
    (tmp_path / "spec.yaml").unlink()
    (tmp_path / "other" / ".synthdp").mkdir()
    shutil.copy(out.address, tmp_path / "other" / ".synthdp" / "ledger.db")
    assert bundle.decision() is not None


def test_the_commands(out: Out, synthdp: Any) -> None:
    ledger = ("--ledger", out.address)
    shown = synthdp("decide", out.folder, *ledger)
    assert shown.code == 0 and "nobody has decided on it" in shown.out
    assert (
        "[x] verify: agrees with itself\n" in shown.out
        and "[ ] unit: one visit; may a person have several?" in shown.out
    )
    for wrong in (["--yes"], ["--yes", "--no", "--by", "a", "--why", "b"], ["--by", "a"]):
        told = synthdp("decide", out.folder, *ledger, *wrong)
        assert told.code == 2 and "nothing was recorded" in told.err
    said = ("--by", "A. Reviewer", "--why", "bounds were read off the rows")
    told = synthdp("decide", out.bundle, *ledger, "--no", *said)
    assert told.code == 0 and "recorded: no, by A. Reviewer on 2" in told.out
    words = "decided: no, by A. Reviewer on 2"
    for command in (
        ("verify", out.bundle, *ledger),
        ("decide", out.folder, *ledger),
        ("budget", *ledger, "--check", out.bundle),
        ("index", out.folder, *ledger, "--json"),
    ):
        told = synthdp(*command)
        assert told.code == 0 and words in told.out, command
    assert "decided" not in synthdp("verify", out.bundle).out
    to = ("--to", f"sqlite:///{out.folder / 'w.db'}", "--table", "t")
    refused = synthdp("export", out.bundle, *to, *ledger)
    assert refused.code == 4 and "nothing was written" in refused.err
    told = synthdp("export", out.bundle, *to)  # optional, and no ledger is at hand
    assert told.code == 0 and "not known" in told.out
    assert synthdp("decide", out.folder / "nowhere", *ledger).code == 2
    told = synthdp("decide", out.bundle, *ledger, "--withdraw", *said, "--json")
    facts = json.loads(told.out)
    assert (facts["bundle"], facts["answer"]) == (str(out.bundle), "withdrawn")
    assert facts["bundle_sha256"] == digest_of(out.bundle)
