"""Every command and snippet of the README and the guides, run as a reader would, with what they are
said to print.

A page's blocks run one after the other in one folder: the guides share that of the quickstart. The
quick run trains for a few steps; a slow one trains as the guides say, and also runs what is marked
slow there.
"""

import contextlib
import doctest
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import typer

from synthdp.cli.main import app, main
from synthdp.errors import SpecError
from synthdp.privacy import plan
from tests.docs.fragments import load_laid_over
from tests.docs.pages import ROOT, Block, blocks, inline_code
from tests.docs.test_links import command_exists

GUIDES = [
    ROOT / "docs" / f"{name}.md"
    for name in (
        "quickstart",
        "steward",
        "running",
        "publishing",
        "guides/epsilon",
        "guides/graphs",
        "guides/size",
        "guides/several-rows",
        "guides/gates",
        "reviewer",
        "consumer",
        "extending",
        "guides/one-question",
    )
]
README = ROOT / "README.md"
COMMANDS = ROOT / "docs" / "commands.md"
EXAMPLE = ROOT / "docs" / "example"
SHELL = ("printf", "cp", "head", "sed")


@dataclass
class Reader:
    """Someone who follows a page: where they are, and what they have defined in Python."""

    monkeypatch: pytest.MonkeyPatch
    capfd: pytest.CaptureFixture[str]
    request: pytest.FixtureRequest
    slow: bool
    before: dict[str, Callable[[], None]] = field(default_factory=dict)
    scope: dict[str, Any] = field(default_factory=lambda: {"__name__": "guide"})
    ran: list[str] = field(default_factory=list)

    def follow(self, page: Path) -> None:
        """Run every block of `page` that this reader does not leave out."""
        for block in blocks(page):
            if not block.slow or self.slow:
                {
                    "sh": self._sh,
                    "console": self._console,
                    "python": self._python,
                    "yaml": self._yaml,
                    "r": self._r,
                    "": lambda block: None,
                }[block.language](block)

    def _sh(self, block: Block) -> None:
        for line in block.text.splitlines():
            self._run(line, block)

    def _console(self, block: Block) -> None:
        """Lines that begin with $ are commands; what stands below each is what they print, ...
        being anything. What `make` prints is not compared here.
        """
        for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            line, _, expected = part.partition("\n")
            printed = self._run(line, block)
            assert line.startswith("make ") or printed_as_told(expected, printed), (
                f"{block}: {line}\n--- told\n{expected}--- printed\n{printed}"
            )

    def _python(self, block: Block) -> None:
        exec(compile(block.text, str(block), "exec", dont_inherit=True), self.scope)
        for name in re.findall(r"^def (test_\w+)\(replay\)", block.text, re.MULTILINE):
            self.scope[name](self.request.getfixturevalue("replay"))
        self.ran.append(f"python {block.line}")

    def _yaml(self, block: Block) -> None:
        load_laid_over(EXAMPLE / "clinic.yaml", block.text)
        self.ran.append(f"yaml {block.line}")

    def _r(self, block: Block) -> None:
        """Only where R is: synthdp does not need it."""
        if rscript := shutil.which("Rscript"):
            subprocess.run([rscript, "-e", block.text], check=True, capture_output=True)

    def _run(self, line: str, block: Block) -> str:
        """What a command prints. It may fail only where the page shows that it does."""
        words = shlex.split(line, comments=True)
        if not words:
            return ""
        self.ran.append(shlex.join(words))
        for command, prepare in self.before.items():
            if line.startswith(command):
                prepare()
        match words:
            # Take minutes of any table but the smallest: tests of their own run them.
            case ["synthdp", "audit" | "study" as command, *arguments]:
                assert command_exists([command, *arguments])
                return ""
            case ["synthdp", *arguments]:
                code, printed = self._synthdp(arguments)
                assert code == 0 or block.language == "console", f"{block}: {line}\n{printed}"
                return printed
            case ["make", target]:
                subprocess.run(
                    ["make", "--dry-run", target], cwd=ROOT, check=True, capture_output=True
                )
            case ["cd", folder]:
                self.monkeypatch.chdir(folder)
            case ["export", setting]:
                self.monkeypatch.setenv(*setting.split("=", 1))
            case [".", script]:
                assert script == ".venv/bin/activate"
            case [command, *_] if command in SHELL:
                return subprocess.run(
                    ["bash", "-c", line], check=True, capture_output=True, text=True
                ).stdout
            case _:
                pytest.fail(f"{block}: nothing here runs {line!r}")
        return ""

    def _synthdp(self, arguments: list[str]) -> tuple[int, str]:
        """Exit code, and what goes to stdout and then, progress apart, to stderr."""
        self.monkeypatch.setattr(sys, "argv", ["synthdp", *arguments])
        self.capfd.readouterr()
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        printed = self.capfd.readouterr()
        return code, printed.out + re.sub(
            r"^[a-z ]+: (?:[\d.]+ s|.*\d s so far.*)\n", "", printed.err, flags=re.MULTILINE
        )


