"""Leaks planted on purpose, outside of every mechanism: what a careless change might bring.

Each fault patches the program so that something of the rows gets out. `Rows` are what was read
last, as a module might keep it by mistake.
"""

import logging
import secrets
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from synthdp.bundle import write
from synthdp.errors import DataError
from synthdp.evaluate import dp_scores
from synthdp.model import Constraints, fit
from synthdp.privacy import session, source
from synthdp.privacy.plan import MEASURE, needed
from synthdp.privacy.table import Table
from synthdp.progress import stage
from synthdp.release import run, run_folder


@dataclass
class Rows:
    """The table that was read last, and how it was before."""

    last: Table = field(
        default_factory=lambda: Table(
            np.zeros((0, 1), np.uint16), pd.DataFrame(), np.zeros(0, bool), {}
        )
    )
    raw: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def count(self) -> int:
        return len(self.last.codes)

    @property
    def misfits(self) -> int:
        return sum(sum(kinds.values()) for kinds in self.last.misfits.values())


Patch = pytest.MonkeyPatch
Fault = Callable[[Patch, Rows], None]


def around(patch: Patch, module: Any, name: str, wrap: Callable[..., Any]) -> None:
    """`wrap(true, *arguments)` in place of a function."""
    true = getattr(module, name)
    patch.setattr(module, name, lambda *args, **how: wrap(true, *args, **how))


def remember(patch: Patch, rows: Rows) -> None:
    """Every table that is read is known to the faults."""

    def read(true: Any, raw: pd.DataFrame, *args: Any, **how: Any) -> Table:
        rows.raw = raw
        rows.last = true(raw, *args, **how)
        return rows.last

    around(patch, source, "fit_table", read)


def warning_that_counts_misfits(patch: Patch, rows: Rows) -> None:
    def opened(true: Any, *args: Any, **how: Any) -> Any:
        made = true(*args, **how)
        if rows.misfits:
            warnings.warn(f"{rows.misfits} values were clamped", stacklevel=1)
        return made

    around(patch, run, "open_session", opened)


def note_of_the_exact_rows(patch: Patch, rows: Rows) -> None:
    around(
        patch,
        run,
        "check_total",
        lambda true, *args: [*true(*args), f"{rows.count} rows were read"],
    )


def log_line_with_a_row(patch: Patch, rows: Rows) -> None:
    def opened(true: Any, *args: Any, **how: Any) -> Any:
        made = true(*args, **how)
        logging.getLogger("synthdp").debug("the last row is %s", rows.last.codes[-1].tolist())
        return made

    around(patch, run, "open_session", opened)


def file_named_by_rows(patch: Patch, rows: Rows) -> None:
    def removed(true: Any, folder: Any) -> None:
        true(folder)
        (folder.path.parent / f"cache-{rows.count}").touch()

    around(patch, run_folder.RunFolder, "remove", removed)


def spool_file_that_stays(patch: Patch, rows: Rows) -> None:
    def opened(true: Any, *args: Any, **how: Any) -> Any:
        made = true(*args, **how)
        path = Path(tempfile.gettempdir()) / "spool"
        path.write_bytes(rows.last.codes.tobytes())
        return made

    around(patch, run, "open_session", opened)


def rows_in_the_order_of_the_real_ones(patch: Patch, rows: Rows) -> None:
    def written(true: Any, frame: Any, columns: Any, path: Path) -> None:
        like = rows.last.codes[np.arange(len(frame)) % rows.count, 0]
        true(frame.iloc[np.argsort(like, kind="stable")], columns, path)

    around(patch, write, "write_csv", written)


def certificate_of_the_exact_rows(patch: Patch, rows: Rows) -> None:
    around(
        patch,
        write,
        "certify",
        lambda true, *args, **how: true(*args, **how).model_copy(update={"rows": rows.count}),
    )


def readme_that_tells_of_misfits(patch: Patch, rows: Rows) -> None:
    told = "Some values lay outside the domain.\n"
    around(
        patch,
        write.descriptions,  # type: ignore[attr-defined]
        "readme",
        lambda true, *args, **how: true(*args, **how) + told * bool(rows.misfits),
    )


def coins_drawn_for_each_row(patch: Patch, rows: Rows) -> None:
    """One generator for all, of which reading took as much as there were rows."""

    def decoded(true: Any, self: Any, codes: Any, *, rng: np.random.Generator) -> Any:
        rng.random(rows.count)
        return true(self, codes, rng=rng)

    around(patch, Constraints, "decode", decoded)


def keys_asked_for_by_each_row(patch: Patch, rows: Rows) -> None:
    """The key of a shared draw is the last of as many as there are rows."""

    def keyed() -> np.random.Generator:
        keys = [secrets.randbits(64) for _ in range(rows.count)]
        return np.random.Generator(np.random.Philox(key=keys[-1]))

    patch.setattr(write, "fresh_generator", keyed)


