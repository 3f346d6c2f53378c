"""Names of columns in texts: in expressions, in lists with commas, and before a value.

A spec may name a column by nearly any text, with commas, equals signs and backticks in it. In
backticks any name stands in an expression; a backtick inside it is written twice.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection

IN_BACKTICKS = r"`((?:[^`]|``)*)`"
"""A name in backticks; group 1 is to be `unquoted`."""
WORDS = ("missing", "where", "by")
"""Words of conditions and questions beside Python's own."""


def quoted(name: str) -> str:
    """A column's name as expressions write it.

    >>> quoted("age"), quoted("p 1"), quoted("not"), quoted("a`b")
    ('age', '`p 1`', '`not`', '`a``b`')
    """
    plain = name.isascii() and name.isidentifier() and not keyword.iskeyword(name)
    return name if plain and name not in WORDS else "`" + name.replace("`", "``") + "`"


def unquoted(inside: str) -> str:
    """The name that stands between two backticks."""
    return inside.replace("``", "`")


def listed_names(text: str, known: Collection[str]) -> tuple[str, ...]:
    """The names in a list parted by commas; a name may have commas, and stand in backticks.

    The longest known name counts where several can be read. What is no name is returned as it is.

    >>> listed_names("a, b,c, `a`,d", ["a, b", "a", "b", "c"])
    ('a, b', 'c', 'a', 'd')
    """
    ends = [*(i for i, sign in enumerate(text) if sign == ","), len(text)]
    names, start = list[str](), 0
    while start <= len(text):
        after = [i for i in ends if i >= start]
        end = next((i for i in reversed(after) if text[start:i].strip() in known), None)
        marked = re.match(rf"\s*{IN_BACKTICKS}\s*(?=,|$)", text[start:])
        if end is None and marked and unquoted(marked[1]) in known:
            names.append(unquoted(marked[1]))
            start += marked.end() + 1
            continue
        end = after[0] if end is None else end
        names.append(text[start:end].strip())
        start = end + 1
    return tuple(names)


def setting_of(text: str, known: Collection[str]) -> tuple[str, str] | None:
    """The name and the value of COLUMN=VALUE; None where no equals sign parts them.

    The longest known name that stands before an equals sign counts, and a name may stand in
    backticks. What is no name is what stands before the first sign.

    >>> setting_of("k=v=1", ["k", "k=v"]), setting_of("`k`=v=1", ["k", "k=v"]), setting_of("a", [])
    (('k=v', '1'), ('k', 'v=1'), None)
    """
    signs = [i for i, sign in enumerate(text) if sign == "="]
    at = next((i for i in reversed(signs) if text[:i] in known), None)
    marked = re.match(rf"{IN_BACKTICKS}=", text) if at is None else None
    if marked and unquoted(marked[1]) in known:
        return unquoted(marked[1]), text[marked.end() :]
    if not signs:
        return None
    at = signs[0] if at is None else at
    return text[:at], text[at + 1 :]
