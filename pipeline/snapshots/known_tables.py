"""What is stored of captured tables: the rows of `pipeline.snapshot_tables`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.capture.source.captured_now import CapturedTable
from pipeline.capture.source.captured_tables import CaptureStart
from pipeline.capture.source.sources import ReplicationSource
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

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
        """Whether it is to be read and is not: another backfill of it was under way."""
        return self.backfill_id is None and self.complete_seq is None and self.reason is None

    @property
    def awaited(self) -> bool:
        """Whether it is complete once the log gets to where it joined."""
        return self.captured and self.complete_seq is None and self.reason == EMPTY

    @property
    def table(self) -> str:
        """Schema and name."""
        return f"{self.table_schema}.{self.table_name}"


def read(pipeline: Connection, stored: ReplicationSource) -> dict[int, SnapshotTable]:
    """What is stored, by oid."""
    found = queries.rows(pipeline, SnapshotTable, statement("snapshots", "known_tables"), {"source": stored.id})
    return {each.table_oid: each for each in found}


def keyless(pipeline: Connection, stored: ReplicationSource) -> list[str]:
    """Names of the captured tables whose updates and deletes are not."""
    return sorted(each.table for each in read(pipeline, stored).values() if each.captured and not each.keyed)


def has_joined(table: CapturedTable, before: SnapshotTable, joined: CaptureStart | None) -> bool:
    """Whether it has joined again since, or got another key: then the log lacks what happened before."""
    if not before.captured or is_rekeyed(table, before):
        return True
    return joined is not None and before.joined is not None and joined.id != before.joined


def is_rekeyed(table: CapturedTable, before: SnapshotTable) -> bool:
    """Whether the log does not know its rows by the key that they have now, or lacks what was done to them without one.

    A key that was dropped and added between two looks is seen by how the table is published: it was moved meanwhile.
    """
    moved = bool(before.members and table.members) and not set(before.members or ()) & set(table.members)
    return table.keyed and (not before.keyed or has_another_key(table, before) or moved)


def had_inserts_alone(table: CapturedTable, joined: Mapping[int, CaptureStart]) -> bool:
    """Whether the log may have its rows from before its updates were captured; nobody looked at it then."""
    found = (joined.get(oid) for oid in {table.oid, *table.relations})
    return table.keyed and any(each is not None and each.root_oid is None for each in found)


def has_another_key(table: CapturedTable, before: SnapshotTable) -> bool:
    """Whether its rows were known by another key; None is not known yet."""
    return None not in (before.key, table.key) and before.key != table.key


def is_described(table: CapturedTable, before: SnapshotTable) -> bool:
    """Whether its row says what its names and its key are now."""
    now = table.schema, table.name, table.keyed, table.key, list(table.members)
    return now == (before.table_schema, before.table_name, before.keyed, before.key, before.members)
