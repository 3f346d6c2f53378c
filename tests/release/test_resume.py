"""Runs that stop: wherever they stop and whatever changes meanwhile, the reservation stays, it is
said, and the run goes on without paying or looking again. SIGTERM is a Ctrl-C.
"""

import json
import os
import pkgutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synthdp.errors import OutputError, budget_note
from synthdp.privacy import source
from synthdp.release import resume
from synthdp.verify import verify_bundle
from tests.release.conftest import InterruptedAt, Tiny, dying, interrupt

pytestmark = pytest.mark.check

TRAIN = "measure and train"
TABLES = "synthdp.privacy.mechanisms.marginals.NoisyMarginals.pack"
SETTLE = "synthdp.ledger.ledger.Ledger.settle"
Stop = Callable[[Tiny, pytest.MonkeyPatch], object]


@pytest.fixture
def coins(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Which rows each opening of the table holds out."""
    drawn: list[Any] = []
    true_coins = source._coins

    def listen(*arguments: Any) -> Any:
        drawn.append(true_coins(*arguments))
        return drawn[-1]

    monkeypatch.setattr(source, "_coins", listen)
    return drawn


def run_of(tiny: Tiny) -> str:
    return str(json.loads((tiny.out / ".run" / "state.json").read_text())["run"])


def assert_whole(tiny: Tiny, run: str) -> None:
    """One reservation, one charge for each purpose, one settlement, all of `run`, and a valid
    bundle of it, by the spec that was paid for.
    """
    assert tiny.kinds() == ["cap", "reserve", "charge", "charge", "settle"]
    assert {e.run for e in tiny.ledger.entries()} == {run}
    assert verify_bundle(tiny.bundle).ok
    assert json.loads((tiny.bundle / "privacy" / "ledger.json").read_text())["run"] == run
    assert len((tiny.bundle / "synthetic.csv").read_text().splitlines()) == 251
    assert not (tiny.out / ".run").exists()
    assert (tiny.out / "internal" / "internal.html").is_file()


def at(stage: str, step: int | None = None) -> Stop:
    """A Ctrl-C at a stage or one of its steps."""
    return lambda tiny, _: tiny.release(display=InterruptedAt(stage, step))


def instead_of(name: str, error: Callable[[], BaseException] = KeyboardInterrupt) -> Stop:
    """An error in place of what a function of the product does."""
    return lambda tiny, patch: (patch.setattr(name, dying(error)), tiny.release())


def after(name: str) -> Stop:
    """A Ctrl-C when a function of the product has done its work."""

    def stop(tiny: Tiny, patch: pytest.MonkeyPatch) -> None:
        true = pkgutil.resolve_name(name)

        def and_die(*arguments: Any, **named: Any) -> None:
            true(*arguments, **named)
            raise KeyboardInterrupt

        patch.setattr(name, and_die)
        tiny.release()

    return stop


FULL = partial(OutputError, "cannot write to bundle: no space left")
WRITE = "synthdp.release.run.write_bundle"
# Where it stops: charges by then, steps that are still to train, and how often tables are measured.
WHERE: dict[str, tuple[Stop, int, int, int]] = {
    "as it begins": (at(TRAIN), 0, 20, 1),
    "after a step": (at(TRAIN, 1), 2, 20, 1),
    "between two checkpoints": (at(TRAIN, 12), 2, 10, 1),
    "after the last step": (at(TRAIN, 20), 2, 5, 1),
    "charged, and not kept": (instead_of(TABLES), 1, 20, 2),
    "as rows are drawn": (at("sample"), 2, 0, 1),
    "while rows are drawn": (at("sample", 500), 2, 0, 1),
    "as the bundle is written": (at("bundle"), 2, 0, 1),
    "a full disk": (instead_of(WRITE, FULL), 2, 0, 1),
    "a bug": (instead_of(WRITE, partial(KeyError, "canary-7391")), 2, 0, 1),
    "settled": (after(SETTLE), 2, 0, 1),
    "with its bundle": (instead_of("synthdp.release.run_folder.RunFolder.remove"), 2, 0, 1),
}


@pytest.mark.parametrize("where", WHERE)
def test_a_run_that_stopped_goes_on_and_pays_nothing(
    tiny: Tiny,
    monkeypatch: pytest.MonkeyPatch,
    steps: list[int],
    looks: list[str],
    coins: list[Any],
    where: str,
) -> None:
    stop, charges, left, measured = WHERE[where]
    tiny.write()
    with (
        monkeypatch.context() as patch,
        pytest.raises((KeyboardInterrupt, OutputError, KeyError)) as stopped,
    ):
        stop(tiny, patch)
    settled = where in ("a full disk", "a bug", "settled", "with its bundle")
    assert tiny.kinds() == ["cap", "reserve", *["charge"] * charges, *["settle"] * settled]
    assert tiny.bundle.exists() == (where == "with its bundle")
    note = budget_note(stopped.value) or ""
    assert "epsilon 1 at delta 1e-05 stays spent" in note and "canary" not in note
    assert f"synthdp resume {tiny.out}" in note
    run, before = run_of(tiny), len(steps)
    published = {p: p.read_bytes() for p in tiny.bundle.rglob("*") if p.is_file()}
    tiny.write(privacy={"epsilon": 2.0}, sampling={"rows": 99})  # the run goes by what it paid for
    assert resume(tiny.out).job.folder.run == run
    assert_whole(tiny, run)
    assert all(p.read_bytes() == was for p, was in published.items())  # one table of one run
    assert len(looks) == measured
    assert len(steps) - before == left
    np.testing.assert_array_equal(*coins)  # fresh ones would test it on rows that it was trained on
    with pytest.raises(OutputError, match="no interrupted run"):
        resume(tiny.out)


@pytest.mark.parametrize(
    "where", ["synthdp.spec.load.loader.own_text", "synthdp.release.open_session.read_private"]
)
def test_before_anything_is_reserved_nothing_is_to_be_resumed(
    tiny: Tiny, synthdp: Any, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(where, dying())
    done = synthdp("release", tiny.write().spec, "--out", tiny.out)
    assert done.code == 130 and "nothing was spent" in done.err and "resume" not in done.err
    assert not (tiny.out / ".run").exists() and tiny.kinds() == []


def test_a_paid_run_is_not_dropped_without_force(
    tiny: Tiny, synthdp: Any, coins: list[Any]
) -> None:
    interrupt(tiny.write(), TRAIN, 7)
    refused = synthdp("release", tiny.spec, "--out", tiny.out)
    assert refused.code == 2 and "synthdp resume" in refused.err
    assert "what it reserved stays spent" in refused.err and tiny.kinds().count("reserve") == 1
    assert synthdp("release", tiny.spec, "--out", tiny.out, "--force").code == 0
    assert tiny.kinds().count("reserve") == 2  # dropping it does not give the budget back
    assert verify_bundle(tiny.bundle).ok
    first, another = coins
    assert 0.1 < first.mean() < 0.3 and (first != another).any()


def test_a_failing_gate_after_a_resume_still_withholds(tiny: Tiny, synthdp: Any) -> None:
    interrupt(tiny.write(gates=[{"metric": "tv1_noisy", "at_most": 0.0}]), "sample")
    done = synthdp("resume", tiny.out)
    assert done.code == 4 and not tiny.bundle.exists()
    assert tiny.kinds() == ["cap", "reserve", "charge", "charge", "settle"]


# --- signals, and commands that spend nothing ---


def test_of_a_command_that_spends_nothing_nothing_is_said(
    tiny: Tiny, synthdp: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synthdp.spec.load.loader.own_text", dying())
    assert synthdp("validate", tiny.write().spec).err == "synthdp: interrupted\n"
    monkeypatch.setattr("synthdp.audit.plan.parse_any", dying())
    done = synthdp("audit", tiny.spec, "--replay")
    assert done.code == 130 and "the same command goes on" in done.err


def terminated(*_: object, **__: object) -> Any:
    os.kill(os.getpid(), signal.SIGTERM)
    raise AssertionError("the signal did nothing")


def test_sigterm_is_a_ctrl_c(tiny: Tiny, synthdp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    monkeypatch.setattr("synthdp.release.job.sample", terminated)
    done = synthdp("release", tiny.write().spec, "--out", tiny.out, "--json")
    told = json.loads(done.out)
    assert done.code == told["exit_code"] == 143 and told["error"] == "ended by SIGTERM"
    assert "epsilon 1 at delta 1e-05 stays spent, reserved by run" in told["budget"]
    assert "charged so far: measure, train" in told["budget"]
    assert f"`synthdp resume {tiny.out}` goes on, and pays nothing again" in done.err
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    page = (Path(__file__).parents[2] / "docs/running.md").read_text(encoding="utf-8")
    assert "143" in page and "SIGTERM" in page and "`synthdp track" in page


def test_a_handler_of_others_stays(tiny: Tiny, synthdp: Any) -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        synthdp("validate", tiny.write().spec)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_graph_run_says_it_too(
    tiny: Tiny, synthdp: Any, modes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.write(**modes["validate"])
    full = partial(OutputError, "no room")
    for where, error, out, code, words in (
        ("_write", full, "out", 2, "epsilon 0.2 at delta 2e-06 stays spent"),
        ("open_session", KeyboardInterrupt, "other", 130, "nothing was spent"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(f"synthdp.release.graph_only.{where}", dying(error))
            done = synthdp("graph", "validate", tiny.spec, "--out", tiny.folder / out)
        assert done.code == code and f"budget: {words}" in done.err
        assert ("the same command goes on" in done.err) == (where == "_write")


def test_notes_of_others_are_not_shown() -> None:
    error = KeyError("x")
    error.add_note("a value of a row")
    assert budget_note(error) is None


# --- real processes ---


def start_and_wait_for_checkpoint(tiny: Tiny) -> subprocess.Popen[str]:
    tiny.write(synthesizer={"steps": 500, "checkpoint_every": 50})
    process = subprocess.Popen(
        [sys.executable, "-m", "synthdp.cli.main", "release", tiny.spec, "--out", tiny.out],
        cwd=tiny.folder,
        env={**os.environ, "TERM": "dumb"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a job in the background of a script ignores it
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 300
    while not (
        list(tiny.out.glob(".run/*/train.*.safetensors"))
        and any(e.kind == "kept" and e.body["step"] for e in tiny.ledger.entries())
    ):
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return process


@pytest.mark.parametrize(
    "how", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGKILL]
)
def test_a_process_that_is_stopped_during_training_is_resumed(
    tiny: Tiny, synthdp: Any, steps: list[int], how: signal.Signals
) -> None:
    process = start_and_wait_for_checkpoint(tiny)
    process.send_signal(how)
    out, err = process.communicate(timeout=300)
    if how is signal.SIGINT:
        assert process.returncode == 130
        assert "interrupted" in err and "synthdp resume" in err and "Traceback" not in err
    else:
        assert process.returncode == -signal.SIGKILL
    assert out == "" and tiny.kinds() == ["cap", "reserve", "charge", "charge"]
    run = run_of(tiny)
    done = synthdp("resume", tiny.out)
    assert done.code == 0, done.err
    assert_whole(tiny, run)
    assert 0 < len(steps) <= 450  # went on from a checkpoint


def test_a_release_of_several_processes_is_refused_before_anything_is_spent(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would train alone, and pay for itself."""
    tiny.write()
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "0")
    says = "torchrun started 2 processes, and a release is trained by one; nothing was spent"
    for command in (tiny.release, lambda: resume(tiny.out)):
        with pytest.raises(OutputError, match=says):
            command()
    assert tiny.kinds() == []
