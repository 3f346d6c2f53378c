"""A pytest fixture that replays any mechanism on neighbouring tables and fails on findings.

def test_my_mechanism(replay):
    replay(MyMechanism(domain, sigma=2.0), domain=domain)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pytest

# Pytest loads this module in every project that has synthdp installed, so heavy imports come late.
if TYPE_CHECKING:
    from synthdp.audit.mechanisms.calls import Pair, Replayed
    from synthdp.data.domain import Domain
    from synthdp.privacy.events import Adjacency
    from synthdp.privacy.mechanisms import Mechanism


@pytest.fixture(scope="session")
def replay() -> Callable[..., Replayed]:
    """`replay(mechanism, domain=...)`: fails if the mechanism shows more than its event charges.

    `pairs` are the neighbouring tables (all corner cases by default), `batch` the expected batch of
    a training, `rows_per_unit` the most rows of a unit. Returns the `Replayed`.
    """

    def run(
        mechanism: Mechanism[Any],
        *,
        domain: Domain,
        pairs: Iterable[Pair] | None = None,
        batch: int = 8,
        rows_per_unit: int = 1,
        adjacency: Adjacency = "add_remove",
    ) -> Replayed:
        from synthdp.audit.mechanisms.calls import neighbours
        from synthdp.audit.mechanisms.replay import replay as replay_pairs

        if pairs is None:
            pairs = neighbours(domain, batch=batch, max_rows=rows_per_unit, adjacency=adjacency)
        replayed = replay_pairs(
            mechanism, pairs, domain=domain, rows_per_unit=rows_per_unit, adjacency=adjacency
        )
        if not replayed.pairs:
            pytest.fail("no pair of neighbours to replay", pytrace=False)
        if replayed.findings:
            head = f"{len(replayed.findings)} findings on {replayed.pairs} pairs of neighbours"
            shown = "\n".join(map(str, replayed.findings[:10]))  # findings in a failure's message
            pytest.fail(f"{head}:\n{shown}", pytrace=False)
        return replayed

    return run
