"""The effect of free care on visits to a doctor in RAND HIE, where plans were drawn at random: is
it found in synthetic rows?

    python -m benchmarks.effects [--runs 10] [--epsilon 1 3]

`causal` is specs/rand-hie.yaml as it is, its graph tested within the budget; `none` is its
non-causal twin, a plain VAE that spends the graph's share on training. Each run is a release of its
own from all rows. An effect is a difference of means, since the plan was randomised; its 95%
interval is the one that an analyst would compute who takes the synthetic rows for real ones. Writes
results/effects.csv and results/effects.png.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from benchmarks.peers_fit.job import Job
from benchmarks.peers_ours import fit
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes, decode, encode
from synthdp.evaluate.effects import Estimate, effect_name, estimate
from synthdp.privacy.noise import fresh_generator
from synthdp.spec.load.loader import load_spec
from synthdp.spec.model import Column, Effect

RESULTS = Path(__file__).parent / "results"
ROWS = Path(__file__).parent.parent / "specs" / "data" / "rand-hie.csv"
DELTA = 1e-6
VARIANTS = {"causal": "given", "none": "none"}  # and the mechanism of `benchmarks.peers_ours`
LABELS = {"causal": "causal", "none": "no graph"}
EFFECTS = (
    Effect(treated="lncoins == 0", outcome="mdvis", adjust=()),
    Effect(treated="lncoins == 0", control="lncoins > 4", outcome="mdvis", adjust=()),
    Effect(
        treated="lncoins == 0", control="lncoins > 3 and lncoins < 3.5", outcome="mdvis", adjust=()
    ),
)
NAMES = (
    "free care against any coinsurance",
    "free care against 95% or more",
    "free care against 25%",
)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 3.0])
    options = parser.parse_args()
    rows = [*real_rows()]
    for epsilon in options.epsilon:
        for variant in VARIANTS:
            for run in range(options.runs):
                rows += one_run(variant, epsilon, run)
                print(rows[-len(EFFECTS)], file=sys.stderr, flush=True)
                table = pd.DataFrame(rows)
                table.to_csv(RESULTS / "effects.csv", index=False, float_format="%.5g")
    plot(table, RESULTS / "effects.png")
    print(summary(table).to_string(index=False))


def real_rows() -> Iterator[dict[str, object]]:
    """The effects on the real rows."""
    table = pd.read_csv(ROWS, dtype=str)
    domain = Domain.from_spec(_columns())
    yield from _rows("real rows", 0.0, 0, table, encode(domain, table)[0], domain, cpu_s=0.0)


def one_run(variant: str, epsilon: float, run: int) -> list[dict[str, object]]:
    """The effects on one release."""
    table, started = pd.read_csv(ROWS, dtype=str), time.process_time()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table.to_csv(folder / "values.csv", index=False)
        domain = Domain.from_spec(_columns())
        levels = dict(zip(domain.names, domain.sizes, strict=True))
        codes = fit(Job("rand-hie", levels, epsilon, DELTA, VARIANTS[variant], folder), table)[
            0
        ].to_numpy(dtype="uint16")
    synthetic = decode(domain, codes, rng=fresh_generator())
    return [
        *_rows(variant, epsilon, run, synthetic, codes, domain, cpu_s=time.process_time() - started)
    ]


def _columns() -> dict[str, Column]:
    return load_spec(ROWS.parent.parent / "rand-hie.yaml").columns


def _rows(
    variant: str,
    epsilon: float,
    run: int,
    table: pd.DataFrame,
    codes: Codes,
    domain: Domain,
    *,
    cpu_s: float,
) -> Iterator[dict[str, object]]:
    columns = _columns()
    for name, effect in zip(NAMES, EFFECTS, strict=True):
        found = estimate(table, codes, effect, (), columns=columns, domain=domain)
        if found is None:
            raise ValueError(f"{effect_name(effect)}: an arm has too few rows")
        where: dict[str, object] = {
            "variant": variant,
            "epsilon": epsilon,
            "run": run,
            "effect": name,
        }
        yield where | {
            "estimate": found.value,
            "low": found.low,
            "high": found.high,
            "error": found.error,
            "cpu_s": cpu_s,
        }


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """By variant, epsilon and effect: mean estimate, bias and root mean square error against the
    real rows, and coverage of their estimate.
    """
    real = table[table["variant"] == "real rows"].set_index("effect")
    found = []
    for (variant, epsilon, effect), group in table[table["variant"] != "real rows"].groupby(
        ["variant", "epsilon", "effect"], sort=False
    ):
        truth = Estimate(float(real.loc[effect, "estimate"]), float(real.loc[effect, "error"]))
        covered = ((group["low"] <= truth.value) & (truth.value <= group["high"])).sum()
        off = group["estimate"] - truth.value
        where = {
            "variant": variant,
            "epsilon": epsilon,
            "effect": effect,
            "real": f"{truth.value:.2f} ({truth.low:.2f} to {truth.high:.2f})",
        }
        found.append(
            where
            | {
                "mean": group["estimate"].mean(),
                "bias": off.mean(),
                "spread": group["estimate"].std(),
                "rmse": float((off**2).mean() ** 0.5),
            }
            | {"covered": f"{covered} of {len(group)}"}
        )
    return pd.DataFrame(found).round(3)


def plot(table: pd.DataFrame, path: Path) -> None:
    """Each release's estimate with its interval, beside the real one's band."""
    from matplotlib.figure import Figure

    from benchmarks import look

    groups = [(v, e) for e in sorted(set(table["epsilon"]) - {0.0}) for v in VARIANTS]
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    for axes, effect in zip(figure.subplots(1, len(NAMES), sharey=True), NAMES, strict=True):
        own = table[table["effect"] == effect]
        truth = own[own["variant"] == "real rows"].iloc[0]
        axes.axhspan(truth["low"], truth["high"], color=look.REAL, alpha=0.2, linewidth=0)
        axes.axhline(truth["estimate"], color=look.REAL, label="real rows, 95% interval")
        axes.axhline(0, color=look.GREY, linewidth=0.8, linestyle=":")
        for k, (variant, epsilon) in enumerate(groups):
            runs = own[(own["variant"] == variant) & (own["epsilon"] == epsilon)].reset_index(
                drop=True
            )
            x = k + (runs.index - (len(runs) - 1) / 2) * 0.07
            half = [runs["estimate"] - runs["low"], runs["high"] - runs["estimate"]]
            axes.errorbar(
                x,
                runs["estimate"],
                yerr=half,
                fmt="o",
                markersize=3,
                linewidth=1,
                color=look.SYNTHETIC if variant == "causal" else look.GREY,
            )
        axes.set_xticks(
            range(len(groups)), [f"{LABELS[v]}\nepsilon {e:g}" for v, e in groups], fontsize=8
        )
        axes.set_title(effect)
        axes.grid(axis="x", visible=False)
    figure.axes[0].set_ylabel("more visits in a year")
    figure.axes[0].legend()
    figure.suptitle(
        "RAND HIE: effect of the randomised plan, in ten releases of each kind (dots: one release,"
        " 95% interval of its rows)"
    )
    figure.savefig(path)


if __name__ == "__main__":
    main()
