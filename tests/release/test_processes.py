"""`torchrun ... -m synthdp`: one release by several real processes, whole or cut short."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from synthdp.data.domain import Domain
from synthdp.model.pipeline import plan_for
from synthdp.spec.load import load_spec
from synthdp.verify import verify_bundle

pytestmark = pytest.mark.slow

ONE_RUN = ["cap", "reserve", "charge", "charge", "settle"]


def started(tiny: Any, *command: object, processes: int = 2) -> subprocess.Popen[str]:
    """A synthdp command under torchrun."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "-m", "synthdp"]
    return subprocess.Popen(
        [*launcher, *map(str, command)], cwd=tiny.folder, env={**os.environ, "TERM": "dumb"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def processes_of(launcher: int) -> dict[int, int]:
    """Process id by rank of what torchrun started."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            told = (path.parent / "environ").read_bytes().split(b"\0") if parent == launcher else []
        except OSError:
            continue
        found |= {int(name[5:]): int(path.parent.name) for name in told if name.startswith(b"RANK=")}
    return found


def stopped_while_training(tiny: Any, *, rank: int) -> tuple[int, str]:
    """Exit code and stderr of a release of which one process is killed in the midst of training."""
    tiny.write(synthesizer={"steps": 2000, "batch": 400, "checkpoint_every": 50})
    release = started(tiny, "release", tiny.spec, "--out", tiny.out)
    deadline = time.monotonic() + 300
    while not list(tiny.out.glob(".run/*/train.*.safetensors")):
        assert release.poll() is None, release.stderr.read() if release.stderr else ""
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(processes_of(release.pid)[rank], signal.SIGKILL)
    out, err = release.communicate(timeout=120)
    assert out == "" and "internal error" not in err, err
    return release.returncode, err


def test_a_release_by_two_processes_is_charged_once_and_verifies(tiny: Any) -> None:
    tiny.write(synthesizer={"batch": 400})
    plan = plan_for(loaded := load_spec(tiny.spec), Domain.from_spec(loaded.columns))
    release = started(tiny, "release", tiny.spec, "--out", tiny.out, "--json")
    out, err = release.communicate(timeout=300)
    assert release.returncode == 0, err
    facts = json.loads(out)  # one object: the other process prints nothing
    assert facts["epsilon_spent"] == plan.epsilon_spent
    assert tiny.kinds() == ONE_RUN
    report = verify_bundle(tiny.bundle)
    assert report.ok and report.epsilon == pytest.approx(plan.epsilon_spent)
    assert err.count("measure and train:") == 1
    assert sorted(path.name for path in tiny.folder.iterdir()) == [".synthdp", "out", "spec.yaml", "table.csv"]


def assert_paid_once(tiny: Any) -> None:
    assert tiny.kinds() == ONE_RUN and len({e.run for e in tiny.ledger.entries()}) == 1
    assert verify_bundle(tiny.bundle).ok and not (tiny.out / ".run").exists()


def test_a_helper_that_dies_ends_the_release_and_one_process_resumes_it(tiny: Any, synthdp: Any) -> None:
    code, err = stopped_while_training(tiny, rank=1)
    assert code != 0 and "another process of this release has ended" in err and "synthdp resume" in err
    assert tiny.kinds() == ONE_RUN[:-1] and not tiny.bundle.exists()
    assert synthdp("resume", tiny.out).code == 0
    assert_paid_once(tiny)


def test_a_first_process_that_dies_leaves_a_run_that_three_resume(tiny: Any) -> None:
    code, _ = stopped_while_training(tiny, rank=0)
    assert code != 0 and tiny.kinds() == ONE_RUN[:-1] and not tiny.bundle.exists()
    resumed = started(tiny, "resume", tiny.out, processes=3)
    _, err = resumed.communicate(timeout=400)
    assert resumed.returncode == 0, err
    assert_paid_once(tiny)
