"""What both reports share: sections, tables of text, numbers, the renderer, graph and guarantee."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from synthdp import drawing
from synthdp.data.domain import ColumnDomain
from synthdp.graph.causal import CausalGraph
from synthdp.graph.validation import claim_text, validation_sentences
from synthdp.privacy.calibration import mu_of
from synthdp.report.prose import estimated, number, say, template
from synthdp.spec.load.wording import many

MAX_BYTES = 3_000_000
VISIBLE_ASSOCIATION = 0.1  # Cramér's V that a reader of a table would notice

FloatArray = npt.NDArray[np.float64]
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Picture:
    """One figure and the sentence that says what to conclude from it."""

    title: str
    svg: Markup
    sentence: str


@dataclass(frozen=True)
class ReportTable:
    """A caption, column headings and rows of text; `left_out` rows are in `internal.json` only."""

    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int = 0

    @classmethod
    def of(cls, caption: str, records: Iterable[Mapping[str, str]]) -> ReportTable:
        """A row for each record; the keys of the first are the headings."""
        every = [*records]
        headings = tuple(every[0]) if every else ()
        return cls(caption, headings, tuple(tuple(record.values()) for record in every))

    def cut(self, most: int) -> ReportTable:
        """The table with at most `most` rows; the others are counted in `left_out`."""
        left_out = max(0, len(self.rows) - most)
        return replace(self, rows=self.rows[:most], left_out=left_out)


@dataclass(frozen=True)
class Section:
    """A part of a page: what to conclude, and the pictures and tables that it follows from."""

    sentence: str = ""
    pictures: Sequence[Picture] = ()
    tables: Sequence[ReportTable] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class PageLimits:
    """Most rows of long tables and most overlays, so that the page stays small."""

    pairs: int
    levels: int
    overlays: int


def render_page(
    name: str,
    view: dict[str, Any],
    *,
    appendix: Callable[[PageLimits], Iterable[ReportTable]],
    limits: Sequence[PageLimits],
) -> str:
    """The page as HTML text of at most `MAX_BYTES` bytes.

    A table of hundreds of columns shows its worst parts alone: `limits` are tried in turn until the
    page is small enough. It may be larger where the graph's picture alone is. `view` has the
    content and a section `columns`, whose pictures are cut.
    """
    columns = view["columns"]
    for most in limits:
        shown = {
            "columns": replace(columns, pictures=columns.pictures[: most.overlays]),
            "first_overlays": 3,  # drawn before all else folds
            "overlays_left_out": max(0, len(view["content"].domain) - most.overlays),
            "appendix": [*appendix(most)],
        }
        html: str = template(name).render(**view | shown)
        if len(html.encode()) <= MAX_BYTES:
            break
    return html


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
        return yes(value)
    return number(value) if value is None or isinstance(value, float) else str(value)


def yes(value: bool | None) -> str:
    """Yes or no, or nothing where that is not known."""
    return {True: "yes", False: "no", None: ""}[value]


def room(column: ColumnDomain, mean: float) -> float:
    """How far a mean is from the nearer end of its column's range: what an error of it is held
    against. No unit and no zero of a scale changes the ratio.

    >>> room(ColumnDomain("x", "integer", ("a",), False, lower=100, upper=200), 120.0)
    20.0
    """
    width = column.upper - column.lower
    return max(min(mean - column.lower, column.upper - mean), 1e-3 * width)


# --- audits: what each record found, from its plain values ---


ROWS = {"none": "without rows", "simulated": "on simulated rows", "real": "on real rows"}


def conclusion(records: Sequence[Mapping[str, Any]]) -> str:
    """What the audits conclude, in one sentence."""
    where = " and ".join(ROWS[record["rows"]] for record in records)
    refuted = [text for record in records for text in record["refuted"]]
    return say("audits", records=records, where=where, refuted=refuted)


def audit_tables(records: Sequence[Mapping[str, Any]]) -> list[ReportTable]:
    """Replay, statistical audits and attack of each record."""
    tables = []
    for record in records:
        where = f"{ROWS[record['rows']]}, {record['day']}"
        if replay := record["replay"]:
            figures = {
                "mechanisms": str(replay["mechanisms"]),
                "pairs of neighbouring tables": str(replay["pairs"]),
                "most that a pair used of what the event allows": f"{replay['largest_share']:.1%}",
                "other differences": str(len(replay["findings"])),
            }
            caption = f"Record and replay, {where}"
            tables.append(ReportTable(caption, ("figure", "value"), tuple(figures.items())))
        if record["audits"]:
            rows = map(_audit_row, record["audits"])
            tables.append(ReportTable.of(f"Statistical audits {where}", rows))
        if record["membership"]:
            tables += _membership_tables(record["membership"], where)
    return tables


def _membership_tables(attack: Mapping[str, Any], where: str) -> Iterator[ReportTable]:
    figures = {
        "target": "one row" if attack.get("unit") is None else f"all rows of {attack['unit']}",
        "pairs of models": str(attack["pairs"]),
        "dropped": str(attack["pairs_dropped"]),
        **{name: number(attack[name]) for name in ("advantage", "lower", "upper", "ceiling")},
        "baseline": _gap(attack["baseline"]),
    }
    yield ReportTable.of(f"Membership attack {where}", [figures])
    if attack["attacks"]:
        yield ReportTable.of(f"Attacks {where}", map(_attack_row, attack["attacks"]))
    if attack["warnings"]:
        warnings = [{"before you believe it": text} for text in attack["warnings"]]
        yield ReportTable.of(f"Warnings of the attack {where}", warnings)


def _attack_row(a: Mapping[str, Any]) -> dict[str, str]:
    return {
        "attack": a["attack"],
        "test models in each world": str(a["models"]),
        "advantage": number(a["advantage"]),
        "lower": number(a["lower"]),
        "upper": number(a["upper"]),
        "control": _gap(a["control"]),
        "AUC": number(a["auc"]),
        "AUC at most": number(a["auc_upper"]),
        "TPR at 1% FPR at most": number(a["tpr_upper"]),
        "epsilon: at least": number(a["epsilon_lower"]),
        "could show at most": number(a["epsilon_provable"]),
        "claim": "refuted" if a["refuted"] else "not refuted",
    }


def _gap(gap: Mapping[str, float] | None) -> str:
    return "none" if gap is None else interval(gap)


def _audit_row(a: Mapping[str, Any]) -> dict[str, str]:
    return {
        "mechanism": a["mechanism"],
        "method": a["method"],
        "rows of the unit": str(a["unit_rows"]),
        "runs": str(a["runs"]),
        "claimed epsilon": "none" if a["epsilon"] is None else number(a["epsilon"]),
        "at delta": f"{a['delta']:g}",
        "shown: at least": number(a["epsilon_lower"]),
        "could show at most": number(a["epsilon_provable"]),
        "would notice": f"{a['fault']}: {a['power']:.0%}",
        "claim": "refuted" if a["refuted"] else "not refuted",
    }


# --- what a plan expected, beside what came ---

HELD = 1.25  # times as large or as small as it came, a forecast has held


@dataclass(frozen=True)
class Came:
    """Half of a figure's released interval; None: it has no figure."""

    text: str
    half: float | None
    share: bool

    @classmethod
    def of(cls, text: str, ends: Sequence[float | None] | None, statistic: str) -> Came:
        """A figure by the ends of its interval, if it has one."""
        low, high = ends or (None, None)
        half = None if low is None or high is None else (high - low) / 2
        return cls(text, half, statistic == "share")


