"""The membership study as a page: what holds, what does not, and its tables in the shape of the
paper's 5 to 10.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from benchmarks.membership_cells import cells
from synthdp_attacks.statistics import Interval, difference

GRAPHS = {
    "none": "non-causal",
    "complete": "complete graph",
    "partial": "partial graph",
    "wrong": "wrong graph",
    "learned": "learned graph",
}
TABLES = {"synthetic": "Synthetic", "pain1000": "Pain1000", "pain5000": "Pain5000"}
EXTRACTORS = ("naive", "histogram", "correlation", "ensemble", "targeted", "elbo", "tables")
HONEST = "by model pair"
# Declared before any of this was run; all others are the paper's own table.
TELLING = {"black box": ("targeted", "random_forest"), "white box": ("elbo", "lira_online")}


def page(study: pd.DataFrame) -> str:
    """The whole page in Markdown."""
    parts = ["# Membership inference: the paper's study re-done\n", PREAMBLE, not_run(study)]
    for table in (name for name in TABLES if name in set(study["table"])):
        own = study[study["table"] == table]
        parts += [
            f"## {TABLES[table]}\n",
            _setting(own),
            "\n".join(f"- {line}" for line in findings(own)) + "\n",
        ]
        parts += [
            "What it does to the advantage (without -> with, difference with its 95% interval):\n",
            effects(own) + "\n",
        ]
        parts += [_as_in_the_paper(own, graph) for graph in GRAPHS if graph in set(own["graph"])]
    return "\n".join(parts)


def not_run(study: pd.DataFrame) -> str:
    """Which cells there are no figures of, in one paragraph; empty where there are all."""
    done = set(study[["table", "graph", "epsilon"]].itertuples(index=False, name=None))
    missing = [
        cell.name
        for cell in cells(list(TABLES))
        if (cell.table, cell.graph, cell.epsilon) not in done
    ]
    if not missing:
        return ""
    return (
        f"**Not run** are {len(missing)} of {len(cells(list(TABLES)))} cells: {', '.join(missing)}."
        " No graph is learned on Pain.\n"
    )


PREAMBLE = """Written by `python -m benchmarks.membership`; all figures are in [membership.csv](membership.csv), the picture is
[membership.png](membership.png). Accuracy and PA (models with the target that are recognised) and NA (models without it) in
percent, as in the paper's tables 5 to 10. The game has one synthetic set for each model and is split by pair of models. "Paper's
split": 5 models in each world, 20 sets of each, dealt at random to training and test, so that a classifier may recognise the model;
accuracy there says nothing about the record. The graph called partial clubs columns into five nodes on Synthetic and is a random
half of the arrows on Pain; the wrong graph has its columns permuted; the learned one is found anew by each model from its own rows,
at the expense of the rest of the budget. Advantage is TPR - FPR; brackets are 95% intervals.
"""  # noqa: E501


def _setting(own: pd.DataFrame) -> str:
    honest = own[own["split"] == HONEST]
    one = honest.iloc[0]
    ceilings = honest["ceiling"].dropna()
    allowed = (
        f" At epsilon 1 no attack can have an advantage above {ceilings.max():.3f} (from the plan's"
        " own profile)."
        if len(ceilings)
        else ""
    )
    size = (
        f"{one['rows']:.0f} rows, {one['pairs']:.0f} model pairs in a cell ({one['models']:.0f}"
        " test models in each world)"
    )
    return f"{size}, {one['steps']:.0f} steps.{allowed}\n"


def findings(own: pd.DataFrame) -> Iterator[str]:
    """What one table says of each of the paper's questions."""
    honest, papers = own[own["split"] == HONEST], own[own["split"] != HONEST]
    for told, rows in (
        ("At epsilon 1", honest[honest["epsilon"] == 1]),
        ("Without privacy", honest[honest["epsilon"] != 1]),
    ):
        if len(rows):
            beyond = ((rows["advantage_lower"] > 0) | (rows["advantage_upper"] < 0)).sum()
            best = rows.loc[rows["advantage"].idxmax()]
            yield (
                f"{told}, {beyond} of {len(rows)} intervals of advantage exclude 0 (chance alone:"
                f" about {0.05 * len(rows):.0f}); the largest advantage is {_interval(best)},"
                f" {best['extractor']} with {best['classifier']}, {GRAPHS[best['graph']]}."
            )
    yield from _causal(honest)
    yield from _paper_split(papers, honest)


def effects(own: pd.DataFrame) -> str:
    """How much less each telling attack sees with privacy, and with each graph, as a table, and how
    many of these differences chance would give.
    """
    honest = own[own["split"] == HONEST]
    asked = [
        (f"privacy, {told}", (graph, math.inf), (graph, 1.0)) for graph, told in GRAPHS.items()
    ]
    for epsilon, where in ((math.inf, "without privacy"), (1.0, "at epsilon 1")):
        asked += [
            (f"{told}, {where}", ("none", epsilon), (graph, epsilon))
            for graph, told in list(GRAPHS.items())[1:]
        ]
    names = " | ".join(f"{name} ({' with '.join(attack)})" for name, attack in TELLING.items())
    lines, shown = [f"| what is added | {names} |", "|---" * (1 + len(TELLING)) + "|"], []
    for what, without, with_ in asked:
        told = [effect(honest, attack, without, with_) for attack in TELLING.values()]
        if any(told):
            lines.append(f"| {what} | " + " | ".join(told) + " |")
            shown += list(filter(None, told))
    bold = sum("**" in words for words in shown)
    chance = (
        f"chance alone: about {0.05 * len(shown):.1f}, and since most differences share a cell,"
        " several at once"
    )
    return (
        "\n".join(lines)
        + f"\n\nIn bold are {bold} of {len(shown)} differences, whose interval excludes 0"
        f" ({chance})."
    )


