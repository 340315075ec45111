"""How far reading tables is, as status and metrics say it: backfills under way, and tables that the log lacks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pipeline.capture.source import sources
from pipeline.capture.source.sources import ReplicationSource
from pipeline.config.settings import Config
from pipeline.postgres.connections import Connection
from pipeline.snapshots import overview, partition_changes
from pipeline.snapshots import status as backfills
from pipeline.snapshots.overview import IncompleteTable
from pipeline.snapshots.partition_changes import PartitionNote
from pipeline.snapshots.status import BackfillStatus


@dataclass(frozen=True)
class SnapshotStatus:
    """`tables`: captured ones by state, as in `pipeline.snapshots`. `unread`: the first of those that the log does not
    have whole and that nobody reads. `partitions`: tables of which partitions have left, as somebody has accepted, or
    may have.
    """

    backfills: list[BackfillStatus] = field(default_factory=list)
    tables: dict[str, int] = field(default_factory=dict)
    unread: list[IncompleteTable] = field(default_factory=list)
    partitions: list[PartitionNote] = field(default_factory=list)

    @property
    def unread_count(self) -> int:
        """How many there are of those."""
        return sum(number for state, number in self.tables.items() if state in ("not read", "failed", "cancelled"))


def read(pipeline: Connection, stored: ReplicationSource) -> SnapshotStatus:
    """Three small queries, and a fourth where a table is not whole."""
    notes = partition_changes.notes(pipeline, stored)
    found = SnapshotStatus(backfills.under_way(pipeline, stored), overview.counts(pipeline, stored.id), [], notes)
    if not found.unread_count:
        return found
    return replace(found, unread=overview.incomplete(pipeline, stored.id))


def find(config: Config, pipeline: Connection) -> SnapshotStatus | None:
    """The same; None where no source is known."""
    stored = sources.find(pipeline, config.source_id)
    return read(pipeline, stored) if stored else None
