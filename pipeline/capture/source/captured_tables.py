"""From when to when each table is in our publications, and what the log therefore lacks of it.

A table joins with the rows that it has by then, and one that is taken out and added again has changed in between: the
log has neither, and this is where that is on record.
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
"""Rows of a table that come in so many pieces are read to their end; to cancel more takes another connection."""
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
"""Since when a table is captured, and whether it has rows from before."""
_CAPTURED_NOW = "select (pg_catalog.pg_current_wal_insert_lsn() - '0/0')::bigint"
"""Where changes are written now."""
_FORGET_CAPTURED = "delete from pipeline.captured_tables where source_id = %(source)s and table_oid = any(%(oids)s)"
"""A table that was dropped at the source: nothing of it is missing any more."""
_TABLE_JOINED = """\
insert into pipeline.captured_tables (source_id, epoch, table_oid, table_name, joined_lsn, was_empty, root_oid)
values (%(source)s, %(epoch)s, %(oid)s, %(name)s, %(lsn)s, %(was_empty)s, %(root)s)
on conflict do nothing
"""
"""A table is captured from now on; nothing where that is known."""
_UPDATES_BEGIN = """\
update pipeline.captured_tables set root_oid = null
where source_id = %(source)s and table_oid = any(%(oids)s) and left_at is null and root_oid is not null
"""
"""Updates and deletes of tables are captured later than they joined: what they were when they joined says nothing
now."""


@dataclass(frozen=True)
class CaptureGap:
    """What the log lacks of a table; LSNs as integers.

    `what`: "rows", which it had, or may have had, before `until_lsn`, where it joined; or "changes" after `from_lsn`,
    up to `until_lsn`, or up to now where that is None.
    """

    table: str
    what: Literal["rows", "changes"]
    from_lsn: lsn.Shown | None
    until_lsn: lsn.Shown | None
    since: datetime | None
    until: datetime | None


@dataclass(frozen=True)
class MembershipChange:
    """Tables that joined, and those that left, by oid with their names, at an LSN. `filled`: they may have rows.

    `roots`: of those that joined, which table's rows they have.
    """

    at: int
    joined: Mapping[int, str]
    filled: Mapping[int, bool | None]
    roots: Mapping[int, int]
    left: Mapping[int, str]
    dropped: Collection[int]

    def first_rows(self, oid: int) -> dict[str, object]:
        """What is stored of one that joined: whether it was empty, None where that is not known, and its root."""
        filled = self.filled.get(oid, False)
        return {"was_empty": None if filled is None else not filled, "root": self.roots.get(oid)}


def read_gaps(connection: Connection, source_id: uuid.UUID) -> list[CaptureGap]:
    """All that is on record, by table and in the order in which it happened."""
    return queries.rows(connection, CaptureGap, statement("capture.source", "gaps"), {"source": source_id})


@dataclass(frozen=True)
class CaptureStart:
    """When a table joined last. `was_empty`: it had no rows then, and none of open transactions; None: not known.

    `root_oid`: which table its rows were in then, itself or what it was a partition of; None: not known, or its
    updates and deletes were captured only later, and what was done to its rows before that is not in the log.
    """

    id: int
    table_oid: int
    joined_lsn: int
    joined_at: datetime
    was_empty: bool | None
    root_oid: int | None


def read_starts(connection: Connection, source_id: uuid.UUID) -> dict[int, CaptureStart]:
    """The last time that each captured table joined, by oid, where that is on record."""
    found = queries.rows(connection, CaptureStart, statement("capture.source", "capture_starts"), {"source": source_id})
    return {each.table_oid: each for each in found}


def find_change(source: Connection, before: Mapping[int, str], now: Mapping[int, str]) -> MembershipChange | None:
    """How the tables differ that publications name, by oid; None where they do not. The change must be committed."""
    joined = {oid: name for oid, name in now.items() if oid not in before}
    left = {oid: name for oid, name in before.items() if oid not in now}
    if not joined and not left:
        return None
    row = source.execute(_CAPTURED_NOW).fetchone()
    assert row is not None  # noqa: S101  function calls
    (at,) = row
    there = find_existing(source, left)
    return MembershipChange(
        at,
        joined,
        find_filled(source, joined),
        _roots(source, joined),
        {oid: name for oid, name in left.items() if oid in there},
        left.keys() - there,
    )


def record_first_start(
    source: Connection, connection: Connection, source_id: uuid.UUID, now: Mapping[int, str]
) -> None:
    """The slot of a first start has just been made: changes are captured from here on, whenever a table joined."""
    if (changed := find_change(source, {}, now)) is None:
        return
    for oid in changed.joined:
        values = {"source": source_id, "oid": oid, "lsn": changed.at, **changed.first_rows(oid)}
        connection.execute(_CAPTURE_BEGINS, values)


def record_change(connection: Connection, source_id: uuid.UUID, epoch: int, changed: MembershipChange) -> None:
    """Store it, and warn of what is no longer captured. In the transaction that stores what is published."""
    place = {"source": source_id, "epoch": epoch, "lsn": changed.at}
    for oid, name in changed.joined.items():
        values = {**place, "oid": oid, "name": name, **changed.first_rows(oid)}
        connection.execute(_TABLE_JOINED, values)
    for oid, name in changed.left.items():
        connection.execute(statement("capture.source", "table_left"), {**place, "oid": oid, "name": name})
        logger.warning(
            "%s is taken out of the publication: its changes are not captured from now on",
            name,
            extra={"action": "publication.left", "table": name, "lsn": lsn.show(changed.at)},
        )
    if changed.dropped:
        values = {"source": source_id, "oids": list(changed.dropped)}
        connection.execute(_FORGET_CAPTURED, values)


def record_updates_begin(connection: Connection, source_id: uuid.UUID, oids: Collection[int]) -> None:
    """Of these tables inserts alone were captured until now. In the transaction that stores what is published."""
    if oids:
        values = {"source": source_id, "oids": list(oids)}
        connection.execute(_UPDATES_BEGIN, values)


def find_existing(source: Connection, tables: Collection[int]) -> set[int]:
    """Which of these relations there are, by oid."""
    query = "select c.oid::bigint from pg_catalog.pg_class c where c.oid = any(%s::oid[])"
    return {oid for (oid,) in source.execute(query, (list(tables),)).fetchall()} if tables else set()


def _roots(source: Connection, tables: Mapping[int, str]) -> dict[int, int]:
    query = """select c.oid::bigint, coalesce(pg_catalog.pg_partition_root(c.oid), c.oid)::bigint
        from pg_catalog.pg_class c where c.oid = any(%s::oid[])"""
    return dict(source.execute(query, (list(tables),)).fetchall()) if tables else {}


def find_filled(source: Connection, tables: Collection[int]) -> dict[int, bool | None]:
    """Which of these tables may have rows, by oid; None where that could not be read."""
    if not tables:
        return {}
    found: dict[int, bool | None] = {}
    try:
        with source.transaction(), queries.lock_timeout(source, _PATIENCE):
            rows = source.execute(statement("capture.source", "possibly_filled"), {"oids": list(tables)}).fetchall()
    except psycopg.errors.LockNotAvailable:
        return dict.fromkeys(tables)
    found.update(dict.fromkeys(oid for oid, written in rows if written))
    names = _identifiers(source, [oid for oid, written in rows if not written])
    return found | {oid: _has_row(source, name) for oid, name in names.items()}


def _has_row(source: Connection, name: sql.Identifier) -> bool | None:
    """A row is found at once; if deleted ones have to be read first it may take too long.

    By a plain COPY, because to plan a query of a table may run functions of its owner with the rights of this session.
    Any row counts, however new: it may be an old one that was updated since, whose other values were never sent.
    """
    found = None
    with suppress(*_NOT_KNOWN), source.transaction(force_rollback=True):
        source.execute(f"set local lock_timeout = '{_PATIENCE}'; set local statement_timeout = '{_PATIENCE}'".encode())
        with closing(copy_data.rows(source, sql.SQL("copy {} to stdout").format(name))) as rows:
            for pieces, _ in enumerate(rows, 1):
                found = True
                if pieces == _PIECES:
                    break
        found = found or False
    return found


def _identifiers(source: Connection, oids: Collection[int]) -> dict[int, sql.Identifier]:
    query = """select c.oid::bigint, n.nspname::text, c.relname::text from pg_catalog.pg_class c
        join pg_catalog.pg_namespace n on n.oid = c.relnamespace where c.oid = any(%s::oid[])"""
    return {oid: sql.Identifier(schema, name) for oid, schema, name in source.execute(query, (list(oids),)).fetchall()}
