"""An attack that is interrupted goes on with the models that it has trained: in a release, whose
budget is spent by then, and in an audit.
"""

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synthdp.audit import (
    AUDITS,
    AttackFolder,
    ShadowTrainer,
    attack_rows,
    audit_folder,
    membership,
    plan,
    shadow_models,
)
from synthdp.audit import folder as attack_folder
from synthdp.audit import folder as power
from synthdp.bundle import CONFIDENTIAL_FILE, PUBLIC_FILE, AuditRecord, spends_of
from synthdp.data import Domain
from synthdp.errors import OutputError
from synthdp.graph import CausalGraph
from synthdp.progress import Advance, unheard
from synthdp.release import RunFolder, resume
from synthdp.spec import load_spec
from synthdp.verify import verify_bundle
from synthdp_attacks import RUNNERS, Serial
from tests.builders import audit_record, one_audit
from tests.release.conftest import internal

pytestmark = pytest.mark.check

PAIRS = 4
MODELS = 2 * PAIRS
ATTACK = {"membership": {"enabled": True, "rows": 40, "pairs": PAIRS, "steps": 2}}


class Trained:
    """Shadow models that were trained; Ctrl-C comes as model `stop` is started."""

    def __init__(self) -> None:
        self.seeds: list[tuple[int, ...]] = []
        self.stop: int | None = None


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> Trained:
    """One after the other, in this process."""
    found, true = Trained(), ShadowTrainer.__call__

    def call(self: Any, rows: Any, *, seed_sequence: np.random.SeedSequence) -> Any:
        if len(found.seeds) == found.stop:
            raise KeyboardInterrupt
        released = true(self, rows, seed_sequence=seed_sequence)
        found.seeds.append((*seed_sequence.entropy, *seed_sequence.spawn_key))  # type: ignore[misc]
        return released

    monkeypatch.setitem(RUNNERS, "loky", lambda workers, address: Serial())
    monkeypatch.setattr(shadow_models, "SIDE_BY_SIDE", 1)
    monkeypatch.setattr(power, "TABLE_RELEASES", 1)
    monkeypatch.setattr(ShadowTrainer, "__call__", call)
    return found


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Audits of the attack alone: the other stages have tests of their own."""

    def nothing(job: Any, rows: Any, **settings: int) -> AuditRecord:
        return audit_record(rows=rows, spends=spends_of(job.plan))

    monkeypatch.setattr(plan.AuditJob, "replayed", nothing)
    monkeypatch.setattr(plan, "audit_canaries", lambda *_, **__: one_audit())


def interrupt(trained: Trained, after: int, run: Callable[[], Any]) -> None:
    trained.stop = len(trained.seeds) + after
    with pytest.raises(KeyboardInterrupt):
        run()
    trained.stop = None


def assert_one_game(trained: Trained) -> None:
    """Every model of one game was trained, once."""
    assert len(trained.seeds) == len(set(trained.seeds)) == MODELS
    assert len({seed[:4] for seed in trained.seeds}) == 1
    assert {seed[-1] for seed in trained.seeds} == set(range(MODELS))


def finished(folder: Path) -> int:
    """Models whose results lie in the folder."""
    return len(list(folder.rglob("*.npz")))


def test_a_release_goes_on_with_its_models(tiny: Any, trained: Trained) -> None:
    tiny.write(attacks=ATTACK, evaluation={"enabled": False})
    interrupt(trained, 5, tiny.release)
    (shadows,) = tiny.out.glob(".run/*/shadows")
    assert finished(shadows) == 5 and stat.S_IMODE(shadows.stat().st_mode) == 0o700
    interrupt(trained, 1, lambda: resume(tiny.out))
    resume(tiny.out)
    assert_one_game(trained)
    attack = internal(tiny.out)["attack"]
    # of each world; the attacker learns from the others
    assert [a["models"] for a in attack["declared"]][:2] == [PAIRS // 2] * 2
    assert verify_bundle(tiny.bundle).ok
    assert sorted(p.name for p in tiny.out.iterdir()) == ["bundle", "internal", "plan.json"]
    assert tiny.kinds() == ["cap", "reserve", "charge", "charge", "settle"]


# --- the folder of an attack ---


@pytest.fixture
def attack(tiny: Any, trained: Trained) -> Callable[..., Any]:
    """The attack on made-up rows alone, in a folder `shadows`."""
    loaded = load_spec(tiny.write(attacks=ATTACK).spec)
    domain = Domain.from_spec(loaded.columns)
    graph = CausalGraph.from_spec(loaded.graph, domain.names)
    codes = np.random.default_rng(1).integers(0, domain.sizes, (90, len(domain)))

    def play(
        *,
        codes: Any = codes,
        graph: CausalGraph = graph,
        spec: Any = loaded,
        progress: Advance = unheard,
    ) -> Any:
        folder = tiny.folder / "shadows"
        return attack_rows(codes, spec, domain, graph, folder=folder, progress=progress)

    interrupt(trained, 5, play)
    assert finished(tiny.folder / "shadows") == 5
    return play


def test_progress_goes_on_through_the_noisy_tables(
    attack: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One total, in which the tables weigh as much as models that take that long."""
    monkeypatch.setattr(power, "TABLE_RELEASES", 10)
    monkeypatch.setattr(membership, "cpu_seconds", lambda *_: (1.0, 5.0))
    monkeypatch.setattr(membership, "_workers", lambda spec: 1)
    heard: list[tuple[int, int, str]] = []
    attack(progress=lambda *step: heard.append(step))
    done, totals, _ = zip(*heard, strict=True)
    judging, tables = 2, 5 * MODELS
    assert set(totals) == {MODELS + judging + tables} and sorted(done) == list(done)
    parts = list(dict.fromkeys(what for *_, what in heard if what))
    assert parts == ["models", "white-box scores", "verdicts", "noisy tables"]
    assert heard[0][0] == 5  # those of the interrupted attack
    assert {at for at, _, what in heard if what == "noisy tables"} == set(
        range(MODELS + judging, MODELS + judging + tables)
    )


