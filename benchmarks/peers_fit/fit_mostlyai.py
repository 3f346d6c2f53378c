"""mostlyai-engine: its autoregressive network (TabularARGN) by DP-SGD, on levels as categories.

Value protection, which would spend epsilon on finding rare categories, is off: the levels are
public. The batch is what the engine itself chooses on a small machine; the noise is its default, or
as much more as lets ten epochs fit into epsilon (with its default alone, epsilon .1 is over before
the first epoch, and it then keeps that model). What it takes from rows and does not account for -
checkpoint and end of training by the loss on a fifth of the rows, the levels that occur - is left
as it is, in its favour.
"""

from __future__ import annotations

import math

import pandas as pd
from mostlyai.engine import TabularARGN  # type: ignore[import-not-found]
from opacus.accountants.utils import get_noise_multiplier

from benchmarks.peers_fit.job import Job, run

DEFAULT_NOISE = 1.5
EPOCHS = 10
FITTED = 0.8  # share of the rows that it trains on


def fit(job: Job, rows: pd.DataFrame) -> tuple[pd.DataFrame, float]:
    """Fit and sample; RuntimeError where the engine's accountant says that more than epsilon was
    spent.
    """
    fitted = int(FITTED * len(rows))
    batch = 2 ** int(math.log2(fitted / 64))
    needed = get_noise_multiplier(
        target_epsilon=job.epsilon,
        target_delta=job.delta,
        sample_rate=batch / fitted,
        epochs=EPOCHS,
        accountant="rdp",
        epsilon_tolerance=job.epsilon / 100,
    )
    model = TabularARGN(
        batch_size=batch,
        gradient_accumulation_steps=1,
        enable_flexible_generation=False,
        value_protection=False,
        differential_privacy={
            "max_epsilon": job.epsilon,
            "delta": job.delta,
            "noise_multiplier": max(DEFAULT_NOISE, needed),
        },
        tgt_encoding_types=dict.fromkeys(rows, "TABULAR_CATEGORICAL"),
        workspace_dir=job.folder / "workspace",
        device="cpu",
    )
    model.fit(rows.astype(str))
    synthetic = model.sample(n_samples=len(rows))
    spent = _spent(job)
    if spent > job.epsilon:
        raise RuntimeError(f"epsilon {spent:.3g} was spent, {job.epsilon:g} was asked for")
    return synthetic[list(rows)], spent


def _spent(job: Job) -> float:
    """Epsilon of the checkpoint that is sampled."""
    told = pd.read_csv(
        job.folder / "workspace" / "ModelStore" / "model-data" / "progress-messages.csv"
    )
    return float(told.loc[told["is_checkpoint"] == 1, "dp_eps"].iloc[-1])


if __name__ == "__main__":
    run(fit)
