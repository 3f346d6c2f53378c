"""How likely a link of `measured_pc` is a link of the truth: a class of its weakest evidence.

The weakest evidence for a link is the largest p-value of all tests that might have separated it,
or that of the pair alone where none was made. On random networks and tables, whose truth is known,
the share of true links grows with it in steps. These are public constants: they were counted on
`benchmarks/random_networks.py`, seeds 1000 to 1159, and `benchmarks/random_tables.py`, seeds 3000
to 3079, at epsilon .3, 1 and 3 and 2,000 to 200,000 rows. `python -m benchmarks.link_calibration`
holds them against others.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

from synthdp.graph.discovery.skeleton import Test

EVIDENCE = (0.3, 1.0, 2.0, 4.0)
"""Ends of the classes: minus log10 of the largest p-value."""
PLAIN = (None, None, 0.9, 0.95, 0.99)
"""Share of true links in each class, where no column is ordered. Below .9 it was .6 and .8 there,
and less on networks that nothing was counted on: so it is not told.
"""
ORDERED = (None, None, 0.7, 0.85, 0.95)
"""The same where one is (.45 and .6): trend tests leave more behind (`ci_tests.trend`)."""
ALONE, WEAK, CLEAR = 7.0, 0.9, 0.99
"""Without a further test: up to so much evidence of the pair alone, and beyond."""


def link_probability(tests: Sequence[Test], *, ordered: bool) -> float | None:
    """The probability that a pair with these tests, which found it linked, is linked; None where
    that is not known well.

    >>> from synthdp.graph.ci_tests.answer import Answer
    >>> alone = Answer("dependent", 1e-20, 90.0, 0.3, 0.4, 0.02)
    >>> given = Answer("dependent", 1e-3, 11.0, 0.1, 0.2, 0.03)
    >>> link_probability([((), alone), (("z",), given)], ordered=False)
    0.95
    """
    able = [answer.p_value for given, answer in tests if given and math.isfinite(answer.detectable)]
    weakest = -math.log10(max(*able, 1e-300) if able else max(tests[0][1].p_value, 1e-300))
    if not able:
        return CLEAR if weakest >= ALONE else WEAK
    return (ORDERED if ordered else PLAIN)[bisect_right(EVIDENCE, weakest)]
