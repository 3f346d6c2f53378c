"""Simulated tables that ship with synthdp, each with the causal graph that it was drawn from.

    survey   "synthetic": 22 columns of every kind x 1000 rows
    Pain      "pain1000", "pain5000": 222 columns of two values
    Answers  "eedi": 948 columns x 2950 rows, three quarters of them missing

Nobody is in them. Seeds are fixed and public, so everybody has the same tables; the graphs are true
by construction. `DRAFTS` writes the specs of the wide ones, of too many columns for a hand:
`specs/pain1000.yaml`, `specs/pain5000.yaml` and `specs/eedi.yaml`, of `.template` files.
"""

from __future__ import annotations

import csv
import itertools
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from string import Template

import numpy as np
import numpy.typing as npt
import pandas as pd

from synthdp.data.builtin import survey
from synthdp.spec.model import Edge, Graph


@dataclass(frozen=True)
class Pain:
    """222 diagnostic labels, simulated; the causal graph behind them is a published one.

    The graph (27 injuries, 52 radiculopathies, 143 symptoms; 770 arrows, at most 20 into a label)
    is that of the neuropathic pain simulator of Tu, Zhang, Bertilson, Kjellstrom and Zhang,
    "Neuropathic Pain Diagnosis Simulator for Causal Discovery Algorithm Evaluation" (NeurIPS 2019),
    arXiv:1906.01732; labels are the simulator's own, in Swedish. The simulator's probabilities are
    not used. In their place every label is a noisy OR of its causes (Pearl, "Probabilistic
    Reasoning in Intelligent Systems", 1988, section 4.3.2):

        P(label | causes) = 1 - (1 - leak) * product over the present causes of (1 - link),

    with each label's leak and each arrow's link uniform between two bounds, drawn once by a public
    seed. Thus labels are rare: about 3% of rows have a given injury, 13% a given symptom. Files:
    pain_nodes.csv, pain_edges.csv.
    """

    seed: int = 20261121
    leak: tuple[float, float] = (0.01, 0.05)
    link: tuple[float, float] = (0.2, 0.8)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The columns, causes before effects."""
        return tuple(name for _, name, _ in _rows("pain_nodes.csv"))

    @cached_property
    def causes(self) -> dict[str, tuple[str, ...]]:
        """The direct causes of each label, in the order of the columns."""
        arrows = {(cause, effect) for cause, effect in _rows("pain_edges.csv")}
        return {
            effect: tuple(cause for cause in self.labels if (cause, effect) in arrows)
            for effect in self.labels
        }

    def graph(self) -> Graph:
        effects: dict[tuple[str, ...], list[str]] = {}
        for label, parents in self.causes.items():
            effects.setdefault(parents, []).append(label)
        known = ((parents, tuple(names)) for parents, names in effects.items() if parents)
        return Graph(mode="given", edges=tuple(Edge(causes=a, effects=b) for a, b in known))

    def frame(self, *, rows: int) -> pd.DataFrame:
        """`rows` rows, the same at every call; tables of other lengths share no rows with them."""
        parameters = np.random.default_rng(self.seed)
        coins = np.random.default_rng([self.seed, rows])
        values: dict[str, np.ndarray[tuple[int], np.dtype[np.bool_]]] = {}
        for label, parents in self.causes.items():
            absent = np.full(rows, 1 - parameters.uniform(*self.leak))
            for cause in parents:
                absent *= np.where(values[cause], 1 - parameters.uniform(*self.link), 1.0)
            values[label] = coins.random(rows) >= absent
        return pd.DataFrame(values)


def _rows(file: str) -> list[list[str]]:
    """A file beside this one, without its header."""
    text = resources.files(__package__).joinpath(file).read_text(encoding="utf-8")
    return list(csv.reader(text.splitlines()))[1:]


@dataclass(frozen=True)
class Answers:
    """948 questions x 2950 pupils, answered right or wrong; three quarters of answers are missing.

    It has the shape of the answers that the platform Eedi published for the NeurIPS 2020 Education
    Challenge (Wang et al., "Instructions and Guide for Diagnostic Questions: The NeurIPS 2020
    Education Challenge", arXiv:2007.12061), in the size used by "Causally Constrained Data
    Synthesis for Private Data Release", arXiv:2105.13144. Those answers are not used: every row is
    simulated.

    Questions come in `quizzes` of so many `questions`, the quizzes in `topics`. A pupil begins a
    quiz that he may begin with probability `begins`, answers it in order and may stop after each
    answer: he goes on with probability `stays_right` or, after a wrong one, `stays_wrong`. The next
    quiz of a topic is begun only by those who began the one before. Whether an answer is right
    follows a two-parameter item-response model (Birnbaum 1968):

        P(right) = 1 / (1 + exp(-a (ability - difficulty))),
        ability in a topic = .8 general + .6 own,

    with standard normal abilities, discrimination a in [.7, 1.7] and normal difficulty of spread 1.
    So the graph holds an arrow from each question to the next one, one from each quiz's first
    question to that of the next quiz, and nine unseen causes: the general ability, of all columns,
    and each topic's own.
    """

    rows: int = 2950
    quizzes: int = 79
    questions: int = 12
    topics: int = 8
    begins: float = 0.8
    stays_right: float = 0.98
    stays_wrong: float = 0.9

    def name(self, quiz: int, question: int) -> str:
        """The column of a question, both counted from 0: q01_01 is the first."""
        return f"q{quiz + 1:02d}_{question + 1:02d}"

    def quizzes_by_topic(self) -> tuple[range, ...]:
        """The quizzes of each topic: neighbours, ten of them or nine."""
        ends = np.linspace(0, self.quizzes, self.topics + 1).round().astype(int).tolist()
        return tuple(range(a, b) for a, b in itertools.pairwise(ends))

    def graph(self) -> Graph:
        arrows = []
        for topic in self.quizzes_by_topic():
            for quiz in topic:
                if quiz > topic[0]:
                    arrows.append((self.name(quiz - 1, 0), self.name(quiz, 0)))
                names = [self.name(quiz, i) for i in range(self.questions)]
                arrows += itertools.pairwise(names)
        latent = tuple(
            tuple(self.name(*at) for at in itertools.product(topic, range(self.questions)))
            for topic in (range(self.quizzes), *self.quizzes_by_topic())
        )
        edges = tuple(Edge(causes=(a,), effects=(b,)) for a, b in arrows)
        return Graph(mode="given", edges=edges, latent=latent)

    def frame(self, *, rows: int = 2950) -> pd.DataFrame:
        """`rows` rows of "right", "wrong" and missing values, the same at every call."""
        rng = np.random.default_rng(20261121)
        discrimination = rng.uniform(0.7, 1.7, (self.quizzes, self.questions))
        difficulty = rng.standard_normal((self.quizzes, self.questions))
        general = rng.standard_normal(rows)
        answers = np.asarray([None, "wrong", "right"], dtype=object)
        values: dict[str, npt.NDArray[np.object_]] = {}
        for topic in self.quizzes_by_topic():
            ability = 0.8 * general + 0.6 * rng.standard_normal(rows)
            began = np.ones(rows, dtype=bool)
            for quiz in topic:
                began = began & (rng.random(rows) < self.begins)
                there = began
                for i in range(self.questions):
                    odds = np.exp(-discrimination[quiz, i] * (ability - difficulty[quiz, i]))
                    right = rng.random(rows) < 1 / (1 + odds)
                    values[self.name(quiz, i)] = answers[np.where(there, 1 + right, 0)]
                    stays = np.where(right, self.stays_right, self.stays_wrong)
                    there = there & (rng.random(rows) < stays)
        return pd.DataFrame(values)


PAIN, ANSWERS = Pain(), Answers()


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
