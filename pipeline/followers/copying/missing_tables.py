"""Makes the tables that a follower lacks, before the copy; their keys and indexes after it, when they cost less."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psycopg
from psycopg import sql

from pipeline.errors import FollowerError
from pipeline.followers.applying.position import Position
from pipeline.followers.copying import schema_dump
from pipeline.followers.registry import TableName
from pipeline.postgres import connections, queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_ROOM = "followers.copying"


def make(source: Connection, dsn: str, follower: Connection, of: Position, tables: Sequence[TableName]) -> None:
    """Those that the follower lacks, as they are at the source now. `follower`: a session of its own, which is changed.

    What is to be made after the copy is stored in the transaction that makes them. Raises FollowerError.
    """
    with _made(source, dsn, follower, tables) as after:
        if after is not None:
            values = {**vars(of), "after_copy": after}
            follower.execute(statement(_ROOM, "store_after_copy"), values, prepare=False)


def make_whole(source: Connection, dsn: str, follower: Connection, tables: Sequence[TableName]) -> None:
    """The same with their keys and indexes, so that nothing is left to be made."""
    with _made(source, dsn, follower, tables) as after:
        if after is not None:
            follower.execute(after.encode())


@contextmanager
def _made(source: Connection, dsn: str, follower: Connection, tables: Sequence[TableName]) -> Iterator[str | None]:
    """In a transaction with those that are missing; what is to be made after their rows, None where none is missing."""
    missing = _missing(follower, tables)
    oids = {"oids": [table.table_oid for table in missing]}
    found = source.execute(statement(_ROOM, "tree_of_tables"), oids).fetchall() if missing else []
    if not found:
        yield None
        return
    dump = schema_dump.read(source, dsn, [name for name, _ in found])
    known = follower.execute("select name from pg_catalog.pg_settings").fetchall()
    preamble = dump.preamble(name for (name,) in known)
    with _explained(missing), follower.transaction():
        for schema in sorted({schema for _, schema in found}):
            follower.execute(sql.SQL("create schema if not exists {}").format(sql.Identifier(schema)))
        follower.execute((preamble + dump.before).encode())
        yield preamble + dump.after


def is_unfinished(follower: Connection, of: Position) -> bool:
    """Whether something is to be made after the copy."""
    return queries.value(follower, statement(_ROOM, "find_after_copy"), vars(of)) is not None


def finish(follower: Connection, of: Position) -> None:
    """Keys and indexes of the tables that were made, once all are copied; nothing where they are there."""
    with follower.transaction():
        rest = queries.value(follower, statement(_ROOM, "find_after_copy"), vars(of))
        if rest is None:
            return
        follower.execute(statement(_ROOM, "store_after_copy"), {**vars(of), "after_copy": None})
        with _explained([]):
            follower.execute(rest.encode())


def _missing(follower: Connection, tables: Sequence[TableName]) -> list[TableName]:
    names = {(table.table_schema, table.table_name): table for table in tables}
    values = {"schemas": [schema for schema, _ in names], "names": [name for _, name in names]}
    return [names[found] for found in follower.execute(statement(_ROOM, "missing_tables"), values).fetchall()]


@contextmanager
def _explained(tables: Sequence[TableName]) -> Iterator[None]:
    """Say what the follower does not let us make."""
    try:
        yield
    except psycopg.Error as error:
        if connections.is_gone(error) or connections.is_ours(error):
            raise
        what = ", ".join(f"{table.table_schema}.{table.table_name}" for table in tables[:5]) or "keys and indexes"
        raise FollowerError(
            f"--schema create: the follower does not let us make {what}: {connections.one_line(error)}"
            f" (SQLSTATE {error.sqlstate}); make there what is missing"
        ) from error
