"""What every test of the project shares: one thread for torch, so that tests side by side do not
fight, three rings, and figures for the dashboard.

The rings: `make test` runs what is neither `check` nor `slow`, in two minutes; `make check` runs
all but `slow`; `make slow` runs the rest. The first ring does not even import a file whose
`pytestmark` holds `check` or `slow`: imports would take half of its time.

Quick tests do not fail by chance: what they draw follows a seed without their asking, or has a
chance of failure that `tests/chance.py` states. Their sum is less than 1e-4. Hypothesis, too, goes
through the same examples each time; `make fuzz` looks for others.
"""

import gc
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import hypothesis
import pytest

gc.disable()  # until all is collected: what was imported stays
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

hypothesis.settings.register_profile(
    "same examples",
    derandomize=True,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],  # by the clock of a busy machine
)
hypothesis.settings.load_profile("same examples")

Figure = Callable[..., None]
FIRST_RING = "not check"  # in the expression of marks
IN_CHECK = re.compile(r"^pytestmark = .*pytest\.mark\.(check|slow)\b", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Whether the first ring leaves a file out as a whole."""
    if collection_path.suffix != ".py" or FIRST_RING not in config.option.markexpr:
        return None
    return True if IN_CHECK.search(collection_path.read_text(encoding="utf-8")) else None


def _draws(item: pytest.Item, name: str, *, freely: bool) -> AbstractContextManager[None]:
    """What is drawn within follows `name`, unless `item` is slow or may draw `freely`."""
    from tests.chance import seeded as follow  # brings numpy: the number of threads is set by now

    slow = item.get_closest_marker("slow") is not None
    return nullcontext() if slow or freely else follow(name)


@pytest.fixture(autouse=True)
def seeded(request: pytest.FixtureRequest) -> Iterator[None]:
    """Noise and coins of a quick test follow its name; see `tests/chance.py`."""
    from tests.chance import CHANCES

    file = request.path.relative_to(Path(__file__).parent).as_posix()
    with _draws(request.node, request.node.name, freely=file in CHANCES):
        yield


class SharedDraws:
    """Draws of what tests share follow its own name: it is the same whichever test is first.

    Not a hook of this file: of fixtures of the whole session, no file below the root is told.
    """

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
    ) -> Iterator[None]:
        own = fixturedef.scope == "function"
        with _draws(request._pyfuncitem, fixturedef.argname, freely=own):
            return (yield)


@dataclass(frozen=True)
class Printed:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


@pytest.fixture
def synthdp(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Printed]:
    """`synthdp(argument, ...)` in this process."""

    from synthdp.cli.main import main

    def run(*arguments: object) -> Printed:
        monkeypatch.setattr(sys, "argv", ["synthdp", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "200")
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        printed = capfd.readouterr()
        return Printed(code, printed.out, printed.err)

    return run


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Figure:
    """Print a figure that was just asserted, and append it to the file that SYNTHDP_DASHBOARD
    names.
    """
    slow = "-m slow " if request.node.get_closest_marker("slow") else ""
    command = f"pytest {slow}{request.node.nodeid.split('[')[0]}"

    def add(name: str, value: float, of: float) -> None:
        print(f"{name}: {value:g} of {of:g}")
        target = os.environ.get("SYNTHDP_DASHBOARD")
        if target:
            line = {
                "figure": name,
                "value": float(value),
                "of": float(of),
                "date": datetime.now(UTC).date().isoformat(),
                "command": command,
            }
            handle = os.open(target, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            # one write: workers side by side do not mix their lines
            os.write(handle, (json.dumps(line) + "\n").encode())
            os.close(handle)

    return add


def pytest_configure(config: pytest.Config) -> None:
    """The marker of tests that write a figure, so that `make slow` runs the quick ones among them
    too; and seeds for what is shared.
    """
    config.pluginmanager.register(SharedDraws())
    config.addinivalue_line("markers", "figure: writes a figure of the dashboard (set by itself)")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what takes the fixture `figure`; the one file of half an hour comes first, so that no
    worker is left alone with it.
    """
    items.sort(key=lambda item: item.path.parent.name != "broken_kernels")
    for item in items:
        if "figure" in getattr(item, "fixturenames", ()):
            item.add_marker("figure")


def pytest_collection_finish() -> None:
    """Keep the collector of garbage from walking through all modules each time: a tenth of the
    time.
    """
    gc.freeze()
    gc.enable()
