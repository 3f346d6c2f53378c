"""Commands and functions run in a child with little memory and time; bundles, tables and runs to
spoil.
"""

import contextlib
import importlib.util
import io
import json
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest

from synthdp.bundle import DEPLOYMENT, FILES, sha256, write_bundle
from synthdp.cli.main import main
from synthdp.files import SUMS
from synthdp.privacy import plan
from synthdp.progress import Advance

TESTS = Path(__file__).parent.parent
CANARY = "zq-canary-9182"


@dataclass(frozen=True)
class Ended:
    """How a child ended: its exit code, what it printed, and every text of the error that it
    raised, with what hangs on it.
    """

    code: int
    printed: str
    error: str
    chain: str
    seconds: float

    @property
    def declared(self) -> bool:
        """Whether it ended as the program says that it may."""
        return (
            self.code in (0, 2, 3, 4, 5, 6)
            and "Traceback" not in self.printed
            and "internal error" not in self.printed
        )


def limited(act: Callable[[], object], *, megabytes: int = 1500, seconds: int = 60) -> Ended:
    """Do `act` in a forked child that may take so much more memory than we have, and so much
    processor time.
    """
    folder, start = Path(tempfile.mkdtemp(prefix="limited-")), time.monotonic()
    child = os.fork()
    if child == 0:
        _in_child(act, folder, megabytes << 20, seconds)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    told = (
        json.loads((folder / "told").read_text())
        if (folder / "told").exists()
        else {"error": f"killed by {code}", "chain": ""}
    )
    printed = (folder / "printed").read_text(errors="replace")
    shutil.rmtree(folder)
    return Ended(code, printed, told["error"], told["chain"], time.monotonic() - start)


def _in_child(act: Callable[[], object], folder: Path, memory: int, seconds: int) -> NoReturn:
    code = 99
    try:
        handle = os.open(folder / "printed", os.O_WRONLY | os.O_CREAT)
        os.dup2(handle, 1), os.dup2(handle, 2)
        sys.stdout = io.TextIOWrapper(
            os.fdopen(1, "wb", closefd=False), encoding="utf-8", write_through=True
        )
        sys.stderr = io.TextIOWrapper(
            os.fdopen(2, "wb", closefd=False), encoding="utf-8", write_through=True
        )
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + memory,) * 2)
        spent = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))
        resource.setrlimit(resource.RLIMIT_CPU, (spent + seconds, spent + seconds + 1))
        signal.alarm(10 * seconds)  # a child that waits takes no processor time
        error, code = "", 0
        chain = ""
        try:
            act()
        except SystemExit as stop:
            code, error = int(stop.code or 0), "SystemExit"
        except BaseException as raised:
            error, code = type(raised).__name__, getattr(raised, "exit_code", 98)
            chain = "".join(_texts(raised))
        sys.stdout.flush(), sys.stderr.flush()
        (folder / "told").write_text(json.dumps({"error": error, "chain": chain}))
    finally:
        os._exit(code)


def _texts(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        yield f"{type(error).__name__}: {error} {error!r} {getattr(error, '__notes__', '')}\n"
        error = error.__cause__ or error.__context__


# Long cases, and second ones of a kind that stays in the quick suite.
LONG = re.compile(
    r"millions|two hundred times|hundred thousand (arrows|columns)|terabyte|is empty|is a"
    r" pickle|200 MB|10 MB|ten million|a million col"
    r"|twenty|ten thousand|lists for"
    r" everything|long_text|not_verified|another_valid|refused\[.*-False\]|nested"
    r" deeply|planted_is_found\[(an|mis)"
    r"|3\.0-dagitty"
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slow suite runs every case."""
    for item in items:
        if item.path.parent == Path(__file__).parent and LONG.search(item.name):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def act() -> Callable[..., Ended]:
    """`limited`."""
    return limited


@pytest.fixture
def synthdp() -> Callable[..., Ended]:
    """`synthdp(argument, ...)`: the command line in a child with bounds."""

    def run(*arguments: object, **bounds: int) -> Ended:
        def command() -> None:
            sys.argv = ["synthdp", *map(str, arguments)]
            main()

        return limited(command, **bounds)

    return run


def load(name: str) -> ModuleType:
    """Another suite's conftest, for its bundles and tables."""
    path = TESTS / name / "conftest.py"
    spec = importlib.util.spec_from_file_location(f"{name}_for_malicious", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def two_bundles(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two valid bundles of two runs, and of two specs; not to be changed."""
    bundles, made = load("bundle"), []
    for run, text in (
        ("run-1", bundles.SPEC),
        ("run-2", bundles.SPEC.replace("title: Clinic visits", "title: Other visits")),
    ):
        folder = tmp_path_factory.mktemp(run)
        release = bundles.make_release(folder, text, run=run)
        made.append(
            write_bundle(folder / "bundle", release.content, ledger=release.ledger, force=False)
        )
    return made[0], made[1]


@pytest.fixture
def bundle(two_bundles: tuple[Path, Path], tmp_path: Path) -> Path:
    """A copy to spoil; its ledger lies beside it."""
    shutil.copy(two_bundles[0].parent / "ledger.db", tmp_path / "ledger.db")
    return Path(shutil.copytree(two_bundles[0], tmp_path / "bundle"))


@pytest.fixture
def mend() -> Callable[[Path], None]:
    """Write fitting checksums into a bundle, as a forger would."""

    def write(bundle: Path) -> None:
        names = sorted(
            n
            for n in (*FILES, DEPLOYMENT)
            if (bundle / n).is_file() and not (bundle / n).is_symlink()
        )
        (bundle / SUMS).write_text("".join(f"{sha256(bundle / n)}  {n}\n" for n in names))

    return write


class _Interrupting:
    """A display that presses Ctrl-C in the middle of the training."""

    def start(self, title: str) -> Advance:
        def advance(done: int, total: int, what: str = "", /) -> None:
            if title == "measure and train" and done == 12:
                raise KeyboardInterrupt

        return advance

    def finish(self, title: str, seconds: float) -> None:
        """Nothing to show."""


@pytest.fixture(scope="session")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with spec, table, ledger and a run that stopped after a checkpoint; copy it to spoil
    it.
    """
    tiny = load("release").Tiny(tmp_path_factory.mktemp("interrupted")).write()
    with contextlib.suppress(KeyboardInterrupt):
        tiny.release(display=_Interrupting())
    assert all(
        list((tiny.out / ".run").glob(f"*/{purpose}.*.safetensors"))
        for purpose in ("measure", "train")
    )
    folder: Path = tiny.folder
    return folder


@pytest.fixture
def stopped(interrupted: Path, tmp_path: Path) -> Path:
    """The output folder of a copy, whose state names its new place."""
    folder = Path(shutil.copytree(interrupted, tmp_path / "copy"))
    state = folder / "out" / ".run" / "state.json"
    state.write_text(
        re.sub(r'"spec_path": "[^"]*"', f'"spec_path": "{folder / "spec.yaml"}"', state.read_text())
    )
    return folder / "out"


@pytest.fixture(autouse=True)
def few_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds for large groups take seconds of every release."""
    monkeypatch.setattr(plan, "GROUP_SIZES", (1, 2))


@pytest.fixture(scope="session")
def base_spec() -> dict[str, Any]:
    """The tiny spec of the release tests, as a tree."""
    spec: dict[str, Any] = load("release").SPEC
    return spec