def changed(spec: Any, section: str, **update: Any) -> Any:
    return spec.model_copy(update={section: getattr(spec, section).model_copy(update=update)})


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        *(("key lost", 0), ("key damaged", 0), ("name of the game lost", 0)),
        *(("rows", 0), ("graph", 0), ("spec", 0), ("version", 0), ("where shadows run", 5)),
    ],
)
def test_only_the_same_game_goes_on_with_its_models(
    tiny: Any, trained: Trained, attack: Any, change: str, kept: int, monkeypatch: Any
) -> None:
    """Another one, and one whose key or name is gone, begins anew."""
    shadows, played = tiny.folder / "shadows", attack.__kwdefaults__
    if change == "key lost":
        (shadows / "key").unlink()
    elif change == "key damaged":
        (shadows / "key").write_bytes(b"\xff")
    elif change == "name of the game lost":
        (shadows / "game").unlink()
    elif change == "version":
        monkeypatch.setattr(attack_folder, "__version__", "0")
    changes = {
        "rows": {"codes": played["codes"][::-1]},
        "graph": {"graph": CausalGraph(played["graph"].nodes)},
        "spec": {"spec": changed(played["spec"], "privacy", epsilon=2.0)},
        "where shadows run": {"spec": changed(played["spec"], "compute", threads=2)},
    }
    again = partial(attack, **changes.get(change, {}))
    interrupt(trained, 1, again)
    assert finished(shadows) == kept + 1
    del trained.seeds[: 5 - kept]
    assert again().main.models == PAIRS // 2
    assert_one_game(trained)


def test_a_result_that_was_cut_short_is_made_again(
    tiny: Any, trained: Trained, attack: Callable[..., Any]
) -> None:
    file = next((tiny.folder / "shadows").rglob("*000003.npz"))
    file.write_bytes(file.read_bytes()[:-30])
    attack()
    assert len(trained.seeds) == MODELS + 1 and [s[-1] for s in trained.seeds].count(3) == 2


def test_the_same_models_give_the_same_answer(attack: Callable[..., Any]) -> None:
    """The halves are dealt, and the classifiers seeded, by coins of the game too: an interruption
    is no second throw.
    """
    first, again = attack(), attack()
    assert (first.main, first.table, first.control) == (again.main, again.table, again.control)


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "shadows").write_text("")
    with pytest.raises(OutputError, match="cannot write to"):
        AttackFolder.open(tmp_path / "shadows")


def test_keys_are_fresh_and_not_shown(tmp_path: Path) -> None:
    one, other = AttackFolder.open(tmp_path / "one"), AttackFolder.open(tmp_path / "other")
    assert one.key != other.key and one.key not in repr(one)
    folders, purposes = (one, other, one), ("game", "twin")
    assert len({folder.coins(purpose).random() for folder in folders for purpose in purposes}) == 4


