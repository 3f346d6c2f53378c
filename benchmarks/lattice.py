"""What it costs to keep noise off the low bits: DP-SGD on lattices of 8 to 24 bits, and the exact
noise of tables.

    python -m benchmarks.lattice [--steps 300] [--runs 3] [--cells 100000]

DP-SGD trains the causal model of `specs/adult.yaml` with that spec's noise on one thread, `--steps`
steps of it. On a lattice of b bits rounding moves a clipped sum by at most clip / 2^(b + 1) in L2;
releases use 20. `none` adds the same normals to the unrounded sum, and `torch` is what Opacus does
by default: 32-bit normals of torch, no lattice. Tables compare OpenDP's discrete Gaussian with the
rounded one. Writes results/lattice.csv and results/lattice.png.

The rows are public and the keys fixed, so that all variants of one run draw the same batches and,
but for `torch`, the same normals: what differs is the lattice. Nothing here is a release.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from benchmarks.adult_protocol import split
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes, decode, encode
from synthdp.graph.causal import CausalGraph
from synthdp.model.ancestral import Architecture
from synthdp.model.fit import architecture_for
from synthdp.model.network import CausalVae
from synthdp.model.planning import plan_for
from synthdp.privacy.dpsgd import LATTICE_BITS, DpSgd
from synthdp.privacy.dpsgd.training import Training, Weights
from synthdp.privacy.noise import Floats, Streams
from synthdp.privacy.plan import TRAIN, needed
from synthdp.privacy.table import Table
from synthdp.spec.load.loader import load_spec

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
BITS = (8, 12, 16, 20, 24)
JUDGED_ROWS = 8192
SIGMAS = (1.0, 10.0, 100.0)


@dataclass(frozen=True)
class Watched(Streams):
    """Streams with a lattice of `variant` bits, or none, that keep the time of the noise and the
    error of the rounding.
    """

    variant: str
    torch_noise: torch.Generator
    seconds: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)

    @classmethod
    def keyed(cls, variant: str, run: int) -> Watched:
        """The same streams for all variants of a run."""
        noise, sampling, holdout, latent = (
            np.random.Generator(np.random.Philox(key=4 * run + i)) for i in range(4)
        )
        return cls(
            noise, sampling, holdout, latent, variant, torch.Generator().manual_seed(1000 + run)
        )

    def lattice_gaussian(self, values: Floats, *, sigma: float, spacing: float) -> Floats:
        """As the variant says; `spacing` is that of a release."""
        own = (
            spacing * 2.0 ** (LATTICE_BITS - int(self.variant)) if self.variant.isdecimal() else 0.0
        )
        started = time.process_time()
        if self.variant == "torch":
            drawn = torch.normal(0.0, sigma, values.shape, generator=self.torch_noise)
            noisy: Floats = (torch.from_numpy(values) + drawn).numpy()
        elif self.variant == "none":
            noisy = values + sigma * self.noise.standard_normal(values.shape)
        else:
            noisy = super().lattice_gaussian(values, sigma=sigma, spacing=own)
        self.seconds.append(time.process_time() - started)
        exact = values.astype(np.float64)
        self.errors.append(
            float(np.linalg.norm(np.rint(exact / own) * own - exact)) if own else 0.0
        )
        return noisy


def trainings(steps: int, runs: int) -> Iterator[dict[str, object]]:
    """A row for each variant and run of DP-SGD."""
    torch.set_num_threads(1)
    spec = load_spec(ROOT / "specs" / "adult.yaml")
    domain = Domain.from_spec(spec.columns)
    train, _ = split(ROOT / "specs" / "data" / "adult.csv")
    codes, _ = encode(domain, train.replace("", np.nan))
    planned = needed(plan_for(spec, domain).train, TRAIN)
    settings = replace(planned, steps=steps)
    architecture = architecture_for(spec, domain, CausalGraph.from_spec(spec.graph, domain.names))
    table = Table(
        codes,
        decode(domain, codes, rng=np.random.default_rng(0)),
        np.zeros(len(codes), dtype=bool),
        {},
    )
    one_training(
        replace(settings, steps=5), architecture, table, Watched.keyed("20", 0)
    )  # warms up
    for run in range(runs):
        for variant in ("torch", "none", *map(str, BITS)):
            yield {
                "what": "DP-SGD",
                "noise": variant,
                "run": run,
                **one_training(settings, architecture, table, Watched.keyed(variant, run)),
            }


def one_training(
    settings: DpSgd, architecture: Architecture, table: Table, streams: Watched
) -> dict[str, float]:
    """Train once; what it cost, how well the model fits, and how far rounding moved the sums."""
    module = CausalVae(architecture, generator=torch.Generator().manual_seed(0))
    started = time.process_time()
    weights = Training(settings, module, lambda done, total: None, None).run(table, streams)
    cpu = time.process_time() - started
    return {
        "steps": settings.steps,
        "parameters": sum(w.numel() for w in weights.values()),
        "cpu_s": cpu,
        "step_ms": 1000 * cpu / settings.steps,
        "noise_ms": 1000 * float(np.sum(streams.seconds)) / settings.steps,
        "loss": loss(architecture, weights, table.codes[:JUDGED_ROWS]),
        "error_of_clip": float(np.max(streams.errors)) / settings.clip,
        "error_of_noise": float(np.max(streams.errors)) / settings.noise,
    }


@torch.no_grad()
def loss(architecture: Architecture, weights: Weights, codes: Codes) -> float:
    """Mean negative ELBO in nats, with the same latents each time."""
    module = CausalVae(architecture, generator=torch.Generator().manual_seed(0))
    module.load_state_dict(weights)
    latents = torch.randn(len(codes), module.latent, generator=torch.Generator().manual_seed(1))
    return float(module(torch.from_numpy(codes.astype(np.int64)), latents).mean())


def tables(cells: int, runs: int) -> Iterator[dict[str, object]]:
    """A row for each sampler, scale and run of the noise of tables."""
    counts = np.zeros(cells, dtype=np.int64)
    Streams.fresh().discrete_gaussian(counts[:10], sigma=1.0)  # loads OpenDP
    for run in range(runs):
        for sigma in SIGMAS:
            streams = Streams.fresh()
            for name, draw in {
                "discrete": streams.discrete_gaussian,
                "rounded": streams.rounded_gaussian,
            }.items():
                started = time.process_time()
                noisy = draw(counts, sigma=sigma)
                seconds = time.process_time() - started
                cost = {
                    "cell_us": 1e6 * seconds / cells,
                    "variance_of_sigma2": float(noisy.var()) / sigma**2,
                }
                yield {
                    "what": "table",
                    "noise": name,
                    "run": run,
                    "sigma": sigma,
                    "cells": cells,
                    **cost,
                }


def plot(found: pd.DataFrame, path: Path) -> None:
    """Error, loss and time of DP-SGD by the lattice."""
    from matplotlib.figure import Figure

    from benchmarks import look

    trained = found[found["what"] == "DP-SGD"]
    figure = Figure(figsize=(12, 3.8), layout="constrained")
    error, fit, cost = figure.subplots(1, 3)
    names = ["torch", "none", *map(str, BITS)]
    means = (
        trained.groupby("noise")[["error_of_noise", "loss", "step_ms", "noise_ms"]]
        .mean()
        .loc[names]
    )
    error.plot(BITS, means["error_of_noise"].iloc[2:], "o-")
    error.set(
        yscale="log",
        xlabel="bits of the lattice",
        xticks=BITS,
        title="largest rounding error of a sum",
        ylabel="L2 norm / deviation of the noise",
    )
    for run, group in trained.groupby("run"):
        fit.plot(
            names,
            group.set_index("noise").loc[names, "loss"],
            "o",
            label=f"keys {run}",
            markersize=5,
        )
    fit.set(
        title="loss at the end",
        ylabel="negative ELBO, nats per row",
        xlabel="noise (bits of the lattice)",
    )
    fit.legend()
    cost.bar(
        names, means["step_ms"] - means["noise_ms"], label="the rest of a step", color=look.LINE
    )
    cost.bar(
        names,
        means["noise_ms"],
        bottom=means["step_ms"] - means["noise_ms"],
        label="noise",
        color=look.SYNTHETIC,
    )
    cost.set(title="CPU of a step", ylabel="ms", xlabel="noise (bits of the lattice)")
    cost.set_ylim(0, 1.25 * means["step_ms"].max())
    cost.legend(loc="upper right")
    figure.suptitle(
        f"DP-SGD on Adult, {int(trained['parameters'].iloc[0])} parameters,"
        f" {int(trained['steps'].iloc[0])} steps",
    )
    figure.savefig(path)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--cells", type=int, default=100_000)
    options = parser.parse_args()
    rows = []
    for row in chain(tables(options.cells, options.runs), trainings(options.steps, options.runs)):
        print(row, file=sys.stderr, flush=True)
        rows.append(row)
    found = pd.DataFrame(rows)
    RESULTS.mkdir(exist_ok=True)
    found.to_csv(RESULTS / "lattice.csv", index=False, float_format="%.9g")
    trained = found[found["what"] == "DP-SGD"]
    print(
        trained.groupby("noise", sort=False)[
            ["step_ms", "noise_ms", "loss", "error_of_clip", "error_of_noise"]
        ]
        .mean()
        .round(8)
        .to_string()
    )
    print(
        found[found["what"] == "table"]
        .groupby(["sigma", "noise"], sort=False)[["cell_us", "variance_of_sigma2"]]
        .mean()
        .round(4)
        .to_string()
    )
    plot(found, RESULTS / "lattice.png")


if __name__ == "__main__":
    main()
