"""The table of answers: its missing values have the stated order, its right answers follow the
item-response model.
"""

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
