"""Tables and releases that the tests of the attacks share, from the leakiest to the perfectly
private.
"""

from dataclasses import dataclass

import numpy as np
from sklearn.tree import DecisionTreeClassifier

from synthdp_attacks import Codes, Public

COLUMNS = 9
PUBLIC = Public((4,) * COLUMNS)


def population(rows: int, rng: np.random.Generator) -> Codes:
    """Nine correlated columns of four levels, with three latent groups; no two calls share a row
    but by chance.
    """
    group = rng.integers(3, size=rows)
    return np.stack(
        [
            np.where(rng.random(rows) < 0.8, (group + c) % 4, rng.integers(4, size=rows))
            for c in range(COLUMNS)
        ],
        axis=1,
    )


def leaky(members: Codes, share: float, rng: np.random.Generator) -> Codes:
    """A release as large as the table of which `share` are copies of its rows, and all else fresh
    rows of the population.
    """
    copies = round(share * len(members))
    return np.concatenate(
        [members[rng.permutation(len(members))[:copies]], population(len(members) - copies, rng)]
    )


@dataclass(frozen=True)
class Trees:
    """A generator of one decision tree for each column, given the columns before it (CART, after
    Reiter, 2005); not private.
    """

    leaf: int = 1

    def __call__(self, rows: Codes, *, seed_sequence: np.random.SeedSequence) -> Codes:
        """A synthetic table of 500 rows."""
        rng = np.random.default_rng(seed_sequence)
        made = np.empty((500, rows.shape[1]), dtype=np.int64)
        made[:, 0] = rng.choice(rows[:, 0], len(made))
        for column in range(1, rows.shape[1]):
            tree = DecisionTreeClassifier(
                min_samples_leaf=self.leaf, random_state=int(rng.integers(2**31))
            )
            tree.fit(rows[:, :column], rows[:, column])
            below = tree.predict_proba(made[:, :column]).cumsum(axis=1) < rng.random((len(made), 1))
            made[:, column] = tree.classes_[np.minimum(below.sum(axis=1), len(tree.classes_) - 1)]
        return made
