"""Create an events table, or migrate a legacy one."""

from __future__ import annotations

import itertools

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus

from pipeline.errors import DatabaseUnavailableError
from pipeline.log import indexes, legacy_tables, table_shape
from pipeline.log.table import EventsTable
from pipeline.log.table_shape import ExistingRelation
from pipeline.postgres import migrations, queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

LOCK_TIMEOUT = "30s"
"""How long to wait for another session that makes tables; a migration of a legacy table gives up sooner."""

_LONGEST = 63
"""The most bytes of a name in Postgres."""


def ensure(connection: Connection, table: EventsTable) -> None:
    """Make an events table like the default one, with its own sequence, or migrate a legacy one of that name.

    Raises SchemaError when something of that name is not an events table, DatabaseUnavailableError when another session
    makes or migrates tables for too long. Indexes that readers need and a legacy table lacks are built outside of a
    transaction only, since that may take long.
    """
    if not _is_current(connection, table):
        with connection.transaction():
            _wait_for_migrations(connection, table)
            _create(connection, table)
    found = table_shape.describe_relation(connection, table)
    if found is not None:
        add_default_partition(connection, table, found)
    if found is not None and connection.info.transaction_status == TransactionStatus.IDLE:
        indexes.build(connection, found.oid, indexes.SEQ)


def _is_current(connection: Connection, table: EventsTable) -> bool:
    """True if the table needs no migration. Takes no lock: a frozen server that has locked the table must not block
    others.
    """
    found = table_shape.describe_relation(connection, table)
    if found is None:
        return False
    table_shape.refuse_unfit(found, table)
    return found.is_current


def _wait_for_migrations(connection: Connection, table: EventsTable) -> None:
    """Wait until no other session makes or migrates tables. Call inside a transaction."""
    try:
        with queries.lock_timeout(connection, LOCK_TIMEOUT):
            connection.execute("select pg_advisory_xact_lock(%s)", [migrations.LOCK_KEY])
    except psycopg.errors.LockNotAvailable as error:
        raise DatabaseUnavailableError(
            f"{table} cannot be created: another session has been creating or migrating tables for {LOCK_TIMEOUT}; "
            "end it (pg_locks shows it with locktype advisory), or try again"
        ) from error


def _create(connection: Connection, table: EventsTable) -> None:
    if table_shape.describe_relation(connection, table) is not None:
        legacy_tables.migrate(connection, table)
        return
    names: dict[str, sql.Composable] = {
        "table": table.identifier,
        "column": sql.Identifier(table.schema, table.name, "seq"),
        "sequence": table.sequence,
        "sequence_name": sql.Literal(table.sequence.as_string(connection)),
    }
    connection.execute(sql.SQL(statement("log", "create_table")).format(**names))
    values = {"name": str(table), "sequence": table.sequence.as_string(connection)}
    connection.execute(statement("log", "jump_of_new_table"), values)


def add_default_partition(connection: Connection, table: EventsTable, found: ExistingRelation) -> None:
    """Add a default partition if the table `found` lacks one. Raises SchemaError if sessions hold the table."""
    if _default_is_lacking(found):
        legacy_tables.attempt(_attach_default, connection, table, found)


def _default_is_lacking(found: ExistingRelation) -> bool:
    return found.partitioned_by == "RANGE (committed_at)" and not found.has_default


def _attach_default(connection: Connection, table: EventsTable) -> None:
    connection.execute(sql.SQL("lock table {} in share update exclusive mode").format(table.identifier))
    found = table_shape.describe_relation(connection, table)
    if found is None or not _default_is_lacking(found):
        return
    names = {"table": table.identifier, "partition": sql.Identifier(table.schema, _default_name(connection, table))}
    # Created, then attached: `partition of` would wait for every reader. A partition cannot have an identity column.
    for command in (
        "create table {partition} (like {table} including all excluding identity)",
        "alter table {table} attach partition {partition} default",
    ):
        connection.execute(sql.SQL(command).format(**names))


def _default_name(connection: Connection, table: EventsTable) -> str:
    """Return the name that pg_partman gives, with a number if a detached partition still has that name."""
    ends = ("_default" + (f"_{number}" if number else "") for number in itertools.count())
    names = (table.name.encode()[: _LONGEST - len(end)].decode(errors="ignore") + end for end in ends)
    return next(name for name in names if _name_is_free(connection, sql.Identifier(table.schema, name)))


def _name_is_free(connection: Connection, name: sql.Identifier) -> bool:
    return bool(queries.value(connection, "select to_regclass(%s) is null", [name.as_string(connection)]))
