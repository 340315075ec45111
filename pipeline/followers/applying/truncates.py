"""Applies truncates at the follower."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from pipeline.errors import NotFollowableError, TableLockedError
from pipeline.followers.applying.followed_tables import FollowedTable, FollowedTables
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

LOCK_TIMEOUT = "1s"
"""The longest wait of a truncate for a lock, since new readers wait behind it. It is tried again later."""
Empty = Callable[[Connection, Sequence[sql.Composable], Sequence[sql.Identifier]], None]
"""A function that empties tables; the second argument has their names for messages."""
_COMMA = sql.SQL(", ")


def apply_truncates(
    follower: Connection,
    tables: FollowedTables,
    truncated: Iterable[tuple[int, int]],
    empty: Empty,
    bound_of: Callable[[int, int], str | None],
) -> None:
    """Apply the truncates of a pass, except for tables whose events are applied one by one.

    `truncated`: seqs and oids. `bound_of`: returns an SQL condition for the rows of a partition; None: unknown. Raises
    NotFollowableError.
    """
    emptied = list[int]()
    targets, names = list[sql.Composable](), list[sql.Identifier]()
    for seq, oid in truncated:
        table = tables[oid]
        if oid not in table.partitions:
            if not table.in_order and oid not in emptied:
                emptied.append(oid)
        elif (leaf := table.partitions[oid]) is not None:
            targets.append(leaf)
            names.append(leaf)
        else:
            _empty_partition(follower, table, seq, bound_of(table.oid, oid))
    targets += [tables[oid].target for oid in emptied]
    names += [tables[oid].identifier for oid in emptied]
    empty(follower, targets, names)


def _empty_partition(follower: Connection, table: FollowedTable, seq: int, bound: str | None) -> None:
    """Delete the rows of a partition that the follower does not have; they are in the table or its partitions."""
    if bound is None:
        raise NotFollowableError(
            f"table {table} of the follower stops before seq {seq}: it truncates a partition that the follower does"
            " not have, and the source no longer knows which rows it had",
            str(table),
            seq,
            "partition",
        )
    query = sql.SQL("delete from {} where {}").format(
        table.target,
        sql.SQL(bound),  # as the catalog prints it
    )
    follower.execute(query)


def truncate_tables(follower: Connection, tables: Sequence[sql.Composable]) -> None:
    """Empty these tables together in the open transaction, as one statement did at the source.

    Postgres forbids that if another table has a foreign key to them, even if foreign keys are not checked. Then their
    rows are deleted.
    """
    try:
        with follower.transaction():
            follower.execute(sql.SQL("truncate {}").format(_COMMA.join(tables)))
    except psycopg.errors.FeatureNotSupported:
        delete_rows(follower, tables, ())


def delete_rows(follower: Connection, tables: Sequence[sql.Composable], _: Sequence[sql.Identifier]) -> None:
    """Delete all rows of these tables, so that other sessions can read the rows until this transaction commits."""
    for table in tables:
        follower.execute(sql.SQL("delete from {}").format(table))


def truncate_promptly(follower: Connection, tables: Sequence[sql.Composable], names: Sequence[sql.Identifier]) -> None:
    """Truncate these tables, or give up after LOCK_TIMEOUT. `names`: their names for messages.

    Raises TableLockedError with the session that uses a table.
    """
    if not tables:
        return
    try:
        with follower.transaction(), queries.lock_timeout(follower, LOCK_TIMEOUT):
            truncate_tables(follower, tables)
    except psycopg.errors.LockNotAvailable as error:
        raise locked_error(follower, names, "a truncate") from error


def locked_error(follower: Connection, names: Sequence[sql.Identifier], what: str) -> TableLockedError:
    """Return the error for a statement that gave up waiting for a lock of these tables. `what`: the statement."""
    values = {"names": [name.as_string(follower) for name in names]}
    with follower.cursor(row_factory=dict_row) as cursor:
        found = cursor.execute(statement("followers.applying", "users_of_tables"), values).fetchone()
    if found is None:
        return TableLockedError(f"{what} waited for a session that used the table and has just ended", None)
    said = f"{what} of {found['table']} waits"
    if found["pid"] is None:
        return TableLockedError(f"{said} for a prepared transaction that uses it", None)
    who = f"{found['user_name'] or 'another user'}, {found['application'] or 'no name'}, {found['state'] or 'unknown'}"
    return TableLockedError(f"{said} for pid {found['pid']} ({who}), which uses it", found["pid"])
