"""What a training step of several processes takes, beside the same step in one.

    torchrun --standalone --nproc-per-node=2 -m benchmarks.processes [--steps 100] [--rounds 4] [--batch ROWS]

The network and the rows of `specs/adult.yaml`; with `--batch` at another expected batch, and a rate that goes with it. Rounds of one
process and of all alternate, so that both see the same machine; the helpers are idle in rounds of one. Prints wall time and CPU time of
the first process for a step, from the median round, and what a helper took in all. Nothing here is a release.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.step_cost import ROOT, WARM_UP, table_of
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.graph.causal import CausalGraph
from synthdp.model.pipeline import causal_vae, plan_for
from synthdp.privacy.dpsgd import _SharedTrainer, _Trainer
from synthdp.privacy.dpsgd_settings import DpSgd
from synthdp.privacy.noise import Streams
from synthdp.privacy.processes import Helpers
from synthdp.spec.load import load_spec
from synthdp.torchrun import together

Step = Callable[[Codes, int], None]


def timed(step: Step, codes: Codes, steps: int) -> tuple[float, float]:
    """Wall and CPU seconds of a step."""
    started = time.perf_counter(), time.process_time()
    for number in range(steps):
        step(codes, number)
    return (time.perf_counter() - started[0]) / steps, (time.process_time() - started[1]) / steps


def compare(helpers: Helpers, *, steps: int, rounds: int, batch: int | None) -> str:
    """Both kinds of step, by turns."""
    release = load_spec(ROOT / "specs" / "adult.yaml")
    domain = Domain.from_spec(release.columns)
    planned = plan_for(release, domain).find("train")
    assert planned is not None and isinstance(planned.mechanism, DpSgd)
    settings = planned.mechanism
    if batch:
        settings = replace(settings, rate=settings.rate * batch / settings.expected_batch, expected_batch=float(batch))
    graph, codes = CausalGraph.from_spec(release.graph, domain.names), table_of(release, domain)
    kinds: dict[str, Step] = {
        "one process": _Trainer(settings, causal_vae(release, domain, graph), Streams.fresh()).step,
        f"{helpers.processes} processes": _SharedTrainer(settings, causal_vae(release, domain, graph), Streams.fresh(), helpers=helpers).step,
    }
    found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    warnings.filterwarnings("ignore", message="Full backward hook is firing")  # as in `dpsgd.Training.run`
    for step in kinds.values():
        timed(step, codes, WARM_UP)
    for _ in range(rounds):
        for kind, step in kinds.items():
            found[kind].append(timed(step, codes, steps))
    lines = [f"expected batch {settings.expected_batch:g}, {rounds} rounds of {steps} steps each"]
    for kind, runs in found.items():
        wall, cpu = (1000 * statistics.median(values) for values in zip(*runs, strict=True))
        lines.append(f"{kind}: {wall:.1f} ms, of which {cpu:.1f} CPU ms in the first")
    return "\n".join(lines)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--batch", type=int)
    options = parser.parse_args()
    torch.set_num_threads(1)

    def command(helpers: Helpers | None) -> str:
        if helpers is None:
            raise SystemExit(f"start it with torchrun, see {Path(__file__).name}")
        return compare(helpers, steps=options.steps, rounds=options.rounds, batch=options.batch)

    text = together(command)
    print(text if text else f"the helper took {time.process_time():.1f} CPU seconds, its start included")


if __name__ == "__main__":
    main()
