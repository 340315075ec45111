"""Sessions that only read users' tables, at the source or at a follower, and how each of their transactions begins.

When Postgres plans a statement, it runs functions of the table's owner: those of index expressions, of partition keys,
of checks of a parent. Such a function may change settings for the rest of the session, or replace a prepared statement.
So a reading session relies on nothing that an earlier transaction left behind: it prepares nothing, and every
transaction is read only and sets all settings again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import pq, sql
from psycopg.conninfo import make_conninfo

from pipeline.config.settings import Config, describe
from pipeline.errors import SourceUnfitError
from pipeline.postgres import connections, session_settings
from pipeline.postgres.connections import AsyncConnection, Connection
from pipeline.postgres.queries import statement

_SINCE = {"transaction_timeout": {17: 0}, "restrict_nonsystem_relation_kind": {15: 8, 16: 4, 17: 0}}
"""Settings that older servers do not know: the first minor version that knows each of them, by major version."""
_FENCE = {
    "search_path": "",
    "row_security": "off",
    "restrict_nonsystem_relation_kind": "view, foreign-table",
}
"""The settings of every reading transaction, besides those of its session."""
_CATALOG_SECONDS = 5
"""Seconds that a command waits for a connection as the reading role."""


def connect(
    config: Config, *, name: str, settings: Mapping[str, str] = session_settings.SOURCE, **options: Any
) -> Connection:
    """Open a session at the source for reading rows of users' tables, as the reading role.

    The role is that of PIPELINE_SOURCE_READ_DSN, by default that of PIPELINE_SOURCE_DSN. The session prepares nothing.
    Raises DatabaseUnavailableError if the source does not answer, and SourceUnfitError if the two settings name
    different databases.
    """
    dsn = config.source_reading
    connection = connections.connect(dsn, "source", name=name, settings=settings, prepare_threshold=None, **options)
    if dsn == config.source:
        return connection
    try:
        with connections.connect(config.source, "source", name=name, **options) as source:
            _require_same_database(connection, source, dsn)
    except BaseException:
        connection.close()
        raise
    return connection


async def connect_async(config: Config, *, name: str, settings: Mapping[str, str]) -> AsyncConnection:
    """Open a session as `connect` does, for asyncio. Raises psycopg's own errors, and SourceUnfitError."""
    dsn = config.source_reading
    connection = await connections.connect_async(dsn, name=name, settings=settings, prepare_threshold=None)
    if dsn == config.source:
        return connection
    identity = statement("postgres", "database_instance")
    try:
        async with await connections.connect_async(
            config.source, name=name, settings=session_settings.SOURCE
        ) as source:
            found = [await (await each.execute(identity)).fetchone() for each in (connection, source)]
            _require_same(found[0], found[1], dsn)
    except BaseException:
        await connection.close()
        raise
    return connection


def begin(connection: Connection, settings: Mapping[str, str], **local: str | None) -> None:
    """Begin a read-only transaction in one snapshot, with settings for this transaction only; `local` takes precedence.

    The first statement that reads takes the snapshot, so the caller can lock tables before it.
    """
    connection.execute(beginning(connection.info.server_version, settings, **local).encode())


@contextmanager
def transaction(connection: Connection, settings: Mapping[str, str], **local: str | None) -> Iterator[None]:
    """Hold a transaction that `begin` begins. The end rolls it back, with all that a function has set in it."""
    begin(connection, settings, **local)
    try:
        yield
    finally:
        roll_back(connection)


def lock(
    connection: Connection, relations: Sequence[sql.Composable], settings: Mapping[str, str], lock_timeout: str
) -> None:
    """Lock relations against alterations, before the snapshot of the transaction that has just begun.

    Postgres locks a table only for a role that may read all of its columns. For any other role a second session locks
    the relations, by a query that reads none of their rows. It holds them until this transaction, whose snapshot is
    later, has locked them in the same way.
    """
    listed = sql.SQL(", only ").join(relations)
    locked = sql.SQL("savepoint locks; lock table only {} in access share mode; release savepoint locks")
    try:
        connection.execute(locked.format(listed))
    except psycopg.errors.InsufficientPrivilege:
        connection.execute("rollback to savepoint locks; release savepoint locks")
        touched = sql.SQL("; ").join(sql.SQL("select from only {} limit 0").format(each) for each in relations)
        dsn = make_conninfo(connection.info.dsn, password=connection.info.password)
        name = "pipeline lock"
        holding = connections.connect(dsn, "source", name=name, settings=settings, prepare_threshold=None)
        with holding as holder, transaction(holder, settings, lock_timeout=lock_timeout):
            holder.execute(touched)
            connection.execute(touched)


def roll_back(connection: Connection) -> None:
    """Roll back the transaction, if one is open."""
    if not connection.closed and connection.info.transaction_status != pq.TransactionStatus.IDLE:
        connection.execute("rollback")


def beginning(server_version: int, settings: Mapping[str, str], **local: str | None) -> str:
    """Return the SQL of `begin`, for a connection of another kind. `server_version` is libpq's: 160004 for 16.4.

    A setting that is None in `local` stays unchanged.
    """
    values = {**settings, **_FENCE, **local}
    known = {name: value for name, value in values.items() if value is not None and _knows(server_version, name)}
    begin = "begin transaction isolation level repeatable read, read only, not deferrable"
    # All settings are reset first: a value may set only a part, as `ISO` does not set the order of day and month.
    return "; ".join([begin, "reset all", *(f"set local {name} = '{value}'" for name, value in known.items())])


@contextmanager
def catalog_session(config: Config, source: Connection, *, name: str) -> Iterator[Connection]:
    """Yield a session in which the catalog answers for the reading role: `source` itself, if it has that role.

    Use it only to read the catalog. Raises the errors of `connect`.
    """
    if config.source_read_dsn is None:
        yield source
        return
    with connect(config, name=name, connect_timeout=_CATALOG_SECONDS) as reading:
        yield reading


def _knows(server_version: int, name: str) -> bool:
    major, minor = divmod(server_version, 10_000)
    since = _SINCE.get(name)
    return since is None or major > max(since) or minor >= since.get(major, 10_000)


def _require_same_database(reading: Connection, source: Connection, dsn: str) -> None:
    """Raise SourceUnfitError if the two sessions are in different databases.

    The slot is not in a standby or in a restored copy: rows that were read there would have no place in its stream.
    """
    identity = statement("postgres", "database_instance")
    _require_same(reading.execute(identity).fetchone(), source.execute(identity).fetchone(), dsn)


def _require_same(reading: object, source: object, dsn: str) -> None:
    if reading != source:
        raise SourceUnfitError(
            f"PIPELINE_SOURCE_READ_DSN ({describe(dsn)}) is not the database of PIPELINE_SOURCE_DSN: another database,"
            " or another server, such as a standby; name the same server and database with another user"
        )
