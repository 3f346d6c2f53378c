"""Who is held out: the same units after a resume, and nobody learns whom from what is stored."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from synthdp.data import Domain
from synthdp.errors import BudgetError
from synthdp.model import plan_for
from synthdp.privacy import source
from synthdp.release import RunFolder, open_session, resume
from synthdp.release.plan_view import plan_facts
from synthdp.spec import load_spec
from synthdp.verify import inspect_bundle, verify_bundle
from tests.bundle.conftest import edit_json
from tests.release.conftest import certificate, interrupt, refit

pytestmark = pytest.mark.check

Coins = npt.NDArray[np.bool_]


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[Coins]:
    """Who is held out, at each opening of a run."""
    seen: list[Coins] = []
    true = source._coins

    def coins(*args: Any) -> Coins:
        seen.append(true(*args))
        return seen[-1]

    monkeypatch.setattr(source, "_coins", coins)
    return seen


def texts(folder: Path) -> str:
    """All that lies in a folder, and each value of its ledgers."""
    found = [p.read_bytes().decode("latin-1") for p in folder.rglob("*") if p.is_file()]
    for file in folder.rglob("ledger.db"):
        with sqlite3.connect(file) as database:
            found += [str(row) for row in database.execute("SELECT * FROM synthdp_ledger")]
    return "\n".join(found)


def guessed(stored: str, held: Coins) -> bool:
    """Whether some key that is stored, or two of them, gives the coins."""
    found = re.findall(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])", stored)
    keys = {int(one, 16) ^ int(other, 16) for one in {*found, "0"} for other in {*found, "0"}}

    def drawn(key: int) -> Coins:
        return np.random.Generator(np.random.Philox(key=key)).random(len(held)) < 0.2

    return any(bool((drawn(key) == held).all()) for key in keys)


def killed(tiny: Any) -> Any:
    tiny.write()
    interrupt(tiny, "measure and train", 12)
    return tiny


def test_a_resumed_run_holds_out_the_same_units(tiny: Any, held: list[Coins]) -> None:
    resume(killed(tiny).out)
    first, second = held
    assert (first == second).all() and 40 < first.sum() < 120
    leases = [e.body for e in tiny.ledger.entries() if e.kind == "lease"]
    assert ["coins" in body for body in leases] == [True, False]
    assert verify_bundle(tiny.bundle).ok


@pytest.mark.usefixtures("held")
def test_a_run_that_would_go_on_with_other_coins_looks_at_nothing(
    tiny: Any, looks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault: a resume that draws new ones; and two that begin one run at once."""
    killed(tiny)
    before = len(looks)
    monkeypatch.setattr(open_session, "coins_of", lambda entries: None)
    with pytest.raises(BudgetError, match="with other coins"):
        resume(tiny.out)
    assert len(looks) == before
    monkeypatch.undo()
    resume(tiny.out)


def test_neither_the_folder_nor_the_ledger_alone_tells_who_is_held_out(
    tiny: Any, held: list[Coins]
) -> None:
    killed(tiny)
    folder, ledger = texts(tiny.out), texts(tiny.folder / ".synthdp")
    state = json.loads((tiny.out / ".run" / "state.json").read_text())
    assert state["holdout_key"] in folder and state["holdout_key"] not in ledger
    assert not guessed(folder, held[0]) and not guessed(ledger, held[0])
    resume(tiny.out)
    (coins,) = {e.body["coins"] for e in tiny.ledger.entries() if "coins" in e.body}
    assert len(coins) == 32
    left = texts(tiny.folder)
    assert state["holdout_key"] not in left  # so that what the ledger has is as good as nothing
    assert coins not in texts(tiny.out) and not guessed(left, held[0])


def test_a_key_that_lies_beside_the_values_is_found(
    tiny: Any, held: list[Coins], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault that the test above is for: the folder's half is the whole key."""

    def whole(self: RunFolder, other: str) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=int(self.holdout_key, 16)))

    monkeypatch.setattr(RunFolder, "holdout_coins", whole)
    killed(tiny)
    assert guessed(texts(tiny.out), held[0])


# --- what is said of it ---


def test_the_same_noise_costs_less_and_plan_and_certificate_say_on_what_that_counts(
    tiny: Any,
) -> None:
    tiny.write()
    spec = load_spec(tiny.spec)
    plan = plan_for(spec, Domain.from_spec(spec.columns))
    assert plan.holdout == 0.2 and 0.99 < plan.epsilon_spent <= 1
    facts = plan_facts(spec, tiny.ledger.balance("tiny"))
    (note,) = [note for note in facts["notes"] if "held out" in note]
    assert "probability 0.2" in note and "nobody knowing" in note
    tiny.release()
    stated = certificate(tiny.bundle)
    assert stated["held_out"] == 0.2 and 1.1 < stated["epsilon_told"] < 1.25
    text = (tiny.bundle / "privacy" / "certificate.md").read_text()
    assert "held out of all that was fitted with probability 0.2" in text
    assert "To someone who knows who was held out, epsilon is 1.1" in text
    short = text.partition("## In short")[2].partition("## ")[0]
    for page in (short, (tiny.bundle / "README.md").read_text()):
        assert "whose data were left out by secret coins: to whoever does, it is 1.1" in page
    assert verify_bundle(tiny.bundle).ok


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"held_out": 0.3}, "held_out does not follow"),
        ({"epsilon_told": 1.0}, "epsilon_told does not follow"),
        ({"epsilon": 0.9}, "epsilon does not follow"),
    ],
    ids=str,
)
def test_verify_derives_it_anew(
    tiny: Any, released: Any, change: dict[str, Any], says: str
) -> None:
    bundle = tiny.folder / "bundle"
    shutil.copytree(released.bundle, bundle)
    edit_json(bundle / "privacy" / "certificate.json", lambda facts: facts.update(change))
    refit(bundle)
    assert any(says in problem for problem in inspect_bundle(bundle).problems)


def test_of_a_replaced_unit_nothing_is_claimed(tiny: Any) -> None:
    tiny.write(privacy={"adjacency": "replace_one"})
    spec = load_spec(tiny.spec)
    plan = plan_for(spec, Domain.from_spec(spec.columns))
    assert plan.composed() == tuple(plan.events)
    facts = plan_facts(spec, tiny.ledger.balance("tiny"))
    assert not any("held out" in note for note in facts["notes"])
    tiny.release()
    for page in ("privacy/certificate.md", "README.md"):
        assert "secret coins" not in (tiny.bundle / page).read_text()
