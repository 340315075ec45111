"""Build conditions on keys that hold for all rows that a partition may have, and for few others.

A comparison may read keys that do not differ, but must not miss any that do. So it uses only bounds that mean the same
at the source and in the log: lists, and ranges of types that sort alike everywhere. If bounds have several columns,
only the first one is used. A partition with other bounds, such as a default partition, may have all keys of its table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from psycopg import sql

from pipeline.capture.schema_history.versions import PublishedColumn

Line = Sequence[Mapping[str, Any]]
"""`pipeline.partitions.bounds`: a level for each table from the partition up to its root."""
_SORTED = {20, 21, 23, 1082, 1114, 1184, 1700, 2950}
"""Types of integers, dates, timestamps, numeric and uuid."""
_LISTED = _SORTED | {16, 25, 1043}
_BOUND = re.compile(r"FOR VALUES (?:IN \((.*)\)|FROM \((.*)\) TO \((.*)\))", re.DOTALL)
_VALUE = re.compile(r"\s*(?:'((?:[^']|'')*)'|([^',()\s]+))(?:::[^,']+)?\s*(?:,|$)")
_OPEN = {"MINVALUE", "MAXVALUE"}


@dataclass(frozen=True)
class KeyCondition:
    """A condition on one column of a key: equal to one of some values, at least a value, or at most a value."""

    place: int
    operator: Literal[">=", "<=", "="]
    values: tuple[str, ...]


Part = tuple[KeyCondition, ...]
"""The conditions of one partition: all of them hold for its rows."""


def parts(bounds: Sequence[Line | None], key: Sequence[PublishedColumn]) -> tuple[Part, ...] | None:
    """Return the conditions of each of these partitions; None if one of them may have any key."""
    found = [_part(line or (), key) for line in bounds]
    return tuple(found) if all(found) else None


def holds(within: Sequence[Part], key: Sequence[PublishedColumn], values: Sequence[sql.Composable]) -> sql.Composable:
    """Return SQL that is true if a key is within one of these partitions. `values`: of the key."""
    each = (
        sql.SQL("({})").format(
            sql.SQL(" and ").join(_condition(one, key[one.place], values[one.place]) for one in part)
        )
        for part in within
    )
    return sql.SQL("({})").format(sql.SQL(" or ").join(each))


def may_hold(within: Sequence[Part] | None, key: Sequence[PublishedColumn]) -> sql.Composable:
    """Return SQL that is true if a key of the log, `k.key_0`, …, is or may be within one of these partitions."""
    if within is None:
        return sql.SQL("true")
    values = [sql.Identifier("k", f"key_{place}") for place in range(len(key))]
    return sql.SQL("({}) is not false").format(holds(within, key, values))


def _condition(one: KeyCondition, column: PublishedColumn, value: sql.Composable) -> sql.Composable:
    compared = sql.SQL("{} operator(pg_catalog.{}) {}::{}")
    cast = sql.SQL(column.cast)
    each = (compared.format(value, sql.SQL(one.operator), sql.Literal(text), cast) for text in one.values)
    return sql.SQL("({})").format(sql.SQL(" or ").join(each)) if one.values else sql.SQL("false")


def _part(line: Line, key: Sequence[PublishedColumn]) -> Part:
    return tuple(one for level in line for one in _level(level, {column.name: column for column in key}, key))


def _level(
    level: Mapping[str, Any], named: Mapping[str, PublishedColumn], key: Sequence[PublishedColumn]
) -> list[KeyCondition]:
    found = _BOUND.fullmatch(level["bound"] or "")
    column = named.get((level["columns"] or [""])[0])
    if found is None or column is None:
        return []
    listed, low, high = (None if text is None else _values(text) for text in found.groups())
    place = key.index(column)
    if level["strategy"] == "l" and listed is not None and column.type_oid in _LISTED:
        return [KeyCondition(place, "=", tuple(text for text, quoted in listed if quoted or text != "NULL"))]
    if level["strategy"] != "r" or column.type_oid not in _SORTED or not low or not high:
        return []
    edges: tuple[tuple[Literal[">=", "<="], tuple[str, bool]], ...] = ((">=", low[0]), ("<=", high[0]))
    return [KeyCondition(place, sign, (text,)) for sign, (text, quoted) in edges if quoted or text not in _OPEN]


def _values(text: str) -> list[tuple[str, bool]] | None:
    """Return pairs of each value of a list and True if it is quoted; None if a value is not plain."""
    found, at = list[tuple[str, bool]](), 0
    while at < len(text):
        value = _VALUE.match(text, at)
        if value is None:
            return None
        quoted = value[1] is not None
        found.append((value[1].replace("''", "'") if quoted else value[2], quoted))
        at = value.end()
    return found
