"""dpmm: MST and AIM (Mahiou et al. 2025; McKenna et al. 2021, 2022) on levels, without its own
preprocessing.

`disable_processing` with the public levels as domain: no bounds are looked for, so that `epsilon`
is all that is spent (its `proc_epsilon` would come on top). One job: no pool of processes.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
from dpmm.pipelines import AIMPipeline, MSTPipeline  # type: ignore[import-not-found]

from benchmarks.peers_fit.job import Job, run

# MST: the defaults. AIM: its defaults (1000 iterations in each of 16 rounds a column, models of 80
# MB) take hours, and the pipeline's own default lifts the bound on models; 150 iterations and 8 MB
# end within minutes on Adult.
SETTINGS: dict[str, tuple[Any, dict[str, Any]]] = {
    "mst": (MSTPipeline, {}),
    "aim": (AIMPipeline, {"max_model_size": 8, "gen_kwargs": {"n_iters": 150}}),
}


def fit(job: Job, rows: pd.DataFrame) -> tuple[pd.DataFrame, float]:
    """Fit and sample."""
    pipeline, settings = SETTINGS[job.mechanism]
    model = pipeline(
        epsilon=job.epsilon, delta=job.delta, disable_processing=True, n_jobs=1, **settings
    )
    model.fit(rows, domain=job.levels)
    return model.generate(n_records=len(rows)), job.epsilon


if __name__ == "__main__":
    run(fit)
