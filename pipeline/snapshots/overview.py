"""How many captured tables the log has whole, and why it does not have the others."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

FEW = 5
_COUNT_TABLES = """\
select s.state, count(*) from pipeline.snapshots s where s.source_id = %(source)s group by s.state order by s.state
"""
"""Captured tables by state."""
_FAILED_TABLES = """\
select s.table_oid, s."table" from pipeline.snapshots s
where s.source_id = %(source)s and s.state = 'failed'
order by s."table"
"""
"""Captured tables that the log does not have whole because reading them failed."""
_UNREAD_TABLES = """\
select s."table", s.state, s.reason from pipeline.snapshots s
where s.source_id = %(source)s and s.state in ('not read', 'failed', 'cancelled')
order by s."table" limit %(most)s
"""
"""Captured tables that the log does not have whole, and that nobody reads."""


@dataclass(frozen=True)
class IncompleteTable:
    """A captured table that the log does not have whole. `state`: as in `pipeline.snapshots`."""

    table: str
    state: str
    reason: str | None


@dataclass(frozen=True)
class TableCoverage:
    """A captured table. `from_seqs`: by events table, after which seq the log has its changes without a gap, where it
    has the table whole, or had it in an earlier epoch; else None, and the `reason`.
    """

    table_oid: int
    from_seqs: dict[str, int] | None
    reason: str | None


def whole_tables(connection: Connection, source: uuid.UUID) -> dict[int, TableCoverage]:
    """Every captured table, by oid."""
    found = queries.rows(connection, TableCoverage, statement("snapshots", "whole_tables"), {"source": source})
    return {each.table_oid: each for each in found}


def counts(connection: Connection, source: uuid.UUID) -> dict[str, int]:
    """Captured tables by state."""
    return dict(connection.execute(_COUNT_TABLES, {"source": source}).fetchall())


def failed(connection: Connection, source: uuid.UUID) -> dict[int, str]:
    """Tables that the log does not have whole because reading them failed, by oid: schema and name."""
    return dict(connection.execute(_FAILED_TABLES, {"source": source}).fetchall())


def incomplete(connection: Connection, source: uuid.UUID, most: int = FEW) -> list[IncompleteTable]:
    """Some of those that nobody reads now."""
    values = {"source": source, "most": most}
    return queries.rows(connection, IncompleteTable, _UNREAD_TABLES, values)
