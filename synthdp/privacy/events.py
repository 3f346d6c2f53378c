"""Events of mechanisms that choose: the sparse vector and the noisy maximum. Both are pure epsilon-DP.

An event states public scales and sensitivities, and `rows`, the most rows of one unit; `epsilon` follows from
them, for adding or removing one unit. All scales are those of noise on whole numbers. Replacing a unit removes
one and adds one, so it costs twice that.
"""

from __future__ import annotations

import math

import attrs
import dp_accounting


@attrs.frozen
class SparseVectorDpEvent(dp_accounting.DpEvent):  # type: ignore[misc]
    """One pass of the sparse vector over any number of queries, up to and including the first that is above.

    The threshold has discrete Laplace noise of scale `threshold_scale`, each query of scale `query_scale`; a row
    moves a query by at most `sensitivity`. The pass sees a Poisson sample: each row by its own coin of chance `rate`.

    Without sampling the pass is s (1 / threshold_scale + 2 / query_scale)-DP, s = `sensitivity` [Lyu, Su and Li,
    "Understanding the Sparse Vector Technique for Differential Privacy", arXiv:1603.01699v4, Theorem 2 with
    c = 1 and queries that need not move the same way]. The proof shifts the threshold by s and the last query
    by 2 s; all are whole numbers here, and a shift of discrete Laplace noise of scale b by j changes a
    probability by at most exp(j / b), as for real noise.

    With sampling, p-DP becomes log(1 + rate (exp(p) - 1))-DP for one row added or removed [Balle, Barthe and
    Gaboardi, "Privacy Amplification by Subsampling", arXiv:1807.01647v2, Theorem 8]. `rows` rows are as many
    single steps, each of which costs that.
    """

    threshold_scale: float
    query_scale: float
    sensitivity: int
    rate: float = 1.0
    rows: int = 1

    @property
    def epsilon(self) -> float:
        """For one unit added or removed."""
        unsampled = self.sensitivity * (1 / self.threshold_scale + 2 / self.query_scale)
        if self.rate == 1 or unsampled > 500:
            return self.rows * unsampled
        return self.rows * math.log1p(self.rate * math.expm1(unsampled))


@attrs.frozen
class NoisyMaxDpEvent(dp_accounting.DpEvent):  # type: ignore[misc]
    """The index of the largest of some scores after independent exponential noise of `scale`.

    A row moves every score by at most `sensitivity`. This is the exponential mechanism's better relative, permute
    and flip, and 2 s / scale-DP like it [McKenna and Sheldon, "Permute-and-Flip", arXiv:2010.12603v1,
    Theorem 1; Ding et al., "The Permute-and-Flip Mechanism is Identical to Report-Noisy-Max with Exponential
    Noise", arXiv:2105.07260v1]. `rows` rows move a score by at most `rows` times as much.
    """

    scale: float
    sensitivity: int
    rows: int = 1

    @property
    def epsilon(self) -> float:
        """For one unit added or removed."""
        return 2 * self.rows * self.sensitivity / self.scale
