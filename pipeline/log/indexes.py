"""Build the indexes that a legacy events table lacks, concurrently: no reader or writer waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

SEQ = ("seq",)
"""The columns of the index in whose order every reader reads the log."""
ROW_HISTORY = ("source_database_id", "source_table_oid", "record_pk", "seq")
"""The columns of the index that finds all events of one row."""


@dataclass(frozen=True)
class _Index:
    """An index of a table or partition; `index_oid` is None if it has none. Names are quoted already."""

    table_oid: int
    table_name: str
    is_root: bool
    is_partitioned: bool
    index_oid: int | None
    index_name: str | None
    valid: bool | None
    attached_to: int | None


def index_exists(connection: Connection, oid: int, columns: Sequence[str]) -> bool:
    """Return True if a table has a usable index that begins with these columns."""
    return any(each.is_root and each.valid for each in _indexes(connection, oid, columns))


def build(connection: Connection, oid: int, columns: Sequence[str]) -> None:
    """Build the index concurrently, unless it exists. If a call is interrupted, the next one continues its work.

    The connection must be in autocommit mode and outside of a transaction; no other session may build the same index.
    """
    found = _indexes(connection, oid, columns)
    root = found[0]
    if root.valid:
        return
    if not root.is_partitioned:
        _build_one(connection, found, root.table_name, columns)
        return
    if root.index_oid is None:
        connection.execute(_create("create index on only", root.table_name, columns))
        found = _indexes(connection, oid, columns)
        root = found[0]
    for partition in {each.table_name: None for each in found if not each.is_root}:
        _attach(connection, oid, root, partition, columns)


def _attach(connection: Connection, oid: int, root: _Index, partition: str, columns: Sequence[str]) -> None:
    own = [each for each in _indexes(connection, oid, columns) if each.table_name == partition]
    if any(each.attached_to == root.index_oid for each in own):
        return
    if not any(each.valid and each.attached_to is None for each in own):
        _build_one(connection, own, partition, columns)
        own = [each for each in _indexes(connection, oid, columns) if each.table_name == partition]
    made = next(each for each in own if each.valid and each.attached_to is None)
    attach = sql.SQL("alter index {} attach partition {}")
    connection.execute(attach.format(_name(root.index_name), _name(made.index_name)))


def _build_one(connection: Connection, known: Sequence[_Index], table: str, columns: Sequence[str]) -> None:
    for each in known:
        if each.table_name == table and each.valid is False:  # left by a build that was interrupted
            connection.execute(sql.SQL("drop index concurrently if exists {}").format(_name(each.index_name)))
    connection.execute(_create("create index concurrently on", table, columns))


def _create(command: str, table: str, columns: Sequence[str]) -> sql.Composed:
    named = sql.SQL(", ").join(sql.Identifier(column) for column in columns)
    return sql.SQL("{} {} ({})").format(_name(command), _name(table), named)


def _name(text: str | None) -> sql.SQL:
    """Return the name as SQL, unchanged: the server has quoted it already."""
    return sql.SQL(text or "")


def _indexes(connection: Connection, oid: int, columns: Sequence[str]) -> list[_Index]:
    values = {"oid": oid, "columns": list(columns)}
    return queries.rows(connection, _Index, statement("log", "list_indexes"), values)
