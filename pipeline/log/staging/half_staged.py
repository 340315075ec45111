"""What a worker that died has left of a transaction that it had not staged whole."""

from __future__ import annotations

from psycopg import AsyncConnection, sql
from psycopg.rows import TupleRow

from pipeline.log.staging import segments
from pipeline.postgres.queries import statement

_IDENTITY = sql.SQL("alter table {} replica identity full")
"""A segment has no key: in somebody's publication for all tables, no row of it could be deleted without this."""
_CUT_SEGMENT = """\
update pipeline.segments set last_lsn = %(commit_lsn)s, row_count = row_count - %(removed)s where id = %(id)s
"""
"""The half staged transaction at its end was removed."""
_IDENTITY_IS_FULL = "select relreplident = 'f' as is_full from pg_class where oid = to_regclass(%(table)s::text)"
"""Whether rows of a segment can be deleted whatever publication the segment is in."""
_UNCOUNT_CHANGES = """\
update pipeline.replication_progress set changes = changes - %(void)s
where source_id = %(source)s and worker = %(worker)s
"""
"""Removed rows will be staged, and counted, again."""


async def drop(connection: AsyncConnection[TupleRow], who: dict[str, object], commit_lsn: int) -> None:
    """Remove its rows beyond the last whole transaction; the caller has claimed its progress."""
    cursor = await connection.execute(statement("log.staging", "drop_half_staged"), {**who, "commit_lsn": commit_lsn})
    void = 0
    for segment, state, mixed, rows_in_it in await cursor.fetchall():
        if state == "drained":
            void += rows_in_it
        elif mixed:
            await _allow_deletes(connection, segments.table(segment))
            removed = await connection.execute(
                sql.SQL("delete from only {} where commit_lsn > %s").format(segments.table(segment)), (commit_lsn,)
            )
            cut = {"id": segment, "commit_lsn": commit_lsn, "removed": removed.rowcount}
            await connection.execute(_CUT_SEGMENT, cut)
            void += removed.rowcount
    await connection.execute(_UNCOUNT_CHANGES, {**who, "void": void})


async def _allow_deletes(connection: AsyncConnection[TupleRow], table: sql.Identifier) -> None:
    """An older version has made segments without an identity, and asks for a lock only for those."""
    cursor = await connection.execute(_IDENTITY_IS_FULL, {"table": table.as_string()})
    if await cursor.fetchone() != (True,):
        await connection.execute(_IDENTITY.format(table))
