"""The ledger compared with the bundles that were published from it.

A hash chain does not show rows that were cut off at its end, nor a ledger that was begun anew.
Bundles show both: they contain the entries of their run, whose hashes depend on every row before
them. So a release compares the ledger with the bundles near its output folder.

A bundle does not hold what was decided on it: that stands in the ledger alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from synthdp.errors import BudgetError, GateError, VerifyError
from synthdp.files import SUMS, parse_json, read_text
from synthdp.ledger.connect import balance_of, check_domain_from, entries_of, open_book, other_ids
from synthdp.ledger.entries import Balance, Entry, decision_of, missing
from synthdp.spec.addresses import default_ledger
from synthdp.spec.model import ReleaseSpec

if TYPE_CHECKING:
    from synthdp.ledger.ledger import Ledger

LEDGER = "privacy/ledger.json"


def check_published(ledger: Sequence[Entry], bundle: Path) -> int:
    """Whether the ledger still holds every entry that a bundle published; returns their number.

    Raises:
        VerifyError: it does not, or the bundle's own entries cannot be trusted; names the rows.
    """
    published, kept = published_entries(bundle), {e.seq for e in ledger}
    if lost := missing(published, ledger):
        most = 100  # rows that are listed
        lines = [
            f"row {e.seq} (run {e.run}, {e.kind})"
            f" {'is not the one that was published' if e.seq in kept else 'is gone'}"
            for e in lost[:most]
        ]
        lines += [f"and {len(lost) - most} more"] if len(lost) > most else []
        raise VerifyError(
            f"the ledger was tampered with: {bundle} published entries that it does not hold",
            hint="restore the ledger from a backup: what it says is left is not what is left",
            problems=lines,
        )
    return len(published)


def check_one_of_each_run(bundles: Sequence[Path]) -> None:
    """Whether no two different bundles say that they are of one run.

    Raises:
        VerifyError: two do; at most one of them is what the run released.
    """
    known: dict[str, tuple[Path, str]] = {}
    for bundle in bundles if len(bundles) > 1 else ():
        runs = {e.run for e in published_entries(bundle)}
        with _readable(bundle, SUMS):
            sums = read_text(bundle / SUMS)
        for run in runs:
            other, theirs = known.setdefault(run, (bundle, sums))
            if theirs != sums:
                raise VerifyError(
                    f"{other} and {bundle} are both of run {run}, and they differ",
                    hint=(
                        "a run was copied and released twice, or a bundle was changed: find out"
                        " which one was published, and withdraw the other"
                    ),
                )


def check_nearby(ledger: Sequence[Entry], dataset: str, out: Path) -> None:
    """Check the ledger against the bundles of `dataset` near `out`.

    They lie in `out`, above it, and in the folders beside it.

    Bundles of other datasets, and those that cannot be read, say nothing.

    Raises:
        BudgetError: it lacks entries, so that more was spent than it says.
    """
    above = out.absolute().parent
    beside = sorted(path.parent.parent for path in above.glob(f"*/bundle/{LEDGER}"))
    for bundle in [out / "bundle", above / "bundle", *beside]:
        try:
            published = [e for e in published_entries(bundle) if e.dataset == dataset]
        except VerifyError:
            continue
        if missing(published, ledger):
            raise BudgetError(
                f"{bundle} published a release of dataset {dataset!r} that the ledger does not"
                " know: more was spent than it says",
                hint=(
                    "bring the ledger back, or name the one that it was made with as privacy.ledger"
                    " (`synthdp budget --check BUNDLE` shows what is missing); if the bundle is not"
                    " of this table, move it elsewhere"
                ),
            )


def standing(spec: ReleaseSpec, spec_path: Path, out: Path) -> tuple[Balance, list[str]]:
    """What the ledger says before a release into `out`: the dataset's balance, and a warning for
    each other id that may be of the same table. A ledger that is not there is not made.

    Raises:
        BudgetError: it lacks entries, or the spec does not state what its domain has cost.
        VerifyError: it was tampered with.
    """
    entries = entries_of(spec, spec_path)
    check_nearby(entries, spec.dataset.id, out)
    check_domain_from(spec, entries)
    return balance_of(spec, spec_path), other_ids(spec, entries)


def published_entries(bundle: Path) -> list[Entry]:
    """The ledger entries in a bundle, each of which fits its hash.

    Raises:
        VerifyError: they cannot be read, or do not fit.
    """
    with _readable(bundle, LEDGER):
        published = [Entry(**e) for e in parse_json(read_text(bundle / LEDGER))["entries"]]
        forged = [e for e in published if type(e.seq) is not int or not e.intact]
    if forged or not published:
        raise VerifyError(
            f"{bundle}: its ledger entries do not fit their hashes",
            hint=f"see `synthdp verify {bundle}`",
        )
    return published


# --- decisions ---


def book_of(bundle: Path, ledger: str | None, own: str | None) -> Ledger:
    """The ledger that holds the entries of a bundle.

    It is `ledger`, a path or a URL; else `own`, that of the run's spec where it is known, or
    `.synthdp/ledger.db` in the working folder.

    Raises:
        BudgetError: none of them is there, or has the entries.
        VerifyError: it was tampered with, or `ledger` lacks the entries.
    """
    if ledger is not None:
        book = open_book(ledger)
        check_published(book.entries(), bundle)
        return book
    published, why = published_entries(bundle), ""
    for address in filter(None, (own, str(default_ledger(Path.cwd())))):
        try:
            book = open_book(address)
        except BudgetError as error:
            why = why or f": {error.message}"
            continue
        if not missing(published, book.entries()):
            return book
    raise BudgetError(
        f"no ledger at hand has the entries of run {published[0].run}{why}",
        hint="name the ledger of that run with --ledger FILE or URL",
    )


def digest_of(bundle: Path) -> str:
    """Digest of a bundle's sums, and so of its files."""
    with _readable(bundle, SUMS):
        return hashlib.sha256(read_text(bundle / SUMS).encode()).hexdigest()


