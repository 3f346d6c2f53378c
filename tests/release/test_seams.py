"""Seams between parts that are right by themselves: what is handed from one to the next, and in
which order.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synthdp.audit import attack_rows, declared_facts, membership
from synthdp.data import Domain, encode
from synthdp.errors import BudgetError
from synthdp.graph import CausalGraph
from synthdp.ledger import Ledger
from synthdp.progress import unheard
from synthdp.release import open_session
from synthdp.spec import load_spec
from synthdp_attacks import MembershipReport, Serial, shared_confidence
from tests.release.conftest import table

pytestmark = pytest.mark.check

# --- the ledger: one neighbour relation for all runs of a dataset ---


@pytest.mark.parametrize(
    ("first", "second"), [("replace_one", "add_remove"), ("add_remove", "replace_one")]
)
def test_spends_of_different_neighbours_are_not_added_up_whichever_came_first(
    first: str, second: str, tmp_path: Path
) -> None:
    ledger = Ledger(f"sqlite:///{tmp_path / 'ledger.db'}")

    def reserve(run: str, adjacency: str, dataset: str = "d") -> None:
        ledger.reserve(
            dataset, run, epsilon=0.1, delta=1e-6, cap=None, body={"adjacency": adjacency}
        )

    reserve("a", first)
    with pytest.raises(BudgetError, match=f"with {first} neighbours, and the spec says {second}"):
        reserve("b", second)
    assert [e.run for e in ledger.entries()] == ["a"]
    reserve("c", first)
    reserve("d", second, dataset="another")


@pytest.mark.parametrize(
    ("first", "second"), [("replace_one", "add_remove"), ("add_remove", "replace_one")]
)
def test_a_spec_of_other_neighbours_is_refused_before_its_run_reserves(
    first: str, second: str, tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(open_session, "Session", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tiny.write(privacy={"adjacency": first}).release()
    assert [e.body["adjacency"] for e in tiny.ledger.entries() if e.kind == "reserve"] == [first]
    with pytest.raises(
        BudgetError, match=f"say privacy.adjacency: {first}|with {first} neighbours"
    ):
        tiny.write(privacy={"adjacency": second}).release(force=True)
    assert tiny.kinds() == ["cap", "reserve"]


# --- the attack: three declared attacks share the 5% ---


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> MembershipReport:
    """The attack on a release of the tiny table, as the release makes it."""
    from tests.release.conftest import Tiny

    made = Tiny(tmp_path_factory.mktemp("attacked")).write(
        attacks={"membership": {"enabled": True, "rows": 40, "pairs": 4, "steps": 2}}
    )
    loaded = load_spec(made.spec)
    domain = Domain.from_spec(loaded.columns)
    codes = encode(domain, table().replace("", np.nan))[0]
    graph = CausalGraph.from_spec(loaded.graph, domain.names)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            membership, "_runner", lambda release: Serial()
        )  # a worker would take longer to start than to train
        return attack_rows(
            codes,
            loaded,
            domain,
            graph,
            folder=made.folder / "shadows",
            progress=unheard,
        )


def test_three_declared_attacks_share_the_five_percent(attacked: MembershipReport) -> None:
    """Each holds at 1 - .05 / 3."""
    assert [v.name for v in attacked.declared] == [
        "targeted with random_forest",
        "elbo with lira_online",
        "tables with exact_ratio",
    ]
    assert [v.confidence for v in attacked.declared] == pytest.approx([1 - 0.05 / 3] * 3)
    assert shared_confidence(3) == pytest.approx(1 - 0.05 / 3)
    for (
        verdict
    ) in attacked.declared:  # what is told of each goes by it: wider than an interval of 95%
        alone = verdict.row.advantage
        assert verdict.advantage.lower <= alone.lower
        assert verdict.advantage.upper >= alone.upper
        assert verdict.advantage != alone
    assert [f.epsilon_provable for f in declared_facts(attacked)][:2] == [
        attacked.epsilon_provable
    ] * 2
