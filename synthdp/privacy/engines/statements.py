"""Statements that count levels in a database: `steps` as CASE, tables as GROUP BY, the bound of a
unit's rows as a window.

Values of the domain are bound as parameters, and `Reading.names` are names of our own, so that
neither is part of a statement. What a statement gives back are numbers of rows, and where a sample
is drawn, its levels; of linked tables levels and dates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from synthdp.data.column_domain import ColumnDomain, category_text
from synthdp.data.domain import Domain
from synthdp.data.encoding import EncodedColumn, encode_column
from synthdp.data.kinds import column_kind
from synthdp.data.level_groups import LevelGroups
from synthdp.errors import DataError
from synthdp.privacy.engines import COIN_BITS, Reading, limit
from synthdp.privacy.table import Columns
from synthdp.spec.model import RESOLUTION_SECONDS

REALS = {"real": "FLOAT8", "decimal": "NUMERIC"}  # ranges have no decimal ones (`on_sql._nearest`)
SOURCE, LEVEL, UNIT, NUMBER = "synthdp_source", "synthdp_l", "synthdp_u", "synthdp_n"
NAN = "{} = CAST('NaN' AS {})"  # whether a number is none, whatever its bits
WHOLE = "^[+-]?[0-9]+([.]0*)?$"  # a plain whole number
# What Python's `strip` takes from both ends of a text.
SPACES = "".join(map(chr, (*range(9, 14), *range(28, 33), 0x85, 0xA0, 0x1680))) + "".join(
    map(chr, (*range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000))
)


@dataclass(frozen=True)
class Dialect:
    """How a database writes what others write otherwise."""

    digest: str  # sha256 of a text, as hexadecimal digits; the text stands for {}
    collate: str = ""  # after a text that is compared: by its bytes
    sets: int = 16  # tables of one GROUP BY
    fresh: str | None = None  # a key that the database draws once a statement, and no log has


POSTGRESQL = Dialect(
    "encode(sha256(convert_to({}, 'UTF8')), 'hex')",
    ' COLLATE "C"',
    fresh="(SELECT CAST(gen_random_uuid() AS TEXT))",
)


@dataclass
class Statement:
    """A statement in the making: its dialect, and the values that are bound to it."""

    dialect: Dialect
    values: dict[str, Any] = field(default_factory=dict)

    def bound(self, value: Any, kind: str) -> str:
        """A parameter of a type of SQL."""
        name = f"synthdp_{len(self.values)}"
        self.values[name] = value
        return f"CAST(:{name} AS {kind})"

    # --- one value ---

    def level(self, cell: str, column: ColumnDomain, kind: Kind, group: Sequence[int]) -> str:
        """The group of the level of a cell, a whole number."""
        found = levels_of(column, kind)
        value = self._comparable(cell, column, kind)
        if found.prefix is not None:
            value = f"substr({value}, 1, {found.prefix})"
        sought = (
            self._steps(value, kind, found, group)
            if column.ranged
            else self._keys(value, kind, found.keys, group[found.other], group)
        )
        branches = f"WHEN {self._absent(cell, value, column, kind)} THEN {group[found.null]}"
        for code, level in found.whole:
            text = f"CAST({cell} AS TEXT){self.dialect.collate}"
            branches += f" WHEN {text} = {self.bound(code, 'TEXT')} THEN {group[level]}"
        return f"CASE {branches} ELSE {sought} END"

    def misfits(self, cell: str, column: ColumnDomain, kind: Kind) -> list[str]:
        """Conditions: of a wrong type, outside the domain, unexpectedly missing."""
        found, value = levels_of(column, kind), self._comparable(cell, column, kind)
        gone = self._absent(cell, value, column, kind)
        for code, _ in found.whole:
            text = f"CAST({cell} AS TEXT){self.dialect.collate}"
            gone = f"({gone} OR {text} = {self.bound(code, 'TEXT')})"
        wrong = "1 = 0"
        if not column.ranged:
            cut = value if found.prefix is None else f"substr({value}, 1, {found.prefix})"
            known = self._keys(cut, kind, tuple((k, 1) for k, _ in found.keys), 0, (0, 1))
            outside = f"NOT {gone} AND {known} = 0"
        else:
            for code in found.gone:
                low, high = (self._literal(end, kind) for end in code)
                gone = f"({gone} OR ({value} >= {low} AND {value} < {high}))"
            if column.type == "integer" and kind in REALS:
                wrong = f"NOT {gone} AND {value} <> floor({value})"
            low, high = (self._literal(end, kind) for end in outside_of(column, kind))
            outside = f"NOT {gone} AND NOT ({wrong}) AND ({value} < {low} OR {value} >= {high})"
        return [wrong, outside, "1 = 0" if column.missing else gone]

    def number(self, cell: str, column: ColumnDomain, kind: Kind) -> str:
        """The number of a cell of a range, within its bounds; null where there is none.

        [Derived here: a value lies on that side of a bound on which Python has it (`levels_of`).
        Between them an instant is cut to whole seconds, which rounds down before 1970 too, and
        seconds s below 2^53 over a step r of a day at most have the floor of the true quotient,
        since what is no whole number is further than 1 / r from the next one.]
        """
        value = self._comparable(cell, column, kind)
        low, high = (self._literal(end, kind) for end in outside_of(column, kind))
        lower, upper = (self.bound(end, "FLOAT8") for end in (column.lower, column.upper))
        inside = value
        if column.step_seconds is not None:
            cut = f"EXTRACT(EPOCH FROM date_trunc('second', CAST({cell} AS TIMESTAMP)))"
            inside = f"floor(CAST({cut} AS FLOAT8) / {column.step_seconds})"
        return (
            f"CASE WHEN {self._absent(cell, value, column, kind)} THEN NULL"
            f" WHEN {value} < {low} THEN {lower} WHEN {value} >= {high} THEN {upper}"
            f" ELSE {inside} END"
        )

    def unit(self, cell: str, kind: Kind) -> str:
        """`column_domain.id_text` of an id, empty where there is none."""
        if kind == "whole":
            return f"COALESCE(CAST({cell} AS TEXT), '')"
        text = f"btrim(CAST({cell} AS TEXT), {self.bound(SPACES, 'TEXT')})"
        digits = f"COALESCE(NULLIF(ltrim(ltrim(split_part({text}, '.', 1), '+-'), '0'), ''), '0')"
        sign = f"CASE WHEN {text} LIKE '-%' AND {digits} <> '0' THEN '-' ELSE '' END"
        return f"COALESCE(CASE WHEN {text} ~ '{WHOLE}' THEN {sign} || {digits} ELSE {text} END, '')"

    def _absent(self, cell: str, value: str, column: ColumnDomain, kind: Kind) -> str:
        nan = f" OR {NAN.format(value, REALS[kind])}" if kind in REALS else ""
        return f"({cell} IS NULL{nan})"

    def _comparable(self, cell: str, column: ColumnDomain, kind: Kind) -> str:
        if kind == "text":
            return f"CAST({cell} AS TEXT){self.dialect.collate}"
        if kind == "truth" and column.ranged:
            return f"CAST(CASE WHEN {cell} THEN 1 ELSE 0 END AS FLOAT8)"
        if kind in REALS or (column.ranged and kind == "whole"):
            return f"CAST({cell} AS {REALS.get(kind, 'FLOAT8')})"
        return cell

    def _literal(self, value: Any, kind: Kind) -> str:
        sql = {"text": "TEXT", "truth": "BOOLEAN", "whole": "BIGINT", "day": "DATE"}
        sql |= {"instant": "TIMESTAMP", "decimal": "NUMERIC"}
        return self.bound(value, "FLOAT8" if isinstance(value, float) else sql[kind])

    def _keys(
        self, value: str, kind: Kind, keys: Sequence[tuple[Any, int]], other: int, group: Any
    ) -> str:
        if not keys:
            return str(other)
        # 4: branches of one CASE; a search of more halves them first
        if len(keys) <= 4 or kind == "truth":
            branches = " ".join(
                f"WHEN {value} = {self._literal(k, kind)} THEN {group[level]}" for k, level in keys
            )
            return f"CASE {branches} ELSE {other} END"
        half = len(keys) // 2
        below, above = (
            self._keys(value, kind, part, other, group) for part in (keys[:half], keys[half:])
        )
        middle = self._literal(keys[half][0], kind)
        return f"CASE WHEN {value} < {middle} THEN {below} ELSE {above} END"

    def _steps(self, value: str, kind: Kind, found: Levels, group: Sequence[int]) -> str:
        steps, last = list[tuple[Any, int]](), group[found.other]
        for at, level in found.steps:
            if group[level] != last:
                last = group[level]
                steps.append((at, last))
        return self._search(value, kind, steps, group[found.other])

    def _search(self, value: str, kind: Kind, steps: Sequence[tuple[Any, int]], first: int) -> str:
        if not steps:
            return str(first)
        half = len(steps) // 2
        at, level = steps[half]
        below = self._search(value, kind, steps[:half], first)
        above = self._search(value, kind, steps[half + 1 :], level)
        return f"CASE WHEN {value} < {self._literal(at, kind)} THEN {below} ELSE {above} END"

    # --- a table ---

    def survey(self, reading: Reading, kinds: Mapping[str, Kind]) -> str:
        """The numbers of `engines.Survey`, in one row."""
        told = ["count(*)", "0"]
        if reading.id_column is not None:
            unit = self.unit(reading.names[reading.id_column], kinds[reading.id_column])
            told[1] = f"sum(CASE WHEN {unit} = '' THEN 1 ELSE 0 END)"
        for column in reading.domain.columns:
            cell = reading.names[column.name]
            for condition in self.misfits(cell, column, kinds[column.name]):
                told.append(f"sum(CASE WHEN {condition} THEN 1 ELSE 0 END)")
        return f"SELECT {', '.join(told)} FROM {SOURCE}"

    def levels(self, reading: Reading, kinds: Mapping[str, Kind], *, apart: bool = False) -> str:
        """The rows that stay and are not held out, as levels `LEVEL`0, `LEVEL`1 ...: a SELECT.

        With ids there is the unit `UNIT` too; and with ids, or where rows are told `apart`, `j`,
        the number of a row among its equals.
        """
        own = self._own_levels(reading, kinds)
        listed = ", ".join(f"{LEVEL}{i}" for i in range(len(own)))
        if reading.id_column is None:
            found = f"SELECT {', '.join(own)} FROM {SOURCE}"
            if not apart:
                return found
            return (
                f"SELECT *, '' AS {UNIT}, row_number() OVER (PARTITION BY {listed}) AS j"
                f" FROM ({found}) AS s0"
            )
        unit = self.unit(reading.names[reading.id_column], kinds[reading.id_column])
        numbered = (
            f"SELECT *, row_number() OVER (PARTITION BY {UNIT}, {listed}) AS j,"
            f" count(*) OVER (PARTITION BY {UNIT}) AS m"
            f" FROM (SELECT {unit} AS {UNIT}, {', '.join(own)} FROM {SOURCE}) AS s0"
        )
        place = self.place(self.bound(reading.key, "TEXT"), len(own))
        crowded = f"CASE WHEN m > {reading.max_rows} THEN {place} ELSE '' END"
        ranked = (
            "SELECT *, row_number() OVER"
            f" (PARTITION BY {UNIT} ORDER BY {crowded}{self.dialect.collate}) AS r"
            f" FROM ({numbered}) AS s1"
        )
        stay = f"r <= {reading.max_rows}"
        if reading.holdout:
            stay += f" AND NOT {self.tossed(self.bound(reading.coins, 'TEXT'), reading.holdout)}"
        return f"SELECT {UNIT}, j, {listed} FROM ({ranked}) AS s2 WHERE {stay}"

    def _own_levels(self, reading: Reading, kinds: Mapping[str, Kind]) -> list[str]:
        levels = (
            self.level(reading.names[c.name], c, kinds[c.name], range(c.levels))
            for c in reading.domain.columns
        )
        return [f"{level} AS {LEVEL}{i}" for i, level in enumerate(levels)]

    def in_order(
        self,
        reading: Reading,
        kinds: Mapping[str, Kind],
        dates: Sequence[ColumnDomain],
        most: int | None,
    ) -> str:
        """The unit, the numbers of `dates` and the levels of each row that has a unit: a SELECT.

        With `most` of each unit the first so many by the first date, and none without it; those of
        one date by their levels. [Derived here: a row's rank follows from the rows of its own unit,
        and not from where they are stored: rows that are equal in all of it are equal in the
        answer, so that it does not matter which of them comes first.]
        """
        numbers = [self.number(reading.names[c.name], c, kinds[c.name]) for c in dates]
        own = [f"{number} AS {NUMBER}{i}" for i, number in enumerate(numbers)]
        own += self._own_levels(reading, kinds)
        listed = [f"{NUMBER}{i}" for i in range(len(dates))]
        listed += [f"{LEVEL}{i}" for i in range(len(reading.domain))]
        assert reading.id_column is not None
        unit = self.unit(reading.names[reading.id_column], kinds[reading.id_column])
        found = f"(SELECT {unit} AS {UNIT}, {', '.join(own)} FROM {SOURCE}) AS s0"
        stay = f"{UNIT} <> ''"
        if most is not None:
            place = f"PARTITION BY {UNIT}{self.dialect.collate} ORDER BY {', '.join(listed)}"
            ranked = f"SELECT *, row_number() OVER ({place}) AS r FROM {found}"
            found = f"({ranked} WHERE {stay} AND {NUMBER}0 IS NOT NULL) AS s1"
            stay = f"r <= {most}"
        return f"SELECT {', '.join([UNIT, *listed])} FROM {found} WHERE {stay}"

    def tossed(self, key: str, rate: float) -> str:
        """Whether the coin of a unit is below a rate (`engines.coin`); `key` is an expression."""
        place = self.dialect.digest.format(f"{key} || '|' || {UNIT}")
        return self._below(place, rate)

    def _below(self, place: str, rate: float) -> str:
        digits = f"substr({place}, 1, {COIN_BITS // 4}){self.dialect.collate}"
        return f"({digits} < {self.bound(limit(rate), 'TEXT')})"

    def place(self, key: str, columns: int) -> str:
        """`engines.place` of a row."""
        levels = " || ',' || ".join(f"CAST({LEVEL}{i} AS TEXT)" for i in range(columns))
        text = f"{key} || '|' || CAST(j AS TEXT) || '|' || {levels} || '|' || {UNIT}"
        return self.dialect.digest.format(text)

    def counted(
        self,
        reading: Reading,
        kinds: Mapping[str, Kind],
        groups: LevelGroups,
        tables: Sequence[Columns],
    ) -> str:
        """For each table, and each of its cells that has rows: the cell's number and its rows.

        A result has a number in the column of one table, and null in those of others.
        """
        domain = reading.domain
        cells = [self._cell(domain.index, groups, columns) for columns in tables]
        made = ", ".join(f"{cell} AS c{i}" for i, cell in enumerate(cells))
        names = [f"c{i}" for i in range(len(tables))]
        several = f"GROUPING SETS ({', '.join(f'({n})' for n in names)})"
        found = self.levels(reading, kinds)
        return (
            f"SELECT {', '.join(names)}, count(*) FROM (SELECT {made} FROM ({found}) AS t0) AS t1"
            f" GROUP BY {names[0] if len(names) == 1 else several}"
        )

    def _cell(self, index: Any, groups: LevelGroups, columns: Columns) -> str:
        cell = "0"
        for name in columns:
            level, size = f"{LEVEL}{index(name)}", groups.coarse[name].levels
            if name in groups.starts:
                starts = [(start, i) for i, start in enumerate(groups.starts[name])]
                level = self._search(level, "whole", starts[1:], 0)
            cell = f"({cell} * {size} + {level})"
        return f"CAST({cell} AS BIGINT)"

    def sampled(self, reading: Reading, kinds: Mapping[str, Kind], *, rate: float, key: str) -> str:
        """Levels of the rows of the units whose coin is below the rate.

        Who knows the key of the coins knows who is in the sample, and logs have what is bound. So
        PostgreSQL draws the key itself: a subquery that asks nothing of a row is run once. It has
        122 random bits of the server's strong generator.
        """
        count = len(reading.domain)
        found = self.levels(reading, kinds, apart=True)
        secret = self.dialect.fresh or self.bound(key, "TEXT")
        toss = (
            self._below(self.place(secret, count), rate)
            if reading.id_column is None
            else self.tossed(secret, rate)
        )
        listed = ", ".join(f"{LEVEL}{i}" for i in range(count))
        return f"SELECT {listed} FROM ({found}) AS t0 WHERE {toss}"


# --- steps ---


Kind = Literal["text", "truth", "whole", "real", "decimal", "day", "instant"]
"""Of the cells of a column, by the source's own type."""
ARROW: Mapping[Kind, pa.DataType] = {
    "text": pa.string(),
    "truth": pa.bool_(),
    "whole": pa.int64(),
    "real": pa.float64(),
    "day": pa.date32(),
    "instant": pa.timestamp("s"),
}
KINDS: Mapping[str, tuple[Kind, ...]] = {
    "integer": ("truth", "whole", "real", "decimal"),
    "number": ("truth", "whole", "real", "decimal"),
    "datetime": ("day", "instant"),
    "categorical": ("text", "truth", "whole", "real", "decimal"),
    "ordinal": ("text", "truth", "whole", "real", "decimal"),
    "boolean": ("text", "truth", "whole", "real", "decimal"),
    "text-code": ("text",),
}
WORDS: Mapping[str, str] = {
    "text": "texts",
    "truth": "truth values",
    "whole": "whole numbers",
    "real": "numbers of 64 or 32 bits",
    "decimal": "decimal numbers",
    "day": "dates",
    "instant": "times without a zone",
}
ID_KINDS: tuple[Kind, ...] = ("text", "whole")


