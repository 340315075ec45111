"""How far reading tables is, as status and metrics say it: backfills under way, and tables that the log lacks."""

from __future__ import annotations

from dataclasses import dataclass, field

from pipeline.capture.snapshot import overview
from pipeline.capture.snapshot.overview import Incomplete
from pipeline.capture.source.sources import Source
from pipeline.operate import backfills
from pipeline.operate.backfills import Shown
from pipeline.postgres.connections import Connection


@dataclass(frozen=True)
class SnapshotStatus:
    """`tables`: captured ones by state, as in `pipeline.snapshots`. `unread`: the first of those that the log does not
    have whole and that nobody reads.
    """

    backfills: list[Shown] = field(default_factory=list)
    tables: dict[str, int] = field(default_factory=dict)
    unread: list[Incomplete] = field(default_factory=list)

    @property
    def unread_count(self) -> int:
        """How many there are of those."""
        return sum(number for state, number in self.tables.items() if state in ("not read", "failed", "cancelled"))


def read(pipeline: Connection, stored: Source) -> SnapshotStatus:
    """Two small queries, and a third where a table is not whole."""
    found = SnapshotStatus(backfills.under_way(pipeline, stored), overview.counts(pipeline, stored.id))
    if not found.unread_count:
        return found
    return SnapshotStatus(found.backfills, found.tables, overview.incomplete(pipeline, stored.id))
