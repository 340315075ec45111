"""Random changes of rows of the odd tables, whatever columns they have at this moment. Returns statements."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.torture.plan.literals import key_value, value
from tests.torture.writers.shapes import Column, Table, Unfit, pick

MOST_ROWS = 8
_SPREAD = 1_000_000


class RowDeeds:
    """Each method is a deed: one statement or more for one table or more, as chance has it."""

    def __init__(self, chance: random.Random, tables: Sequence[Table], moods: Sequence[str]) -> None:
        self._chance = chance
        self._tables = tables
        self._moods = moods

    def insert(self) -> list[str]:
        table = self._any()
        columns = table.written
        if not columns:
            raise Unfit("no columns")
        named = [c for c in columns if c.required or c.indexed or self._chance.random() < 0.9] or columns
        rows = ", ".join(self._row(table, named) for _ in range(self._chance.randint(1, MOST_ROWS)))
        conflict = " on conflict do nothing" if self._chance.random() < 0.3 else ""
        names = ", ".join(column.sql for column in named)
        return [f"insert into {table.sql} ({names}) overriding system value values {rows}{conflict}"]

    def copy_rows(self) -> list[str]:
        """Rows of the table again, with other keys where they are numbers."""
        table = self._any()
        keys = {c.name for c in table.written if c.indexed}
        chosen = ", ".join(
            f"{self._value(table, c)}::{c.full_type}" if c.name in keys else f"t.{c.sql}" for c in table.written
        )
        names = ", ".join(column.sql for column in table.written)
        return [f"insert into {table.sql} ({names}) select {chosen} from {table.sql} t {self._limit(1)}"]

    def update(self) -> list[str]:
        """Some columns that are not of the key; values that are left alone may be TOASTed."""
        table = self._any()
        columns = [column for column in table.written if not column.indexed]
        if not columns:
            raise Unfit("nothing but a key")
        chosen = self._chance.sample(columns, min(len(columns), self._chance.choice((1, 1, 2, 3))))
        return [self._update(table, chosen, self._chance.randint(1, MOST_ROWS))]

    def update_small(self) -> list[str]:
        """One column, a short value: everything long is left alone."""
        table = self._any()
        columns = [column for column in table.written if not column.indexed]
        if not columns:
            raise Unfit("nothing but a key")
        column = self._chance.choice(columns)
        return [f"update {table.sql} set {column.sql} = {column.sql} where {self._some(table, MOST_ROWS)}"]

    def change_key(self) -> list[str]:
        """Of one row; of a partitioned table it may move to another partition."""
        table = self._any()
        keys = [column for column in table.written if column.indexed]
        if not keys:
            raise Unfit("no key")
        return [self._update(table, self._chance.sample(keys, self._chance.randint(1, len(keys))), 1)]

    def swap_keys(self) -> list[str]:
        """Two rows take each other's key, by way of a third."""
        table = pick(self._chance, [t for t in self._tables if [c.type for c in t.key] == ["integer"]])
        key = table.key[0].sql
        two = f"(select {key} from {table.sql} order by md5({key}::text || '{self._chance.random()}') limit 2)"
        low, high = f"(select min(x.k) from {two} x(k))", f"(select max(x.k) from {two} x(k))"
        spare = -self._chance.randrange(1, _SPREAD)
        settings = f"set_config('torture.low', {low}::text, true), set_config('torture.high', {high}::text, true)"
        low, high = (f"current_setting('torture.{name}')::int" for name in ("low", "high"))
        return [
            f"select {settings}",
            f"update {table.sql} set {key} = {spare} where {key} = {low}",
            f"update {table.sql} set {key} = {low} where {key} = {high}",
            f"update {table.sql} set {key} = {high} where {key} = {spare}",
        ]

    def delete(self) -> list[str]:
        table = self._any()
        most = 1 if table.linked else MOST_ROWS // 2
        return [f"delete from {table.sql} where {self._some(table, most)}"]

    def delete_and_insert(self) -> list[str]:
        """A row goes and comes again under its key."""
        table = self._any()
        names = ", ".join(column.sql for column in table.written)
        gone = f"delete from {table.sql} where {self._some(table, 1)} returning {names}"
        again = f"insert into {table.sql} ({names}) overriding system value select {names} from gone"
        return [f"with gone as ({gone}) {again}"]

    def truncate(self) -> list[str]:
        """One or several, all at once."""
        some = self._chance.sample(self._tables, min(len(self._tables), self._chance.choice((1, 1, 2, 3))))
        only = "only " if self._chance.random() < 0.2 and all(t.kind == "r" for t in some) else ""
        names = ", ".join(only + table.sql for table in some)
        cascade = " cascade" if any(table.linked for table in some) or self._chance.random() < 0.3 else ""
        return [f"truncate {names} restart identity{cascade}"]

    def temporary(self) -> list[str]:
        """Of no interest to anybody else."""
        name = f"t{self._chance.randrange(_SPREAD)}"
        return [
            f"create temporary table {name} (id int primary key, note text)",
            f"insert into pg_temp.{name} values (1, 'temporary')",
            f"update pg_temp.{name} set id = 2",
        ]

    def message(self) -> list[str]:
        """Written down for the witness, for whom there is no trigger."""
        content = f"{self._chance.random()}"
        return [
            f"select pg_logical_emit_message(true, 'odd', '{content}')",
            "insert into private.witness (xid, action, old, new) values"
            f" (pg_current_xact_id()::text::bigint & 4294967295, 'message', 'odd', '{content}')",
        ]

    def _any(self) -> Table:
        """Mostly not a partition, but sometimes."""
        roots = [table for table in self._tables if not table.is_partition]
        return pick(self._chance, roots if roots and self._chance.random() < 0.85 else self._tables)

    def _row(self, table: Table, columns: Sequence[Column]) -> str:
        return f"({', '.join(self._value(table, column) for column in columns)})"

    def _value(self, table: Table, column: Column) -> str:
        if self._chance.random() < 0.12 and not column.required:
            return "null"
        if table.partitioned_by and column.sql.strip('"') in table.partitioned_by and column.type == "text":
            return f"'{self._chance.choice(('n', 's', 'e', 'w'))}'"
        if table.linked and column.name == "owner":
            return "(select id from kinds_b.owner order by random() limit 1)"
        make = key_value if column.indexed else value
        return make(self._chance, column.type, _SPREAD, self._moods)

    def _update(self, table: Table, columns: Sequence[Column], most: int) -> str:
        settings = ", ".join(f"{column.sql} = {self._value(table, column)}" for column in columns)
        return f"update {table.sql} set {settings} where {self._some(table, 1 if table.linked else most)}"

    def _some(self, table: Table, most: int) -> str:
        rows = f"select tableoid, ctid from {table.sql} t {self._limit(self._chance.randint(1, most))}"
        return f"(tableoid, ctid) in ({rows})"

    def _limit(self, most: int) -> str:
        return f"order by md5(t.ctid::text || '{self._chance.randrange(_SPREAD)}') limit {most}"


ROW_DEEDS = (
    *("insert",) * 9,
    *("update", "update_small") * 4,
    *("change_key", "delete") * 2,
    *("copy_rows", "swap_keys", "delete_and_insert", "truncate", "temporary", "message"),
)
