"""Where a release's shadow models run is what its spec says, and a cluster that is not there is
told in time.
"""

import os
from pathlib import Path

import pytest

from synthdp.audit import membership
from synthdp.errors import OutputError
from synthdp.spec import load_spec
from synthdp.spec.model import ReleaseSpec
from synthdp_attacks import Dask, Loky

pytestmark = pytest.mark.check

SPEC = Path(__file__).parents[2] / "specs" / "adult.yaml"
NOWHERE = "tcp://127.0.0.1:9"


@pytest.fixture(autouse=True)
def attacks_here() -> None:
    """Where the spec says."""


def computing(*, attacked: bool = True, **compute: object) -> ReleaseSpec:
    """The spec of the Adult release with another `compute`, and the attack on or off."""
    spec = load_spec(SPEC)
    attack = spec.attacks.membership.model_copy(update={"enabled": attacked})
    attacks = spec.attacks.model_copy(update={"membership": attack})
    return spec.model_copy(
        update={"compute": spec.compute.model_copy(update=compute), "attacks": attacks}
    )


def test_the_runner_is_the_one_of_the_spec() -> None:
    assert membership._runner(computing(threads=3)) == Loky(3)
    assert membership._runner(computing(threads=None)) == Loky(os.cpu_count() or 1)
    assert membership._runner(computing(backend="dask", address=NOWHERE)) == Dask(NOWHERE)


def test_a_cluster_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "_runner", lambda release: Dask(NOWHERE, timeout_s=0.3))
    with pytest.raises(
        OutputError, match=r"no Dask scheduler answers at tcp://127.0.0.1:9"
    ) as caught:
        membership.check_cluster(computing(backend="dask", address=NOWHERE))
    assert caught.value.exit_code == 2
    membership.check_cluster(computing(backend="dask", address=NOWHERE, attacked=False))
