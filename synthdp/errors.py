"""Every mistake a user can make, as one family of exceptions with an exit code each.

A `SynthdpError` is the user's to mend and is shown as text, without a traceback; anything else is a
bug in synthdp (exit code 1), which leaves the kernel as an `InternalError`. Messages say what was
found, what is allowed and what to do next, and never hold anything that was derived from rows,
except the one bit that a declared column did not fit.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb
from typing import Any, ClassVar, Protocol, TypeVar

T = TypeVar("T")


class SynthdpError(Exception):
    """Base of all errors that a user can mend. `hint` says what to do next.

    An error of several problems has them in `listed`, as plain JSON, below its `head`.
    """

    exit_code: ClassVar[int] = 1
    listed: Sequence[Mapping[str, Any]] = ()

    def __init__(self, message: str, *, hint: str | None = None, head: str | None = None) -> None:
        super().__init__(message)
        self.message, self.hint, self.head = message, hint, head or message

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  hint: {self.hint}"

    def to_json(self) -> dict[str, Any]:
        """What the text says and nothing else, for programs; `problems` has one entry or more."""
        return error_json(self.head, hint=self.hint, exit_code=self.exit_code, problems=self.listed)


BUDGET = "budget: "


def budget_note(error: BaseException) -> str | None:
    """What a run noted about its budget on the error that ended it.

    Notes of others are left out: they may quote rows.
    """
    return next((note for note in getattr(error, "__notes__", ()) if note.startswith(BUDGET)), None)


def error_json(
    error: str,
    *,
    hint: str | None = None,
    exit_code: int,
    problems: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The JSON of an error.

    A problem has a `message` and, where known, `file`, `line`, `column`, `where` and `hint`. An
    error without a list is its own problem.
    """
    listed = problems or ({"message": error, "hint": hint},)
    known = [
        {key: value for key, value in problem.items() if value is not None} for problem in listed
    ]
    return {"error": error, "hint": hint, "exit_code": exit_code, "problems": known}


@dataclass(frozen=True)
class SpecProblem:
    """One mistake in a spec: its place (1-based line and column), its value, what is allowed.

    `loc` is the path of `field`, as keys and positions.
    """

    path: str
    line: int
    column: int
    field: str
    message: str
    hint: str | None = None
    loc: tuple[str | int, ...] = ()

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}:{self.column}: {self.field}: {self.message}"
        return where if self.hint is None else f"{where}\n    hint: {self.hint}"

    def to_json(self) -> dict[str, Any]:
        """The same, for programs."""
        place = {"file": self.path, "line": self.line, "column": self.column}
        return place | {"where": self.field, "message": self.message, "hint": self.hint}


class SpecError(SynthdpError):
    """The spec is invalid; `problems` lists every mistake at once."""

    exit_code = 2

    def __init__(self, problems: list[SpecProblem]) -> None:
        self.problems = sorted(problems, key=lambda p: (p.path, p.line, p.column, p.field))
        count = len(self.problems)
        where = "the options" if all(p.path.startswith("--") for p in problems) else "the spec"
        head = f"{count} mistake{'s' if count != 1 else ''} in {where}"
        self.listed = [p.to_json() for p in self.problems]
        super().__init__("\n".join([head, *(f"  {p}" for p in self.problems)]), head=head)


class BudgetError(SynthdpError):
    """The ledger refuses: a cap is exhausted, or a spend is not in the plan."""

    exit_code = 3


class GateError(SynthdpError):
    """A gate failed, or a decision is against a bundle or missing: it is withheld.

    The budget is spent.
    """

    exit_code = 4


class DataError(SynthdpError):
    """The data does not fit the spec. Names columns, never values or counts."""

    exit_code = 5


class WrongTableError(DataError):
    """What was measured is not the declared table.

    It is found after paying, from released counts; resuming finds it again.
    """


class StoppedError(SynthdpError):
    """Ctrl-C."""

    exit_code = 130


class TerminatedError(StoppedError):
    """SIGTERM, as clusters and systemd send it."""

    exit_code = 143


class VerifyError(SynthdpError):
    """A bundle does not hold what it claims.

    `problems`, where there are several, are listed below the message.
    """

    exit_code = 6

    def __init__(
        self, message: str, *, hint: str | None = None, problems: Sequence[str] = ()
    ) -> None:
        self.problems, self.listed = tuple(problems), [{"message": p} for p in problems]
        text = "\n".join([message, *(f"  {p}" for p in problems)])
        super().__init__(text, hint=hint, head=message)


class OutputError(SynthdpError):
    """Something that the run needs of this machine is missing.

    It may be an output folder, a tracking store or a device.
    """

    exit_code = 2


