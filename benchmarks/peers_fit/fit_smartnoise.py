"""smartnoise-synth: MST on levels, with its defaults.

Its label transformer learns the levels that occur from the rows; it is fitted here on made-up rows
that hold every public level instead, so that nothing is spent on preprocessing and nothing is taken
from the rows for free. `rows` is told to it exactly.
"""

from __future__ import annotations

import pandas as pd
from snsynth import Synthesizer  # type: ignore[import-not-found]
from snsynth.transform import LabelTransformer, TableTransformer  # type: ignore[import-not-found]

from benchmarks.peers_fit.job import Job, run


def fit(job: Job, rows: pd.DataFrame) -> tuple[pd.DataFrame, float]:
    """Fit and sample."""
    transformer = TableTransformer([LabelTransformer(nullable=False) for _ in job.levels])
    transformer.fit(
        [tuple(min(i, n - 1) for n in job.levels.values()) for i in range(max(job.levels.values()))]
    )
    synthesizer = Synthesizer.create(job.mechanism, epsilon=job.epsilon, delta=job.delta)
    synthesizer.fit(rows, transformer=transformer, preprocessor_eps=0.0)
    return pd.DataFrame(synthesizer.sample(len(rows))), synthesizer.epsilon


if __name__ == "__main__":
    run(fit)
