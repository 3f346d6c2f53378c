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

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.ensemble import RandomForestClassifier
from sklearn.preprocessing import OneHotEncoder

from synthdp_attacks.report import CAVEAT, CONFIDENTIAL, LowRates, low_rates, row_json
from synthdp_attacks.statistics import Counts, Interval, advantage, auc, models_needed, roc
from synthdp_attacks.threat import AttackError, BoolArray, Codes, FloatArray, Public, hamming

# --- scores ---
#
# Each takes what the adversary holds - the synthetic rows, `reference` rows of the same population
# that were not trained on, and the records he asks about - and gives one number for each record,
# greater for a likelier member. None of them is told who is a member, so their AUC needs no split;
# only a threshold does.


@dataclass(frozen=True)
class View:
    """The adversary's view; tables are codes `[rows, columns]`.

    `seed` is for the random draws of an attack.
    """

    public: Public
    synthetic: Codes = field(repr=False)
    reference: Codes = field(repr=False)
    seed: int


def domias(view: View, asked: Codes) -> FloatArray:
    """Log of the density of the synthetic rows over that of the reference, at each record.

    Van Breugel, Sun, Qian, van der Schaar (2023), "Membership inference attacks against synthetic
    data through overfitting detection": a record is suspect where the release is denser than the
    population, not where both are.
    """
    # Around synthetic rows the kernel is narrow, for what is looked for are copies; around the
    # reference it is as wide as makes that likeliest, for there the population is estimated.
    released = CategoricalKernel(view.public, view.synthetic, 0.03).log_density(asked)
    return released - population(view, asked)


def distance(view: View, asked: Codes) -> FloatArray:
    """Minus the Hamming distance to the closest synthetic record (DCR).

    It also calls every typical record a member.
    """
    return -closest(asked, view.synthetic)


def relative_distance(view: View, asked: Codes) -> FloatArray:
    """Distance to the closest reference record minus that to the closest synthetic one.

    The unit is columns.
    """
    return closest(asked, view.reference) - closest(asked, view.synthetic)


def monte_carlo(view: View, asked: Codes) -> FloatArray:
    """Share of the synthetic rows within a distance of each record.

    Hilprecht, Haerterich, Bernau (2019), "Monte Carlo and reconstruction membership inference
    attacks against generative models", with their median heuristic: the distance is the median over
    the records of that to the closest synthetic row.
    """
    radius = np.median(closest(asked, view.synthetic))
    return np.concatenate(
        [(distances <= radius).mean(axis=1) for _, distances in hamming(asked, view.synthetic)]
    )


def logan(view: View, asked: Codes) -> FloatArray:
    """The score of a classifier of synthetic rows against reference rows.

    1 is synthetic, 0 reference.

    After Hayes, Melis, Danezis, De Cristofaro (2019), "LOGAN", the black box: their discriminator
    is a network that is trained beside a generator, ours a random forest.
    """
    forest = RandomForestClassifier(
        n_estimators=200,
        min_samples_leaf=2,
        class_weight="balanced",
        random_state=view.seed,
        n_jobs=1,
    )
    forest.fit(
        np.concatenate([view.synthetic, view.reference]),
        np.arange(len(view.synthetic) + len(view.reference)) < len(view.synthetic),
    )
    return np.asarray(forest.predict_proba(asked)[:, 1], dtype=np.float64)


SCORES: dict[str, Callable[[View, Codes], FloatArray]] = {
    "domias": domias,
    "logan": logan,
    "monte_carlo": monte_carlo,
    "relative_distance": relative_distance,
    "distance": distance,
}


def population(view: View, asked: Codes) -> FloatArray:
    """Log-density of the reference at each record.

    It never uses the release: as an attack it must be at chance.
    """
    width = likeliest_bandwidth(view.public, view.reference, np.random.default_rng(view.seed))
    return CategoricalKernel(view.public, view.reference, width).log_density(asked)


def closest(asked: Codes, rows: Codes) -> FloatArray:
    """Hamming distance, in columns, of each record to the closest of `rows`; shape `[records]`."""
    return np.concatenate([distances.min(axis=1) for _, distances in hamming(asked, rows)]).astype(
        np.float64
    )


