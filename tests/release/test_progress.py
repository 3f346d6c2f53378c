"""Progress: what is being done and how long it will take, on a terminal and where there is none."""

import re
import threading
import time
from contextlib import nullcontext, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from synthdp.cli import options
from synthdp.cli.options import ProgressDisplay, working
from synthdp.progress import Steps, advance, seconds, shown_on, stage, warn
from synthdp.release import run
from tests.release.conftest import Heard

pytestmark = pytest.mark.check


def shown(capfd: pytest.CaptureFixture[str], *, lasts: float, after: float = 0.0) -> str:
    """What stderr shows of a stage that is at its fourth step of twelve, and of what follows."""
    with ProgressDisplay() as display, shown_on(display):
        with stage("judge on real rows"):
            steps = Steps(12)
            for name in ("one", "two", "three"):
                steps.run(name, lambda: time.sleep(lasts / 3))
            steps.run("learning [sex]", lambda: time.sleep(lasts))
        time.sleep(after)
    out, err = capfd.readouterr()
    assert out == ""
    return err


def test_a_plain_line_every_so_often_says_step_and_time_left(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(options, "PLAIN_SECONDS", 0.05)
    lines = shown(capfd, lasts=0.6, after=0.2).splitlines()
    said = [
        line
        for line in lines
        if re.fullmatch(
            r"judge on real rows: 3 of 12, learning \[sex\], \d s so far, about [1-9] s left", line
        )
    ]
    assert len(said) >= 3 and "judge on real rows: 0 of 12, one, 0 s so far" in lines
    end = next(i for i, line in enumerate(lines) if re.fullmatch(r"judge.*: \d\.\d s", line))
    after = lines[end + 1 :]  # where no stage runs, the command itself says that it works
    assert after and all(re.fullmatch(r"working: \d s so far", line) for line in after)


def test_short_stages_are_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert re.fullmatch(r"judge on real rows: \d\.\d s\n", shown(capfd, lasts=0.05))


def test_no_line_comes_after_a_display_has_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, told = threading.Event(), list[str]()

    def slow(_: ProgressDisplay, text: str) -> None:
        begun.set()
        time.sleep(0.2)
        told.append(text)

    monkeypatch.setattr(options, "PLAIN_SECONDS", 0.05)
    monkeypatch.setattr(ProgressDisplay, "tell", slow)
    with ProgressDisplay():
        assert begun.wait(60)
    assert told


def test_a_terminal_has_a_bar_instead(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(options, "PLAIN_SECONDS", 0.05)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    text = shown(capfd, lasts=0.3)
    assert "judge on real rows: learning [sex]" in text and "3/12" in text
    assert not re.search("judge.*so far", text)  # a line of a log; before it may stand "working"


def test_of_a_step_that_takes_longer_than_all_before_no_time_left_is_told(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(options, "PLAIN_SECONDS", 0.05)
    with ProgressDisplay() as display, shown_on(display):
        with stage("read"):
            time.sleep(0.2)
        with stage("judge"):
            steps = Steps(2)
            steps.begin("fidelity")
            steps.run("pair plots", lambda: time.sleep(0.3))
    err = capfd.readouterr().err
    assert "read: 0 s so far\n" in err and "judge: 1 of 2, pair plots, 0 s so far\n" in err


def test_a_stage_is_shown_though_nobody_handed_it_a_display() -> None:
    """The innermost stage hears; what is outside hears again when it has ended, also by an error;
    another thread, and whoever comes after, is heard by nobody.
    """
    heard = Heard()
    with shown_on(heard):
        with shown_on(), stage("outer"):
            with suppress(ValueError), stage("inner"):
                advance(1, 2, "step")
                raise ValueError("inside")
            advance(3, 4)
            thread = threading.Thread(target=advance, args=(9, 9))
            thread.start()
            thread.join()
            assert [*seconds()] == ["inner"]
        assert not seconds()  # those of one run are not those of the next
        advance(8, 8)
    with stage("after"):
        advance(7, 7)
    assert heard.steps == {"inner": [(1, 2, "step")], "outer": [(3, 4, "")]}


def test_a_command_shows_the_stages_of_what_it_calls(capfd: pytest.CaptureFixture[str]) -> None:
    with working("sample"), stage("inner"):
        pass
    with working():
        warn(["one", "two"])
    lines = capfd.readouterr().err.splitlines()
    assert [re.sub(r"[0-9.]+ s", "S", line) for line in lines] == [
        "inner: S",
        "sample: S",
        "warning: one",
        "warning: two",
    ]


@pytest.mark.parametrize("tracked", [False, True])
def test_no_stage_of_a_release_comes_twice(
    tracked: bool, tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is logged is named for what it is; where nothing is logged, no stage says so."""
    monkeypatch.setattr(run, "record_publication", lambda *_, **__: None)
    monkeypatch.setattr(run, "record_judgement", lambda *_, **__: None)
    monkeypatch.setattr(
        "synthdp.release.tracked.tracker",
        lambda *_, **__: nullcontext(SimpleNamespace(warnings=())),
    )
    begun: list[str] = []
    heard = Heard()
    monkeypatch.setattr(heard, "finish", lambda title, seconds: begun.append(title))
    tiny.write(tracking={"enabled": tracked}).release(display=heard)
    logged = ["log the bundle in MLflow", "log the report in MLflow"]
    assert len(begun) == len(set(begun)) and [t for t in begun if "MLflow" in t] == (
        logged if tracked else []
    )
    assert "bundle" in begun and "track" not in begun