def decided(bundle: Path, ledger: Sequence[Entry]) -> str:
    """What was decided on a bundle, in words."""
    found = decision_of(ledger, published_entries(bundle)[0].run)
    if found is None:
        return "nobody has decided on it"
    other = "" if found.bundle_sha256 == digest_of(bundle) else " (on other files of this run)"
    return f"decided{other}: {found}"


def check_decided(bundle: Path, spec: ReleaseSpec, ledger: Sequence[Entry] | None) -> str:
    """Check that nobody said no to a bundle, and that somebody said yes where its spec wants that.

    Returns what was decided, in words. `ledger` is None where it is out of reach.

    Raises:
        GateError: there is a no, or a blank where there must not be one.
        VerifyError: what was decided on are other files.
    """
    publication, run = spec.publication, published_entries(bundle)[0].run
    required = publication is not None and publication.decision == "required"
    found = None if ledger is None else decision_of(ledger, run)
    if found is None:
        said = "nobody has decided on it"
        if ledger is None:
            said = "whether anybody decided on it is not known: its ledger is not at hand"
        if not required:
            return said
        raise GateError(
            f"{bundle}: {said}, and its spec says publication.decision: required; nothing was"
            " written",
            hint="name the ledger of its run with --ledger"
            if ledger is None
            else f"`synthdp decide {bundle} --yes --by NAME --why TEXT` records a decision",
        )
    if found.answer != "yes":
        raise GateError(
            f"{bundle} is not to be given out: {found}; nothing was written",
            hint=f"who answers for it may decide again: `synthdp decide {bundle}`",
        )
    if found.bundle_sha256 != digest_of(bundle):
        raise VerifyError(
            f"{bundle} has other files than those that were decided on ({found}); nothing was"
            " written",
            hint="get the bundle as it was, or have somebody decide on this one",
        )
    return f"decided: {found}"


@contextmanager
def _readable(bundle: Path, name: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        what = f"{bundle}: {name} cannot be read ({type(error).__name__})"
        raise VerifyError(what, hint="give a bundle folder") from None
