"""Changes of partitions that the log does not have yet: start backfills for them, and settle them."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pipeline.capture.source.captured_now import CapturedTable
from pipeline.capture.source.sources import ReplicationSource
from pipeline.comparing.partition_bounds import Line
from pipeline.log.staging import progress
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.snapshots import backfills, known_tables
from pipeline.snapshots.backfills import StoredBackfill

_TOGETHER = timedelta(seconds=10)
"""One backfill reads the partitions that were first seen within this time."""
_DOUBTFUL_PARTITIONS = """\
select c.id, c.epoch, c.seen_lsn from pipeline.partition_changes c where c.source_id = %(source)s and c.in_doubt
"""
"""Partitions that joined and may have left before that, because they were not stored then."""
_KEEP_ALWAYS = """\
update pipeline.snapshot_tables set keeps_partitions = %(always)s where source_id = %(source)s and table_oid = %(root)s
"""
"""Store whether the log keeps rows of partitions that leave from now on, without a warning."""
_PARTITIONS_READ_BY = """\
update pipeline.partition_changes set backfill_id = %(backfill)s where id = any(%(ids)s) and settled_at is null
"""
"""Store which backfill reads or compares these changed partitions."""


@dataclass(frozen=True)
class UnsettledChange:
    """A row of `pipeline.partition_changes` that is not settled. `first_seen_at`: only of a table new in this epoch."""

    id: int
    epoch: int
    root_oid: int
    leaf_oid: int
    what: str
    bounds: Line | None
    backfill_id: int | None
    reason: str | None
    first_seen_at: datetime | None


@dataclass(frozen=True)
class PartitionNote:
    """A table whose log differs from the source, because a user has accepted `kept` changes of partitions.

    `always`: the user accepts later changes, too. `unknown`: earlier partitions were not recorded, so the log may have
    rows of some that left.
    """

    table: str
    always: bool
    unknown: bool
    kept: int


def notes(pipeline: Connection, stored: ReplicationSource) -> list[PartitionNote]:
    """Return the tables with accepted or unknown changes of partitions, by name."""
    return queries.rows(pipeline, PartitionNote, statement("snapshots", "partition_notes"), {"source": stored.id})


def keep(pipeline: Connection, stored: ReplicationSource, root: int, *, always: bool | None = None) -> int:
    """Leave the log of a table as it is, and return how many changes that settles. `always`: see `PartitionNote`."""
    values = {"source": stored.id, "root": root}
    with pipeline.transaction():
        if always is not None:
            pipeline.execute(_KEEP_ALWAYS, {**values, "always": always})
        return pipeline.execute(statement("snapshots", "keep_partitions"), values).rowcount


def unsettled(pipeline: Connection, stored: ReplicationSource, root: int | None = None) -> list[UnsettledChange]:
    """Return the unsettled changes of all tables, or of one, the oldest first."""
    values = {"source": stored.id, "root": root}
    return queries.rows(pipeline, UnsettledChange, statement("snapshots", "open_partition_changes"), values)


def end_doubts(pipeline: Connection, source: uuid.UUID, epoch: int) -> None:
    """Treat joined partitions as partitions that returned, if the log already had rows of them when they joined."""
    doubtful = pipeline.execute(_DOUBTFUL_PARTITIONS, {"source": source}).fetchall()
    for change, of_epoch, lsn in doubtful:
        reached = of_epoch != epoch or progress.log_reaches(pipeline, source, lsn)[0]
        pipeline.execute(statement("snapshots", "end_doubt"), {"id": change, "reached": reached})


def begin(
    pipeline: Connection, stored: ReplicationSource, table: CapturedTable, changes: Collection[UnsettledChange]
) -> int | None:
    """Start a backfill of joined partitions that no backfill reads yet; None if there is nothing to start now.

    A partition that left before it joined again is compared, so that rows deleted in between disappear, too.
    """
    waiting = [each for each in changes if each.backfill_id is None and each.reason is None]
    if returned := {each.leaf_oid for each in waiting if each.what == "returned"}:
        return compare(pipeline, stored, table, [each for each in changes if each.leaf_oid in returned])
    chosen = _first([each for each in waiting if each.what == "attached"])
    if not chosen:
        return None
    relations = [each.leaf_oid for each in chosen]
    return _start(pipeline, stored, table, chosen, backfills.INITIAL, relations=relations)


def alone(pipeline: Connection, stored: ReplicationSource, root: int) -> list[UnsettledChange]:
    """Return the unsettled changes if only they make the table incomplete in the log; otherwise none."""
    known = known_tables.read(pipeline, stored).get(root)
    return [] if known is None or known.complete_seq is None else unsettled(pipeline, stored, root)


def compare(
    pipeline: Connection, stored: ReplicationSource, table: CapturedTable, changes: Collection[UnsettledChange]
) -> int | None:
    """Compare the rows that these partitions may have with the log; None if a backfill of the table is under way."""
    bounds = [each.bounds for each in changes]
    within = None if None in bounds else bounds
    return _start(pipeline, stored, table, changes, backfills.DIFFERENCES, bounds=within)


def settle(pipeline: Connection, backfill: StoredBackfill, seq: int) -> None:
    """Settle the changes that an ended backfill has read or compared. `seq`: the newest one of the log."""
    end_doubts(pipeline, backfill.source_id, backfill.epoch)
    values = {
        "source": backfill.source_id,
        "root": backfill.table_oid,
        "backfill": backfill.id,
        "partial": backfill.partial,
        "compares": backfill.compares,
        "epoch": backfill.epoch,
        "lsn": backfill.after_lsn or 0,
        "seq": seq,
    }
    pipeline.execute(statement("snapshots", "settle_partitions"), values)


def _first(changes: Sequence[UnsettledChange]) -> list[UnsettledChange]:
    """Return the changes for one backfill: existing tables first, then new ones that were seen at the same time.

    New tables are read apart, because walstream's clients get their rows.
    """
    old = [each for each in changes if each.first_seen_at is None]
    if old or not changes:
        return old
    first = min(each.first_seen_at for each in changes if each.first_seen_at is not None)
    return [each for each in changes if each.first_seen_at is not None and each.first_seen_at - first <= _TOGETHER]


def _start(
    pipeline: Connection,
    stored: ReplicationSource,
    table: CapturedTable,
    changes: Collection[UnsettledChange],
    kind: str,
    *,
    relations: Sequence[int] | None = None,
    bounds: Sequence[Line | None] | None = None,
) -> int | None:
    each = table.oid, table.schema, table.name
    started = backfills.start(pipeline, stored.id, stored.epoch, each, kind, relations=relations, bounds=bounds)
    if started is not None:
        values = {"backfill": started, "ids": [each.id for each in changes]}
        pipeline.execute(_PARTITIONS_READ_BY, values)
    return started
