"""Count the captured tables that are complete in the log, and find why others are not."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

FEW = 5
_ALL_TABLES = """\
select s."table", s.state, s.reason from pipeline.snapshots s where s.source_id = %(source)s order by s."table"
"""
"""Every captured table, and if it is complete in the log."""
_COUNT_TABLES = """\
select s.state, count(*) from pipeline.snapshots s where s.source_id = %(source)s group by s.state order by s.state
"""
"""The number of captured tables by state."""
_FAILED_TABLES = """\
select s.table_oid, s."table" from pipeline.snapshots s
where s.source_id = %(source)s and s.state = 'failed'
order by s."table"
"""
"""Captured tables that are incomplete in the log because reading them failed."""
_UNREAD_TABLES = """\
select s."table", s.state, s.reason from pipeline.snapshots s
where s.source_id = %(source)s and s.state in ('not read', 'failed', 'cancelled')
order by s."table" limit %(most)s
"""
"""Captured tables that are incomplete in the log and that no backfill reads."""


@dataclass(frozen=True)
class TableReading:
    """How far the reading of a captured table is. `state` and `reason`: as in `pipeline.snapshots`."""

    table: str
    state: str
    reason: str | None


@dataclass(frozen=True)
class TableCoverage:
    """The point from which on the log has all changes of a captured table.

    `from_seqs`: by events table, the seq after which the log has the changes without a gap. None, with a `reason`, if
    the table is incomplete now and was so in earlier epochs.
    """

    table_oid: int
    from_seqs: dict[str, int] | None
    reason: str | None


def whole_tables(connection: Connection, source: uuid.UUID) -> dict[int, TableCoverage]:
    """Return every captured table by oid."""
    found = queries.rows(connection, TableCoverage, statement("snapshots", "whole_tables"), {"source": source})
    return {each.table_oid: each for each in found}


def counts(connection: Connection, source: uuid.UUID) -> dict[str, int]:
    """Return the number of captured tables by state."""
    return dict(connection.execute(_COUNT_TABLES, {"source": source}).fetchall())


def readings(connection: Connection, source: uuid.UUID) -> list[TableReading]:
    """Return every captured table by name."""
    return queries.rows(connection, TableReading, _ALL_TABLES, {"source": source})


def failed(connection: Connection, source: uuid.UUID) -> dict[int, str]:
    """Return schema and name, by oid, of tables that are incomplete because reading them failed."""
    return dict(connection.execute(_FAILED_TABLES, {"source": source}).fetchall())


def incomplete(connection: Connection, source: uuid.UUID, most: int = FEW) -> list[TableReading]:
    """Return at most `most` incomplete tables that no backfill reads now."""
    values = {"source": source, "most": most}
    return queries.rows(connection, TableReading, _UNREAD_TABLES, values)
