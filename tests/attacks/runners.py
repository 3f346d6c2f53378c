"""Work of a fleet that leaves traces, and runners that go wrong on purpose."""

import os
import signal
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from synthdp_attacks import Group, Job, Work, WorkerDied


def squares(runs: Path, *, kills: Callable[[int, int], bool] = lambda index, run: False) -> Work:
    """Work that counts its runs in files and kills its process where told; a closure, so that
    workers get it by value.
    """

    def work(index: int) -> dict[str, np.ndarray]:
        with (runs / str(index)).open("a") as stream:
            stream.write("x")
        if kills(index, (runs / str(index)).stat().st_size):
            os.kill(os.getpid(), signal.SIGKILL)
        return {"square": np.array([index * index])}

    return work


def runs_of(runs: Path) -> dict[int, int]:
    return {int(p.name): p.stat().st_size for p in runs.iterdir()}


def values(harvest: Any) -> dict[int, int]:
    return {i: int(arrays["square"][0]) for i, arrays in harvest.results.items()}


def deadly(job: Job, groups: Sequence[Group]) -> Generator[Group, None, None]:
    """A runner whose worker dies of task 5, after it has begun."""
    for group in groups:
        if group == (5,):
            job.results.mark(5).touch()  # type: ignore[attr-defined]
            raise WorkerDied
        yield job(group)
