"""A finished release before those who decide on it: what it says of itself, what is still open,
and the decision, which goes into the ledger, and beside the bundle as the form of
docs/guides/gates.md.

No row is read. Gates and the internal report may hold figures of real rows: all is confidential.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from synthdp.api.bundle import Bundle, book_of_run
from synthdp.api.drafts import apart, said, spec_text
from synthdp.api.text import finding_cells
from synthdp.errors import OutputError, disk_errors
from synthdp.files import parse_json, read_text, write_private
from synthdp.ledger.entries import Choice, Decision, Entry
from synthdp.release.gates import RedLine, red_lines
from synthdp.release.run_folder import FOLDER, PLAN, how_to_continue
from synthdp.report.internal.content import GateResult
from synthdp.spec.load.wording import many, up
from synthdp.verify.at_hand import LEDGER, decided, digest_of, published_entries
from synthdp.verify.diff import against_plan, open_stated

REPORT = Path("internal", "internal.html")
FORM = {
    "source": "Bounds, categories and arrows come from",
    "uses": "May be used for",
    "no_uses": "Must not be used for",
    "contact": "Contact for questions, and for repeating a result on the real rows",
    "by": "Decided by",
    "why": "Why, in one line",
}
"""What only people can say of a release."""
TOLD = {"no": "no, it is not crossed", "yes": "yes, it is crossed", "cannot say": "cannot say"}
"""What people may say of a red line that no program sees."""
ANSWERS: dict[Choice, str] = {
    "yes": "publish",
    "no": "do not publish",
    "withdrawn": "withdraw: it was published, and is taken back",
}


@dataclass(frozen=True)
class Review:
    """A release as it stands.

    `seen` changes with the bundle's files and with what was decided (`decided`). `facts` are in
    words, for the form. `gates` has each gate with its bound, figure and outcome, and `expected`
    what the plan expected, what came and which is better; rows of texts both, with their heads.
    """

    seen: str
    decided: str
    facts: Mapping[str, str]
    red_lines: tuple[RedLine, ...]
    expected: Sequence[Sequence[str]]
    gates: Sequence[Sequence[str]]


def finished(out: Path) -> Path:
    """The bundle of a finished release.

    Raises:
        OutputError: `out` is no output folder of one.
    """
    if (out / "bundle" / LEDGER).exists():
        return (out / "bundle").absolute()
    hint = "give the output folder of a release, such as releases/DATASET"
    if (out / FOLDER).exists():
        hint = f"its run has not ended: {how_to_continue(out)}"
    elif (out / REPORT).exists():
        hint = f"a gate withheld it, or it was moved; {out / REPORT} says which gate"
    elif (out / LEDGER).exists():
        hint = "this is a bundle; give the folder that it lies in, with `internal` beside it"
    raise OutputError(f"{out} holds no bundle: there is nothing to decide on", hint=hint)


def seen(out: Path, ledger: str | None) -> str:
    """What `Review.seen` would be now; raises as `review`."""
    bundle = finished(out)
    return _seen(bundle, book_of_run(bundle, ledger).entries())


def _seen(bundle: Path, entries: list[Entry]) -> str:
    return hashlib.sha256(f"{digest_of(bundle)} {decided(bundle, entries)}".encode()).hexdigest()


def rows_of(out: Path) -> tuple[str, ...]:
    """Names of what holds the rows, or patterns of them; where it lies stands in no bundle."""
    path = finished(out) / "spec.yaml"
    names = [Path(place).name for place in apart(said(spec_text(path)), path).rows]
    return tuple(name for name in names if name.strip("*?."))


def review(out: Path, ledger: str | None = None) -> Review:
    """Verify the bundle in `out`, and gather what is known of it. `ledger` is as in `decide`.

    Raises:
        SynthdpError: it is no finished release, or its ledger is not at hand.
    """
    bundle = finished(out)
    book = book_of_run(bundle, ledger)
    entries, own = book.entries(), published_entries(bundle)[0]
    lines, facts = red_lines(bundle, entries), {"Dataset": own.dataset, "Run": own.run}
    expected: list[tuple[str, ...]] = [("", "expected", "got", "got is", "")]
    if len(lines) > 1:  # else it is not verified, and nothing that it states is believed
        got, balance = open_stated(bundle), book.balance(own.dataset)
        stated = got.certificate
        cap = "" if balance.cap_epsilon is None else f", of at most {balance.cap_epsilon:g}"
        delta = balance.cap_delta
        by = f" by a Gaussian filter at delta {delta:g}" if balance.mu and delta else ""
        if got.spec.publication:
            facts["Made for"] = got.spec.publication.intended_use
        rows = {"id": f", of whose rows at most {stated.unit_rows} are used", "row": ", one row"}
        facts |= {
            "Unit that is protected": stated.unit_meaning + rows.get(stated.unit, ""),
            "Epsilon and delta": f"{up(stated.epsilon)} at {stated.delta:g}",
            "All runs of the dataset": f"epsilon {up(balance.together)}{by}{cap}",
            "Signed by": stated.signer or "nobody",
        }
        if (out / PLAN).is_file():
            found = against_plan(out / PLAN, got).findings
            expected += [finding_cells(f)[1:] for f in found]
    gates = [("gate", "needs", "got", "outcome")]
    if (kept := out / REPORT.with_suffix(".json")).is_file():
        for told in parse_json(read_text(kept)).get("gates", ()):
            gate = GateResult(**told)
            gates.append((gate.metric, gate.bound, gate.shown, gate.outcome))
    holds = decided(bundle, entries)
    return Review(_seen(bundle, entries), holds, facts, lines, expected, gates)


def still_open(review: Review, said: Mapping[str, str]) -> list[str]:
    """What keeps a decision from being written: an answer and texts that are blank; for a yes also
    red lines that are crossed, or that nobody has answered.

    `said` has the `answer`, what fills the `FORM`, and for red lines that no program sees one of
    `TOLD`, by their names.
    """
    found = [f"{FORM[key]}: blank" for key in ("by", "why") if not said.get(key, "").strip()]
    if (answer := said.get("answer")) not in ANSWERS:
        return ["no answer is chosen", *found]
    for line in review.red_lines if answer == "yes" else ():
        if line.state == "crossed" or said.get(line.what) == "yes":
            found.append(f"red line crossed: {line.what}")
        elif line.state == "ask" and said.get(line.what) not in TOLD:
            found.append(f"red line not answered: {line.what}")
    return found


def record(
    out: Path, review: Review, said: Mapping[str, str], ledger: str | None = None
) -> Decision:
    """Write a decision into the ledger, as `Bundle.decide` does, and the form as `decision.md`.

    Raises:
        OutputError: something is still open, or is not what the `review` saw.
        SynthdpError: as `Bundle.decide`.
    """
    if missed := still_open(review, said):
        raise OutputError(f"nothing was recorded: {'; '.join(missed)}")
    if seen(out, ledger) != review.seen:
        told_why = "the bundle or its decision changed meanwhile; nothing was recorded"
        raise OutputError(told_why, hint="read it again")
    named = {"for": said.get("uses"), "not for": said.get("no_uses")}
    uses = "; ".join(f"{how}: {text.strip()}" for how, text in named.items() if text)
    why, answer = said["why"].strip() + f" ({uses})" * bool(uses), cast("Choice", said["answer"])
    made = Bundle(finished(out)).decide(answer, by=said["by"].strip(), why=why, ledger=ledger)
    what, hint = f"the ledger has it; cannot write {out}/decision.md", "make room, and decide again"
    with disk_errors(what, hint=hint):
        write_private(out / "decision.md", form_text(review, made, said))
    return made


def form_text(review: Review, made: Decision, said: Mapping[str, str]) -> str:
    """The form of docs/guides/gates.md, filled in; what nobody said stays a blank."""

    def line(what: str, text: str) -> str:
        return f"- {what}: {' '.join(text.split()) or '..........'}"

    lines = [f"# Decision: {made.answer}", "", f"By {made.by}, {made.at}.", ""]
    lines += [line(*fact) for fact in review.facts.items()]
    gates = "; ".join(
        f"{metric} {bound}: {outcome}" for metric, bound, _, outcome in review.gates[1:]
    )
    lines += [line("Gates", gates or "none declared")]
    lines += [line(what, said.get(key, "")) for key, what in FORM.items() if key != "by"]
    lines += ["", f"{many(len(review.red_lines), 'red line')}:", ""]
    for red in review.red_lines:
        answered = TOLD.get(said.get(red.what, ""), "not answered") if red.state == "ask" else ""
        lines.append(line(str(red), answered) if answered else f"- {red}")
    return "\n".join([*lines, "", f"Files: SHA256SUMS has the SHA-256 {made.bundle_sha256}.", ""])
