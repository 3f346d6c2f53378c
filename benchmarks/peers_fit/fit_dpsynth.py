"""google/dpsynth 0.3.0: SWIFT on levels, with 1,000 steps instead of 10,000 and cliques of at most
200,000 cells instead of ten million, so that a fit ends; all pairs are its workload.

The total is (epsilon, delta) for everything, its own count of rows among it.
"""

from __future__ import annotations

import dp_accounting
import numpy as np
import pandas as pd
from dpsynth import (  # type: ignore[import-not-found]
    CategoricalAttribute,
    TabularConfig,
    discrete_mechanisms,
)

from benchmarks.peers_fit.job import Job, run


def fit(job: Job, rows: pd.DataFrame) -> tuple[pd.DataFrame, float]:
    """Fit and sample."""
    domains = {
        name: CategoricalAttribute(possible_values=list(range(n)), out_of_domain_index=0)
        for name, n in job.levels.items()
    }
    swift = discrete_mechanisms.SWIFTConfig(pgm_iters=1000, max_clique_size=2e5)
    config = TabularConfig(domains=domains, discrete_mechanism=swift)
    # Its own `calibrate` begins at no budget at all, which it refuses.
    rho = dp_accounting.calibrate_dp_mechanism(
        dp_accounting.rdp.RdpAccountant,
        lambda rho: config.configure(zcdp_rho=rho, delta=job.delta).dp_event,
        job.epsilon,
        job.delta,
        dp_accounting.LowerEndpointAndGuess(1e-4, 0.1),
    )
    mechanism = config.configure(zcdp_rho=rho, delta=job.delta)
    return mechanism(np.random.default_rng(), rows).synthetic_data, job.epsilon


if __name__ == "__main__":
    run(fit)
