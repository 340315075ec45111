"""Random rows of any table, as its columns are by now."""

from __future__ import annotations

import random
import re
from typing import Any

from tests.torture.ordinary_schema.source import Source

MOST_ROWS = 150
"""Beyond these, deletes take the rest."""
_CHECKED = ("offer_until", "at")
"""Columns whose old values their checks refuse by now."""
_VALUES = (
    (r"bigint|integer|smallint", "{n}"),
    (r"numeric|double precision", "{n} / 100.0"),
    (r"boolean", "{n} % 2 = 0"),
    (r"uuid", "md5('{n}')::uuid"),
    (r"date$", "current_date + {n} % 9"),
    (r"timestamp", "now() + ({n} % 20 + 1) * interval '1 second'"),
    (r"jsonb?$", """'{{"n": {n}, "of": [1, null, "é"]}}'"""),
    (r"bytea", "decode(md5('{n}'), 'hex')"),
    (r"inet", "'10.0.' || {n} % 256 || '.1'"),
    (r"int4range", "int4range({n}, {n} + 5)"),
)


def change(source: Source) -> tuple[str, ...]:
    """A transaction of some changes."""
    tables = [table for table in source.tables() if not table.short.startswith("_gh")]
    return tuple(_change(source, source.chance.choice(tables)) for _ in range(source.chance.choice((1, 1, 2, 4))))


def touch(source: Source) -> list[tuple[str, ...]]:
    """For each table, what shows its form in the log: the first of these that is not refused."""
    found = list[tuple[str, ...]]()
    for table in source.tables():
        added = tuple(insert(source, table) for _ in range(5))
        settable = [column for column in source.columns(table) if not column.generated]
        name = f'"{settable[-1].name}"'
        same = f"update {table.name} set {name} = {name} where ctid = (select {{}}(ctid) from {table.name})"
        found.append((same.format("min"), same.format("max"), *added) if table.keyed else added)
    return found


def insert(source: Source, table: Any) -> str:
    """A row, of which defaults and nulls are some."""
    chance, given = source.chance, dict[str, str]()
    for column in source.columns(table):
        if not column.generated and not (column.has_default and (column.in_key or chance.random() < 0.8)):
            given[column.name] = value(column, chance)
    names = ", ".join(f'"{name}"' for name in given)
    if not given:
        return f"insert into {table.name} default values"
    return f"insert into {table.name} ({names}) values ({', '.join(given.values())})"


def value(column: Any, chance: random.Random) -> str:
    """An expression for one of its values."""
    if column.takes_null and chance.random() < 0.15:
        return "null"
    if column.refers:
        return str(column.refers).replace("x::text", f"x::text || {chance.randrange(999)}")
    if column.attributes:
        return f"row({', '.join(_plain(each, chance) for each in column.attributes)})::{column.kind}"
    if column.kind.endswith("[]"):
        elements = (_one(column, column.kind.removesuffix("[]"), chance) for _ in range(chance.randrange(3)))
        return f"array[{', '.join(elements)}]::{column.kind}"
    return _one(column, column.kind, chance)


def _one(column: Any, kind: str, chance: random.Random) -> str:
    if column.labels:
        return f"'{chance.choice(column.labels)}'::{kind}"
    return f"({_plain(column.base or kind, chance)})::{kind}"


def _plain(kind: str, chance: random.Random) -> str:
    number = chance.randrange(1, 9_000)
    for pattern, expression in _VALUES:
        if re.match(pattern, kind):
            return expression.format(n=number)
    words = chance.choice((f"Wort {number}", f"word-{number}", f"Ärger {number}"))
    return f"repeat(md5('{number}'), 200)" if kind == "text" and chance.random() < 0.03 else f"'{words}'"


def _change(source: Source, table: Any) -> str:
    """Tables without a key get rows alone: their updates and deletes are not published."""
    chance = source.chance
    kind = chance.random()
    if not table.keyed or kind < 0.5:
        return insert(source, table)
    some = f"order by md5(x::text || '{chance.randrange(999)}') limit"
    where = f"where ctid = any(array(select ctid from {table.name} x {some}"
    if kind < 0.62:
        return f"delete from {table.name} {where} greatest(1, (select count(*) from {table.name}) - {MOST_ROWS})))"
    if kind < 0.63 and table.alone:
        return f"truncate {table.name}"
    columns = [column for column in source.columns(table) if not column.generated]
    able = [column for column in columns if not column.in_key or chance.random() < 0.05]
    chosen = chance.sample(able, min(len(able), chance.choice((1, 2, 9)))) or columns[:1]
    chosen += [column for column in able if column.name in _CHECKED and column not in chosen]
    given = ", ".join(f'"{column.name}" = {value(column, chance)}' for column in chosen)
    count = 1 if any(column.in_key for column in chosen) else chance.choice((1, 3))
    return f"update {table.name} set {given} {where} {count}))"
