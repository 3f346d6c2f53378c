"""A peer's own environment, and one fit in it: a process of its own on one thread, ended at a limit
of CPU seconds.

Environments are folders of ~/.cache/synthdp-peers, or of $SYNTHDP_PEERS, one for each list of
requirements; they are built by the Python that runs the benchmark and kept. What goes wrong is an
`Outcome` with words, never an exception.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parent.parent
INSTALL_SECONDS = 900
# A fit on a busy machine is slow without being at fault; one that sleeps has to end too.
CLOCK_FOR_CPU = 4
ONE_THREAD = {
    name: "1"
    for name in (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "LOKY_MAX_CPU_COUNT",
    )
} | {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "HF_HUB_OFFLINE": "1",
}


@dataclass(frozen=True)
class Peer:
    """How to install and call a synthesizer; without requirements it runs in the benchmark's own
    environment.

    `unneeded` is uninstalled again: packages that it only requires, and that do not load
    everywhere.
    """

    module: str
    mechanism: str
    requirements: tuple[str, ...] = ()
    unneeded: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What came of one fit: words (`ok`, or what went wrong), and if it is ok what it wrote and
    cost.
    """

    words: str
    codes: pd.DataFrame | None = None
    cost: dict[str, float] | None = None


@dataclass(frozen=True)
class Request:
    """One fit: rows of `table` as `codes` (levels of the public grid) and as `values`, and the
    total budget.
    """

    table: str
    codes: pd.DataFrame
    values: pd.DataFrame
    levels: dict[str, int]
    epsilon: float
    delta: float


def cache() -> Path:
    """Where environments are kept."""
    return Path(os.environ.get("SYNTHDP_PEERS") or Path.home() / ".cache" / "synthdp-peers")


def python_of(peer: Peer) -> tuple[Path | None, str]:
    """The peer's Python, its environment built if need be; or None and why it could not be
    built.
    """
    if not peer.requirements:
        return Path(sys.executable), ""
    name = hashlib.sha256(
        "\n".join((sys.version, *peer.requirements, *peer.unneeded)).encode()
    ).hexdigest()[:12]
    folder = cache() / f"{peer.module.rpartition('.')[2].removeprefix('fit_')}-{name}"
    python = folder / "bin" / "python"
    if (folder / "installed").exists():
        return python, ""
    shutil.rmtree(folder, ignore_errors=True)
    # This environment's pip installs into the new one, which needs none of its own.
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    commands = [
        [sys.executable, "-m", "venv", "--without-pip", str(folder)],
        [*pip, "install", "--quiet", *peer.requirements],
    ]
    for command in commands + (
        [[*pip, "uninstall", "--quiet", "--yes", *peer.unneeded]] if peer.unneeded else []
    ):
        code, said = _limited(command, clock=INSTALL_SECONDS)
        if code:
            return None, first_error(said) if code > 0 else said
    (folder / "installed").touch()
    return python, ""


def run(peer: Peer, request: Request, folder: Path, *, seconds: float) -> Outcome:
    """Install if need be, fit and sample, for at most `seconds` of CPU. `folder` must be empty."""
    return run_many(peer, [request], folder, seconds=seconds)[0]


def run_many(
    peer: Peer, requests: Sequence[Request], folder: Path, *, seconds: float
) -> list[Outcome]:
    """The same for several fits, one after the other in one process, whose start is then paid once;
    `seconds` are for all.
    """
    python, why = python_of(peer)
    if python is None:
        return [Outcome(f"does not install: {why}")] * len(requests)
    parts = [folder / str(i) for i in range(len(requests))] if len(requests) > 1 else [folder]
    for part, request in zip(parts, requests, strict=True):
        _write(peer, request, part)
    code, said = _limited(
        [str(python), "-m", peer.module, *map(str, parts)],
        clock=CLOCK_FOR_CPU * seconds,
        cpu=seconds,
    )
    if code:
        return [Outcome(f"failed: {last_error(said)}" if code > 0 else said)] * len(requests)
    return [_read(request, part) for part, request in zip(parts, requests, strict=True)]


def _write(peer: Peer, request: Request, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    request.codes.to_csv(folder / "train.csv", index=False)
    request.values.to_csv(folder / "values.csv", index=False)
    job = {
        "table": request.table,
        "levels": request.levels,
        "epsilon": request.epsilon,
        "delta": request.delta,
        "mechanism": peer.mechanism,
    }
    (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")


def _read(request: Request, folder: Path) -> Outcome:
    cost: dict[str, float] = json.loads((folder / "cost.json").read_text(encoding="utf-8"))
    return Outcome("ok", within(pd.read_csv(folder / "synthetic.csv"), request.levels), cost)


def within(table: pd.DataFrame, levels: dict[str, int]) -> pd.DataFrame:
    """Levels of the domain, whatever a peer wrote: what is no level becomes the nearest, what is no
    number level 0.
    """
    numbers = {
        name: pd.to_numeric(table[name], errors="coerce").fillna(0).round().clip(0, n - 1)
        for name, n in levels.items()
    }
    return pd.DataFrame(numbers).astype("uint16")


def _limited(command: list[str], *, clock: float, cpu: float | None = None) -> tuple[int, str]:
    """Exit code and output of a command in a group of its own; a code below 0 and why, where it and
    its children had to be ended.
    """

    def limit_cpu() -> None:
        if cpu is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(cpu), math.ceil(cpu) + 1))

    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | ONE_THREAD,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        preexec_fn=limit_cpu,
    )
    try:
        said, _ = process.communicate(timeout=clock)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return -signal.SIGKILL, f"stopped after {clock:g} s of clock"
    if process.returncode == -signal.SIGXCPU:
        return process.returncode, f"stopped after {cpu:g} CPU s"
    if process.returncode < 0:
        return process.returncode, f"failed: ended by signal {-process.returncode}"
    return process.returncode, said


def first_error(said: str) -> str:
    """The line of an installer's output that says what went wrong: git's own words before pip's."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    told = [
        line for start in ("fatal:", "error:") for line in lines if line.lower().startswith(start)
    ]
    return _short((told or lines or ["no message"])[0])


def last_error(said: str) -> str:
    """The last line of a program's output: in Python the exception."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return _short((lines or ["no message"])[-1])


def _short(line: str) -> str:
    return line if len(line) <= 200 else f"{line[:200]}..."