# --- audits ---


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("rows", ["simulated", "real"])
def test_an_audit_that_is_given_again_goes_on(tiny: Any, trained: Trained, rows: Any) -> None:
    tiny.write(attacks=ATTACK)
    shadows = tiny.out / AUDITS / rows
    interrupt(trained, 5, lambda: plan.audit(tiny.spec, rows=rows, out=tiny.out))
    assert finished(shadows) == 5 and stat.S_IMODE(shadows.stat().st_mode) == 0o700
    record, path = plan.audit(tiny.spec, rows=rows, out=tiny.out)
    assert_one_game(trained)
    assert path == tiny.out / (CONFIDENTIAL_FILE if rows == "real" else PUBLIC_FILE)
    assert record.membership is not None and record.membership.attacks[0].models == PAIRS // 2
    assert not (tiny.out / AUDITS).exists()


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_rows_that_a_unit_may_keep_are_the_same_ones(
    tiny: Any, trained: Trained, make_table: Callable[..., Any]
) -> None:
    frame = make_table(400).assign(person=[f"p{i // 4}" for i in range(400)])
    unit = {"kind": "id", "column": "person", "max_rows": 2, "meaning": "one person"}
    tiny.write(frame, attacks=ATTACK, dataset={"privacy_unit": unit})
    interrupt(trained, 5, lambda: plan.audit(tiny.spec, rows="real", out=tiny.out))
    plan.audit(tiny.spec, rows="real", out=tiny.out)
    assert_one_game(trained)


@pytest.mark.usefixtures("quick")
def test_an_audit_of_a_bundle_goes_on(released: Any, trained: Trained) -> None:
    spec = released.bundle / "spec.yaml"
    assert "enabled: false" in spec.read_text()
    out = released.folder / "elsewhere"
    with pytest.MonkeyPatch.context() as patch:
        read = plan.parse_any
        attacked = released.write(attacks=ATTACK).spec.read_text(encoding="utf-8")
        attacks = {"attacks": read(attacked, path="attacked").attacks}
        changed = lambda text, path: read(text, path=path).model_copy(update=attacks)  # noqa: E731
        patch.setattr(plan, "parse_any", changed)
        audit = partial(plan.audit_bundle, released.bundle, replay_only=False, out=out)
        interrupt(trained, 5, audit)
        record, _ = audit()
    assert_one_game(trained)
    assert record.membership is not None and sorted(p.name for p in out.iterdir()) == ["audit.json"]


def test_an_audit_without_models_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), audit_folder(tmp_path, "real"):
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


def test_two_audits_do_not_share_a_folder(tmp_path: Path) -> None:
    other = audit_folder(tmp_path, "real")
    with audit_folder(tmp_path, "real") as folder:
        with pytest.raises(OutputError, match="another process is auditing"), other:
            pass
        assert AttackFolder.open(folder.path).key == folder.key
    with audit_folder(tmp_path, "real"):
        pass


# --- real processes ---


@pytest.fixture
def process(tiny: Any) -> Iterator[subprocess.Popen[str]]:
    """A release whose workers train more models than it will be given time for."""
    membership = {"enabled": True, "rows": 40, "pairs": 40, "steps": 2}
    tiny.write(attacks={"membership": membership}, evaluation={"enabled": False})
    program = (
        "import synthdp.audit.shadow_models as m; m.SIDE_BY_SIDE = 1; from synthdp.cli.main import"
        " main; main()"
    )
    started = subprocess.Popen(
        [sys.executable, "-c", program, "release", str(tiny.spec), "--out", str(tiny.out)],
        cwd=tiny.folder,
        env={**os.environ, "TERM": "dumb"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # a job in the background of a script ignores it
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    yield started
    if started.poll() is None:
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_process_that_is_stopped_in_the_attack_is_resumed(
    tiny: Any, process: subprocess.Popen[str], how: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadline = time.monotonic() + 600
    while finished(tiny.out / ".run") < 10:
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, how)
    process.communicate(timeout=60)
    assert process.returncode == (130 if how is signal.SIGINT else -how)
    before = {p.name: p.stat().st_mtime_ns for p in (tiny.out / ".run").rglob("*.npz")}
    seen: dict[str, int] = {}
    remove = RunFolder.remove

    def look_and_remove(self: RunFolder) -> None:
        seen.update({p.name: p.stat().st_mtime_ns for p in self.shadows.rglob("*.npz")})
        remove(self)

    monkeypatch.setattr(RunFolder, "remove", look_and_remove)
    resume(tiny.out)
    assert len(before) < 80 == len(seen) and before.items() <= seen.items()
    assert verify_bundle(tiny.bundle).ok and not (tiny.out / ".run").exists()
