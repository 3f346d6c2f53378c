"""The game against peers: several fits in one process keep apart, a peer that copies its rows is
seen, and one that fails is told.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks import attack_peers, peers_run
from benchmarks.attack_peers import Bootstrap, PeerTrainer, trainer
from benchmarks.peers_run import Peer, Request

pytestmark = pytest.mark.check

FAKE = "tests.benchmarks.fake_peer"
LEVELS = {"c0": 2, "c1": 5}


def test_several_fits_of_one_process_keep_apart(tmp_path: Path) -> None:
    tables = [
        pd.DataFrame(np.random.default_rng(i).integers(2, size=(20 + i, 2)), columns=list(LEVELS))
        for i in range(2)
    ]
    requests = [
        Request("none", table, table, LEVELS, 1.0 + i, 1e-5) for i, table in enumerate(tables)
    ]
    outcomes = peers_run.run_many(Peer(FAKE, "copies"), requests, tmp_path, seconds=60)
    for i, (outcome, table) in enumerate(zip(outcomes, tables, strict=True)):
        assert outcome.codes is not None and outcome.cost is not None
        pd.testing.assert_frame_equal(outcome.codes, table.astype("uint16"))
        assert outcome.cost["epsilon_spent"] == (1.0 + i) / 2


def test_a_fit_that_fails_is_told_in_its_own_words() -> None:
    fails = PeerTrainer(Peer(FAKE, "fails"), (2, 5), 1.0, 20, 60)
    with pytest.raises(RuntimeError, match="failed: ValueError: no such thing"):
        fails(np.zeros((20, 2), dtype=int), seed_sequence=np.random.SeedSequence(0))


def test_all_synthesizers_play_on_the_same_rows_and_release_as_many() -> None:
    ours, bare, control = (
        trainer(name, rows=60, columns=9, epsilon=1.0, seconds=60)
        for name in ("synthdp", "synthdp-no-graph", "bootstrap")
    )
    assert (ours[0] == bare[0]).all() and (ours[0] == control[0]).all() and ours[1] == control[1]
    assert (
        ours[3] is not None
        and ours[3].epsilon == 1.0
        and ours[3].ceiling_advantage() < 0.2
        and control[3] is None
    )
    graphs = [own[2].shadow.graph.directed for own in (ours, bare)]  # type: ignore[union-attr]
    assert len(graphs[0]) > 5 and not graphs[1]
    assert isinstance(control[2], Bootstrap) and control[2](
        control[0], seed_sequence=np.random.SeedSequence(0)
    ).shape == (59, 9)
    narrow = trainer("synthdp", rows=60, columns=4, epsilon=1.0, seconds=60)
    assert (narrow[0] == ours[0][:, :4]).all() and narrow[1] == ours[1][:4] == narrow[
        2
    ].shadow.domain.sizes  # type: ignore[union-attr]
    few = set(narrow[2].shadow.graph.directed)  # type: ignore[union-attr]
    assert few and few == {
        (a, b) for a, b in graphs[0] if {a, b} <= set(narrow[2].shadow.domain.names)
    }  # type: ignore[union-attr]


@pytest.mark.slow
def test_a_peer_that_copies_its_rows_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Twelve pairs, twenty-four fits in three processes; what was attacked before is kept beside
    it.
    """
    monkeypatch.setitem(attack_peers.PEERS, "dpmm-mst", Peer(FAKE, "copies"))
    call: list[str] = [
        "--pairs",
        "12",
        "--rows",
        "40",
        "--workers",
        "1",
        "--work",
        str(tmp_path / "work"),
        "--out",
        str(tmp_path),
    ]
    attack_peers.main(["--peers", "dpmm-mst", *call])
    kept: Any = pd.read_csv(tmp_path / "attack_peers.csv")
    assert set(kept["peer"]) == {"dpmm-mst"} and len(kept) == 25
    main = kept[kept["declared"]].iloc[0]
    assert (main["extractor"], main["classifier"]) == ("targeted", "random_forest") and main[
        "advantage"
    ] > 0.6
    monkeypatch.setitem(attack_peers.PEERS, "smartnoise-mst", Peer(FAKE, "fails"))
    attack_peers.main(["--peers", "smartnoise-mst", *call])
    assert "smartnoise-mst: failed: ValueError: no such thing" in capsys.readouterr().out
    monkeypatch.setattr(attack_peers, "python_of", lambda peer: (None, "no such package"))
    attack_peers.main(["--peers", "dpmm-mst", *call])
    assert "dpmm-mst: does not install: no such package" in capsys.readouterr().out
    assert pd.read_csv(tmp_path / "attack_peers.csv").equals(kept)
