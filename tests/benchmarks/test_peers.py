"""The side-by-side benchmark without any peer: one that copies rows, one that fails, one that
hangs, one that does not install.
"""

import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import peers, peers_run
from benchmarks.peers import Cell, Row
from benchmarks.peers_plot import MARKERS, plot
from benchmarks.peers_run import Outcome, Peer, Request
from benchmarks.tabular_protocol import Table

pytestmark = pytest.mark.check

FAKE = "tests.benchmarks.fake_peer"
LEVELS = {"c0": 2, "c1": 5}


def request_for(rows: int = 200) -> Request:
    rng = np.random.default_rng(0)
    codes = pd.DataFrame({name: rng.integers(n, size=rows) for name, n in LEVELS.items()})
    return Request("none", codes, codes, LEVELS, 1.0, 1e-5)


def run_fake(mechanism: str, folder: Path, *, seconds: float = 60.0) -> Outcome:
    return peers_run.run(Peer(FAKE, mechanism), request_for(), folder, seconds=seconds)


def test_fit_hands_rows_cost_and_epsilon_back(tmp_path: Path) -> None:
    outcome = run_fake("copies", tmp_path)
    assert outcome.words == "ok"
    assert outcome.codes is not None and outcome.cost is not None
    pd.testing.assert_frame_equal(outcome.codes, request_for().codes.astype("uint16"))
    assert outcome.cost["epsilon_spent"] == 0.5
    assert 0.02 < outcome.cost["rss_gb"] < 2
    assert 0 <= outcome.cost["cpu_s"] < 10


def test_levels_outside_the_domain_are_brought_back(tmp_path: Path) -> None:
    codes = run_fake("strays", tmp_path).codes
    assert codes is not None
    assert codes.iloc[:3].to_numpy().tolist() == [[1, 4], [0, 0], [0, 0]]


def test_fit_that_raises_is_named_with_its_exception(tmp_path: Path) -> None:
    assert run_fake("fails", tmp_path) == Outcome("failed: ValueError: no such thing")


def test_fit_that_hangs_is_ended_by_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers_run, "CLOCK_FOR_CPU", 0.2)
    started = time.monotonic()
    assert run_fake("hangs", tmp_path, seconds=10) == Outcome("stopped after 2 s of clock")
    assert time.monotonic() - started < 50  # it would hang for 60 s


def test_fit_that_takes_too_much_cpu_time_is_ended_however_long_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers_run, "CLOCK_FOR_CPU", 60)
    assert run_fake("spins", tmp_path, seconds=1) == Outcome("stopped after 1 CPU s")


def test_peer_that_does_not_install_is_named_and_its_environment_not_taken_for_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYNTHDP_PEERS", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    missing = Peer(FAKE, "copies", (str(tmp_path / "no_such_folder" / "peer-1-py3-none-any.whl"),))
    folder = tmp_path / "fit"
    folder.mkdir()
    words = peers_run.run(missing, request_for(), folder, seconds=60).words
    assert words.startswith("does not install: ERROR: ") and "no_such_folder" in words
    assert list((tmp_path / "cache").iterdir()) and not list(
        (tmp_path / "cache").glob("*/installed")
    )


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (
            (
                "  error: subprocess-exited-with-error\n  fatal: no route to host\nERROR: Failed to"
                " build"
            ),
            "fatal: no route to host",
        ),
        (
            "Collecting x\nERROR: No matching distribution\nERROR: second",
            "ERROR: No matching distribution",
        ),
        ("something else", "something else"),
        ("", "no message"),
    ],
)
def test_error_that_is_told_is_the_one_that_says_why(said: str, line: str) -> None:
    assert peers_run.first_error(said) == line


def test_every_peer_has_a_shape_and_a_pinned_version() -> None:
    assert set(peers.PEERS) == set(MARKERS)
    assert len({marker for marker, _ in MARKERS.values()}) == len(MARKERS)
    for name, peer in peers.PEERS.items():
        assert peer.requirements or name.startswith("synthdp")
        for requirement in peer.requirements:
            assert (
                "==" in requirement or len(requirement.partition("@")[2].rpartition("@")[2]) == 40
            ), requirement


def figures(cell: Cell) -> Row:
    return {"outcome": "ok", "pinned": "x==1", "delta": 1e-6, "epsilon_spent": cell.epsilon} | {
        name: 0.5 + cell.run for name in peers.FIGURES
    }


