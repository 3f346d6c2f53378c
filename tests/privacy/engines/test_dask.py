"""Dask as an engine: the same counts on a cluster, whichever of its workers die."""

import logging
import os
import signal
import socket
import ssl
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from synthdp.data import Domain, LevelGroups
from synthdp.errors import DataError
from synthdp.privacy.engines import on_dask
from synthdp.privacy.engines.on_arrow import coins_of
from synthdp.privacy.engines.on_dask import DaskEngine
from synthdp.privacy.engines.opening import find_parts
from synthdp.privacy.noise import Streams
from synthdp.privacy.table import Table
from tests.builders import dask_processes
from tests.privacy.engines import test_sums as sums
from tests.privacy.engines.tables import expected, levels_of, reading_of, same, write
from tests.privacy.engines.test_counts import DOMAIN, TABLES, kept, people

pytestmark = pytest.mark.check

pytest.importorskip("distributed")

PLAIN = LevelGroups(DOMAIN, {})


def test_a_cluster_counts_bounds_and_samples_alike(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_dask, "SHARD_ROWS", 200)  # five shards
    table = people(900, ids=120)
    write(table, tmp_path, files=4)
    parts, address = find_parts(".", tmp_path), cluster.scheduler_address
    rows = DaskEngine(reading_of(DOMAIN), parts, 900, address=address)
    assert same(rows.count(PLAIN, TABLES), expected(DOMAIN, table, TABLES))
    assert np.array_equal(rows.sample(1.0, Streams.fresh()), levels_of(DOMAIN, table))
    assert rows.survey().rows == 900
    ids = DaskEngine(reading_of(DOMAIN, "id", 3), parts, 900, address=address)
    stay = kept(table, 3)
    assert same(ids.count(PLAIN, TABLES), expected(DOMAIN, stay, TABLES))
    wanted = sorted(map(tuple, levels_of(DOMAIN, stay).tolist()))
    assert sorted(map(tuple, ids.sample(1.0, Streams.fresh()).tolist())) == wanted
    assert ids.survey().without_id == 0


@pytest.mark.slow
def test_a_cluster_adds_up_and_draws_alike(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_dask, "SHARD_ROWS", 450)  # two shards
    table, address = sums.paid(900, ids=120), cluster.scheduler_address
    shuffled = table.take(np.random.default_rng(3).permutation(900))
    write(shuffled, tmp_path, files=4)
    parts, whole = find_parts(".", tmp_path), sums.in_memory(sums.DOMAIN, table)
    rows = DaskEngine(reading_of(sums.DOMAIN), parts, 900, address=address)
    ids = DaskEngine(reading_of(sums.DOMAIN, "id", 3), parts, 900, address=address)
    assert sums.same_sums(rows, whole) and sums.same_sums(ids, sums.staying(table, 3))
    ids = replace(ids, reading=replace(ids.reading, **sums.HELD))
    sums.check_held_out(ids, sums.staying(table, 3, 0.3))
    own = replace(rows.reading, **sums.HELD)
    held = np.concatenate([coins_of(own, part) for part in parts.parts])
    whole = sums.in_memory(sums.DOMAIN, shuffled)
    wanted = Table(whole.codes, whole.frame, held, {})
    sums.check_held_out(replace(rows, reading=own), wanted)


