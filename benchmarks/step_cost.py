"""What privacy costs a training step: DP-SGD beside the same step without it, in one process.

    python -m benchmarks.step_cost [--steps 60] [--rounds 5]

The same network, the same Adam and the same batches of `specs/adult.yaml` and
`specs/pain5000.yaml`. The private step draws a Poisson batch, takes per-example norms, clips, sums
on a lattice and adds noise; the plain one takes a batch of the expected size and the gradient of
its mean loss. Rounds of both alternate, so that both see the same machine. Per step: CPU seconds
(median round) and the peak of resident memory of the process (largest round, the peak counter set
back before each). Writes results/step_cost.csv. Nothing here is a release.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from benchmarks.memory import peak_mb
from synthdp.data import builtin
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes, encode
from synthdp.graph.causal import CausalGraph
from synthdp.model.fit import causal_vae
from synthdp.model.network import CausalVae
from synthdp.model.planning import plan_for
from synthdp.privacy.dpsgd import DpSgd
from synthdp.privacy.dpsgd.training import _Trainer
from synthdp.privacy.noise import Streams
from synthdp.privacy.plan import TRAIN, needed
from synthdp.spec.load.loader import load_spec
from synthdp.spec.model import BuiltinSource, CsvSource, ReleaseSpec

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
SPECS = ("adult", "pain5000")
WARM_UP = 5


def table_of(spec: ReleaseSpec, domain: Domain) -> Codes:
    """The spec's rows as levels; all of them are public or simulated."""
    source = spec.dataset.source
    if isinstance(source, BuiltinSource):
        frame = builtin.frame(source.name)
    else:
        assert isinstance(source, CsvSource)
        frame = pd.read_csv(ROOT / "specs" / source.path, dtype=str, keep_default_na=False).replace(
            "", np.nan
        )
    return encode(domain, frame)[0].astype(np.uint16)


class Plain:
    """The step that one would write without privacy."""

    def __init__(self, network: CausalVae, settings: DpSgd) -> None:
        self.network, self.size = network, int(settings.expected_batch)
        self.optimizer = torch.optim.Adam(
            [p for p in network.parameters() if p.requires_grad], lr=settings.learning_rate
        )
        self.rng = np.random.default_rng(0)

    def step(self, codes: Codes, _: int) -> None:
        """One step on a batch of the expected size."""
        batch = torch.from_numpy(
            codes[self.rng.choice(len(codes), self.size, replace=False)].astype(np.int64)
        )
        self.optimizer.zero_grad()
        noise = torch.from_numpy(
            self.rng.standard_normal((self.size, self.network.latent), dtype=np.float32)
        )
        self.network(batch, noise).mean().backward()
        self.optimizer.step()


def measured(step: Callable[[Codes, int], None], codes: Codes, steps: int) -> tuple[float, float]:
    """CPU seconds of a step and peak memory in MB."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    started = time.process_time()
    for number in range(steps):
        step(codes, number)
    return (time.process_time() - started) / steps, peak_mb()


def compare(name: str, steps: int, rounds: int) -> dict[str, object]:
    """Both steps on one spec, by turns."""
    spec = load_spec(ROOT / "specs" / f"{name}.yaml")
    domain = Domain.from_spec(spec.columns)
    planned = needed(plan_for(spec, domain).train, TRAIN)
    graph = CausalGraph.from_spec(spec.graph, domain.names)
    # As many rows as a release fits, without those held out: of all rows the private step's chance
    # would draw larger batches than the other's.
    codes = table_of(spec, domain)[: round(planned.expected_batch / planned.rate)]
    private = _Trainer(planned, causal_vae(spec, domain, graph), Streams.fresh())
    kinds: dict[str, Callable[[Codes, int], None]] = {
        "plain": Plain(causal_vae(spec, domain, graph), planned).step,
        "private": private.step,
    }
    found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    for step in kinds.values():
        measured(step, codes, WARM_UP)
    for _ in range(rounds):
        for kind, step in kinds.items():
            found[kind].append(measured(step, codes, steps))
    seconds = {kind: statistics.median(s for s, _ in runs) for kind, runs in found.items()}
    memory = {kind: max(m for _, m in runs) for kind, runs in found.items()}
    return {
        "spec": name,
        "batch": planned.expected_batch,
        "plain_ms": 1000 * seconds["plain"],
        "private_ms": 1000 * seconds["private"],
        "time_ratio": seconds["private"] / seconds["plain"],
        "plain_mb": memory["plain"],
        "private_mb": memory["private"],
        "memory_ratio": memory["private"] / memory["plain"],
    }


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    table = pd.DataFrame([compare(name, options.steps, options.rounds) for name in SPECS]).round(3)
    RESULTS.mkdir(exist_ok=True)
    table.to_csv(RESULTS / "step_cost.csv", index=False)
    print(table.to_string(index=False))


if __name__ == "__main__":
    main()
