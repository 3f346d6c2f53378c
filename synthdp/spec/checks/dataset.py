"""Checks of the dataset: its rows, its privacy unit and its source; and of the two addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from synthdp.errors import install
from synthdp.spec.addresses import is_pattern, is_url
from synthdp.spec.load.wording import SpecMistake, nearest, stated
from synthdp.spec.model import (
    CONTROL,
    ChosenColumns,
    IdUnit,
    ParquetSource,
    ReleaseSpec,
    SqlSource,
    rules,
)
from synthdp.spec.model.fields import ADDRESS
from synthdp.spec.model.rules import engine_of, tables_only

if TYPE_CHECKING:
    from sqlglot import exp


def rows(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """A batch, a secret sample and an attack take no more rows than there are."""
    declared, synthesizer = spec.dataset.rows.value, spec.synthesizer
    if (batch := synthesizer.batch) > declared:
        message = f"got {batch}, more than the declared {declared} rows"
        hint = f"leave it out, or set it to a part of the rows, e.g. {rules.batch(declared)}"
        yield SpecMistake(("synthesizer", "batch"), message, hint)
    where = ("synthesizer", "sample")
    if synthesizer.sample is not None and synthesizer.sample < batch:
        message = f"got {synthesizer.sample}, less than the {batch} rows of an expected batch"
        hint = f"leave it out, or ask for many batches, e.g. {100 * batch}"
        yield SpecMistake(where, message, hint)
    if synthesizer.sample is not None and spec.privacy.adjacency == "replace_one":
        message = "no sound accounting for a secret sample under adjacency replace_one"
        yield SpecMistake(where, message, "leave it out, or use adjacency add_remove")
    attack, place = spec.attacks.membership, ("attacks", "membership", "rows")
    if attack.enabled and attack.rows > declared:
        message = f"{stated(spec, *place)}, more than the declared {declared} rows"
        hint = "set attacks.membership.rows lower, or enabled: false"
        yield SpecMistake(place, message, hint)


def unit(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """A unit of several rows needs the adjacency add_remove; its id is no column of the table."""
    unit = spec.dataset.privacy_unit
    if unit.max_rows > 1 and spec.privacy.adjacency == "replace_one":
        message = f"replace_one cannot be used where one unit has up to {unit.max_rows} rows"
        yield SpecMistake(("privacy", "adjacency"), message, "use add_remove")
    if isinstance(unit, IdUnit) and unit.column in spec.columns:
        message = f"column {unit.column!r} is also listed under columns; an id is never modelled or"
        hint = f"delete {unit.column!r} from columns"
        yield SpecMistake(("dataset", "privacy_unit", "column"), f"{message} released", hint)


def source(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """The source is a local file, and its delimiter can separate fields."""
    path = getattr(spec.dataset.source, "path", None)
    parquet, where = isinstance(spec.dataset.source, ParquetSource), ("dataset", "source")
    # An address that is read holds no password.
    read = parquet and is_url(path or "") and not re.search("[@?#]", path or "")
    if path is not None and (not path or CONTROL.search(path)):
        message = "a path cannot be empty or hold control characters"
        hint = "give the file's path, relative to this spec's folder"
        yield SpecMistake((*where, "path"), message, hint)
    elif path is not None and ADDRESS.match(path) and not read:
        yield SpecMistake(
            (*where, "path"),
            "an address or a home folder is not read, only a local file",
            "copy the file here and give its path; Parquet is read from s3://, gs:// and https://,"
            " too, with passwords and keys in the environment",
        )
    delimiter = getattr(spec.dataset.source, "delimiter", ",")
    if delimiter in '"\r\n':
        message = f"{delimiter!r} cannot part the fields of a CSV file"
        yield SpecMistake((*where, "delimiter"), message, 'use ",", ";", "|" or "\\t"')


def chosen(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """What is dropped or renamed in the source is no other column of it, and no column is two."""
    source = spec.dataset.source
    if not isinstance(source, ChosenColumns):
        return
    where, unit = ("dataset", "source"), spec.dataset.privacy_unit
    known = {*spec.modelled, *([unit.column] if isinstance(unit, IdUnit) else [])}
    made = list(source.rename.values())
    for i, name in enumerate(source.drop):
        if name in source.rename:
            message, hint = f"{name!r} is renamed too", "keep one of the two"
        elif name in known and name not in made:
            message = f"column {name!r} is declared, and would not be read"
            hint = "take it out of drop, or delete it under columns"
        else:
            continue
        yield SpecMistake((*where, "drop", i), message, hint)
    for old, new in source.rename.items():
        if new not in known:
            hint = nearest(new, known) or "rename to a column that is declared, or drop it"
            yield SpecMistake((*where, "rename", old), f"unknown column {new!r}", hint)
        elif made.count(new) > 1:
            message = f"two columns of the source become {new!r}"
            yield SpecMistake((*where, "rename", old), message, "drop one of them")


def missing_texts(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """A text stands for a category or for a missing value, never for both."""
    missing = getattr(spec.dataset.source, "missing_values", ())
    for i, text in enumerate(missing):
        if "\n" in text or "\r" in text:
            message = (
                "a line break cannot stand for a missing value: a row of a CSV file is one line"
            )
            yield SpecMistake(("dataset", "source", "missing_values", i), message, "delete it")
    for name, column in spec.columns.items():
        for where, text in column.texts():
            if text in missing:
                message = (
                    f"category {text!r} also stands for a missing value"
                    " (dataset.source.missing_values)"
                )
                hint = "delete the category and set missing: true, or take the text out of"
                yield SpecMistake(("columns", name, *where), message, f"{hint} missing_values")
            elif text == "missing" and column.missing:
                message = "category 'missing' cannot be told from the state of missing values"
                hint = "rename the category, or list 'missing' in dataset.source.missing_values and"
                yield SpecMistake(("columns", name, *where), message, f"{hint} delete it here")


def levels_only(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """A table that is read as levels keeps no values, and every row of it is a unit.

    Rows are read in batches, so that the rows of another unit may lie in many of them.
    """
    if not getattr(spec.dataset.source, "levels_only", False):
        return
    message = "levels_only keeps no values"
    if spec.evaluation.enabled:
        hint = "set evaluation.enabled: false, or leave out levels_only"
        yield SpecMistake(("evaluation", "enabled"), f"{message}, and judging reads them", hint)
    if spec.graph.mode in ("learn", "validate") and spec.graph.algorithm == "rcit_pc":
        hint = "use measured_pc, or leave out levels_only"
        yield SpecMistake(("graph", "algorithm"), f"{message}, and rcit_pc reads them", hint)
    if isinstance(spec.dataset.privacy_unit, IdUnit):
        batches = "levels_only reads rows in batches, and the rows of a unit may lie in many"
        hint = "leave out levels_only, or let every row be a unit"
        yield SpecMistake(("dataset", "privacy_unit"), batches, hint)
    for i, estimand in enumerate(spec.estimands):
        if not estimand.table:
            hint = "use kind: table, or leave out levels_only"
            yield SpecMistake(
                ("estimands", i, "kind"), f"{message}, and this estimand reads them", hint
            )


def addresses(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """The addresses of the ledger and of the tracking server are not empty."""
    for where, text in (
        (("privacy", "ledger"), spec.privacy.ledger),
        (("tracking", "uri"), spec.tracking.uri),
    ):
        if text is not None and (not text or CONTROL.search(text)):
            message = "an address cannot be empty or hold control characters"
            yield SpecMistake(where, message, "leave the key out for the default beside the spec")


# --- engine ---


def engine(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """The engine reads the source, and units of it as they are."""
    source, name = spec.dataset.source, engine_of(spec.dataset.source, spec.compute)
    where, path = ("compute", "engine"), getattr(source, "path", "")
    if name == "memory":
        if isinstance(source, ParquetSource) and (is_url(path) or is_pattern(path)):
            message = "memory reads a local file or folder, and the source is elsewhere"
            yield SpecMistake(where, message, "set it to arrow or dask")
        return
    kind = "sql" if name == "sql" else "parquet"
    if source.kind != kind:
        message = f"{name} counts a source of kind {kind}, and this one is of kind {source.kind}"
        yield SpecMistake(where, message, f"leave it out, or declare a source of kind {kind}")
    elif getattr(source, "levels_only", False):
        message = f"levels_only keeps levels in memory, and engine {name} keeps nothing"
        yield SpecMistake(("dataset", "source", "levels_only"), message, "leave one of them out")
    if name == "arrow" and isinstance(spec.dataset.privacy_unit, IdUnit):
        message = "arrow counts each part of the table by itself, and the rows of an id may lie in"
        hint = "set compute.engine: dask, which brings the rows of an id together, or memory"
        yield SpecMistake(("dataset", "privacy_unit"), f"{message} many", hint)


def values(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """Nothing asks an engine for values; nor one that gives counts alone for sums or rows."""
    name = engine_of(spec.dataset.source, spec.compute)
    searched = spec.graph.mode == "learn" and spec.graph.algorithm == "rcit_pc"
    if name != "memory" and searched and spec.graph.orient_share:
        message = f"engine {name} gives no values, and rcit_pc orients links by them"
        hint = "set it to 0, use measured_pc, or compute.engine: memory"
        yield SpecMistake(("graph", "orient_share"), message, hint)
    if name != "sql":
        return
    for i, estimand in enumerate(spec.estimands):
        if not estimand.table:
            message = "engine sql counts levels, and this estimand adds up values"
            hint = (
                "use kind: table; or export the rows to Parquet for engine arrow or dask, which"
                " add them up; or set compute.engine: memory"
            )
            yield SpecMistake(("estimands", i, "kind"), message, hint)
    message = "engine sql gives counts, and no rows"
    if spec.evaluation.enabled:
        hint = (
            "set it to false; or export the rows to Parquet for engine arrow or dask, which draw"
            " some; or set compute.engine: memory"
        )
        yield SpecMistake(("evaluation", "enabled"), f"{message}, and judging reads some", hint)
    sampled = spec.synthesizer.sample  # a secret sample, in place of every row
    on_all = sampled is None or sampled >= spec.dataset.rows.value
    if on_all and not tables_only(spec):
        hint = "let noisy tables be the model: graph.mode: predict, without a share for train"
        own = f"{message}, and this spec trains on all rows"
        yield SpecMistake(("compute", "engine"), own, hint)
    if spec.attacks.membership.enabled:
        hint, where = "set attacks.membership.enabled: false", ("attacks", "membership", "enabled")
        yield SpecMistake(where, f"{message}, and the attack reads them", hint)
    if spec.graph.mode in ("learn", "validate") and spec.graph.algorithm != "measured_pc":
        hint = "use measured_pc, or compute.engine: memory"
        message = f"{message}, and {spec.graph.algorithm} looks at them"
        yield SpecMistake(("graph", "algorithm"), message, hint)


# --- source query ---
#
# Checks of the query of a source of kind `sql`: it makes one row of each stored row.
#
# The guarantee is about rows of the answer: neighbours are answers that differ in one unit. It
# protects those whose rows are stored only where neighbouring stored tables have neighbouring
# answers. That holds where each row of the answer is made of one stored row alone, and each stored
# row makes at most one. A statement that breaks this in its outermost SELECT is refused. What
# breaks it in a subquery or a join may be right all the same, as where one row is made of all rows
# of an id, so a warning tells it.


DIALECTS = ("", "postgres", "sqlite", "mysql", "tsql", "oracle", "snowflake", "bigquery")
"""What the query may be written in; the first that reads it. The empty one is the parser's own."""
NAMED = "Having Limit Fetch Offset Qualify TableSample Pivot Except Intersect"
CLAUSES = {
    **{name: name.upper() for name in NAMED.split()},
    **dict.fromkeys(("Rand", "Randn", "Randstr", "Uuid"), "random values"),
    "Group": "GROUP BY",
    "MatchRecognize": "MATCH_RECOGNIZE",
    "Window": "a window function",
    "WithinGroup": "an aggregate",
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


def row_by_row(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """The outermost SELECT makes its rows one by one; nothing is said where nothing reads it."""
    found = _read(spec)
    if isinstance(found, tuple) and found[0]:
        message = f"has {_listed(found[0])}: one stored row could change many rows of the answer"
        yield SpecMistake(("dataset", "source", "query"), message, HINT)


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
        if RANDOM.fullmatch(node.name):
            return "random values"
        return "an aggregate" if AGGREGATES.fullmatch(node.name) else None
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
        plain = exp.From | exp.Join if isinstance(node, exp.Subquery) else exp.CTE
        if not isinstance(node.parent, plain | exp.SetOperation | exp.Subquery):
            return "a subquery that chooses or looks up"
    return None


def _listed(told: list[str]) -> str:
    return ", ".join(told[:-1]) + (" and " if len(told) > 1 else "") + told[-1]
