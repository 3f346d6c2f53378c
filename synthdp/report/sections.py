"""What both reports share: pictures with their sentence, numbers as text, and the templates."""

from __future__ import annotations

import base64
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.drawing import charts
from synthdp.evaluate.fidelity import nearest_distribution
from synthdp.graph.validation import claim_text, validation_sentences
from synthdp.privacy.calibration import mu_of
from synthdp.spec.load.wording import many

MAX_BYTES = 3_000_000
VISIBLE_ASSOCIATION = 0.1  # Cramér's V that a reader of a table would notice


@dataclass(frozen=True)
class Picture:
    """One figure and the sentence that says what to conclude from it."""

    title: str
    svg: Markup
    sentence: str


@cache
def template(name: str) -> Any:
    """A template of this package. It escapes every value that is not markup already."""
    loader = PackageLoader("synthdp.report", "templates")
    return Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    ).get_template(name)


def svg_image(svg: str) -> str:
    """A picture as a data address: no script runs inside an image."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def number(value: float | None) -> str:
    """A figure as text: three significant digits, or "not available".

    >>> number(0.12345), number(12345.0), number(None)
    ('0.123', '12,345', 'not available')
    """
    if value is None or not np.isfinite(value):
        return "not available"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def interval(value: Any) -> str:
    """An estimate with its interval as text; plain numbers and texts as they are.

    >>> interval({"value": 0.5, "low": 0.4, "high": 0.6})
    '0.5 (0.4 to 0.6)'
    """
    if isinstance(value, Mapping):
        middle = number(value.get("value", value.get("estimate")))
        low, high = value.get("lower", value.get("low")), value.get("upper", value.get("high"))
        if low is None or high is None:
            return middle
        return f"{middle} ({number(low)} to {number(high)})"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or isinstance(value, float):
        return number(value)
    return str(value)


# --- tables ---
#
# Tables of text for the appendix of a report, and how many rows of them a page shows.


@dataclass(frozen=True)
class ReportTable:
    """A caption, column headings and rows of text; `left_out` rows are in `internal.json` only."""

    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int = 0


@dataclass(frozen=True)
class PageLimits:
    """Most rows of long tables and most overlays, so that the page stays small."""

    pairs: int
    levels: int
    overlays: int


def cut(table: ReportTable, max_rows: int) -> ReportTable:
    """The table with at most `max_rows` rows; the others are counted in `left_out`."""
    left_out = max(0, len(table.rows) - max_rows)
    return ReportTable(table.caption, table.headings, table.rows[:max_rows], left_out)


# --- audits ---
#
# The report's section on audits: what each record found, from its plain values.


ROWS = {"none": "without rows", "simulated": "on simulated rows", "real": "on real rows"}
AUDIT_HEADINGS = (
    "mechanism",
    "method",
    "rows of the unit",
    "runs",
    "claimed epsilon",
    "at delta",
    "shown: at least",
    "could show at most",
    "would notice",
    "claim",
)
ATTACK_HEADINGS = (
    "attack",
    "test models in each world",
    "advantage",
    "lower",
    "upper",
    "control",
    "AUC",
    "AUC at most",
    "TPR at 1% FPR at most",
    "epsilon: at least",
    "could show at most",
    "claim",
)


def conclusion(records: Sequence[Mapping[str, Any]]) -> str:
    """What the audits conclude, in one sentence."""
    if not records:
        return "No audit of this plan was found beside the release; synthdp audit makes one."
    where = " and ".join(ROWS[record["rows"]] for record in records)
    refuted = [text for record in records for text in record["refuted"]]
    if refuted:
        return (
            f"An audit ({where}) refutes the claim: {'; '.join(refuted)}. Do not publish this"
            " release."
        )
    return (
        f"Audits {where} found nothing that speaks against the claim. An audit can refute a claim"
        " and never prove one."
    )


def audit_tables(records: Sequence[Mapping[str, Any]]) -> list[ReportTable]:
    """Replay, statistical audits and attack of each record."""
    return [table for record in records for table in _tables(record)]


def _tables(record: Mapping[str, Any]) -> Iterator[ReportTable]:
    """The tables of one record."""
    where = f"{ROWS[record['rows']]}, {record['day']}"
    if record["replay"]:
        yield _replay_table(record["replay"], where)
    if record["audits"]:
        rows = tuple(_audit_row(a) for a in record["audits"])
        yield ReportTable(f"Statistical audits {where}", AUDIT_HEADINGS, rows)
    if record["membership"]:
        yield from _membership_tables(record["membership"], where)


def _replay_table(replay: Mapping[str, Any], where: str) -> ReportTable:
    figures = {
        "mechanisms": str(replay["mechanisms"]),
        "pairs of neighbouring tables": str(replay["pairs"]),
        "most that a pair used of what the event allows": f"{replay['largest_share']:.1%}",
        "other differences": str(len(replay["findings"])),
    }
    return ReportTable(f"Record and replay, {where}", ("figure", "value"), tuple(figures.items()))


def _membership_tables(attack: Mapping[str, Any], where: str) -> Iterator[ReportTable]:
    """The tables of an attack: its main figures, each declared attack, its warnings."""
    figures = {
        "target": "one row" if attack.get("unit") is None else f"all rows of {attack['unit']}",
        "pairs of models": str(attack["pairs"]),
        "dropped": str(attack["pairs_dropped"]),
        "advantage": number(attack["advantage"]),
        "lower": number(attack["lower"]),
        "upper": number(attack["upper"]),
        "ceiling": number(attack["ceiling"]),
        "baseline": _interval(attack["baseline"]),
    }
    yield ReportTable(f"Membership attack {where}", tuple(figures), (tuple(figures.values()),))
    if attack["attacks"]:
        rows = tuple(_attack_row(a) for a in attack["attacks"])
        yield ReportTable(f"Attacks {where}", ATTACK_HEADINGS, rows)
    if attack["warnings"]:
        warnings = tuple((text,) for text in attack["warnings"])
        yield ReportTable(f"Warnings of the attack {where}", ("before you believe it",), warnings)


def _attack_row(a: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        a["attack"],
        str(a["models"]),
        number(a["advantage"]),
        number(a["lower"]),
        number(a["upper"]),
        _interval(a["control"]),
        number(a["auc"]),
        number(a["auc_upper"]),
        number(a["tpr_upper"]),
        number(a["epsilon_lower"]),
        number(a["epsilon_provable"]),
        "refuted" if a["refuted"] else "not refuted",
    )


def _interval(gap: Mapping[str, float] | None) -> str:
    """An advantage with its 95% interval."""
    if gap is None:
        return "none"
    return f"{number(gap['value'])} ({number(gap['lower'])} to {number(gap['upper'])})"


def _audit_row(a: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        a["mechanism"],
        a["method"],
        str(a["unit_rows"]),
        str(a["runs"]),
        "none" if a["epsilon"] is None else number(a["epsilon"]),
        f"{a['delta']:g}",
        number(a["epsilon_lower"]),
        number(a["epsilon_provable"]),
        f"{a['fault']}: {a['power']:.0%}",
        "refuted" if a["refuted"] else "not refuted",
    )


# --- graph view ---
#
# The graph on both reports, causal or predictive: its sentence, picture and validation.


MAX_ROWS = 200
ORDER = ("refuted", "undecided", "supported")
EDGE_HEADINGS = (
    "claim",
    "status",
    "effect (Cohen's w)",
    "at most",
    "smallest detectable effect",
    "p-value",
)
CAPTIONS = {
    "arrow": "Arrows, held against noisy tables",
    "independence": "Implied independences, held against noisy tables",
}


@dataclass(frozen=True, kw_only=True)
class GraphView:
    """The graph: its picture as an SVG document, its arrows, and their validation.

    `edges` are (cause, effect, where the arrow comes from); in mode predict a column and one that
    it predicts. `validation` is what released tables
    say of each of the graph's claims, as plain JSON values (`graph.validation`).
    """

    mode: str
    svg: str | None = None
    edges: tuple[tuple[str, str, str], ...] = ()
    validation: Mapping[str, Any] | None = None

    @property
    def predictive(self) -> bool:
        """Whether its arrows predict, and claim no cause."""
        return self.mode == "predict"

    @property
    def name(self) -> str:
        """What the graph is."""
        return "Predictive graph" if self.predictive else "Causal graph"

    @property
    def ends(self) -> tuple[str, str]:
        """What an arrow leads from and to."""
        return ("predictor", "predicted") if self.predictive else ("cause", "effect")


PREDICTIVE_SENTENCE = (
    " Predictive arrows keep pairs that depend on each other and on which the search had no answer;"
    " they are no causes."
)


def graph_sentence(view: GraphView) -> str:
    """What kind of graph shaped the model."""
    if view.predictive:
        return (
            f"The model follows {many(len(view.edges), 'arrow')}. They say which columns predict"
            " which, in the order of the spec; they are no causes. Which pairs were measured was"
            " chosen from noisy tables, and paid for (mode predict)."
        )
    if not view.edges:
        return f"The model used no causal arrows (mode {view.mode})."
    kinds = Counter(source for _, _, source in view.edges)
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    kind = "" if kinds["predictive"] else "causal "
    return (
        f"The model follows {len(view.edges)} {kind}arrows ({counts}); mode"
        f" {view.mode}.{_validation_sentence(view.validation, len(view.edges))}"
        f"{PREDICTIVE_SENTENCE if kinds['predictive'] else ''}"
    )


def _validation_sentence(validation: Mapping[str, Any] | None, arrows: int) -> str:
    """What released tables say of a given graph."""
    if validation is None:
        return ""
    tested, independences = (
        ", ".join(f"{n} {status}" for status, n in validation["counts"][kind].items())
        for kind in ("arrow", "independence")
    )
    told = ". ".join(s[0].upper() + s[1:] for s in validation_sentences(validation, arrows))
    return (
        f" Held against noisy tables, its arrows: {tested}; the independences that it implies:"
        f" {independences}. {told}."
    )


def unlinked_sentence(view: GraphView) -> str:
    """What the model holds of columns without an arrow between them."""
    given = "the columns that predict it" if view.predictive else "its causes"
    return f"What is not linked, the model holds to be independent given {given}."


def arrow_table(view: GraphView, most: int) -> ReportTable:
    """What each column depends on: a row for each column and provenance that arrows lead to."""
    causes: dict[tuple[str, str], list[str]] = {}
    for cause, effect, source in view.edges:
        causes.setdefault((effect, source), []).append(cause)
    rows = tuple((effect, ", ".join(names), s) for (effect, s), names in causes.items())
    start, end = view.ends
    headings = (end, f"{start}s" if view.predictive else "causes", "where they come from")
    return cut(ReportTable(f"Arrows of the {view.name.lower()}", headings, rows), most)


def finding_tables(validation: Mapping[str, Any] | None) -> list[ReportTable]:
    """One table for arrows and one for independences, refuted ones first.

    There is none without a validation.
    """
    if validation is None:
        return []
    findings = sorted(validation["findings"], key=lambda f: ORDER.index(f["status"]))
    tables = []
    for kind, caption in CAPTIONS.items():
        rows = tuple(_edge_row(finding) for finding in findings if finding["kind"] == kind)
        tables.append(cut(ReportTable(caption, EDGE_HEADINGS, rows), MAX_ROWS))
    return tables


def _edge_row(finding: Mapping[str, Any]) -> tuple[str, ...]:
    effects = (finding["effect"], finding["effect_upper"], finding["smallest_detectable_effect"])
    return claim_text(finding), finding["status"], *map(number, (*effects, finding["p_value"]))


# --- guarantee ---
#
# The guarantee on both reports: where the budget goes, and what attacks on one unit can reach.


Points = Sequence[tuple[float, float]]

BUDGET_TITLE = "Budget: what each look at the rows took"
ROC_TITLE = "What an attack on one unit can reach"


def shares(alone: Sequence[float], *, delta: float) -> list[float]:
    """The part of each look in the cost of all, from its epsilon `alone` at `delta`; they add to 1.

    Epsilons do not add up, and what one adds to others depends on the order. Here each look counts
    by mu squared of the Gaussian mechanism that costs as much alone, since these add up under
    composition, in any order: J. Dong, A. Roth and W. J. Su, "Gaussian Differential Privacy",
    arXiv:1905.02383v3, Corollary 3.3. For looks that are no Gaussian mechanism it is a convention.

    >>> [round(share, 2) for share in shares([0.5, 0.5, 0.0], delta=1e-5)]
    [0.5, 0.5, 0.0]
    """
    squares = [mu_of(epsilon, delta) ** 2 if epsilon > 0 else 0.0 for epsilon in alone]
    total = math.fsum(squares) or 1.0
    return [square / total for square in squares]


def budget_left(took: float, spent: float, cap: float | None) -> str:
    """What is left of a table's budget, where a release took `took` of the `spent` epsilon.

    >>> budget_left(1, 2, 3)
    'epsilon 1 of 3 is left: this release took 1, all so far took 2'
    >>> budget_left(1, 1, None)
    'no cap: this release took epsilon 1, all so far took 1, and more may be taken'
    """
    if cap is None:
        return (
            f"no cap: this release took epsilon {took:.4g}, all so far took {spent:.4g}, and more"
            " may be taken"
        )
    left = max(cap - spent, 0.0)
    return (
        f"epsilon {left:.4g} of {cap:.4g} is left: this release took {took:.4g}, all so far took"
        f" {spent:.4g}"
    )


def budget_picture(
    looks: Sequence[tuple[str, float]], *, total: float, budget: float, delta: float, more: str = ""
) -> Picture:
    """The bar of the budget. `looks` are (name, epsilon alone); all together cost `total`.

    `more` ends the sentence.
    """
    parts = shares([epsilon for _, epsilon in looks], delta=delta)
    sentence = (
        f"Everything together guarantees epsilon {number(total)} of the {budget:g} that"
        f" {'were' if budget != 1 else 'was'} allowed, at delta {delta:g}."
    )
    if looks:
        (name, _), part = max(zip(looks, parts, strict=True), key=lambda both: both[1])
        of_budget = part * total / max(budget, total)
        sentence += f" The largest part, {of_budget:.0%} of the budget, is {name}."
    if more:
        sentence += f" {more}"
    sentence += (
        " A part is what a look alone would cost, as the squared mu of a Gaussian mechanism: these"
        " add up in any order, and epsilons do not."
    )
    named = [(name, round(p * total, 6)) for (name, _), p in zip(looks, parts, strict=True)]
    svg = charts.budget_bar(named, budget=budget, alt=f"Parts of the budget. {sentence}")
    return Picture(BUDGET_TITLE, Markup(svg), sentence)


def roc_points(profile: Points) -> list[tuple[float, float]]:
    """The bound on (FPR, TPR) that the whole profile of (epsilon, delta) gives.

    It is evaluated on a grid of false-positive rates. Each (epsilon, delta) bounds TPR by both
    sides of its definition, e^epsilon FPR + delta and 1 - e^-epsilon (1 - delta - FPR). Source:
    Kairouz, Oh and Viswanath, "The Composition Theorem for Differential Privacy" (2015), Theorem
    2.1.
    """
    rates = np.geomspace(1e-3, 1.0, 61)
    bound = roc_bound(profile, rates)
    return list(zip(rates.tolist(), bound, strict=True))


def roc_bound(profile: Points, rates: Sequence[float] | np.ndarray) -> list[float]:
    """The most that the true-positive rate can be at each false-positive rate."""
    epsilon = np.asarray([point[0] for point in profile], dtype=np.float64)[:, None]
    delta = np.asarray([point[1] for point in profile], dtype=np.float64)[:, None]
    at = np.asarray(rates, dtype=np.float64)
    above = np.minimum(np.exp(epsilon) * at + delta, 1 - np.exp(-epsilon) * (1 - delta - at))
    bounds: list[float] = np.clip(above.min(axis=0), 0.0, 1.0).tolist()
    return bounds


def roc_picture(profile: Points, *, curve: Points = (), more: str = "") -> Picture:
    """The bound of the guarantee, with the curve of an attack where there is one."""
    points = roc_points(profile)
    at_one_percent = next(tpr for fpr, tpr in points if fpr >= 0.01)
    sentence = (
        "Whoever knows all other rows, and wrongly accuses 1% of outsiders of being in the table,"
        f" finds at most {at_one_percent:.1%} of those who are in it, by whatever attack."
    )
    if more:
        sentence += f" {more}"
    svg = charts.roc(points, curve=curve, alt=sentence)
    return Picture(ROC_TITLE, Markup(svg), sentence)


def crosses(curve: Points, profile: Points) -> bool:
    """Whether any point (FPR, TPR) of a curve lies above what the profile allows."""
    bounds = roc_bound(profile, [fpr for fpr, _ in curve])
    return any(tpr > bound + 1e-12 for (_, tpr), bound in zip(curve, bounds, strict=True))


def most_advantage(profile: Points) -> float:
    """The most that TPR - FPR can be of one who knows all other rows, from the profile.

    (epsilon, delta) bounds it by 1 - 2 (1 - delta) / (1 + e^epsilon): Kairouz, Oh and Viswanath
    (2015), Theorem 2.1, where the two sides of the region meet.

    >>> round(most_advantage([(0.0, 0.1), (1.0, 1e-5)]), 3)
    0.1
    """
    return min(1 - 2 * (1 - delta) / (1 + math.exp(epsilon)) for epsilon, delta in profile)


# --- measured vs synthetic ---
#
# Published rows compared with published noisy counts: columns, and pairs that were measured.


FloatArray = npt.NDArray[np.float64]

MAX_PAIR_TABLES = 400
# Of ranked figures: machines that differ in the last bit must rank alike, so that `verify` draws
# the same page.
DIGITS = 9


class NoisyCounts(Protocol):
    """A published table: its columns, noisy counts, and their noise's standard deviation.

    `counts` has one axis for each column. `sigma` is the standard deviation in each cell.
    """

    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def counts(self) -> npt.NDArray[Any]: ...
    @property
    def sigma(self) -> float: ...


@dataclass(frozen=True)
class Column:
    """One column: noisy and synthetic relative frequencies `[levels]`, and its noisy counts.

    `sigma` is the standard deviation of the noise in each count.
    """

    name: str
    noisy: FloatArray
    synthetic: FloatArray
    counts: FloatArray
    sigma: float

    @property
    def distance(self) -> float:
        """Total variation of the synthetic from the noisy frequencies."""
        return round(float(0.5 * np.abs(self.noisy - self.synthetic).sum()), DIGITS)

    @property
    def by_noise(self) -> float:
        """Upper bound of the expected total variation of the noise alone."""
        return noise_distance(self.counts, self.sigma)


def noise_distance(counts: FloatArray, sigma: float) -> float:
    """Upper bound, at most 1, of the expected total variation that noise alone makes in a table.

    `counts` are the table's noisy counts, `sigma` the standard deviation of their noise. The mean
    absolute value of a Gaussian is sigma sqrt(2 / pi). Projecting the counts to the nearest
    distribution only shrinks it.

    >>> round(noise_distance(np.full(10, 100.0), 5.0), 4)
    0.0199
    """
    total = max(float(counts.sum()), 1.0)
    return min(1.0, 0.5 * counts.size * sigma * float(np.sqrt(2 / np.pi)) / total)


def columns(domain: Domain, codes: Codes, tables: Sequence[NoisyCounts]) -> Iterator[Column]:
    """Every column that was measured by itself, in the table's order.

    `codes` are levels `[rows, columns]`.
    """
    single = {t.columns[0]: t for t in tables if len(t.columns) == 1}
    for i, column in enumerate(domain.columns):
        if column.name not in single:
            continue
        table = single[column.name]
        counts = np.asarray(table.counts, dtype=np.float64)
        shares = np.bincount(codes[:, i], minlength=column.levels) / len(codes)
        yield Column(column.name, nearest_distribution(counts), shares, counts, table.sigma)


@dataclass(frozen=True)
class MeasuredPair:
    """A pair of columns that a published table contains.

    `distance` is the total variation of the synthetic rows from the table; `by_noise` bounds the
    expected total variation of the noise alone.
    """

    names: tuple[str, str]
    distance: float
    by_noise: float


def measured_pairs(
    domain: Domain, codes: Codes, tables: Sequence[NoisyCounts]
) -> Iterator[MeasuredPair]:
    """Each pair once, from the smallest table that contains it, in the order of the tables."""
    smallest: dict[tuple[str, str], NoisyCounts] = {}
    for table in tables:
        for first, second in combinations(table.columns, 2):
            pair = (second, first) if (second, first) in smallest else (first, second)
            if pair not in smallest or smallest[pair].counts.size > table.counts.size:
                smallest[pair] = table
    for pair, table in [*smallest.items()][:MAX_PAIR_TABLES]:
        yield _measured_pair(domain, codes, pair, table)


def _measured_pair(
    domain: Domain, codes: Codes, pair: tuple[str, str], table: NoisyCounts
) -> MeasuredPair:
    """The pair's distance from the marginal of `table` on it."""
    others = tuple(k for k, name in enumerate(table.columns) if name not in pair)
    counts = np.asarray(table.counts, dtype=np.float64).sum(axis=others)
    if table.columns.index(pair[0]) > table.columns.index(pair[1]):
        counts = counts.T
    # Each count is a sum of so many noisy cells.
    sigma = table.sigma * float(np.sqrt(table.counts.size / counts.size))
    i, j = (domain.index(n) for n in pair)
    keys = codes[:, i].astype(np.int64) * counts.shape[1] + codes[:, j]
    shares = np.bincount(keys, minlength=counts.size) / len(keys)
    distance = float(0.5 * np.abs(nearest_distribution(counts) - shares).sum())
    return MeasuredPair(pair, round(distance, DIGITS), noise_distance(counts, sigma))
