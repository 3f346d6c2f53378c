"""How near synthetic persons with visits are to the real ones, by both tables: for the steward.

Each figure stands beside the same one of real persons: of those that the release counted against
those that were held out; where nobody was, of one half against the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from synthdp.data.encoding import Codes
from synthdp.data.level_groups import LevelGroups
from synthdp.data.visits import OUTER, PERSONS, STEPS, Floats, Views, VisitFrame

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RealFigures:
    """What was found on real persons; None where there is no such figure.

    `distances` are mean total variations of synthetic from real persons by name: of columns of
    persons, counts of visits, columns of all visits, of first and of last ones, and from visit to
    visit. `apart` is the AUC of trees that tell synthetic from real persons by sums over their
    visits, and `learnt` by target the AUC, on real persons, of trees that learn on synthetic visits
    what comes next. Each is a pair: that of synthetic persons, and of other real ones.
    """

    distances: Mapping[str, tuple[float, float]]
    apart: tuple[float, float]
    learnt: Mapping[str, tuple[float, float] | None]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def metrics(self) -> dict[str, float]:
        found = {f"tv_{name}": both[0] for name, both in self.distances.items()}
        known = {name: both for name, both in self.learnt.items() if both is not None}
        learnt = {"next_auc": float(np.mean([x for x, _ in known.values()]))} if known else {}
        real = {"next_auc_real": float(np.mean([x for _, x in known.values()]))} if known else {}
        return found | {"told_apart_auc": self.apart[0]} | learnt | real


def real_figures(
    frame: VisitFrame,
    groups: Mapping[str, LevelGroups],
    real: Views,
    drawn: Views,
    targets: Sequence[str],
    *,
    rng: np.random.Generator,
    held_out: npt.NDArray[np.bool_] | None = None,
) -> RealFigures:
    """All figures; pairs of levels, and what is learnt, are on `groups` of levels. `held_out` says
    which persons the release did not count: trees are tested on them.
    """
    persons = len(real.codes[PERSONS])
    first, tested = rng.permutation(persons) < persons // 2, real
    if held_out is not None and held_out.any():
        first = ~held_out
        real, tested = _of(real, first), _of(real, held_out)
    halves = (real, tested) if tested is not real else (_of(real, first), _of(real, ~first))
    names = ("persons", "counts", "visits", "first", "last", "steps")
    distances = {
        name: (_distance(frame, groups, name, real, drawn), _distance(frame, groups, name, *halves))
        for name in names
    }
    apart = (_told_apart(frame, tested, drawn, rng), _told_apart(frame, *halves, rng))
    learnt = {t: _learnt(frame, groups, t, drawn, *halves, rng) for t in targets}
    return RealFigures(distances, apart, learnt)


def _of(views: Views, chosen: npt.NDArray[np.bool_]) -> Views:
    kept = {name: chosen[owners] for name, owners in views.owners.items()}
    return Views(
        {name: views.codes[name][keep] for name, keep in kept.items()},
        {name: views.owners[name][keep] for name, keep in kept.items()},
    )


# --- distances ---


def _tables(frame: VisitFrame, name: str) -> list[Any]:
    """The tables that a distance is the mean of: views and columns of each, whose rows add up."""
    visits, people = frame.of_visits.names, frame.modelled.names
    known: dict[str, list[Any]] = {
        "persons": [[(PERSONS, (n,))] for n in people],
        "counts": [[(PERSONS, (frame.now("number"),))]],
        "visits": [[(OUTER, (frame.first(n),)), (STEPS, (frame.now(n),))] for n in visits],
        "first": [[(OUTER, (frame.first(n),))] for n in (frame.order.name, *visits)],
        "last": [[(OUTER, (frame.last(n),))] for n in visits],
        "steps": [[(STEPS, (frame.before(n), frame.now(n)))] for n in ("gap", *visits)],
    }
    return known[name]


def _distance(
    frame: VisitFrame, groups: Mapping[str, LevelGroups], name: str, one: Views, two: Views
) -> float:
    """Mean total variation of the tables of a name."""
    found = []
    for parts in _tables(frame, name):
        laws = []
        for views in (one, two):
            counts: Any = sum(_counts(groups[v], views.codes[v], columns) for v, columns in parts)
            laws.append(counts / max(1, counts.sum()))
        found.append(float(np.abs(laws[0] - laws[1]).sum() / 2))
    return float(np.mean(found)) if found else 0.0


def _counts(groups: LevelGroups, codes: Codes, columns: Sequence[str]) -> Positions:
    """Rows by level of one column, or by groups of levels of two."""
    domain = groups.domain if len(columns) == 1 else groups.coarse
    shown = codes if len(columns) == 1 else groups.of(codes)
    cells = np.zeros(len(shown), np.int64)
    for name in columns:
        cells = cells * domain[name].levels + shown[:, domain.index(name)]
    return np.bincount(cells, minlength=domain.cells(tuple(columns)))


# --- trees ---


def _told_apart(frame: VisitFrame, one: Views, two: Views, rng: np.random.Generator) -> float:
    """AUC of trees on persons that they have not seen; .5 is guessing."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import cross_val_predict

    most = min(4000, len(one.codes[PERSONS]), len(two.codes[PERSONS]))
    some = [_sums(frame, v)[rng.permutation(len(v.codes[PERSONS]))[:most]] for v in (one, two)]
    which = np.repeat([0, 1], most)
    trees = HistGradientBoostingClassifier(random_state=0)
    found = cross_val_predict(trees, np.concatenate(some), which, cv=3, method="predict_proba")
    return float(roc_auc_score(which, found[:, 1]))


