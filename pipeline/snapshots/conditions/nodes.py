"""The nodes of a parsed condition. Each has two writings: `text` for people, and `sql` for the source. Pure.

`text` has as few parentheses as possible. `sql` relies on no setting of the session:

- parentheses around every operation, so that operator precedence does not matter;
- functions and types with their schema, so that neither pg_temp nor a search path can replace them;
- names in quotes;
- no `%`, which could become a placeholder;
- no backslash whose meaning depends on `standard_conforming_strings`.

Operators have no schema, because IN, LIKE, BETWEEN, CASE and NULLIF find their operators by the search path in any
case. The search path must be empty (`check.py` checks that): then Postgres finds operators in pg_catalog only, since
pg_temp is never searched for operators.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import IntEnum

from pipeline.snapshots.conditions import words
from pipeline.snapshots.conditions.lexer import DEEPEST, fold, refused, too_deep


class OperatorRank(IntEnum):
    """The precedence of an operation. In `text`, an operand of a lower rank than required is put in parentheses."""

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
    """A part of a condition, with the names of columns, functions and types in it."""

    rank: OperatorRank
    text: str
    sql: str
    depth: int
    columns: frozenset[str] = frozenset()
    functions: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SqlName:
    """The name of a column, function or type. `quoted`: the user wrote it in quotes, so it is no keyword."""

    name: str
    quoted: bool = False
    qualified: bool = False

    @property
    def text(self) -> str:
        """The name in a form that parses to the same name."""
        return self.name if self._plain() else _in_quotes(self.name)

    def _plain(self) -> bool:
        listed = words.RESERVED | words.ONLY_FUNCTIONS | words.NO_FUNCTIONS
        return re.fullmatch(r"[a-z_][a-z0-9_]*", self.name) is not None and self.name not in listed


@dataclass(frozen=True, slots=True)
class CastType:
    """The type of a cast: its name in pg_catalog, with its length and array bounds."""

    name: str
    length: str = ""
    bounds: str = field(default="", kw_only=True)

    @property
    def text(self) -> str:
        """The type in a form that parses to the same type."""
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
    """Build a node from pieces: a text of both writings, a text for each writing, or a node with a rank.

    A node of a lower rank than the given one is put in parentheses. `levels`: how many levels of nesting the node
    adds to its deepest part; a list of arguments adds none.
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
    """Build a string. Its type is unknown until Postgres takes the type of the other operand."""
    plain = "'" + value.replace("'", "''") + "'"
    if "\\" in value or "%" in value:
        escaped = value.replace("\\", "\\\\").replace("'", "''").replace("%", "\\045")
        return build(OperatorRank.SIMPLE, (plain, f"E'{escaped}'"))
    return build(OperatorRank.SIMPLE, plain)


def column(name: str) -> ConditionNode:
    return build(OperatorRank.ELEMENT, (SqlName(name).text, _identifier(name)), columns=name)


def call(name: SqlName, arguments: list[NodePiece]) -> ConditionNode:
    """Build a call of a function, or of an expression that is written like a call, such as coalesce."""
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
    """Return the name of a column, function or type in a condition. `schema`: only pg_catalog is allowed."""
    if schema is not None and name_of(schema).name != "pg_catalog":
        raise refused(
            f"{schema}.{raw} is not allowed: only functions and types of Postgres itself are, and columns alone"
        )
    if raw.startswith('"'):
        return SqlName(raw[1:-1].replace('""', '"'), quoted=True, qualified=schema is not None)
    return SqlName(fold(raw), qualified=schema is not None)


def type_of(name: SqlName, length: str, zone: str, bounds: str) -> CastType:
    """Return the type of pg_catalog that a type name of SQL means, such as int4 for `integer`."""
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
