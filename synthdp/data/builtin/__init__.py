"""Simulated tables that ship with synthdp, each with the causal graph that it was drawn from.

    survey   "synthetic": 22 columns of every kind x 1000 rows
    pain     "pain1000", "pain5000": 222 columns of two values
    answers  "eedi": 948 columns x 2950 rows, three quarters of them missing

Nobody is in them. Seeds are fixed and public, so everybody has the same tables; the graphs are true
by construction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd

from synthdp.data.builtin import answers, pain, survey
from synthdp.spec.model import Graph

TABLES: Mapping[str, tuple[Callable[[], pd.DataFrame], Callable[[], Graph]]] = {
    "synthetic": (survey.frame, survey.graph),
    "pain1000": (lambda: pain.frame(rows=1000), pain.graph),
    "pain5000": (lambda: pain.frame(rows=5000), pain.graph),
    "eedi": (answers.frame, answers.graph),
}
"""What draws the rows of a table, and the graph section of its spec."""


def frame(name: str) -> pd.DataFrame:
    """The rows of the table `name`; KeyError where there is none."""
    return TABLES[name][0]()


def graph(name: str) -> Graph:
    """The causal graph that the table `name` was drawn from; KeyError where there is none."""
    return TABLES[name][1]()
