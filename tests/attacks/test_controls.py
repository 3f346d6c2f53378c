"""Controls at the size of real use: generators known to leak are caught, and one that ignores its
rows is caught by nothing.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from planted_releases import COLUMNS, PUBLIC, Trees, population

from synthdp_attacks import (
    CLASSIFIERS,
    EXTRACTORS,
    LIKELIHOODS,
    Codes,
    Fleet,
    MembershipReport,
    Trainer,
    WhiteBox,
    attack_anonymity,
    attack_membership,
    attack_release,
    isolated_targets,
)

pytestmark = pytest.mark.check


def with_outlier(rows: int, seed: int) -> Codes:
    """A population whose row 0 is isolated, though each of its levels is common."""
    made = population(rows, np.random.default_rng(seed))
    made[0] = [(2 * c + c // 2) % 4 for c in range(COLUMNS)]
    assert isolated_targets(made, 1, np.random.default_rng(1)) == (0,)
    return made


def attacked(
    folder: Path, trainer: Trainer, *, rows: int, pairs: int, seed: int, everything: bool = False
) -> MembershipReport:
    names = {} if everything else {"extractors": (), "classifiers": ()}
    return attack_membership(
        with_outlier(rows, seed),
        trainer,
        public=PUBLIC,
        targets=[0],
        pairs=pairs,
        rng=np.random.default_rng(seed),
        fleet=Fleet(folder=folder),
        **names,  # type: ignore[arg-type]
    )


def oblivious(rows: Codes, *, seed_sequence: np.random.SeedSequence) -> WhiteBox:
    """Draws from the population and never looks at its rows; so does the model that it shows."""
    rng = np.random.default_rng(seed_sequence)
    return WhiteBox(
        population(len(rows) // 2 * 2, rng), {"elbo": lambda record: float(rng.normal())}
    )


def test_a_trainer_that_ignores_its_rows_is_caught_by_no_attack(tmp_path: Path) -> None:
    """All 27 attacks with shadow models, the five on one release and the three questions, at the
    level of chance.
    """
    report = attacked(tmp_path, oblivious, rows=81, pairs=12, seed=1, everything=True)
    assert {(row.extractor, row.classifier) for row in report.table} == {
        *((e, c) for e in EXTRACTORS for c in CLASSIFIERS), *(("elbo", j) for j in LIKELIHOODS)
    }  # fmt: skip
    assert sum(not row.auc.contains(0.5) for row in report.table) <= 3
    assert report.main.advantage.contains(0)

    rng = np.random.default_rng(2)
    members, control, reference = (population(300, rng) for _ in range(3))
    synthetic = oblivious(members, seed_sequence=np.random.SeedSequence(3)).synthetic
    one = attack_release(synthetic, members, control, reference, public=PUBLIC, rng=rng)
    assert sum(not row.auc.contains(0.5) for row in one.table) <= 1 and one.main.auc.contains(0.5)
    assert not attack_anonymity(
        synthetic, members, control, public=PUBLIC, secrets=[0, 8], rng=rng
    ).shown


@pytest.mark.slow
@pytest.mark.parametrize("leaf", [1, 5])
def test_trees_on_500_rows_at_200_pairs(
    tmp_path: Path, leaf: int, figure: Callable[..., None]
) -> None:
    """The published control: a CART generator and an isolated target, targeted queries and a
    forest.
    """
    reports = [
        attacked(tmp_path / str(seed), Trees(leaf), rows=500, pairs=200, seed=seed)
        for seed in range(3)
    ]
    worst = min(report.main.auc.value for report in reports)
    figure(f"CART with leaves of {leaf}: least AUC of three games", worst, 1)
    assert worst >= 0.75
