"""An events table is made, or an older one brought up to date."""

from __future__ import annotations

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus

from pipeline.errors import Unavailable
from pipeline.log import default_partition, indexes, legacy_tables, table_shape
from pipeline.log.table import EventsTable
from pipeline.postgres import migrations, queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

PATIENCE = "30s"
"""How long whoever makes a table waits for others that do; a migration of an old table gives up sooner."""


def ensure(connection: Connection, table: EventsTable) -> None:
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
