"""Progress: what is being done and how long it will take, on a terminal and where there is none."""

from __future__ import annotations

import re
import time

import pytest

from synthdp import show_progress
from synthdp.reporter import Reporter
from synthdp.show_progress import ProgressDisplay
from synthdp.steps import Steps


def shown(capfd: pytest.CaptureFixture[str], *, seconds: float) -> str:
    """What stderr shows of a stage that is at its fourth step of twelve, and of what follows."""
    with ProgressDisplay() as display:
        with Reporter(display).stage("judge on real rows") as progress:
            steps = Steps(12, progress)
            for name in ("one", "two", "three"):
                steps.begin(name)
            steps.run("learning [sex]", lambda: time.sleep(seconds))
        time.sleep(seconds)
    out, err = capfd.readouterr()
    assert out == ""
    return err


def test_a_plain_line_every_so_often_says_step_and_time_left(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(show_progress, "PLAIN_SECONDS", 0.05)
    lines = shown(capfd, seconds=0.5).splitlines()
    said = r"judge on real rows: 3 of 12, learning \[sex\], \d s so far, about [0-9] s left"
    assert len(lines) >= 3 and all(re.fullmatch(said, line) for line in lines[:-1])
    assert re.fullmatch(r"judge on real rows: \d\.\d s", lines[-1])  # and nothing after the stage's end


def test_short_stages_are_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert re.fullmatch(r"judge on real rows: \d\.\d s\n", shown(capfd, seconds=0.05))


def test_a_terminal_has_a_bar_instead(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(show_progress, "PLAIN_SECONDS", 0.05)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    text = shown(capfd, seconds=0.3)
    assert "judge on real rows: learning [sex]" in text and "3/12" in text and "so far" not in text


def test_before_the_first_step_has_ended_no_time_left_is_told(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(show_progress, "PLAIN_SECONDS", 0.05)
    with ProgressDisplay() as display:
        with Reporter(display).stage("read"):
            time.sleep(0.2)
        with Reporter(display).stage("judge") as progress:
            Steps(2, progress).run("fidelity", lambda: time.sleep(0.2))
    err = capfd.readouterr().err
    assert "read: 0 s so far\n" in err and "judge: 0 of 2, fidelity, 0 s so far\n" in err
