"""Events tables: `public.sequin_events`, and others with the same columns under their own names."""

from __future__ import annotations

import json
from dataclasses import dataclass

from psycopg import sql

from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

CHANNEL = "sequin_events"
"""NOTIFY channel; the payload is `{"table": …, "seq": …}` with the newest seq."""


@dataclass(frozen=True)
class EventsTable:
    """The qualified name of an events table."""

    schema: str
    name: str

    @classmethod
    def parse(cls, qualified: str) -> EventsTable:
        """Parse `schema.table`, the form of the setting."""
        schema, _, name = qualified.partition(".")
        return cls(schema, name)

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def identifier(self) -> sql.Identifier:
        """The name, quoted for SQL."""
        return sql.Identifier(self.schema, self.name)

    @property
    def sequence(self) -> sql.Identifier:
        """The sequence that hands out its seq, quoted for SQL."""
        return sql.Identifier(self.schema, self.sequence_name)

    @property
    def sequence_name(self) -> str:
        """The name of the sequence without its schema; a long table name is cut, as Postgres itself cuts it."""
        return f"{self.name.encode()[:_LONGEST].decode(errors='ignore')}_seq_seq"


DEFAULT = EventsTable("public", "sequin_events")
_LONGEST = 63 - len("_seq_seq")


def point_view(connection: Connection, table: EventsTable) -> None:
    """Let the view `pipeline.events`, by which SQL functions find the log, show this table."""
    name = table.identifier.as_string(connection)
    if connection.execute(statement("log", "view_is_of"), {"table": name}).fetchone() is None:
        connection.execute(sql.SQL(statement("log", "point_view")).format(table=table.identifier))


def last_seq(connection: Connection, table: EventsTable) -> int:
    """The newest seq handed out, behind a jump the newest before it; 0 before the first event."""
    query = sql.SQL(statement("log", "last_seq")).format(sequence=table.sequence)
    return int(queries.value(connection, query, {"name": str(table)}, default=0))


def next_seq(connection: Connection, table: EventsTable) -> int:
    """Take the next seq. Numbers taken by a transaction that fails are gaps."""
    row = connection.execute(sql.SQL("select nextval({})").format(_regclass(connection, table))).fetchone()
    assert row is not None  # noqa: S101  a function call
    return int(row[0])


def set_seq(connection: Connection, table: EventsTable, seq: int) -> None:
    """Mark every seq up to this one as taken. Only the table's one writer may call this."""
    connection.execute(sql.SQL("select setval({}, {})").format(_regclass(connection, table), sql.Literal(seq)))


def _regclass(connection: Connection, table: EventsTable) -> sql.Composable:
    return sql.SQL("{}::regclass").format(sql.Literal(table.sequence.as_string(connection)))


def notification(table: EventsTable, seq: int) -> tuple[str, str]:
    """Channel and payload of the NOTIFY that tells readers that events up to this seq are in the log."""
    return CHANNEL, json.dumps({"table": str(table), "seq": seq})


def notify(connection: Connection, table: EventsTable, seq: int) -> None:
    """Wake the readers, when the transaction commits."""
    connection.execute("select pg_notify(%s, %s)", notification(table, seq))
