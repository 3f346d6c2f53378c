"""Searches that ask their next question in the light of earlier answers.

A strategy makes a fresh search: a generator that yields requests and is sent replies, which are all
that it ever sees. It is sent None when the budget is used up, and must then come to an end.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any, TypeVar

Request = TypeVar("Request")
Reply = TypeVar("Reply")
Result = TypeVar("Result")


def next_request(search: Generator[Request, Reply | None, Any], reply: Reply) -> Request | None:
    """Send a reply; None if the search has come to its end."""
    try:
        return search.send(reply)
    except StopIteration:
        return None


def result_of(
    strategy: Callable[[], Generator[Any, Reply | None, Result]], replies: Iterable[Reply]
) -> Result:
    """What a strategy makes of released replies. Where they end first, the budget was used up."""
    search = strategy()
    try:
        next(search)
        for reply in replies:
            search.send(reply)
        while True:
            search.send(None)
    except StopIteration as stop:
        result: Result = stop.value
        return result
