"""Tests that draw: which of them may fail by chance, how likely that is, and how the others are
given a seed.

Noise has no seed by design, so tests of noise itself bear a chance of failure. Each has one that is
written down in `CHANCES`, with what it is computed from; `tests/test_chance.py` adds them up. All
other draws of the quick tests follow seeds: those of numpy and torch are given one, and the
operating system's coins are replaced, by `tests/conftest.py` and without a test's asking, by coins
that follow the name of the test or of the fixture that is shared. A child process draws as ever.
So does all that is slow: figures of the dashboard are of noise as it is.
"""

import secrets
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from synthdp.privacy.noise import Integers, Streams

# Failures by chance of one run of the quick tests, each bound at most: file -> (chance, from what).
CHANCES: dict[str, tuple[float, str]] = {
    "privacy/test_noise.py": (
        1.3e-5,
        (
            "39 chi-square or KS tests at 1e-7, 26 correlations at 6 deviations (2e-9), 6 laws of"
            " batches (1e-8 each for their variance, less for all else); tripled, since a"
            " chi-square with 10 expected in a cell has a heavier tail than its limit"
        ),
    ),
    "privacy/test_frequent_texts.py": (
        1e-6,
        "1 chi-square test at 1e-7, tripled; 1 binomial within 6 deviations: 2e-9",
    ),
    "privacy/test_sums.py": (1e-6, "4 KS tests at 1e-7"),
    "privacy/test_pair_table.py": (1e-6, "1 KS test at 1e-7"),
    "privacy/test_scores.py": (1e-6, "1 chi-square test at 1e-7, tripled"),
    "privacy/test_mechanisms.py": (
        1e-8,
        "deviations of 2000 draws and more within 15%: 9 standard deviations",
    ),
    "privacy/test_search.py": (
        1e-6,
        (
            "200 fair coins within 60 and 140: 2e-8; a sample of half of 2000 rows within 850 and"
            " 1150: 2e-11"
        ),
    ),
    "audit/test_worst_case.py": (
        2e-5,
        (
            "15 audits of true noise, of which each alarms in at most 5%, may alarm 5 times in a"
            " row: 3e-7 each; means within 6 and deviations within 6.7 standard deviations: 14"
            " times 5e-9; faults, found with more than 90%, are missed 6 times in a row: 1e-6 each"
            " of 12, in truth far less"
        ),
    ),
    "release/test_canary.py": (
        3e-5,
        (
            "some 300 figures with many decimals in each of 3 searches, of which one has the"
            " number's eight digits with 1e-8; and its 32 bits at one of some 30,000 places in"
            " files of random bytes: 7e-6"
        ),
    ),
    "audit/test_canaries.py": (
        5e-6,
        "as above, 1 audit of true noise and 3 of faults; 200 verdicts at 5%: quantiles 1e-7",
    ),
}


def fails_so_often(attempt: Callable[[], bool], tries: int) -> bool:
    """Whether `attempt` fails `tries` times in a row: with chance p each, p^tries. The first
    success ends it.
    """
    return not any(attempt() for _ in range(tries))


def discrete_laplace(self: Streams, counts: Integers, *, scale: float) -> Integers:
    """The difference of two geometric draws, from the noise stream."""
    stop = -np.expm1(-1 / scale)
    drawn: Integers = (
        counts + self.noise.geometric(stop, counts.shape) - self.noise.geometric(stop, counts.shape)
    )
    return drawn


def noisy_max(self: Streams, scores: Integers, *, scale: float) -> int:
    """With rounded exponential noise, from the noise stream."""
    return int(np.argmax(scores + self.noise.exponential(scale, scores.shape)))


SIMULATED: dict[str, Any] = {
    "discrete_gaussian": Streams.rounded_gaussian,
    "discrete_laplace": discrete_laplace,
    "noisy_max": noisy_max,
}
"""Noise that follows the noise stream, for what OpenDP takes from the operating system itself."""


@contextmanager
def seeded(seed: str) -> Iterator[None]:
    """Every draw of this process follows `seed`: keys of streams, and the noise that OpenDP takes
    from the operating system itself.
    """
    rng = np.random.default_rng(zlib.crc32(seed.encode()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            secrets,
            "randbits",
            lambda bits: int.from_bytes(rng.bytes(bits // 8 + 1), "big") % 2**bits,
        )
        for name, law in SIMULATED.items():
            patch.setattr(Streams, name, law)
        yield
