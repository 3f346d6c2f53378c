"""A mistake in a graph file: `file:line:column: what`, with a hint on what is allowed."""

from __future__ import annotations

from synthdp.errors import SynthdpError

MAX_MESSAGE = 2000  # characters
Place = tuple[int, int]
"""Line and column, from 1."""


class GraphFileError(SynthdpError):
    """A graph file cannot be read, or a graph cannot be written in a format."""

    exit_code = 2


def mistake(
    file: str, place: Place | None, message: str, *, hint: str | None = None
) -> GraphFileError:
    """A mistake at a place of a file.

    The middle of a long text is cut out: it may quote a name as long as the file.
    """
    where = ":".join([file, *map(str, place or ())])
    return GraphFileError(f"{where}: {_short(message)}", hint=_short(hint) if hint else None)


def _short(text: str) -> str:
    half = MAX_MESSAGE // 2
    return text if len(text) <= MAX_MESSAGE else f"{text[:half]} ... {text[-half:]}"
