"""How far synthetic persons with visits are from the real ones: scores from noisy tables alone.

No look at rows is taken for them, so that they cost nothing. A score is the mean total variation of
some tables, and its interval says what the noise of these tables may hide.

Let x be a table's true counts of n rows, y = x + e the noisy ones, and s the synthetic shares. By
the triangle inequality |TV(x/n, s) - D| <= N, with D = |y/n - s| / 2 and N = |e| / 2n (sums of
absolute values), *whatever s is*: it was fitted to y, so that no law of y given s may be used, and
a small D alone says nothing. For Gaussian e of standard deviation sigma in each of L cells, the
mean of N over T tables has mean sqrt(2/pi) sum(L sigma) / 2nT, and is Lipschitz in the noise with
constant sqrt(sum(L sigma^2)) / 2nT, so that it exceeds its mean by sqrt(2 ln 25) times that with
probability at most 1/25 (Gaussian concentration: Boucheron, Lugosi and Massart, 2013, Theorem 5.6).
The noise is rounded or discrete Gaussian, whose variance is no larger by more than rounding. n is
estimated from the tables' sums; the interval has 99% of that error on top. Together: 95%.

And how near they are by both tables, for the steward. Each of these figures stands beside the same
one of real persons: of those that the release counted against those that were held out; where
nobody was, of one half against the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from synthdp.data.encoding import Codes
from synthdp.data.level_groups import LevelGroups
from synthdp.data.visits import OUTER, PERSONS, STEPS, Positions, Views, VisitFrame
from synthdp.evaluate.fidelity import sampling_distance
from synthdp.spec.model import VISIT_SCORES

FloatArray = npt.NDArray[np.float64]
BEYOND = math.sqrt(2 * math.log(25))  # Lipschitz constants that the noise exceeds in 4% of cases


@dataclass(frozen=True, eq=False)
class Compared:
    """One noisy table, of noise `sigma` in each count, and the synthetic one: counts of the rows of
    a view in each cell.
    """

    view: str
    columns: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    noisy: FloatArray
    synthetic: FloatArray
    sigma: float

    @property
    def total(self) -> tuple[float, float]:
        """The number of its rows, and the variance of that: a sum over L cells has at most
        L sigma^2."""
        return float(self.noisy.sum()), self.noisy.size * self.sigma**2


@dataclass(frozen=True)
class VisitScore:
    """A mean total variation of `tables` tables with its 95% interval.

    `value` is None, and the interval all that there is, where noise hides whether there are any
    rows. `noise` is what noise alone makes on average, and `floor` about the distance of another
    sample of as many real rows.
    """

    name: str
    tables: int
    value: float | None
    low: float
    high: float
    noise: float
    floor: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def visit_scores(frame: VisitFrame, tables: Sequence[Compared]) -> tuple[VisitScore, ...]:
    """The scores of a bundle, in the order of `VISIT_SCORES`; one without a table is left out."""
    groups: dict[str, list[Compared]] = {name: [] for name in VISIT_SCORES}
    for table in tables:
        if (name := score_of(frame, table.view, table.columns)) is not None:
            groups[name].append(table)
    rows = {view: pooled_rows(t for t in tables if t.view == view) for view in frame.views}
    return tuple(_score(name, own, *rows[own[0].view]) for name, own in groups.items() if own)


def score_of(frame: VisitFrame, view: str, columns: tuple[str, ...]) -> str | None:
    """The score that a table counts for, if any: single columns, or a column and its own past."""
    first, last = frame.first(""), frame.last("")
    if view == STEPS:
        own = [(frame.before(n), frame.now(n)) for n in ("gap", *frame.of_visits.names)]
        return "tv_steps_dp" if columns in own else None
    if len(columns) > 1:
        return None
    if view == PERSONS:
        return "tv_counts_dp" if columns == (frame.now("number"),) else "tv_persons_dp"
    if view == OUTER and columns[0].startswith((first, last)):
        return "tv_first_dp" if columns[0].startswith(first) else "tv_last_dp"
    return None


def pooled_rows(tables: Iterable[Compared]) -> tuple[float, float]:
    """How many rows the tables of a view count, and the variance of that: the mean of their sums by
    precision.
    """
    known = [t.total for t in tables]
    weights = [1 / variance for _, variance in known]
    if not weights:
        return 0.0, math.inf
    whole = math.fsum(weights)
    return math.fsum(w * n for w, (n, _) in zip(weights, known, strict=True)) / whole, 1 / whole


def _score(name: str, tables: Sequence[Compared], rows: float, variance: float) -> VisitScore:
    count, sigmas = len(tables), [(t.noisy.size, t.sigma) for t in tables]
    off = 2.576 * math.sqrt(variance)  # by which the number of rows is wrong in 1%
    if rows <= off:
        return VisitScore(name, count, None, 0.0, 1.0, 1.0, 0.0)
    shares = [t.synthetic / max(1.0, float(t.synthetic.sum())) for t in tables]
    apart = [
        float(np.abs(t.noisy / rows - s).sum()) / 2 for t, s in zip(tables, shares, strict=True)
    ]
    mass = [float(np.abs(t.noisy).sum()) / rows for t in tables]
    noise, more = noise_of(sigmas, rows)
    half = noise + more + off / rows * math.fsum(mass) / count / 2
    value = math.fsum(apart) / count
    floors = (
        sampling_distance(s[s > 0], max(1, round(float(t.synthetic.sum()))), round(rows))
        for t, s in zip(tables, shares, strict=True)
    )
    return VisitScore(
        name,
        count,
        *(
            round(min(1.0, max(0.0, x)), 9)  # machines that differ in the last bit write alike
            for x in (value, value - half, value + half, noise, math.fsum(floors) / count)
        ),
    )


def noise_of(sigmas: Sequence[tuple[int, float]], rows: float) -> tuple[float, float]:
    """What noise makes of a mean distance of tables of so many cells and such noise: its mean, and
    what it exceeds that by in 4% of cases.
    """
    part = 1 / (2 * rows * len(sigmas))
    mean = math.sqrt(2 / math.pi) * math.fsum(cells * sigma for cells, sigma in sigmas)
    return part * mean, part * BEYOND * math.sqrt(math.fsum(c * s**2 for c, s in sigmas))


def with_ends(scores: Iterable[VisitScore]) -> dict[str, float]:
    """Scores by name, and the ends of their intervals as `..._low` and `..._high`."""
    return {
        f"{s.name}{end}": value
        for s in scores
        if s.value is not None
        for end, value in (("", s.value), ("_low", s.low), ("_high", s.high))
    }


# --- real figures ---


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


def _sums(frame: VisitFrame, views: Views) -> FloatArray:
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
