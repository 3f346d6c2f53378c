"""The ledger compared with the bundles that were published from it.

A hash chain does not show rows that were cut off at its end, nor a ledger that was begun anew.
Bundles show both: they contain the entries of their run, whose hashes depend on every row before
them. So a release compares the ledger with the bundles near its output folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from synthdp.errors import BudgetError, VerifyError
from synthdp.files import parse_json, read_text
from synthdp.ledger.entries import Entry, entry_hash, missing

MAX_LISTED = 100
LEDGER, SUMS = "privacy/ledger.json", "SHA256SUMS"


def check_published(ledger: Sequence[Entry], bundle: Path) -> int:
    """Whether the ledger still holds every entry that a bundle published; returns their number.

    Raises:
        VerifyError: it does not, or the bundle's own entries cannot be trusted; names the rows.
    """
    published, kept = published_entries(bundle), {e.seq for e in ledger}
    if lost := missing(published, ledger):
        lines = [
            f"row {e.seq} (run {e.run}, {e.kind})"
            f" {'is not the one that was published' if e.seq in kept else 'is gone'}"
            for e in lost[:MAX_LISTED]
        ]
        lines += [f"and {len(lost) - MAX_LISTED} more"] if len(lost) > MAX_LISTED else []
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


def fits_its_hash(entry: Entry) -> bool:
    """Whether an entry's hash is that of its content."""
    return entry_hash(**{k: v for k, v in entry.to_json().items() if k != "hash"}) == entry.hash


def published_entries(bundle: Path) -> list[Entry]:
    """The ledger entries in a bundle, each of which fits its hash.

    Raises:
        VerifyError: they cannot be read, or do not fit.
    """
    with _readable(bundle, LEDGER):
        published = [Entry(**e) for e in parse_json(read_text(bundle / LEDGER))["entries"]]
        forged = [e for e in published if type(e.seq) is not int or not fits_its_hash(e)]
    if forged or not published:
        raise VerifyError(
            f"{bundle}: its ledger entries do not fit their hashes",
            hint=f"see `synthdp verify {bundle}`",
        )
    return published


@contextmanager
def _readable(bundle: Path, name: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        what = f"{bundle}: {name} cannot be read ({type(error).__name__})"
        raise VerifyError(what, hint="give a bundle folder") from None
