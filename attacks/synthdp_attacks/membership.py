"""The whole membership attack: play games on some targets, fit, and judge.

The attack is fitted on one half of the pairs and judged on the other.

The verdict is that of one attack declared beforehand (`MAIN` if nothing else is said); all others
are a table beside it, since the best of many on the test half would flatter the attacker. A
black-box attack is an extractor with a classifier; a white-box attack is the name of a score that
the trainer returns with a likelihood ratio.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, count
from math import comb
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from synthdp_attacks import statistics as stats
from synthdp_attacks.fleet import Fleet
from synthdp_attacks.game import (
    MINIMUM_PAIRS,
    Game,
    GameOutcome,
    apart,
    checked_units,
    declared_targets,
    play,
)
from synthdp_attacks.one_release import LIKELIHOODS
from synthdp_attacks.report import AttackVerdict, MembershipReport, attack_row, judged
from synthdp_attacks.statistics import Claim, Counts, Interval
from synthdp_attacks.threat import (
    AttackError,
    BoolArray,
    Codes,
    FloatArray,
    Public,
    ThreatModel,
    Trainer,
)

# The classifiers of the base paper (section 5.4) as scikit-learn pipelines, which share one scale
# of scores: above 0 is "member". Regularised: there are often more features than models, and few
# models. The likelihood ratios of white-box scores are classifiers of one feature.
CLASSIFIERS: dict[str, Callable[[int], Any]] = {
    "kernel_svc": lambda seed: _scaled(SVC(kernel="rbf", C=1.0, gamma="scale")),
    "linear_svc": lambda seed: _scaled(LinearSVC(C=1e-3, max_iter=50_000, random_state=seed)),
    "logistic": lambda seed: _scaled(LogisticRegression(C=1e-2, max_iter=5_000)),
    "random_forest": lambda seed: RandomForestClassifier(
        n_estimators=200, min_samples_leaf=2, random_state=seed, n_jobs=1
    ),
    "knn": lambda seed: _scaled(KNeighborsClassifier(n_neighbors=5)),
}


def _scaled(classifier: Any) -> Any:
    return make_pipeline(StandardScaler(), classifier)


def scores_after_fit(
    name: str, features: FloatArray, members: BoolArray, asked: FloatArray, *, seed: int
) -> FloatArray:
    """Fit on `features` `[models, features]` and score `asked`.

    Scores have shape `[asked models]`; above 0 is "member".
    """
    if len(members) < 2 * 5 and name == "knn":  # fewer models than neighbours: the nearest decides
        model = _scaled(KNeighborsClassifier(n_neighbors=1))
    elif name in LIKELIHOODS:
        model = LIKELIHOODS[name]()
    else:
        model = CLASSIFIERS[name](seed)
    model.fit(features, members)
    if hasattr(model, "decision_function"):
        return np.asarray(model.decision_function(asked), dtype=np.float64)
    return np.asarray(model.predict_proba(asked)[:, 1] - 0.5, dtype=np.float64)


def held_out_scores(
    name: str, features: FloatArray, members: BoolArray, pairs: Codes, *, seed: int
) -> FloatArray:
    """Out-of-fold scores of the training models, for choosing thresholds.

    Each model is scored by a classifier that saw neither it nor the other model of its pair.
    """
    scores = np.empty(len(members))
    split = GroupKFold(n_splits=min(5, len(np.unique(pairs))))
    for kept, held in split.split(features, members, groups=pairs):
        scores[held] = scores_after_fit(
            name, features[kept], members[kept], features[held], seed=seed
        )
    return scores


# --- features: what the adversary reads off a synthetic set, for the classifier ---
#
# Naive, Histogram, Correlation and Ensemble follow Stadler et al. (2022) and the causally
# constrained synthesis paper, section 5.3; they describe the table as a whole and are nearly blind
# to one record. Targeted counting queries (Houssiau et al., 2022, "TAPAS") ask how many synthetic
# rows agree with the target on sets of columns.


Extractor = Callable[[Codes], FloatArray]

QUERIES = 256


def naive(public: Public, target: Codes, rng: np.random.Generator) -> Extractor:
    """Mean, median, variance, levels present, most and least frequent level: 6 x columns."""

    def extract(synthetic: Codes) -> FloatArray:
        counts = _column_counts(synthetic, public)
        modes = [(np.count_nonzero(c), np.argmax(c), np.argmin(c)) for c in counts]
        moments = np.stack(
            [synthetic.mean(axis=0), np.median(synthetic, axis=0), synthetic.var(axis=0)]
        )
        return np.concatenate([moments.ravel(), np.asarray(modes, dtype=np.float64).ravel()])

    return extract


def histogram(public: Public, target: Codes, rng: np.random.Generator) -> Extractor:
    """Share of rows at each level of each column: as many as there are levels."""
    return lambda synthetic: np.concatenate(_column_counts(synthetic, public)) / len(synthetic)


def correlation(public: Public, target: Codes, rng: np.random.Generator) -> Extractor:
    """For each pair of columns: Pearson's correlation of the codes, and Cramer's V.

    Cramer's V needs no order of the levels.
    """
    first, second = np.triu_indices(len(public.sizes), 1)

    def extract(synthetic: Codes) -> FloatArray:
        codes = synthetic.astype(np.float64)
        centred = codes - codes.mean(axis=0)
        scale = np.sqrt((centred**2).sum(axis=0))
        scaled = np.divide(centred, scale, out=np.zeros_like(centred), where=scale > 0)
        return np.concatenate(
            [(scaled.T @ scaled)[first, second], _cramer_v(synthetic, public.sizes)[first, second]]
        )

    return extract


def ensemble(public: Public, target: Codes, rng: np.random.Generator) -> Extractor:
    """Naive, Histogram and Correlation together."""
    parts = [make(public, target, rng) for make in (naive, histogram, correlation)]
    return lambda synthetic: np.concatenate([part(synthetic) for part in parts])


def targeted(public: Public, target: Codes, rng: np.random.Generator) -> Extractor:
    """Number of rows that agree with the target on each of up to `QUERIES` sets of columns.

    The empty set comes first. Of a target of several rows it is the sum over them. Where rows are
    of several kinds, there are so many sets of the columns of each.
    """
    kinds = []
    for own in public.columns:
        rows, masks = np.atleast_2d(target), column_subsets(len(own), QUERIES, rng)
        kinds.append((own, rows[public.of_kind(rows, own)][:, own], masks))

    def extract(synthetic: Codes) -> FloatArray:
        found = []
        for own, rows, masks in kinds:
            total, needed = np.zeros(len(masks)), masks.sum(axis=1)
            for start in range(0, len(synthetic), chunk := 4096):
                part = synthetic[start : start + chunk, own]
                for row in rows:
                    agree = (part == row).astype(np.float32)
                    total += (agree @ masks.T.astype(np.float32) == needed).sum(axis=0)
            found.append(total)
        return np.concatenate(found)

    return extract


EXTRACTORS: dict[str, Callable[[Public, Codes, np.random.Generator], Extractor]] = {
    "naive": naive,
    "histogram": histogram,
    "correlation": correlation,
    "ensemble": ensemble,
    "targeted": targeted,
}


def column_subsets(columns: int, count: int, rng: np.random.Generator) -> BoolArray:
    """Distinct sets of columns as masks `[sets, columns]`.

    They are the empty set, singles, all columns, and random ones.

    Random sets spread evenly over the sizes. All sets are taken when there are no more than
    `count`.
    """
    sizes = range(columns + 1)
    if 2**columns <= count:
        chosen = {s for size in sizes for s in combinations(range(columns), size)}
    else:
        chosen = {(), tuple(range(columns)), *((c,) for c in range(columns))}
        room = {size: comb(columns, size) for size in range(2, columns)}
        while len(chosen) < count and room:
            size = int(rng.choice(list(room)))
            subset = tuple(sorted(map(int, rng.choice(columns, size=size, replace=False))))
            room[size] -= subset not in chosen
            chosen.add(subset)
            if room[size] == 0:
                del room[size]
    masks = np.zeros((len(chosen), columns), dtype=bool)
    for row, subset in zip(masks, sorted(chosen, key=lambda s: (len(s), s)), strict=True):
        row[list(subset)] = True
    return masks


def feature_matrix(extract: Extractor, sets: Sequence[Codes]) -> FloatArray:
    """Features of each synthetic set, shape `[sets, features]`."""
    return np.stack(list(map(extract, sets)))


def _column_counts(synthetic: Codes, public: Public) -> list[FloatArray]:
    return [
        np.bincount(column, minlength=size).astype(np.float64)
        for column, size in zip(synthetic.T, public.sizes, strict=True)
    ]


def _cramer_v(synthetic: Codes, sizes: Sequence[int]) -> FloatArray:
    """Cramer's V of every two columns, in 0 .. 1, 0 where one is constant: `[columns, columns]`.

    All tables of pairs are blocks of one product of indicators, and chi-square is summed over
    blocks.
    """
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    # Whole counts up to 2^24 are exact.
    shown = np.zeros((len(synthetic), int(np.sum(sizes))), dtype=np.float32)
    shown[np.arange(len(synthetic))[:, None], synthetic + starts] = 1
    joint = (shown.T @ shown).astype(np.float64)
    margins = joint.diagonal()
    expected = np.outer(margins, margins) / len(synthetic)
    share = np.divide(
        (joint - expected) ** 2, expected, out=np.zeros_like(joint), where=expected > 0
    )
    square = np.add.reduceat(np.add.reduceat(share, starts, axis=0), starts, axis=1)
    present = np.add.reduceat((margins > 0).astype(np.int64), starts)
    degrees = np.minimum.outer(present, present) - 1
    most = len(synthetic) * degrees
    v: FloatArray = np.sqrt(np.divide(square, most, out=np.zeros_like(square), where=degrees > 0))
    return v


MAIN = ("targeted", "random_forest")
BASELINE = ("histogram", "random_forest")


@dataclass(frozen=True)
class _Attack:
    """One extractor's features of one game, and a seed for everything that the attack draws."""

    game: Game
    shadows: FloatArray
    challenges: FloatArray
    seed: int

    @classmethod
    def on(cls, game: Game, public: Public, extractor: str, seed: int) -> _Attack:
        if extractor in game.shadow_scores:
            shadows, asked = game.shadow_scores[extractor], game.challenge_scores[extractor]
            return cls(game, shadows[:, None], asked[:, None], seed)
        extract = EXTRACTORS[extractor](public, game.target, np.random.default_rng(seed))
        shadows, asked = (feature_matrix(extract, s) for s in (game.shadows, game.challenges))
        return cls(game, shadows, asked, seed)

    def outcome(self, classifier: str) -> GameOutcome:
        """Fit on the shadows, score the challenges, let the game reveal."""
        members, seed = self.game.shadow_members, self.seed
        scores = scores_after_fit(classifier, self.shadows, members, self.challenges, seed=seed)
        return self.game.reveal(scores)

    def threshold(self, classifier: str, delta: float) -> float:
        """The guess for the bound on epsilon, fixed on the shadows alone."""
        game = self.game
        held_out = held_out_scores(
            classifier, self.shadows, game.shadow_members, game.shadow_pairs, seed=self.seed
        )
        return stats.choose_threshold(held_out, game.shadow_members, delta=delta)


