"""Simulated tables that ship with synthdp, each with the causal graph that it was drawn from.

    STRUCTURE "synthetic": 22 columns of every kind x 1000 rows
    Pain      "pain1000", "pain5000": 222 columns of two values
    Answers  "eedi": 948 columns x 2950 rows, three quarters of them missing

Nobody is in them. Seeds are fixed and public, so everybody has the same tables; the graphs are true
by construction. `DRAFTS` writes the specs of the wide ones, of too many columns for a hand:
`specs/pain1000.yaml`, `specs/pain5000.yaml` and `specs/eedi.yaml`, of `.template` files.

"synthetic" is a health survey that never took place, in the shape (22 columns, 1000 rows) of the
synthetic data set in "Causally Constrained Data Synthesis for Private Data Release",
arXiv:2105.13144, Table 1. A mechanism gets its parents' values and noise of its own, and nothing
else.
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
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from synthdp.spec.model import Edge, Graph

Values = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Parents = Mapping[str, Values]
Draw = Callable[[Parents, np.random.Generator, int], Values]

EDUCATION = ("primary", "secondary", "bachelor", "master")
EXERCISE = ("none", "some", "regular")
DIET = ("poor", "fair", "good")
STRESS = ("low", "medium", "high")
MEDICATION = ("none", "one", "several")
OUTCOMES = ("better", "same", "worse")
REGIONS = ("north", "east", "south", "west")


@dataclass(frozen=True)
class Structure:
    """An equation: `draw` makes a column of its parents, its noise and the number of rows."""

    parents: tuple[str, ...]
    draw: Draw


def survey_frame(*, rows: int = 1000) -> pd.DataFrame:
    """The table, `rows` rows in the order of `STRUCTURE`; the same rows at every call."""
    seeds = np.random.SeedSequence(20261121).spawn(len(STRUCTURE))
    values: dict[str, Values] = {}
    for (name, equation), seed in zip(STRUCTURE.items(), seeds, strict=True):
        parents = {p: values[p] for p in equation.parents}
        values[name] = equation.draw(parents, np.random.default_rng(seed), rows)
    return pd.DataFrame(values)


def survey_graph() -> Graph:
    """The parents of each column, as its equation has them."""
    known = ((name, e.parents) for name, e in STRUCTURE.items() if e.parents)
    edges = tuple(Edge(causes=parents, effects=(name,)) for name, parents in known)
    return Graph(mode="given", edges=edges)


Score = Callable[[Parents], Floats | float]


def _flag(parents: str, score: Score) -> Structure:
    """True with probability logistic(score)."""
    return Structure(tuple(parents.split()), lambda p, rng, n: _chance(score(p), rng, n))


def _chance(score: Floats | float, rng: np.random.Generator, n: int) -> Values:
    happened: Values = rng.random(n) < 1 / (1 + np.exp(-np.asarray(score)))
    return happened


def _ordered(parents: str, labels: Sequence[str], cuts: Sequence[float], score: Score) -> Structure:
    """An ordered logit: `labels` by how many of `cuts` the score with logistic noise has passed."""

    def draw(p: Parents, rng: np.random.Generator, n: int) -> Values:
        passed = np.searchsorted(np.asarray(cuts), score(p) + rng.logistic(size=n))
        return np.asarray(labels, dtype=object)[passed]

    return Structure(tuple(parents.split()), draw)


def _normal(
    parents: str,
    mean: Score,
    spread: float,
    *,
    to: tuple[float, float],
    decimals: int = 0,
    then: Callable[[Values, Parents, np.random.Generator], Values] = lambda values, p, rng: values,
) -> Structure:
    """Normal values cut to the range `to`, and what is made of them."""

    def draw(p: Parents, rng: np.random.Generator, n: int) -> Values:
        drawn = np.clip(mean(p) + spread * rng.standard_normal(n), *to).round(decimals)
        return then(drawn, p, rng)

    return Structure(tuple(parents.split()), draw)


def _rank(values: Values, labels: Sequence[str]) -> Floats:
    return np.asarray(list(map(labels.index, values)), dtype=np.float64)


def _measured(levels: Values, p: Parents, rng: np.random.Generator) -> Values:
    """Levels of which some are missing: the uninsured are seldom measured."""
    unmeasured = np.where(p["insured"], 0.1, 0.55)
    return np.where(rng.random(len(levels)) < unmeasured, np.nan, levels)


def _since_2015(days: Values, p: Parents, rng: np.random.Generator) -> Values:
    whole = days.astype(np.int64).astype("timedelta64[D]")
    instants: Values = np.datetime64("2015-01-01", "s") + whole
    return instants


def _visits(p: Parents, rng: np.random.Generator, n: int) -> Values:
    none = _chance(np.where(p["insured"], -1.5, 1.2), rng, n)
    some = np.minimum(1 + rng.poisson(1.5 + 5 * p["diabetes"], n), 40)
    return np.where(none, 0, some).astype(np.int64)


STRUCTURE: Mapping[str, Structure] = {  # causes before effects
    "region": Structure(
        (),
        lambda p, rng, n: rng.choice(np.asarray(REGIONS, object), n, p=[0.4, 0.25, 0.2, 0.15]),
    ),
    "urban": _flag("region", lambda p: np.where(p["region"] == "north", 1.5, -0.7)),
    "age": Structure(
        (), lambda p, rng, n: (18 + np.floor(73 * rng.beta(1.6, 2.2, n))).astype(np.int64)
    ),
    "sex": Structure(
        (), lambda p, rng, n: np.where(rng.random(n) < 0.52, "female", "male").astype(object)
    ),
    "education": _ordered(
        "urban age", EDUCATION, (-1.0, 1.0, 2.5), lambda p: 1.6 * p["urban"] - (p["age"] - 45) / 20
    ),
    "employed": _flag(
        "age education",
        lambda p: np.where(p["age"] < 65, 1.2, -3.0) + 0.4 * _rank(p["education"], EDUCATION),
    ),
    "income": _normal(
        "education employed",
        lambda p: 14 + 13 * _rank(p["education"], EDUCATION) + 22 * p["employed"],
        7, to=(0, 120), decimals=2,
    ),
    "insured": _flag("income", lambda p: (p["income"] - 32) / 9),
    "smoker": _flag(
        "sex education",
        lambda p: 0.3 + 0.8 * (p["sex"] == "male") - 1.1 * _rank(p["education"], EDUCATION),
    ),
    "exercise": _ordered("age", EXERCISE, (0.0, 2.2), lambda p: 1.4 - (p["age"] - 45) / 14),
    "diet": _ordered("income", DIET, (-1.0, 1.2), lambda p: (p["income"] - 40) / 11),
    "stress": _ordered(
        "employed income", STRESS, (0.0, 1.8),
        lambda p: 1.5 * p["employed"] - (p["income"] - 40) / 25,
    ),
    "sleep": _normal(
        "stress", lambda p: 8 - 0.9 * _rank(p["stress"], STRESS), 0.7, to=(3, 11), decimals=1
    ),
    "bmi": _normal(
        "exercise diet",
        lambda p: 33 - 2.6 * _rank(p["exercise"], EXERCISE) - 2.4 * _rank(p["diet"], DIET),
        2.5, to=(15, 50), decimals=1,
    ),
    "pressure": _normal(
        "bmi age", lambda p: 112 + 2.2 * (p["bmi"] - 27) + 0.5 * (p["age"] - 45), 8, to=(80, 200),
        then=lambda values, p, rng: values.astype(np.int64),
    ),
    "cholesterol": _normal(
        "diet insured", lambda p: 5.6 - 0.9 * _rank(p["diet"], DIET), 0.6, to=(2, 10), decimals=2,
        then=_measured,
    ),
    "diabetes": _flag("bmi", lambda p: -2.2 + (p["bmi"] - 27) / 2.2),
    "visits": Structure(("insured", "diabetes"), _visits),
    "medication": _ordered(
        "diabetes pressure", MEDICATION, (0.5, 3.5),
        lambda p: 3 * p["diabetes"] + (p["pressure"] - 125) / 8,
    ),
    "cost": Structure(
        ("visits",),
        lambda p, rng, n: np.minimum(
            p["visits"] * 90 * np.exp(0.3 * rng.standard_normal(n)), 6000
        ).round(2),
    ),
    "enrolled": _normal(  # older people joined earlier
        "age", lambda p: 2100 - 25 * (p["age"] - 45), 500, to=(0, 3652), then=_since_2015
    ),
    "outcome": _ordered(
        "smoker diabetes", OUTCOMES, (0.0, 1.8),
        lambda p: 1.8 * p["smoker"] + 2.4 * p["diabetes"] - 0.2,
    ),
}  # fmt: skip


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
    "synthetic": (survey_frame, survey_graph),
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
