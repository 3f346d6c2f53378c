"""Membership attacks on one release: training rows against control rows.

The trainer did not have the control rows.

What this game cannot show. It has the rows of *one* training run. Which rows are members was not
decided by coins that this game threw before the training, all rows were trained on together, and
one release was drawn. So the rows are no independent trials of the mechanism, and no bound on
epsilon follows, neither lower nor upper: for that train shadow models
(`synthdp_attacks.attack_membership`). (Bounds from one run exist, Steinke, Nasr, Jagielski, 2023,
but need rows put in by such coins.) The intervals say what *other rows of the same population*
would give against this same release, not what another training would. An average over rows also
hides the few that are in danger: look at the true-positive rate at low false-positive rates, and
attack isolated records with shadow models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from synthdp_attacks.errors import AttackError
from synthdp_attacks.report import CAVEAT
from synthdp_attacks.shadow_free import SCORES, View, population
from synthdp_attacks.statistics import (
    Counts,
    Interval,
    advantage,
    auc,
    models_needed,
    roc,
    tpr_at_fpr,
)
from synthdp_attacks.threat import BoolArray, Codes, FloatArray, Public
from synthdp_attacks.verdict import LOW_RATES

MAIN_SCORE = "domias"
MINIMUM_ROWS = 10
ENOUGH_ROWS = 200


@dataclass(frozen=True)
class ScoreRow:
    """The statistics of one attack.

    The threshold of `advantage` is fixed on the calibration half and measured on the other; the
    rest uses all rows.

    `tpr_at` holds a false-positive rate and the true-positive rate there, or None where control
    rows are too few for it.
    """

    attack: str
    members: int
    non_members: int
    advantage: Interval
    auc: Interval
    tpr_at: tuple[tuple[float, Interval | None], ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values; a rate that the rows are too few for says so."""
        rates = {
            f"tpr_at_fpr_{rate:g}": (
                asdict(tpr)
                if tpr
                else f"too few control rows: needs {models_needed(rate)}, has {self.non_members}"
            )
            for rate, tpr in self.tpr_at
        }
        return {key: value for key, value in asdict(self).items() if key != "tpr_at"} | rates


@dataclass(frozen=True, kw_only=True)
class ShadowFreeReport:
    """The verdict (`main`, declared beforehand), the other attacks, and warnings.

    `control`: AUC of an attacker who looks at the reference only, never at the release. It must be
    at chance; if it is not, members and control rows are not of one population, or the reference
    holds some of either.
    """

    main: ScoreRow
    table: tuple[ScoreRow, ...]
    control: Interval
    warnings: tuple[str, ...]

    @property
    def conclusion(self) -> str:
        """One plain sentence and the caveats."""
        row = self.main
        numbers = (
            f"{row.attack}: AUC {row.auc.value:.3f}, 95% interval {row.auc.lower:.3f} to"
            f" {row.auc.upper:.3f}"
        )
        numbers += (
            f"; advantage {row.advantage.value:.3f}, {row.advantage.lower:.3f} to"
            f" {row.advantage.upper:.3f}"
        )
        if not self.control.contains(0.5):
            finding = (
                "Members and control rows differ even for one who never sees the release, so"
                " nothing can be said of the release"
            )
        elif row.auc.lower > 0.5:
            finding = "The release shows which rows it was made from"
        else:
            finding = (
                "The attack did not tell rows that the release was made from, from control rows"
            )
        return f"{finding} ({numbers}). {CAVEAT} One training run gives no bound on epsilon."

    def to_json(self) -> dict[str, Any]:
        """Plain values for a report or a run's record."""
        return {
            "conclusion": self.conclusion,
            "confidential": (
                "computed on the rows given to the attack; publish only if those were public or"
                " simulated"
            ),
            "main": self.main.to_json(),
            "control_auc": asdict(self.control),
            "warnings": list(self.warnings),
            "table": [row.to_json() for row in self.table],
        }