def attack_membership(
    table: Codes,
    trainer: Trainer,
    *,
    public: Public,
    targets: Sequence[int],
    pairs: int,
    rng: np.random.Generator,
    fleet: Fleet,
    threat: ThreatModel | None = None,
    claim: Claim | None = None,
    control_pairs: int = 0,
    extractors: Sequence[str] = tuple(EXTRACTORS),
    classifiers: Sequence[str] = tuple(CLASSIFIERS),
    main: tuple[str, str] = MAIN,
    also: Sequence[tuple[str, str]] = (),
    elsewhere: int = 0,
    units: Codes | None = None,
    progress: Callable[[int, int, str], object] | None = None,
) -> MembershipReport:
    """Attack `trainer` on the rows of `table` at `targets`, `pairs` model pairs for each.

    `table`: codes `[rows, columns]` inside `public`. With `units`, the number of each row's unit,
    `targets` are such numbers, and the worlds differ in all rows of one. `claim` puts the
    ceiling beside the result. `main` is the attack whose verdict counts: (extractor, classifier),
    or for a trainer that returns a `WhiteBox` also (score, likelihood ratio) such as
    `("elbo", "lira_online")`; `also` are further ones, which share its 5% of error, as do those
    that are made `elsewhere`, such as `attack_tables`. The table has every white-box score with
    every likelihood ratio. The control re-uses the models without the target; with `control_pairs`
    it is a game of its own, which also tests the machinery of the trainings and costs
    `2 x control_pairs` models for each target. The same arguments and the same state of `rng`
    continue what lies in the fleet's folder. `progress` hears how many steps have ended, of how
    many, and what goes on: a step is a model, or a part of the judging.

    Raises:
        AttackError: something that was asked for is unknown, too few, or outside the domain.
        FleetError: the folder belongs to another run, or workers cannot start.
    """
    _check_arguments(extractors, classifiers, (main, *also), control_pairs)
    table, units = public.checked(table, "the table"), checked_units(units, table)
    targets = declared_targets(table, targets, units)
    # The game checks every model at once for the scores that the attacks will need.
    scores = [name for name, _ in (main, *also) if name not in EXTRACTORS]
    playing = partial(play, rng=rng, threat=threat, public=public, score_names=scores)
    games, controls = [], []
    models = 2 * len(targets) * (pairs + control_pairs)
    steps, judging = models + len(extractors) + 2, count(models)
    told = progress or (lambda done, total, what: None)

    for number, target in enumerate(targets):
        own, others = apart(table, target, units)
        played = partial(playing, others.rows, own, trainer, units=others.units)
        before = 2 * number * (pairs + control_pairs)
        folder = _heard(fleet.within(f"target-{number}"), progress, before, steps)
        game = played(pairs=pairs, fleet=folder)
        games.append(_inside(game, public))
        if control_pairs:
            folder = _heard(fleet.within(f"control-{number}"), progress, before + 2 * pairs, steps)
            control = played(pairs=control_pairs, fleet=folder, control=True)
            controls.append(_inside(control, public))
        elif (~game.shadow_members).sum() >= 4:  # two pairs: all targets together may do
            controls.append(game.control(rng))
    report = judge(
        games,
        controls,
        public=public,
        claim=claim,
        extractors=extractors,
        classifiers=classifiers,
        rng=rng,
        main=main,
        also=also,
        elsewhere=elsewhere,
        target="record" if units is None else "unit",
        begin=lambda what: told(next(judging), steps, what),
    )
    told(steps, steps, "")
    return report