def charge_that_few_rows_skip(patch: Patch, rows: Rows) -> None:
    def measured(true: Any, releaser: Any, check: Any) -> Any:
        if rows.count >= 60:
            return true(releaser, check)
        return releaser.release(needed(releaser.plan.measure, MEASURE), purpose=MEASURE)

    around(patch, fit, "measure", measured)


def scorecard_learnt_from_real_rows(patch: Patch, rows: Rows) -> None:
    """What the mechanism is asked is of the rows; its value is paid for and says nothing of it."""
    around(
        patch,
        dp_scores,
        "fit_scorecard",
        lambda true, codes, *args, **how: true(rows.last.codes, *args, **how),
    )


def bundle_withheld_by_rows(patch: Patch, rows: Rows) -> None:
    around(
        patch,
        run,
        "check_gates",
        lambda true, gates, figures: true(gates, figures if rows.count >= 60 else {}),
    )


def error_of_a_library(patch: Patch, rows: Rows) -> None:
    def certified(true: Any, *args: Any, **how: Any) -> Any:
        if rows.misfits:
            raise ValueError("cannot convert")
        return true(*args, **how)

    around(patch, write, "certify", certified)


def progress_over_rows(patch: Patch, rows: Rows) -> None:
    def opened(true: Any, job: Any) -> Any:
        made = true(job)
        with stage("look") as progress:
            progress(0, rows.count)
        return made

    around(patch, run, "open_session", opened)


def spec_of_the_exact_rows(patch: Patch, rows: Rows) -> None:
    def published(true: Any, spec: Any) -> Any:
        counted = spec.dataset.rows.model_copy(update={"value": rows.count})
        dataset = spec.dataset.model_copy(update={"rows": counted})
        return true(spec.model_copy(update={"dataset": dataset}))

    around(patch, write.descriptions, "public_spec", published)  # type: ignore[attr-defined]


def ledger_entry_of_the_look(patch: Patch, rows: Rows) -> None:
    """The name of a charge says how much was seen."""

    def planned(true: Any, plan: Any, mechanism: Any, purpose: str, used: Any) -> Any:
        event = true(plan, mechanism, purpose, used)
        return {**event, "rows": rows.count}

    around(patch, session, "_check_planned", planned)


FAULTS: dict[str, tuple[Fault, str]] = {
    "a warning counts misfits": (warning_that_counts_misfits, "misfits"),
    "a note gives the exact number of rows": (note_of_the_exact_rows, "one more"),
    "a debug line shows a row": (log_line_with_a_row, "isolated"),
    "a file is named by rows": (file_named_by_rows, "one more"),
    "a spool file stays": (spool_file_that_stays, "isolated"),
    "the order of synthetic rows": (rows_in_the_order_of_the_real_ones, "one less"),
    "a figure of the certificate": (certificate_of_the_exact_rows, "one more"),
    "the read-me tells of misfits": (readme_that_tells_of_misfits, "misfits"),
    "coins are drawn for each row": (coins_drawn_for_each_row, "one more"),
    "keys are asked for by each row": (keys_asked_for_by_each_row, "one more"),
    "a charge is skipped": (charge_that_few_rows_skip, "one less"),
    "a mechanism is asked what rows say": (scorecard_learnt_from_real_rows, "isolated"),
    "a gate without its figure": (bundle_withheld_by_rows, "one less"),
    "an error of a library": (error_of_a_library, "misfits"),
    "progress over rows": (progress_over_rows, "one more"),
    "the published spec": (spec_of_the_exact_rows, "one more"),
    "an entry of the ledger": (ledger_entry_of_the_look, "one more"),
}
"""Each fault, and the neighbour that shows it."""


def _refusing(patch: Patch, more: Callable[[Any], str]) -> None:
    """A refusal of misfits says `more` of the first column."""

    def checked(true: Any, encoded: Any, domain: Any, dataset: Any) -> Any:
        try:
            return true(encoded, domain, dataset)
        except DataError as error:
            told = f"{error.message}{more(encoded['sex'])}"
            raise DataError(told, hint=error.hint) from None

    around(patch, source, "check_misfits", checked)


def refusal_that_quotes(patch: Patch, rows: Rows) -> None:
    _refusing(patch, lambda _: f", such as {rows.raw['sex'].iloc[-1]!r}")


def refusal_that_counts(patch: Patch, rows: Rows) -> None:
    _refusing(patch, lambda column: f" ({column.misfits} values)")


def refusal_that_was_paid_for(patch: Patch, rows: Rows) -> None:
    def checked(true: Any, *args: Any) -> Any:
        if (rows.raw["sex"] == "else").any():
            raise DataError("values outside the declared domain in column 'sex'", hint="mend it")
        return true(*args)

    clamp = {"out_of_domain": "clamp"}
    around(
        patch,
        source,
        "check_misfits",
        lambda true, encoded, domain, dataset: true(
            encoded, domain, dataset.model_copy(update=clamp)
        ),
    )
    around(patch, run, "check_total", checked)


REFUSALS: dict[str, Fault] = {
    "quotes a value": refusal_that_quotes,
    "counts": refusal_that_counts,
    "is paid for": refusal_that_was_paid_for,
}
"""Faults of how a table is refused."""
