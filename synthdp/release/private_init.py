"""`synthdp init --private`: a draft spec from rows, under differential privacy, at a price.

A run reads a CSV file whose columns have no types, reserves a budget of its own in the dataset's
ledger, and looks twice. Noisy counts of public cells (`data.cells`) give types and bounds. Then, of
the columns where these show such, it finds texts and whole numbers that many rows have
(`privacy.mechanisms.frequent_texts`). What was found goes into the draft and into `found.json` in
the run's folder. The later release of the draft reserves from the same cap. An interrupted run goes
on when its command is given again: it neither pays nor looks twice.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

from synthdp.bundle.write import as_json
from synthdp.data import cells
from synthdp.data.cells import FORMS as CELL_FORMS
from synthdp.data.cells import NUMBERS, SIZES, YEARS, cells_domain
from synthdp.errors import BudgetError, OutputError, disk_errors
from synthdp.files import write_whole
from synthdp.ledger.connect import budget_noted, search_cost
from synthdp.privacy.calibration import make_domain_plan
from synthdp.privacy.mechanisms.frequent_texts import NoisyTexts, Reading
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.plan import FORMS, TEXTS, ReleasePlan, needed
from synthdp.privacy.session import Session
from synthdp.progress import stage, warn
from synthdp.release.job import Job
from synthdp.release.open_session import PAID_FOR, UNSPENT, dropped_if_unpaid, open_session, own_job
from synthdp.report.prose import say_of_plan
from synthdp.spec.draft import OTHER, FoundColumn, Request, private_draft, request_spec
from synthdp.spec.load.loader import parse_spec
from synthdp.spec.model import ReleaseSpec
from synthdp.spec.model.fields import alike


@dataclass(frozen=True)
class Thresholds:
    """From when on noisy counts are taken to show something, and what is warned of.

    Attributes:
        few_rows, small_epsilon: below these little is found.
        lost: a share of rows worth a warning.
        zeros: share of rows from which on zero has a level of its own.
        wide: whole numbers of a range of which each may have a level of its own.
        spike, spikes: least share of rows, and number, of very common numbers.
        categories: most categories of a column.
        false_finds: the probability that any empty cell or run of the whole table is taken to hold
            rows, at most.
        missing: times the noise; a level for missing values that are none does no harm.
        padded: share of numbers that begin with a zero, such as 02134: then they are no numbers.
        codes: few numbers with gaps are codes, if nearly all rows have them.
        codes_lose, codes_lose_rare: at most so much of all rows, of those without the largest.
        empty: times the noise, what numbers between codes may seem to hold at most.
        beside: times the noise, enough for cells beside such as surely hold rows.
    """

    few_rows: int = 10_000
    small_epsilon: float = 0.5
    lost: float = 0.1
    zeros: float = 0.02
    wide: int = 256
    spike: float = 0.03
    spikes: int = 32
    categories: int = 1000
    false_finds: float = 0.01
    missing: float = 2.0
    padded: float = 0.01
    codes: int = 20
    codes_lose: float = 0.02
    codes_lose_rare: float = 0.1
    empty: float = 2.0
    beside: float = 3.0


SHOWN = Thresholds()


@dataclass(frozen=True)
class PrivateInit:
    """What a run found. All of it is released: it may be printed."""

    job: Job
    columns: tuple[FoundColumn, ...]
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The columns and their cost."""
        privacy = self.job.spec.privacy
        return {
            "dataset": self.job.spec.dataset.id,
            "run": self.job.folder.run,
            "epsilon": privacy.epsilon,
            "epsilon_planned": self.job.plan.epsilon_spent,
            "delta": privacy.delta,
            "columns": [column.to_json() for column in self.columns],
            "warnings": list(self.warnings),
        }


def init_plan(spec: ReleaseSpec) -> ReleasePlan:
    """The plan of such a run; `spec` is that of `request_spec`."""
    privacy = spec.privacy
    return make_domain_plan(
        len(spec.columns),
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        adjacency=privacy.adjacency,
        rows_per_unit=spec.dataset.privacy_unit.max_rows,
    )


