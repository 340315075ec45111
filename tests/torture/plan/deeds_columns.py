"""Random DDL on columns and keys of the odd tables, as they are at this moment. Returns statements."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.torture.plan.kinds import LONG
from tests.torture.plan.literals import value
from tests.torture.writers.shapes import Column, Table, Unfit, pick, quoted

SPREAD = 1_000_000
_NAMES = ("extra", "Extra", "%s", 'q"q', "a.b.c", "select", "žluťoučký", "{x}", "'", LONG[:30], "record", "id")
TYPES = (
    "text", "integer", "bigint", "numeric(12,3)", "varchar(8)", "boolean", "jsonb", "json", "bytea", "timestamptz",
    "float8", "text[]", "types.mood", "types.place", "types.doc", "uuid", "date", "int4range", "types.mail",
)  # fmt: skip
_LONG = ("text", "types.mail", "bytea", "text[]", "json", "jsonb", "types.doc", "types.place")
_OTHER_TYPES = {
    "integer": ("bigint", "numeric", "text", "integer"),
    "smallint": ("integer", "text"),
    "bigint": ("numeric", "text"),
    "numeric": ("text", "numeric", "double precision"),
    "text": ("varchar(9000)", "text", "types.mail"),
    "json": ("jsonb", "text"),
    "jsonb": ("json", "text", "types.doc"),
    "boolean": ("text",),
    "date": ("timestamptz", "text"),
    "uuid": ("text",),
    "types.mail": ("text",),
    "types.doc": ("jsonb", "json"),
}


class ColumnDeeds:
    """Each method is a deed: what it does to one of the tables, as chance has it. Raises Unfit where it cannot be."""

    def __init__(self, chance: random.Random, tables: Sequence[Table], moods: Sequence[str]) -> None:
        self._chance = chance
        self._tables = tables
        self._moods = moods

    # --- columns

    def add_column(self) -> list[str]:
        table = self._whole()
        name, of = quoted(self._new_name(table)), self._chance.choice(TYPES)
        kind = self._chance.choice(("plain", "plain", "default", "default", "volatile", "not null", "generated"))
        if kind == "generated" and not table.has_children:
            source = self._chance.choice(table.written).sql
            return [
                self._alter(table, f"add column {name} text generated always as (md5(({source} is null)::text)) stored")
            ]
        default = value(self._chance, of.split("(")[0].replace("varchar", "character varying"), 100, self._moods)
        if kind == "volatile":
            of, default = "double precision", "random()"
        after = {"plain": "", "not null": f" default {default} not null"}.get(kind, f" default {default}")
        return [self._alter(table, f"add column {name} {of}{after}")]

    def drop_column(self) -> list[str]:
        table = self._whole()
        return [self._alter(table, f"drop column {self._free(table).sql}")]

    def drop_and_add_column(self) -> list[str]:
        """Another column under the name of one that is gone."""
        table = self._whole()
        name = self._free(table).sql
        return [self._alter(table, f"drop column {name}, add column {name} {self._chance.choice(TYPES)}")]

    def rename_column(self) -> list[str]:
        table = self._whole()
        columns = [column for column in table.columns if not column.inherited]
        if not columns:
            raise Unfit("all inherited")
        return [self._rename(table, self._chance.choice(columns).name, self._new_name(table))]

    def swap_columns(self) -> list[str]:
        """Two columns of one type, or of any, take each other's name."""
        table = self._whole()
        columns = [column for column in table.columns if not column.inherited]
        if len(columns) < 2:
            raise Unfit("one column")
        one, other = (column.name for column in self._chance.sample(columns, 2))
        return [
            self._rename(table, one, "between"),
            self._rename(table, other, one),
            self._rename(table, "between", other),
        ]

    def change_type(self) -> list[str]:
        table = self._whole()
        columns = [c for c in table.columns if c.type in _OTHER_TYPES and not c.generated and not c.inherited]
        if not columns:
            raise Unfit("no such type")
        column = self._chance.choice(columns)
        to = self._chance.choice(_OTHER_TYPES[column.type])
        return [self._alter(table, f"alter column {column.sql} type {to} using {column.sql}::text::{to}")]

    def widen(self) -> list[str]:
        """Without a rewrite."""
        table, column = self._varying()
        return [self._alter(table, f"alter column {column.sql} type varchar({self._chance.choice((20, 50, 100))})")]

    def rewrite_values(self) -> list[str]:
        """The same type, other values, without a change event for any."""
        table = self._whole()
        columns = [c for c in table.free if c.type in ("text", "integer")]
        if not columns:
            raise Unfit("no text")
        column = self._chance.choice(columns)
        using = f"{column.sql} || '!'" if column.type == "text" else f"{column.sql} % 1000 + 1"
        return [self._alter(table, f"alter column {column.sql} type {column.full_type} using {using}")]

    def rewrite_and_leave(self) -> list[str]:
        """Long values, another rewrite of them, and updates that leave them alone: none must come from before it."""
        tables = [t for t in self._roots() if not t.linked and any(c.type == "text" for c in t.free)]
        table = pick(self._chance, [t for t in tables if len(t.free) > 1])
        column = self._chance.choice([column for column in table.free if column.type == "text"])
        other = self._chance.choice([c for c in table.free if c.number != column.number])
        long = self._chance.randbytes(3_000).hex()
        return [
            f"update {table.sql} set {column.sql} = '{long}'",
            self._alter(table, f"alter column {column.sql} type text using {column.sql} || '!'"),
            f"update {table.sql} set {other.sql} = {other.sql}",
        ]

    def storage(self) -> list[str]:
        """What is TOASTed from now on, and how."""
        table = self._whole()
        columns = [c.sql for c in table.columns if c.type in ("text", "jsonb", "bytea", "text[]")]
        if not columns:
            raise Unfit("nothing long")
        how = self._chance.choice(("external", "extended", "main"))
        return [self._alter(table, f"alter column {self._chance.choice(columns)} set storage {how}")]

    # --- keys

    def drop_primary_key(self) -> list[str]:
        table = self._keyed()
        return [self._alter(table, f"drop constraint {quoted(table.primary_key or '')}")]

    def add_primary_key(self) -> list[str]:
        table = pick(self._chance, [t for t in self._roots() if not t.primary_key and self._keyable(t)])
        found = self._keyable(table)
        columns = self._chance.sample(found, min(len(found), self._chance.choice((1, 1, 2))))
        by = [column for column in table.written if table.partitioned_by and column.name in table.partitioned_by]
        names = ", ".join(dict.fromkeys(column.sql for column in (*columns, *by)))
        return [self._alter(table, f"add primary key ({names})")]

    def change_primary_key(self) -> list[str]:
        table = self._keyed()
        more = self._chance.choice([column for column in self._keyable(table) if not column.keyed] or table.key)
        names = ", ".join(dict.fromkeys(column.sql for column in (more, *table.key)))
        return [self._alter(table, f"drop constraint {quoted(table.primary_key or '')}, add primary key ({names})")]

    def identity(self) -> list[str]:
        table = pick(self._chance, [t for t in self._tables if t.kind == "r"])
        return [
            self._alter(table, f"replica identity {self._chance.choice(('default', 'default', 'full', 'nothing'))}")
        ]

    def identity_by_index(self) -> list[str]:
        table = pick(self._chance, [t for t in self._tables if t.kind == "r" and self._keyable(t)])
        column = self._chance.choice(self._keyable(table))
        name = quoted(f"by {table.oid} {column.number}")
        return [
            f"alter table {table.sql} alter column {column.sql} set not null",
            f"create unique index {name} on {table.sql} ({column.sql})",
            self._alter(table, f"replica identity using index {name}"),
        ]

    def _alter(self, table: Table, what: str) -> str:
        return f"alter table {table.sql} {what}"

    def _rename(self, table: Table, old: str, new: str) -> str:
        return self._alter(table, f"rename column {quoted(old)} to {quoted(new)}")

    def _roots(self) -> list[Table]:
        return [table for table in self._tables if not table.is_partition]

    def _whole(self) -> Table:
        return pick(self._chance, [table for table in self._roots() if table.columns])

    def _keyed(self) -> Table:
        return pick(self._chance, [table for table in self._roots() if table.primary_key])

    def _keyable(self, table: Table) -> list[Column]:
        """Columns whose values an index surely takes."""
        return [column for column in table.written if column.type not in _LONG]

    def _free(self, table: Table) -> Column:
        if not table.free:
            raise Unfit("all columns are needed")
        return self._chance.choice(table.free)

    def _varying(self) -> tuple[Table, Column]:
        found = [(t, c) for t in self._roots() for c in t.columns if c.type == "character varying" and not c.inherited]
        if not found:
            raise Unfit("nothing that varies")
        return self._chance.choice(found)

    def _new_name(self, table: Table) -> str:
        names = {column.name for column in table.columns}
        return self._chance.choice(
            [name for name in _NAMES if name not in names] or [f"c{self._chance.randrange(SPREAD)}"]
        )
