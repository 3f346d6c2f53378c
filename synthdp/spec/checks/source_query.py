"""Checks of the query of a source of kind `sql`: it makes one row of each stored row.

The guarantee is about rows of the answer: neighbours are answers that differ in one unit. It
protects those whose rows are stored only where neighbouring stored tables have neighbouring
answers. That holds where each row of the answer is made of one stored row alone, and each stored
row makes at most one. A statement that breaks this in its outermost SELECT is refused. What breaks
it in a subquery or a join may be right all the same, as where one row is made of all rows of an id,
so a warning tells it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from synthdp.errors import install
from synthdp.spec.checks.problem import CrossProblem
from synthdp.spec.model import ReleaseSpec, SqlSource

if TYPE_CHECKING:
    from sqlglot import exp

DIALECTS = ("", "postgres", "sqlite", "mysql", "tsql", "oracle", "snowflake", "bigquery")
"""What the query may be written in; the first that reads it. The empty one is the parser's own."""
CLAUSES = {
    "Group": "GROUP BY",
    "Having": "HAVING",
    "Limit": "LIMIT",
    "Fetch": "FETCH",
    "Offset": "OFFSET",
    "Qualify": "QUALIFY",
    "TableSample": "TABLESAMPLE",
    "Pivot": "PIVOT",
    "MatchRecognize": "MATCH_RECOGNIZE",
    "Except": "EXCEPT",
    "Intersect": "INTERSECT",
    "Window": "a window function",
    "WithinGroup": "an aggregate",
    "Rand": "random values",
    "Randn": "random values",
    "Randstr": "random values",
    "Uuid": "random values",
    "Pseudocolumn": "ROWNUM",
}
"""What joins stored rows, or chooses among them, by the parser's name of it."""
AGGREGATES = re.compile(
    r"\w*_agg|xmlagg|listagg|group_concat|every|total|mode|median|any_value|bit_(and|or|xor)"
    r"|(regr|stats|approx|percentile)_\w+",
    re.IGNORECASE,
)
RANDOM = re.compile(
    r"rand\w*|newid|newsequentialid|gen_random_\w+|dbms_random\.\w+|nextval|setseed|\w*uuid\w*",
    re.IGNORECASE,
)
"""Functions that the parser does not know, by their names."""
HINT = (
    "write a SELECT that makes one row of each stored row; where this statement is right, since its"
    " rows are those of the privacy unit, make it a view in the database, whose rows are then the"
    " stored ones, and select from the view"
)


def row_by_row(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """The outermost SELECT makes its rows one by one; nothing is said where nothing reads it."""
    found = _read(spec)
    if isinstance(found, tuple) and found[0]:
        message = f"has {_listed(found[0])}: one stored row could change many rows of the answer"
        yield CrossProblem(("dataset", "source", "query"), message, HINT)


def query_warnings(spec: ReleaseSpec) -> Iterator[str]:
    """What may break the guarantee in a query that is not refused, or that nobody checked."""
    found = _read(spec)
    if isinstance(found, tuple) and found[1]:
        yield (
            f"dataset.source.query has {_listed(found[1])}; the guarantee holds for the privacy"
            " unit only if a stored row cannot change other rows of the answer, or make several of"
            " one"
        )
    elif isinstance(found, str):
        yield (
            f"dataset.source.query was not checked ({found}): it must make one row of each stored"
            " row, without GROUP BY, DISTINCT, LIMIT, aggregates, window functions or random values"
        )


def _read(spec: ReleaseSpec) -> tuple[list[str], list[str]] | str | None:
    """What is refused in the query and what is warned of, or why it was not checked."""
    source = spec.dataset.source
    if not isinstance(source, SqlSource):
        return None
    try:
        import sqlglot
    except ImportError:
        return f"sqlglot is not installed: {install('dist')}"
    text = source.query.replace("\\:", ":")  # SQLAlchemy's way to write a colon
    if not re.match(r"(\s|\(|--[^\n]*\n|/\*.*?\*/)*(select|with)\b", text, re.IGNORECASE | re.S):
        return "it does not begin with SELECT or WITH"
    for dialect in DIALECTS:
        try:
            statements = [s for s in sqlglot.parse(text, read=dialect) if s is not None]
        except Exception:  # whatever a parser makes of a text that it does not understand
            continue
        if len(statements) == 1 and isinstance(statements[0], sqlglot.exp.Query):
            return _found(statements[0])
    return "its SQL cannot be read"


def _found(statement: exp.Expr) -> tuple[list[str], list[str]]:
    """What breaks row by row, in the outermost SELECT and in all others."""
    from sqlglot import exp

    outer = _outermost(statement)
    refused, warned = dict[str, None](), dict[str, None]()
    for node in statement.walk():
        inside = node if id(node) in outer else node.find_ancestor(exp.Query)
        own = id(inside) in outer
        if told := _breaks(node):
            (refused if own else warned)[told if own else f"{told} in a subquery"] = None
        elif told := _may_break(node, outer):
            warned[told] = None
    return list(refused), list(warned)


def _outermost(statement: exp.Expr) -> set[int]:
    """The statement, what it wraps in parentheses, and the arms of a UNION, by identity."""
    from sqlglot import exp

    found, left = set[int](), [statement]
    while left:
        node = left.pop()
        found.add(id(node))
        if isinstance(node, exp.Subquery):
            left.append(node.this)
        elif isinstance(node, exp.SetOperation):
            left += [node.this, node.expression]
    return found


def _breaks(node: exp.Expr) -> str | None:
    """What in a node makes a row of several, or leaves a row out because of others."""
    from sqlglot import exp

    kind = type(node).__name__
    if kind == "Union":
        return "UNION" if node.args.get("distinct") else None
    if kind == "Distinct":
        return "DISTINCT" if isinstance(node.parent, exp.Select) else None
    if kind in ("Max", "Min") and node.args.get("expressions"):  # SQLite's, of several columns
        return None
    if isinstance(node, exp.Column) and node.name.casefold() == "rownum":
        return "ROWNUM"
    if isinstance(node, exp.Anonymous):
        name = node.name
        return (
            "random values"
            if RANDOM.fullmatch(name)
            else "an aggregate"
            if AGGREGATES.fullmatch(name)
            else None
        )
    if isinstance(node, exp.AggFunc):
        return None if isinstance(node.parent, exp.Window) else "an aggregate"
    return CLAUSES.get(kind)


def _may_break(node: Any, outer: set[int]) -> str | None:
    """What in a node may make several rows of one, or have other rows decide on one."""
    from sqlglot import exp

    if isinstance(node, exp.Join | exp.Lateral):
        return "a join"
    if isinstance(node, exp.Union):
        return "UNION ALL"
    if isinstance(node, exp.Unnest | exp.Explode | exp.GenerateSeries):
        return "a function that makes several rows of one"
    if isinstance(node, exp.With) and node.args.get("recursive"):
        return "WITH RECURSIVE"
    if isinstance(node, exp.Query) and id(node) not in outer:
        wraps = isinstance(node, exp.Subquery)
        holder = node.parent
        if not wraps and not isinstance(holder, exp.Subquery | exp.CTE | exp.SetOperation):
            return "a subquery that chooses or looks up"
        if wraps and not isinstance(holder, exp.From | exp.Join | exp.SetOperation | exp.Subquery):
            return "a subquery that chooses or looks up"
    return None


def _listed(told: list[str]) -> str:
    return ", ".join(told[:-1]) + (" and " if len(told) > 1 else "") + told[-1]