def forecasts(
    expected: Mapping[str, Any] | None,
    tv1: tuple[float | None, float, float] | None,
    figures: Mapping[tuple[str, str], Came],
) -> Section:
    """A row for each forecast. `tv1` is the distance of single columns with its ends, None where
    nothing is known of it; `figures` are by estimand and group.
    """
    if not expected:
        return Section()
    rows = [_single_columns(expected["tv1"], tv1)]
    for told in expected["figures"]:
        if came := figures.get((told["estimand"], told["group"] or "")):
            rows.append(_half_width(told, came))
    headings = ("what", "expected", "got", "so")
    words = Counter(row[-1] for row in rows)
    table = ReportTable("Expected beside got", headings, tuple(rows)).cut(12)
    return Section(say("forecasts", words=words, held=HELD), tables=[table])


def _single_columns(
    expected: float, came: tuple[float | None, float, float] | None
) -> tuple[str, ...]:
    row = ("single columns are off by (total variation)", number(expected))
    if came is None:
        return (*row, "not measured", "not known")
    value, low, high = came
    return (*row, number(value) if low == high else estimated(*came), _held(expected, low, high))


def _half_width(told: Mapping[str, Any], came: Came) -> tuple[str, ...]:
    expected, half = (
        value if value is None else f"± {value:.2%}" if came.share else f"± {value:.3g}"
        for value in (told["half_width"], came.half)
    )
    often = f"refused in {told['refused']:.0%} of plays" if told["refused"] else ""
    shown = ", ".join(filter(None, (expected, often)))
    what = f"95% interval of {came.text}{', ' if told['group'] else ''}{told['group'] or ''}"
    if came.half is None:
        return what, shown, "refused", "as expected" if told["refused"] >= 0.5 else "worse"
    if told["half_width"] is None:
        return what, shown, half or "", "better"
    return what, shown, half or "", _held(told["half_width"], came.half, came.half)


