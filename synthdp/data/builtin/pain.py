"""The built-in tables "pain1000" and "pain5000": 222 diagnostic labels, simulated.

The causal graph behind them is a published one.

The graph (27 injuries, 52 radiculopathies, 143 symptoms; 770 arrows, at most 20 into a label) is
that of the neuropathic pain simulator of Tu, Zhang, Bertilson, Kjellstrom and Zhang, "Neuropathic
Pain Diagnosis Simulator for Causal Discovery Algorithm Evaluation" (NeurIPS 2019),
arXiv:1906.01732; labels are the simulator's own, in Swedish. The simulator's probabilities are not
used. In their place every label is a noisy OR of its causes (Pearl, "Probabilistic Reasoning in
Intelligent Systems", 1988, section 4.3.2):

    P(label | causes) = 1 - (1 - leak) * product over the present causes of (1 - link),

with each label's leak uniform in [.01, .05] and each arrow's link uniform in [.2, .8], drawn once
by a public seed. Thus
labels are rare: about 3% of rows have a given injury, 13% a given symptom. Files: pain_nodes.csv,
pain_edges.csv.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources

import numpy as np
import pandas as pd

from synthdp.spec.model import Edge, Graph

SEED = 20261121
LEAK = (0.01, 0.05)
LINK = (0.2, 0.8)


@cache
def labels() -> tuple[str, ...]:
    """The columns, causes before effects."""
    return tuple(name for _, name, _ in _rows("pain_nodes.csv"))


@cache
def causes() -> dict[str, tuple[str, ...]]:
    """The direct causes of each label, in the order of the columns."""
    arrows = {(cause, effect) for cause, effect in _rows("pain_edges.csv")}
    return {
        effect: tuple(cause for cause in labels() if (cause, effect) in arrows)
        for effect in labels()
    }


def graph() -> Graph:
    """Every arrow; one entry for all labels that share their causes."""
    effects: dict[tuple[str, ...], list[str]] = {}
    for label, parents in causes().items():
        effects.setdefault(parents, []).append(label)
    known = ((parents, tuple(names)) for parents, names in effects.items() if parents)
    return Graph(mode="given", edges=tuple(Edge(causes=a, effects=b) for a, b in known))


def frame(*, rows: int) -> pd.DataFrame:
    """`rows` rows, the same at every call; tables of other lengths share no rows with them."""
    parameters, coins = np.random.default_rng(SEED), np.random.default_rng([SEED, rows])
    values: dict[str, np.ndarray[tuple[int], np.dtype[np.bool_]]] = {}
    for label, parents in causes().items():
        absent = np.full(rows, 1 - parameters.uniform(*LEAK))
        for cause in parents:
            absent *= np.where(values[cause], 1 - parameters.uniform(*LINK), 1.0)
        values[label] = coins.random(rows) >= absent
    return pd.DataFrame(values)


def _rows(file: str) -> list[list[str]]:
    """A file beside this one, without its header."""
    text = resources.files(__package__).joinpath(file).read_text(encoding="utf-8")
    return list(csv.reader(text.splitlines()))[1:]
