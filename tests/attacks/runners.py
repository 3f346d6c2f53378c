"""Runners of a fleet that go wrong on purpose."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from synthdp_attacks.runners import WorkerDied


def deadly(job: Callable[[int], int], indices: Sequence[int]) -> Iterator[int]:
    """A runner whose worker dies of task 5, after it has begun."""
    for index in indices:
        if index == 5:
            (job.folder / "model-000005.started").touch()  # type: ignore[attr-defined]
            raise WorkerDied
        yield job(index)
