"""Columns set or observed on the command line, and what a graph says of that.

COLUMN=VALUE is a level of the domain; another condition is one of the grammar of constraints.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pandas as pd

from synthdp.data.domain import MISSING_LABEL, ColumnDomain, Domain
from synthdp.data.encoding import encode_column, operand_values, to_numbers
from synthdp.data.kinds import column_kind
from synthdp.data.kinds.kind import some
from synthdp.data.kinds.ranges import level_of
from synthdp.errors import OutputError, SpecError, SpecProblem
from synthdp.graph.causal import NO_CAUSES, CausalGraph, GraphEdge
from synthdp.graph.pag import causes, unsettled
from synthdp.spec.expressions.expressions import calculated, constants_of, parse
from synthdp.spec.expressions.parsed import Expression, SourceText, setting_of
from synthdp.spec.load.wording import many, nearest, same_but_for_case
from synthdp.spec.model import Column


@dataclass(frozen=True)
class Setting:
    """A level of a column, and the value within it that was asked for; None where the level
    determines it (a category, missing).
    """

    level: int
    value: int | float | np.datetime64 | None = None


def conditions_of(
    given: Sequence[str], columns: Mapping[str, Column], domain: Domain
) -> tuple[tuple[str, ...], tuple[Expression, ...]]:
    """What `--given` holds: texts of the form COLUMN=VALUE, and conditions that were read.

    Raises:
        SpecError: a text is neither; every mistake is listed.

    >>> from synthdp.spec.model import Categorical
    >>> columns = {"sex": Categorical(type="categorical", categories=("female", "male"))}
    >>> given, domain = ["sex=male", "sex != 'male'"], Domain.from_spec(columns)
    >>> settings, conditions = conditions_of(given, columns, domain)
    >>> settings, [condition.text for condition in conditions]
    (('sex=male',), ["sex != 'male'"])
    """
    settings: list[str] = []
    conditions: list[Expression] = []
    problems: list[SpecProblem] = []
    for text in given:
        name, value = setting_of(text, domain.names) or (text, None)
        known = domain[name] if name in domain.names else None
        if known and value is not None and (value[:1] != "=" or _setting(known, value)):
            settings.append(text)
            continue
        condition, mistakes = parse(text, columns)
        if condition is not None:
            conditions.append(condition)
        elif value is not None and value[:1] != "=" and not set("<>!") & set(name):
            settings.append(text)  # an unknown column, which is told below
        else:
            problems += [SpecProblem("--given", 1, m.at, text, m.message, m.hint) for m in mistakes]
    if problems:
        raise SpecError(problems)
    return tuple(settings), tuple(conditions)


def settings_of(
    do: Sequence[str], given: Sequence[str], domain: Domain
) -> tuple[dict[str, Setting], dict[str, Setting]]:
    """Settings by column, of `--do` and of `--given`.

    Raises:
        SpecError: unknown columns, values outside the domain, columns that are set twice; every
            mistake is listed.

    >>> from synthdp.spec.model import Categorical
    >>> sex = Categorical(type="categorical", categories=("female", "male"))
    >>> settings_of([], ["sex=male"], Domain.from_spec({"sex": sex}))
    ({}, {'sex': Setting(level=1, value=None)})
    """
    found: dict[str, dict[str, Setting]] = {"--do": {}, "--given": {}}
    problems: list[SpecProblem] = []
    for option, text in [("--do", t) for t in do] + [("--given", t) for t in given]:
        wrong = partial(SpecProblem, option, 1, 1, text)
        parted = setting_of(text, domain.names)
        name, value = parted or (text, "")
        setting = _setting(domain[name], value) if parted and name in domain.names else None
        if parted is None:
            problems.append(wrong("needs the form COLUMN=VALUE"))
        elif name not in domain.names:
            hint = nearest(name, domain.names) or f"columns are {_some(domain.names)}"
            problems.append(wrong(f"unknown column {name!r}", hint))
        elif any(name in settings for settings in found.values()):
            hint = "do and given take a column once"
            problems.append(wrong(f"column {name!r} is set more than once", hint))
        elif setting is None:
            hint = f"it holds {allowed(domain[name])}"
            problems.append(wrong(f"{value!r} is outside the domain of {name!r}", hint))
        else:
            found[option][name] = setting
    if problems:
        raise SpecError(problems)
    return found["--do"], found["--given"]


def _setting(column: ColumnDomain, text: str) -> Setting | None:
    """What a text sets a column to; None where it is outside the domain."""
    if text == MISSING_LABEL and column.missing_level is not None:
        return Setting(column.missing_level)
    values = pd.Series([text], dtype="str")
    encoded = encode_column(column, values)
    if encoded.misfits or not column.ranged:
        return None if encoded.misfits else Setting(int(encoded.codes[0]))
    number = float(to_numbers(column, values)[0])
    if column.continuous and number not in column.spikes:
        number = min(max(round(number, column.decimals), column.lower), column.upper)
    level = int(level_of(column, np.asarray([number]))[0])
    return Setting(level, column_kind(column).scalar(column, number))


def allowed(column: ColumnDomain) -> str:
    """What a column may hold, in words."""
    if not column.ranged:
        return _some(column.labels)
    bounds = f"{column.lower:.15g} to {column.upper:.15g}"
    if column.step_seconds is not None:
        first, last = (column_kind(column).scalar(column, n) for n in (column.lower, column.upper))
        bounds = f"{first} to {last}"
    return bounds + (", and missing" if column.missing else "")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:40]) + (", ..." if len(names) > 40 else "")


# --- contradictions ---


def check_possible(
    conditions: Sequence[Expression], settings: Mapping[str, Setting], domain: Domain
) -> None:
    """Check that some row of the domain that has the settings fulfils all conditions.

    Of conditions that compare columns with constants it is decided exactly. What such a condition
    says of a column changes only at its constants. So of a number those values are tried that lie
    at, next below or next above one, and the ends of the domain; of a category, each. Conditions
    that calculate, or compare two columns, or read what is derived, are left to the rows that are
    drawn.

    Raises:
        SpecError: none does.
    """
    own = (c for c in conditions if c.columns and set(c.columns) <= set(domain.names))
    trees = [(c, SourceText(c.text).parsed()) for c in own]
    told = [(c, tree) for c, tree in trees if not any(calculated(tree))]
    if not told:
        return
    names = sorted({name for c, _ in told for name in c.columns})
    constants = sorted({number for _, tree in told for number in constants_of(tree)})
    values = [_tried(domain[name], constants, settings.get(name)) for name in names]
    if math.prod(map(len, values)) > 1_000_000:  # left to the rows
        return
    grid = dict(zip(names, map(np.ravel, np.meshgrid(*values, indexing="ij")), strict=True))
    with np.errstate(all="ignore"):
        held = [np.broadcast_to(c.truth(grid)[0], grid[names[0]].shape) for c, _ in told]
    if np.logical_and.reduce(held).any():
        return
    alone = [c.text for (c, _), rows in zip(told, held, strict=True) if not rows.any()]
    holds = "; ".join(f"{name} holds {_holds(domain[name], settings.get(name))}" for name in names)
    wrong = alone or [" and ".join(c.text for c, _ in told)]
    message = "no row of the declared domain is so"
    raise SpecError([SpecProblem("--given", 1, 1, text, message, holds) for text in wrong])


def _tried(
    column: ColumnDomain, constants: Sequence[float], setting: Setting | None
) -> npt.NDArray[np.float64]:
    """Values of a column as conditions read them, of which one stands for any other."""
    if setting is not None:
        if setting.level == column.missing_level:
            return np.array([np.nan])
        return operand_values(column, np.array([setting.level]), pd.Series([setting.value]))
    missing = [] if column.missing_level is None else [np.nan]
    if not column.ranged:
        labels = column.levels - len(missing)
        return np.array([*map(float, range(labels)), *missing])
    digits = column.decimals if column.continuous else 0
    step = 10.0**-digits
    places = [constant / column.unit / step for constant in constants]
    near = {k * step for p in places for k in range(math.floor(p) - 1, math.ceil(p) + 2)}
    inside = {column.lower, column.upper, *column.spikes} | {round(n, digits) for n in near}
    kept = sorted(n for n in inside if column.lower <= n <= column.upper)
    return np.array([*(n * column.unit for n in kept), *missing])


def _holds(column: ColumnDomain, setting: Setting | None) -> str:
    if setting is None:
        return allowed(column)
    return str(setting.value) if setting.value is not None else column.labels[setting.level]


# --- columns held ---

FOLDING = ("sqlite", "mysql", "mariadb", "mssql", "bigquery", "duckdb", "databricks", "redshift")
"""Databases, as SQLAlchemy calls them, whose columns have names without upper and lower case."""
LIMITS = {
    "sqlite": (10_000, 2000),
    "postgresql": (63, 1600),
    "redshift": (127, 1_000_000),
    "mysql": (64, 1017),
    "mariadb": (64, 1017),
    "mssql": (128, 1024),
    "oracle": (128, 1000),
}
"""Of a database: bytes of the longest name, and columns of the widest table."""


def check_columns_held(dialect: str, names: Sequence[str]) -> None:
    """Check, before any work is done, that a database of this kind can have columns of these names.

    Raises:
        OutputError: it cannot.
    """
    why = None
    twins = same_but_for_case(names) if dialect in FOLDING else None
    longest, most = LIMITS.get(dialect, (10_000, 1_000_000))
    long = [name for name in names if len(name.encode()) > longest]
    if twins:
        why = f"columns {twins[0]!r} and {twins[1]!r} differ in upper and lower case alone"
    elif long:
        why = f"the name of column {long[0]!r} has more than {longest} bytes"
    elif len(names) > most:
        why = f"the bundle has {many(len(names), 'column')}, and a table has {most:,}"
    if why:
        hint = (
            "release with other names (dataset.source.rename), or fewer columns; or read the"
            " bundle's synthetic.parquet, which holds all of them"
        )
        raise OutputError(f"{why}, which {dialect} cannot hold; nothing was written", hint=hint)


# --- interventions ---

UNSEEN_HINT = (
    "draw the arrows that are known to be without an unseen common cause, and release again with"
    " graph.mode given or validate; --given conditions without a claim of causes"
)


def check_interventions(graph: CausalGraph, columns: Sequence[str]) -> None:
    """Refuse an intervention on `columns` that rests on links that claim no cause.

    A learned graph may have predictive arrows, too, where the search had no answer on a pair that
    its tables show to be dependent, and any graph may have links of unknown direction. Where tables
    show no dependence, the pair is drawn as independent, and a warning says so. A graph that allows
    for unseen causes has marks (`graph.pag`), which must settle the effects of the intervention.

    Raises:
        OutputError: it does.
    """
    if not columns:
        return
    if graph.predictive:
        hint = "condition with --given instead, or draw a causal graph and release with graph.mode"
        raise OutputError(NO_CAUSES, hint=f"{hint} given or validate")
    links = [e for e in graph.unanswered(columns) if e.structural]
    if loose := [e for e in links if not e.directed]:
        raise OutputError(
            f"nothing shows which is the cause of {_named(loose)}; an intervention on"
            f" {', '.join(columns)} rests on that",
            hint="`synthdp effect` tells the effects in both directions; or say what is known of"
            " these pairs in graph.edges, graph.tiers or graph.forbidden, and release again;"
            " --given conditions without a claim of causes",
        )
    if links:
        raise OutputError(
            f"the search left open whether one causes the other: {_named(links)}; an intervention"
            f" on {', '.join(columns)} rests on that",
            hint="say what is known of these pairs in graph.edges or graph.forbidden, or give the"
            " search more budget or rows, and release again; --given conditions without a claim of"
            " causes",
        )
    if graph.pag is None:
        return
    for column in columns:
        if unclear := unsettled(graph.pag, column):
            named = some([*map(str, unclear)], ", ", 5)
            message = (
                f"an unseen common cause may explain what {column} has in common with others:"
                f" {named} (graph.unseen_causes); the search does not say what an intervention on"
                f" {column} does"
            )
            raise OutputError(message, hint=UNSEEN_HINT)
        if causes(graph.pag, column) != {*graph.parents(column)}:
            message = (
                f"the model draws {column} by other columns than its causes, where unseen causes"
                " are allowed for (graph.unseen_causes): its rows do not show what an intervention"
                " does"
            )
            raise OutputError(message, hint=UNSEEN_HINT)


def intervention_warning(graph: CausalGraph, columns: Sequence[str]) -> str | None:
    """What to know of rows under an intervention on `columns`; None if there is nothing.

    Nothing is said of one that is refused.

    >>> link = GraphEdge("dose", "pain", directed=False, provenance="undecided")
    >>> print(intervention_warning(CausalGraph(("dose", "pain"), (link,)), ["dose"]))
    the search had no answer on dose and pain: drawn as independent, which is no finding
    """
    links = graph.unanswered(columns)
    if not links or any(e.structural for e in links):
        return None
    return f"the search had no answer on {_named(links)}: drawn as independent, which is no finding"


def _named(links: Sequence[GraphEdge]) -> str:
    """Pairs of columns in words, the first few."""
    named = some([f"{e.cause} and {e.effect}" for e in links], ", ", 5)
    return f"{named} pairs" if len(links) > 5 else named