def _causal(honest: pd.DataFrame) -> Iterator[str]:
    """Whether the complete graph takes anything from the two attacks that were declared: the
    paper's claim.
    """
    for told, epsilon in (("Without privacy", math.inf), ("At epsilon 1", 1.0)):
        found = {
            name: effect(honest, attack, ("none", epsilon), ("complete", epsilon))
            for name, attack in TELLING.items()
        }
        if all(found.values()):
            yield (
                f"{told}, the advantage without a graph and with the complete one: "
                + "; ".join(f"{name} {words}" for name, words in found.items())
                + "."
            )


def _paper_split(papers: pd.DataFrame, honest: pd.DataFrame) -> Iterator[str]:
    rows = papers[papers["epsilon"] == 1]
    if len(rows):
        allowed = (1 + honest[honest["epsilon"] == 1]["ceiling"].max()) / 2
        beyond = (rows["accuracy_lower"] > allowed).sum()
        same = honest[
            (honest["epsilon"] == 1) & honest["extractor"].isin(rows["extractor"].unique())
        ]
        yield (
            f"The paper's split at epsilon 1: accuracy up to {rows['accuracy'].max():.0%}, median"
            f" {rows['accuracy'].median():.0%}, where no attack on the record can exceed"
            f" {allowed:.1%}; {beyond} of {len(rows)} intervals lie wholly above that. They are too"
            " narrow: they take the 20 sets of one model for 20 independent trials, which is what"
            " is wrong with this split. The same attacks split by model pair: median"
            f" {same['accuracy'].median():.0%}, at most {same['accuracy'].max():.0%}."
        )


def effect(
    honest: pd.DataFrame,
    attack: tuple[str, str],
    without: tuple[str, float],
    with_: tuple[str, float],
) -> str:
    """How much less one attack sees with something than without it, in words; empty where one of
    both was not measured.
    """
    before, after = (_cell(honest, attack, where) for where in (without, with_))
    if before is None or after is None:
        return ""
    gap = difference(before, after)
    verdict = "**less**" if gap.lower > 0 else "**more**" if gap.upper < 0 else "not told apart"
    return (
        f"{before.value:.2f} -> {after.value:.2f}: {verdict}, by {gap.value:.2f} ({gap.lower:.2f}"
        f" to {gap.upper:.2f})"
    )


def _cell(
    honest: pd.DataFrame, attack: tuple[str, str], where: tuple[str, float]
) -> Interval | None:
    keys = (
        honest["extractor"].eq(attack[0])
        & honest["classifier"].eq(attack[1])
        & honest["graph"].eq(where[0])
        & honest["epsilon"].eq(where[1])
    )
    rows = honest[keys]
    if not len(rows):
        return None
    row = rows.iloc[0]
    return Interval(
        float(row["advantage"]), float(row["advantage_lower"]), float(row["advantage_upper"])
    )


def _as_in_the_paper(own: pd.DataFrame, graph: str) -> str:
    """Accuracy, PA and NA of all attacks on one model, with privacy and without, by both splits."""
    rows = own[own["graph"] == graph]
    lines = [
        f"### {TABLES[rows['table'].iloc[0]]}, {GRAPHS[graph]}\n",
        (
            "| Extractor | Attack model | DP: accuracy | PA | NA | no DP: accuracy | PA | NA |"
            " paper's split, DP: accuracy | no DP |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    order = [
        (e, c)
        for e in EXTRACTORS
        for c in dict.fromkeys(rows[rows["extractor"] == e]["classifier"])
    ]
    for extractor, classifier in order:
        own_rows = rows[(rows["extractor"] == extractor) & (rows["classifier"] == classifier)]
        cells = [
            _percents(own_rows, split, epsilon)
            for split in (True, False)
            for epsilon in (1.0, math.inf)
        ]
        shown = [*cells[0], *cells[1], cells[2][0], cells[3][0]]
        lines.append(
            f"| {extractor} | {classifier.replace('_', ' ')} | " + " | ".join(shown) + " |"
        )
    return "\n".join(lines) + "\n"


def _percents(rows: pd.DataFrame, honest: bool, epsilon: float) -> list[str]:
    found = rows[((rows["split"] == HONEST) == honest) & (rows["epsilon"] == epsilon)]
    return [
        f"{100 * found.iloc[0][name]:.1f}" if len(found) else ""
        for name in ("accuracy", "pa", "na")
    ]


def _interval(row: Any) -> str:
    return f"{row['advantage']:.2f} ({row['advantage_lower']:.2f} to {row['advantage_upper']:.2f})"
