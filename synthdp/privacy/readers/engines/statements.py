"""Statements that count levels in a database: `steps` as CASE, tables as GROUP BY, the bound of a
unit's rows as a window.

Values of the domain are bound as parameters, and `Reading.names` are names of our own, so that
neither is part of a statement. What a statement gives back are numbers of rows, and where a
sample is drawn, its levels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from synthdp.data.column_domain import ColumnDomain
from synthdp.data.level_groups import LevelGroups
from synthdp.privacy.mechanisms.counting import Columns
from synthdp.privacy.readers.engines.bounding import COIN_BITS, limit
from synthdp.privacy.readers.engines.engine import Reading
from synthdp.privacy.readers.engines.steps import Kind, Levels, levels_of, outside_of

REALS = ("real", "decimal")
SOURCE, LEVEL, UNIT = "synthdp_source", "synthdp_l", "synthdp_u"
NAN = "{} = CAST('NaN' AS {})"  # whether a number is none, whatever its bits
WHOLE = "^[+-]?[0-9]+([.]0*)?$"  # a plain whole number
LEAF = 4  # branches of one CASE; a search of more halves them first
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
        gone = f"{cell} IS NULL"
        if kind in REALS:
            gone += f" OR {NAN.format(value, self._number(column, kind))}"
        branches = f"WHEN {gone} THEN {group[found.null]}"
        for code, level in found.whole:
            text = f"CAST({cell} AS TEXT){self.dialect.collate}"
            branches += f" WHEN {text} = {self.bound(code, 'TEXT')} THEN {group[level]}"
        return f"CASE {branches} ELSE {sought} END"

    def misfits(self, cell: str, column: ColumnDomain, kind: Kind) -> list[str]:
        """Conditions: of a wrong type, outside the domain, unexpectedly missing."""
        found, value = levels_of(column, kind), self._comparable(cell, column, kind)
        nan = f" OR {NAN.format(value, self._number(column, kind))}" if kind in REALS else ""
        gone = f"({cell} IS NULL{nan})"
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

    def unit(self, cell: str, kind: Kind) -> str:
        """`one_value.id_text` of an id, empty where there is none."""
        if kind == "whole":
            return f"COALESCE(CAST({cell} AS TEXT), '')"
        text = f"btrim(CAST({cell} AS TEXT), {self.bound(SPACES, 'TEXT')})"
        digits = f"COALESCE(NULLIF(ltrim(ltrim(split_part({text}, '.', 1), '+-'), '0'), ''), '0')"
        sign = f"CASE WHEN {text} LIKE '-%' AND {digits} <> '0' THEN '-' ELSE '' END"
        return f"COALESCE(CASE WHEN {text} ~ '{WHOLE}' THEN {sign} || {digits} ELSE {text} END, '')"

    def _comparable(self, cell: str, column: ColumnDomain, kind: Kind) -> str:
        if kind == "text":
            return f"CAST({cell} AS TEXT){self.dialect.collate}"
        if kind == "truth" and column.ranged:
            return f"CAST(CASE WHEN {cell} THEN 1 ELSE 0 END AS FLOAT8)"
        if kind in REALS or (column.ranged and kind == "whole"):
            return f"CAST({cell} AS {self._number(column, kind)})"
        return cell

    def _number(self, column: ColumnDomain, kind: Kind) -> str:
        """The type in which numbers are compared: codes by all their digits."""
        return "NUMERIC" if kind == "decimal" and not column.ranged else "FLOAT8"

    def _literal(self, value: Any, kind: Kind) -> str:
        sql = {"text": "TEXT", "truth": "BOOLEAN", "whole": "BIGINT", "day": "DATE"}
        sql |= {"instant": "TIMESTAMP", "decimal": "NUMERIC"}
        return self.bound(value, "FLOAT8" if isinstance(value, float) else sql[kind])

    def _keys(
        self, value: str, kind: Kind, keys: Sequence[tuple[Any, int]], other: int, group: Any
    ) -> str:
        if not keys:
            return str(other)
        if len(keys) <= LEAF or kind == "truth":
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
        """The numbers of `engine.Survey`, in one row."""
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
        levels = [
            self.level(reading.names[c.name], c, kinds[c.name], range(c.levels))
            for c in reading.domain.columns
        ]
        own = [f"{level} AS {LEVEL}{i}" for i, level in enumerate(levels)]
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

    def tossed(self, key: str, rate: float) -> str:
        """Whether the coin of a unit is below a rate (`bounding.coin`); `key` is an expression."""
        place = self.dialect.digest.format(f"{key} || '|' || {UNIT}")
        return self._below(place, rate)

    def _below(self, place: str, rate: float) -> str:
        digits = f"substr({place}, 1, {COIN_BITS // 4}){self.dialect.collate}"
        return f"({digits} < {self.bound(limit(rate), 'TEXT')})"

    def place(self, key: str, columns: int) -> str:
        """`bounding.place` of a row."""
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
                level = self._search(level, "whole", self._grouped(groups, name), 0)
            cell = f"({cell} * {size} + {level})"
        return f"CAST({cell} AS BIGINT)"

    def _grouped(self, groups: LevelGroups, name: str) -> list[tuple[int, int]]:
        return [(start, i) for i, start in enumerate(groups.starts[name])][1:]

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
