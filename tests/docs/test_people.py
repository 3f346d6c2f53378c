"""What a page says of how often somebody is right about one person, held by a game."""

import math
import re

import numpy as np
import pytest

from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "guides" / "epsilon.md").read_text(encoding="utf-8")
RELATIVES = 5


def told() -> dict[float, float]:
    """Percent that somebody is right at most, by epsilon."""
    epsilons, rights = (
        re.findall(r"[\d.]+", line)
        for line in re.search(
            r"^\| epsilon (.*)\n\|[-|]+\n\| right at most (.*)$", PAGE, re.M
        ).groups()  # type: ignore[union-attr]
    )
    return dict(zip(map(float, epsilons), map(float, rights), strict=True))


def right(epsilon: float) -> float:
    """The most that a guess between two equally likely worlds can be right."""
    return math.exp(epsilon) / (1 + math.exp(epsilon))


def test_the_table_is_of_one_unit_against_whoever_knows_all_others() -> None:
    assert set(told()) == {0.1, 0.5, 1, 2, 3, 5, 10}
    for epsilon, percent in told().items():
        assert percent == round(100 * right(epsilon), 1), epsilon


def test_relatives_who_join_together_are_told_more_surely_than_one() -> None:
    """A count with the noise of epsilon 1: who does not know the relatives' rows, but that they
    come together, is right more often than the table's line for one, and no more often than a
    group's.
    """
    rng = np.random.default_rng(5)
    inside = rng.random(200_000) < 0.5
    count = RELATIVES * inside + rng.laplace(0, 1, inside.size)
    share = np.mean((count > RELATIVES / 2) == inside)
    assert right(1) < 0.74 < 0.95 < share < right(RELATIVES)  # of pure privacy, five times
    said = re.search(r"five relatives .*? (\d+) times in 100", " ".join(PAGE.split()))
    assert said is not None and int(said[1]) == round(100 * share)


@pytest.mark.parametrize("page", ["guides/epsilon.md", "steward.md"])
def test_no_page_says_that_the_bound_for_one_is_for_whatever_is_known(page: str) -> None:
    text = " ".join((ROOT / "docs" / page).read_text(encoding="utf-8").split())
    assert not re.search(
        r"any other knowledge|anyone could ever|whatever (?:else )?they know", text
    )
