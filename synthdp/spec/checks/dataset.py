"""Checks of the dataset: its rows, its privacy unit and its source; and of the two addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from synthdp.errors import install
from synthdp.spec.addresses import is_pattern, is_url
from synthdp.spec.load.wording import SpecMistake, claims, nearest, stated
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
    declared, settings = spec.dataset.rows.value, spec.synthesizer
    batch, sample = settings.batch, settings.sample
    attack, place = spec.attacks.membership, ("attacks", "membership", "rows")
    yield from claims(
        (batch > declared, "synthesizer.batch",
         f"got {batch}, more than the declared {declared} rows",
         f"leave it out, or set it to a part of the rows, e.g. {rules.batch(declared)}"),
        (sample is not None and sample < batch, "synthesizer.sample",
         f"got {sample}, less than the {batch} rows of an expected batch",
         f"leave it out, or ask for many batches, e.g. {100 * batch}"),
        (sample is not None and spec.privacy.adjacency == "replace_one", "synthesizer.sample",
         "no sound accounting for a secret sample under adjacency replace_one",
         "leave it out, or use adjacency add_remove"),
        (attack.enabled and attack.rows > declared, place,
         f"{stated(spec, *place)}, more than the declared {declared} rows",
         "set attacks.membership.rows lower, or enabled: false"),
    )  # fmt: skip


def unit(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """A unit of several rows needs the adjacency add_remove; its id is no column of the table."""
    unit = spec.dataset.privacy_unit
    column = unit.column if isinstance(unit, IdUnit) else None
    yield from claims(
        (unit.max_rows > 1 and spec.privacy.adjacency == "replace_one", "privacy.adjacency",
         f"replace_one cannot be used where one unit has up to {unit.max_rows} rows",
         "use add_remove"),
        (column in spec.columns, "dataset.privacy_unit.column",
         f"column {column!r} is also listed under columns; an id is never modelled or released",
         f"delete {column!r} from columns"),
    )  # fmt: skip


def source(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """The source is a local file, and its delimiter can separate fields."""
    source = spec.dataset.source
    path, delimiter = getattr(source, "path", "."), getattr(source, "delimiter", ",")
    # An address that is read holds no password.
    read = isinstance(source, ParquetSource) and is_url(path) and not re.search("[@?#]", path)
    odd = not path or CONTROL.search(path)
    yield from claims(
        (odd, "dataset.source.path", "a path cannot be empty or hold control characters",
         "give the file's path, relative to this spec's folder"),
        (not odd and ADDRESS.match(path) and not read, "dataset.source.path",
         "an address or a home folder is not read, only a local file",
         "copy the file here and give its path; Parquet is read from s3://, gs:// and https://,"
         " too, with passwords and keys in the environment"),
        (delimiter in '"\r\n', "dataset.source.delimiter",
         f"{delimiter!r} cannot part the fields of a CSV file", 'use ",", ";", "|" or "\\t"'),
    )  # fmt: skip


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
    none, searched = "levels_only keeps no values", spec.graph.mode in ("learn", "validate")
    yield from claims(
        (spec.evaluation.enabled, "evaluation.enabled", f"{none}, and judging reads them",
         "set evaluation.enabled: false, or leave out levels_only"),
        (searched and spec.graph.algorithm == "rcit_pc", "graph.algorithm",
         f"{none}, and rcit_pc reads them", "use measured_pc, or leave out levels_only"),
        (isinstance(spec.dataset.privacy_unit, IdUnit), "dataset.privacy_unit",
         "levels_only reads rows in batches, and the rows of a unit may lie in many",
         "leave out levels_only, or let every row be a unit"),
        *((not estimand.table, ("estimands", i, "kind"), f"{none}, and this estimand reads them",
           "use kind: table, or leave out levels_only")
          for i, estimand in enumerate(spec.estimands)),
    )  # fmt: skip


def addresses(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """The addresses of the ledger and of the tracking server are not empty."""
    named = {"privacy.ledger": spec.privacy.ledger, "tracking.uri": spec.tracking.uri}
    yield from claims(
        *((text is not None and (not text or CONTROL.search(text)), where,
           "an address cannot be empty or hold control characters",
           "leave the key out for the default beside the spec") for where, text in named.items()),
    )  # fmt: skip


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
    name, sampled = engine_of(spec.dataset.source, spec.compute), spec.synthesizer.sample
    algorithm, searched = spec.graph.algorithm, spec.graph.mode in ("learn", "validate")
    oriented = spec.graph.mode == "learn" and algorithm == "rcit_pc" and spec.graph.orient_share
    yield from claims(
        (name != "memory" and oriented, "graph.orient_share",
         f"engine {name} gives no values, and rcit_pc orients links by them",
         "set it to 0, use measured_pc, or compute.engine: memory"),
    )  # fmt: skip
    if name != "sql":
        return
    none = "engine sql gives counts, and no rows"
    on_all = sampled is None or sampled >= spec.dataset.rows.value  # no secret sample of them
    elsewhere = "or export the rows to Parquet for engine arrow or dask, which"
    memory = "or set compute.engine: memory"
    yield from claims(
        *((not estimand.table, ("estimands", i, "kind"),
           "engine sql counts levels, and this estimand adds up values",
           f"use kind: table; {elsewhere} add them up; {memory}")
          for i, estimand in enumerate(spec.estimands)),
        (spec.evaluation.enabled, "evaluation.enabled", f"{none}, and judging reads some",
         f"set it to false; {elsewhere} draw some; {memory}"),
        (on_all and not tables_only(spec), "compute.engine",
         f"{none}, and this spec trains on all rows",
         "let noisy tables be the model: graph.mode: predict, without a share for train"),
        (spec.attacks.membership.enabled, "attacks.membership.enabled",
         f"{none}, and the attack reads them", "set attacks.membership.enabled: false"),
        (searched and algorithm != "measured_pc", "graph.algorithm",
         f"{none}, and {algorithm} looks at them",
         "use measured_pc, or compute.engine: memory"),
    )  # fmt: skip


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
    "Lock": "a lock of rows",
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
MULTIPLIERS = re.compile(
    r"(un|g)nest|(pos)?explode(_outer)?|flatten|(exploding_)?generate_(series|subscripts)"
    r"|\w*_to_(table|recordset)|jsonb?_(array_elements|each|object_keys|path_query|tree)(_text|_tz)?"
    r"|jsonb?_populate_recordset|regexp_matches|string_split|openjson|s(keys|vals)|each",
    re.IGNORECASE,
)
PLAIN = re.compile(
    r"date_part|age|[bl]trim|strftime|julianday|unixepoch|to_(date|timestamp)|printf|isnull|make_\w+"
    r"|justify_\w+|cardinality|num_(non)?nulls|quote_\w+|hashtext",
    re.IGNORECASE,
)
"""Functions by their names; most of them the parser does not know."""
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
    if isinstance(node, exp.Func):
        unknown = isinstance(node, exp.Anonymous)
        if MULTIPLIERS.fullmatch(node.name if unknown else node.sql_name()):
            return "a function that makes several rows of one"
        if unknown and not (_breaks(node) or PLAIN.fullmatch(node.name)):
            return f"the function {node.name}, which is not known here"
    if isinstance(node, exp.With) and node.args.get("recursive"):
        return "WITH RECURSIVE"
    if isinstance(node, exp.Query) and id(node) not in outer:
        plain = exp.From | exp.Join if isinstance(node, exp.Subquery) else exp.CTE
        if not isinstance(node.parent, plain | exp.SetOperation | exp.Subquery):
            return "a subquery that chooses or looks up"
    return None


def _listed(told: list[str]) -> str:
    return ", ".join(told[:-1]) + (" and " if len(told) > 1 else "") + told[-1]
