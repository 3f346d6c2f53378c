"""What people see on a terminal: help with examples, tables that fit, colours of verdicts."""

import re
import shlex
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from typer.main import get_command
from typer.testing import CliRunner

from synthdp.api.text import Rows, shared
from synthdp.cli.main import app
from synthdp.cli.options import COMMANDS, GRAPH_COMMANDS, _Verdicts, say
from synthdp.release import quality_of

LINES = [("synthdp", name) for commands in COMMANDS.values() for name in commands]
LINES += [("synthdp graph", name) for name in GRAPH_COMMANDS]


def helped(*words: str, monkeypatch: pytest.MonkeyPatch, width: int = 80) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    done = CliRunner().invoke(app, [*words, "--help"])
    assert done.exit_code == 0, done.output
    return done.output


def test_every_command_stands_in_a_panel_of_the_page_of_commands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commands: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
    assert set(commands) == {name for names in COMMANDS.values() for name in names}
    assert set(commands["graph"].commands) == set(GRAPH_COMMANDS)
    text = helped(monkeypatch=monkeypatch)
    places = [text.index(f"─ {panel} ─") for panel in COMMANDS]
    assert places == sorted(places) and "... │" not in text  # none is cut


@pytest.mark.parametrize(("prefix", "name"), LINES)
def test_help_ends_with_examples_whose_options_exist(
    prefix: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (*prefix.split()[1:], name)
    narrow = helped(*words, monkeypatch=monkeypatch)
    assert all(len(line) <= 80 for line in narrow.splitlines())
    whole = helped(*words, monkeypatch=monkeypatch, width=300)
    listed = COMMANDS if prefix == "synthdp" else {"": GRAPH_COMMANDS}
    examples = next(commands[name] for commands in listed.values() if name in commands)
    for example in examples:
        assert example in whole and example.startswith(f"{prefix} {name}")
        for word in shlex.split(example):
            if word.startswith("--"):
                assert word in whole, word


WORDS = st.lists(st.text("abc", min_size=1, max_size=24), max_size=3).map(" ".join)
CELLS = st.lists(st.tuples(WORDS, WORDS, WORDS), min_size=1, max_size=4)


@given(CELLS, st.integers(20, 120))
@settings(max_examples=60, deadline=None)
def test_no_word_of_a_table_is_broken_unless_it_alone_takes_half_a_line(
    rows: list[tuple[str, str, str]], width: int
) -> None:
    table = Rows(["one", "two", "three"], rows, [1])
    console = Console(width=width, color_system=None, file=None, markup=False, highlight=False)
    with console.capture() as kept:
        console.print(table.fitted(width))
    words = re.findall(r"\S+", kept.get())
    short = [w for row in rows for cell in row for w in cell.split() if len(w) <= width // 2]
    assert all(words.count(w) >= short.count(w) for w in short)


def test_columns_that_lack_least_are_widened_first() -> None:
    assert shared([3, 4, 2], [5, 40, 2], 30) == [5, 23, 2]
    assert sum(shared([3, 4], [50, 40], 30)) == 30


def test_verdicts_have_colours_and_names_cannot_bring_their_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    say("gate tv1 at most 0.1: FAILED\nwarning: \x1b[31mred\n[bold]not markup[/bold]")
    shown = capsys.readouterr().out
    say("gate tv1_dp at most 0.1: passed; noise decided\ngate tv1 at most 1: passed")
    gates = capsys.readouterr().out
    assert "\x1b[33mpassed; noise decided" in gates and "\x1b[32mpassed\x1b" in gates
    assert "\x1b[31mFAILED" in shown and "\x1b[33mwarning" in shown
    assert "\\x1b[31mred" in shown and "[bold]not markup[/bold]" in shown
    assert _Verdicts.highlights


def test_elsewhere_lines_are_whole(capsys: pytest.CaptureFixture[str]) -> None:
    say("word " * 60)
    assert capsys.readouterr().out == "word " * 60 + "\n"


def test_a_release_ends_with_public_figures_alone() -> None:
    metrics = {"tv1_noisy": 0.0032, "tv1": 0.5, "attack_advantage": 0.4, "tstr_auc": 0.9}
    assert quality_of(metrics) == (
        "quality single columns 0.0032 from the noisy counts (total variation); pairs of columns"
        " are judged in the report alone, unless evaluation.disclosure is private"
    )
    ends = {"tv2_dp_low": 0.0, "tv2_dp_high": 0.061, "tv1_dp_low": 0.002, "tv1_dp_high": 0.006}
    paid = quality_of(metrics | {"tv2_dp": 0.021, "tv1_dp": 0.004} | ends)
    assert "pairs of columns 0.021 (0 to 0.061) from the real ones, measured under" in paid
    assert "in brackets: 95% intervals" in paid and "0.5" not in paid and "0.4" not in paid