@budget_noted(UNSPENT)
def private_init(request: Request, csv: Path, out: Path, *, force: bool = False) -> PrivateInit:
    """Find the columns of `csv` and write the draft to `out`, or go on with the interrupted run.

    `force` replaces a draft that is there, and drops an interrupted run of another request, which
    stays paid.

    Raises:
        SpecError: an option is not allowed.
        OutputError: a file is there already, or cannot be written.
        BudgetError: the cap does not allow it, or noise would hide every column.
        DataError: the file cannot be read.
    """
    with stage("plan"):
        text = request_spec(request)
        spec = parse_spec(text, path="options of `synthdp init --private`")
        plan = init_plan(spec)
        _check_noise(spec, plan)
        warn(option_warnings(request))
        job = _job(text, spec, plan, csv, out, force=force)
    with dropped_if_unpaid(job):
        reader, columns = _look(open_session(job, texts=True), spec, job.plan)
        much = [c for c in columns if c.lost > SHOWN.lost]
        listed = ", ".join(f"{c.name!r} ({100 * c.lost:.0f}%)" for c in much)
        lost = [say_of_plan("much_lost", share=SHOWN.lost, listed=listed)] if much else []
        warn(lost)
        found = PrivateInit(job, columns, (*option_warnings(request), *lost))
        cost = search_cost(job.ledger.entries(), spec.dataset.id)
        draft = private_draft(
            request, columns, run=job.folder.run, cost=cost, missing=reader.missing_words
        )
        for path, text in ((job.out / "found.json", as_json(found.to_json())), (out, draft)):
            with disk_errors(f"cannot write {path}", hint=PAID_FOR):
                write_whole(path, text)
        job.folder.remove()
        return found


def _check_noise(spec: ReleaseSpec, plan: ReleasePlan) -> None:
    """Whether a column whose values are all of one form would be told from noise."""
    rows, noise = spec.dataset.rows.value, needed(plan.forms, FORMS).sigmas[0]
    least = surely(len(spec.columns)) * noise
    if rows > least:
        return
    raise BudgetError(
        f"noise would hide every column: what {rows:,} rows have in common is told from noise of"
        f" {noise:,.0f} rows only above {least:,.0f}",
        hint=(
            "raise --epsilon, lower the rows of one id in --unit, leave columns out of the file, or"
            " write the columns from a codebook, which costs nothing: `synthdp init` without"
            " --private"
        ),
    )


def _job(
    text: str, spec: ReleaseSpec, plan: ReleasePlan, csv: Path, out: Path, *, force: bool
) -> Job:
    """A new run, or the interrupted one of the same request, which `force` does not drop."""

    def job(*, force: bool) -> Job:
        return own_job(
            out,
            text,
            spec,
            cells_domain(len(spec.columns)),
            plan,
            Path("releases") / spec.dataset.id / "init",
            command=shlex.join(["init", str(csv), "--private", "--out", str(out)]),
            what="search for columns",
            force=force,
            finds_domain=True,
        )

    try:
        return job(force=False)
    except OutputError:
        if not force:
            raise
    return job(force=True)


def _look(
    session: Session, spec: ReleaseSpec, plan: ReleasePlan
) -> tuple[Reader, tuple[FoundColumn, ...]]:
    rows = spec.dataset.rows
    with stage("types and bounds"):
        tables = session.release(needed(plan.forms, FORMS), purpose=FORMS).value
        reader = Reader(
            tuple(spec.columns),
            tables[::2],
            tables[1::2],
            rows.value if rows.kind == "public" else None,
            commas=getattr(spec.dataset.source, "decimal", ".") == ",",
        )
    with stage("categories"):
        columns, texts = columns_to_read(reader), None
        if columns:
            budget = needed(plan.texts, TEXTS)
            texts = session.release(budget.choose(columns), purpose=TEXTS).value
        session.settle()
    return reader, found_columns(reader, texts)


def option_warnings(request: Request) -> list[str]:
    """What can be said before anything is spent."""
    rows, warnings = int(request.rows["value"]), []
    if request.epsilon < SHOWN.small_epsilon:
        least = SHOWN.small_epsilon
        warnings.append(say_of_plan("small_epsilon", epsilon=request.epsilon, least=least))
    if rows < SHOWN.few_rows:
        warnings.append(say_of_plan("few_rows", rows=rows, least=SHOWN.few_rows))
    if request.left[0] < 1e-2 or request.left[1] <= 0:
        warnings.append("the cap leaves nothing for a release of the draft")
    return warnings


