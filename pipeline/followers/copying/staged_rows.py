"""Replaces a follower's rows by those of a copy. Equal rows stay, and so do values of the follower's own columns.

The copy is staged in a temporary table, which no other session sees, and which ends with its session. Rows that differ
are written into the table itself. So views, foreign keys, rights and publications of the table stay unchanged, and
other sessions read the previous rows until the transaction commits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import sql

from pipeline.errors import FollowerError
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_ROOM = "followers.copying"
_COMMA, _AND = sql.SQL(", "), sql.SQL(" and ")


class StagedRows:
    """Stages the rows of one table, over a session that stages no other table at the same time."""

    into = sql.Identifier("pg_temp", "pipeline_staged")
    """The temporary table for the copy's rows."""

    def __init__(
        self,
        follower: Connection,
        table: sql.Identifier,
        description: Mapping[str, Any],
        columns: Sequence[str],
        before: Sequence[str],
    ) -> None:
        """`description`: the table as `describe_tables` will return it once its rows are replaced.

        `columns`: the copied columns; all others are the follower's own. `before`: the current names of the copied
        columns that the table already has. The temporary table has only these at first; the caller then alters it to
        the definition of the copy.
        """
        self._follower, self._columns, self._into = follower, list(columns), table
        self._table = table if description["partitioned"] else sql.SQL("only {}").format(table)
        self._key: dict[str, str] = next((key for key in description["keys"] if key and key.keys() <= set(columns)), {})
        generated = {column["name"] for column in description["columns"] if column["generated"]}
        names = [column["name"] for column in description["columns"]]
        self._own = [name for name in names if name not in columns and name not in generated] if self._key else []
        self._mark = "~"
        while any(name.startswith(self._mark) for name in names):
            self._mark += "~"
        follower.execute("drop table if exists pg_temp.pipeline_staged")
        self._run("make_staged", columns=self._column_list("t", before))

    def close(self) -> None:
        """Drop the temporary table."""
        with suppress(psycopg.OperationalError):  # a lost session no longer has the table
            self._follower.execute("drop table if exists pg_temp.pipeline_staged")

    def prepare(self) -> None:
        """Index and analyze the staged rows. Raises FollowerError if several rows have the same follower's key."""
        if self._key:
            listed = _COMMA.join(map(sql.Identifier, self._key))
            try:
                self._follower.execute(sql.SQL("create unique index on {} ({})").format(self.into, listed))
            except psycopg.errors.UniqueViolation as error:
                raise FollowerError(
                    f"the follower has a unique index on {', '.join(self._key)}, and several rows of the"
                    " source have equal values in these columns: drop that index"
                ) from error
        self._follower.execute(sql.SQL("analyze {}").format(self.into))

    def replace(self) -> None:
        """Replace the table's rows by the staged ones, in the open transaction."""
        # The planner does not know the numbers of rows, and a nested loop takes time in their square.
        before = queries.value(self._follower, "select current_setting('enable_nestloop')")
        self._set_locally("enable_nestloop", "off")
        if not self._key:
            self._run("delete_stale_by_content")
            content, number = sql.Identifier(f"{self._mark}c"), sql.Identifier(f"{self._mark}n")
            chosen = self._column_list("c", self._columns)
            self._run("put_missing_by_content", content=content, number=number, chosen=chosen)
        else:
            self._delete_stale()
            self._run("put_missing_by_key", same=self._same_key())
        self._set_locally("enable_nestloop", before)

    def _delete_stale(self) -> None:
        stale = self._composed("delete_stale_by_key", same=self._same_key())
        if not self._own:
            self._follower.execute(stale)
            return
        names = [*self._key, *self._own]
        kept = _COMMA.join(
            sql.SQL("t.{} as {}").format(sql.Identifier(name), _kept_column(index)) for index, name in enumerate(names)
        )
        self._run("make_kept", kept=kept)
        keep = "with gone as (\n{} returning {}) insert into pg_temp.pipeline_kept select * from gone"
        self._follower.execute(sql.SQL(keep).format(stale, kept))
        same = _AND.join(
            sql.SQL("k.{} {} s.{}").format(_kept_column(index), sql.SQL(operator), sql.Identifier(name))
            for index, (name, operator) in enumerate(self._key.items())
        )
        own = _COMMA.join(map(sql.Identifier, self._own))
        values = _COMMA.join(sql.SQL("k.{}").format(_kept_column(index)) for index in range(len(self._key), len(names)))
        columns = _COMMA.join(map(sql.Identifier, self._columns))
        self._run("put_kept", columns=columns, own=own, kept=values, same=same)

    def _same_key(self) -> sql.Composable:
        return _AND.join(
            sql.SQL("t.{0} {1} s.{0}").format(sql.Identifier(name), sql.SQL(operator))
            for name, operator in self._key.items()
        )

    @staticmethod
    def _column_list(alias: str, columns: Sequence[str]) -> sql.Composable:
        return _COMMA.join(sql.Identifier(alias, name) for name in columns)

    def _run(self, name: str, **parts: sql.Composable) -> None:
        self._follower.execute(self._composed(name, **parts))

    def _composed(self, name: str, **parts: sql.Composable) -> sql.Composed:
        listed = sql.SQL("({})").format(_COMMA.join(map(sql.Identifier, self._columns)))
        given = {
            "table": self._table,
            "into": self._into,
            "columns": listed if self._columns else sql.SQL(""),
            "there": self._column_list("t", self._columns),
            "staged": self._column_list("s", self._columns),
            **parts,
        }
        return sql.SQL(statement(_ROOM, name)).format(**given)

    def _set_locally(self, name: str, value: str) -> None:
        self._follower.execute("select set_config(%s, %s, true)", (name, value))


def _kept_column(index: int) -> sql.Identifier:
    return sql.Identifier(f"c{index}")
