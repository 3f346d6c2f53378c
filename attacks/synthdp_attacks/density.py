"""Kernel density of a table of categorical codes, for the ratio of two densities.

Aitchison and Aitken (1976), "Multivariate binary discrimination by the kernel method", section 2,
for columns of any number of levels: around each row r lies a distribution in which every column
independently keeps its level with probability 1 - lambda and else takes one of its other s - 1
levels evenly,

    K(x | r) = prod_c (1 - lambda)^[x_c = r_c]  (lambda / (s_c - 1))^[x_c != r_c].

It is a probability over the whole domain, falls with the Hamming distance, and gives no record
probability 0: a ratio of two such densities is finite everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.special import logsumexp
from sklearn.preprocessing import OneHotEncoder

from synthdp_attacks.errors import AttackError
from synthdp_attacks.threat import Codes, FloatArray, Public

BANDWIDTHS = (0.01, 0.03, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4)
BANDWIDTH_ROWS = 1000
_CHUNK = 512


@dataclass(frozen=True)
class CategoricalKernel:
    """A kernel density over the domain of `public`, from `rows` `[rows, columns]`.

    It has one `bandwidth` (lambda, above 0 and below .5).
    """

    public: Public
    rows: Codes = field(repr=False)
    bandwidth: float

    def __post_init__(self) -> None:
        """Refuse what is no density."""
        if not len(self.rows) or not 0 < self.bandwidth < 0.5:
            raise AttackError(
                f"{len(self.rows)} rows and bandwidth {self.bandwidth}; needs a row, and a"
                " bandwidth above 0 and below .5"
            )

    def log_density(self, asked: Codes) -> FloatArray:
        """Log of the probability of each record of `asked` `[records, columns]`: `[records]`."""
        return self._log_sums(asked, leave_out=False) - float(np.log(len(self.rows)))

    def log_likelihood(self) -> float:
        """Mean log-density of the rows, each under all others (leave one out); needs two rows."""
        return float(
            (self._log_sums(self.rows, leave_out=True) - np.log(len(self.rows) - 1)).mean()
        )

    def _log_sums(self, asked: Codes, *, leave_out: bool) -> FloatArray:
        """Log of the sum of the kernels at each record.

        With `leave_out`, record i is row i and its own kernel is left out.
        """
        sizes = np.asarray(self.public.sizes)
        others = np.log(
            np.maximum(sizes - 1, 1)
        )  # a column of one level always agrees, and says nothing
        disagree = np.where(sizes > 1, np.log(self.bandwidth) - others, 0.0)
        gain = np.where(sizes > 1, np.log1p(-self.bandwidth) - disagree, 0.0)
        encoder = OneHotEncoder(
            categories=[np.arange(s) for s in sizes], sparse_output=False, dtype=np.float32
        ).fit(self.rows[:1])
        weighted = (encoder.transform(self.rows) * np.repeat(gain, sizes).astype(np.float32)).T
        sums = np.empty(len(asked))
        for start in range(0, len(asked), _CHUNK):
            part = slice(start, start + _CHUNK)
            exponent = encoder.transform(asked[part]) @ weighted
            if leave_out:
                exponent[
                    np.arange(len(exponent)), np.arange(start, start + len(exponent))
                ] = -np.inf
            sums[part] = logsumexp(exponent, axis=1)
        return sums + float(disagree.sum())


def likeliest_bandwidth(public: Public, rows: Codes, rng: np.random.Generator) -> float:
    """The bandwidth of `BANDWIDTHS` with the greatest leave-one-out likelihood of the rows.

    At most `BANDWIDTH_ROWS` rows are used.
    """
    chosen = rows[rng.permutation(len(rows))[:BANDWIDTH_ROWS]]
    return max(
        BANDWIDTHS, key=lambda width: CategoricalKernel(public, chosen, width).log_likelihood()
    )
