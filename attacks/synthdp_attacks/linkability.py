"""Linkability: the release tells which records of two parties are of the same person.

The parties have different columns of the same people.

Giomi et al. (2023), the linkability attack: both look for the synthetic rows closest to a record in
the columns they hold. If the same synthetic row is among both, the record's two halves are linked.
Codes often leave many rows at the same distance; each party breaks such ties by chance of its own,
for a common rule (the first row, say) would link by accident.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synthdp_attacks.checks import parties_asked, whole
from synthdp_attacks.errors import AttackError
from synthdp_attacks.hamming import hamming
from synthdp_attacks.risk import Risk, Trials, risk_of
from synthdp_attacks.threat import Codes


def linkability(
    synthetic: Codes,
    members: Codes,
    control: Codes,
    *,
    parties: tuple[Sequence[int], Sequence[int]],
    rng: np.random.Generator,
    neighbours: int = 1,
    guesses: int = 500,
) -> Risk:
    """Number of records of `members`, and of `control`, that the release links.

    A link goes through one of the `neighbours` closest synthetic rows.

    `parties`: the columns that each holds. The naive guess draws its synthetic rows at random.
    """
    first, second = (list(party) for party in parties_asked(parties, synthetic.shape[1]))
    guesses = whole("guesses", guesses, least=1)
    if not 1 <= neighbours <= len(synthetic):
        raise AttackError(
            f"neighbours={neighbours}; allowed are 1 to the number of synthetic rows,"
            f" {len(synthetic)}"
        )

    def linked(targets: Codes) -> Trials:
        chosen = targets[rng.permutation(len(targets))[:guesses]]
        sides = [
            _nearest(chosen[:, held], synthetic[:, held], neighbours, rng)
            for held in (first, second)
        ]
        return _meet(*sides)

    attack, others = linked(members), linked(control)
    shape = (attack.guesses, len(synthetic))
    blind = [
        np.argpartition(rng.random(shape), neighbours - 1, axis=1)[:, :neighbours] for _ in range(2)
    ]
    return risk_of(
        f"linking {len(first)} columns with {len(second)}",
        attack=attack,
        control=others,
        naive=_meet(*blind),
    )


def _nearest(asked: Codes, rows: Codes, neighbours: int, rng: np.random.Generator) -> Codes:
    """Places of the rows closest to each record, `[records, neighbours]`, ties broken by chance."""
    parts = [
        np.argpartition(d + rng.random(d.shape), neighbours - 1, axis=1)[:, :neighbours]
        for _, d in hamming(asked, rows)
    ]
    return np.concatenate(parts)


def _meet(first: Codes, second: Codes) -> Trials:
    """How many records have a row in both lists."""
    return Trials.of((first[:, :, None] == second[:, None, :]).any(axis=(1, 2)))
