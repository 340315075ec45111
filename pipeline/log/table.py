"""Events tables: `public.sequin_events`, and others of the same columns under their own name."""

from __future__ import annotations

import json
from dataclasses import dataclass

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus

from pipeline.errors import Unavailable
from pipeline.log import default_partition, indexes, legacy_tables, table_shape
from pipeline.postgres import migrations, queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

CHANNEL = "sequin_events"
"""NOTIFY channel; the payload is `{"table": …, "seq": …}` with the newest seq."""
PATIENCE = "30s"
"""How long whoever makes a table waits for others that do; a migration of an old table gives up sooner."""


@dataclass(frozen=True)
class EventsTable:
    """The qualified name of an events table."""

    schema: str
    name: str

    @classmethod
    def parse(cls, qualified: str) -> EventsTable:
        """From `schema.table`, as the setting has it."""
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
        """The same without its schema; a long table name is cut, as Postgres itself does."""
        return f"{self.name.encode()[:_LONGEST].decode(errors='ignore')}_seq_seq"


DEFAULT = EventsTable("public", "sequin_events")
_LONGEST = 63 - len("_seq_seq")


def ensure_table(connection: Connection, table: EventsTable) -> None:
    """Make an events table like the default one, with a sequence of its own, or migrate one that is from before.

    Raises SchemaError for what is there and is no events table, Unavailable while another session makes or migrates
    tables for long. What readers need and a table from before lacks is made outside of a transaction only, since it may
    take long.
    """
    if not _is_current(connection, table):
        with connection.transaction():
            _wait_for_makers(connection, table)
            _create(connection, table)
    found = table_shape.look(connection, table)
    if found is not None:
        default_partition.add(connection, table, found)
    if found is not None and connection.info.transaction_status == TransactionStatus.IDLE:
        indexes.build(connection, found.oid, indexes.SEQ)


def _is_current(connection: Connection, table: EventsTable) -> bool:
    """Found without a lock: a server that is frozen with it must not keep others from starting."""
    found = table_shape.look(connection, table)
    if found is None:
        return False
    table_shape.refuse_unfit(found, table)
    return found.is_current


def _wait_for_makers(connection: Connection, table: EventsTable) -> None:
    """Until nobody else makes or migrates tables. Inside of a transaction."""
    try:
        with queries.lock_timeout(connection, PATIENCE):
            connection.execute("select pg_advisory_xact_lock(%s)", [migrations.LOCK_KEY])
    except psycopg.errors.LockNotAvailable as error:
        raise Unavailable(
            f"{table} cannot be made: another session has been making or migrating tables for {PATIENCE}; "
            "end it (pg_locks has it under locktype advisory), or try again"
        ) from error


def _create(connection: Connection, table: EventsTable) -> None:
    if table_shape.look(connection, table) is not None:
        legacy_tables.migrate(connection, table)
        return
    names: dict[str, sql.Composable] = {
        "table": table.identifier,
        "column": sql.Identifier(table.schema, table.name, "seq"),
        "sequence": table.sequence,
        "sequence_name": sql.Literal(table.sequence.as_string(connection)),
    }
    connection.execute(sql.SQL(statement("log", "create_table")).format(**names))


def point_view(connection: Connection, table: EventsTable) -> None:
    """`pipeline.events`, the view by which SQL functions find the log, is of this table from now on."""
    name = table.identifier.as_string(connection)
    if connection.execute(statement("log", "view_is_of"), {"table": name}).fetchone() is None:
        connection.execute(sql.SQL(statement("log", "point_view")).format(table=table.identifier))


def last_seq(connection: Connection, table: EventsTable) -> int:
    """The newest seq handed out; 0 before the first event."""
    return int(
        queries.value(
            connection,
            sql.SQL("select case when is_called then last_value else 0 end from {}").format(table.sequence),
            default=0,
        )
    )


def next_seq(connection: Connection, table: EventsTable) -> int:
    """Take the next seq. Numbers taken by a transaction that fails are gaps."""
    row = connection.execute(sql.SQL("select nextval({})").format(_regclass(connection, table))).fetchone()
    assert row is not None  # noqa: S101  a function call
    return int(row[0])


def set_seq(connection: Connection, table: EventsTable, seq: int) -> None:
    """Say that every seq up to this one is taken. Only the one writer of the table may."""
    connection.execute(sql.SQL("select setval({}, {})").format(_regclass(connection, table), sql.Literal(seq)))


def _regclass(connection: Connection, table: EventsTable) -> sql.Composable:
    return sql.SQL("{}::regclass").format(sql.Literal(table.sequence.as_string(connection)))


def news(table: EventsTable, seq: int) -> tuple[str, str]:
    """What readers are told by NOTIFY, as channel and payload: events up to this seq are there."""
    return CHANNEL, json.dumps({"table": str(table), "seq": seq})


def notify(connection: Connection, table: EventsTable, seq: int) -> None:
    """Wake the readers, when the transaction commits."""
    connection.execute("select pg_notify(%s, %s)", news(table, seq))
