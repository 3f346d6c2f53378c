"""Membership scores from one release, without shadow models.

A score says how much likelier it is that the record was trained on.

Each takes what the adversary holds - the synthetic rows, `reference` rows of the same population
that were not trained on, and the records he asks about - and gives one number for each record,
greater for a likelier member. None of them is told who is a member, so their AUC needs no split;
only a threshold does (`synthdp_attacks.one_release`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from sklearn.ensemble import RandomForestClassifier

from synthdp_attacks.density import CategoricalKernel, likeliest_bandwidth
from synthdp_attacks.hamming import hamming
from synthdp_attacks.threat import Codes, FloatArray, Public

# Around synthetic rows the kernel is narrow, for what is looked for are copies; around the
# reference it is as wide as makes that likeliest, for there the population is estimated.
COPY_BANDWIDTH = 0.03


@dataclass(frozen=True)
class View:
    """The adversary's view; tables are codes `[rows, columns]`.

    `seed` is for the random draws of an attack.
    """

    public: Public
    synthetic: Codes = field(repr=False)
    reference: Codes = field(repr=False)
    seed: int


def domias(view: View, asked: Codes) -> FloatArray:
    """Log of the density of the synthetic rows over that of the reference, at each record.

    Van Breugel, Sun, Qian, van der Schaar (2023), "Membership inference attacks against synthetic
    data through overfitting detection": a record is suspect where the release is denser than the
    population, not where both are.
    """
    return CategoricalKernel(view.public, view.synthetic, COPY_BANDWIDTH).log_density(
        asked
    ) - population(view, asked)


def distance(view: View, asked: Codes) -> FloatArray:
    """Minus the Hamming distance to the closest synthetic record (DCR).

    It also calls every typical record a member.
    """
    return -closest(asked, view.synthetic)


def relative_distance(view: View, asked: Codes) -> FloatArray:
    """Distance to the closest reference record minus that to the closest synthetic one.

    The unit is columns.
    """
    return closest(asked, view.reference) - closest(asked, view.synthetic)


def monte_carlo(view: View, asked: Codes) -> FloatArray:
    """Share of the synthetic rows within a distance of each record.

    Hilprecht, Haerterich, Bernau (2019), "Monte Carlo and reconstruction membership inference
    attacks against generative models", with their median heuristic: the distance is the median over
    the records of that to the closest synthetic row.
    """
    radius = np.median(closest(asked, view.synthetic))
    return np.concatenate(
        [(distances <= radius).mean(axis=1) for _, distances in hamming(asked, view.synthetic)]
    )


def logan(view: View, asked: Codes) -> FloatArray:
    """The score of a classifier of synthetic rows against reference rows.

    1 is synthetic, 0 reference.

    After Hayes, Melis, Danezis, De Cristofaro (2019), "LOGAN", the black box: their discriminator
    is a network that is trained beside a generator, ours a random forest.
    """
    forest = RandomForestClassifier(
        n_estimators=200,
        min_samples_leaf=2,
        class_weight="balanced",
        random_state=view.seed,
        n_jobs=1,
    )
    forest.fit(
        np.concatenate([view.synthetic, view.reference]),
        np.arange(len(view.synthetic) + len(view.reference)) < len(view.synthetic),
    )
    return np.asarray(forest.predict_proba(asked)[:, 1], dtype=np.float64)


SCORES: dict[str, Callable[[View, Codes], FloatArray]] = {
    "domias": domias,
    "logan": logan,
    "monte_carlo": monte_carlo,
    "relative_distance": relative_distance,
    "distance": distance,
}


def population(view: View, asked: Codes) -> FloatArray:
    """Log-density of the reference at each record.

    It never uses the release: as an attack it must be at chance.
    """
    width = likeliest_bandwidth(view.public, view.reference, np.random.default_rng(view.seed))
    return CategoricalKernel(view.public, view.reference, width).log_density(asked)


def closest(asked: Codes, rows: Codes) -> FloatArray:
    """Hamming distance, in columns, of each record to the closest of `rows`; shape `[records]`."""
    return np.concatenate([distances.min(axis=1) for _, distances in hamming(asked, rows)]).astype(
        np.float64
    )