def _heard(
    fleet: Fleet, progress: Callable[[int, int, str], object] | None, before: int, steps: int
) -> Fleet:
    """The fleet, which tells of its models from step `before` on, of so many `steps`."""
    if progress is None:
        return fleet
    return replace(
        fleet, progress=lambda s: progress(before + s.finished + s.underway, steps, "models")
    )


def _check_arguments(
    extractors: Sequence[str],
    classifiers: Sequence[str],
    declared: Sequence[tuple[str, str]],
    control_pairs: int,
) -> None:
    """Refuse unknown extractors and judges, and too few pairs for a control."""
    _known(extractors, EXTRACTORS, "extractor")
    _known(classifiers, CLASSIFIERS, "classifier")
    for extractor, judged_by in declared:
        judges = CLASSIFIERS if extractor in EXTRACTORS else LIKELIHOODS
        _known([judged_by], judges, f"judge of {extractor}")
    if control_pairs and control_pairs < MINIMUM_PAIRS:
        raise AttackError(
            f"control_pairs={control_pairs}; needs 0 (models without the target are used again) or"
            f" at least {MINIMUM_PAIRS}"
        )


def judge(
    games: Sequence[Game],
    controls: Sequence[Game],
    *,
    public: Public,
    rng: np.random.Generator,
    claim: Claim | None = None,
    extractors: Sequence[str] = tuple(EXTRACTORS),
    classifiers: Sequence[str] = tuple(CLASSIFIERS),
    main: tuple[str, str] = MAIN,
    also: Sequence[tuple[str, str]] = (),
    elsewhere: int = 0,
    target: str = "record",
    begin: Callable[[str], object] = lambda what: None,
) -> MembershipReport:
    """Attack games that were played; `target` is the word for what was asked about.

    `begin` hears of each extractor, of the white-box scores and of the verdicts as they begin.
    Models of all games are judged together, each game by its own classifier. A ceiling and a bound
    on epsilon hold for the mean over targets as they do for one.
    """
    seeds = list(map(int, rng.integers(2**31, size=len(games) + len(controls))))
    scores = _white_box(games, [main[0], *(extractor for extractor, _ in also)])
    groups = [(name, [name], classifiers) for name in extractors]
    rows = []
    for what, names, judges in [*groups, ("white-box scores", scores, tuple(LIKELIHOODS))]:
        begin(what)
        for name in names:
            found = _outcomes(games, seeds, public, name, *judges).items()
            rows += [attack_row(name, c, GameOutcome.together(o)) for c, o in found]
    begin("verdicts")
    confidence = stats.shared_confidence(1 + len(also) + elsewhere)
    arena = _Arena(games, controls, seeds, public, claim, confidence)
    verdict, outcomes = arena.verdict(main)
    pooled = GameOutcome.together(outcomes)
    return MembershipReport(
        verdict=verdict,
        per_target=tuple(_gap([outcome]) for outcome in outcomes),
        table=tuple(rows),
        baseline=_gap(_outcomes(games, seeds, public, *BASELINE)[BASELINE[1]]),
        epsilon_provable=stats.provable_epsilon(
            verdict.row.models, delta=claim.delta if claim else 0.0, confidence=confidence
        ),
        roc=tuple(
            (float(fpr), float(tpr)) for fpr, tpr in stats.roc(pooled.scores, pooled.members)
        ),
        remarks=_remarks(games, public),
        dropped=sum(game.lost for game in games),
        others=tuple(arena.verdict(attack)[0] for attack in also),
        target=target,
    )


