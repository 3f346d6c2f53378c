"""Whole specs for the wide built-in tables, for `synthdp init --builtin`.

These tables have too many columns for a spec that is written by hand.

`specs/pain1000.yaml`, `specs/pain5000.yaml` and `specs/eedi.yaml` are what this writes.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from synthdp.data.builtin import answers, graph, pain

PAIRS = 40  # of the 770 arrows between labels of pain
_KEPT = "\0"  # a space inside a name, where no line is broken
_TAIL = """
publication:                               # for privacy/deployment.yaml, the record for the OpenDP Deployments Registry
  curators: [{name: the synthdp project (demonstration), type: Nonprofit}]
  intended_use: to show and test synthdp
  region: "nowhere: the rows are simulated"
"""  # noqa: E501


def _pain(rows: int) -> str:
    return f"""\
# {rows} simulated patients, 222 diagnostic labels each, over the published causal graph of neuropathic pain.
# Written by `synthdp init --builtin pain{rows}`; see synthdp/data/builtin/pain.py for origin and parameters.
synthdp: 1
dataset:
  id: pain{rows}
  title: Simulated neuropathic pain diagnoses, synthetic
  description: {rows} simulated rows of a noisy-OR model over a published causal graph of 222 labels; nobody is in it.
  licence: CC0-1.0
  citation: Tu et al., Neuropathic Pain Diagnosis Simulator for Causal Discovery Algorithm Evaluation, arXiv:1906.01732 (the graph)
  source: {{kind: builtin, name: pain{rows}}}
  privacy_unit: {{kind: row, meaning: one simulated patient; nobody has two rows}}
  rows: {{kind: public, value: {rows}}}

columns:                                   # injuries, radiculopathies, symptoms; L and R are the sides
{_lines(f"  {label}: {{type: boolean}}" for label in pain.labels())}

privacy:
  epsilon: 1.0
  delta: 1e-5
  adjacency: add_remove
  shares: {{measure: 0.5, pairs: 0.25, targets: 0.1, train: 0.15}}
  pairs:                                   # {PAIRS} arrows at random: together they say how strong all of them are
{_wrapped(f"[{', '.join(f'[{_names(pair)}]' for pair in _pairs())}]")}

graph:
  mode: given
  edges:                                   # an entry for all labels that share their causes
{_edges(f"pain{rows}")}

synthesizer:
  targets:                                 # every label that has causes: what these do is learned together, not with a few rows each
{_wrapped(f"[{_names([effect for effect, own in pain.causes().items() if own])}]")}

evaluation:                                # 20 labels at random x 5 classifiers
  targets:
{_wrapped(f"[{_names(_targets())}]")}
  classifiers: [logistic, boosted_trees, random_forest, knn, linear_svc]
attacks:
  membership: {{rows: 200, pairs: 8, steps: 40}}
{_TAIL}"""  # noqa: E501


def _pairs() -> list[tuple[str, str]]:
    """The arrows that are measured: a public draw."""
    arrows = [(cause, effect) for effect, parents in pain.causes().items() for cause in parents]
    return [
        arrows[i]
        for i in sorted(np.random.default_rng(pain.SEED).choice(len(arrows), PAIRS, replace=False))
    ]


def _targets() -> list[str]:
    """The labels that classifiers learn: a public draw."""
    return sorted(
        np.random.default_rng(pain.SEED).choice(pain.labels(), 20, replace=False).tolist(),
        key=pain.labels().index,
    )


def _answers() -> str:
    return f"""\
# Answers of 2950 simulated pupils to 948 questions, three quarters of them missing, in the shape of a published data set.
# Written by `synthdp init --builtin eedi`; see synthdp/data/builtin/answers.py for the model. qA_B is question B of quiz A.
synthdp: 1
dataset:
  id: eedi
  title: Simulated answers to diagnostic questions, synthetic
  description: 2950 simulated rows of an item-response model with quizzes and topics; the published answers are not used and nobody is in it.
  licence: CC0-1.0
  citation: Wang et al., Instructions and Guide for Diagnostic Questions, arXiv:2007.12061 (the shape)
  source: {{kind: builtin, name: eedi}}
  privacy_unit: {{kind: row, meaning: one simulated pupil; nobody has two rows}}
  rows: {{kind: public, value: {answers.ROWS}}}

columns:                                   # missing: not answered
{_lines(f"  {column}: {{type: boolean, false: wrong, true: right, missing: true}}" for column in graph("eedi").latent[0])}

privacy:
  epsilon: 1.0
  delta: 1e-5
  adjacency: add_remove
  shares: {{measure: 0.5, train: 0.5}}

graph:
  mode: given
  edges:                                   # each question leads to the next one; a quiz is begun by those who began the one before
{_edges("eedi")}
  latent:                                  # the ability in general, then that in each of {answers.TOPICS} topics
{_lines(_wrapped(f"- [{_names(columns)}]") for columns in graph("eedi").latent)}

evaluation:
  targets: [q01_01, q40_01, q79_01]
attacks:
  membership: {{rows: 100, pairs: 10, steps: 20}}
{_TAIL}"""  # noqa: E501


def _edges(name: str) -> str:
    return _lines(
        _wrapped(f"- {_names(edge.causes)} -> {_names(edge.effects)}") for edge in graph(name).edges
    )


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
