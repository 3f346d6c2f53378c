"""The built-in table "eedi": 948 questions x 2950 pupils, answered right or wrong.

Three quarters of the answers are missing.

It has the shape of the answers that the platform Eedi published for the NeurIPS 2020 Education
Challenge (Wang et al., "Instructions and Guide for Diagnostic Questions: The NeurIPS 2020 Education
Challenge", arXiv:2007.12061), in the size used by "Causally Constrained Data Synthesis for Private
Data Release", arXiv:2105.13144. Those answers are not
used: every row is simulated.

Questions come in 79 quizzes of 12, the quizzes in 8 topics. A pupil answers a quiz in order and may
stop after each answer, sooner after a wrong one; the next quiz of a topic is begun only by those
who began the one before. Whether an answer is right follows a two-parameter item-response model
(Birnbaum 1968):

    P(right) = 1 / (1 + exp(-a (ability - difficulty))),   ability in a topic = .8 general + .6 own

with standard normal abilities, discrimination a in [.7, 1.7] and normal difficulty of spread 1. So
the graph holds an arrow from each question to the next one, one from each quiz's first question to
that of the next quiz, and nine unseen
causes: the general ability, of all columns, and each topic's own.
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pandas as pd

from synthdp.spec.model import Edge, Graph

ROWS = 2950
QUIZZES, QUESTIONS, TOPICS = 79, 12, 8
BEGINS = 0.8  # chance to begin a quiz that one may begin
STAYS_RIGHT, STAYS_WRONG = 0.98, 0.9  # chance to go on after a right and a wrong answer


def name(quiz: int, question: int) -> str:
    """The column of a question, both counted from 0: q01_01 is the first."""
    return f"q{quiz + 1:02d}_{question + 1:02d}"


def topics() -> tuple[range, ...]:
    """The quizzes of each topic: neighbours, ten of them or nine."""
    ends = np.linspace(0, QUIZZES, TOPICS + 1).round().astype(int).tolist()
    return tuple(range(a, b) for a, b in itertools.pairwise(ends))


def graph() -> Graph:
    """The arrows and the unseen causes that the module tells of."""
    arrows = []
    for topic in topics():
        for quiz in topic:
            if quiz > topic[0]:
                arrows.append((name(quiz - 1, 0), name(quiz, 0)))
            arrows += [(name(quiz, i), name(quiz, i + 1)) for i in range(QUESTIONS - 1)]
    shared = (itertools.product(topic, range(QUESTIONS)) for topic in (range(QUIZZES), *topics()))
    latent = tuple(tuple(name(*at) for at in columns) for columns in shared)
    return Graph(
        mode="given", edges=tuple(Edge(causes=(a,), effects=(b,)) for a, b in arrows), latent=latent
    )


def frame(*, rows: int = ROWS) -> pd.DataFrame:
    """The table: `rows` rows of "right", "wrong" and missing values, the same at every call."""
    rng = np.random.default_rng(20261121)
    discrimination = rng.uniform(0.7, 1.7, (QUIZZES, QUESTIONS))
    difficulty = rng.standard_normal((QUIZZES, QUESTIONS))
    general = rng.standard_normal(rows)
    answers = np.asarray([None, "wrong", "right"], dtype=object)
    values: dict[str, npt.NDArray[np.object_]] = {}
    for topic in topics():
        ability = 0.8 * general + 0.6 * rng.standard_normal(rows)
        began = np.ones(rows, dtype=bool)
        for quiz in topic:
            began = began & (rng.random(rows) < BEGINS)
            there = began
            for i in range(QUESTIONS):
                odds = np.exp(-discrimination[quiz, i] * (ability - difficulty[quiz, i]))
                right = rng.random(rows) < 1 / (1 + odds)
                values[name(quiz, i)] = answers[np.where(there, 1 + right, 0)]
                there = there & (rng.random(rows) < np.where(right, STAYS_RIGHT, STAYS_WRONG))
    return pd.DataFrame(values)
