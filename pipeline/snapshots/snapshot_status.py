"""Collect for status and metrics how far the reading of tables is: backfills under way, and incomplete tables."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pipeline.capture.source import sources
from pipeline.capture.source.sources import ReplicationSource
from pipeline.config.settings import Config
from pipeline.postgres.connections import Connection
from pipeline.snapshots import overview, partition_changes
from pipeline.snapshots import status as backfills
from pipeline.snapshots.overview import TableReading
from pipeline.snapshots.partition_changes import PartitionNote
from pipeline.snapshots.status import BackfillStatus


@dataclass(frozen=True)
class SnapshotStatus:
    """The state of all captured tables of a source.

    `tables`: their number by state, as in `pipeline.snapshots`. `unread`: the first incomplete tables that no backfill
    reads. `partitions`: tables with accepted or unknown changes of partitions.
    """

    backfills: list[BackfillStatus] = field(default_factory=list)
    tables: dict[str, int] = field(default_factory=dict)
    unread: list[TableReading] = field(default_factory=list)
    partitions: list[PartitionNote] = field(default_factory=list)

    @property
    def unread_count(self) -> int:
        """The number of incomplete tables that no backfill reads."""
        return sum(number for state, number in self.tables.items() if state in ("not read", "failed", "cancelled"))


def read(pipeline: Connection, stored: ReplicationSource) -> SnapshotStatus:
    """Read the status with three small queries, and a fourth if a table is incomplete."""
    notes = partition_changes.notes(pipeline, stored)
    found = SnapshotStatus(backfills.under_way(pipeline, stored), overview.counts(pipeline, stored.id), [], notes)
    if not found.unread_count:
        return found
    return replace(found, unread=overview.incomplete(pipeline, stored.id))


def find(config: Config, pipeline: Connection) -> SnapshotStatus | None:
    """Read the status of the configured source; None if the source is not known yet."""
    stored = sources.find(pipeline, config.source_id)
    return read(pipeline, stored) if stored else None
