"""The most memory that this process has had."""

from __future__ import annotations

import resource
from pathlib import Path

STATUS = Path("/proc/self/status")


def peak_mb() -> float:
    """The most resident memory since this program began, MB.

    On Linux `ru_maxrss` begins with what the process that started this one held, since exec does
    not set it back: a small child of a large parent would be told as large. The high-water mark of
    the address space begins anew.
    """
    if STATUS.exists():
        lines = STATUS.read_text(encoding="ascii").splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
