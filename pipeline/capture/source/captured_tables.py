"""Records from when to when each table is in our publications, and what the log therefore lacks of the table.

A table joins with existing rows. A table that is taken out and added again has changed in between. The log has
neither those rows nor those changes, and this record says so.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import psycopg
from psycopg import sql

from pipeline.postgres import copy_data, queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.wal import lsn

logger = logging.getLogger(__name__)

_PATIENCE = "2s"
_PIECES = 8
"""If a table's rows come in this many pieces, reading is cancelled, which takes another connection; fewer are read to
the end."""
_NOT_KNOWN = (
    psycopg.errors.LockNotAvailable,
    psycopg.errors.QueryCanceled,
    psycopg.errors.InsufficientPrivilege,
    psycopg.DataError,
)
_CAPTURE_BEGINS = """\
update pipeline.captured_tables set joined_lsn = %(lsn)s, was_empty = %(was_empty)s, root_oid = %(root)s
where source_id = %(source)s and table_oid = %(oid)s and left_at is null
"""
"""Store from when on a table is captured, and whether it has existing rows."""
_CAPTURED_NOW = "select (pg_catalog.pg_current_wal_insert_lsn() - '0/0')::bigint"
"""The LSN at which the source writes changes now."""
_FORGET_CAPTURED = "delete from pipeline.captured_tables where source_id = %(source)s and table_oid = any(%(oids)s)"
"""Forget tables that were dropped at the source: the log lacks nothing of them."""
_TABLE_JOINED = """\
insert into pipeline.captured_tables (source_id, epoch, table_oid, table_name, joined_lsn, was_empty, root_oid)
values (%(source)s, %(epoch)s, %(oid)s, %(name)s, %(lsn)s, %(was_empty)s, %(root)s)
on conflict do nothing
"""
"""Store that a table is captured from now on; does nothing if that is stored already."""
_UPDATES_BEGIN = """\
update pipeline.captured_tables set root_oid = null
where source_id = %(source)s and table_oid = any(%(oids)s) and left_at is null and root_oid is not null
"""
"""Store that updates and deletes of tables are captured later than the tables joined.

