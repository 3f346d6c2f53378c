"""Bundles whose program did not run as stated, though all in them fits together: without noise, or
with rows that are not the model's.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import yaml

import synthdp.release.job
from synthdp.data import Codes, Domain, encode_column
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.noise import Streams
from synthdp.verify import VERIFY, inspect_bundle, noise_of, rows

pytestmark = pytest.mark.check

ROWS = 4000
LARGE: dict[str, Any] = {
    "dataset": {"rows": {"kind": "approximate", "value": ROWS}},
    "sampling": {"rows": ROWS, "oversample": 3},
    "evaluation": {
        "enabled": False,
        "holdout": 0.0,
        "targets": [],
        "classifiers": ["logistic"],
        "triples": 4,
    },
    "synthesizer": {"steps": 20, "batch": 256},
}
SHARES = {
    "privacy": {
        "shares": {"measure": 0.2, "pairs": 0.2, "train": 0.6},
        "pairs": [["sex", "smoker"], ["grade", "weight"]],
    }
}
WAYS: dict[str, dict[str, Any]] = {
    "chosen rows": {},
    "independent rows": {"sampling": {"rows": ROWS, "rake": False}},
    "raked rows": {"sampling": {"rows": ROWS, "balance": False}},
    "one draw for each row": {"sampling": {"rows": ROWS, "oversample": 1}},
    "measured pairs": SHARES,
    "measured pairs with much noise": {"privacy": {**SHARES["privacy"], "epsilon": 0.1}},
    "columns that are drawn again": {"sampling": {"rows": ROWS, "even": ["smoker", "visits"]}},
    "rows that are held to a constraint": {"constraints": ["weight > 60 or visits < 5"]},
    "few rows": {"sampling": {"rows": 50}},
}


def table(count: int) -> pd.DataFrame:
    """A table in which columns go together that the spec's graph does not link."""
    rng = np.random.default_rng(3)
    sex, place = rng.integers(0, 2, count), rng.integers(0, 3, count)
    return pd.DataFrame(
        {
            "sex": np.array(["female", "male"])[sex],
            "grade": np.array(["low", "middle", "high"])[place],
            "smoker": np.array(["never", "yes"])[sex],
            "visits": rng.integers(0, 9, count),
            "weight": np.round(40 + 20 * place + rng.uniform(0, 20, count), 1),
            "joined": (np.datetime64("2020-01-01") + rng.integers(0, 1400, count)).astype(str),
        }
    )


def real_rows(monkeypatch: pytest.MonkeyPatch, frame: pd.DataFrame) -> None:
    """The release draws nothing, and gives out the first rows of the table."""
    drawn = synthdp.release.job.sample

    def stolen(fitted: Any, release: Any, **rest: Any) -> Any:
        domain = Domain.from_spec(release.columns)
        codes: Codes = np.column_stack(
            [encode_column(c, frame[c.name]).codes for c in domain.columns]
        ).astype(np.uint16)
        return drawn(fitted, release, **rest).map(lambda made: codes[: len(made)])

    monkeypatch.setattr(synthdp.release.job, "sample", stolen)


