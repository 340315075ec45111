"""Sessions that only read users' tables, at the source or at a follower, and how each of their transactions begins.

Postgres runs functions of a table's owner when it plans a statement: those of index expressions, of partition keys, of
checks of a parent. Such a function may change what holds for the rest of the session, or replace a prepared statement.
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
"""Settings that an older server does not know: of each major version the first minor one that has it."""
_FENCE = {
    "search_path": "",
    "row_security": "off",
    "restrict_nonsystem_relation_kind": "view, foreign-table",
}
"""What every reading transaction sets besides its session's settings."""
_CATALOG_SECONDS = 5
"""How long a command waits for the reading role's session."""


def connect(
    config: Config, *, name: str, settings: Mapping[str, str] = session_settings.SOURCE, **options: Any
) -> Connection:
    """Open a session at the source for reading rows of users' tables, as the reading role.

    The role is that of PIPELINE_SOURCE_READ_DSN, by default that of PIPELINE_SOURCE_DSN. Nothing is prepared in it.
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
    """As `connect`, for asyncio. Raises psycopg's own errors, and SourceUnfitError."""
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
    """Begin a read-only transaction in one snapshot, with these settings for it alone; `local` takes precedence.

    The snapshot is taken by the first statement after it, so a lock may come first.
    """
    connection.execute(beginning(connection.info.server_version, settings, **local).encode())


@contextmanager
def transaction(connection: Connection, settings: Mapping[str, str], **local: str | None) -> Iterator[None]:
    """Hold a transaction as `begin` begins it. It is rolled back, with all that a function has set in it."""
    begin(connection, settings, **local)
    try:
        yield
    finally:
        roll_back(connection)


def lock(
    connection: Connection, relations: Sequence[sql.Composable], settings: Mapping[str, str], lock_timeout: str
) -> None:
    """Lock relations so that nothing alters them, before the snapshot of the transaction that has just begun.

    Postgres locks a table only for a role that may read all of its columns. For another role, a second session holds
    the relations, by reading none of their rows, until this transaction, whose snapshot is later, holds them as well.
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
    """End the transaction, if there is one."""
    if not connection.closed and connection.info.transaction_status != pq.TransactionStatus.IDLE:
        connection.execute("rollback")


def beginning(server_version: int, settings: Mapping[str, str], **local: str | None) -> str:
    """The text of `begin`, for a connection of another kind. `server_version`: as libpq has it, 160004 for 16.4.

    A setting that is None in `local` stays as it is.
    """
    values = {**settings, **_FENCE, **local}
    known = {name: value for name, value in values.items() if value is not None and _knows(server_version, name)}
    begin = "begin transaction isolation level repeatable read, read only, not deferrable"
    # First as when the session began: of DateStyle, for one, `ISO` sets a half, and the other says what 1/2/2024 is.
    return "; ".join([begin, "reset all", *(f"set local {name} = '{value}'" for name, value in known.items())])


@contextmanager
def catalog_session(config: Config, source: Connection, *, name: str) -> Iterator[Connection]:
    """A session in which the catalog answers for the reading role: `source` itself if that is its role.

    For looks at the catalog alone. Raises what `connect` raises.
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
    """A standby or a restored copy has no stream of ours: rows that were read there would have no place in it."""
    identity = statement("postgres", "database_instance")
    _require_same(reading.execute(identity).fetchone(), source.execute(identity).fetchone(), dsn)


def _require_same(reading: object, source: object, dsn: str) -> None:
    if reading != source:
        raise SourceUnfitError(
            f"PIPELINE_SOURCE_READ_DSN ({describe(dsn)}) is not the database of PIPELINE_SOURCE_DSN: another database,"
            " or another server, such as a standby; name the same server and database with another user"
        )