# --- one release ---


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
    tpr_at: LowRates

    def to_json(self) -> dict[str, Any]:
        """Plain values; a rate that the rows are too few for says so."""
        return row_json(self, f"too few control rows: needs {{needed}}, has {self.non_members}")


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
        row = self.main
        area, gap = row.auc, row.advantage
        numbers = (
            f"{row.attack}: AUC {area.value:.3f}, 95% interval {area.lower:.3f} to"
            f" {area.upper:.3f}; advantage {gap.value:.3f}, {gap.lower:.3f} to {gap.upper:.3f}"
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
        return {
            "conclusion": self.conclusion,
            "confidential": CONFIDENTIAL,
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
    synthetic, members, non_members, reference = checked_tables(
        public,
        synthetic=synthetic,
        members=members,
        non_members=non_members,
        reference=reference,
    )
    view = View(public, synthetic, reference, seed=int(rng.integers(2**31)))
    asked = np.concatenate([members, non_members])
    is_member = np.arange(len(asked)) < len(members)
    calibration = np.zeros(len(asked), dtype=bool)  # half of the members, and of the others
    for side in (np.flatnonzero(is_member), np.flatnonzero(~is_member)):
        calibration[rng.permutation(side)[: len(side) // 2]] = True
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


def checked_tables(public: Public, **tables: Codes) -> list[Codes]:
    """The tables as codes `[rows, columns]` inside `public`, each of enough rows.

    Raises:
        AttackError: a table outside the domain or too small.
    """
    checked = [public.checked(table, name) for name, table in tables.items()]
    for name, table in zip(tables, checked, strict=True):
        if len(table) < MINIMUM_ROWS:
            raise AttackError(
                f"{name} has {len(table)} rows; at least {MINIMUM_ROWS} are needed, and"
                f" {ENOUGH_ROWS} to say much"
            )
    return checked


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
    threshold = best_threshold(scores[calibration], members[calibration])
    counts = Counts.at(scores[~calibration], members[~calibration], threshold=threshold)
    return ScoreRow(
        attack=name,
        members=int(members.sum()),
        non_members=int((~members).sum()),
        advantage=advantage(counts),
        auc=auc(scores, members),
        tpr_at=low_rates(scores, members),
    )


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


# --- density ---
#
# Kernel density of a table of categorical codes, for the ratio of two densities.
#
# Aitchison and Aitken (1976), "Multivariate binary discrimination by the kernel method", section
# 2, for columns of any number of levels: around each row r lies a distribution in which every
# column independently keeps its level with probability 1 - lambda and else takes one of its other
# s - 1 levels evenly,
#
#     K(x | r) = prod_c (1 - lambda)^[x_c = r_c]  (lambda / (s_c - 1))^[x_c != r_c].
#
# It is a probability over the whole domain, falls with the Hamming distance, and gives no record
# probability 0: a ratio of two such densities is finite everywhere.


@dataclass(frozen=True)
class CategoricalKernel:
    """A kernel density over the domain of `public`, from `rows` `[rows, columns]`.

    It has one `bandwidth` (lambda, above 0 and below .5).
    """

    public: Public
    rows: Codes = field(repr=False)
    bandwidth: float

    def __post_init__(self) -> None:
        if not len(self.rows) or not 0 < self.bandwidth < 0.5:
            raise AttackError(
                f"{len(self.rows)} rows and bandwidth {self.bandwidth}; needs a row, and a"
                " bandwidth above 0 and below .5"
            )

    def log_density(self, asked: Codes) -> FloatArray:
        """Log of the probability of each record of `asked` `[records, columns]`: `[records]`."""
        return self._log_sums(asked, leave_out=False) - float(np.log(len(self.rows)))

    def log_likelihood(self) -> float:
        """Mean log-density of the rows, each under all others (leave one out); needs two rows."""
        sums = self._log_sums(self.rows, leave_out=True)
        return float((sums - np.log(len(self.rows) - 1)).mean())

    def _log_sums(self, asked: Codes, *, leave_out: bool) -> FloatArray:
        """Log of the sum of the kernels at each record.

        With `leave_out`, record i is row i and its own kernel is left out.
        """
        sizes = np.asarray(self.public.sizes)
        others = np.log(np.maximum(sizes - 1, 1))  # of one level: always agrees, says nothing
        disagree = np.where(sizes > 1, np.log(self.bandwidth) - others, 0.0)
        gain = np.where(sizes > 1, np.log1p(-self.bandwidth) - disagree, 0.0)
        encoder = OneHotEncoder(
            categories=list(map(np.arange, sizes)), sparse_output=False, dtype=np.float32
        ).fit(self.rows[:1])
        weighted = (encoder.transform(self.rows) * np.repeat(gain, sizes).astype(np.float32)).T
        sums = np.empty(len(asked))
        for start in range(0, len(asked), chunk := 512):
            part = slice(start, start + chunk)
            exponent = encoder.transform(asked[part]) @ weighted
            if leave_out:
                own = np.arange(len(exponent))
                exponent[own, start + own] = -np.inf
            sums[part] = logsumexp(exponent, axis=1)
        return sums + float(disagree.sum())


def likeliest_bandwidth(public: Public, rows: Codes, rng: np.random.Generator) -> float:
    """The bandwidth of .01 to .4 with the greatest leave-one-out likelihood of 1,000 rows."""
    chosen = rows[rng.permutation(len(rows))[:1000]]
    widths = (0.01, 0.03, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4)
    return max(widths, key=lambda w: CategoricalKernel(public, chosen, w).log_likelihood())


# --- likelihood ---
#
# Likelihood-ratio attacks on one number for each model, such as the ELBO of the target: LiRA.
#
# Carlini, Chien, Nasr, Song, Terzis, Tramer (2022), "Membership inference attacks from first
# principles", Algorithm 1: fit a Gaussian to the scores of shadow models with the target, another
# to those without, and ask which of the two a challenge's score comes from. Their score is the
# logit of a classifier's confidence; an ELBO and a noisy count need no such scaling, being
# log-likelihoods and sums of noise already.
#
# These have the two methods of a scikit-learn classifier that the attacks use, on features of
# shape `[models, 1]`.


FALSE_ALARMS = 0.1


class OnlineLira:
    """Log-likelihood ratio of two Gaussians, fitted to scores with and without the target.

    Above 0 the score is likelier with the target.
    """

    def fit(self, scores: FloatArray, members: BoolArray) -> OnlineLira:
        """Fit on shadow scores `[models, 1]` and their bits."""
        self._inside, self._outside = _gaussian(scores[members]), _gaussian(scores[~members])
        return self

    def decision_function(self, scores: FloatArray) -> FloatArray:
        """Log-likelihood ratio of each score, in nats; shape `[models]`."""
        own = scores[:, 0]
        return np.asarray(norm.logpdf(own, *self._inside) - norm.logpdf(own, *self._outside))


class OfflineLira:
    """How unusually high a score is for models *without* the target.

    Scores of models with the target are not used.

    The adversary needs no shadow model with the target, so that one fleet serves all targets. Above
    0 is what at most `FALSE_ALARMS` of the models without the target reach, under the Gaussian that
    was fitted to them (Carlini et al., section VI, equation 4). A single Gaussian does not tell
    where the others lie: this score must grow with membership.
    """

    def fit(self, scores: FloatArray, members: BoolArray) -> OfflineLira:
        """Fit on the shadow scores `[models, 1]` of models without the target."""
        self._outside = _gaussian(scores[~members])
        return self

    def decision_function(self, scores: FloatArray) -> FloatArray:
        """Standard deviations above the level of `FALSE_ALARMS`; shape `[models]`."""
        centre, spread = self._outside
        return np.asarray((scores[:, 0] - centre) / spread - norm.isf(FALSE_ALARMS))


LIKELIHOODS: dict[str, Callable[[], OnlineLira | OfflineLira]] = {
    "lira_online": OnlineLira,
    "lira_offline": OfflineLira,
}


def _gaussian(scores: FloatArray) -> tuple[float, float]:
    """Mean and standard deviation of the Gaussian that is likeliest to give the scores."""
    # 1e-9: relative; keeps ratios finite where a trainer's score does not vary
    least = 1e-9 * (1 + float(np.abs(scores).max()))
    return float(scores.mean()), max(float(scores.std()), least)
