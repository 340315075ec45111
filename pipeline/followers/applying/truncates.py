"""Truncates at the follower."""

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
"""A truncate waits for readers, and new ones wait behind it: so it gives up soon, and is tried again."""
Empty = Callable[[Connection, Sequence[sql.Composable], Sequence[sql.Identifier]], None]
"""Empties tables, the second of them by their names for messages."""
_COMMA = sql.SQL(", ")


def apply_truncates(
    follower: Connection,
    tables: FollowedTables,
    truncated: Iterable[tuple[int, int]],
    empty: Empty,
    bound_of: Callable[[int, int], str | None],
) -> None:
    """Those of a pass, but for tables whose events are applied one by one. `truncated`: seqs and oids.

    `bound_of`: SQL that holds for the rows of a partition; None: unknown. Raises NotFollowableError.
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
    """Delete what a partition had that the follower does not have: its rows are in the table, or its partitions."""
    if bound is None:
        raise NotFollowableError(
            f"table {table} of the follower stops before seq {seq}: it truncates a partition that the follower does"
            " not have, and the source cannot say any more which rows it had",
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
    """Empty these tables together, in the transaction that is open, as one statement did at the source.

    A foreign key of a table that is not among them forbids that, also where foreign keys are not checked: then their
    rows are deleted.
    """
    try:
        with follower.transaction():
            follower.execute(sql.SQL("truncate {}").format(_COMMA.join(tables)))
    except psycopg.errors.FeatureNotSupported:
        delete_rows(follower, tables, ())


def delete_rows(follower: Connection, tables: Sequence[sql.Composable], _: Sequence[sql.Identifier]) -> None:
    """Empty them so that others read what they had until this transaction commits."""
    for table in tables:
        follower.execute(sql.SQL("delete from {}").format(table))


def truncate_promptly(follower: Connection, tables: Sequence[sql.Composable], names: Sequence[sql.Identifier]) -> None:
    """The same, where nobody uses them for long. `names`: what they are called.

    Raises TableLockedError with who does.
    """
    if not tables:
        return
    try:
        with follower.transaction(), queries.lock_timeout(follower, LOCK_TIMEOUT):
            truncate_tables(follower, tables)
    except psycopg.errors.LockNotAvailable as error:
        raise locked_error(follower, names, "a truncate") from error


def locked_error(follower: Connection, names: Sequence[sql.Identifier], what: str) -> TableLockedError:
    """Return the error for a statement that gave up waiting for a lock of one of these. `what`: the statement."""
    values = {"names": [name.as_string(follower) for name in names]}
    with follower.cursor(row_factory=dict_row) as cursor:
        found = cursor.execute(statement("followers.applying", "users_of_tables"), values).fetchone()
    if found is None:
        return TableLockedError(f"{what} waited for a session that uses the table, and has ended by now", None)
    said = f"{what} of {found['table']} waits"
    if found["pid"] is None:
        return TableLockedError(f"{said} for a prepared transaction that uses it", None)
    who = f"{found['user_name'] or 'another user'}, {found['application'] or 'no name'}, {found['state'] or 'unknown'}"
    return TableLockedError(f"{said} for pid {found['pid']} ({who}), which uses it", found["pid"])