def test_a_bundle_of_real_rows_without_noise_is_refused(
    tiny: Any, synthdp: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forgery: a secret in each row, epsilon .1, and a program that adds nothing."""
    count = 60
    frame = pd.DataFrame(
        {
            "secret": [f"s{i}" for i in range(count)],
            "sex": ["female"] * 32 + ["male"] * 28,
            "grade": ["low"] * 19 + ["middle"] * 22 + ["high"] * 19,
        }
    )
    columns = {
        "secret": {"type": "categorical", "categories": [f"s{i}" for i in range(count)]},
        "sex": {"type": "categorical", "categories": ["female", "male"]},
        "grade": {"type": "ordinal", "categories": ["low", "middle", "high"]},
    }
    tiny.write(
        frame,
        dataset={"rows": {"kind": "public", "value": count}},
        privacy={"epsilon": 0.1, "shares": {"measure": 0.1, "train": 0.9}},
        graph={"mode": "given", "edges": ["sex -> grade"]},
        sampling={"rows": count},
        synthesizer={"batch": 20},
        evaluation={"enabled": False, "holdout": 0.0, "targets": []},
    )

    spec = yaml.safe_load(tiny.spec.read_text())
    tiny.spec.write_text(yaml.safe_dump({**spec, "columns": columns}, sort_keys=False))
    monkeypatch.setattr(
        Streams, "discrete_gaussian", lambda self, counts, *, sigma: np.array(counts)
    )
    real_rows(monkeypatch, frame)
    tiny.release()
    assert set(pd.read_csv(tiny.bundle / "synthetic.csv")["secret"]) == set(frame["secret"])
    told = synthdp("verify", tiny.bundle)
    assert (
        told.code == 6
        and "its tables agree better than noise of the size that is claimed lets them" in told.err
    ), told.err


def test_real_rows_that_are_not_the_models_are_refused(
    tiny: Any, synthdp: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all noise that was paid for: the model does not know that weight goes with grade."""
    frame = table(ROWS)
    tiny.write(frame, **LARGE)
    real_rows(monkeypatch, frame)
    tiny.release()
    told = synthdp("verify", tiny.bundle)
    assert (
        told.code == 6
        and "synthetic.csv: its rows are not of the model: 'grade' and 'weight' differ from it by"
        in told.err
    ), told.err


@pytest.mark.parametrize(
    "way",
    ["chosen rows", *(pytest.param(w, marks=pytest.mark.slow) for w in WAYS if w != "chosen rows")],
)
def test_honest_rows_are_far_from_the_limit(
    tiny: Any, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Half of what is allowed was never reached; the proof, for independent rows, gives one false
    alarm in a million bundles.
    """
    shares: list[float] = []
    real = rows._allowed

    def noted(own: Any, model: Any, *rest: Any, **more: Any) -> float:
        limit = real(own, model, *rest, **more)
        shares.append(float(np.abs(own - model).sum() / 2 / limit))
        return limit

    monkeypatch.setattr(rows, "_allowed", noted)
    changes: Mapping[str, Any] = {**LARGE, **WAYS[way]}
    tiny.write(table(ROWS), **changes).release()
    report = inspect_bundle(tiny.bundle)
    assert report.ok and {"noise", "rows of the model"} <= {*report.checks}, report.problems
    assert len(shares) == 15 and (max(shares) < 0.75 or "pairs" in way)


def noise(rng: np.random.Generator, sigma: float, factor: float) -> list[NoisyTable]:
    """Four one-way tables of the same 300 rows."""
    counts: list[npt.NDArray[np.float64]] = [
        rng.multinomial(300, np.full(k, 1 / k)).astype(float) for k in (2, 3, 4, 5)
    ]
    return [
        NoisyTable((f"c{i}",), np.round(c + rng.normal(scale=factor * sigma, size=c.shape)), sigma)
        for i, c in enumerate(counts)
    ]


@pytest.mark.parametrize("sigma", [1.0, 3.0, 30.0])
def test_equal_totals_are_no_proof_where_whole_numbers_are_equal_by_chance(sigma: float) -> None:
    """At a level of one in ten, so that an alarm too many shows: 500 draws have 25 of each kind on
    average at most, and 60 with chance 1e-9.
    """
    rng = np.random.default_rng(4)
    found = [n for _ in range(500) if (n := noise_of(noise(rng, sigma, 1.0), false_alarms=0.1))]
    assert len(found) == 500
    assert max(sum(n.too_little for n in found), sum(n.too_much for n in found)) <= 60


def test_what_is_without_noise_is_seen_where_it_can_be() -> None:
    rng = np.random.default_rng(5)
    none, weak = (
        noise_of(noise(rng, sigma, 0.0), false_alarms=VERIFY.false_alarms) for sigma in (200.0, 2.0)
    )
    assert none is not None and none.too_little and weak is not None and not weak.too_little
    thrice = noise_of(noise(rng, 200.0, 10.0), false_alarms=VERIFY.false_alarms)
    assert thrice is not None and thrice.too_much