def test_run_that_is_held_is_not_run_again_and_a_failure_is_not_repeated(tmp_path: Path) -> None:
    path, asked = tmp_path / "peers.csv", []

    def measuring(cell: Cell) -> Row:
        asked.append(cell)
        return {"outcome": "stopped after 900 s"} if cell.peer == "dpmm-aim" else figures(cell)

    chosen = lambda runs: peers.cells(["adult"], ["dpmm-mst", "dpmm-aim"], [1.0], runs)  # noqa: E731
    peers.complete(chosen(1), {}, path, measuring)
    assert [c.peer for c in asked] == [peers.REAL, peers.GRID, "dpmm-mst", "dpmm-aim"]
    asked.clear()
    peers.complete(chosen(3), peers.held(path), path, measuring)
    assert asked == [Cell(1, "adult", 1.0, "dpmm-mst"), Cell(2, "adult", 1.0, "dpmm-mst")]
    assert len(peers.held(path)) == 6
    row = peers.held(path)[Cell(2, "adult", 1.0, "dpmm-mst")]
    assert (row["mean_auc"], row["delta"]) == (2.5, 1e-6)


def test_summary_has_means_and_every_failure_and_the_plot_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "peers.csv"
    rows: dict[Cell, Row] = {
        Cell(number, "adult", 1.0, "dpmm-mst"): figures(Cell(number, "adult", 1.0, "dpmm-mst"))
        for number in range(3)
    }
    rows |= {
        Cell(0, "adult", 0.0, what): figures(Cell(0, "adult", 0.0, what))
        for what in (peers.REAL, peers.GRID)
    }
    rows[Cell(0, peers.ALL, 0.0, "dpsynth")] = {"outcome": "does not install: fatal: no route"}
    peers.write(rows, path)
    told = peers.summary(path)
    assert "1.5" in told
    assert "\ndpsynth: does not install: fatal: no route" in told
    plot(pd.read_csv(path), tmp_path / "peers.png")
    assert (tmp_path / "peers.png").stat().st_size > 10_000


def test_protocol_gives_real_rows_no_distance_and_scores_that_a_constant_target_does_not_reach() -> (  # noqa: E501
    None
):
    table = Table("rand-hie")
    train, test = table.split
    assert len(train) + len(test) == 20190
    table.__dict__["split"] = train.iloc[:1500], test.iloc[:800]  # quick
    small = table.split[0]
    real = table.score(small)
    assert real["tv1"] == real["tv3"] == 0.0
    assert real["mean_auc"] > 0.6
    constant = table.score(small.assign(hlthg="0"))
    assert constant["mean_auc"] == 0.5
    assert constant["tv1"] > 0.01
    shuffled = small.assign(
        hlthg=small["hlthg"].to_numpy()[np.random.default_rng(1).permutation(len(small))]
    )
    assert table.score(shuffled)["mean_auc"] < 0.56


def test_target_cannot_be_seen_by_its_own_classifiers() -> None:
    table = Table("rand-hie")
    noise = np.random.default_rng(2)
    frame = pd.DataFrame(
        {c.name: noise.choice(["0", "1"], size=1200) for c in table.domain.columns}
    )
    table.__dict__["split"] = frame.iloc[:800], frame.iloc[800:]
    assert abs(table.score(frame.iloc[:800])["mean_auc"] - 0.5) < 0.08


def test_environment_is_built_once_and_what_is_not_needed_is_taken_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYNTHDP_PEERS", str(tmp_path))
    commands: list[str] = []

    def record(command: list[str], *, clock: float) -> tuple[int, str]:
        commands.append(" ".join(command[1:]))
        if "venv" in command:
            Path(command[-1]).mkdir()
        return 0, ""

    monkeypatch.setattr(peers_run, "_limited", record)
    peer = Peer("benchmarks.peers_fit.fit_mine", "any", ("mine==1",), unneeded=("torchvision",))
    python, _ = peers_run.python_of(peer)
    assert python is not None and python.is_relative_to(tmp_path)
    assert [c.rpartition(" -")[2] for c in commands] == [
        f"-without-pip {python.parent.parent}",
        "-quiet mine==1",
        "-yes torchvision",
    ]
    assert peers_run.python_of(peer) == (python, "")
    assert len(commands) == 3
    other, _ = peers_run.python_of(Peer(peer.module, "any", ("mine==2",)))
    assert other != python


def test_simulated_table_is_held_as_a_csv_file_holds_it() -> None:
    train, test = Table("pain5000").split
    assert (len(train), len(test)) == (4000, 1000)
    assert {value for name in train for value in train[name].unique()} == {"false", "true"}
