"""The dashboard shows what was measured, and says what was not."""

import io
import json
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("dashboard.py")
MODULE = runpy.run_path(str(SCRIPT))
EXPECTED: dict[str, tuple[str, ...]] = MODULE["EXPECTED"]
NAMES = [name for names in EXPECTED.values() for name in names]


def lines(*names: str, **changes: Any) -> list[str]:
    known = {
        "value": 3.0,
        "of": 4.0,
        "date": "2026-01-31",
        "command": "pytest -m slow tests/x.py::test",
    }
    return [json.dumps({"figure": name, **known, **changes}) for name in names]


def dashboard(folder: Path, written: list[str]) -> tuple[int, str, str]:
    """Exit status, what the terminal shows, the page."""
    (folder / "figures").write_text("\n".join(written), encoding="utf-8")
    shown = io.StringIO()
    with redirect_stdout(shown):
        status: int = MODULE["main"](folder / "figures", folder / "page.md")
    return status, shown.getvalue(), (folder / "page.md").read_text(encoding="utf-8")


def told(page: str) -> dict[str, str]:
    """What a page says of each figure, by its name, as a reader puts the two together."""
    found = {}
    for line in page.splitlines():
        if not line.startswith("- "):
            continue
        shared, _, rest = line[2:].rpartition(": ")
        for part in re.split(r"; ", rest):
            name, *values = re.split(r",? \*\*", part.rstrip("*").replace("**,", ","))
            for tail, value in zip(shared.split(" / "), values, strict=True):
                known = {f"{name}: {tail}", f"{tail}: {name}", name} & {*NAMES, "a new one [red]"}
                found[known.pop()] = value
    return found


@pytest.mark.check
def test_every_figure_is_shown_with_its_topic_date_and_command(tmp_path: Path) -> None:
    status, shown, page = dashboard(tmp_path, lines(*NAMES))
    assert status == 0
    assert "not run" not in shown + page
    for name in NAMES:
        assert name in shown
    assert told(page) == dict.fromkeys(NAMES, "3/4")
    assert page.count("\n2026-01-31, `tests/x.py`\n") == len(EXPECTED)
    assert [line[3:] for line in page.splitlines() if line.startswith("## ")] == [*EXPECTED]


@pytest.mark.check
def test_a_missing_figure_is_said_and_is_a_failure(tmp_path: Path) -> None:
    status, shown, page = dashboard(tmp_path, lines(*NAMES[1:]))
    assert status == 1
    assert shown.count("not run") == 1
    assert told(page) == {**dict.fromkeys(NAMES, "3/4"), NAMES[0]: "not run"}
    assert told(dashboard(tmp_path, [])[2]) == dict.fromkeys(NAMES, "not run")


@pytest.mark.check
def test_nothing_measured_at_all_is_a_failure(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), str(tmp_path / "nowhere"), str(tmp_path / "page.md")]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 1


@pytest.mark.check
def test_zero_is_a_measurement_and_figures_of_one_name_add_up(tmp_path: Path) -> None:
    status, _, page = dashboard(
        tmp_path, lines(*NAMES[1:]) + lines(NAMES[0], value=0) + lines(NAMES[0], value=0)
    )
    assert status == 0
    assert told(page)[NAMES[0]] == "0/8"


@pytest.mark.check
def test_a_figure_that_is_not_on_the_list_is_shown_all_the_same(tmp_path: Path) -> None:
    status, shown, page = dashboard(tmp_path, lines(*NAMES, "a new one [red]"))
    assert status == 0
    assert "a new one [red]" in shown
    assert page.index("## Others") < page.index("a new one")


@pytest.mark.check
def test_the_fixture_writes_what_the_dashboard_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, figure: Callable[..., None]
) -> None:
    """Many at once, as tests side by side do."""
    monkeypatch.setenv("SYNTHDP_DASHBOARD", str(tmp_path / "figures"))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: figure(name, 1, 2), NAMES * 50))
    written = (tmp_path / "figures").read_text().splitlines()
    assert len(written) == 50 * len(NAMES)
    status, _, page = dashboard(tmp_path, written)
    assert status == 0
    assert told(page) == dict.fromkeys(NAMES, "50/100")
    assert page.count("`tests/test_dashboard.py`\n") == len(EXPECTED)


def test_tests_that_write_a_figure_are_found_by_their_marker(
    request: pytest.FixtureRequest, figure: Callable[..., None]
) -> None:
    assert request.node.get_closest_marker("figure") is not None
    assert callable(figure)


def test_tests_that_write_no_figure_are_not_marked(request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("figure") is None
