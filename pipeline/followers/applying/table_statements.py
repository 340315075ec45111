"""SQL for the follower that writes elements (`pipeline.followers.applying.rendering`) into one table.

`$1` is a JSON array of elements. The statements that change rows by their key return the seq of the first that had to
be there and is not, null where none is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from psycopg import sql

from pipeline.followers.applying.followed_tables import FollowedColumn, FollowedTable
from pipeline.postgres.queries import statement

_COMMA = sql.SQL(", ")
_AND = sql.SQL(" and ")


class TableStatements:
    """Of one table, each composed when it is needed first."""

    def __init__(self, table: FollowedTable) -> None:
        self.table = table
        self._written = [column for column in table.columns if column.written]

    @cached_property
    def delete(self) -> str:
        """Rows by their keys, or without a key by all that they hold, one at a time."""
        return self._compose("delete_rows", given=self._marks, found=self._found, same=self._same_found)

    @cached_property
    def update(self) -> str:
        """The same; what an element leaves out stays as it is, and so does the key."""
        columns = [column for column in self._written if column.equals is None]
        if not columns:
            return self._compose("look_for_rows", given=self._marks, same=self._same_key)
        return self._update(columns)

    @cached_property
    def update_with_key(self) -> str:
        """As `update`, and the key as well."""
        return self._update(self._written)

    def _update(self, columns: Sequence[FollowedColumn]) -> str:
        return self._compose("update_rows", found=self._found, same=self._same_found, set=self._set(columns))

    @cached_property
    def insert(self) -> str:
        """New rows."""
        return self._insert("insert_rows", map(self._value, self._written))

    @cached_property
    def upsert(self) -> str:
        """Rows that may be there."""
        changed = [column for column in self._written if column.equals is None]
        taken = sql.SQL("update set {}").format(self._set(changed, excluded=True)) if changed else sql.SQL("nothing")
        key = _COMMA.join(sql.Identifier(column.name) for column in self.table.key)
        return self._insert("upsert_rows", map(self._value, self._written), key=key, action=taken)

    @cached_property
    def make_carried(self) -> str:
        """The table for what rows have that the log does not say."""
        return self._compose("make_carried", columns=self._carried_values)

    @cached_property
    def take(self) -> str:
        """Delete rows, and keep that."""
        return self._compose("take_rows", given=self._marks, same=self._same_key, carried=self._carried_values)

    @cached_property
    def put_back(self) -> str:
        """Insert them with their new values."""
        values = [*map(self._value_or_carried, self._written)]
        values += [sql.SQL("c.{}").format(self._place(self._carried.index(name))) for name in self.table.own]
        return self._insert("put_back_rows", values, own=self.table.own)

    @cached_property
    def put_new(self) -> str:
        """Insert those that were not there."""
        return self._insert("put_new_rows", map(self._value, self._written), left=self._marked("left"))

    @property
    def _carried(self) -> list[str]:
        """Columns that are kept while a row is out of its table: all but its key."""
        return [*self.table.own, *(column.name for column in self._written if column.equals is None)]

    @property
    def _carried_values(self) -> sql.Composable:
        carried = enumerate(self._carried)
        return sql.Composed(
            [sql.SQL(", t.{} as {}").format(sql.Identifier(name), self._place(place)) for place, name in carried]
        )

    @staticmethod
    def _place(place: int) -> sql.Identifier:
        return sql.Identifier(f"c{place}")

    def _insert(
        self,
        name: str,
        values: Iterator[sql.Composable] | Sequence[sql.Composable],
        own: Sequence[str] = (),
        **parts: Any,
    ) -> str:
        names = [sql.Identifier(each) for each in (*(column.name for column in self._written), *own)]
        listed = sql.SQL("({})").format(_COMMA.join(names)) if names else sql.SQL("")
        parts = {"columns": listed, "values": _COMMA.join(values), **parts}
        return self._compose(name, table=self.table.identifier, **parts)

    def _compose(self, name: str, **parts: Any) -> str:
        given = {
            "table": self.table.target,
            "given": self._given,
            "seq": self._marked("seq"),
            "strict": self._marked("strict"),
            **parts,
        }
        return sql.SQL(statement("followers.applying", name)).format(**given).as_string(None)

    def _marked(self, name: str) -> sql.Identifier:
        return sql.Identifier(f"{self.table.mark}{name}")

    @cached_property
    def _given(self) -> sql.Composable:
        """The columns of an element."""
        values = [sql.SQL("{} {}").format(sql.Identifier(column.name), _type(column)) for column in self._written]
        return _COMMA.join([self._marks, *values])

    @cached_property
    def _marks(self) -> sql.Composable:
        """Those that are not the row's values."""
        listed = [
            sql.SQL("{} bigint").format(self._marked("seq")),
            sql.SQL("{} boolean").format(self._marked("strict")),
            sql.SQL("{} text[]").format(self._marked("left")),
        ]
        for place, column in enumerate(self._identifying):
            listed.append(sql.SQL("{} {}").format(self._marked(f"old{place}"), _type(column)))
            if column.as_text and not self.table.key:
                listed.append(sql.SQL("{} text").format(self._marked(f"like{place}")))
        return _COMMA.join(listed)

    @property
    def _identifying(self) -> Sequence[FollowedColumn]:
        """What of the old row is in an element."""
        return self.table.key or (self.table.columns if self.table.in_order else ())

    @property
    def _found(self) -> sql.Composable:
        if self.table.key:
            return sql.SQL("given s")
        return sql.SQL(
            "(select g.*, f.* from given g cross join lateral ("
            "select x.tableoid as {part}, x.ctid as {place} from {table} x where {same} limit 1) f) s"
        ).format(
            part=self._marked("part"), place=self._marked("place"), table=self.table.target, same=self._same_content
        )

    @property
    def _same_found(self) -> sql.Composable:
        if self.table.key:
            return self._same_key
        return sql.SQL("t.ctid = s.{} and t.tableoid = s.{}").format(self._marked("place"), self._marked("part"))

    @property
    def _same_key(self) -> sql.Composable:
        return _AND.join(
            sql.SQL("t.{} {} {}").format(
                sql.Identifier(column.name),
                sql.SQL(column.equals or ""),
                _typed(column, sql.Identifier("s", f"{self.table.mark}old{place}")),
            )
            for place, column in enumerate(self.table.key)
        )

    @property
    def _same_content(self) -> sql.Composable:
        """Whether the row `x` is the old row of `g`: by what its types print, as not all of them know equality."""
        plain: list[tuple[sql.Composable, sql.Composable]] = []
        conditions = []
        for place, column in enumerate(self.table.columns):
            there = sql.Identifier("x", column.name)
            old = sql.Identifier("g", f"{self.table.mark}old{place}")
            if column.as_text:
                like = sql.Identifier("g", f"{self.table.mark}like{place}")
                conditions.append(
                    sql.SQL(
                        "(coalesce({there}::text, 'null') in ({old}, {like})"
                        " or coalesce(pipeline_follower.document({there}::text) = {like}::jsonb, false))"
                    ).format(there=there, old=old, like=like)
                )
            else:
                plain.append((there, old))
        if plain:
            rows = [sql.SQL("row({})::text").format(_COMMA.join(side)) for side in zip(*plain, strict=True)]
            conditions.insert(0, sql.SQL(" = ").join(rows))
        return _AND.join(conditions) if conditions else sql.SQL("true")

    def _set(self, columns: Sequence[FollowedColumn], *, excluded: bool = False) -> sql.Composable:
        return _COMMA.join(
            sql.SQL("{} = {}").format(sql.Identifier(column.name), self._new_value(column, excluded=excluded))
            for column in columns
        )

    def _new_value(self, column: FollowedColumn, *, excluded: bool) -> sql.Composable:
        there = sql.Identifier("t", column.name)
        value = sql.Identifier("excluded", column.name) if excluded else self._value(column)
        cases = []
        if not excluded:
            cases.append(sql.SQL("when {} = any(s.{}) then {}").format(column.name, self._marked("left"), there))
        if column.large:  # a large value that is written again costs its size in WAL, though it is equal
            cases.append(sql.SQL("when pg_catalog.record_image_eq(row({0}), row({1})) then {0}").format(there, value))
        if not cases:
            return value
        return sql.SQL("case {} else {} end").format(sql.SQL(" ").join(cases), value)

    def _value(self, column: FollowedColumn) -> sql.Composable:
        return _typed(column, sql.Identifier("s", column.name))

    def _value_or_carried(self, column: FollowedColumn) -> sql.Composable:
        if column.equals is not None:
            return self._value(column)
        return sql.SQL("case when {} = any(s.{}) then c.{} else {} end").format(
            column.name, self._marked("left"), self._place(self._carried.index(column.name)), self._value(column)
        )


def _type(column: FollowedColumn) -> sql.Composable:
    return sql.SQL("text" if column.as_text else column.type_name)


def _typed(column: FollowedColumn, value: sql.Composable) -> sql.Composable:
    return sql.SQL("{}::{}").format(value, sql.SQL(column.type_name)) if column.as_text else value