@dataclass(frozen=True)
class _Arena:
    """Games, and the settings by which each attack on them is judged.

    `confidence` is what each attack may claim by itself.
    """

    games: Sequence[Game]
    controls: Sequence[Game]
    seeds: Sequence[int]
    public: Public
    claim: Claim | None
    confidence: float

    def verdict(self, attack: tuple[str, str]) -> tuple[AttackVerdict, list[GameOutcome]]:
        """One declared attack on all games, and its outcome on each."""
        extractor, classifier = attack
        delta = self.claim.delta if self.claim else 0.0
        attacks = [
            _Attack.on(game, self.public, extractor, seed)
            for game, seed in zip(self.games, self.seeds, strict=False)
        ]
        outcomes = [own.outcome(classifier) for own in attacks]
        thresholds = [own.threshold(classifier, delta) for own in attacks]
        moved = zip(thresholds, outcomes, strict=True)
        counts = _counts([GameOutcome(o.scores - t, o.members) for t, o in moved])
        others, control = self.seeds[len(self.games) :], None
        if self.controls:
            played = _outcomes(self.controls, others, self.public, extractor, classifier)
            control = _counts(played[classifier])
        settings: dict[str, Any] = {"claim": self.claim, "confidence": self.confidence}
        pooled = GameOutcome.together(outcomes)
        return judged(extractor, classifier, pooled, counts, control, **settings), outcomes


