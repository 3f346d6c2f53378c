"""The private folder of an attack in progress: what an interrupted one needs so that the models it
has trained still count.

Holds a key of the game's coins (which rows take part, which one is the target, who is trained with
it), the name of the game, and the models' results. They are as confidential as the rows, and
whoever started the attack removes them with it. The coins are of a game: the noise of shadow models
has no key here or anywhere.

Whatever does not fit - another spec, other rows, another version, a damaged file - is thrown away
and trained anew: models can be had again, and a release whose budget is spent must not end here.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import secrets
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from synthdp import __version__
from synthdp.data.domain import Domain
from synthdp.errors import OutputError, disk_errors
from synthdp.files import lock_file, read_text, write_whole
from synthdp.graph.predict import PREDICTED, planned_pairs
from synthdp.privacy.plan import ReleasePlan
from synthdp.spec.checks.chance import DECLARED, provable
from synthdp.spec.model import LinkedSpec, ReleaseSpec

KEY, GAME, MODELS = "key", "game", "models"
AUDITS = ".audit"  # in an audit's output folder


@dataclass(frozen=True)
class AttackFolder:
    """An attack's folder, and the key of its coins."""

    path: Path
    key: str = field(repr=False)

    @classmethod
    def open(cls, path: Path) -> AttackFolder:
        """The attack that was interrupted in `path`, or a new one with a fresh key.

        Raises:
            OutputError: `path` cannot be written.
        """
        with _writing(path):
            # In a folder that is there: a run's may have been taken by another run.
            path.mkdir(exist_ok=True, mode=0o700)
            key = _kept(path / KEY, r"[0-9a-f]{32}")
            if key is None:
                key = secrets.token_hex(16)
                write_whole(path / KEY, key)
        return cls(path, key)

    def coins(self, purpose: str) -> np.random.Generator:
        """Coins for `purpose`, the same ones after an interruption; never for noise."""
        return np.random.Generator(
            np.random.Philox(np.random.SeedSequence([int(self.key, 16), *purpose.encode()]))
        )

    def models_of(self, game: str, *arrays: np.ndarray) -> Path:
        """The folder for results of `game`, in words, on `arrays`: with those that it has finished,
        without those of any other.

        Raises:
            OutputError: what lies there cannot be removed.
        """
        # NumPy may draw otherwise from the same key in another version, and synthdp may train
        # otherwise.
        name = hashlib.blake2b(
            repr((self.key, __version__, np.__version__, game, [a.shape for a in arrays])).encode(),
            digest_size=16,
        )
        for array in arrays:
            name.update(np.ascontiguousarray(array, dtype=np.int64).tobytes())
        models = self.path / MODELS
        with _writing(self.path):
            if _kept(self.path / GAME, r"[0-9a-f]{32}") != name.hexdigest():
                if models.exists():
                    shutil.rmtree(models)
                write_whole(self.path / GAME, name.hexdigest())
            for file in models.rglob("*.npz"):
                if not zipfile.is_zipfile(file):  # cut short: its directory stands at its end
                    file.unlink()
        return models

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


@contextmanager
def audit_folder(out: Path, rows: str) -> Iterator[AttackFolder]:
    """The folder of the audit on `rows` into `out`, for this process alone: kept where the audit is
    interrupted with models trained, else removed.

    It lies in `out`, not among the machine's temporary files, so that workers on other machines
    find it where they find `out`.

    Raises:
        OutputError: `out` cannot be written, or another process is at this audit.
    """
    with _writing(out / AUDITS):
        (out / AUDITS).mkdir(parents=True, exist_ok=True, mode=0o700)
    folder = AttackFolder.open(out / AUDITS / rows)
    with _writing(folder.path):
        lock = lock_file(folder.path / "lock")
    if lock is None:
        raise OutputError(
            f"another process is auditing into {out}",
            hint="wait for it to end, or choose another folder with --out",
        )
    over = False
    try:
        yield folder
        over = True
    finally:
        if over or not any(folder.path.rglob("*.npz")):
            folder.remove()
            with suppress(OSError):  # an audit on other rows may be there
                folder.path.parent.rmdir()
        os.close(lock)


def _writing(path: Path) -> AbstractContextManager[None]:
    return disk_errors(f"cannot write to {path}", hint="mend that, and give the same command again")


def _kept(path: Path, form: str) -> str | None:
    """The text in `path`, if it is there and of this form."""
    try:
        text = read_text(path)
    except (OSError, ValueError):
        return None
    return text if re.fullmatch(form, text) else None


# --- what the attack of a spec takes and could show at most, which `plan` says ---


TARGETS = 1  # the most isolated unit: which target is chosen matters more than how many
TABLE_RELEASES = 25  # in each world, for a pair of models
# CPU seconds of a model, for each of its tables, for each cell with discrete Gaussian noise, and
# for an example, a column and a hidden unit. Of seven models, of 10 to 222 columns, the time that
# they took was .4 to 1.8 times what these say.
MODEL_SECONDS, TABLE_SECONDS, CELL_SECONDS, STEP_SECONDS = 0.15, 0.006, 1.4e-5, 2.5e-8

