"""`synthdp init` as somebody at a terminal has it: questions, a wrong answer, a way back."""

import os
import pty
import re
import select
import signal
import sys
import time
from pathlib import Path

import pytest

from synthdp.spec import parse_spec
from synthdp.spec.model import IdUnit

pytestmark = pytest.mark.check

SECONDS = 120.0  # for one question, on a busy machine


class Terminal:
    """A command on a terminal of its own; what it wrote is read up to a text, and answered."""

    def __init__(self, *words: str, folder: Path) -> None:
        self.pid, self.end = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.environ.update(COLUMNS="200", TERM="dumb", NO_COLOR="1")
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a job in the background ignores it
            os.execv(sys.executable, [sys.executable, "-m", "synthdp.cli.main", *words])
        self.shown, self.seen = "", 0

    def read(self, until: str, *, seconds: float = SECONDS) -> str:
        """What was written since the last call, up to and with `until`."""
        stop = time.monotonic() + seconds
        while until not in self.shown[self.seen :]:
            assert time.monotonic() < stop, self.shown[self.seen :]
            if select.select([self.end], [], [], 0.2)[0]:
                try:
                    data = os.read(self.end, 4096)
                except OSError:  # the command has ended
                    data = b""
                assert data, f"{until!r} never came: {self.shown[self.seen :]}"
                self.shown += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", data.decode()).replace("\r", "")
        begin, self.seen = self.seen, self.shown.index(until, self.seen) + len(until)
        return self.shown[begin : self.seen]

    def answer(self, question: str, text: str) -> str:
        """Wait for a question, and answer it; what stood before it and with it."""
        shown = self.read(question)
        os.write(self.end, f"{text}\n".encode())
        return shown

    def interrupt(self, until: str) -> None:
        """Press Ctrl+C until something comes of it: Python does not see one that comes between its
        last look at signals and its wait for a line."""
        for press in range(4):
            os.write(self.end, b"\x03")
            try:
                self.read(until, seconds=SECONDS / 4)
                return
            except AssertionError:
                if press == 3:
                    raise

    def code(self) -> int:
        """The exit code."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_a_wrong_answer_a_way_back_and_a_complete_draft(tmp_path: Path) -> None:
    (tmp_path / "gifts.csv").write_text('"";"donor no";"kg"\n"1";"A7";60\n')
    terminal = Terminal("init", "gifts.csv", "--out", "gifts.yaml", folder=tmp_path)
    begun = terminal.answer("everything of one id? (row, id) [id]: ", "row")
    assert "< goes back" in begun and '"": numbers of rows' in begun
    warned = terminal.answer("What is one row, e.g. one person? ", "<")
    assert re.search(r"\nwarning: .*'donor no' sounds as if", warned)
    terminal.answer("everything of one id? (row, id) [id]: ", "patient")
    wrong = terminal.answer("(row, id) [id]: ", "")
    assert "got 'patient'; allowed: row, id.\n" in wrong  # the question begins a line of its own
    assert re.search(r"\nWhat is protected: ", wrong)
    terminal.answer("[donor no]: ", "")
    terminal.answer("rows of one id are used?", "2")
    terminal.answer("What is one id", "one donor")
    terminal.answer("(public, approximate) [approximate]: ", "")
    terminal.answer("at most 2 of each", "600")
    terminal.answer("stand for a missing value", "")
    terminal.answer("(1 of 1) kg: which type?", "integer")
    terminal.answer("lower bound", "30")
    terminal.answer("upper bound", "<")
    terminal.answer("lower bound", "40")
    terminal.answer("upper bound", "160")
    for question in ("very common", "unit", "values be missing", "what does it hold"):
        terminal.answer(question, "")
    for question in ("in a sentence", "Licence", "Epsilon", "Delta"):
        terminal.answer(question, "")
    done = terminal.read("then `synthdp release gifts.yaml`")
    assert "it is complete" in done and "warning" not in done and terminal.code() == 0
    spec = parse_spec((tmp_path / "gifts.yaml").read_text(), path="gifts.yaml")
    unit = spec.dataset.privacy_unit
    assert isinstance(unit, IdUnit) and (unit.column, unit.max_rows) == ("donor no", 2)
    assert spec.columns["kg"].model_dump()["lower"] == 40
    assert sorted(p.name for p in tmp_path.iterdir()) == ["gifts.csv", "gifts.yaml"]


def test_an_interrupted_dialogue_goes_on_and_may_go_back_before_it(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("answer\tgroup\n")
    words = ("init", "t.csv", "--out", "t.yaml")
    first = Terminal(*words, folder=tmp_path)
    first.answer("(row, id): ", "row")
    first.answer("What is one row", "one reply")
    first.read("(public, approximate) [approximate]: ")
    first.interrupt("the same command goes on")
    assert first.code() != 0
    again = Terminal(*words, folder=tmp_path)
    begun = again.answer("(public, approximate) [approximate]: ", "<")
    assert "going on with 2 answers" in begun and "What is one row" not in begun
    again.answer("What is one row", "one answer")
    again.answer("(public, approximate) [approximate]: ", "public")
    again.read("How many rows")
    again.interrupt("3 answers are kept")
    assert "one answer" in (tmp_path / "t.yaml.answers").read_text()
    assert again.code() != 0