@dataclass(frozen=True)
class Levels:
    """Levels of a column's values: `null` where there is none.

    With `keys` a value has the level of its key, and else `other`; a text is cut to `prefix`
    characters first, but for those of `whole`, which are asked before. Otherwise it has that of the
    last of `steps` that is not above it, and `other` below all; between the two ends of one of
    `gone` it is missing.
    """

    null: int
    other: int
    keys: tuple[tuple[Any, int], ...] = ()
    steps: tuple[tuple[Any, int], ...] = ()
    prefix: int | None = None
    whole: tuple[tuple[Any, int], ...] = ()
    gone: tuple[tuple[Any, Any], ...] = ()


def check_kinds(domain: Domain, kinds: Mapping[str, Kind | str]) -> None:
    """Refuse columns whose levels a database is not proved to find as we do.

    `kinds` has the name of a source's type where that is none of `Kind`.

    Raises:
        DataError: there are some; the source's types are named, which no row has a part in.
    """
    for column in domain.columns:
        known = KINDS.get(column.type, ())
        if (kind := kinds[column.name]) not in known:
            what = WORDS.get(kind, f"values of type {kind}")
            raise DataError(
                f"column {column.name!r} of the source holds {what}, and compute.engine sql is not"
                f" proved to read them as type {column.type}",
                hint=(
                    f"make them {' or '.join(WORDS[k] for k in known) or 'another type'} in the"
                    " source, e.g. by CAST in the query; or set compute.engine: memory"
                ),
            )


