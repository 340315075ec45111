"""Read `pipeline.snapshot_tables`, the stored state of captured tables, and compare it with the catalog."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.capture.source.captured_now import CapturedTable
from pipeline.capture.source.captured_tables import CaptureStart
from pipeline.capture.source.sources import ReplicationSource
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_CARRY_OVER = """\
update pipeline.snapshot_tables set epoch = %(epoch)s, members = null
where source_id = %(source)s and epoch = %(epoch)s - 1
"""
"""Move tables to the next epoch, without a new state. Oids of their memberships are those of the former cluster."""
EMPTY = "it was empty when it joined; it is complete once the log gets there"


@dataclass(frozen=True)
class SnapshotTable:
    """A row of `pipeline.snapshot_tables`."""

    table_oid: int
    epoch: int
    table_schema: str
    table_name: str
    joined: int | None
    keyed: bool
    captured: bool
    backfill_id: int | None
    complete_seq: int | None
    reason: str | None
    reread: str | None
    key: str | None
    members: list[int] | None
    since_lsn: int | None

    @property
    def unread(self) -> bool:
        """True if the table must be read and no backfill reads it, because another one was under way when it joined."""
        return self.backfill_id is None and self.complete_seq is None and self.reason is None

    @property
    def awaited(self) -> bool:
        """True if the table is complete once the log gets to where the table joined."""
        return self.captured and self.complete_seq is None and self.reason == EMPTY

    @property
    def table(self) -> str:
        """Schema and name."""
        return f"{self.table_schema}.{self.table_name}"


def read(pipeline: Connection, stored: ReplicationSource) -> dict[int, SnapshotTable]:
    """Return the stored tables by oid."""
    found = queries.rows(pipeline, SnapshotTable, statement("snapshots", "known_tables"), {"source": stored.id})
    return {each.table_oid: each for each in found}


def keyless(pipeline: Connection, stored: ReplicationSource) -> list[str]:
    """Return the names of captured tables whose updates and deletes are not captured."""
    return sorted(each.table for each in read(pipeline, stored).values() if each.captured and not each.keyed)


def has_joined(table: CapturedTable, before: SnapshotTable, joined: CaptureStart | None) -> bool:
    """True if the table has joined again since it was stored, or got another key: the log lacks earlier changes."""
    if not before.captured or is_rekeyed(table, before):
        return True
    return joined is not None and before.joined is not None and joined.id != before.joined


def is_rekeyed(table: CapturedTable, before: SnapshotTable) -> bool:
    """True if the log knows rows by another key than now, or lacks changes from a time when the table had no key.

    A key that was dropped and added again between two reads of the catalog moves the table in the publications, which
    `members` shows.
    """
    moved = bool(before.members and table.members) and not set(before.members or ()) & set(table.members)
    return table.keyed and (not before.keyed or has_another_key(table, before) or moved)


def had_inserts_alone(table: CapturedTable, joined: Mapping[int, CaptureStart]) -> bool:
    """True if a table that is not stored yet may have rows in the log, from a time when only inserts were captured."""
    found = (joined.get(oid) for oid in {table.oid, *table.relations})
    return table.keyed and any(each is not None and each.root_oid is None for each in found)


def carry_over(pipeline: Connection, source_id: uuid.UUID, epoch: int) -> None:
    """Keep what is known of the tables of the epoch before, because the log lacks none of their changes."""
    pipeline.execute(_CARRY_OVER, {"source": source_id, "epoch": epoch})


def has_another_key(table: CapturedTable, before: SnapshotTable) -> bool:
    """True if both keys are known and differ."""
    return None not in (before.key, table.key) and before.key != table.key


def is_described(table: CapturedTable, before: SnapshotTable) -> bool:
    """True if the stored names and key are the current ones."""
    now = table.schema, table.name, table.keyed, table.key, list(table.members)
    return now == (before.table_schema, before.table_name, before.keyed, before.key, before.members)
