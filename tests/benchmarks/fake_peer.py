"""A peer that needs nothing: copies the rows, or misbehaves as its mechanism says. Run as a fit is:
`python -m ... FOLDER`.
"""

import sys
import time

import pandas as pd

from benchmarks.peers_fit.job import Job, run


def fit(job: Job, rows: pd.DataFrame) -> tuple[pd.DataFrame, float]:
    if job.mechanism == "hangs":
        time.sleep(60)
    while job.mechanism == "spins":
        pass
    if job.mechanism == "fails":
        print("some chatter", file=sys.stderr)
        raise ValueError("no such thing")
    if job.mechanism == "strays":
        rows = rows.astype(float)
        rows.iloc[0], rows.iloc[1], rows.iloc[2] = 1e9, -3.0, float("nan")
    return rows, job.epsilon / 2


if __name__ == "__main__":
    run(fit)
