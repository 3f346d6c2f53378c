"""PC on exact counts, for comparison: not private. Chi-square, conditional Kendall and conditional
Spearman tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from benchmarks.exact_tests import exact_kendall, exact_spearman
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.graph.causal import CausalGraph
from synthdp.graph.chi_square import Answer, Query, answers, mixture_of
from synthdp.graph.contrib.rank_pc import SETTINGS, Links, graph_of
from synthdp.graph.knowledge import Knowledge
from synthdp.privacy.table import count_tables

LEVEL, MARGIN = 0.05, 0.1

ExactTest = Callable[[npt.NDArray[np.int64]], Answer]
"""Answers from counts `[strata, levels of x, levels of y]`."""

TESTS: Mapping[str, ExactTest] = {
    "chi_square": lambda counts: answers(
        mixture_of(counts[None].astype(float), np.zeros(1)), level=LEVEL, margin=MARGIN
    )[0],
    "kendall": lambda counts: exact_kendall(counts, level=LEVEL, margin=MARGIN),
    "spearman": lambda counts: exact_spearman(counts, level=LEVEL, margin=MARGIN),
}


def exact_pc(test: str, codes: Codes, domain: Domain) -> CausalGraph:
    """The graph that the original PC finds in `codes` `[rows, columns]`, levels ordered as
    listed.
    """
    links = Links(Knowledge(domain.names))
    for order in range(SETTINGS.max_order + 1):
        for pair in list(links.open):
            for given in links.sets(pair, order):
                if TESTS[test](_counts(codes, domain, (*pair, given))).verdict != "dependent":
                    links.separate(pair, given)
                    break
    return graph_of(links, max_parents=len(domain))


def _counts(codes: Codes, domain: Domain, query: Query) -> npt.NDArray[np.int64]:
    x, y, given = query
    (table,) = count_tables(codes, domain, [(*given, x, y)])
    return table.reshape(-1, *table.shape[-2:])