def _held(expected: float, low: float, high: float) -> str:
    """What came is somewhere from `low` to `high`."""
    least, most = expected / HELD, expected * HELD
    if low > most:
        return "worse"
    if high < least:
        return "better"
    return "as expected" if least <= low and high <= most else "inside its interval"


# --- the graph, causal or predictive ---


@dataclass(frozen=True, kw_only=True)
class GraphView:
    """The graph: its picture as an SVG document, its arrows, and their validation.

    `edges` are (cause, effect, where the arrow comes from); in mode predict a column and one that
    it predicts. `undirected` are links whose direction nothing shows. `validation` is what released
    tables say of each of the graph's claims, as plain JSON values (`graph.validation`). `together`
    are columns, and the target that they act on together.
    """

    mode: str
    svg: str | None = None
    edges: tuple[tuple[str, str, str], ...] = ()
    undirected: tuple[tuple[str, str, str], ...] = ()
    validation: Mapping[str, Any] | None = None
    together: tuple[tuple[tuple[str, ...], str], ...] = ()

    @classmethod
    def of(
        cls, graph: CausalGraph, *, mode: str, validation: Mapping[str, Any] | None
    ) -> GraphView:
        """The view of a graph that shaped a model."""
        links = [((e.cause, e.effect, e.provenance), e) for e in graph.edges if e.structural]
        return cls(
            mode=mode,
            svg=graph.to_svg(),
            edges=tuple(shown for shown, e in links if e.directed),
            undirected=tuple(shown for shown, e in links if not e.directed),
            validation=validation,
            together=tuple((one.columns, one.target) for one in graph.together),
        )

    @property
    def predictive(self) -> bool:
        """Whether its arrows predict, and claim no cause."""
        return self.mode == "predict"

    @property
    def name(self) -> str:
        """What the graph is."""
        return "Predictive graph" if self.predictive else "Causal graph"

    def to_json(self) -> dict[str, Any]:
        """All but the picture."""
        loose: dict[str, Any] = {"undirected": self.undirected} if self.undirected else {}
        loose |= {"together": self.together} if self.together else {}
        return {"mode": self.mode, "edges": self.edges, **loose, "validation": self.validation}


