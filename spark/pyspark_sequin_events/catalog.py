"""Reads from the pipeline database the head of an events table, and the schema versions of its source tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import lru_cache
from typing import Any, cast

import adbc_driver_postgresql
from adbc_driver_manager import AdbcConnection, AdbcDatabase
from adbc_driver_postgresql import dbapi

from pyspark_sequin_events import session_settings
from pyspark_sequin_events.dsn import with_own_password
from pyspark_sequin_events.history import SchemaVersion, table_versions, versions
from pyspark_sequin_events.query import bounded, qualified, within

_RELATIONS = """
    select id, source_id::text, epoch, from_lsn, from_idx, columns::text, to_json(key_columns)::text as key_columns
    from pipeline.relations
    where table_schema = $1 and table_name = $2
    order by id
"""
_UNQUOTED = "-c quote_all_identifiers=off"


@contextmanager
def connect(dsn: str) -> Iterator[dbapi.Connection]:
    """Open a connection in autocommit, with our session settings. Raises adbc_driver_manager.Error with libpq's reason.

    If the DSN has no password, the one in this process's own PIPELINE_DATABASE_DSN is used, if its place is the same.
    """
    with closing(_open_connection(with_own_password(dsn))) as connection:
        rows(connection, session_settings.statement())
        yield connection


def _open_connection(dsn: str) -> dbapi.Connection:
    known = _known_types(dsn)
    return dbapi.Connection(_Lasting(known), AdbcConnection(known), autocommit=True)


@lru_cache(maxsize=8)
def _known_types(dsn: str) -> AdbcDatabase:
    """Return a driver that has read the types of a database for all connections: that takes 50 ms of processor time.

    The driver reads the names of the types. If the server quotes these names, the driver recognizes no type.
    """
    database = adbc_driver_postgresql.connect(dsn)
    with closing(dbapi.Connection(_Lasting(database), AdbcConnection(database), autocommit=True)) as connection:
        [row] = rows(connection, "select (current_setting('quote_all_identifiers') = 'on')::int as quoted")
    if row["quoted"] == 0:
        return cast(AdbcDatabase, database)
    more = "?" if "?" not in dsn else "&"
    unquoted = f"{more}options=-c%20quote_all_identifiers%3Doff" if "://" in dsn else f" options='{_UNQUOTED}'"
    return cast(AdbcDatabase, adbc_driver_postgresql.connect(dsn + unquoted))


class _Lasting:
    """A database that its last connection does not close."""

    def __init__(self, database: AdbcDatabase) -> None:
        self._database = database

    def close(self) -> None:
        """Do nothing: the cache keeps the database open."""


def rows(connection: dbapi.Connection, query: str, parameters: tuple[Any, ...] = ()) -> list[dict[str, Any]]:
    """Return the rows of a query."""
    with closing(connection.cursor()) as cursor:
        cursor.execute(query, parameters)
        found: list[dict[str, Any]] = cursor.fetch_arrow_table().to_pylist()
        return found


def execute(connection: dbapi.Connection, statement: str, parameters: tuple[Any, ...] = ()) -> None:
    """Execute a statement that returns no rows."""
    with closing(connection.cursor()) as cursor:
        cursor.execute(statement, parameters)


def head(connection: dbapi.Connection, events_table: str, after: int = 0) -> int:
    """Return the newest seq, at least `after`. No smaller seq appears later (G4), so a range may end at it.

    With `after`, Postgres does not read the partitions before that seq.
    """
    newer = f" where seq > {int(after)}" if after > 0 else ""
    query = f"select coalesce(max(seq), {max(0, int(after))}) as seq from {qualified(events_table)}{newer}"
    return int(rows(connection, query)[0]["seq"])


def newest(connection: dbapi.Connection, events_table: str) -> int | None:
    """Return the newest seq that a reader can have received, dropped or not; None at a standby, which may be behind."""
    query = f"""
        select greatest((select max(seq) from {qualified(events_table)}),
            (select max(dropped_below) - 1 from pipeline.retention where events_table = $1), 0) as seq
        where not pg_is_in_recovery()"""
    found = rows(connection, query, (events_table,))
    return int(found[0]["seq"]) if found else None


def before_jump(connection: dbapi.Connection, events_table: str, seq: int) -> int:
    """Return this seq, or if the log has skipped it since a restore, the newest seq before the skipped range."""
    found = rows(connection, "select pipeline.before_jump($1, $2) as seq", (events_table, int(seq)))
    return int(found[0]["seq"])


def ranges(
    connection: dbapi.Connection, events_table: str, bounds: tuple[int, int], step: int, most: int
) -> Iterator[tuple[int, int]]:
    """Divide a range into parts of `step` seqs; if that might make more than `most` parts, into parts of `step` events.

    In a legacy table a seq may be a time in microseconds: each part of `step` seqs would have few events.
    """
    after, upto = bounds
    if upto - after <= most * step:
        yield from _by_seq(connection, events_table, bounds, step)
        return
    while after < upto:
        end = _nth(connection, events_table, (after, upto), step)
        yield after, end
        after = end


def _by_seq(
    connection: dbapi.Connection, events_table: str, bounds: tuple[int, int], step: int
) -> list[tuple[int, int]]:
    """Return parts that each end `step` seqs after their first event, so that no part is an empty gap."""
    after, upto = map(int, bounds)
    if after >= upto:
        return []

    def end(behind: str) -> str:
        first = f"select seq from {qualified(events_table)} where seq > {behind} and seq <= {upto} order by seq limit 1"
        return f"least(coalesce(({first}), {upto}) - 1 + {int(step)}, {upto})::bigint"

    query = f"""
        with recursive part(after, upto) as (
            select {after}::bigint, {end(str(after))}
            union all
            select part.upto, {end("part.upto")} from part where part.upto < {upto}
        )
        select after, upto from part order by after"""
    return [(row["after"], row["upto"]) for row in rows(connection, query)]


def cut_seqs(connection: dbapi.Connection, query: str, bounds: tuple[int, int], number: int) -> list[int]:
    """Return seqs that divide the rows of `query` into parts of `number` rows, the last of which may be smaller."""
    numbered = f"select seq, row_number() over (order by seq) as place from ({within(query, *bounds)}) as held"
    found = rows(connection, f"select seq from ({numbered}) as numbered where place % {int(number)} = 0 order by seq")
    return [int(row["seq"]) for row in found]


def _nth(connection: dbapi.Connection, events_table: str, bounds: tuple[int, int], number: int) -> int:
    """Return the seq of the event with that number in the range; the end of the range if it has fewer events."""
    query = (
        f"select seq from {qualified(events_table)} where {bounded(*bounds)}"
        f" order by seq offset {int(number) - 1} limit 1"
    )
    found = rows(connection, query)
    return int(found[0]["seq"]) if found else bounds[1]


def dropped_below(connection: dbapi.Connection, events_table: str) -> int:
    """Return the seq below which retention has dropped every event, or is about to; 1 if it has dropped none."""
    found = rows(connection, "select dropped_below from pipeline.retention where events_table = $1", (events_table,))
    return int(found[0]["dropped_below"]) if found else 1


def find_tables(connection: dbapi.Connection, table: str) -> list[tuple[str, str]]:
    """Return schema and name of the source tables that `schema.table` may mean: several, if names contain dots."""
    found = rows(
        connection,
        "select distinct table_schema, table_name from pipeline.relations"
        " where table_oid <> 0 and table_schema || '.' || table_name = $1",
        (table,),
    )
    return [(row["table_schema"], row["table_name"]) for row in found]


def relations(connection: dbapi.Connection, schema: str, name: str) -> list[dict[str, Any]]:
    """Return the rows of the relation history for a source table, for `history.table_versions`."""
    return rows(connection, _RELATIONS, (schema, name))


def history(connection: dbapi.Connection, schema: str, name: str) -> list[SchemaVersion]:
    """Return the schema versions of a source table; none if the server has never seen the table."""
    return versions(table_versions(relations(connection, schema, name)))
