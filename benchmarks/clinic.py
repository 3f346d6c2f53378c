"""A simulated clinic: persons with ordered visits, made for `benchmarks.visits` (CC0).

Sex, region, smoking, birth; a first visit in 2015 to 2019, then another after 7 to 365 days, sooner
the worse the stage and the frailty, which no table has. The stage depends on the one before, on the
drug before and on smoking; pressure on that before, the stage and the drug before; the drug on
pressure, stage, the drug before and the region. After a visit: death, by stage and age; dropping
out; the end of the study, 2024-12-31; or twelve visits. Nothing is confounded by what is not there
but for the gaps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

EPOCH = np.datetime64("2015-01-01")
STUDY_ENDS = int((np.datetime64("2024-12-31") - EPOCH).astype(int))
MOST = 12
Numbers = npt.NDArray[Any]


def clinic(persons: int, *, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Persons, and their visits."""
    rng = np.random.default_rng(seed)
    sex, region = rng.integers(0, 2, persons), rng.choice(5, persons, p=[0.3, 0.25, 0.2, 0.15, 0.1])
    age = np.clip(rng.normal(58 + 3 * (region == 4), 15, persons), 20, 90)
    older = age - 50
    smoker = _picked(rng, np.full(persons, 0.8), 0.02 * older, 0.5 * sex - 0.01 * older)
    smokes = smoker == 2
    day, frail = rng.integers(0, 5 * 365, persons), rng.normal(0, 0.4, persons)
    birth = day - (age * 365.25).astype(int)
    stage = _picked(
        rng,
        np.ones(persons),
        0.03 * older + 0.3 * smokes,
        0.04 * older - 0.8 + 0.5 * smokes,
        0.04 * older - 2 + 0.6 * smokes,
    )
    pressure = 128 + 0.25 * older + 4 * stage + 4 * sex + rng.normal(0, 12, persons)
    drug, alive, death = np.zeros(persons, int), np.ones(persons, bool), np.full(persons, -1)
    visits = []
    for number in range(MOST):
        if number:
            levels = np.arange(4)[None, :]
            worse = (levels > stage[:, None]) * (0.3 * smokes + 0.015 * (age - 58) - 0.8 * drug)[
                :, None
            ]
            stage = _picked(rng, *(worse - 1.6 * np.abs(levels - stage[:, None])).T)
            pressure = 52 + 0.6 * pressure + 4 * stage - 8 * drug + rng.normal(0, 9, persons)
        need = 0.05 * (pressure - 135) + 0.5 * stage
        drug = _flips(rng, need - 1.6 + 1.8 * drug - 0.4 * (region == 4))
        ward = _picked(rng, np.ones(persons), 0.5 * stage, 0.7 * stage - 1 + 0.01 * (age - 58))
        admitted = _flips(rng, 0.03 * (pressure - 130) + 0.6 * stage - 0.7 * drug - 3.2)
        seen = np.clip(np.round(pressure), 80, 220).astype(int)
        shown = np.flatnonzero(alive)
        visits.append(
            np.stack(
                [a[shown] for a in (np.arange(persons), day, stage, seen, drug, ward, admitted)], 1
            )
        )
        gap = np.exp(rng.normal(5.1 - 0.25 * stage - frail, 0.5, persons)).clip(7, 365).astype(int)
        risk = 0.7 * stage + 0.04 * (age - 58) + 0.25 * sex + 0.8 * admitted - 4.9
        dies, lost = _flips(rng, risk) == 1, 0.5 * (region == 3) - 0.5 * drug + 0.3 * smokes - 2.5
        late, drops = day + gap > STUDY_ENDS, _flips(rng, lost) == 1
        gone = alive & dies & ~late
        death[gone] = (day + np.maximum(gap // 2, 1))[gone]
        alive &= ~dies & ~drops & ~late
        day = day + gap
    return _tables(rng, sex, birth, region, smoker, death, np.concatenate(visits))


def _picked(rng: np.random.Generator, *logits: Numbers) -> Numbers:
    """A level a row, by logits of each level."""
    odds = np.stack(logits, 1)
    picked: Numbers = (odds + rng.gumbel(size=odds.shape)).argmax(1)
    return picked


def _flips(rng: np.random.Generator, logits: Numbers) -> Numbers:
    """1 with these logits, else 0."""
    flips: Numbers = (rng.random(len(logits)) < 1 / (1 + np.exp(-logits))).astype(int)
    return flips


def _tables(
    rng: np.random.Generator,
    sex: Numbers,
    birth: Numbers,
    region: Numbers,
    smoker: Numbers,
    death: Numbers,
    visits: Numbers,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    def date(days: Numbers) -> Numbers:
        dates: Numbers = (EPOCH + days.astype("timedelta64[D]")).astype(str)
        return dates

    ids = np.array([f"p{i:05d}" for i in rng.permutation(len(sex))])
    persons = {
        "person_id": ids,
        "sex": np.array(["F", "M"])[sex],
        "birth": date(birth),
        "region": np.array(list("NSEWC"))[region],
        "smoker": np.array(["never", "former", "current"])[smoker],
        "death": np.where(death < 0, "", date(np.maximum(death, 0))),
    }
    owner, day, stage, pressure, drug, ward, admitted = visits.T
    rows = {
        "person_id": ids[owner],
        "date": date(day),
        "stage": stage,
        "bp": pressure,
        "drug": drug,
        "ward": np.array(["gp", "clinic", "emergency"])[ward],
        "admitted": admitted,
    }
    return pd.DataFrame(persons), pd.DataFrame(rows).sort_values(["person_id", "date"])
