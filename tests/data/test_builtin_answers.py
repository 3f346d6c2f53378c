"""The table of answers: its missing values have the stated order, its right answers follow the
item-response model.
"""

import itertools

import numpy as np
import pytest

from synthdp.data import builtin, frame

answers = builtin.ANSWERS

pytestmark = pytest.mark.check


def test_most_is_missing_and_both_answers_occur_in_every_column() -> None:
    table = frame("eedi")
    assert 0.7 < table.isna().to_numpy().mean() < 0.8
    assert all({"right", "wrong"} <= set(table[column].dropna()) for column in table)


def test_a_pupil_answers_in_order_and_stops_sooner_after_a_wrong_answer() -> None:
    table = answers.frame(rows=8_000)
    went_on: dict[str, list[float]] = {"right": [], "wrong": []}
    for quiz in range(answers.quizzes):
        for i in range(answers.questions - 1):
            this, after = table[answers.name(quiz, i)], table[answers.name(quiz, i + 1)].notna()
            assert not (this.isna() & after).any()
            for answer, found in went_on.items():
                found.append(float(after[this == answer].mean()))
    assert (
        abs(np.mean(went_on["right"]) - answers.stays_right) < 0.003
        and abs(np.mean(went_on["wrong"]) - answers.stays_wrong) < 0.003
    )


def test_quizzes_of_a_topic_are_begun_in_order_and_topics_are_begun_apart() -> None:
    table = answers.frame(rows=8_000)
    began = np.column_stack(
        [table[answers.name(quiz, 0)].notna() for quiz in range(answers.quizzes)]
    )
    for topic in answers.quizzes_by_topic():
        assert abs(began[:, topic[0]].mean() - answers.begins) < 0.01
        for quiz in topic[1:]:
            assert not (began[:, quiz] & ~began[:, quiz - 1]).any()
            assert abs(began[began[:, quiz - 1], quiz].mean() - answers.begins) < 0.03
    first = [topic[0] for topic in answers.quizzes_by_topic()]
    assert np.abs(np.corrcoef(began[:, first].T) - np.eye(len(first))).max() < 0.04
    assert sum(map(len, answers.quizzes_by_topic())) == answers.quizzes


def test_answers_agree_more_within_a_topic_than_across_and_across_more_than_by_chance() -> None:
    """One ability in general and one of each topic: both show, in this order."""
    table = answers.frame(rows=8_000)
    firsts = [[answers.name(topic[0], i) for i in range(3)] for topic in answers.quizzes_by_topic()]

    def agreement(a: str, b: str) -> float:
        both = table[a].notna() & table[b].notna()
        return float(np.corrcoef(table[a][both] == "right", table[b][both] == "right")[0, 1])

    within = [agreement(q[0], q[1]) for q in firsts]
    across = [agreement(p[0], q[0]) for p, q in itertools.pairwise(firsts)]
    assert np.mean(within) > np.mean(across) + 0.03 and np.mean(across) > 0.05
