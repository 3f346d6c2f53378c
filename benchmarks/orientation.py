"""Cause or effect: private additive noise models on the Tuebingen pairs and on simulated pairs of the model itself.

    python -m benchmarks.orientation [--repetitions 3] [--most-rows 8000]

The columns of each pair are swapped at random, so that a guess is right half the time. Each score is released alone, the whole of
(epsilon, 1e-5) under add/remove planned for it and charged to a rehearsal; `inf` is the same code with next to no noise. Ranges
are taken from the pairs, which are public. Intervals are Wilson's at 95% over pairs, repetitions averaged first.
Writes results/orientation.csv and results/orientation.png.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import norm

from synthdp.data.domain import ColumnDomain, Domain
from synthdp.graph.orientation import PURPOSE, orient
from synthdp.privacy.anm import SCORES, OrientationBudget, Score
from synthdp.privacy.plan import Plan, Spend, make_search_plan
from synthdp.privacy.session import Rehearsal

Floats = npt.NDArray[np.float64]

HERE = Path(__file__).parent
EPSILONS, DELTA = (0.1, 1.0, 2.0, math.inf), 1e-5
ALMOST_NO_NOISE = 1e-4  # noise multiplier of the cells without privacy
SIMULATED_PAIRS, SIMULATED_ROWS = 40, 8000
CURVES = (lambda x: x**3, np.tanh, lambda x: np.exp(x) / 3, lambda x: x + 0.6 * np.sin(3 * x), lambda x: np.abs(x) ** 1.5)


def tuebingen(most_rows: int) -> list[Floats]:
    """Pairs `[rows, 2]`, the cause first."""
    table = pd.read_csv(HERE / "data" / "tuebingen_pairs.csv")
    return [np.column_stack([np.array(row[side].split(), dtype=float)[:most_rows] for side in ("A", "B")]) for _, row in table.iterrows()]


def simulated() -> list[Floats]:
    """Pairs that follow the model: a curve of a uniform or normal cause plus uniform noise."""
    pairs = []
    for seed in range(SIMULATED_PAIRS):
        rng = np.random.default_rng([seed, 5])
        cause = rng.uniform(-1.5, 1.5, SIMULATED_ROWS) if seed % 2 else rng.normal(0, 0.7, SIMULATED_ROWS)
        curve = CURVES[seed % len(CURVES)](cause)
        pairs.append(np.column_stack([cause, curve + 0.5 * curve.std() * rng.uniform(-1.7, 1.7, SIMULATED_ROWS)]))
    return pairs


def domain_of(values: Floats) -> Domain:
    """Two numeric columns of the pair's own range; bins play no part."""
    ends = [(float(v.min()), float(v.max()) + 1e-9) for v in values.T]
    return Domain(
        tuple(ColumnDomain(n, "number", ("all",), False, edges=(a,), stop=b, lower=a, upper=b) for n, (a, b) in zip("xy", ends, strict=True))
    )


@cache
def plan_of(epsilon: float, score: Score) -> Plan:
    """Everything on one orientation; without privacy a hand-made plan of next to no noise."""
    if math.isinf(epsilon):
        return Plan(epsilon, DELTA, "add_remove", 1, (Spend(PURPOSE, OrientationBudget(Domain(()), ALMOST_NO_NOISE, (score,))),))
    return make_search_plan({"orient": lambda mu: OrientationBudget(Domain(()), 1 / mu, (score,))}, epsilon=epsilon, delta=DELTA)


def right(values: Floats, score: Score, epsilon: float, rng: np.random.Generator) -> tuple[bool, float]:
    """Whether the cause, the first column, was found, and the probability that was told."""
    swapped = bool(rng.random() < 0.5)
    frame = pd.DataFrame(values[:, ::-1] if swapped else values, columns=["x", "y"])
    domain = domain_of(frame.to_numpy())
    plan = plan_of(epsilon, score)
    own = replace(plan, spends=tuple(replace(s, mechanism=replace(s.mechanism, domain=domain)) for s in plan.spends))  # type: ignore[type-var]
    releaser = Rehearsal(np.zeros((len(frame), 2), dtype=np.uint16), domain, own, frame=frame)
    [[found]] = orient(releaser, [("x", "y")]).value
    return (found.cause == "y") is swapped, found.probability


def cells(repetitions: int, most_rows: int) -> pd.DataFrame:
    """Accuracy by set of pairs, score and epsilon."""
    table = []
    for name, pairs in (("tuebingen", tuebingen(most_rows)), ("simulated", simulated())):
        for score in SCORES:
            for epsilon in EPSILONS:
                rng = np.random.default_rng(round(10 * min(epsilon, 1e3)))
                found = np.array([[right(pair, score, epsilon, rng) for _ in range(repetitions)] for pair in pairs])
                accuracy, told = found.mean((0, 1))
                low, high = wilson(accuracy, len(pairs))
                row = {"pairs": name, "count": len(pairs), "score": score, "epsilon": epsilon, "repetitions": repetitions}
                table.append(row | {"accuracy": accuracy, "low": low, "high": high, "mean_probability": told})
    return pd.DataFrame(table)


def wilson(share: float, count: int) -> tuple[float, float]:
    """95% interval of a share (Wilson 1927)."""
    z = float(norm.ppf(0.975))
    centre, spread = share + z**2 / (2 * count), z * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return (centre - spread) / (1 + z**2 / count), (centre + spread) / (1 + z**2 / count)


def plot(table: pd.DataFrame, path: Path) -> None:
    """Accuracy with intervals, one panel for each set of pairs."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 4.5), sharey=True)
    for axis, (name, own) in zip(axes, table.groupby("pairs", sort=False), strict=True):
        for i, (score, one) in enumerate(own.groupby("score", sort=False)):
            at = np.arange(len(one)) + 0.08 * (i - 1.5)
            axis.errorbar(at, one.accuracy, yerr=[one.accuracy - one.low, one.high - one.accuracy], marker="o", capsize=3, label=str(score))
        axis.axhline(0.5, color="grey", lw=0.8, ls=":")
        axis.set(xlabel="epsilon", title=f"{name}, {own['count'].iloc[0]} pairs", ylim=(0, 1.05))
        axis.set_xticks(range(len(EPSILONS)), ["no noise" if math.isinf(e) else f"{e:g}" for e in EPSILONS])
    axes[0].set_ylabel("share of right directions")
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    """Run, write, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--most-rows", type=int, default=8000)
    arguments = parser.parse_args()
    table = cells(arguments.repetitions, arguments.most_rows).round(4)
    table.to_csv(HERE / "results" / "orientation.csv", index=False)
    plot(table, HERE / "results" / "orientation.png")
    print(table.to_string(index=False))


if __name__ == "__main__":
    main()
