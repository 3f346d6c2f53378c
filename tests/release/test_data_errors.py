"""An error about the data says what it cost: nothing where rows were only read, and for a run that
had paid before what stays spent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from synthdp.errors import BudgetError, DataError, SpecError
from synthdp.ledger.connect import Account
from tests.release.conftest import table

pytestmark = pytest.mark.check

SEARCH = {"measure": 0.2, "graph": 0.2, "train": 0.6}


def no_file(tiny: Any) -> None:
    (tiny.folder / "table.csv").unlink()


def no_rows(tiny: Any) -> None:
    table().head(0).to_csv(tiny.folder / "table.csv", index=False)


def no_column(tiny: Any) -> None:
    table().drop(columns="visits").to_csv(tiny.folder / "table.csv", index=False)


def no_table(tiny: Any) -> None:
    (tiny.folder / "table.csv").write_bytes(b"sex,grade\n\xff\xfe\x00")


def other_values(tiny: Any) -> None:
    table().assign(sex="canary-5511").to_csv(tiny.folder / "table.csv", index=False)


SPOILED = [no_file, no_rows, no_column, no_table, other_values]
COMMANDS: dict[str, tuple[tuple[str, ...], tuple[str, ...], str]] = {
    "release": (("release",), (), "given"),
    "learn": (("graph", "learn"), (), "learn"),
    "validate": (("graph", "validate"), (), "validate"),
    "orient": (("graph", "orient"), ("visits", "weight"), "learn"),
}


@pytest.mark.parametrize("spoil", SPOILED)
@pytest.mark.parametrize("name", COMMANDS)
def test_rows_that_are_only_read_cost_nothing_and_it_is_said(
    tiny: Any,
    synthdp: Callable[..., Any],
    modes: Mapping[str, Any],
    name: str,
    spoil: Callable[[Any], None],
) -> None:
    command, pair, mode = COMMANDS[name]
    tiny.write(**modes[mode])
    spoil(tiny)
    done = synthdp(*command, tiny.spec, *pair, "--out", tiny.out, "--json")
    assert done.code == 5 and tiny.kinds() == [] and "canary" not in done.err + done.out
    assert done.err.count("spent") == 1 and "  budget: nothing was spent\n" in done.err
    assert json.loads(done.out)["budget"] == "nothing was spent"
    assert not (tiny.out / ".run").exists()


@pytest.mark.parametrize("spoil", SPOILED)
def test_a_run_that_has_paid_says_what_stays_spent(
    tiny: Any,
    synthdp: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[Any], None],
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    tiny.write()
    with monkeypatch.context() as patch:
        patch.setattr("synthdp.release.run.sample", interrupted)
        synthdp("release", tiny.spec, "--out", tiny.out)
    spent = tiny.kinds()
    spoil(tiny)
    done = synthdp("resume", tiny.out, "--json")
    assert done.code == 5 and tiny.kinds() == spent
    budget = json.loads(done.out)["budget"]
    assert budget.startswith("epsilon 1 at delta 1e-05 stays spent, reserved by run")
    assert f"`synthdp resume {tiny.out}` goes on, and pays nothing again" in budget
    assert "nothing was spent" not in done.err


def test_other_errors_before_a_reservation_say_themselves_what_to_do() -> None:
    account = Account()
    assert account.note(DataError("x")) == "budget: nothing was spent"
    assert account.note(KeyboardInterrupt()) == "budget: nothing was spent"
    for error in (BudgetError("x"), SpecError([]), ValueError("x")):
        assert account.note(error) is None
    assert Account(unspent="nothing more was spent").note(DataError("x")) == (
        "budget: nothing more was spent"
    )