@contextmanager
def disk_errors(what: str, *, hint: str) -> Iterator[None]:
    """Turn what the disk refuses inside into an error that says `what` failed, and why.

    Raises:
        OutputError: an `OSError` was raised inside.
    """
    try:
        yield
    except OSError as error:
        why = error.strerror or "the disk does not write"
        raise OutputError(f"{what}: {why}", hint=hint) from None


RELEASE_PACKAGES = (
    "torch", "opacus", "opendp", "mlflow", "sklearn", "joblib", "starlette", "uvicorn",
)  # fmt: skip
"""What the extra `release` installs, by the names that are imported."""


def install(extra: str) -> str:
    """How an extra is installed: of the checkout or wheel that synthdp came from.

    No package index is named: who owns the name there is not known here.

    >>> install("release")
    "pip install '.[release]' in a checkout of synthdp, or 'PATH[release]' of its wheel"
    """
    return f"pip install '.[{extra}]' in a checkout of synthdp, or 'PATH[{extra}]' of its wheel"


INSTALL_RELEASE = install("release")


def missing_package(error: BaseException) -> OutputError | None:
    """What to tell of an import that failed without the extra `release`; None of other errors.

    >>> missing_package(ModuleNotFoundError(name="torch.nn")).hint
    "pip install '.[release]' in a checkout of synthdp, or 'PATH[release]' of its wheel"
    """
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    package = (name or "").partition(".")[0]
    if package not in RELEASE_PACKAGES:
        return None
    told = OutputError(
        f"this needs {package}, which is not installed here: verifying, sampling and answering do"
        " without it, releases do not",
        hint=INSTALL_RELEASE,
    )
    if (note := budget_note(error)) is not None:
        told.add_note(note)
    return told


@contextmanager
def extra_named() -> Iterator[None]:
    """Turn an import that fails for lack of the extra `release` into an error that names it.

    Raises:
        OutputError: a package of the extra is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (told := missing_package(error)) is None:
            raise
        raise told from None


class Mistake(Protocol):
    """A mistake in a text, at a character counted from 1."""

    @property
    def at(self) -> int: ...
    @property
    def message(self) -> str: ...
    @property
    def hint(self) -> str | None: ...


class QueryError(SynthdpError):
    """A question to a bundle that cannot be read; `problems` has every mistake in it."""

    exit_code = 2

    def __init__(self, text: str, problems: Sequence[Mistake]) -> None:
        self.text, self.problems = text, tuple(problems)
        lines = [
            f"  character {p.at}: {p.message}" + (f"\n    hint: {p.hint}" if p.hint else "")
            for p in problems
        ]
        head = f"this question cannot be answered: {text!r}"
        self.listed = [{"column": p.at, "message": p.message, "hint": p.hint} for p in problems]
        super().__init__("\n".join([head, *lines]), head=head)


class BoundaryError(SynthdpError):
    """Code tried to carry something across the privacy boundary. Always a bug, never a setting."""

    exit_code = 1


class InternalError(SynthdpError):
    """A bug, told by its kind and place alone."""


def instead(act: Callable[[], T], told: Callable[[Exception], SynthdpError]) -> T:
    """What `act` gives; in place of an error that is not ours what is `told`, on which neither its
    text nor its frames hang: both may quote rows.
    """
    try:
        return act()
    except SynthdpError:
        raise
    except Exception as error:
        failed = told(error)
    raise failed


def by_kind(act: Callable[[], T], message: str, hint: str) -> T:
    """What `act` gives; in place of an error that is not ours, `message` with its kind."""
    return instead(act, lambda error: DataError(f"{message} ({type(error).__name__})", hint=hint))


def withheld(error: Exception) -> SynthdpError:
    """What to tell of an error that is not ours, whose text and frames may quote rows."""
    if (missing := missing_package(error)) is not None:
        return missing
    places = [
        f"{Path(f.filename).name}:{f.lineno} in {f.name}" for f in extract_tb(error.__traceback__)
    ]
    head = f"internal error {type(error).__name__} (message withheld: it may quote data)"
    told = InternalError(f"{head}\n  at " + "\n     ".join(places[-6:]), head=head)
    if (note := budget_note(error)) is not None:
        told.add_note(note)
    return told


def printable(text: str) -> str:
    """`text` for a terminal.

    Characters that would move the cursor, turn the reading direction or cannot be encoded are
    written as escapes.
    """
    return "".join(
        c
        if c in "\n\t" or unicodedata.category(c) not in _UNSEEN
        else c.encode("unicode_escape").decode()
        for c in text
    )


_UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}


# --- threads ---


def one_thread() -> AbstractContextManager[object]:
    """Inside, BLAS and OpenMP take one thread.

    Threads that wait for work by spinning take the time of those that have some: on a machine that
    others use, small products and learners run many times faster on one. What is found is the same.
    """
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[object] = threadpool_limits(limits=1)
    return limits
