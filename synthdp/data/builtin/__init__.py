"""Simulated tables that ship with synthdp, each with the causal graph that it was drawn from.

    survey   "synthetic": 22 columns of every kind x 1000 rows
    pain     "pain1000", "pain5000": 222 columns of two values
    answers  "eedi": 948 columns x 2950 rows, three quarters of them missing

Nobody is in them. Seeds are fixed and public, so everybody has the same tables; the graphs are true
by construction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pandas as pd

from synthdp.data.builtin import answers, pain, survey
from synthdp.spec.model import Graph


@dataclass(frozen=True)
class Simulated:
    """A simulated table: `frame()` draws its rows, `graph()` is the graph section of its spec."""

    frame: Callable[[], pd.DataFrame]
    graph: Callable[[], Graph]


TABLES: Mapping[str, Simulated] = {
    "synthetic": Simulated(survey.frame, survey.graph),
    "pain1000": Simulated(lambda: pain.frame(rows=1000), pain.graph),
    "pain5000": Simulated(lambda: pain.frame(rows=5000), pain.graph),
    "eedi": Simulated(answers.frame, answers.graph),
}


def frame(name: str) -> pd.DataFrame:
    """The rows of the table `name`; KeyError where there is none."""
    return TABLES[name].frame()


def graph(name: str) -> Graph:
    """The causal graph that the table `name` was drawn from; KeyError where there is none."""
    return TABLES[name].graph()
