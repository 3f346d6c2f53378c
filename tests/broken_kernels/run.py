"""`python tests/broken_kernels/run.py`: the same suites on the kernel as it is and on copies broken
on purpose.

The kernel as it is must pass; each broken one must fail in the right place and nowhere else. Every
copy holds the tests as well, and they are started in it, so that nothing of the true kernel is
imported. Exit status 1 if any copy surprises.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console
from rich.markup import escape
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))

from kernels import KERNELS, UNBROKEN, Broken

ROOT = Path(__file__).parents[2]
COPIED = ("synthdp", "attacks", "benchmarks", "tests", "specs", "pyproject.toml")
NOT_COPIED = shutil.ignore_patterns("__pycache__", "broken_kernels")
KERNEL_TESTS = [
    f"tests/privacy/test_{name}.py"
    for name in (
        "source",
        "reading",
        "noise",
        "clipping",
        "slots",
        "mechanisms",
        "session",
        "together",
        "ledger",
    )
]
AUDITS = [f"tests/audit/test_{name}.py" for name in ("reading_pairs", "replay", "worst_case")]
DRAWS = ("-m", "not slow", *KERNEL_TESTS, *AUDITS, "tests/release/test_noise_keys.py")
CRASHES = (
    ("-m", "not slow", "tests/fire"),
    ("-m", "slow", "tests/fire/test_kill.py::test_killed_again_while_it_resumes"),
)
SUITES = (DRAWS, *CRASHES)
ORDER = ("session.py", "open_session.py")  # where what is kept and charged is put in order
MINUTES = 20


@dataclass(frozen=True)
class Outcome:
    """What the suites said of one kernel."""

    name: str
    tests: int
    failures: dict[str, str]  # test -> what it said
    wrong: str  # why this is not what was to be expected

    def row(self) -> tuple[str, str, str]:
        """Kernel, tests that failed, verdict."""
        verdict = self.wrong or ("passes" if self.name == UNBROKEN else "caught in the right place")
        return self.name, f"{len(self.failures)} of {self.tests}", verdict


def try_kernel(name: str, broken: Broken | None, folder: Path) -> Outcome:
    """Copy, break, run the suites, judge."""
    for part in COPIED:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, folder / part, ignore=NOT_COPIED)
        else:
            shutil.copy(source, folder / part)
    if broken is not None:
        broken.apply(folder)
    path = os.pathsep.join([str(folder), str(folder / "attacks")])
    environment = os.environ | {"PYTHONPATH": path}
    for variable in ("SYNTHDP_DASHBOARD", "PYTHONDONTWRITEBYTECODE"):  # a copy is compiled once
        environment.pop(variable, None)
    check_imported(folder, environment)
    tests, failures = 0, {}
    suites: Sequence[Sequence[str]] = SUITES
    if broken and broken.tests:
        suites = [("-m", "not slow", *broken.tests)]
    elif broken and Path(broken.file).name not in ORDER:
        suites = [DRAWS]  # no crash brings out a wrong draw or count
    for number, suite in enumerate(suites):
        count, failed = run_suite(suite, folder, folder / f"{number}.xml", environment)
        tests, failures = tests + count, failures | failed
    return Outcome(name, tests, failures, judge(broken, tests, failures))


def check_imported(folder: Path, environment: dict[str, str]) -> None:
    """The copy is what Python imports, not the installed package."""
    command = [
        sys.executable,
        "-c",
        "import synthdp.privacy.noise, synthdp_attacks;"
        "print(synthdp.privacy.noise.__file__, synthdp_attacks.__file__, sep='\\n')",
    ]
    printed = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=True
    ).stdout
    for found in printed.splitlines():
        if not Path(found).resolve().is_relative_to(folder.resolve()):
            raise SystemExit(f"the copy's tests would import {found}, which is not in {folder}")


def run_suite(
    suite: Sequence[str], folder: Path, report: Path, environment: dict[str, str]
) -> tuple[int, dict[str, str]]:
    """Number of tests that ran, and what each one that failed says."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-vv",
        "--tb=short",
        f"--junitxml={report}",
        f"--basetemp={folder / 'pt'}",
        *suite,
    ]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60 * MINUTES,
        check=False,
    )
    if done.returncode not in (0, 1):
        raise SystemExit(
            f"pytest {' '.join(suite)} did not run: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    cases = list(ElementTree.parse(report).iter("testcase"))
    failures = {}
    for case in cases:
        said = [
            f"{part.get('message', '')}\n{part.text or ''}"
            for part in case
            if part.tag in ("failure", "error")
        ]
        if said:
            failures[f"{case.get('classname')}.{case.get('name')}"] = "\n".join(said)
    return len(cases), failures


def judge(broken: Broken | None, tests: int, failures: dict[str, str]) -> str:
    """What is wrong with these failures; empty where they are what was to be expected."""
    if not tests:
        return "no test ran"
    if broken is None:
        return f"fails: {', '.join(failures)}" if failures else ""
    if missed := [part for part in broken.caught if not any(part in test for test in failures)]:
        return f"NOT CAUGHT by {', '.join(missed)}"
    if elsewhere := [test for test in failures if not re.search(broken.place, test)]:
        return f"fails elsewhere: {', '.join(elsewhere)}"
    if not any(re.search(broken.says, f"{test}\n{said}") for test, said in failures.items()):
        return f"no failure says {broken.says!r}"
    return ""


def main(names: Sequence[str]) -> int:
    """Try the kernels of these names (all by default), print a table; 1 if any surprises."""
    if unknown := set(names) - {UNBROKEN, *KERNELS}:
        sys.exit(f"no such kernel: {', '.join(sorted(unknown))}; there are {', '.join(KERNELS)}")
    table = Table("kernel", "tests that failed", "verdict", title="Broken kernels")
    surprises = 0
    for name in names or (UNBROKEN, *KERNELS):
        with tempfile.TemporaryDirectory(prefix="kernel-") as folder:
            outcome = try_kernel(name, KERNELS.get(name), Path(folder).resolve())
        surprises += bool(outcome.wrong)
        table.add_row(*map(escape, outcome.row()), style="red" if outcome.wrong else None)
        print(
            f"{name}: {outcome.row()[2]}",
            *(f"    {test}" for test in outcome.failures),
            sep="\n",
            file=sys.stderr,
            flush=True,
        )
    Console().print(table)
    return int(surprises > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
