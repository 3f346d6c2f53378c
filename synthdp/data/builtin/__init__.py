"""Simulated tables that ship with synthdp, each with the causal graph that it was drawn from.

    survey        "synthetic": 22 columns of every kind x 1000 rows
    wide.Pain     "pain1000", "pain5000": 222 columns of two values
    wide.Answers  "eedi": 948 columns x 2950 rows, three quarters of them missing

Nobody is in them. Seeds are fixed and public, so everybody has the same tables; the graphs are true
by construction. `DRAFTS` writes the specs of the wide ones, of too many columns for a hand:
`specs/pain1000.yaml`, `specs/pain5000.yaml` and `specs/eedi.yaml`, of `.template` files.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from string import Template

import numpy as np
import pandas as pd

from synthdp.data.builtin import survey
from synthdp.data.builtin.wide import ANSWERS, PAIN
from synthdp.spec.model import Graph

TABLES: Mapping[str, tuple[Callable[[], pd.DataFrame], Callable[[], Graph]]] = {
    "synthetic": (survey.frame, survey.graph),
    "pain1000": (lambda: PAIN.frame(rows=1000), PAIN.graph),
    "pain5000": (lambda: PAIN.frame(rows=5000), PAIN.graph),
    "eedi": (ANSWERS.frame, ANSWERS.graph),
}
"""What draws the rows of a table, and the graph section of its spec."""


def frame(name: str) -> pd.DataFrame:
    """The rows of the table `name`; KeyError where there is none."""
    return TABLES[name][0]()


def graph(name: str) -> Graph:
    """The causal graph that the table `name` was drawn from; KeyError where there is none."""
    return TABLES[name][1]()


_KEPT = "\0"  # a space inside a name, where no line is broken


def _pain(rows: int) -> str:
    arrows = [(cause, effect) for effect, parents in PAIN.causes.items() for cause in parents]
    pairs = 40  # of the 770 arrows
    chosen = np.random.default_rng(PAIN.seed).choice(len(arrows), pairs, replace=False)
    targets = np.random.default_rng(PAIN.seed).choice(PAIN.labels, 20, replace=False).tolist()
    return _filled(
        "pain",
        f"pain{rows}",
        rows=rows,
        number=pairs,
        columns=_lines(f"  {label}: {{type: boolean}}" for label in PAIN.labels),
        pairs=_wrapped(f"[{', '.join(f'[{_names(arrows[i])}]' for i in sorted(chosen))}]"),
        effects=_wrapped(f"[{_names([effect for effect, own in PAIN.causes.items() if own])}]"),
        targets=_wrapped(f"[{_names(sorted(targets, key=PAIN.labels.index))}]"),
    )


def _answers() -> str:
    latent, kind = graph("eedi").latent, "{type: boolean, false: wrong, true: right, missing: true}"
    return _filled(
        "eedi",
        "eedi",
        rows=ANSWERS.rows,
        topics=ANSWERS.topics,
        columns=_lines(f"  {column}: {kind}" for column in latent[0]),
        latent=_lines(_wrapped(f"- [{_names(columns)}]") for columns in latent),
    )


def _filled(template: str, table: str, **values: object) -> str:
    """The spec of a table, with an entry for each edge of its graph."""
    sides = ((_names(edge.causes), _names(edge.effects)) for edge in graph(table).edges)
    edges = _lines(_wrapped(f"- {causes} -> {effects}") for causes, effects in sides)
    file = resources.files(__package__).joinpath(f"{template}.yaml.template")
    return Template(file.read_text(encoding="utf-8")).substitute(values, edges=edges)


def _names(names: Sequence[str]) -> str:
    return ", ".join(name.replace(" ", _KEPT) for name in names)


def _wrapped(item: str) -> str:
    """A list or an item of one on lines that a screen holds, broken between names."""
    lines = textwrap.wrap(
        item,
        140,
        initial_indent="    ",
        subsequent_indent="      ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return _lines(line.replace(_KEPT, " ") for line in lines)


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(lines)


DRAFTS: Mapping[str, Callable[[], str]] = {
    "pain1000": lambda: _pain(1000),
    "pain5000": lambda: _pain(5000),
    "eedi": _answers,
}
"""By table: its spec, as YAML."""