def attack_release(
    synthetic: Codes,
    members: Codes,
    non_members: Codes,
    reference: Codes,
    *,
    public: Public,
    rng: np.random.Generator,
    attacks: Sequence[str] = tuple(SCORES),
) -> ShadowFreeReport:
    """Attack one release of any origin, without training anything.

    All tables are codes `[rows, columns]` inside `public`.

    `members`: rows that the trainer had. `non_members`: control rows of the same population that it
    had not, as many if possible. `reference`: further rows of that population, which are neither.
    The verdict is that of `MAIN_SCORE`.

    Raises:
        AttackError: an unknown attack, a table outside the domain, or too few rows.
    """
    if unknown := sorted(set(attacks) - set(SCORES)):
        raise AttackError(f"unknown attack {', '.join(unknown)}; known: {', '.join(SCORES)}")
    given = {
        "synthetic": synthetic,
        "members": members,
        "non_members": non_members,
        "reference": reference,
    }
    tables = {name: public.checked(table, name) for name, table in given.items()}
    for name, table in tables.items():
        if len(table) < MINIMUM_ROWS:
            raise AttackError(
                f"{name} has {len(table)} rows; at least {MINIMUM_ROWS} are needed, and"
                f" {ENOUGH_ROWS} to say much"
            )
    view = View(public, tables["synthetic"], tables["reference"], seed=int(rng.integers(2**31)))
    asked = np.concatenate([tables["members"], tables["non_members"]])
    is_member = np.arange(len(asked)) < len(tables["members"])
    calibration = _half(is_member, rng)
    rows = {
        name: _row(name, SCORES[name](view, asked), is_member, calibration)
        for name in dict.fromkeys([MAIN_SCORE, *attacks])
    }
    control = auc(population(view, asked), is_member)
    return ShadowFreeReport(
        main=rows[MAIN_SCORE],
        table=tuple(rows[name] for name in attacks),
        control=control,
        warnings=_warnings(view, rows[MAIN_SCORE], control),
    )


def best_threshold(scores: FloatArray, members: BoolArray) -> float:
    """The threshold with the greatest advantage on *these* scores.

    It lies half-way to the next score. Use it on other rows only.
    """
    points, levels = roc(scores, members), np.unique(scores)[::-1]
    best = int(np.argmax(points[:, 1] - points[:, 0]))
    if best == 0:
        return float(levels[0]) + 1
    below = levels[best] if best < len(levels) else levels[-1] - 1
    return float((levels[best - 1] + below) / 2)


def _row(name: str, scores: FloatArray, members: BoolArray, calibration: BoolArray) -> ScoreRow:
    """All statistics of one attack."""
    threshold = best_threshold(scores[calibration], members[calibration])
    return ScoreRow(
        attack=name,
        members=int(members.sum()),
        non_members=int((~members).sum()),
        advantage=advantage(
            Counts.at(scores[~calibration], members[~calibration], threshold=threshold)
        ),
        auc=auc(scores, members),
        tpr_at=tuple(
            (rate, tpr_at_fpr(scores, members, false_positive_rate=rate)) for rate in LOW_RATES
        ),
    )


def _half(members: BoolArray, rng: np.random.Generator) -> BoolArray:
    """A random half of the members and a random half of the others."""
    chosen = np.zeros(len(members), dtype=bool)
    for side in (np.flatnonzero(members), np.flatnonzero(~members)):
        chosen[rng.permutation(side)[: len(side) // 2]] = True
    return chosen


def _warnings(view: View, main: ScoreRow, control: Interval) -> tuple[str, ...]:
    """Everything a reader must know before believing the numbers."""
    found = []
    fewest = min(main.members, main.non_members, len(view.reference), len(view.synthetic))
    if fewest < ENOUGH_ROWS:
        found.append(
            f"one of the four tables has only {fewest} rows: about {ENOUGH_ROWS} are needed for a"
            " stable result"
        )
    for rate, tpr in main.tpr_at:
        if tpr is None:
            found.append(
                f"no TPR at an FPR of {rate:g}: that needs {models_needed(rate)} control rows,"
                f" there are {main.non_members}"
            )
    if not control.contains(0.5):
        found.append(
            "members and control rows differ under the reference alone: draw all three from one"
            " population, with no row in two of them (chance does this in 1 of 20 runs)"
        )
    return tuple(found)
