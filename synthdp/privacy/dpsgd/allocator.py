"""Memory that is freed and taken again stays with the process.

A training step frees and takes blocks of some megabytes dozens of times. The C library gives such
blocks back to the system each time, and the system hands them out anew page by page; on small
models that takes a quarter of a step.
"""

from __future__ import annotations

import ctypes
import functools
import sys

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
KEPT_BLOCK, KEPT_FREE = (
    32 << 20,
    256 << 20,
)  # bytes: larger blocks go back when freed, and what is free above that much


@functools.cache
def keep_freed_memory() -> None:
    """Let this process keep freed blocks, up to `KEPT_FREE` bytes. Where the C library is not
    glibc, nothing changes.
    """
    if not sys.platform.startswith("linux"):
        return
    try:
        setting = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    setting(MMAP_THRESHOLD, KEPT_BLOCK)
    setting(TRIM_THRESHOLD, KEPT_FREE)
