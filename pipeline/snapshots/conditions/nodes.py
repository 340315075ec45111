"""A condition in two writings that are made together, part by part, from what was understood. Pure.

`text` is for people, with as few parentheses as it needs. `sql` is for the source: parentheses around every operation,
so that no order of operators is relied on; functions and types by their schema, which pg_temp or a search path cannot
take the place of; names in quotes; and neither `%`, which could become a placeholder, nor a backslash whose meaning
`standard_conforming_strings` decides. Operators have no schema: IN, LIKE, BETWEEN, CASE and NULLIF look for theirs by
the search path in any case. That must be empty (`condition_check.py` looks): then operators are found in pg_catalog
only, as pg_temp is never searched for them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import IntEnum

from pipeline.snapshots.conditions import words
from pipeline.snapshots.conditions.lexer import DEEPEST, fold, refused, too_deep


class OperatorRank(IntEnum):
    """How tightly an operation binds; those of one rank in the text need parentheses where the grammar has none."""

    OR = 1
    AND = 2
    NOT = 3
    DISTINCT = 4
    IS = 5
    COMPARED = 6
    RANGED = 7
    OTHER = 8
    SUM = 9
    PRODUCT = 10
    POWER = 11
    ZONED = 12
    SIGNED = 13
    CAST = 14
    SIMPLE = 15
    ELEMENT = 16


@dataclass(frozen=True, slots=True)
class ConditionNode:
    """A part of a condition, with the names used in it."""

    rank: OperatorRank
    text: str
    sql: str
    depth: int
    columns: frozenset[str] = frozenset()
    functions: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SqlName:
    """Of a column, function or type. `quoted`: as it was given, which is no keyword then."""

    name: str
    quoted: bool = False
    qualified: bool = False

    @property
    def text(self) -> str:
        """As it is understood again."""
        return self.name if self._plain() else _in_quotes(self.name)

    def _plain(self) -> bool:
        listed = words.RESERVED | words.ONLY_FUNCTIONS | words.NO_FUNCTIONS
        return re.fullmatch(r"[a-z_][a-z0-9_]*", self.name) is not None and self.name not in listed


@dataclass(frozen=True, slots=True)
class CastType:
    """A type by its name in the catalog, and what stands behind it."""

    name: str
    length: str = ""
    bounds: str = field(default="", kw_only=True)

    @property
    def text(self) -> str:
        """As it is understood again."""
        meant = words.TYPES.get(self.name)
        plain = SqlName(self.name).text if meant is None else self.name
        if meant is not None and meant != (self.name, "") and not (meant[0] == self.name and self.length):
            plain = _in_quotes(self.name)
        return plain + self.length + self.bounds

    @property
    def sql(self) -> str:
        return f"pg_catalog.{_identifier(self.name)}{self.length}{self.bounds}"


NodePiece = str | tuple[str, str] | tuple[ConditionNode, OperatorRank]


def build(
    rank: OperatorRank, *pieces: NodePiece, levels: int = 1, columns: str = "", functions: str = "", types: str = ""
) -> ConditionNode:
    """A node of pieces: what both writings have, what each has, or a part with the lowest rank it may have bare.

    `levels`: how much deeper than its deepest part it is; a list of arguments adds nothing to the call.
    """
    text, sql, parts = [], [], []
    for piece in pieces:
        if isinstance(piece, str):
            piece = (piece, piece)
        first, second = piece
        if isinstance(first, ConditionNode) and isinstance(second, OperatorRank):
            parts.append(first)
            text.append(first.text if first.rank >= second else f"({first.text})")
            sql.append(f"({first.sql})" if first.rank == OperatorRank.SIMPLE < second else first.sql)
        else:
            text.append(str(first))
            sql.append(str(second))
    depth = levels + max((part.depth for part in parts), default=-levels)
    if depth > DEEPEST:
        raise too_deep()
    return ConditionNode(
        rank,
        "".join(text),
        "".join(sql) if rank >= OperatorRank.SIMPLE else f"({''.join(sql)})",
        depth,
        frozenset({columns} - {""}).union(*(part.columns for part in parts)),
        frozenset({functions} - {""}).union(*(part.functions for part in parts)),
        frozenset({types} - {""}).union(*(part.types for part in parts)),
    )


def string(value: str) -> ConditionNode:
    """A string: of unknown type, until Postgres gives it that of what it stands beside."""
    plain = "'" + value.replace("'", "''") + "'"
    if "\\" in value or "%" in value:
        escaped = value.replace("\\", "\\\\").replace("'", "''").replace("%", "\\045")
        return build(OperatorRank.SIMPLE, (plain, f"E'{escaped}'"))
    return build(OperatorRank.SIMPLE, plain)


def column(name: str) -> ConditionNode:
    return build(OperatorRank.ELEMENT, (SqlName(name).text, _identifier(name)), columns=name)


def call(name: SqlName, arguments: list[NodePiece]) -> ConditionNode:
    """Of a function, or of what is written like one."""
    word = "" if name.quoted or name.qualified else name.name
    if word in words.SPECIAL:
        return build(OperatorRank.SIMPLE, word, "(", *arguments, ")")
    if word in words.NO_FUNCTIONS and word not in words.PLAIN_FUNCTIONS:
        raise refused(f"{word}(…) is not allowed: cast with ::, and call functions by names that are not keywords")
    found = words.PLAIN_FUNCTIONS.get(word, name.name)
    written = found if word in words.ONLY_FUNCTIONS | {"substring", "overlay"} else SqlName(found).text
    return build(
        OperatorRank.SIMPLE, (written, f"pg_catalog.{_identifier(found)}"), "(", *arguments, ")", functions=found
    )


def name_of(raw: str, schema: str | None = None) -> SqlName:
    """From the text, behind its schema."""
    if schema is not None and name_of(schema).name != "pg_catalog":
        raise refused(
            f"{schema}.{raw} is not allowed: only functions and types of Postgres itself are, and columns alone"
        )
    if raw.startswith('"'):
        return SqlName(raw[1:-1].replace('""', '"'), quoted=True, qualified=schema is not None)
    return SqlName(fold(raw), qualified=schema is not None)


def type_of(name: SqlName, length: str, zone: str, bounds: str) -> CastType:
    """What the grammar means by a type."""
    meant, usual = (name.name, "") if name.quoted or name.qualified else words.TYPES.get(name.name, (name.name, ""))
    if zone and meant not in ("time", "timestamp"):
        raise refused(f"{name.text} {zone} is not allowed: only time and timestamp have a time zone")
    if name.name == "float" and length and not name.quoted:
        raise refused(f"float{length} is not allowed: write real or double precision")
    zoned = f"{meant}tz" if zone.startswith("with ") else meant
    return CastType(zoned, length or usual, bounds=bounds)


def _in_quotes(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _identifier(name: str) -> str:
    if "%" in name:
        return "U&" + _in_quotes(name.replace("\\", "\\\\").replace("%", "\\0025"))
    return _in_quotes(name)
