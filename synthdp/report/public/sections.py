"""The sections of the public report, each with the sentence that says what to conclude."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from markupsafe import Markup

from synthdp import drawing
from synthdp.data.domain import Domain
from synthdp.evaluate.fidelity import association, grid, most_connected, pair_plot
from synthdp.model.estimands import INTERCEPT
from synthdp.report import sections as shared
from synthdp.report.prose import estimated, number, say
from synthdp.report.public.content import (
    DIGITS,
    Column,
    MeasuredPair,
    PublicContent,
    measured,
    measured_pairs,
)
from synthdp.report.sections import (
    VISIBLE_ASSOCIATION,
    Came,
    FloatArray,
    Look,
    Picture,
    ReportTable,
    Section,
    budget_picture,
    column_overlay,
    roc_picture,
)
from synthdp.spec.load.wording import many

Scores = Sequence[Mapping[str, Any]]
Estimands = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What is computed of the published rows, once for the page.

    `strengths` are associations of `names`, at most 32 columns: shape `[names, names]`.
    """

    columns: Sequence[Column]
    pairs: Sequence[MeasuredPair]
    names: Sequence[str]
    strengths: FloatArray

    @classmethod
    def of(cls, content: PublicContent) -> Measured:
        """The distances and associations of a page, rounded so that machines agree."""
        domain, codes = content.domain, content.codes
        first = [n for n in content.first if n in domain.names]
        names = list(dict.fromkeys([*first, *domain.names]))[:32]
        cells, sizes = grid(domain, codes, codes)
        at = [domain.index(n) for n in names]
        return cls(
            columns=[*measured(domain, codes, content.tables)],
            pairs=[*measured_pairs(domain, codes, content.tables)],
            names=names,
            strengths=association(cells[:, at], [sizes[i] for i in at]).round(DIGITS),
        )


def budget(facts: Mapping[str, Any]) -> Section:
    """The bar of the budget, from the certificate's facts."""
    looks = [Look(**p) for p in facts["purposes"]]
    total, allowed, delta = (float(facts[k]) for k in ("epsilon", "epsilon_allowed", "delta"))
    picture = budget_picture(looks, total=total, budget=allowed, delta=delta)
    return Section(picture.sentence, [picture])


def columns(domain: Domain, found: Sequence[Column], *, most: int) -> Section:
    """Noisy and synthetic frequencies of at most `most` columns, furthest off first."""
    if not found:
        return Section(say("measured_columns", found=found))
    ranked = sorted(found, key=lambda c: -c.distance)
    mean = {
        "mean": np.mean([c.distance for c in found]),
        "noise": np.mean([c.by_noise for c in found]),
    }
    sentence = say("measured_columns", found=found, worst=ranked[0], **mean)
    return Section(sentence, [_overlay(domain, column) for column in ranked[:most]])


def _overlay(domain: Domain, column: Column) -> Picture:
    noise = f"noise alone: {column.by_noise:.2%} on average, or less"
    return column_overlay(
        domain[column.name],
        column.noisy,
        column.synthetic,
        first_name="noisy",
        off=f"{column.distance:.2%} of rows off the noisy counts ({noise})",
    )


def pairs(content: PublicContent, found: Measured) -> Section:
    """Measured pairs against their noisy counts, and associations in the published rows."""
    pictures = []
    if len(found.names) > 1:
        pictures = [_association(found, len(content.domain)), _pairplot(content, found)]
    beyond = sum(p.distance > 2 * p.by_noise for p in found.pairs)
    worst = max(found.pairs, key=lambda p: p.distance - p.by_noise, default=None)
    sentence = say("measured_pairs", found=found.pairs, beyond=beyond, worst=worst)
    return Section(sentence, pictures)


def _association(found: Measured, columns: int) -> Picture:
    names, upper = found.names, np.triu(found.strengths, 1)
    i, j = divmod(int(upper.argmax()), len(names))
    sentence = say(
        "strong_pairs",
        strong=int((upper >= VISIBLE_ASSOCIATION).sum()),
        pairs=math.comb(len(names), 2),
        visible=VISIBLE_ASSOCIATION,
        first=names[i],
        second=names[j],
        strength=upper[i, j],
        shown=len(names),
        columns=columns,
    )
    svg = drawing.heat(names, found.strengths, alt=sentence)
    return Picture("Association in the synthetic rows (Cramér's V)", Markup(svg), sentence)


def _pairplot(content: PublicContent, found: Measured) -> Picture:
    chosen = most_connected(found.names, found.strengths, first=content.first)
    plot = pair_plot(content.domain, content.codes, chosen, like=content.codes)
    size = range(len(chosen))
    lower = [[plot.tables[i][j] if j <= i else None for j in size] for i in size]
    sentence = say("pair_plot", columns=len(chosen))
    svg = drawing.pairplot(chosen, lower, ends=plot.ends, alt=sentence)
    return Picture("Pairs of columns", Markup(svg), sentence)


def attack(content: PublicContent) -> Section:
    """The bound on attacks, and what a published attack on a simulated twin found."""
    audit = content.facts["audit"]
    sentence = say("published_attack", found=audit and audit["membership"])
    return Section(sentence, [roc_picture(content.profile)])


