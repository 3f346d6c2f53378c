"""Runners of a fleet that go wrong on purpose."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from synthdp_attacks.runners import Group, Job, WorkerDied


def deadly(job: Job, groups: Sequence[Group]) -> Generator[Group, None, None]:
    """A runner whose worker dies of task 5, after it has begun."""
    for group in groups:
        if group == (5,):
            job.results.mark(5).touch()  # type: ignore[attr-defined]
            raise WorkerDied
        yield job(group)
