"""What a bundle's reader pays: megabytes of the light install, CPU seconds of each command.

    python -m benchmarks.light BUNDLE --spec SPEC [--python VENV/bin/python] [--repeats 3]

`--python` is that of an environment with `pip install .` alone; by default it is the one that
runs this. BUNDLE is one that a release of SPEC wrote, say of specs/adult.yaml. Each command runs in
a process of its own: the least user and system time of the repeats is taken, as other work on the
machine only adds to it. The size is that of the environment without pip and setuptools, which
every environment has; bytecode, which the first run writes, is told apart. Results go to
results/light.csv.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from benchmarks.discovery import RESULTS

MB = 1 << 20
MAX_MB = 350
EVERYWHERE = ("pip", "setuptools", "pkg_resources", "_distutils_hack")


def main() -> None:
    """Measure everything, print it beside its limit, and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--spec", type=Path, required=True)
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    found = pd.DataFrame(
        [*sizes(asked.python), *commands(asked)], columns=["what", "measured", "limit", "unit"]
    )
    found["met"] = (found["measured"] <= found["limit"]).where(found["limit"].notna())
    print(found.to_string(index=False))
    found.to_csv(RESULTS / "light.csv", index=False)


def sizes(python: Path) -> Iterator[tuple[str, float, float | None, str]]:
    """Megabytes of the packages: all, bytecode, and the largest."""
    asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
    done = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True)
    packages: dict[str, int] = {}
    bytecode = 0
    for path in Path(done.stdout.strip()).rglob("*"):
        name = path.relative_to(done.stdout.strip()).parts[0].split("-")[0]
        if path.is_file() and not path.is_symlink() and name not in EVERYWHERE:
            packages[name] = packages.get(name, 0) + path.stat().st_size
            bytecode += path.stat().st_size if path.suffix == ".pyc" else 0
    yield "install", round(sum(packages.values()) / MB), MAX_MB, "MB"
    yield "of it bytecode", round(bytecode / MB), None, "MB"
    for name in sorted(packages, key=packages.__getitem__, reverse=True)[:8]:
        yield f"of it {name}", round(packages[name] / MB), None, "MB"


def commands(asked: argparse.Namespace) -> Iterator[tuple[str, float, float, str]]:
    """CPU seconds of each command, and the most that it may take."""
    bundle = str(asked.bundle.resolve())
    spec = asked.spec.resolve()
    with tempfile.TemporaryDirectory() as folder:
        rows = str(Path(folder) / "rows.parquet")
        limits: list[tuple[float, list[str]]] = [
            (3, ["verify", bundle]),
            (3, ["sample", bundle, "--rows", "10", "--out", rows]),
            (2, ["answer", bundle, "count()"]),
            (2, ["doctor"]),
            (4, ["diff", bundle, bundle]),
            (2, ["budget", "--ledger", str(spec.parent / ".synthdp" / "ledger.db")]),
            (2, ["plan", str(spec)]),
            (2, ["validate", str(spec)]),
        ]
        for most, arguments in limits:
            line = [str(asked.python), "-m", "synthdp", *arguments]
            seconds = min(cpu_seconds(line, folder=folder) for _ in range(asked.repeats))
            yield arguments[0], round(seconds, 2), most, "CPU s"


def cpu_seconds(command: list[str], *, folder: str) -> float:
    """User and system seconds of one run.

    Raises:
        RuntimeError: it failed; `doctor` may find that a release would not run.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=clean)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, *([2] if "doctor" in command else [])):
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