def graph_section(view: GraphView | None) -> Section:
    """What kind of graph shaped the model, and what released tables say of its claims."""
    if view is None:
        return Section()
    tested, told = [], []
    if view.validation is not None:
        tested = [
            ", ".join(f"{n} {status}" for status, n in view.validation["counts"][kind].items())
            for kind in ("arrow", "independence")
        ]
        sentences = validation_sentences(view.validation)
        told = [s[0].upper() + s[1:] for s in sentences]
    sentence = say(
        "graph",
        view=view,
        arrows=many(len(view.edges), "arrow"),
        loose=many(len(view.undirected), "link"),
        kinds=Counter(source for _, _, source in (*view.edges, *view.undirected)),
        tested=tested,
        told=told,
    )
    return Section(sentence, tables=finding_tables(view.validation))


def link_tables(view: GraphView, most: int) -> list[ReportTable]:
    """What each column depends on: a row for each column and provenance that arrows lead to; and
    the links of unknown direction, and what acts together, where there are any.
    """
    causes: dict[tuple[str, str], list[str]] = {}
    for cause, effect, source in view.edges:
        causes.setdefault((effect, source), []).append(cause)
    rows = tuple((effect, ", ".join(names), s) for (effect, s), names in causes.items())
    ends = ("predicted", "predictors") if view.predictive else ("effect", "causes")
    headings = (*ends, "where they come from")
    arrows = ReportTable(f"Arrows of the {view.name.lower()}", headings, rows).cut(most)
    loose = tuple((f"{a} - {b}", source) for a, b, source in view.undirected)
    of_links = ("columns", "where they come from")
    links = ReportTable("Links whose direction nothing shows", of_links, loose).cut(most)
    acting = tuple((", ".join(columns), target) for columns, target in view.together)
    found = ReportTable("Columns that act together", ("columns", "act together on"), acting)
    return [arrows, *([links] if loose else []), *([found.cut(most)] if acting else [])]


def finding_tables(validation: Mapping[str, Any] | None) -> list[ReportTable]:
    """One table for arrows and one for independences, refuted ones first.

    There is none without a validation.
    """
    if validation is None:
        return []
    order = ("refuted", "undecided", "supported")
    findings = sorted(validation["findings"], key=lambda f: order.index(f["status"]))
    tables = []
    for kind, claims in {"arrow": "Arrows", "independence": "Implied independences"}.items():
        rows = (_finding_row(finding) for finding in findings if finding["kind"] == kind)
        tables.append(ReportTable.of(f"{claims}, held against noisy data", rows).cut(200))
    return tables


def _finding_row(finding: Mapping[str, Any]) -> dict[str, str]:
    return {
        "claim": claim_text(finding),
        "status": finding["status"],
        "effect (Cohen's w)": number(finding["effect"]),
        "at most": number(finding["effect_upper"]),
        "smallest detectable effect": number(finding["smallest_detectable_effect"]),
        "p-value": number(finding["p_value"]),
    }


# --- the guarantee: where the budget goes, and what attacks on one unit can reach ---


@dataclass(frozen=True, kw_only=True)
class Look:
    """A planned spend as reports show it: what it costs alone, and whether the run needed it."""

    purpose: str
    mechanism: str = ""
    epsilon: float
    used: bool

    @property
    def label(self) -> str:
        """Its purpose in pictures."""
        return self.purpose if self.used else f"{self.purpose} (unused)"

    def to_json(self) -> dict[str, Any]:
        """JSON object."""
        return {"purpose": self.purpose, "label": self.label} | asdict(self)


def looks_table(looks: Sequence[Look], *, delta: float) -> ReportTable:
    """Every planned spend with its part in the cost of all."""
    parts = shares([look.epsilon for look in looks], delta=delta)
    rows = (
        {
            "purpose": look.purpose,
            **({"mechanism": look.mechanism} if look.mechanism else {}),
            "part of the cost": f"{part:.1%}",
            "epsilon alone": number(look.epsilon),
            "used": yes(look.used),
        }
        for look, part in zip(looks, parts, strict=True)
    )
    return ReportTable.of("Looks at the rows", rows)


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