def test_an_error_names_its_kind_and_no_log_has_more(
    cluster: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(people(300, ids=50), tmp_path, files=3)
    engine = DaskEngine(
        reading_of(DOMAIN), find_parts(".", tmp_path), 300, address=cluster.scheduler_address
    )
    (tmp_path / "01.parquet").write_text("canary-4711")
    with (
        caplog.at_level(logging.DEBUG),
        pytest.raises(DataError, match="task of compute") as caught,
    ):
        engine.count(PLAIN, TABLES)
    assert "canary" not in str(caught.value) + caplog.text + str(cluster.scheduler.get_events())
    assert str(tmp_path) not in str(caught.value) + caplog.text


def _told_to_a_stranger(plain: socket.socket) -> bytes:
    """What comes first on a connection without a certificate: nothing."""
    try:
        with ssl._create_unverified_context().wrap_socket(plain) as stream:
            return stream.recv(1)
    except (ssl.SSLError, ConnectionError):
        return b""


def test_nobody_else_on_this_machine_reaches_the_own_cluster(tmp_path: Path) -> None:
    """Whoever reaches a scheduler without a certificate could run code on its workers."""
    table = people(300, ids=50)
    write(table, tmp_path)
    engine = DaskEngine(reading_of(DOMAIN), find_parts(".", tmp_path), 300)
    assert same(engine.count(PLAIN, TABLES), expected(DOMAIN, table, TABLES))
    (cluster,) = engine.local
    address = urlsplit(cluster.scheduler_address)
    assert address.scheme == "tls"
    with socket.create_connection((address.hostname, address.port), timeout=20) as plain:
        assert _told_to_a_stranger(plain) == b""
    pages = f"http://127.0.0.1:{cluster.scheduler.http_server.port}"
    for page in ("/info/main/workers.html", "/json/counts.json", "/metrics"):
        with pytest.raises(HTTPError, match="404"):
            urlopen(pages + page, timeout=20)


def test_the_own_cluster_works_in_a_folder_that_no_other_account_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask's own has one name for all accounts: rows spill there, and modules would be taken."""
    theirs = tmp_path / "dask-scratch-space"
    theirs.mkdir()
    theirs.chmod(0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cluster = on_dask._own_cluster(1)
    try:
        spills = [worker.local_directory for worker in cluster.scheduler.workers.values()]
        used = [Path(p) for p in (*sys.path, *spills) if Path(p).is_relative_to(tmp_path)]
    finally:
        cluster.close()
    assert len(spills) == 1 and len(used) > 1
    tops = {tmp_path / path.relative_to(tmp_path).parts[0] for path in used}
    assert {top.stat().st_mode & 0o777 for top in tops} == {0o700}
    assert not list(theirs.iterdir())


def test_no_warning_tells_how_large_a_sample_is(
    cluster: Any, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """Positions of 1.5 million units are 12 MB, which is a large task to Dask."""
    rows = 1_500_000
    domain = Domain((DOMAIN["sex"],))
    pq.write_table(pa.table({"sex": pa.repeat("f", rows)}), tmp_path / "a.parquet")
    engine = DaskEngine(
        reading_of(domain), find_parts(".", tmp_path), rows, address=cluster.scheduler_address
    )
    assert 1_420_000 < len(engine.sample(0.95, Streams.fresh())) < 1_430_000  # 18 deviations
    assert not [str(w.message) for w in recwarn if "size" in str(w.message)]


@pytest.mark.slow
def test_workers_that_die_change_no_count(tmp_path: Path) -> None:
    """Twenty workers are killed at random points of counting; what they had is counted once."""
    table = people(40_000, ids=9_000)
    write(table, tmp_path, files=80, rows_of_group=500)
    parts, rng = find_parts(".", tmp_path), np.random.default_rng(11)
    wanted = expected(DOMAIN, table, TABLES)
    stay = expected(DOMAIN, kept(table, 3), TABLES)
    killed, over = 0, threading.Event()
    with dask_processes(3) as cluster:

        def kill() -> None:
            nonlocal killed
            while not over.is_set() and killed < 20:
                time.sleep(rng.uniform(0.3, 1.5))
                alive = [w.pid for w in cluster.workers.values() if getattr(w, "pid", None)]
                if len(alive) > 1:
                    os.kill(alive[rng.integers(len(alive))], signal.SIGKILL)
                    killed += 1

        killer = threading.Thread(target=kill, daemon=True)
        address = cluster.scheduler_address
        rows = DaskEngine(reading_of(DOMAIN), parts, 40_000, address=address)
        ids = DaskEngine(reading_of(DOMAIN, "id", 3), parts, 10_000_000, address=address)
        killer.start()
        for _ in range(30):
            assert same(rows.count(PLAIN, TABLES), wanted)
            assert same(ids.count(PLAIN, TABLES), stay)
            if killed >= 20:
                break
        over.set()
        killer.join()
    assert killed >= 20