def hidden_levels(domain: Domain, columns: Sequence[Column]) -> ReportTable:
    """Levels whose noisy count is below three standard deviations: it may well be a true 0."""
    rows = (
        {
            "column": column.name,
            "level": drawing.short(domain[column.name].labels[k], 40),
            "noisy count": number(float(column.counts[k])),
            "noise (standard deviation)": number(column.sigma),
            "share of synthetic rows": f"{column.synthetic[k]:.3%}",
        }
        for column in columns
        for k in np.flatnonzero(column.counts.ravel() < 3 * column.sigma).tolist()
    )
    return ReportTable.of("Levels that the noise hides", rows).cut(60)


# --- DP scores, from the certificate's facts ---


def learning(scores: Scores) -> Section:
    """A sentence for each published accuracy."""
    return Section(notes=[say("learnt", score=s, told=_told(s)) for s in scores if s["target"]])


def score_table(scores: Scores) -> ReportTable:
    """All scores with the noisy counts from which they follow."""
    rows = (
        {
            "score": s["name"],
            "target": s["target"] or "",
            "value, 95% interval": _told(s),
            "noisy counts": ", ".join(map(str, s["counts"])),
            "noise (standard deviation)": number(s["sigma"]),
        }
        for s in scores
    )
    return ReportTable.of("Scores on real rows, with noise that was paid for", rows)


def _told(score: Mapping[str, Any]) -> str:
    return estimated(score["value"], score["low"], score["high"])


def expected(content: PublicContent) -> Section:
    """What was expected beside published figures alone."""
    scores = content.facts["scores"]
    tv1 = next(((s["value"], s["low"], s["high"]) for s in scores if s["name"] == "tv1"), None)
    figures = {
        (str(s.get("name")), f.get("group") or ""): Came.of(
            s["text"], f.get("interval"), s["statistic"]
        )
        for s in content.estimands
        for f in s["figures"]
    }
    return shared.forecasts(content.facts.get("expected"), tv1, figures)


# --- estimands: pictures of intervals, and a table ---


def estimands(stated: Estimands) -> Section:
    """The first figures and, where there are more, all of them as tables; and their pictures."""
    table = estimand_table(stated)
    return Section("", [*estimand_pictures(stated)], [table.cut(12), table.cut(400)])


def first_figures(stated: Estimands, *, most: int) -> list[tuple[str, str]]:
    """What was asked and what is known of it, at most `most`: the first of each estimand first."""
    known = [
        [(s, f) for f in s["figures"] if f.get("interval") and f.get("group") != INTERCEPT]
        for s in stated
    ]
    ranked = [*chain(*(k[:1] for k in known)), *chain(*(k[1:] for k in known))]
    told = list[tuple[str, str]]()
    for asked, figure in ranked[:most]:
        value, low, high = (
            _stated_value(asked, v) for v in (figure["estimate"], *figure["interval"])
        )
        group = f", {figure['group']}" if figure.get("group") else ""
        told.append((f"{asked['text']}{group}", f"{value} ({low} to {high})"))
    return told


def estimand_pictures(estimands: Estimands) -> Iterator[Picture]:
    """One picture for each of the first estimands that has figures: points with their intervals."""
    for stated in estimands[:20]:
        # Where all terms are zero is mostly far from all rows: it would be far from all else, too.
        drawn = [f for f in stated["figures"] if f.get("group") != INTERCEPT]
        known = [f for f in drawn if f.get("interval")][:40]
        if not known:
            continue
        sentence = " ".join(f"{s[:1].upper()}{s[1:]}." for s in stated["about"])
        if refused := sum(1 for f in stated["figures"] if not f.get("interval")):
            has = "has" if refused == 1 else "have"
            sentence += f" {many(refused, 'group')} {has} no figure: the table below says why."
        label = stated["statistic"]
        if label == "coefficient":
            label = "each coefficient in its own unit, on its own scale; the dotted line is 0"
        svg = drawing.intervals(
            [_interval(stated, figure) for figure in known],
            label=label,
            alt=f"Estimates with 95% intervals: {stated['text']}",
            # From 0 on where that means something: a mean's interval would be a dot far from it.
            origin=None if label in ("mean", "quantile", "count") else 0.0,
            apart=stated["statistic"] == "coefficient",
        )
        yield Picture(stated["text"], Markup(svg), sentence)


def _interval(
    stated: Mapping[str, Any], figure: Mapping[str, Any]
) -> tuple[str, list[tuple[float, float, float]]]:
    """Name and place of an estimate."""
    value, (low, high) = figure["estimate"], figure["interval"]
    told, *ends = (_stated_value(stated, v) for v in (value, low, high))
    return f"{figure.get('group') or 'all'}: {told}, {' to '.join(ends)}", [(value, low, high)]


def estimand_table(estimands: Estimands) -> ReportTable:
    """Every figure with its interval."""
    rows = (
        {
            "question": stated["text"],
            "group": figure.get("group") or "",
            "estimate": (
                _stated_value(stated, figure["estimate"])
                if "estimate" in figure
                else figure["refused"]
            ),
            "95% interval": " to ".join(
                _stated_value(stated, end) for end in figure.get("interval", ())
            ),
            "rows": number(figure.get("rows")),
        }
        for stated in estimands
        for figure in stated["figures"]
    )
    return ReportTable.of("Questions and their figures", rows)


def _stated_value(stated: Mapping[str, Any], value: float) -> str:
    return f"{value:.1%}" if stated["statistic"] == "share" else f"{value:,.4g}"