def _white_box(games: Sequence[Game], wanted: Sequence[str]) -> list[str]:
    """Names of the white-box scores of the games.

    Each of `wanted` must be one of them, unless it is an extractor.
    """
    scores = list(games[0].shadow_scores)
    if clash := sorted(set(scores) & set(EXTRACTORS)):
        raise AttackError(
            f"a white-box score is named {clash[0]}, which is an extractor: rename it in the"
            " trainer"
        )
    _known(wanted, dict.fromkeys([*EXTRACTORS, *scores]), "extractor or white-box score")
    return scores


def _outcomes(
    games: Sequence[Game], seeds: Sequence[int], public: Public, extractor: str, *classifiers: str
) -> dict[str, list[GameOutcome]]:
    """What each classifier scores on one extractor's features, game by game."""
    attacks = [
        _Attack.on(game, public, extractor, seed) for game, seed in zip(games, seeds, strict=False)
    ]
    return {
        classifier: [attack.outcome(classifier) for attack in attacks] for classifier in classifiers
    }


def _counts(outcomes: list[GameOutcome]) -> Counts:
    pooled = GameOutcome.together(outcomes)
    return Counts.at(pooled.scores, pooled.members)


def _gap(outcomes: list[GameOutcome]) -> Interval:
    return stats.advantage(_counts(outcomes))


def _remarks(games: Sequence[Game], public: Public) -> tuple[str, ...]:
    """What no attack's figures show."""
    found = []
    if any(game.row_counts_differ(public) for game in games):
        found.append(
            "the number of released rows differs between the worlds: release a fixed number"
        )
    if lost := sum(game.lost for game in games):
        found.append(f"{lost} model pairs were dropped because a training always killed its worker")
    return tuple(found)


def _inside(game: Game, public: Public) -> Game:
    for synthetic in (*game.shadows, *game.challenges):
        public.checked(synthetic, "a synthetic set")
    return game


def _known(names: Sequence[str], registry: Mapping[str, object], what: str) -> None:
    if unknown := sorted(set(names) - set(registry)):
        raise AttackError(f"unknown {what} {', '.join(unknown)}; known: {', '.join(registry)}")
