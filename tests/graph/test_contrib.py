"""Published algorithms are found by name, and imported only where one is chosen."""

import subprocess
import sys
from typing import get_args

import pytest

from synthdp.graph.discovery import ALGORITHMS, Algorithm, algorithm_named
from synthdp.spec.model import Graph

STAGE = """
import sys, synthdp.graph.stage
from synthdp.graph.discovery import algorithm_named
loaded = lambda: sorted(name for name in sys.modules if name.startswith("synthdp.graph.contrib"))
assert loaded() == [], loaded()
algorithm_named("svt_pc")
assert loaded() == ["synthdp.graph.contrib", "synthdp.graph.contrib.rank_pc"], loaded()
"""


def test_every_algorithm_of_the_spec_is_found() -> None:
    assert set(ALGORITHMS) == set(get_args(Graph.model_fields["algorithm"].annotation))
    assert all(isinstance(algorithm_named(name), Algorithm) for name in ALGORITHMS)


@pytest.mark.check
def test_a_published_algorithm_is_imported_when_it_is_chosen() -> None:
    done = subprocess.run([sys.executable, "-c", STAGE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
