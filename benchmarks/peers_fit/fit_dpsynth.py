"""google/dpsynth: SWIFT on levels. Written from the documentation of the pinned commit
(docs/mechanism_api.md), whose source could
not be had where this was written: this script has never run.
"""

from __future__ import annotations

import dpsynth  # type: ignore[import-not-found]
import numpy as np
import pandas as pd

from benchmarks.peers_fit.job import Job, run


def fit(job: Job, rows: pd.DataFrame) -> tuple[pd.DataFrame, float]:
    """Fit and sample."""
    schema = dpsynth.Schema(
        {
            name: dpsynth.CategoricalAttribute(categories=list(range(n)))
            for name, n in job.levels.items()
        }
    )
    config = dpsynth.TabularConfig(discrete_mechanism=dpsynth.discrete_mechanisms.SWIFTConfig())
    calibrated = config.calibrate(schema, epsilon=job.epsilon, delta=job.delta)
    return calibrated(np.random.default_rng(), rows).synthetic_data, job.epsilon


if __name__ == "__main__":
    run(fit)
