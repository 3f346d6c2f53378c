"""What an interruption or an error says of the budget: nothing was spent, or how much and what can
still be done. SIGTERM is a Ctrl-C.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from synthdp.errors import OutputError, budget_note

pytestmark = pytest.mark.check


def raiser(error: BaseException) -> Callable[..., Any]:
    def fails(*_: object, **__: object) -> Any:
        raise error

    return fails


def terminated(*_: object, **__: object) -> Any:
    os.kill(os.getpid(), signal.SIGTERM)
    raise AssertionError("the signal did nothing")


@pytest.mark.parametrize(
    "where", ["synthdp.release.run.own_text", "synthdp.release.open_session.read_private"]
)
def test_before_anything_is_reserved_nothing_is_to_be_resumed(
    tiny: Any, synthdp: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(where, raiser(KeyboardInterrupt()))
    done = synthdp("release", tiny.write().spec, "--out", tiny.out)
    assert done.code == 130 and "nothing was spent" in done.err and "resume" not in done.err
    assert not (tiny.out / ".run").exists()


def test_of_a_command_that_spends_nothing_nothing_is_said(
    tiny: Any, synthdp: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synthdp.spec.load.loader.own_text", raiser(KeyboardInterrupt()))
    assert synthdp("validate", tiny.write().spec).err == "synthdp: interrupted\n"
    monkeypatch.setattr("synthdp.audit.plan.load_spec", raiser(KeyboardInterrupt()))
    done = synthdp("audit", tiny.spec, "--replay")
    assert done.code == 130 and "the same command goes on" in done.err


def test_sigterm_is_a_ctrl_c(
    tiny: Any, synthdp: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    with monkeypatch.context() as patch:
        patch.setattr("synthdp.release.job.sample", terminated)
        done = synthdp("release", tiny.write().spec, "--out", tiny.out, "--json")
    told = json.loads(done.out)
    assert done.code == told["exit_code"] == 143 and told["error"] == "ended by SIGTERM"
    assert "epsilon 1 at delta 1e-05 stays spent, reserved by run" in told["budget"]
    assert "charged so far: measure, train" in told["budget"]
    assert f"`synthdp resume {tiny.out}` goes on, and pays nothing again" in done.err
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert synthdp("resume", tiny.out).code == 0 and tiny.kinds().count("reserve") == 1


def test_a_handler_of_others_stays(
    tiny: Any, synthdp: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        synthdp("validate", tiny.write().spec)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(
    "error",
    [OutputError("no room", hint="make room"), KeyboardInterrupt(), KeyError("canary-7391")],
)
def test_every_error_after_a_charge_says_what_was_spent(
    tiny: Any, synthdp: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("synthdp.release.run.write_bundle", raiser(error))
        done = synthdp("release", tiny.write().spec, "--out", tiny.out)
    assert done.code == {OutputError: 2, KeyboardInterrupt: 130, KeyError: 1}[type(error)]
    assert "canary" not in done.err
    assert "budget: epsilon 1 at delta 1e-05 stays spent" in done.err
    assert "goes on, and pays nothing again" in done.err
    (tiny.folder / ".synthdp/ledger.db").rename(tiny.folder / "away.db")
    gone = synthdp("resume", tiny.out).err  # of the whole run nothing can be said, but of this
    assert "stays spent" not in gone and "budget: nothing more was spent" in gone
    (tiny.folder / "away.db").rename(tiny.folder / ".synthdp/ledger.db")
    assert synthdp("resume", tiny.out).code == 0


def test_a_graph_run_says_it_too(
    tiny: Any, synthdp: Callable[..., Any], modes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.write(**modes["validate"])
    with monkeypatch.context() as patch:
        patch.setattr("synthdp.release.graph_only._write", raiser(OutputError("no room")))
        done = synthdp("graph", "validate", tiny.spec, "--out", tiny.out)
    assert done.code == 2
    assert "budget: epsilon 0.2 at delta 2e-06 stays spent" in done.err
    assert "the same command goes on" in done.err
    with monkeypatch.context() as patch:
        patch.setattr("synthdp.release.graph_only.open_session", raiser(KeyboardInterrupt()))
        done = synthdp("graph", "validate", tiny.spec, "--out", tiny.folder / "other")
    assert done.code == 130 and "budget: nothing was spent" in done.err


def test_notes_of_others_are_not_shown() -> None:
    error = KeyError("x")
    error.add_note("a value of a row")
    assert budget_note(error) is None


def test_the_docs_name_the_codes() -> None:
    page = (Path(__file__).parents[2] / "docs/running.md").read_text(encoding="utf-8")
    assert "143" in page and "SIGTERM" in page and "`synthdp track" in page
