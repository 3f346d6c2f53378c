"""The synthetic table of a run: drawn once, scored where the spec asks for it, and never redrawn
after it was published.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from synthdp.bundle.metadata.datapackage import CSV_NAME
from synthdp.data.encoding import Codes, cleaned, encode
from synthdp.evaluate.dp_scores import DpScores, dp_scores_of
from synthdp.evaluate.scorecard import score_table
from synthdp.model.constraints import Constraints
from synthdp.model.fit import Fitted
from synthdp.model.sampling import sample
from synthdp.privacy.noise import fresh_generator
from synthdp.privacy.private import Released
from synthdp.privacy.session import Session
from synthdp.progress import Advance
from synthdp.release.job import Job


@dataclass(frozen=True)
class DrawnTable:
    """The synthetic table as levels and as values, and its DP scores where the spec asks for them.

    `codes` is `[rows, columns]`; `synthetic` has the same rows, without the derived columns.
    """

    codes: Released[Codes]
    synthetic: Released[pd.DataFrame]
    constraints: Constraints
    scores: Released[DpScores] | None


def draw(session: Session, job: Job, fitted: Fitted, progress: Advance) -> DrawnTable:
    """Sample the table, score it where the spec asks for DP scores, and decode it.

    A run that has published its table is only to be judged: its table is read in the bundle.
    """
    constraints = Constraints.from_spec(job.spec, job.domain)
    if job.published:
        synthetic = fitted.tables.map(lambda _: _read(job))
        codes = synthetic.map(lambda frame: encode(job.domain, frame)[0])
        codes, scores = disclose(session, job, fitted, codes)
        return DrawnTable(codes, synthetic, constraints, scores)
    codes = sample(
        fitted,
        job.spec,
        rng=fresh_generator(),
        progress=progress,
        begin=partial(progress, 0, 0),
    )
    codes, scores = disclose(session, job, fitted, codes)
    synthetic = codes.map(lambda c: constraints.decode(c, rng=fresh_generator()))
    return DrawnTable(codes, synthetic, constraints, scores)


def disclose(
    session: Session, job: Job, fitted: Fitted, codes: Released[Codes]
) -> tuple[Released[Codes], Released[DpScores] | None]:
    """The DP scores, where the spec asks for them, and the table that they describe.

    The scores are paid for and published.
    """
    if not job.spec.evaluation.dp_scores:
        return codes, None
    scored = score_table(session, job.spec, job.domain, codes)
    scores = scored.zip(fitted.tables).map(lambda pair: dp_scores_of(job.spec, job.domain, *pair))
    # A resumed run drew another table than the one that was scored before it was interrupted: what
    # was scored is published.
    same = np.array_equal(codes.value, scored.value.codes)
    return (codes if same else scored.map(lambda s: s.codes)), scores


def _read(job: Job) -> pd.DataFrame:
    """The values of the published table, as `Constraints.decode` gave them."""
    domain = job.domain
    text = pd.read_csv(job.bundle / CSV_NAME, dtype=str, keep_default_na=False)
    text = text[list(domain.names)]
    return cleaned(domain.columns, encode(domain, text.mask(text == ""))[1])
