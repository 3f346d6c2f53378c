"""What the tests of the attacks share: forests of fewer trees, which is most of what an attack on
few models costs.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from synthdp_attacks import CLASSIFIERS

sys.path.insert(
    0, str(Path(__file__).parent)
)  # test files are imported by path; what they share lies beside them


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder where the work of a fleet notes what was run."""
    folder = tmp_path / "runs"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def processes() -> Iterator[str]:
    """Address of a cluster of two worker processes, which are started again when they die."""
    from tests.builders import dask_processes

    with dask_processes() as cluster:
        yield cluster.scheduler_address


@pytest.fixture(autouse=True)
def small_forests(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty trees instead of two hundred; the slow tests, which measure power and false alarms,
    grow them all.
    """
    grow = CLASSIFIERS["random_forest"]
    if "slow" not in request.keywords:
        monkeypatch.setitem(
            CLASSIFIERS, "random_forest", lambda seed: grow(seed).set_params(n_estimators=40)
        )
