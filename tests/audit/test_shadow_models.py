"""Rehearsals side by side release what those one by one do: the right rows, the same law."""

import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from synthdp.audit import ShadowTrainer, shadow_models, shadow_spec
from synthdp.data import Domain
from synthdp.graph import CausalGraph
from synthdp.model import DrawSettings
from synthdp.privacy.dpsgd import DpSgd
from synthdp.privacy.mechanisms.marginals import NoisyMarginals
from synthdp.privacy.plan import ReleasePlan
from synthdp.spec import check
from synthdp.spec.model import ReleaseSpec
from synthdp_attacks import Dask, Fleet, Loky, play
from tests.builders import build_spec, dask_processes, dp_sgd

ROWS = 300
Floats = npt.NDArray[np.float64]


def release(*, steps: int = 5, **synthesizer: object) -> ReleaseSpec:
    two = {"type": "categorical", "categories": ["n", "y"]}
    shares = {"measure": 0.3, "train": 0.7}
    if synthesizer.get("targets"):
        shares = {"measure": 0.2, "targets": 0.3, "train": 0.5}
    spec = build_spec(
        {"a": two, "b": two, "c": {"type": "integer", "lower": 0, "upper": 8, "bins": 4}},
        rows=3000,
        privacy={"epsilon": 8.0, "delta": 1e-5, "shares": shares},
        graph={"mode": "given", "edges": ["a -> b, c"]},
        synthesizer={"hidden": 8, "latent": 1, "learning_rate": 0.03, **synthesizer},
        evaluation={"enabled": False},
        attacks={"membership": {"rows": ROWS, "pairs": 4, "steps": steps}},
    )
    return shadow_spec(check(spec))


def rows_of(share: float, rng: np.random.Generator) -> npt.NDArray[np.uint16]:
    """a is yes in `share` of the rows, and b and c mostly follow it."""
    a = (rng.random(ROWS) < share).astype(np.int64)
    b = np.where(rng.random(ROWS) < 0.9, a, 1 - a)
    return np.column_stack(
        [a, b, np.where(rng.random(ROWS) < 0.8, 3 * a, rng.integers(0, 4, ROWS))]
    ).astype(np.uint16)


def trainer(wanted: ReleaseSpec) -> ShadowTrainer:
    domain = Domain.from_spec(wanted.columns)
    return ShadowTrainer(
        wanted, domain, plan(wanted, domain), CausalGraph.from_spec(wanted.graph, domain.names)
    )


def plan(wanted: ReleaseSpec, domain: Domain) -> ReleasePlan:
    """A plan with some noise that no accountant has seen; only a rehearsal takes it."""
    training = dp_sgd(
        **{"rate": 0.126, "steps": wanted.synthesizer.steps, "expected_batch": 38.0, "clip": 1.0},
        **{"noise_multiplier": 8.0, "learning_rate": 0.03, "checkpoint_every": 1000},
    )
    targets = replace(training, clip=2.5) if wanted.synthesizer.targets else None
    margins = NoisyMarginals(domain, tuple((name,) for name in domain.names), 4.0)
    own = {"measure": margins, "targets": targets, "train": training}
    return ReleasePlan(8.0, 1e-5, "add_remove", 1, **own)


def seeds(count: int) -> list[np.random.SeedSequence]:
    return np.random.SeedSequence(5).spawn(count)


@pytest.mark.parametrize("targets", [(), ("b",)])
@pytest.mark.parametrize(
    "raked", [True, False]
)  # if not, what is released hangs on the weights alone, and on those they started from
def test_each_model_releases_a_set_of_its_own_rows(targets: tuple[str, ...], raked: bool) -> None:
    wanted = release(targets=targets)
    shadow = trainer(
        wanted.model_copy(update={"sampling": wanted.sampling.model_copy(update={"rake": raked})})
    )
    rng = np.random.default_rng(0)
    shares = (0.1, 0.5, 0.9)
    released = list(shadow.many([rows_of(share, rng) for share in shares], seed_sequences=seeds(3)))
    for share, codes in zip(shares, released, strict=True):
        assert codes.shape == (ROWS, 3) and (codes.max(axis=0) < (2, 2, 4)).all()
        assert abs(float((codes[:, 0] == 1).mean()) - share) < (0.1 if raked else 0.2)


def test_each_set_is_drawn_from_the_model_of_its_rows() -> None:
    """b is mostly a in one table, mostly not in the other; nothing but the weights knows."""
    shadow, rows = trainer(release(steps=60)), rows_of(0.5, np.random.default_rng(0))
    other = rows.copy()
    other[:, 1] = 1 - rows[:, 1]
    clear = quieter(shadow.plan, 0.01)
    one, two = replace(shadow, plan=clear).many([rows, other], seed_sequences=seeds(2))
    assert (one[:, 0] == one[:, 1]).mean() > 0.75 and (two[:, 0] == two[:, 1]).mean() < 0.25


def test_sets_come_one_after_the_other() -> None:
    """A worker that dies loses what it has not written yet, and no more."""
    shadow, rng = trainer(release()), np.random.default_rng(0)
    first = next(iter(shadow.many([rows_of(0.5, rng)] * 2, seed_sequences=seeds(2))))
    assert first.shape == (ROWS, 3)