# --- columns as entries of a spec: post-processing of released values ---


def columns_to_read(reader: Reader) -> dict[str, Reading]:
    """The columns whose texts are worth a look: texts, and whole numbers over a wide range."""
    readings: dict[str, Reading] = {}
    for name, shape in reader.shapes.items():
        if shape.kind == "text":
            readings[name] = "text"
        elif shape.kind == "whole":
            lower, upper = _whole_bounds(shape)
            if upper - lower > SHOWN.wide:
                readings[name] = "whole with commas" if reader.commas else "whole"
    return readings


def found_columns(reader: Reader, texts: NoisyTexts | None) -> tuple[FoundColumn, ...]:
    """Each column as the noisy counts have it."""
    return tuple(_found(name, shape, texts) for name, shape in reader.shapes.items())


def _found(name: str, shape: Shape, texts: NoisyTexts | None) -> FoundColumn:
    told = texts.counts.get(name, {}) if texts else {}
    sigma = texts.sigma if texts else 0.0
    entry: dict[str, Any]
    if codes := shape.codes():
        own = {str(n): float(shape.size[cells.size_of(str(n))]) for n in codes}
        return _categories(name, shape, own, shape.size_sigma, order=tuple(own))
    match shape.kind:
        case "text":
            return _categories(name, shape, told, sigma)
        case "whole":
            return _whole(name, shape, told)
        case "number":
            lower, upper = (NUMBERS[i] for i in shape.number_cells)
            entry = {"type": "number", "lower": lower.lower, "upper": upper.upper}
            zero = lower.lower <= 0 <= upper.upper and shape.zeros >= SHOWN.zeros
            entry |= {"decimals": shape.decimals}
            return _range(name, shape, entry, [0.0] if zero else [])
        case "date":
            (first, last), end = shape.years, "" if shape.resolution == "day" else "T23:59:59"
            entry = {"type": "datetime", "lower": f"{first:04d}-01-01"}
            entry |= {"upper": f"{last:04d}-12-31{end}", "resolution": shape.resolution}
            return _range(name, shape, entry, [])
    return _categories(name, shape, {}, 0.0)


def _categories(
    name: str,
    shape: Shape,
    counts: Mapping[str, float],
    sigma: float,
    *,
    order: tuple[str, ...] | None = None,
) -> FoundColumn:
    """Categories by falling count, after the one for all else."""
    listed = [OTHER]
    for text in order or sorted(counts, key=lambda text: (-counts[text], text)):
        if len(listed) <= SHOWN.categories and alike((*listed, text)) is None and text != OTHER:
            listed.append(text)
    kept = [text for text in listed if text in counts]
    variance = len(kept) * sigma**2
    lost, error = shape.lost(math.fsum(counts[text] for text in kept), variance)
    entry = {"type": "categorical", "categories": listed}
    plural = "y" if len(kept) == 1 else "ies"
    found = f"{len(kept)} categor{plural}" if kept else "no text that enough rows have"
    return FoundColumn(name, entry | shape.if_missing, found, lost, error)


def _whole(name: str, shape: Shape, told: Mapping[str, float]) -> FoundColumn:
    lower, upper = _whole_bounds(shape)
    rows = shape.reader.rows[0]
    common = {
        int(t): n for t, n in told.items() if n >= SHOWN.spike * rows and lower <= int(t) <= upper
    }
    spikes = sorted(sorted(common, key=lambda n: -common[n])[: SHOWN.spikes])
    if upper - lower > SHOWN.wide and lower <= 0 <= upper and shape.zeros >= SHOWN.zeros:
        spikes = sorted({0, *spikes})
    entry = {"type": "integer", "lower": lower, "upper": max(upper, lower + 1)}
    return _range(name, shape, entry, spikes)


