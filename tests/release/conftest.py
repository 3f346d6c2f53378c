"""A tiny table of every column type, and specs of it: a whole release takes a few seconds."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from sklearn.ensemble import RandomForestClassifier

from synthdp.bundle import sha256
from synthdp.ledger import INTERNAL, Ledger
from synthdp.privacy import plan
from synthdp.privacy.dpsgd.training import _Trainer
from synthdp.privacy.mechanisms.marginals import NoisyMarginals
from synthdp.progress import Advance, Display, shown_on
from synthdp.release import ReleaseOutcome, release
from synthdp_attacks import CLASSIFIERS, RUNNERS, Serial
from tests.chance import seeded

ROWS = 400

SPEC: dict[str, Any] = {
    "synthdp": 1,
    "dataset": {
        "id": "tiny",
        "source": {"kind": "csv", "path": "table.csv"},
        "privacy_unit": {"kind": "row", "meaning": "one person"},
        "rows": {"kind": "approximate", "value": ROWS},
    },
    "columns": {
        "sex": {"type": "categorical", "categories": ["female", "male"]},
        "grade": {"type": "ordinal", "categories": ["low", "middle", "high"], "missing": True},
        "smoker": {"type": "boolean", "false": "never", "true": "yes"},
        "visits": {"type": "integer", "lower": 0, "upper": 20, "spikes": [0], "edges": [1, 3, 8]},
        "weight": {"type": "number", "lower": 40, "upper": 120, "bins": 4, "decimals": 1},
        "joined": {"type": "datetime", "lower": "2020-01-01", "upper": "2023-12-31", "bins": 3},
    },
    "privacy": {
        "epsilon": 1.0,
        "delta": 1e-5,
        "shares": {"measure": 0.3, "train": 0.7},
        "cap": {"epsilon": 2.5, "delta": 1e-4},
    },
    "graph": {"mode": "given", "edges": ["sex -> smoker, weight", "smoker, grade -> visits"]},
    "synthesizer": {"steps": 20, "batch": 64, "hidden": 16, "latent": 2, "checkpoint_every": 5},
    "sampling": {"rows": 250, "oversample": 2},
    "evaluation": {"holdout": 0.2, "targets": ["sex"], "classifiers": ["logistic"], "triples": 4},
    "attacks": {"membership": {"enabled": False}},
    "tracking": {"enabled": False},
    "compute": {"threads": 1},
}

MODES: dict[str, dict[str, Any]] = {
    "none": {"graph": {"mode": "none"}},
    "given": {},
    "validate": {
        "graph": {"mode": "validate", "edges": ["sex -> smoker", "smoker -> visits"]},
        "privacy": {"shares": {"measure": 0.2, "graph": 0.2, "train": 0.6}},
    },
    "learn": {
        "graph": {
            "mode": "learn",
            "edges": ["sex -> smoker"],
            "forbidden": ["visits -> joined"],
            "tiers": [["sex"], ["grade", "smoker", "joined"]],
        },
        "privacy": {"shares": {"measure": 0.2, "graph": 0.2, "train": 0.6}},
    },
}


def table(rows: int = ROWS) -> pd.DataFrame:
    """A table that fits the spec; smoking depends on sex."""
    rng = np.random.default_rng(7)
    sex = rng.choice(["female", "male"], rows)
    return pd.DataFrame(
        {
            "sex": sex,
            "grade": rng.choice(["low", "middle", "high", ""], rows),
            "smoker": np.where(
                rng.random(rows) < np.where(sex == "male", 0.9, 0.1), "yes", "never"
            ),
            "visits": rng.integers(0, 9, rows) * (rng.random(rows) < 0.6),
            "weight": np.round(rng.uniform(45, 110, rows), 1),
            "joined": (np.datetime64("2020-01-01") + rng.integers(0, 1400, rows)).astype(str),
        }
    )


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `changes` laid over it, section by section; graphs are replaced as a whole."""
    out = copy.deepcopy(dict(base))
    for key, value in changes.items():
        deep = (
            isinstance(value, Mapping)
            and isinstance(out.get(key), Mapping)
            and key not in ("graph", "source", "privacy_unit", "shares")
        )
        out[key] = merged(out[key], value) if deep else value
    return out


@dataclass(frozen=True)
class Tiny:
    """A folder with a table and a spec; releases go to `out`."""

    folder: Path

    @property
    def spec(self) -> Path:
        return self.folder / "spec.yaml"

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def bundle(self) -> Path:
        return self.out / "bundle"

    @property
    def ledger(self) -> Ledger:
        return Ledger(f"sqlite:///{self.folder / '.synthdp' / 'ledger.db'}")

    def kinds(self) -> list[str]:
        """Kinds of the ledger entries that tell what was spent, in order."""
        return [e.kind for e in self.ledger.entries() if e.kind not in INTERNAL]

    def write(self, frame: pd.DataFrame | None = None, **changes: Any) -> Tiny:
        """Write the table, where it is another one, and the spec with `changes`."""
        path, text = (
            self.folder / "table.csv",
            (table() if frame is None else frame).to_csv(index=False),
        )
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
        self.spec.write_text(
            yaml.safe_dump(merged(SPEC, changes), sort_keys=False), encoding="utf-8"
        )
        return self

    def release(self, *, display: Display | None = None, **options: Any) -> ReleaseOutcome:
        with shown_on(display):
            return release(self.spec, out=self.out, **options)