def check_id_kind(name: str, kind: Kind | str) -> None:
    """Refuse ids that a database is not proved to compare as we do.

    Raises:
        DataError: they are neither texts nor whole numbers.
    """
    if kind not in ID_KINDS:
        raise DataError(
            f"column {name!r} (the privacy unit) holds ids that are neither texts nor whole"
            " numbers, which compute.engine sql does not compare",
            hint="cast them to text in the source",
        )


def levels_of(column: ColumnDomain, kind: Kind) -> Levels:
    """The search for the levels of a column whose cells are of a kind.

    The level of a value as a search that a database can do: exact keys, or steps along a line.

    Nothing about levels is decided here. `data.encoding.encode_column` says what each key has, and
    what begins at each step, so that a database does what reading into memory does.

    Why that is the same level for every value [derived here], by kind of cell and type of column:

    - A category's text is compared letter by letter, and a database compares bytes of UTF-8: the
      same, since both sides are UTF-8. For whole numbers, real and decimal numbers, `category_text`
      maps a value to a text that has a level exactly if the value is one of those listed for it
      here: the text of a whole number is its digits, a real number that has the text t is
      `float(t)`, and a decimal one is `Decimal(t)`, whatever its scale, since equal decimals have
      one text. A database compares decimals by their value, too. Of truth both values are listed.
    - The level of a number x of 64 bits follows from comparisons of x with edges, bounds, spikes
      and missing codes alone (`RangeKind.encode`, `ranges.level_of`, `encoding.read_values`). No
      two numbers lie on different sides of one of these without a step between them: each such
      number b begins a step, and the next number after b begins one. So the level is constant from
      each step to the next. Whole numbers and truth are cast to 64 bits by the nearest number, as
      Arrow casts them; -0.0 and 0.0 are equal to databases, too; NaN is missing, and is asked for
      first.
    - Instants are whole steps of the resolution, rounded down: t // r >= b exactly if t >= b r. A
      day is at or after the instant b r exactly if it is at or after the first day that begins
      then.

    What is compared otherwise in a database, or where a text must be read as a number or a date, is
    refused (`check_kinds`): Arrow reads it, or a query casts it.
    """
    null = _level(column, None, kind)
    if column.ranged:
        points = _points(column)
        seconds = RESOLUTION_SECONDS[column.resolution]
        if column.step_seconds is None:
            after = sorted({*points, *(float(np.nextafter(p, np.inf)) for p in points)})
            found: list[tuple[Any, int]] = [(p, _level(column, p, "real")) for p in after]
            first = _level(column, -np.inf, "real")
        else:
            after = sorted({*points, *(p + 1 for p in points)})
            found = [
                (_at(int(p) * seconds, kind), _level(column, int(p) * seconds, "instant"))
                for p in after
            ]
            first = _level(column, int(after[0] - 1) * seconds, "instant")
        return Levels(
            null, first, steps=_without_repeats(first, found), gone=tuple(_gone(column, kind))
        )
    gone = column.missing_codes
    if kind == "text":
        keys = [*column.labels[: column.levels - column.missing], *dict(column.sources)]
        codes = tuple((code, _level(column, code, kind)) for code in gone)
        prefix = max(map(len, keys)) if column.type == "text-code" else None
        return Levels(null, 0, _keyed(column, keys, kind), prefix=prefix, whole=codes)
    if kind == "truth":
        known = [v for v in (False, True) if not _read(column, v, kind).outside]
        return Levels(null, 0, _keyed(column, known, kind))
    values = list[Any]()
    number: Any = {"whole": int, "real": float, "decimal": Decimal}[kind]
    for text in (*column.labels, *dict(column.sources), *gone):
        try:
            value = number(text)
        except (ValueError, InvalidOperation):
            continue
        fits = kind != "whole" or -(2**63) <= value < 2**63
        if category_text(value) == text and value == value and fits:
            values.append(value)
    return Levels(null, 0, _keyed(column, values, kind))