def _range(name: str, shape: Shape, entry: dict[str, Any], spikes: Sequence[float]) -> FoundColumn:
    lost, error = shape.lost_outside()
    often = f"; often {', '.join(f'{s:.12g}' for s in spikes)}" if spikes else ""
    entry |= {"spikes": list(spikes)} if spikes else {}
    ends = (entry["lower"], entry["upper"])
    lower, upper = (f"{e:.12g}" if isinstance(e, int | float) else str(e) for e in ends)
    found = f"{lower} to {upper}{often}"
    return FoundColumn(name, entry | shape.if_missing, found, lost, error)


def _whole_bounds(shape: Shape) -> tuple[int, int]:
    """Whole numbers as bounds: those of single cells, or the round numbers at their ends."""
    first, last = (NUMBERS[i] for i in shape.number_cells)
    lower = first.wholes[0] if first.upper - first.lower <= 1 else math.floor(first.lower)
    upper = last.wholes[1] if last.upper - last.lower <= 1 else math.ceil(last.upper)
    return lower, upper


# --- what the noisy counts of a column's cells say of it (`synthdp.data.cells`) ---
#
# A cell, or a run of neighbouring cells, is taken to hold rows where its noisy count is above
# `Reader.surely` times its noise. That number is chosen so that, whatever the table, the
# probability that any empty cell or run of the whole table passes is at most `false_finds` (union
# bound over the normal tails of all that are asked). Cells of numbers beside such runs are asked
# for less, `beside`: where they are empty after all, a bound is wider than it need be, by no more
# than the width of what surely holds rows.


Floats = npt.NDArray[np.float64]
Kind = Literal["whole", "number", "date", "text", "nothing"]

_FORM = {form: i for i, form in enumerate(CELL_FORMS)}
_DIGITS = slice(_FORM[cells.DIGITS[0]], _FORM[cells.DIGITS[-1]] + 1)
_NUMBERS = slice(_FORM[cells.WHOLE], _DIGITS.stop)
_TIMES = slice(_FORM[cells.TIMES[0]], _FORM[cells.TIMES[-1]] + 1)


def surely(columns: int) -> float:
    """The number of standard deviations above which a count is not noise, of so many columns."""
    asked = 2 * (len(CELL_FORMS) + len(SIZES)) * columns
    return float(norm.isf(SHOWN.false_finds / asked))


@dataclass(frozen=True)
class Reader:
    """What the noisy counts of all columns say together.

    `forms` and `sizes` are the tables of each column of `names`, in order; `public_rows` is the
    number of rows where it is public. `commas` stand before decimals.
    """

    names: tuple[str, ...]
    forms: tuple[NoisyTable, ...]
    sizes: tuple[NoisyTable, ...]
    public_rows: int | None = None
    commas: bool = False

    @cached_property
    def surely(self) -> float:
        """The number of standard deviations above which a count is not noise."""
        return surely(len(self.names))

    @cached_property
    def missing_words(self) -> tuple[str, ...]:
        """The words that stand for a missing value in some column; empty fields always do."""
        return tuple(
            word
            for i, word in enumerate(cells.MISSING_WORDS)
            if word == "" or any(t.counts[i] > self.surely * t.sigma for t in self.forms)
        )

    @cached_property
    def rows(self) -> tuple[float, float]:
        """The number of rows, and its standard error: every form's counts add up to it."""
        if self.public_rows is not None:
            return float(self.public_rows), 0.0
        totals = [float(table.counts.sum()) for table in self.forms]
        error = self.forms[0].sigma * math.sqrt(len(CELL_FORMS) / len(totals))
        return max(1.0, math.fsum(totals) / len(totals)), error

    @property
    def shapes(self) -> dict[str, Shape]:
        """Each column's shape."""
        pairs = zip(self.forms, self.sizes, strict=True)
        return {
            name: Shape(self, form.counts, form.sigma, size.counts, size.sigma)
            for name, (form, size) in zip(self.names, pairs, strict=True)
        }


