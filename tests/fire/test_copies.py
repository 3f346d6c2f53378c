"""Copies of a run's folder, older ones, and runs that are started twice: one value of each purpose
is used.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.check

SCRIPT = Path(__file__).with_name("copies.py")
PLAYS = 80


def played(folder: Path, plays: int, url: str | None = None) -> dict[str, Any]:
    """What the script says."""
    command = [sys.executable, str(SCRIPT), str(folder), str(plays), *([url] if url else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_few_plays(tmp_path: Path) -> None:
    """Copied, set back to older files and started twice, a run uses one look for one charge."""
    found = played(tmp_path, 3)
    assert found["used twice"] == {} and found["bugs"] == [] and found["ends"].get("0", 0) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_no_purpose_is_used_twice_however_a_run_is_copied(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, figure: Callable[..., None]
) -> None:
    url = None if kind == "sqlite" else request.getfixturevalue("postgres").url()
    found = played(tmp_path, PLAYS, url)
    print(found)
    assert found["used twice"] == {} and found["bugs"] == []
    ends = found["ends"]
    assert (
        ends["0"] >= PLAYS / 4 and ends["-9"] >= PLAYS / 4 and ends["2"] + ends["3"] >= PLAYS / 4
    )  # all kinds of ends came up
    figure(
        f"copied, set back and started twice, ledger on {kind}: plays in which a purpose was looked"
        " at twice",
        len(found["used twice"]),
        PLAYS,
    )
