"""Interrupted runs: the reservation stays, and resuming goes on with the same run without paying
again.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from synthdp.errors import OutputError
from synthdp.ledger.ledger import Ledger
from synthdp.privacy import source
from synthdp.privacy.dpsgd.training import _Trainer
from synthdp.privacy.mechanisms.marginals import NoisyMarginals
from synthdp.progress import Advance
from synthdp.release import run as publishing
from synthdp.release.run import resume
from synthdp.release.run_folder import RunFolder
from synthdp.verify.checks import verify_bundle

pytestmark = pytest.mark.check


class InterruptedAt:
    """A display that presses Ctrl-C when `stage` begins, or when it has done `step`."""

    def __init__(self, stage: str, step: int | None) -> None:
        self.stage, self.step = stage, step

    def start(self, title: str) -> Advance:
        if title == self.stage and self.step is None:
            raise KeyboardInterrupt

        def advance(done: int, total: int, what: str = "", /) -> None:
            if title == self.stage and done == self.step:
                raise KeyboardInterrupt

        return advance

    def finish(self, title: str, seconds: float) -> None:
        """Nothing to show."""

    def tell(self, text: str) -> None:
        """Nothing to show."""


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the training steps that were done."""
    done: list[int] = []
    true_step = _Trainer.step

    def step(self: Any, codes: Any, number: int) -> None:
        done.append(number)
        true_step(self, codes, number)

    monkeypatch.setattr(_Trainer, "step", step)
    return done


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the measuring mechanisms that looked at rows."""
    looked: list[str] = []
    true_run = NoisyMarginals.run

    def run(self: Any, table: Any, streams: Any) -> Any:
        looked.append(self.name)
        return true_run(self, table, streams)

    monkeypatch.setattr(NoisyMarginals, "run", run)
    return looked


def assert_whole(tiny: Any, run: str) -> None:
    """One reservation, one charge for each purpose, one settlement, all of `run`, and a valid
    bundle of it.
    """
    assert tiny.kinds() == ["cap", "reserve", "charge", "charge", "settle"]
    assert {e.run for e in tiny.ledger.entries()} == {run}
    assert verify_bundle(tiny.bundle).ok
    assert json.loads((tiny.bundle / "privacy" / "ledger.json").read_text())["run"] == run
    assert not (tiny.out / ".run").exists()
    assert (tiny.out / "internal" / "internal.html").is_file()


def state(tiny: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((tiny.out / ".run" / "state.json").read_text())
    return found


TRAIN = "measure and train"
MOMENTS = [
    (TRAIN, None),
    (TRAIN, 1),
    (TRAIN, 12),
    (TRAIN, 20),
    ("sample", None),
    ("sample", 500),
    ("bundle", None),
]


@pytest.mark.parametrize(("stage", "step"), MOMENTS)
def test_ctrl_c_keeps_the_reservation_and_resume_pays_nothing(
    tiny: Any, steps: list[int], measured: list[str], stage: str, step: int | None
) -> None:
    tiny.write()
    with pytest.raises(KeyboardInterrupt):
        tiny.release(display=InterruptedAt(stage, step))
    kinds, run = tiny.kinds(), state(tiny)["run"]
    assert kinds[:2] == ["cap", "reserve"] and "settle" not in kinds
    assert not tiny.bundle.exists()
    before = len(steps)
    assert resume(tiny.out).job.folder.run == run
    assert_whole(tiny, run)
    assert len(measured) == 1  # what was released once is never measured again
    checkpoint = before - before % 5 if before < 20 else 15
    weights_written = (stage, step) not in MOMENTS[:4]
    assert len(steps) - before == (0 if weights_written else 20 - checkpoint)


def test_ctrl_c_before_the_reservation_leaves_nothing_behind(tiny: Any) -> None:
    tiny.write()
    with pytest.raises(KeyboardInterrupt):
        tiny.release(display=InterruptedAt("read", None))
    assert tiny.kinds() == [] and not (tiny.out / ".run").exists()
    with pytest.raises(OutputError, match="no interrupted run"):
        resume(tiny.out)
    assert tiny.release().bundle == tiny.bundle


def test_a_mechanism_killed_between_charge_and_journal_runs_again_under_its_charge(
    tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.write()
    with monkeypatch.context() as patch:
        patch.setattr(
            NoisyMarginals, "pack", lambda self, value: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        with pytest.raises(KeyboardInterrupt):
            tiny.release()
    assert tiny.kinds() == ["cap", "reserve", "charge"]
    run = state(tiny)["run"]
    resume(tiny.out)
    assert_whole(tiny, run)


def test_a_disk_that_fills_up_while_bundling_can_be_resumed(
    tiny: Any, monkeypatch: pytest.MonkeyPatch, steps: list[int]
) -> None:
    tiny.write()
    with monkeypatch.context() as patch:
        patch.setattr(
            publishing,
            "write_bundle",
            lambda *_, **__: (_ for _ in ()).throw(
                OutputError("cannot write to bundle: no space left")
            ),
        )
        with pytest.raises(OutputError, match="no space"):
            tiny.release()
    run, before = state(tiny)["run"], len(steps)
    resume(tiny.out)
    assert_whole(tiny, run)
    assert len(steps) == before


def test_the_same_rows_stay_held_out(
    tiny: Any, monkeypatch: pytest.MonkeyPatch, make_table: Callable[..., Any]
) -> None:
    """Fresh coins would test the model on rows that it was trained on."""
    drawn: list[Any] = []
    true_coins = source._coins

    def coins(*arguments: Any) -> Any:
        drawn.append(true_coins(*arguments))
        return drawn[-1]

    monkeypatch.setattr(source, "_coins", coins)
    tiny.write()
    with pytest.raises(KeyboardInterrupt):
        tiny.release(display=InterruptedAt(TRAIN, 7))
    resume(tiny.out)
    tiny.release(force=True)
    first, resumed, another = drawn
    np.testing.assert_array_equal(first, resumed)
    assert 0.1 < first.mean() < 0.3 and (first != another).any()


def test_resume_goes_by_the_spec_that_was_paid_for(tiny: Any) -> None:
    tiny.write()
    with pytest.raises(KeyboardInterrupt):
        tiny.release(display=InterruptedAt(TRAIN, 7))
    run = state(tiny)["run"]
    tiny.write(privacy={"epsilon": 2.0}, sampling={"rows": 99})
    resume(tiny.out)
    assert_whole(tiny, run)
    assert len((tiny.bundle / "synthetic.csv").read_text().splitlines()) == 251


def test_a_paid_run_is_not_dropped_without_force(tiny: Any, synthdp: Any) -> None:
    tiny.write()
    with pytest.raises(KeyboardInterrupt):
        tiny.release(display=InterruptedAt(TRAIN, 7))
    refused = synthdp("release", tiny.spec, "--out", tiny.out)
    assert (
        refused.code == 2
        and "synthdp resume" in refused.err
        and "what it reserved stays spent" in refused.err
    )
    assert tiny.kinds().count("reserve") == 1
    assert synthdp("release", tiny.spec, "--out", tiny.out, "--force").code == 0
    assert tiny.kinds().count("reserve") == 2  # dropping it does not give the budget back
    assert verify_bundle(tiny.bundle).ok


@pytest.mark.parametrize("when", ["settle", "remove"])
def test_a_run_killed_after_its_last_spend_is_finished_by_resume(
    tiny: Any, monkeypatch: pytest.MonkeyPatch, steps: list[int], synthdp: Any, when: str
) -> None:
    """Settled, and then killed: before the bundle was written, or before the run's folder was
    gone.
    """
    tiny.write()
    owner: Any = Ledger if when == "settle" else RunFolder
    true = getattr(owner, when)

    def and_die(self: Any, *arguments: Any, **options: Any) -> None:
        if when == "settle":
            true(self, *arguments, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(owner, when, and_die)
        with pytest.raises(KeyboardInterrupt):
            tiny.release()
    run, before = state(tiny)["run"], len(steps)
    assert tiny.kinds()[-1] == "settle" and tiny.bundle.exists() == (when == "remove")
    resume(tiny.out)
    assert_whole(tiny, run)
    assert len(steps) == before
    done = synthdp("resume", tiny.out)
    assert done.code == 2 and "no interrupted run" in done.err


def test_a_failing_gate_after_a_resume_still_withholds(tiny: Any, synthdp: Any) -> None:
    tiny.write(gates=[{"metric": "tv1_noisy", "at_most": 0.0}])
    with pytest.raises(KeyboardInterrupt):
        tiny.release(display=InterruptedAt("sample", None))
    done = synthdp("resume", tiny.out)
    assert done.code == 4 and not tiny.bundle.exists()
    assert tiny.kinds() == ["cap", "reserve", "charge", "charge", "settle"]


# --- real processes ---


def start_and_wait_for_checkpoint(tiny: Any) -> subprocess.Popen[str]:
    tiny.write(synthesizer={"steps": 1500, "checkpoint_every": 50})
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "synthdp.cli.main",
            "release",
            str(tiny.spec),
            "--out",
            str(tiny.out),
        ],
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
    tiny: Any, synthdp: Any, steps: list[int], how: signal.Signals
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
    run = state(tiny)["run"]
    done = synthdp("resume", tiny.out)
    assert done.code == 0, done.err
    assert_whole(tiny, run)
    assert 0 < len(steps) <= 1450  # went on from a checkpoint


def test_a_release_of_several_processes_is_refused_before_anything_is_spent(
    tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would train alone, and pay for itself."""
    tiny.write()
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "0")
    for command in (tiny.release, lambda: resume(tiny.out)):
        with pytest.raises(
            OutputError,
            match=(
                "torchrun started 2 processes, and a release is trained by one; nothing was spent"
            ),
        ):
            command()
    assert tiny.kinds() == []
