"""Partitions by committed_at, as pg_partman makes them for tables from before: a day's is made when a row needs it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from pipeline.postgres import connections
from pipeline.postgres.connections import Connection
from pipeline.postgres.connections import sql as statement

if TYPE_CHECKING:
    from pipeline.log.table import EventsTable

DAY = timedelta(days=1)
_PATIENCE = "200ms"
_WITH_UNDERSCORES = re.compile(r"_p\d{4}_\d\d_\d\d$")
_LONGEST = 63
_BEGINNING, _END = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


class Days:
    """Makes room for events by the time at which they were committed, which may lie in the past.

    A partition holds a day, or what of it no other partition has: one that somebody else made may hold more, or less.
    """

    def __init__(self, connection: Connection, table: EventsTable) -> None:
        self._connection = connection
        self._table = table
        self._there: set[datetime] = set()

    def reserve(self, rows: sql.Composable, values: Mapping[str, Any]) -> None:
        """Every row of this query has a place."""
        query = sql.SQL(statement("events", "find_days")).format(rows=rows)
        for (day,) in self._connection.execute(query, values).fetchall():
            while day not in self._there:
                if self._make(day):
                    self._there.add(day)
                else:
                    time.sleep(0.02)

    def forget(self) -> None:
        """Look again: a transaction that attached partitions may have been rolled back."""
        self._there.clear()

    def _make(self, day: datetime) -> bool:
        """False when a lock was not to be had, or somebody else has just made one: then nothing has happened."""
        known = self._known()
        names = [name for name, _, _ in known]
        try:
            with self._connection.transaction():
                before = self._connection.execute("select current_setting('lock_timeout')").fetchone()
                self._set_lock_timeout(_PATIENCE)
                for lower, upper in gaps(day, [(begin, end) for _, begin, end in known]):
                    self._attach(self._name(day, names), lower, upper)
                self._set_lock_timeout(before[0] if before else "0")
        except (
            psycopg.errors.LockNotAvailable,
            psycopg.errors.DuplicateTable,
            psycopg.errors.InvalidObjectDefinition,  # would overlap
        ):
            return False
        return True

    def _known(self) -> list[tuple[str, datetime, datetime]]:
        with self._connection.transaction():
            self._connection.execute("set local timezone = 'UTC'")
            rows = self._connection.execute(statement("events", "list_days"), {"table": self._named()}).fetchall()
        return [(name, lower or _BEGINNING, upper or _END) for name, lower, upper in rows]

    def _attach(self, name: str, lower: datetime, upper: datetime) -> None:
        names: dict[str, sql.Composable] = {
            "partition": sql.Identifier(self._table.schema, name),
            "table": self._table.identifier,
            "lower": sql.Literal(lower),
            "upper": sql.Literal(upper),
        }
        # Without identity: a partition has none of its own.
        create = "create table {partition} (like {table} including all excluding identity)"
        self._connection.execute(sql.SQL(create).format(**names))
        attach = "alter table {table} attach partition {partition} for values from ({lower}) to ({upper})"
        self._connection.execute(sql.SQL(attach).format(**names))

    def _name(self, day: datetime, known: Sequence[str]) -> str:
        """As pg_partman names it; a detached one may still have that name."""
        written = "_p%Y_%m_%d" if any(_WITH_UNDERSCORES.search(name) for name in known) else "_p%Y%m%d"
        suffix, number = day.astimezone(UTC).strftime(written), 0
        while True:
            end = suffix + (f"_{number}" if number else "")
            name = self._table.name.encode()[: _LONGEST - len(end)].decode(errors="ignore") + end
            quoted = sql.Identifier(self._table.schema, name).as_string(self._connection)
            if connections.value(self._connection, "select to_regclass(%s) is null", [quoted]):
                return name
            number += 1

    def _named(self) -> str:
        return self._table.identifier.as_string(self._connection)

    def _set_lock_timeout(self, value: str) -> None:
        self._connection.execute("select set_config('lock_timeout', %s, true)", (value,))


def gaps(day: datetime, known: Sequence[tuple[datetime, datetime]]) -> Iterator[tuple[datetime, datetime]]:
    """What of the day that begins then is in none of these, which do not overlap."""
    begin, end = day, day + DAY
    for lower, upper in sorted(known):
        if upper <= begin or lower >= end:
            continue
        if lower > begin:
            yield begin, lower
        begin = max(begin, upper)
    if begin < end:
        yield begin, end
