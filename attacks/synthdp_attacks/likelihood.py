"""Likelihood-ratio attacks on one number for each model, such as the ELBO of the target: LiRA.

Carlini, Chien, Nasr, Song, Terzis, Tramer (2022), "Membership inference attacks from first
principles",
Algorithm 1: fit a Gaussian to the scores of shadow models with the target, another to those
without, and ask which of the two a challenge's score comes from. Their score is the logit of a
classifier's confidence; an ELBO and a noisy count need no such scaling, being log-likelihoods and
sums of noise already.

These have the two methods of a scikit-learn classifier that the attacks use, on features of shape
`[models, 1]`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.stats import norm

from synthdp_attacks.threat import BoolArray, FloatArray

FALSE_ALARMS = 0.1
_MIN_SPREAD = 1e-9  # relative; keeps ratios finite where a trainer's score does not vary


class OnlineLira:
    """Log-likelihood ratio of two Gaussians, fitted to scores with and without the target.

    Above 0 the score is likelier with the target.
    """

    def fit(self, scores: FloatArray, members: BoolArray) -> OnlineLira:
        """Fit on shadow scores `[models, 1]` and their bits."""
        self._inside, self._outside = _gaussian(scores[members]), _gaussian(scores[~members])
        return self

    def decision_function(self, scores: FloatArray) -> FloatArray:
        """Log-likelihood ratio of each score, in nats; shape `[models]`."""
        return np.asarray(
            norm.logpdf(scores[:, 0], *self._inside) - norm.logpdf(scores[:, 0], *self._outside),
            dtype=np.float64,
        )


class OfflineLira:
    """How unusually high a score is for models *without* the target.

    Scores of models with the target are not used.

    The adversary needs no shadow model with the target, so that one fleet serves all targets. Above
    0 is what at most `FALSE_ALARMS` of the models without the target reach, under the Gaussian that
    was fitted to them (Carlini et al., section VI, equation 4). A single Gaussian does not tell
    where the others lie: this score must grow with membership.
    """

    def fit(self, scores: FloatArray, members: BoolArray) -> OfflineLira:
        """Fit on the shadow scores `[models, 1]` of models without the target."""
        self._outside = _gaussian(scores[~members])
        return self

    def decision_function(self, scores: FloatArray) -> FloatArray:
        """Standard deviations above the level of `FALSE_ALARMS`; shape `[models]`."""
        centre, spread = self._outside
        return np.asarray(
            (scores[:, 0] - centre) / spread - norm.isf(FALSE_ALARMS), dtype=np.float64
        )


LIKELIHOODS: dict[str, Callable[[], OnlineLira | OfflineLira]] = {
    "lira_online": OnlineLira,
    "lira_offline": OfflineLira,
}


def _gaussian(scores: FloatArray) -> tuple[float, float]:
    """Mean and standard deviation of the Gaussian that is likeliest to give the scores."""
    return float(scores.mean()), max(
        float(scores.std()), _MIN_SPREAD * (1 + float(np.abs(scores).max()))
    )
