"""What the membership attack of a spec takes and could show at most: known before it runs.

It reads no row and trains nothing, so that `plan` can say it.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from synthdp.data.domain import Domain
from synthdp.graph.prediction.search import ALL, MAX_PAIRS
from synthdp.privacy.plan import ReleasePlan
from synthdp.spec.checks.chance import DECLARED, provable
from synthdp.spec.model import ReleaseSpec

TARGETS = 1  # the most isolated unit: which target is chosen matters more than how many
TABLE_RELEASES = 25  # in each world, for a pair of models
MAX_TABLES = 50_000  # noisy tables in all releases
# CPU seconds of a model, for each of its tables, for each cell with discrete Gaussian noise, and
# for an example, a column and a hidden unit. Of seven models, of 10 to 222 columns, the time that
# they took was .4 to 1.8 times what these say.
MODEL_SECONDS, TABLE_SECONDS, CELL_SECONDS, STEP_SECONDS = 0.15, 0.006, 1.4e-5, 2.5e-8


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
        """Plain JSON for `plan --json`."""
        return asdict(self)

    def __str__(self) -> str:
        said = (
            f"membership attack: trains {self.models:,} models on {self.rows:,} rows each, and"
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
    attack = spec.attacks.membership
    tables, cells = _measured(domain, plan)
    releases = table_releases(attack.pairs, tables=tables)
    models, tested = 2 * attack.pairs * TARGETS, attack.pairs - attack.pairs // 2
    steps = attack.steps if plan.train is not None else 0
    examples = steps * max(1.0, attack.rows / 8)
    trained = STEP_SECONDS * examples * len(domain) * spec.synthesizer.hidden
    each = MODEL_SECONDS + TABLE_SECONDS * tables + CELL_SECONDS * cells + trained
    return AttackPower(
        models=models,
        rows=attack.rows,
        releases=releases,
        attacks=DECLARED,
        epsilon=spec.privacy.epsilon,
        by_models=provable(tested, spec.privacy.delta),
        by_tables=provable(releases, spec.privacy.delta),
        cpu_seconds=models * each + 2 * releases * CELL_SECONDS * cells,
    )


def table_releases(pairs: int, *, tables: int) -> int:
    """Releases of each world in the attack on `tables` noisy tables.

    They are many more than models, but for wide tables fewer.

    >>> table_releases(40, tables=8), table_releases(40, tables=222)
    (1000, 112)
    """
    return max(pairs, min(TABLE_RELEASES * pairs, MAX_TABLES // (2 * tables)))


def _measured(domain: Domain, plan: ReleasePlan) -> tuple[int, int]:
    """About how many noisy tables a shadow model starts with, and how many cells of them have
    discrete noise. Both rounds of mode predict, whose noise is quickly drawn, measure all pairs.
    """
    planned = [table for paid in (plan.measure, plan.pairs) if paid for table in paid.tables]
    cells = sum(math.prod(domain[name].levels for name in columns) for columns in planned)
    pairs = min(MAX_PAIRS, math.comb(len(domain), 2)) if ALL in plan.graph else 0
    return len(planned) + 2 * pairs, cells


def _time(seconds: float) -> str:
    """Rough times in words.

    >>> _time(40), _time(340)
    ('40 seconds', '6 minutes')
    """
    return f"{round(seconds)} seconds" if seconds < 90 else f"{round(seconds / 60)} minutes"