def budget_left(took: float, spent: float, cap: float | None, filtered: float | None = None) -> str:
    """What is left of a table's budget, where a release took `took` of the `spent` epsilon; all are
    `filtered` together where a Gaussian filter is the rule.

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
    if filtered is not None:
        return (
            f"epsilon {max(cap - filtered, 0.0):.4g} of {cap:.4g} is left: this release alone took"
            f" {took:.4g}, all so far come to {filtered:.4g} by a Gaussian filter at the cap's"
            f" delta, and add up to {spent:.4g}"
        )
    return (
        f"epsilon {max(cap - spent, 0.0):.4g} of {cap:.4g} is left: this release took {took:.4g},"
        f" all so far took {spent:.4g}"
    )


def budget_picture(
    looks: Sequence[Look], *, total: float, budget: float, delta: float, more: str = ""
) -> Picture:
    """The bar of the budget: all `looks` together cost `total`.

    `more` follows what is guaranteed.
    """
    parts = shares([look.epsilon for look in looks], delta=delta)
    largest = None
    if looks:
        look, part = max(zip(looks, parts, strict=True), key=lambda both: both[1])
        largest = (look.label, part * total / max(budget, total))
    figures = {"total": total, "budget": budget, "delta": delta, "largest": largest}
    sentence = say("budget_picture", more=more, **figures)
    named = [(look.label, round(p * total, 6)) for look, p in zip(looks, parts, strict=True)]
    svg = drawing.budget_bar(named, budget=budget, alt=f"Parts of the budget. {sentence}")
    return Picture("Budget: what each look at the rows took", Markup(svg), sentence)


def roc_points(profile: Points) -> list[tuple[float, float]]:
    """The bound on (FPR, TPR) that the profile of (epsilon, delta) gives, on a grid of FPR."""
    rates = np.geomspace(1e-3, 1.0, 61)
    return list(zip(rates.tolist(), roc_bound(profile, rates), strict=True))


def roc_bound(profile: Points, rates: Sequence[float] | np.ndarray) -> list[float]:
    """The most that the true-positive rate can be at each false-positive rate.

    Each (epsilon, delta) bounds TPR by both sides of its definition, e^epsilon FPR + delta and
    1 - e^-epsilon (1 - delta - FPR). Source: Kairouz, Oh and Viswanath, "The Composition Theorem
    for Differential Privacy" (2015), Theorem 2.1.
    """
    epsilon, delta = np.asarray(profile, dtype=np.float64).T[:, :, None]
    at = np.asarray(rates, dtype=np.float64)
    above = np.minimum(np.exp(epsilon) * at + delta, 1 - np.exp(-epsilon) * (1 - delta - at))
    bounds: list[float] = np.clip(above.min(axis=0), 0.0, 1.0).tolist()
    return bounds


def roc_picture(profile: Points, *, curve: Points = (), more: str = "") -> Picture:
    """The bound of the guarantee, with the curve of an attack where there is one."""
    points = roc_points(profile)
    reach = say("reach", tpr=next(tpr for fpr, tpr in points if fpr >= 0.01))
    sentence = f"{reach}{' ' if more else ''}{more}"
    svg = drawing.roc(points, curve=curve, alt=sentence)
    return Picture("What an attack on one unit can reach", Markup(svg), sentence)


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


def column_overlay(
    column: ColumnDomain,
    first: FloatArray,
    second: FloatArray,
    *,
    first_name: str,
    off: str,
) -> Picture:
    """Shares of one column's levels, `[levels]` each, of rows called `first_name` and synthetic.

    `off` says how far apart they are; the sentence goes on with the level that differs most.
    """
    level = int(np.abs(first - second).argmax())
    sentence = (
        f"{off}; most at {drawing.short(column.labels[level], 40)}: "
        f"{first[level]:.1%} {first_name}, {second[level]:.1%} synthetic."
    )
    svg = drawing.overlay(
        column.labels,
        first,
        second,
        ordered=column.ordered,
        alt=f"Shares of {column.name}. {sentence}",
        widths=column.relative_widths,
    )
    return Picture(column.name, Markup(svg), sentence)
