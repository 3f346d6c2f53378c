"""The releases below a folder, for an index of them: what each bundle states, and what was checked.

A bundle that cannot be read is listed with the reason, and the others go on. Nothing of a release's
confidential folder is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from synthdp.bundle.content import Bundle
from synthdp.bundle.linked import LinkedBundle
from synthdp.bundle.linked_files import visit_content
from synthdp.bundle.noisy_values import ESTIMANDS, WAVES, tables_of
from synthdp.bundle.write import EFFECTS, public_content
from synthdp.errors import SynthdpError, VerifyError, printable
from synthdp.files import SUMS, check_sums, read_text
from synthdp.graph.waves import STEPS, series_of
from synthdp.ledger.entries import Entry, balance_of_entries, decision_of, missing
from synthdp.progress import Advance
from synthdp.report import index
from synthdp.report.prose import say
from synthdp.report.public.page import public_cards, public_uses
from synthdp.report.public.sections import Measured
from synthdp.report.public.visits import visit_cards, visit_uses
from synthdp.report.sections import ReportTable
from synthdp.report.verdicts import State, Verdict
from synthdp.verify.at_hand import LEDGER, decided, published_entries
from synthdp.verify.checks import inspect_bundle
from synthdp.verify.diff import Difference, differences, open_stated

PAGES = {
    "public report": "report.html",
    "certificate": "privacy/certificate.md",
    "data card": "DATACARD.md",
}


def index_of(
    folder: Path,
    *,
    page: Path,
    now: datetime,
    verify: bool = False,
    key: Ed25519PublicKey | None = None,
    ledger: Sequence[Entry] = (),
    ledger_name: str = "",
    progress: Advance = lambda *_: None,
) -> index.IndexContent:
    """The content of the index of `folder`.

    Args:
        folder: where bundles are looked for.
        page: the file that the index is written to; links start from its folder.
        now: when it is made.
        verify: whether to verify each bundle, which reads all its rows.
        key: the publisher's public key; with `verify`, only what it signed is accepted.
        ledger: the entries of a ledger, where one is at hand; `ledger_name` is shown for it.
        progress: gets the number of bundles done and of all.
    """
    places, found, damaged = list(bundles_below(folder)), list[Found](), []
    for done, place in enumerate(places):
        progress(done, len(places))
        try:
            found.append(read_bundle(place, verify=verify, key=key))
        # whatever the libraries below raise on bytes that were made to break them
        except Exception as error:
            reasons = (r.replace(str(place), "this folder") for r in reasons_of(error))
            damaged.append((_relative(place, folder), tuple(reasons)))
    found.sort(key=lambda f: f.order)
    names = {f.opened.spec.dataset.id for f in found}
    names |= {e.dataset for e in ledger if e.kind == "reserve"}  # of which all may be withheld
    return index.IndexContent(
        folder=_text(folder.resolve().name),
        made=f"{now:%Y-%m-%d %H:%M} UTC",
        verified=verify,
        ledger=ledger_name,
        datasets=tuple(
            _dataset(
                name, [f for f in found if f.opened.spec.dataset.id == name], folder, page, ledger
            )
            for name in sorted(names)
        ),
        damaged=tuple(sorted(damaged)),
    )


# --- a dataset ---


def _dataset(
    name: str, found: Sequence[Found], folder: Path, page: Path, ledger: Sequence[Entry]
) -> index.IndexedDataset:
    own = [e for e in ledger if e.dataset == name]
    known = own and not (found and all(missing(f.entries, ledger) for f in found))
    first = {f.run: f for f in reversed(found)}
    once = sorted(first.values(), key=lambda f: f.order)
    budget, over = _budget(once, own if known else ())
    without, withheld = _without(own, {*first}) if known else (None, 0)
    before = {b.run: a for a, b in pairwise(once)}
    return index.IndexedDataset(
        name=name,
        title=(found[-1].opened.spec.dataset.title if found else None) or name,
        budget=budget,
        over=over,
        bundles=tuple(
            _bundle(f, folder, page, copy_of=first[f.run], before=before.get(f.run), ledger=own)
            for f in found
        ),
        withheld=withheld,
        without=without,
        series=_series(once[-1].opened) if once else None,
    )


def _series(last: Bundle) -> ReportTable | None:
    """What noisy tables of all waves say of the targets in each, by the last bundle of a series."""
    if isinstance(last, LinkedBundle) or not last.waves or last.spec.waves is None:
        return None
    names = [*(wave.name for wave in last.waves), last.spec.waves.name]
    asked, rows = last.spec.evaluation.targets or last.domain.names[:1], list[tuple[str, ...]]()
    for (columns, _), told in series_of((*tables_of(last.waves, last.domain), last.tables)).items():
        if len(columns) > 1 or columns[0] not in asked:
            continue
        smooth, steps = told.smoothed(), (1.0, *told.chances)
        for i, label in enumerate(last.domain[columns[0]].labels[:12]):
            cells = dict.fromkeys(names, "-")
            for seen, mean, chance in zip(told.seen, smooth, steps, strict=True):
                broke = "; a break" if chance < STEPS.rare else ""
                cells[names[seen.wave]] = f"{mean[i]:.3f} ({seen.shares[i]:.3f}){broke}"
            rows.append((f"{columns[0]}: {label}", *cells.values()))
    caption = f"Shares by wave of {last.spec.dataset.id}: of all waves' noisy tables, smoothed"
    return ReportTable(f"{caption} (of the wave's own)", ("share", *names), tuple(rows))


def _budget(once: Sequence[Found], own: Sequence[Entry]) -> tuple[str, bool]:
    """What the dataset has spent, in words, and whether that is more than its cap."""
    if own:
        balance = balance_of_entries(own[0].dataset, own)
        told = say("ledger_says", spent=balance.together, cap=balance.cap_epsilon, by=balance.rule)
        return told, balance.over is not None
    reserved = sum(f.opened.certificate.epsilon_allowed for f in once)
    stated, filtered = once[-1].opened.certificate.cap, once[-1].opened.certificate.filtered
    # by a filter, what all had come to when the last of them was paid for; else sums are a bound
    over = stated is not None and (filtered or reserved) > stated[0] * (1 + 1e-9)
    return say("bundles_say", reserved=reserved, cap=stated), over


def _without(own: Sequence[Entry], bundled: set[str]) -> tuple[ReportTable | None, int]:
    """Runs of the ledger that have no bundle here, and how many of them were withheld: each was
    paid for all the same.
    """
    settled, rows, withheld = {e.run for e in own if e.kind == "settle"}, list[tuple[str, ...]](), 0
    for e in own:
        if e.kind != "reserve" or e.run in bundled:
            continue
        became = "published elsewhere, or made no bundle" if e.run in settled else "not finished"
        if (found := decision_of(own, e.run)) is not None:
            withheld += not found.bundle_sha256
            how = "published elsewhere" if found.bundle_sha256 else "withheld"
            became = printable(f"{how}: {found}")
        rows.append((e.at[:10], e.run, f"epsilon {e.body['epsilon']:.4g}", became))
    headings = ("date", "run", "took", "what became of it")
    caption = f"Runs of {own[0].dataset} in the ledger without a bundle here"
    return ReportTable(caption, headings, tuple(rows)) if rows else None, withheld


def _bundle(
    found: Found,
    folder: Path,
    page: Path,
    *,
    copy_of: Found,
    before: Found | None,
    ledger: Sequence[Entry],
) -> index.IndexedBundle:
    place, spec = found.opened.folder, found.opened.spec
    signer = found.opened.certificate.signer
    checked, checks = _checks(found, folder, copy_of, ledger)
    changed: tuple[tuple[str, ...], ReportTable | None] = ((), None)
    if before is not None and copy_of is found:
        changed = _difference(before, found, folder)
    return index.IndexedBundle(
        place=_relative(place, folder),
        day=found.entries[-1].at[:10],
        run=found.run,
        rows=f"{spec.sampling.rows or 0:,}"
        + " persons with their visits" * isinstance(found.opened, LinkedBundle),
        gates=found.gates,
        signed=say("signed", signer=signer, verified=found.verified, checked=found.key_checked),
        decision=decided(place, ledger)
        if ledger and not missing(found.entries, ledger)
        else "not known",
        checked=checked,
        checks=checks,
        # No name can make an address anything but a path.
        links=tuple(
            (text, quote(os.fsencode(os.path.relpath(place / name, page.parent))))
            for text, name in PAGES.items()
            if (place / name).is_file() and not (place / name).is_symlink()
        ),
        verdicts=found.verdicts,
        differs=changed[0],
        difference=changed[1],
    )


def _checks(
    found: Found, folder: Path, copy_of: Found, ledger: Sequence[Entry]
) -> tuple[State, str]:
    state: State = "good" if found.verified else "plain"
    words = ["verified" if found.verified else "not verified"]
    if ledger and missing(found.entries, ledger):
        state, words = "bad", [*words, "its entries are not in the ledger"]
    elif ledger:
        words.append("its entries are in the ledger")
    if copy_of is not found:
        same, other = copy_of.sums == found.sums, _relative(copy_of.opened.folder, folder)
        how = "a copy of" if same else "of the same run as, and differs from,"
        state, words = (state if same else "bad"), [*words, f"{how} {other}"]
    return state, "; ".join(words)


# --- differences ---


def _difference(a: Found, b: Found, folder: Path) -> tuple[tuple[str, ...], ReportTable | None]:
    verified = a.verified and b.verified
    names = [_relative(f.opened.folder, folder) for f in (a, b)]
    try:
        findings = differences(a.opened, b.opened, rows=verified).findings
    except Exception as error:  # as where bundles are read
        (reason, *_) = reasons_of(error)
        return (f"cannot be compared with {names[0]}: {reason}",), None
    rows = (
        (f.topic, f.what, index.shown(f.a), index.shown(f.b), f.verdict, f.why) for f in findings
    )
    basis = "both verified" if verified else "as both state; rows were not read"
    told = ReportTable(
        f"{printable(names[1])} compared with {printable(names[0])} ({basis})",
        ("topic", "what", "before", "after", "verdict", "why"),
        tuple(tuple(map(printable, row)) for row in rows),
    )
    moved = filter(lambda f: f.verdict in ("better", "worse", "different"), findings)
    return tuple(map(_moved, moved)) or ("no difference",), told


def _moved(found: Difference) -> str:
    values = " -> ".join(index.shown(value) for value in (found.a, found.b) if value is not None)
    why = found.why if found.verdict == "different" else found.verdict
    return f"{found.what}{values and f' {values}'}{why and f': {why}'}"


# --- places ---


def _text(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "replace")


def _relative(place: Path, folder: Path) -> str:
    return _text(os.path.relpath(place, folder))


# --- found bundles ---
#
# Without `verify` what the verdicts of their reports are made of is read, and their ledger entries,
# all of which must fit the bundle's sums.


CERTIFICATE = "privacy/certificate.json"
STATED = (
    *("spec.yaml", CERTIFICATE, "privacy/profile.json", LEDGER, "graph.json"),
    *("marginals.json", EFFECTS),
)
NOT_RELEASES = ("mlflow-artifacts", "mlartifacts")  # what MLflow keeps of bundles


@dataclass(frozen=True)
class Found:
    """A bundle that can be read, and whether it was `verified`, with a key that was given."""

    opened: Bundle
    entries: tuple[Entry, ...]
    sums: str
    verdicts: tuple[Verdict, ...]
    gates: tuple[str, ...]
    verified: bool
    key_checked: bool

    @property
    def run(self) -> str:
        return self.entries[-1].run

    @property
    def order(self) -> tuple[str, int, str]:
        """Oldest first."""
        last = self.entries[-1]
        return last.at, last.seq, str(self.opened.folder)


def bundles_below(folder: Path) -> Iterator[Path]:
    """Folders that hold a bundle's sums or certificate, in order; none is looked for inside them.

    Links, hidden folders and MLflow's own are not followed.
    """
    for root, folders, files in os.walk(folder, followlinks=False):
        if SUMS in files or os.path.lexists(os.path.join(root, CERTIFICATE)):
            folders.clear()
            yield Path(root)
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and name not in NOT_RELEASES
        )


def read_bundle(place: Path, *, verify: bool, key: Ed25519PublicKey | None) -> Found:
    """What a bundle states, once its sums hold, or with `verify` everything that `verify` checks.

    Raises:
        Exception: whatever its content makes libraries raise.
    """
    key_checked = False
    if verify:
        report = inspect_bundle(place, key=key)
        if report.problems:
            raise VerifyError("does not hold what it claims", hint="", problems=report.problems)
        key_checked = report.origin_checked
    else:
        check_sums(place, STATED)
    entries, opened = tuple(published_entries(place)), open_stated(place)
    if opened.spec.waves and opened.spec.waves.after:
        check_sums(place, (WAVES,))
    if opened.spec.estimands:
        check_sums(place, (ESTIMANDS,))
    check_sums(place, [csv.name for csv, _ in opened.sources])
    cards = tuple(cards_of(replace(opened)))  # whose rows are not kept
    if not all(isinstance(text, str) for e in entries for text in (e.run, e.at)):
        raise ValueError("its ledger entries name no run, or no day")
    gates = replace(opened).gates_told
    return Found(opened, entries, read_text(place / SUMS), cards, gates, verify, key_checked)


def cards_of(opened: Bundle) -> Iterator[Verdict]:
    """What a bundle's public report says on its first screen."""
    if isinstance(opened, LinkedBundle):
        visits = visit_content(opened)
        yield from (*visit_uses(visits), *visit_cards(visits))
        return
    content = public_content(opened)
    judged = Measured.of(content)
    yield from (*public_uses(content, judged), *public_cards(content, judged))


def reasons_of(error: Exception) -> tuple[str, ...]:
    """Why a bundle cannot be used, in a few texts of bounded length."""
    reasons = [f"is not what it should be ({type(error).__name__}: {error})"]
    if isinstance(error, SynthdpError):
        reasons = [problem["message"] for problem in error.to_json()["problems"]]
    left = len(reasons) - 5
    more = [f"and {left} more"] if left > 0 else []
    return tuple(r[:300] for r in [*reasons[:5], *more])
