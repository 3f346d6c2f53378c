"""Memory that a benchmark tells is its own process's."""

import subprocess
import sys

import numpy as np
import pytest

from benchmarks.memory import peak_mb

pytestmark = pytest.mark.check


def test_a_small_child_of_a_large_parent_is_small() -> None:
    held = np.ones(50_000_000)  # 400 MB
    child = subprocess.run(
        [sys.executable, "-c", "from benchmarks.memory import peak_mb; print(peak_mb())"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert 1 < float(child.stdout) < 200 < held.nbytes / 2**20 < peak_mb()


def test_memory_that_was_given_back_counts() -> None:
    before = peak_mb()
    np.ones(int(before + 100) * 2**17).sum()
    assert peak_mb() > before + 90
