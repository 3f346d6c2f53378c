"""Coins, clocks and noise of a run that follow from where they are drawn, and from nothing else.

A coin is a function of the lines of synthdp that asked for it and of how often these lines have
asked before. So work that only one of two runs does, such as that of a mechanism, takes no coin
from what both do; and what asks as often as there are rows is seen, because its own later coins
are others.
"""

import datetime as dt
import hashlib
import secrets
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

import synthdp.progress
from synthdp.ledger import database
from synthdp.privacy.noise import Streams
from synthdp.release import run_folder
from tests.chance import SIMULATED

NOW = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
DEPTH = 8  # lines of a call site, the innermost first


class Clock(dt.datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return NOW


def call_site() -> str:
    """The innermost lines of synthdp that led here."""
    lines: list[str] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(lines) < DEPTH:
        module = frame.f_globals.get("__name__", "")
        if module.startswith(("synthdp.", "synthdp_attacks.")):
            lines.append(f"{module}:{frame.f_lineno}")
        frame = frame.f_back
    return " < ".join(lines)


class Coins:
    """Coins of one run."""

    def __init__(self, seed: str) -> None:
        self._seed, self._asked = seed, Counter[str]()

    def bits(self, count: int) -> int:
        """`count` bits of this call site, as a whole number."""
        site = call_site()
        self._asked[site] += 1
        asked = f"{self._seed} {site} {self._asked[site]}".encode()
        return int.from_bytes(hashlib.shake_256(asked).digest(count // 8 + 1), "big") % 2**count

    def hexadecimal(self, count: int | None = None) -> str:
        """`count` bytes as text."""
        length = 32 if count is None else count
        return f"{self.bits(8 * length):0{2 * length}x}"


class CoinsInTurn(Coins):
    """Coins by the order in which they are asked for, wherever the lines that ask stand."""

    def bits(self, count: int) -> int:
        """`count` bits of this turn."""
        self._asked[""] += 1
        asked = f"{self._seed} {self._asked['']}".encode()
        return int.from_bytes(hashlib.shake_256(asked).digest(count // 8 + 1), "big") % 2**count


@contextmanager
def frozen(coins: Coins) -> Iterator[None]:
    """Coins as given, noise by the coins, and a clock that stands still."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "randbits", coins.bits)
        patch.setattr(secrets, "token_hex", coins.hexadecimal)
        for name, law in SIMULATED.items():
            patch.setattr(Streams, name, law)
        patch.setattr(synthdp.progress, "time", SimpleNamespace(perf_counter=lambda: 0.0))
        patch.setattr(database, "datetime", Clock)
        patch.setattr(run_folder, "datetime", Clock)
        yield