@dataclass(frozen=True)
class Shape:
    """What the noisy counts of one column say of it; see `CELL_FORMS` and `SIZES`."""

    reader: Reader
    form: Floats
    form_sigma: float
    size: Floats
    size_sigma: float

    @cached_property
    def missing(self) -> tuple[float, float]:
        """Rows without a value, and the standard error."""
        words = [cells.MISSING_WORDS.index(word) for word in self.reader.missing_words]
        return max(0.0, float(self.form[words].sum())), self.form_sigma * math.sqrt(len(words))

    @property
    def if_missing(self) -> dict[str, Any]:
        """What an entry of a spec says of missing values, if there may be some."""
        count, error = self.missing
        return {"missing": True} if count > SHOWN.missing * error else {}

    @cached_property
    def kind(self) -> Kind:
        """What most values are, as far as that is sure."""
        counts = {
            "number": (float(self.form[_NUMBERS].sum()), _NUMBERS.stop - _NUMBERS.start),
            "date": (float(self.form[_TIMES].sum()), _TIMES.stop - _TIMES.start),
            "text": (float(self.form[_FORM[cells.TEXT]]), 1),
        }
        kind, (count, width) = max(counts.items(), key=lambda item: item[1][0])
        if count <= self.reader.surely * self.form_sigma * math.sqrt(width):
            return "nothing"
        if kind == "date":
            return "date" if self._ends(cells.FIRST_YEAR, len(SIZES)) else "nothing"
        if kind == "text":
            return "text"
        padded = self.form[_FORM[cells.LEADING_ZERO]]
        if self._sure_form(cells.LEADING_ZERO) and padded > SHOWN.padded * count:
            return "text"
        if self._ends(cells.FIRST_NUMBER, cells.FIRST_YEAR) is None:
            return "nothing"
        return "number" if self.decimals else "whole"

    @cached_property
    def decimals(self) -> int:
        """Digits after the point, of whatever many numbers have; 0 for whole numbers."""
        sure = [d for d, form in enumerate(cells.DIGITS, start=1) if self._sure_form(form)]
        together = float(self.form[_DIGITS].sum())
        some = together > self.reader.surely * self.form_sigma * math.sqrt(len(cells.DIGITS))
        return max(sure) if sure else 4 if some else 0

    @cached_property
    def number_cells(self) -> tuple[int, int]:
        """The first and the last cell of `NUMBERS` that surely hold rows."""
        ends = self._ends(cells.FIRST_NUMBER, cells.FIRST_YEAR)
        assert ends is not None  # by `kind`
        return ends

    @property
    def years(self) -> tuple[int, int]:
        """The first and the last year that surely have rows."""
        ends = self._ends(cells.FIRST_YEAR, len(SIZES))
        assert ends is not None  # by `kind`
        return YEARS[ends[0]], YEARS[ends[1] + 1] - 1

    @property
    def resolution(self) -> str:
        """The finest step that surely has rows."""
        return next((t for t in reversed(cells.TIMES) if self._sure_form(t)), cells.TIMES[0])

    @property
    def zeros(self) -> float:
        """Share of rows that are zero."""
        return float(self.size[cells.FIRST_NUMBER + cells.ZERO]) / self.reader.rows[0]

    def lost_outside(self) -> tuple[float, float]:
        """Share of rows that are neither missing nor inside what was found, and its error."""
        numbers = self.kind in ("whole", "number")
        start, stop = (
            (cells.FIRST_NUMBER, cells.FIRST_YEAR) if numbers else (cells.FIRST_YEAR, len(SIZES))
        )
        ends = self._ends(start, stop)
        assert ends is not None  # by `kind`
        inside = slice(start + ends[0], start + ends[1] + 1)
        form = _NUMBERS if numbers else _TIMES
        # What lies inside: counted there, or what is outside taken off all; whichever has less
        # noise.
        within = float(self.size[inside].sum()), (inside.stop - inside.start) * self.size_sigma**2
        outer = (stop - start) - (inside.stop - inside.start)
        outside = float(self.size[start:stop].sum()) - within[0]
        rest = (
            float(self.form[form].sum()) - outside,
            outer * self.size_sigma**2 + (form.stop - form.start) * self.form_sigma**2,
        )
        kept, variance = min(within, rest, key=lambda estimate: estimate[1])
        return self.lost(kept, variance)

    def lost(self, kept: float, variance: float) -> tuple[float, float]:
        """Share of rows beside those that are missing and `kept`, and its standard error."""
        (rows, error), (missing, missing_error) = self.reader.rows, self.missing
        total = math.sqrt(variance + error**2 + missing_error**2)
        return min(1.0, max(0.0, 1 - (kept + missing) / rows)), min(1.0, total / rows)

    def codes(self) -> tuple[int, ...]:
        """The whole numbers of a column of codes: few, with gaps or at most two; else none."""
        if self.kind != "whole" or self._sure_form(cells.OTHER_WHOLE):
            return ()
        first, last = self.number_cells
        sure = self._sure(cells.FIRST_NUMBER, cells.FIRST_YEAR)[0]
        held = [i for i in range(first, last + 1) if sure[i]]
        singles = [n for i in held if (n := NUMBERS[i].single) is not None]
        few = 0 < len(singles) == len(held) <= SHOWN.codes
        between = [i for i in range(first, last + 1) if not sure[i] and NUMBERS[i].single]
        gaps = math.fsum(float(self.size[cells.FIRST_NUMBER + i]) for i in between)
        empty = bool(between) and gaps <= SHOWN.empty * self.size_sigma * math.sqrt(len(between))
        if not few or (len(singles) > 2 and not empty):
            return ()
        counts = [float(self.size[cells.FIRST_NUMBER + i]) for i in held]
        lost, error = self.lost(math.fsum(counts), len(held) * self.size_sigma**2)
        rare = max(0.0, 1 - max(counts) / self.reader.rows[0])
        nearly_all = lost - 2 * error <= min(SHOWN.codes_lose, SHOWN.codes_lose_rare * rare)
        return tuple(singles) if nearly_all else ()

    def _sure_form(self, form: str) -> bool:
        return bool(self.form[_FORM[form]] > self.reader.surely * self.form_sigma)

    def _sure(self, start: int, stop: int) -> list[npt.NDArray[np.bool_]]:
        """Which runs of 1, 2, 4, ... neighbouring cells surely hold rows, or have a part that
        does; the last run is all of them.
        """
        counts = self.size[start:stop]
        counts = np.pad(counts, (0, (1 << (len(counts) - 1).bit_length()) - len(counts)))
        limit, width = self.reader.surely * self.size_sigma, 1
        levels = [counts > limit]
        while len(counts) > 1:
            counts, width = counts.reshape(-1, 2).sum(axis=1), 2 * width
            parts = levels[-1].reshape(-1, 2).any(axis=1)
            levels.append(parts | (counts > limit * math.sqrt(width)))
        return levels

    def _ends(self, start: int, stop: int) -> tuple[int, int] | None:
        """The outermost cells that hold rows, from `start` on; None where none surely does."""
        levels = self._sure(start, stop)
        if not levels[-1][0]:
            return None
        first, last = _outermost(levels, last=False), _outermost(levels, last=True)
        last, left, right = min(last, stop - start - 1), 0, 0
        if start == cells.FIRST_NUMBER:  # cells beside the range that are no further than its width
            lower, upper = NUMBERS[first].lower, NUMBERS[last].upper
            width = upper - lower
            left = sum(c.lower >= lower - width for c in NUMBERS[:first])
            right = sum(c.upper <= upper + width for c in NUMBERS[last + 1 :])
        counts = self.size[start:stop]
        return (
            first - self._more(counts[first - left : first][::-1]),
            last + self._more(counts[last + 1 : last + 1 + right]),
        )

    def _more(self, counts: Floats) -> int:
        """How many of the cells beside a range seem to hold rows: of all beginnings the one whose
        sum is most above its noise.
        """
        if not len(counts):
            return 0
        noise = self.size_sigma * np.sqrt(np.arange(1, len(counts) + 1))
        excess = np.cumsum(counts) - SHOWN.beside * noise
        best = int(np.argmax(excess))
        return best + 1 if excess[best] > 0 else 0


def _outermost(levels: Sequence[npt.NDArray[np.bool_]], *, last: bool) -> int:
    """The first or the last cell of the smallest run that surely holds rows, at that end."""
    place = 0
    for depth in range(len(levels) - 2, -1, -1):
        left, right = levels[depth][2 * place], levels[depth][2 * place + 1]
        if not (left or right):  # their sum does, and neither alone
            width = 1 << (depth + 1)
            return place * width + (width - 1 if last else 0)
        place = 2 * place + int(right if last else not left)
    return place
