"""Many pairs without an answer, in few bytes: for each column, which later ones, as ranges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from synthdp.errors import SynthdpError
from synthdp.graph.knowledge import Pair

LISTED = 25_000
"""Up to so many pairs are listed one by one."""
MAX_PAIRS = 500_000
"""Most pairs that a file may state."""


def as_ranges(pairs: Iterable[Pair], nodes: Sequence[str]) -> dict[str, str]:
    """`pairs` by their earlier column: positions of the later ones, first and last of each range.

    >>> as_ranges([("a", "b"), ("a", "c"), ("e", "a"), ("b", "d")], "abcde")
    {'a': '1-2 4-4', 'b': '3-3'}
    """
    place = {name: i for i, name in enumerate(nodes)}
    later: dict[int, list[int]] = {}
    for first, second in sorted(sorted((place[a], place[b])) for a, b in pairs):
        later.setdefault(first, []).append(second)
    return {nodes[first]: " ".join(_ranges(after)) for first, after in later.items()}


def _ranges(ascending: Sequence[int]) -> Iterator[str]:
    start = last = ascending[0]
    for position in ascending[1:]:
        if position != last + 1:
            yield f"{start}-{last}"
            start = position
        last = position
    yield f"{start}-{last}"


def from_ranges(stated: Mapping[str, Any], nodes: Sequence[str]) -> Iterator[Pair]:
    """The pairs that `as_ranges` wrote, in column order.

    >>> list(from_ranges({"a": "1-2 4-4"}, "abcde"))
    [('a', 'b'), ('a', 'c'), ('a', 'e')]

    Raises:
        SynthdpError: these are no ranges of later columns, or too many pairs.
    """
    place, left = {name: i for i, name in enumerate(nodes)}, MAX_PAIRS
    for name, text in stated.items():
        last = place.get(name, len(nodes))
        for part in str(text).split():
            first, _, end = part.partition("-")
            if not (first.isdecimal() and end.isdecimal()):
                raise SynthdpError(f"graph: {part[:20]!r} is no range of columns")
            start, stop = int(first[:9]), int(end[:9])
            left -= stop - start + 1
            if not last < start <= stop < len(nodes) or left < 0:
                raise SynthdpError(f"graph: {part[:20]!r} is no range of later columns")
            yield from ((name, nodes[position]) for position in range(start, stop + 1))
            last = stop