def _keyed(column: ColumnDomain, values: list[Any], kind: Kind) -> tuple[tuple[Any, int], ...]:
    """The values with their levels, in the order in which a database has them."""
    order = (lambda v: v.encode()) if kind == "text" else None
    return tuple((v, _level(column, v, kind)) for v in sorted(set(values), key=order))


def _points(column: ColumnDomain) -> set[float]:
    """All numbers that a level is decided by."""
    meaning = column_kind(column).meaning(column)
    codes = [number for code in column.missing_codes if (number := meaning(code)) == number]
    return {*column.edges, *column.spikes, column.lower, column.upper, *codes}


def _gone(column: ColumnDomain, kind: Kind) -> Iterator[tuple[Any, Any]]:
    """The values that stand for a missing one: from, and below."""
    meaning, seconds = column_kind(column).meaning(column), column.step_seconds
    for number in {meaning(code) for code in column.missing_codes}:
        if number != number:
            continue
        if seconds is None:
            yield number, float(np.nextafter(number, np.inf))
        else:
            yield _at(int(number) * seconds, kind), _at((int(number) + 1) * seconds, kind)


def outside_of(column: ColumnDomain, kind: Kind) -> tuple[Any, Any]:
    """The first value inside of a range, and the first one above it."""
    if column.step_seconds is None:
        return column.lower, float(np.nextafter(column.upper, np.inf))
    seconds = column.step_seconds
    return _at(int(column.lower) * seconds, kind), _at((int(column.upper) + 1) * seconds, kind)


def _at(seconds: int, kind: Kind) -> str:
    """The first day or instant that is at or after an instant, as databases read it."""
    if kind == "day":
        return str(np.datetime64(-(-seconds // 86_400), "D"))
    return str(np.datetime64(seconds, "s")).replace("T", " ")


def _level(column: ColumnDomain, value: Any, kind: Kind) -> int:
    return int(_read(column, value, kind).codes[0])


def _read(column: ColumnDomain, value: Any, kind: Kind) -> EncodedColumn:
    """By the function that reads tables."""
    if kind == "decimal":  # Arrow has none of every scale
        return encode_column(column, pd.Series([value], dtype=object))
    return encode_column(column, pa.array([value], ARROW[kind]))


def _without_repeats(first: int, found: list[tuple[Any, int]]) -> tuple[tuple[Any, int], ...]:
    """Where the level changes; of several steps at one place the last counts."""
    kept, last = list[tuple[Any, int]](), first
    for at, level in dict(found).items():
        if level != last:
            kept.append((at, level))
            last = level
    return tuple(kept)
