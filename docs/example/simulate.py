"""The guides' example table: `python docs/example/simulate.py > docs/example/clinic.csv`. Nobody in
it exists.

Its causes are those of `clinic.yaml`. At the same age, sex and bmi a smoker has 1.5 visits a year
more.
"""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd

ROWS = 5000


def clinic() -> pd.DataFrame:
    """Patients, one a row; `smoker` is not known of every one."""
    rng = np.random.default_rng(20)
    age = rng.integers(18, 91, ROWS)
    sex = rng.choice(["female", "male"], ROWS)
    smokes = rng.random(ROWS) < np.where(sex == "male", 0.4, 0.2)
    bmi = np.clip(rng.normal(23 + 0.05 * age - 1.5 * smokes, 3.5), 15, 50).round(1)
    visits = rng.poisson(
        np.clip(0.04 * (age - 18) + 0.1 * (bmi - 20) + 1.5 * smokes, 0.2, None)
    ).clip(max=30)
    joined = np.datetime64("2015-01-01") + rng.integers(0, 3652, ROWS)
    smoker = np.where(rng.random(ROWS) < 0.05, "n/a", np.where(smokes, "yes", "no"))
    return pd.DataFrame(
        {
            "age": age,
            "sex": sex,
            "smoker": smoker,
            "bmi": bmi,
            "visits per year": visits,
            "joined": joined.astype(str),
        }
    )


if __name__ == "__main__":
    clinic().to_csv(sys.stdout, index=False, lineterminator="\n")