def _sums(frame: VisitFrame, views: Views) -> Floats:
    """What a person's visits sum to: the person's levels and number of visits; of each column the
    first and last level, the mean, and the number of changes.
    """
    people, outer, steps = (views.codes[name] for name in (PERSONS, OUTER, STEPS))
    places = np.zeros(int(views.owners[PERSONS].max(initial=0)) + 1, np.int64)
    places[views.owners[PERSONS]] = np.arange(len(people))
    visited, stepped = places[views.owners[OUTER]], places[views.owners[STEPS]]
    domains, count = frame.views, len(people)
    number = people[:, domains[PERSONS].index(frame.now("number"))].astype(np.float64)
    found = [*people[:, : len(frame.modelled)].T.astype(np.float64), number]
    for name in frame.of_visits.names:
        ends = np.full((2, count), -1.0)
        for row, place in enumerate((frame.first(name), frame.last(name))):
            ends[row, visited] = outer[:, domains[OUTER].index(place)]
        before, now = (
            steps[:, domains[STEPS].index(n)].astype(np.float64)
            for n in (frame.before(name), frame.now(name))
        )
        total = np.maximum(ends[0], 0) + np.bincount(stepped, now, count)
        changes = np.bincount(stepped, now != before, count)
        found += [*ends, total / np.maximum(number, 1), changes]
    return np.stack(found, 1)


def _learnt(
    frame: VisitFrame,
    groups: Mapping[str, LevelGroups],
    target: str,
    drawn: Views,
    learned: Views,
    tested: Views,
    rng: np.random.Generator,
) -> tuple[float, float] | None:
    """AUC on half of the real persons of trees that learn what comes next on synthetic visits, and
    on the other half: of the levels of the target, or of those above the middle one of a range.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score

    domain, name = groups[STEPS].coarse, frame.now(target.rpartition(".")[2])
    known = [n for n in domain.names if n in frame.modelled.names or n.startswith(frame.before(""))]
    at, of = [domain.index(n) for n in known], domain.index(name)

    def rows(views: Views) -> tuple[Codes, Codes]:
        levels = groups[STEPS].of(views.codes[STEPS])
        levels = levels[rng.permutation(len(levels))[:40_000]]
        return levels[:, at], levels[:, of]

    features, truth = rows(tested)
    middle = np.median(truth) if domain[name].ranged else None
    found = []
    for views in (drawn, learned):
        known_features, levels = rows(views)
        labels, real = (x if middle is None else x > middle for x in (levels, truth))
        model = HistGradientBoostingClassifier(random_state=0).fit(known_features, labels)
        chances = model.predict_proba(features)
        each = [
            roc_auc_score(real == level, chances[:, i])
            for i, level in enumerate(model.classes_)
            if 0 < (real == level).sum() < len(real)
        ]
        if not each or len(model.classes_) < 2:
            return None
        found.append(float(np.mean(each)))
    return found[0], found[1]