Their roots at joining then say nothing about their rows.
"""


@dataclass(frozen=True)
class CaptureGap:
    """Something that the log lacks of a table; LSNs as integers.

    `what`: "rows" that the table had, or may have had, before it joined at `until_lsn`; or "changes" after
    `from_lsn`, up to `until_lsn`, or up to now if that is None.
    """

    table: str
    what: Literal["rows", "changes"]
    from_lsn: lsn.Shown | None
    until_lsn: lsn.Shown | None
    since: datetime | None
    until: datetime | None


@dataclass(frozen=True)
class MembershipChange:
    """The tables that joined and left publications at an LSN: names by oid. `filled`: tables that may have rows.

    `roots`: the table whose rows each joined table holds.
    """

    at: int
    joined: Mapping[int, str]
    filled: Mapping[int, bool | None]
    roots: Mapping[int, int]
    left: Mapping[int, str]
    dropped: Collection[int]

    def first_rows(self, oid: int) -> dict[str, object]:
        """Return what is stored of a table that joined: whether it was empty (None if not known), and its root."""
        filled = self.filled.get(oid, False)
        return {"was_empty": None if filled is None else not filled, "root": self.roots.get(oid)}


def read_gaps(connection: Connection, source_id: uuid.UUID) -> list[CaptureGap]:
    """Return all recorded gaps, by table and in the order in which they arose."""
    return queries.rows(connection, CaptureGap, statement("capture.source", "gaps"), {"source": source_id})


@dataclass(frozen=True)
class CaptureStart:
    """When a table joined last.

    `was_empty`: it had no rows then, nor did open transactions write any; None: not known. `root_oid`: the table that
    had its rows then, which is the table itself or its partition root. None: not known; or its updates and deletes
    were captured only later, so the log lacks changes of its rows before that.
    """

    id: int
    table_oid: int
    joined_lsn: int
    joined_at: datetime
    was_empty: bool | None
    root_oid: int | None


def read_starts(connection: Connection, source_id: uuid.UUID) -> dict[int, CaptureStart]:
    """Return the last time that each captured table joined, by oid, if that is on record."""
    found = queries.rows(connection, CaptureStart, statement("capture.source", "capture_starts"), {"source": source_id})
    return {each.table_oid: each for each in found}


def find_change(source: Connection, before: Mapping[int, str], now: Mapping[int, str]) -> MembershipChange | None:
    """Compare the tables that publications name, by oid; None if they are the same. The change must be committed."""
    joined = {oid: name for oid, name in now.items() if oid not in before}
    left = {oid: name for oid, name in before.items() if oid not in now}
    if not joined and not left:
        return None
    row = source.execute(_CAPTURED_NOW).fetchone()
    assert row is not None  # noqa: S101  function calls
    (at,) = row
    existing = find_existing(source, left)
    return MembershipChange(
        at,
        joined,
        find_filled(source, joined),
        _roots(source, joined),
        {oid: name for oid, name in left.items() if oid in existing},
        left.keys() - existing,
    )


def record_first_start(
    source: Connection, connection: Connection, source_id: uuid.UUID, now: Mapping[int, str]
) -> None:
    """Store that changes are captured from here on, whenever a table joined: the slot of a first start has just been
    made.
    """
    if (changed := find_change(source, {}, now)) is None:
        return
    for oid in changed.joined:
        values = {"source": source_id, "oid": oid, "lsn": changed.at, **changed.first_rows(oid)}
        connection.execute(_CAPTURE_BEGINS, values)


def record_change(connection: Connection, source_id: uuid.UUID, epoch: int, changed: MembershipChange) -> None:
    """Store the change, and warn of tables that are no longer captured.

    Call it in the transaction that stores what is published.
    """
    place = {"source": source_id, "epoch": epoch, "lsn": changed.at}
    for oid, name in changed.joined.items():
        values = {**place, "oid": oid, "name": name, **changed.first_rows(oid)}
        connection.execute(_TABLE_JOINED, values)
    for oid, name in changed.left.items():
        connection.execute(statement("capture.source", "table_left"), {**place, "oid": oid, "name": name})
        logger.warning(
            "%s was removed from the publication: its changes are no longer captured",
            name,
            extra={"action": "publication.left", "table": name, "lsn": lsn.show(changed.at)},
        )
    if changed.dropped:
        values = {"source": source_id, "oids": list(changed.dropped)}
        connection.execute(_FORGET_CAPTURED, values)


def record_updates_begin(connection: Connection, source_id: uuid.UUID, oids: Collection[int]) -> None:
    """Store that updates and deletes of these tables are captured from now on; until now only inserts were.

    Call it in the transaction that stores what is published.
    """
    if oids:
        values = {"source": source_id, "oids": list(oids)}
        connection.execute(_UPDATES_BEGIN, values)


def find_existing(source: Connection, tables: Collection[int]) -> set[int]:
    """Return those of these relations that exist, by oid."""
    query = "select c.oid::bigint from pg_catalog.pg_class c where c.oid = any(%s::oid[])"
    return {oid for (oid,) in source.execute(query, (list(tables),)).fetchall()} if tables else set()


def _roots(source: Connection, tables: Mapping[int, str]) -> dict[int, int]:
    query = """select c.oid::bigint, coalesce(pg_catalog.pg_partition_root(c.oid), c.oid)::bigint
        from pg_catalog.pg_class c where c.oid = any(%s::oid[])"""
    return dict(source.execute(query, (list(tables),)).fetchall()) if tables else {}


def find_filled(source: Connection, tables: Collection[int]) -> dict[int, bool | None]:
    """Return which of these tables may have rows, by oid; None if that could not be read."""
    if not tables:
        return {}
    try:
        with source.transaction(), queries.lock_timeout(source, _PATIENCE):
            rows = source.execute(statement("capture.source", "possibly_filled"), {"oids": list(tables)}).fetchall()
    except psycopg.errors.LockNotAvailable:
        return dict.fromkeys(tables)
    filled: dict[int, bool | None] = {oid: None for oid, written in rows if written}
    names = _identifiers(source, [oid for oid, written in rows if not written])
    return filled | {oid: _has_row(source, name) for oid, name in names.items()}


def _has_row(source: Connection, name: sql.Identifier) -> bool | None:
    """True if the table has a row; None if that could not be read: deleted rows may come first, and take too long.

    The query is a plain COPY, because planning any other may run functions of the table's owner with the rights of
    this session. Every row counts, even a new one: it may be an old row that was updated since, whose other values
    were never sent.
    """
    has_row = None
    with suppress(*_NOT_KNOWN), source.transaction(force_rollback=True):
        source.execute(f"set local lock_timeout = '{_PATIENCE}'; set local statement_timeout = '{_PATIENCE}'".encode())
        with closing(copy_data.read_rows(source, sql.SQL("copy {} to stdout").format(name))) as rows:
            for pieces, _ in enumerate(rows, 1):
                has_row = True
                if pieces == _PIECES:
                    break
        has_row = has_row or False
    return has_row


def _identifiers(source: Connection, oids: Collection[int]) -> dict[int, sql.Identifier]:
    query = """select c.oid::bigint, n.nspname::text, c.relname::text from pg_catalog.pg_class c
        join pg_catalog.pg_namespace n on n.oid = c.relnamespace where c.oid = any(%s::oid[])"""
    return {oid: sql.Identifier(schema, name) for oid, schema, name in source.execute(query, (list(oids),)).fetchall()}