def test_a_group_tells_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its first model is there: as tables are measured, and step by step."""
    shares: list[float] = []
    monkeypatch.setattr(shadow_models, "tell_share", shares.append)
    shadow, rng = trainer(release(steps=5)), np.random.default_rng(0)
    next(iter(shadow.many([rows_of(0.5, rng)] * 2, seed_sequences=seeds(2))))
    steps = [(1 + done / 5) / 3 for done in range(1, 6)]
    assert shares == pytest.approx([0, 1 / 6, *steps, 2 / 3]) and shares == sorted(shares)


def test_large_batches_are_trained_in_smaller_groups() -> None:
    wanted = release()
    assert trainer(wanted).group == 32
    for batch, group in ((512, 8), (100_000, 1)):
        large = wanted.model_copy(
            update={"synthesizer": wanted.synthesizer.model_copy(update={"batch": batch})}
        )
        assert replace(trainer(wanted), spec=large).group == group


def figures(codes: npt.NDArray[np.uint16]) -> list[float]:
    """What the tables say: a share, how often b is a, how much higher c is with a."""
    a, b, c = codes.T.astype(float)
    return [
        float(a.mean()),
        float((a == b).mean()),
        float(np.corrcoef(a, c)[0, 1]),
        float((c == 1).mean()),
    ]


def smallest_p(one: Floats, other: Floats) -> float:
    """Of tests that each figure has the same law, corrected for their number."""
    return (
        min(stats.ks_2samp(x, y).pvalue for x, y in zip(one.T, other.T, strict=True)) * one.shape[1]
    )


def quieter(plan: ReleasePlan, factor: float) -> ReleasePlan:
    """Another noise in training: as a stacked training that is wrong in its noise."""
    return plan.map(
        lambda purpose, mechanism: (
            mechanism.scaled(factor) if isinstance(mechanism, DpSgd) else mechanism
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize("targets", [(), ("b",)])
def test_the_law_is_that_of_models_one_by_one(targets: tuple[str, ...]) -> None:
    models, shadow = 80, trainer(release(steps=40, targets=targets))
    rows = rows_of(0.4, np.random.default_rng(1))

    def together(plan: ReleasePlan) -> Floats:
        sets = replace(shadow, plan=plan).many([rows] * models, seed_sequences=seeds(models))
        return np.array([figures(codes) for codes in sets])

    alone = np.array([figures(shadow(rows, seed_sequence=seed)) for seed in seeds(models)])
    assert smallest_p(alone, together(shadow.plan)) > 1e-4
    assert smallest_p(alone, together(quieter(shadow.plan, 0.3))) < 1e-4


@dataclass(frozen=True)
class Dying:
    """A shadow trainer whose first worker dies once it has released two models of its group."""

    shadow: ShadowTrainer
    died: Path
    group: int = 6

    def __call__(
        self, rows: npt.NDArray[np.uint16], *, seed_sequence: np.random.SeedSequence
    ) -> Any:
        return self.shadow(rows, seed_sequence=seed_sequence)

    def many(
        self, rows: Sequence[Any], *, seed_sequences: Sequence[np.random.SeedSequence]
    ) -> Iterator[Any]:
        for number, codes in enumerate(self.shadow.many(rows, seed_sequences=seed_sequences)):
            if number == 2 and not self.died.exists():
                self.died.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield codes


@pytest.mark.slow
@pytest.mark.parametrize("where", ["loky", "dask"])
def test_a_game_of_shadow_models_survives_the_death_of_a_worker(where: str, tmp_path: Path) -> None:
    rng, dying = np.random.default_rng(2), Dying(trainer(release()), tmp_path / "died")

    def played(runner: Loky | Dask) -> int:
        fleet = Fleet(folder=tmp_path / "f", runner=runner)
        rows, top = rows_of(0.5, rng).astype(np.int64), np.array([1, 1, 3])
        game = play(rows, top, dying, pairs=9, rng=rng, fleet=fleet)
        assert len(game.shadows) + len(game.challenges) == 18
        assert all(len(s) == ROWS for s in game.shadows)
        return game.lost

    if where == "loky":
        assert played(Loky(2)) == 0
    else:
        with dask_processes() as running:
            assert played(Dask(running.scheduler_address)) == 0
    assert dying.died.exists()


def test_a_shadow_that_cannot_fulfil_the_constraints_is_sampled_without_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such a model ended the release that it attacked, with the budget spent."""
    wanted = release(steps=1).model_copy(update={"constraints": ("c < 3",)})
    rows = rows_of(0.5, np.random.default_rng(1))
    held = trainer(wanted)(rows, seed_sequence=np.random.SeedSequence(1))
    monkeypatch.setattr("synthdp.model.constraints.SETTINGS", DrawSettings(min_share=0.999))
    free = trainer(wanted)(rows, seed_sequence=np.random.SeedSequence(1))
    assert isinstance(held, np.ndarray) and isinstance(free, np.ndarray)
    assert len(held) == len(free) == ROWS and (held[:, 2] < 2).all() and (free[:, 2] >= 2).any()
