"""Migrate a legacy events table, made before commit_lsn, to the current columns; its rows stay byte for byte.

Everything happens in one short transaction, so an interrupted migration has changed nothing. No other session may wait
long for this one, so each lock is tried for a short time only, a few times.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from pipeline.errors import SchemaError
from pipeline.log.table_shape import ADDED, FENCE, KINDS, ExistingRelation, describe_relation, refuse_unfit
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection, one_line
from pipeline.postgres.queries import statement

if TYPE_CHECKING:
    from pipeline.log.table import EventsTable

logger = logging.getLogger(__name__)

ATTEMPTS, LOCK_TIMEOUT, PAUSE = 5, "2s", 1.0
"""Number of tries for a lock, time of each, and seconds in between, in which sessions that wait for it continue."""
RECENTLY = 300
"""If the newest row is older than this many seconds, no other program seems to write to the table."""


def migrate(connection: Connection, table: EventsTable) -> bool:
    """Bring a legacy table to the current columns; False when there is nothing to do.

    Raises SchemaError when it is not an events table, when it has another owner, and when sessions hold it too long.
    """
    found = describe_relation(connection, table)
    if found is None:
        return False
    refuse_unfit(found, table)
    if found.is_current:
        return False
    _warn_of_writers(connection, table)
    attempt(_change, connection, table, found)
    logger.info(
        "events table migrated: its rows are unchanged, new rows get the next seqs",
        extra={"action": "events.migrated", "table": str(table), "columns": ", ".join(found.lacks)},
    )
    return True


def attempt(
    change: Callable[[Connection, EventsTable], None],
    connection: Connection,
    table: EventsTable,
    found: ExistingRelation,
) -> None:
    """Make the change in a transaction, as soon as its locks can be taken. Raises SchemaError as `migrate` does."""
    for _ in range(ATTEMPTS):
        try:
            with connection.transaction(), queries.lock_timeout(connection, LOCK_TIMEOUT):
                change(connection, table)
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
            holders = _holders(connection, found)
            time.sleep(PAUSE)
        except psycopg.errors.InsufficientPrivilege as error:
            raise SchemaError(
                f"{table} cannot be migrated: {one_line(error)}; grant that, or run as a superuser"
            ) from error
        else:
            return
    raise SchemaError(
        f"{table} is from an older version and must be migrated, but is locked by {holders}; "
        "let those transactions end (select pg_terminate_backend(pid) ends a session), and start again"
    )


def seconds_since_newest(connection: Connection, table: EventsTable) -> float | None:
    """Return the seconds since the row with the highest seq arrived; None in an empty table."""
    query = sql.SQL(statement("log", "newest_arrival")).format(events=table.identifier)
    row = connection.execute(query).fetchone()
    return None if row is None or row[0] is None else float(row[0])


def _warn_of_writers(connection: Connection, table: EventsTable) -> None:
    ago = seconds_since_newest(connection, table)
    if ago is not None and ago < RECENTLY:
        logger.warning(
            "another program wrote a row to %s %.0f s ago; stop it: its rows are rejected from now on (constraint %s)",
            table,
            max(0.0, ago),
            FENCE,
            extra={"action": "events.other_writer"},
        )


def _change(connection: Connection, table: EventsTable) -> None:
    connection.execute(sql.SQL("lock table {} in access exclusive mode").format(table.identifier))
    found = describe_relation(connection, table)
    if found is None or found.is_current:
        return
    refuse_unfit(found, table)
    changes: list[sql.Composable] = [
        sql.SQL("add column {} {}").format(
            sql.Identifier(name), sql.SQL(ADDED[name] + (" not null default 0" if name == "source_epoch" else ""))
        )
        for name in found.lacks
    ]
    if not found.has_fence:
        check = sql.SQL("add constraint {} check (commit_lsn is not null) not valid")
        changes.append(check.format(sql.Identifier(FENCE)))
    if not found.columns["inserted_at"].has_default:
        changes.append(sql.SQL("alter column inserted_at set default now()"))
    if changes:
        connection.execute(sql.SQL("alter table {} {}").format(table.identifier, sql.SQL(", ").join(changes)))
    if not found.has_sequence:
        _give_sequence(connection, table, found)


def _give_sequence(connection: Connection, table: EventsTable, found: ExistingRelation) -> None:
    """Give seq its own sequence, with the name that the shuffler knows, starting above every seq in the table."""
    names: dict[str, sql.Composable] = {
        "table": table.identifier,
        "sequence": table.sequence,
        "name": sql.Literal(table.sequence.as_string(connection)),
        "column": sql.Identifier(table.schema, table.name, "seq"),
        "owner": sql.Identifier(found.owner),
    }
    seq = found.columns["seq"]
    taken = _last_value(connection, seq.sequence)
    if seq.identity:
        connection.execute(sql.SQL("alter table {table} alter column seq drop identity").format(**names))
    taken = max(taken, _make_sequence(connection, table, found, names))
    row = connection.execute(sql.SQL("select max(seq) from {table}").format(**names)).fetchone()
    last = max(taken, (row[0] or 0) if row else 0)
    for command in (
        "alter sequence {sequence} as bigint increment by 1 minvalue 1 no maxvalue no cycle",
        "alter sequence {sequence} owner to {owner}",
        "alter table {table} alter column seq set default nextval({name}::regclass)",
        "alter sequence {sequence} owned by {column}",
    ):
        connection.execute(sql.SQL(command).format(**names))
    setval = sql.SQL("select setval({name}::regclass, {last}, {called})")
    connection.execute(setval.format(**names, last=sql.Literal(max(last, 1)), called=sql.Literal(last > 0)))


def _make_sequence(
    connection: Connection, table: EventsTable, found: ExistingRelation, names: Mapping[str, sql.Composable]
) -> int:
    """Create the sequence, or take over one of that name that no other column uses; returns its last value, else 0."""
    values = {"name": table.sequence.as_string(connection), "table": found.oid}
    row = connection.execute(statement("log", "describe_sequence"), values).fetchone()
    if row is None:
        connection.execute(sql.SQL("create sequence {sequence}").format(**names))
        return 0
    oid, kind, of_others = row
    if kind != "S" or of_others:
        what = "a sequence that another column uses" if kind == "S" else KINDS.get(kind, "a table")
        raise SchemaError(
            f"{table} cannot be migrated: its sequence must be named {table.sequence_name}, but that is {what}; "
            "rename it"
        )
    return _last_value(connection, oid)


def _last_value(connection: Connection, sequence: int | None) -> int:
    if sequence is None:
        return 0
    return int(queries.value(connection, "select coalesce(pg_sequence_last_value(%s::oid::regclass), 0)", [sequence]))


def _holders(connection: Connection, found: ExistingRelation) -> str:
    """Return the sessions that hold locks on the table, as far as this user can see them."""
    rows = connection.execute(statement("log", "find_holders"), {"oid": found.oid}).fetchall()
    shown = [
        f"{application or 'a program'} (pid {pid}, user {user}"
        + (f", in a transaction since {since:%Y-%m-%d %H:%M:%S})" if since else ")")
        for pid, user, application, since in rows
    ]
    return ", ".join(shown[:5]) or "a session that this user cannot see"