class Heard:
    """A display that writes down what it is told of each stage."""

    def __init__(self) -> None:
        self.steps: dict[str, list[tuple[int, int, str]]] = {}

    def start(self, title: str) -> Advance:
        return lambda done, total, what="", /: self.steps.setdefault(title, []).append(
            (done, total, what)
        )

    def finish(self, title: str, seconds: float) -> None:
        """Nothing to show."""

    def warn(self, text: str) -> None:
        """Nothing to show."""

    tell = warn


class InterruptedAt(Heard):
    """A display that presses Ctrl-C when `stage` begins, or when it has done `step`."""

    def __init__(self, stage: str, step: int | None = None) -> None:
        super().__init__()
        self.stage, self.step = stage, step

    def start(self, title: str) -> Advance:
        if title == self.stage and self.step is None:
            raise KeyboardInterrupt

        def advance(done: int, total: int, what: str = "", /) -> None:
            if title == self.stage and done == self.step:
                raise KeyboardInterrupt

        return advance


def dying(error: Callable[[], BaseException] = KeyboardInterrupt) -> Callable[..., Any]:
    """A function that raises a new `error()`, whatever it is given."""

    def dies(*_: object, **__: object) -> Any:
        raise error()

    return dies


def interrupt(made: Tiny, stage: str, step: int | None = None, **options: Any) -> None:
    """A release that a Ctrl-C ends."""
    with pytest.raises(KeyboardInterrupt):
        made.release(display=InterruptedAt(stage, step), **options)


def moved(folder: Path, tiny: Tiny) -> Tiny:
    """A copy of `folder` with a spec, a ledger and perhaps a run, as if all was made there."""
    shutil.copytree(folder, tiny.folder, dirs_exist_ok=True)
    for state in tiny.folder.rglob("state.json"):
        state.write_text(state.read_text().replace(str(folder), str(tiny.folder)))
    return tiny


def refit(bundle: Path) -> None:
    """Checksums that fit the files as they are."""
    lines = (bundle / "SHA256SUMS").read_text().splitlines()
    names = [line.partition("  ")[2] for line in lines]
    sums = "".join(f"{sha256(bundle / n)}  {n}\n" for n in names if (bundle / n).is_file())
    (bundle / "SHA256SUMS").write_text(sums)


def internal(out: Path) -> dict[str, Any]:
    """The numbers of the steward's report."""
    return dict(json.loads((out / "internal" / "internal.json").read_text()))


def certificate(bundle: Path) -> dict[str, Any]:
    """The facts of a bundle's certificate."""
    return dict(json.loads((bundle / "privacy" / "certificate.json").read_text()))


@pytest.fixture
def tiny(tmp_path: Path) -> Tiny:
    return Tiny(tmp_path)


@pytest.fixture(scope="session")
def one_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "GROUP_SIZES", (1, 2))
        made = Tiny(tmp_path_factory.mktemp("released")).write()
        heard = Heard()
        made.release(display=heard)
    (made.folder / "heard.json").write_text(json.dumps(heard.steps))
    return made.folder


@pytest.fixture
def released(tiny: Tiny, one_release: Path) -> Tiny:
    """A folder of its own in which the tiny spec was released once."""
    return moved(one_release, tiny)


@pytest.fixture(scope="session")
def of_mode(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`of_mode(mode)`: a folder in which the tiny spec of this graph mode was released once."""

    @cache
    def made(mode: str) -> Path:
        folder = tmp_path_factory.mktemp("mode") / mode
        folder.mkdir()
        with pytest.MonkeyPatch.context() as patch, seeded(mode):
            patch.setattr(plan, "GROUP_SIZES", (1, 2))
            Tiny(folder).write(**MODES[mode]).release()
        return folder

    return made


@pytest.fixture(scope="session")
def one_interruption(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a release that was killed after step 12 of its training."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "GROUP_SIZES", (1, 2))
        made = Tiny(tmp_path_factory.mktemp("killed")).write(evaluation={"enabled": False})
        interrupt(made, "measure and train", 12)
    return made.folder


@pytest.fixture
def interrupted(tiny: Tiny, one_interruption: Path) -> Tiny:
    """A folder of its own with that run; its last checkpoint is that of step 10."""
    return moved(one_interruption, tiny)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the training steps that are done."""
    done: list[int] = []
    true_step = _Trainer.step

    def step(self: Any, codes: Any, number: int) -> None:
        done.append(number)
        true_step(self, codes, number)

    monkeypatch.setattr(_Trainer, "step", step)
    return done


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the measuring mechanisms that look at rows."""
    seen: list[str] = []
    true_run = NoisyMarginals.run

    def run(self: Any, table: Any, streams: Any) -> Any:
        seen.append(self.name)
        return true_run(self, table, streams)

    monkeypatch.setattr(NoisyMarginals, "run", run)
    return seen


@pytest.fixture(autouse=True)
def few_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds for groups of 3, 5 and 10 take seconds of every release; one test computes them
    all.
    """
    monkeypatch.setattr(plan, "GROUP_SIZES", (1, 2))


@pytest.fixture(autouse=True)
def attacks_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shadow models of quick tests in this process, judged by few trees: workers take seconds to
    start, and hundreds of trees as long. One release of `test_release.py`, and slow tests, are
    attacked as any other.
    """
    if any(map(request.node.get_closest_marker, ("slow", "figure"))):
        return
    monkeypatch.setitem(RUNNERS, "loky", lambda workers, address: Serial())
    forest = partial(RandomForestClassifier, n_estimators=10, min_samples_leaf=2)
    monkeypatch.setitem(CLASSIFIERS, "random_forest", lambda seed: forest(random_state=seed))


@pytest.fixture(scope="session")
def modes() -> Mapping[str, Mapping[str, Any]]:
    return MODES


@pytest.fixture
def make_table() -> Callable[..., pd.DataFrame]:
    return table
