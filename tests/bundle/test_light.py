"""The core install is enough for a reader of bundles: nothing that only releases need is imported.

The packages of the extra `release` are blocked, in a process of its own.
"""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

import synthdp
from synthdp.errors import (
    BUDGET,
    INSTALL_RELEASE,
    RELEASE_PACKAGES,
    OutputError,
    budget_note,
    extra_named,
    missing_package,
)

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "example" / "clinic.yaml"
IMPORTED = {"scikit-learn": "sklearn"}  # names on the index, and in Python, where they differ
BLOCKED = """
import json, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
from synthdp.cli.main import main

codes = []
for line in json.loads(sys.argv[1]):
    sys.argv = ["synthdp", *line]
    try:
        main()
        codes.append(0)
    except SystemExit as stop:
        codes.append(stop.code or 0)
print(json.dumps(codes))
"""


def without_release(
    *lines: list[str], folder: Path, packages: Sequence[str] = RELEASE_PACKAGES
) -> tuple[list[int], subprocess.CompletedProcess[str]]:
    """Exit codes of commands where the extra's packages are not installed, and what they said."""
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED.format(packages=tuple(packages)), json.dumps(lines)],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    codes: list[int] = json.loads(done.stdout.splitlines()[-1])
    return codes, done


@pytest.mark.check
def test_a_reader_of_bundles_needs_no_more_than_the_core(made: Path, tmp_path: Path) -> None:
    shutil.copy(EXAMPLE, tmp_path)
    bundle = str(made)
    lines = [
        ["verify", bundle],
        ["decide", bundle, "--ledger", str(made.parent / "ledger.db")],
        ["export", bundle, "--to", "sqlite:///warehouse.db", "--table", "clinic"],
        ["sample", bundle, "--rows", "10", "--seed", "1", "--out", "rows.parquet"],
        ["sample", bundle, "--rows", "10", "--given", "visits >= 3 and sex == 'male'"],
        ["answer", bundle, "share(sex == 'male')"],
        ["diff", bundle, bundle],
        ["graph", "show", bundle],
        ["validate", EXAMPLE.name],
        ["plan", EXAMPLE.name],
        ["init", str(EXAMPLE.with_suffix(".csv")), "--no-ask", "--out", "draft.yaml"],
        ["keygen", "keys"],
        ["schema"],
    ]
    codes, done = without_release(*lines, folder=tmp_path)
    assert codes == [0] * len(lines), done.stderr
    assert (tmp_path / "rows.parquet").stat().st_size > 0


@pytest.mark.check
def test_what_needs_more_names_the_command_that_installs_it(made: Path, tmp_path: Path) -> None:
    for file in (EXAMPLE, EXAMPLE.with_suffix(".csv")):
        shutil.copy(file, tmp_path)
    lines = [["release", EXAMPLE.name], ["audit", str(made)], ["ui"]]
    codes, done = without_release(*lines, ["doctor"], folder=tmp_path)
    assert codes[:-1] == [2] * len(lines)
    assert done.stderr.count(INSTALL_RELEASE) >= len(lines), done.stderr
    assert not (tmp_path / ".synthdp").exists()  # no ledger: nothing was spent
    assert re.search(r"note +gpu +not looked for: that takes torch", done.stdout)


@pytest.mark.check
def test_a_sampler_that_is_not_there_is_missed_before_anything_is_charged(tmp_path: Path) -> None:
    for file in (EXAMPLE, EXAMPLE.with_suffix(".csv")):
        shutil.copy(file, tmp_path)
    codes, done = without_release(
        ["release", EXAMPLE.name, "--accept-refusals"], folder=tmp_path, packages=["opendp"]
    )
    assert codes == [2] and "this needs opendp" in done.stderr
    assert "budget: nothing was spent" in done.stderr


def test_the_extra_holds_the_packages_that_errors_tell_of() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = [re.split(r"[<>=]", r)[0] for r in project["optional-dependencies"]["release"]]
    assert sorted(IMPORTED.get(name, name) for name in names) == sorted(RELEASE_PACKAGES)
    core = {re.split(r"[<>=\[]", r)[0] for r in project["dependencies"]}
    assert not core & {*names}


def test_other_imports_that_fail_are_bugs() -> None:
    assert missing_package(ModuleNotFoundError(name="synthdp.nothing")) is None
    assert missing_package(ImportError("no symbol")) is None
    missing = ModuleNotFoundError(name="torch.nn")
    missing.add_note(f"{BUDGET}nothing was spent")
    told = missing_package(missing)
    assert told is not None and told.hint == INSTALL_RELEASE
    assert budget_note(told) == budget_note(missing) is not None


def test_the_python_face_names_the_extra() -> None:
    """Not only the command line does."""

    def fails(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    with pytest.raises(OutputError, match="this needs torch") as told, extra_named():
        fails("torch.nn")
    assert told.value.hint == INSTALL_RELEASE and told.value.__suppress_context__
    with pytest.raises(ModuleNotFoundError), extra_named():
        fails("synthdp.nothing")
    for function in (
        synthdp.Spec.release,
        synthdp.Spec.plan,
        synthdp.resume,
        synthdp.audit_release,
    ):
        assert hasattr(function, "__wrapped__"), function
