"""Random DDL on the odd tables: their names, tables as a whole, partitions. Returns statements."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.torture.plan.deeds_columns import SPREAD, TYPES, ColumnDeeds
from tests.torture.writers.shapes import Table, Unfit, pick, quoted

MOST_TABLES = 36
"""Beyond this many none is added."""


class ShapeDeeds(ColumnDeeds):
    """All deeds that are DDL."""

    # --- names and tables

    def rename_table(self) -> list[str]:
        table = self._whole()
        name = self._chance.choice((f"renamed {self._chance.randrange(99)}", f"{table.name[:20]}_x"))
        return [self._alter(table, f"rename to {quoted(name)}")]

    def swap_tables(self) -> list[str]:
        """Two tables take each other's name."""
        one = self._whole()
        other = pick(self._chance, [t for t in self._roots() if t.schema == one.schema and t.oid != one.oid])
        schema = quoted(one.schema)
        return [
            f"alter table {one.sql} rename to between",
            f"alter table {other.sql} rename to {quoted(one.name)}",
            f"alter table {schema}.between rename to {quoted(other.name)}",
        ]

    def set_schema(self) -> list[str]:
        table = self._whole()
        others = sorted({t.schema for t in self._tables} - {table.schema})
        return [self._alter(table, f"set schema {quoted(self._chance.choice(others or [table.schema]))}")]

    def rename_schema(self) -> list[str]:
        schema = self._chance.choice(sorted({table.schema for table in self._tables}))
        return [f"alter schema {quoted(schema)} rename to {quoted(f'kinds {self._chance.randrange(99)}')}"]

    def recreate(self) -> list[str]:
        """Another table under the name of one that is gone."""
        table = pick(self._chance, [t for t in self._simple() if not t.has_children])
        return [f"drop table {table.sql}", *self._create(table.sql)]

    def create(self) -> list[str]:
        """It joins the publications later."""
        if len(self._tables) > MOST_TABLES:
            raise Unfit("enough tables")
        schema = quoted(self._chance.choice(sorted({table.schema for table in self._tables})))
        return self._create(f"{schema}.{quoted(f'new {self._chance.randrange(SPREAD)}')}")

    def drop(self) -> list[str]:
        if len(self._tables) < MOST_TABLES - 6:
            raise Unfit("too few tables")
        return [f"drop table {pick(self._chance, [t for t in self._simple() if not t.has_children]).sql}"]

    def set_logged(self) -> list[str]:
        table = pick(self._chance, [t for t in self._simple() if t.persistence == "u"])
        return [self._alter(table, "set logged"), f"call private.watch_over('{literal(table.sql)}')"]

    # --- partitions

    def add_partition(self) -> list[str]:
        """Made for it, by list or by range; its columns in another order where it is attached."""
        table = pick(self._chance, [t for t in self._tables if (t.partitioned_by or "").startswith("LIST")])
        if len(self._tables) > MOST_TABLES:
            raise Unfit("enough tables")
        name = f"{quoted(table.schema)}.{quoted(f'part {self._chance.randrange(SPREAD)}')}"
        bound = f"for values in ('x{self._chance.randrange(9)}')"
        if self._chance.random() < 0.5:
            return [
                f"create table {name} partition of {table.sql} {bound}",
                f"call private.watch_over('{literal(name)}')",
            ]
        columns = list(table.columns)
        self._chance.shuffle(columns)
        listed = ", ".join(
            f"{c.sql} {c.full_type}{' not null' if c.required else ''}" for c in columns if not c.generated
        )
        return [
            f"create table {name} ({listed})",
            f"call private.watch_over('{literal(name)}')",
            f"alter table {table.sql} attach partition {name} {bound}",
        ]

    def detach(self) -> list[str]:
        table = self._partition()
        return [f"alter table {table.parent} detach partition {table.sql}"]

    def detach_and_attach(self) -> list[str]:
        table = self._partition()
        return [
            f"alter table {table.parent} detach partition {table.sql}",
            f"alter table {table.parent} attach partition {table.sql} {table.bound}",
        ]

    def drop_partition(self) -> list[str]:
        table = self._partition()
        if self._chance.random() < 0.6:
            raise Unfit("partitions are kept mostly")
        return [f"drop table {table.sql}"]

    # --- the rest

    def add_mood(self) -> list[str]:
        return [f"alter type types.mood add value '{self._chance.randrange(SPREAD)}'"]

    def index(self) -> list[str]:
        """And a constraint: DDL that changes nothing of what a row is."""
        table = self._whole()
        column = self._chance.choice([c for c in table.columns if c.type == "integer"] or table.columns[:1])
        return [f"create index on {table.sql} ({column.sql})", f"comment on table {table.sql} is 'odd'"]

    def _create(self, name: str) -> list[str]:
        columns = [f"c{n} {of}" for n, of in enumerate(self._chance.sample(TYPES, self._chance.randint(1, 5)))]
        key = self._chance.choice((["id int primary key"], ["id int primary key"], ["n bigint primary key"], []))
        self._chance.shuffle(columns)
        return [
            f"create table {name} ({', '.join(columns[:2] + key + columns[2:])})",
            f"call private.watch_over('{literal(name)}')",
        ]

    def _simple(self) -> list[Table]:
        return [table for table in self._roots() if table.kind == "r" and table.parent is None]

    def _partition(self) -> Table:
        return pick(self._chance, [table for table in self._tables if table.is_partition])


def literal(text: str) -> str:
    """Inside of quotes."""
    return text.replace("'", "''")


SHAPE_DEEDS: Sequence[str] = (
    *("add_column", "rename_column", "change_type", "identity") * 2,
    *("drop_column", "drop_and_add_column", "swap_columns", "widen", "rewrite_values", "storage"),
    *("rewrite_and_leave",) * 2,
    *("drop_primary_key", "add_primary_key", "add_primary_key", "change_primary_key", "identity_by_index"),
    *("rename_table", "swap_tables", "set_schema", "rename_schema", "recreate", "create", "drop", "set_logged"),
    *("add_partition", "detach", "detach_and_attach", "drop_partition", "add_mood", "index"),
)
OUTSIDE: dict[str, Callable[[str], str]] = {
    "vacuum_full": lambda name: f"vacuum full {name}",
    "analyze": lambda name: f"analyze {name}",
    "cluster": lambda name: f"cluster {name}",
    "vacuum": lambda name: f"vacuum {name}",
}
"""Never inside of a transaction."""
