"""How many threads the libraries of numbers take."""

from __future__ import annotations

from contextlib import AbstractContextManager


def one_thread() -> AbstractContextManager[object]:
    """Inside, BLAS and OpenMP take one thread.

    Threads that wait for work by spinning take the time of those that have some: on a machine that
    others use, small products and learners run many times faster on one. What is found is the same.
    """
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[object] = threadpool_limits(limits=1)
    return limits
