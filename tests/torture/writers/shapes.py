"""The odd tables as a connection sees them at this moment, in its own transaction."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg

_TABLES = """
    select c.oid::bigint, n.nspname, c.relname, c.relkind::text, c.relispartition, c.relpersistence::text,
        (select jsonb_agg(jsonb_build_array(a.attname, a.attnum,
            format_type(a.atttypid, null), format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attgenerated::text,
            a.attinhcount > 0, coalesce(i.keyed, false), i.keyed is not null) order by a.attnum)
         from pg_attribute a left join lateral (
            select bool_or(i.indisprimary) as keyed from pg_index i
            where i.indrelid = c.oid and i.indisunique and a.attnum = any(i.indkey::int2[])) i on true
         where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped),
        (select conname from pg_constraint p where p.conrelid = c.oid and p.contype = 'p'),
        exists (select from pg_constraint f where f.contype = 'f' and (f.confrelid = c.oid or f.conrelid = c.oid)),
        (select inhparent::regclass::text from pg_inherits i where i.inhrelid = c.oid limit 1),
        pg_get_partkeydef(c.oid), pg_get_expr(c.relpartbound, c.oid),
        exists (select from pg_inherits i where i.inhparent = c.oid)
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.relkind in ('r', 'p') and n.nspname ~ '^kinds'
    order by c.oid"""


@dataclass(frozen=True)
class Column:
    """`type` without, `full_type` with its modifier. `keyed`: of the primary key; `indexed`: of any unique index."""

    name: str
    number: int
    type: str
    full_type: str
    required: bool
    generated: str
    inherited: bool
    keyed: bool
    indexed: bool

    @property
    def sql(self) -> str:
        return quoted(self.name)


@dataclass(frozen=True)
class Table:
    """`kind`: r or p. `linked`: a foreign key leads to it, or from it."""

    oid: int
    schema: str
    name: str
    kind: str
    is_partition: bool
    persistence: str
    columns: tuple[Column, ...] = field(repr=False)
    primary_key: str | None
    linked: bool
    parent: str | None
    partitioned_by: str | None
    bound: str | None
    has_children: bool

    @property
    def sql(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    @property
    def written(self) -> list[Column]:
        """Columns that a statement may give values for."""
        return [column for column in self.columns if not column.generated]

    @property
    def key(self) -> list[Column]:
        return [column for column in self.columns if column.keyed]

    @property
    def free(self) -> list[Column]:
        """Its own columns, on which nothing else depends."""
        return [column for column in self.columns if not (column.indexed or column.inherited or column.generated)]


def tables(connection: psycopg.Connection) -> list[Table]:
    """All of them, the oldest first."""
    return [_table(*row) for row in connection.execute(_TABLES)]


def _table(*row: Any) -> Table:
    values: list[Any] = [*row[:6], tuple(Column(*column) for column in row[6] or ()), *row[7:]]
    return Table(*values)


def quoted(name: str) -> str:
    """As an identifier."""
    return '"' + name.replace('"', '""') + '"'


def pick(chance: random.Random, among: Sequence[Table]) -> Table:
    """One of them; raises Unfit when there is none."""
    if not among:
        raise Unfit("no such table")
    return chance.choice(among)


class Unfit(Exception):
    """There is nothing that this could be done to."""