def printed_as_told(expected: str, printed: str) -> bool:
    """Whether a page shows what is printed; three points stand for anything."""
    return not expected.strip() or doctest.OutputChecker().check_output(
        expected.rstrip() + "\n", printed.rstrip() + "\n", doctest.ELLIPSIS
    )


@pytest.fixture(
    params=[False, pytest.param(True, marks=pytest.mark.slow)], ids=["quick", "as told"]
)
def reader(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Reader:
    """In a folder that has what a clone has and the guides use; their spec trains for a few steps
    if the run is quick.
    """
    shutil.copytree(EXAMPLE, tmp_path / "docs" / "example")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv(
        "PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    )  # for `synthdp` in a process of its own
    if not request.param:
        monkeypatch.setattr(
            plan, "GROUP_SIZES", (1, 2)
        )  # bounds for larger groups take seconds of every release
        spec = tmp_path / "docs" / "example" / "clinic.yaml"
        spec.write_text(
            spec.read_text(encoding="utf-8")
            .replace("steps: 300", "steps: 10")
            .replace("{targets: [smoker]}", "{enabled: false}"),
            encoding="utf-8",
        )
    return Reader(monkeypatch, capfd, request, request.param)


@pytest.mark.check
def test_the_guides_run(reader: Reader) -> None:
    for page in GUIDES:
        reader.follow(page)
    assert {word.split()[1] for word in reader.ran if word.startswith("synthdp ")} >= {
        "init",
        "plan",
        "release",
        "verify",
        "sample",
        "budget",
        "graph",
    }


@pytest.mark.check
def test_the_page_on_python_runs(reader: Reader) -> None:
    reader.follow(ROOT / "docs" / "python.md")
    assert "holds no interrupted run 2" in reader.capfd.readouterr().out
    assert len(reader.ran) == 4


@pytest.mark.check
def test_the_readme_runs(reader: Reader) -> None:
    reader.follow(README)
    assert {"plan", "release", "verify", "sample"} <= {line.split()[1] for line in reader.ran}


def command_names() -> set[str]:
    """Every command of the program, with its subcommands: `graph show`, not `graph`."""
    commands = typer.main.get_command(app).commands
    return {
        f"{name} {inner}".strip()
        for name, command in commands.items()
        for inner in getattr(command, "commands", {"": None})
    }


def test_the_page_of_commands_has_each_command_and_an_example() -> None:
    examples = [
        line for block in blocks(COMMANDS) for line in block.text.splitlines()
    ] + inline_code(COMMANDS)
    for name in command_names():
        assert any(code.startswith(f"synthdp {name}") for code in examples), name


@pytest.mark.slow
def test_the_page_of_commands_runs(reader: Reader) -> None:
    """Its table is the guides', under another name; between its commands the spec is edited as its
    comments say.
    """
    if not reader.slow:
        pytest.skip("several releases; the quick tests see that its commands exist")
    for name in ("mytable.csv", "other.csv"):
        shutil.copy(EXAMPLE / "clinic.csv", name)
    shutil.copy(EXAMPLE / "codebook.json", "mytable.json")
    Path("patients.csv").write_text("patient,sex\n")
    Path("stays.csv").write_text("patient,day,ward\n")
    spec = Path("mytable.yaml")
    whole = (
        Path("docs/example/clinic.yaml")
        .read_text(encoding="utf-8")
        .replace("clinic", "mytable")
        .replace("epsilon: 3", "epsilon: 10")
        .replace("tracking: {enabled: false}", "")
        .replace("membership: {enabled: false}", "membership: {rows: 40, pairs: 4, steps: 2}")
    )
    searched = whole.replace(
        "delta: 1e-5\n", "delta: 1e-5\n  shares: {measure: 0.2, graph: 0.2, train: 0.6}\n"
    ).replace("mode: given", "mode: validate")
    learned = searched.replace("mode: validate", "mode: learn")

    def finish() -> None:
        assert "!fill_in" in spec.read_text(encoding="utf-8")
        spec.write_text(whole, encoding="utf-8")
        main_prints(
            reader, ["graph", "show", "mytable.yaml", "--format", "dot", "--out", "other.dot"]
        )

    reader.before = {
        "synthdp validate": finish,
        "synthdp resume": interrupted_release,
        "synthdp diff": lambda: (
            shutil.copytree("releases/mytable/bundle", "releases/old/bundle") and None
        ),
        "synthdp graph validate": lambda: spec.write_text(searched, encoding="utf-8") and None,
        "synthdp graph learn": lambda: spec.write_text(learned, encoding="utf-8") and None,
    }
    reader.follow(COMMANDS)
    assert sum(line.startswith("synthdp ") for line in reader.ran) >= 15
    assert Path("more.parquet").exists() and Path("releases/mytable/bundle/synthetic.csv").exists()


def main_prints(reader: Reader, arguments: list[str]) -> str:
    code, printed = reader._synthdp(arguments)
    assert code == 0, printed
    return printed


class CtrlC:
    """A display that presses Ctrl-C when sampling begins."""

    def start(self, title: str) -> Callable[[int, int, str], None]:
        if title == "sample":
            raise KeyboardInterrupt
        return lambda done, total, what: None

    def warn(self, text: str) -> None:
        """Nothing to show."""

    def finish(self, title: str, seconds: float) -> None:
        """Nothing to show."""


def interrupted_release() -> None:
    """What `synthdp resume` needs: a run that was begun and not finished."""
    from synthdp.progress import shown_on
    from synthdp.release import release

    shutil.rmtree("releases/mytable")
    with pytest.raises(KeyboardInterrupt), shown_on(CtrlC()):
        release(Path("mytable.yaml"))


@pytest.mark.slow
def test_the_readmes_release_runs(reader: Reader) -> None:
    """`make release`, into another folder and without its virtual environment, in which this test
    runs already.
    """
    if not reader.slow:
        pytest.skip("takes minutes")
    shutil.copytree(ROOT / "specs", "specs", ignore=shutil.ignore_patterns("mlflow*", ".synthdp"))
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", "release", "VENV=.venv"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    lines = [line for line in done.stdout.splitlines() if "bin/synthdp " in line]
    commands = [shlex.split(line)[1:] for line in lines]
    assert [command[0] for command in commands] == ["release", "verify"]
    printed = [main_prints(reader, command) for command in commands]
    first = blocks(README)[0].text.partition("$ make release")[2].partition("\n")[2]
    assert printed_as_told(
        first.partition("$ make test")[0],
        "".join(f"{line}\n{shown}" for line, shown in zip(lines, printed, strict=True)),
    )
    assert Path("releases/adult/internal/internal.html").exists()
    (ui,) = [code for code in inline_code(COMMANDS) if code.startswith("synthdp ui ")]
    assert answers(shlex.split(ui.replace("mytable.yaml", "specs/adult.yaml")))


def answers(command: list[str]) -> bool:
    """Whether a server that is started so, on a port of its own, shows a page to whoever has the
    password that it prints.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with Path("server.log").open("w", encoding="utf-8") as log:
        server = subprocess.Popen(
            [*command, "--port", str(port)], stdout=log, stderr=log, start_new_session=True
        )
    try:
        for _ in range(120):
            time.sleep(1)
            printed = re.search(
                "log in as (.+) with the password (.+)", Path("server.log").read_text()
            )
            if printed is None:
                continue
            login = {
                "Authorization": "Basic " + b64encode(":".join(printed.groups()).encode()).decode()
            }
            asked = urllib.request.Request(f"http://127.0.0.1:{port}/", headers=login)
            with contextlib.suppress(OSError), urllib.request.urlopen(asked, timeout=5) as page:
                return "MLflow" in page.read().decode()
        return False
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)


# --- the reader notices ---


@pytest.mark.parametrize(
    ("told", "printed", "right"),
    [
        ("a 0.99... b\n", "a 0.9983 b\n", True),
        ("a\n...\nb\n", "a\nx\ny\nb\n", True),
        ("a\n", "a\nb\n", False),
        ("a 1\n", "a 2\n", False),
        ("\n", "anything\n", True),
    ],
)
def test_what_is_told_and_what_is_printed(told: str, printed: str, right: bool) -> None:
    assert printed_as_told(told, printed) is right


@pytest.mark.parametrize(
    "text",
    [
        "```sh\nsynthdp plam x.yaml\n```\n",
        "```sh\nmake no-such-target\n```\n",
        "```sh\nrm x\n```\n",
        (
            "```console\n$ synthdp validate docs/example/clinic.yaml\nclinic.yaml: valid (7"
            " columns)\n```\n"
        ),
        "```python\nassert 1 == 2\n```\n",
        "```yaml\nprivacy: {epsilom: 1}\n```\n",
        "```perl\n1\n```\n",
    ],
)
def test_a_page_that_is_wrong_is_found(text: str, reader: Reader, tmp_path: Path) -> None:
    if reader.slow:
        pytest.skip("quick enough")
    page = ROOT / "docs" / "wrong.md"
    found = Block(page, *_only(text), 1, False)
    reader.monkeypatch.setattr("tests.docs.test_run.blocks", lambda page: [found])
    with pytest.raises(
        (AssertionError, SpecError, KeyError, subprocess.CalledProcessError, pytest.fail.Exception)
    ):
        reader.follow(page)


def _only(text: str) -> tuple[str, str]:
    language, _, rest = text.removeprefix("```").partition("\n")
    return language, rest.removesuffix("```\n")


def test_the_examples_table_is_what_its_program_writes(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE / "simulate.py")], capture_output=True, check=True
    )
    assert done.stdout == (EXAMPLE / "clinic.csv").read_bytes()
