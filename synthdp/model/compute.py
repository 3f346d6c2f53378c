"""Where a training runs: its device, its threads and its single process."""

from __future__ import annotations

import os

import torch

from synthdp.data.domain import Domain
from synthdp.errors import OutputError
from synthdp.spec.model import ReleaseSpec

ONE_THREAD_WORK = 4_000_000
"""Hidden values of one batch; below this, more threads cost more than they save."""


def check_device(spec: ReleaseSpec) -> None:
    """Check that the spec's device exists.

    Raises:
        OutputError: it does not.
    """
    if spec.compute.device == "cuda" and not torch.cuda.is_available():
        raise OutputError(
            "compute.device is cuda, and this machine has no CUDA device",
            hint="say compute.device: cpu; it is the same code",
        )


def check_alone() -> None:
    """Check that one process trains the release: each of several would pay for itself.

    Raises:
        OutputError: torchrun started this process together with others.
    """
    if "LOCAL_RANK" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1":
        message = (
            f"torchrun started {os.environ['WORLD_SIZE']} processes, and a release is trained by"
            " one; nothing was spent"
        )
        raise OutputError(
            message,
            hint=(
                "start `synthdp` without torchrun; `compute.threads` says how many threads it takes"
            ),
        )


def threads_for(spec: ReleaseSpec, domain: Domain) -> int:
    """Number of threads that pay off: a small model's step is shorter than a thread's start."""
    work = spec.synthesizer.batch * spec.synthesizer.hidden * len(domain)
    return (os.cpu_count() or 1) if work > ONE_THREAD_WORK else 1
