"""An error about the data says what it cost: nothing where rows were only read, and for a run that
had paid before what stays spent.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from synthdp.errors import BudgetError, DataError, OutputError
from synthdp.ledger import Account
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
    synthdp: Any,
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
    synthdp: Any,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[Any], None],
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    tiny.write()
    with monkeypatch.context() as patch:
        patch.setattr("synthdp.release.job.sample", interrupted)
        synthdp("release", tiny.spec, "--out", tiny.out)
    spent = tiny.kinds()
    spoil(tiny)
    done = synthdp("resume", tiny.out, "--json")
    assert done.code == 5 and tiny.kinds() == spent
    budget = json.loads(done.out)["budget"]
    assert budget.startswith("epsilon 1 at delta 1e-05 stays spent, reserved by run")
    assert f"`synthdp resume {tiny.out}` goes on, and pays nothing again" in budget
    assert "nothing was spent" not in done.err


BEFORE = (
    "load_signer", "check_device", "plan_for", "public_audit", "check_simulated",
    "check_target", "standing", "open_ledger", "check_affordable", "open_session",
)  # fmt: skip
AFTER = (
    "try_constraints",
    "draw",
    "Judge",
    "check_gates",
    "settle_and_publish",
    "judge_and_report",
)
FAILURES = (BudgetError("x"), OutputError("x"), DataError("x"), ValueError("canary"), OSError(28))


@pytest.mark.parametrize("stage", [*BEFORE, *AFTER])
def test_every_failure_of_a_release_says_whether_budget_was_spent(
    tiny: Any, synthdp: Any, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    """Whatever fails, and of whatever kind the error is, a bug too."""
    tiny.write()
    own = FAILURES[AFTER.index(stage) % len(FAILURES)] if stage in AFTER else None
    for failure in (own,) if own else FAILURES:

        def failing(*_: object, failure: Exception = failure, **__: object) -> None:
            raise type(failure)(*failure.args)

        with monkeypatch.context() as patch:
            patch.setattr(f"synthdp.release.run.{stage}", failing)
            done = synthdp("release", tiny.spec, "--out", tiny.out, "--json")
        assert done.code != 0 and "canary" not in done.err + done.out
        told = [line for line in done.err.splitlines() if line.startswith("  budget: ")]
        spent = "epsilon 1 at delta 1e-05 stays spent" if stage in AFTER else "nothing was spent"
        assert len(told) == 1 and spent in told[0]
        assert (tiny.kinds() == []) == (stage in BEFORE)


@pytest.mark.parametrize("text", ["", "synthdp: 1", "\udcff"])
def test_a_spec_that_is_none_costs_nothing(tiny: Any, synthdp: Any, text: str) -> None:
    tiny.spec.write_text(text, errors="surrogateescape")
    for command in (("release",), ("graph", "learn")):
        done = synthdp(*command, tiny.spec, "--out", tiny.out, "--json")
        assert done.code == 2
        assert re.search("nothing was spent|this command spent nothing", done.err)
    done = synthdp("resume", tiny.out)
    assert done.code == 2 and "budget: nothing more was spent" in done.err


def test_an_account_has_a_note_for_every_error() -> None:
    account = Account()
    for error in (DataError("x"), KeyboardInterrupt(), BudgetError("x"), ValueError("x")):
        assert account.note(error) == "budget: nothing was spent"
    assert Account(unspent="nothing more was spent").note(DataError("x")) == (
        "budget: nothing more was spent"
    )