# Measurements of all tables of persons with visits that take as long as a model: 220 and 260.
MEASUREMENTS = 240


@dataclass(frozen=True)
class AttackPower:
    """The size of a membership attack, and the most that it could show.

    `models` are trained on `rows` rows each, half of them with the target. The attack on noisy
    tables trains nothing, and is made on `releases` of each world. `by_models` and `by_tables` are
    the largest lower bounds of epsilon that they could show if they won every game, where the
    `attacks` together show too much with a probability of 5% at most. `epsilon` is what the plan
    claims. `cpu_seconds` is rough.
    """

    models: int
    rows: int
    releases: int
    attacks: int
    epsilon: float
    by_models: float
    by_tables: float
    cpu_seconds: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return self.told()

    def told(self, rows: str = "rows") -> str:
        """In words, `rows` among them."""
        said = (
            f"membership attack: trains {self.models:,} models on {self.rows:,} {rows} each, and"
            f" takes about {_time(self.cpu_seconds)} of CPU time; if it won every game, the models"
            f" would show an epsilon of at least {self.by_models:.2f}, and the noisy tables of"
            f" {self.by_tables:.2f} (by {self.attacks} attacks, at 5% error together)"
        )
        if self.by_models > self.epsilon:
            return said
        whose = "the models' bound" if self.by_tables > self.epsilon else "neither bound"
        can = "cannot" if self.by_tables > self.epsilon else "can"
        return (
            f"{said}; so {whose} {can} refute the plan's epsilon of {self.epsilon:g}: raise"
            " attacks.membership.pairs, or save the time with attacks.membership.enabled: false"
        )


def attack_power(spec: ReleaseSpec, domain: Domain, plan: ReleasePlan) -> AttackPower:
    """The membership attack of a spec and its plan, before it runs.

    Half of the pairs of models are for testing, as `synthdp_attacks.game` splits them, and all
    releases of tables. The bounds are `provable_epsilon`: Clopper-Pearson limits for guesses that
    are all right.
    """
    seconds = sum(cpu_seconds(spec, domain, plan))
    return power_of(spec, tables=_measured(spec, domain, plan)[0], cpu_seconds=seconds)


def power_of(spec: ReleaseSpec | LinkedSpec, *, tables: int, cpu_seconds: float) -> AttackPower:
    """That of an attack on so many noisy `tables`, which takes `cpu_seconds`."""
    attack = spec.attacks.membership
    releases, tested = table_releases(attack.pairs, tables=tables), attack.pairs - attack.pairs // 2
    return AttackPower(
        models=2 * attack.pairs * TARGETS,
        rows=attack.rows,
        releases=releases,
        attacks=DECLARED,
        epsilon=spec.privacy.epsilon,
        by_models=provable(tested, spec.privacy.delta),
        by_tables=provable(releases, spec.privacy.delta),
        cpu_seconds=cpu_seconds,
    )


def cpu_seconds(spec: ReleaseSpec, domain: Domain, plan: ReleasePlan) -> tuple[float, float]:
    """About what the models of the attack take, and the releases of noisy tables."""
    attack = spec.attacks.membership
    tables, cells = _measured(spec, domain, plan)
    releases = table_releases(attack.pairs, tables=tables)
    steps = attack.steps if plan.train is not None else 0
    examples = steps * max(1.0, attack.rows / 8)
    trained = STEP_SECONDS * examples * len(domain) * spec.synthesizer.hidden
    each = MODEL_SECONDS + TABLE_SECONDS * tables + CELL_SECONDS * cells + trained
    return 2 * attack.pairs * TARGETS * each, 2 * releases * CELL_SECONDS * cells


def table_releases(pairs: int, *, tables: int) -> int:
    """Releases of each world in the attack on `tables` noisy tables.

    They are many more than models, but for wide tables fewer.

    >>> table_releases(40, tables=8), table_releases(40, tables=222)
    (1000, 112)
    """
    # 50_000: noisy tables in all releases
    return max(pairs, min(TABLE_RELEASES * pairs, 50_000 // (2 * tables)))


def _measured(spec: ReleaseSpec, domain: Domain, plan: ReleasePlan) -> tuple[int, int]:
    """About how many noisy tables a shadow model starts with, and how many cells of them have
    discrete noise. All rounds of mode predict, whose noise is quickly drawn, measure the pairs of
    the first.
    """
    planned = [table for paid in (plan.measure, plan.pairs) if paid for table in paid.tables]
    cells = sum(math.prod(domain[name].levels for name in columns) for columns in planned)
    rounds = sum(name in plan.graph for name in PREDICTED)
    pairs = planned_pairs(domain, plan, spec.evaluation.targets) if rounds else []
    return len(planned) + rounds * len(pairs), cells


def _time(seconds: float) -> str:
    """Rough times in words.

    >>> _time(40), _time(340)
    ('40 seconds', '6 minutes')
    """
    return f"{round(seconds)} seconds" if seconds < 90 else f"{round(seconds / 60)} minutes"
