"""Backfills: each is the reading of one table, from the wait for older transactions to its last event."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from pipeline.comparing.partition_bounds import Line
from pipeline.log.staging import ranges
from pipeline.log.staging.ranges import MovedRanges
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.wal import lsn

_ALL = statement("snapshots", "backfills")
INITIAL = "initial"
"""The kind of a backfill that reads the existing rows of a table or partition that has joined."""
DIFFERENCES = "differences"
"""The kind of a backfill that compares a table with the log and appends what differs."""
ENDED_EPOCH = "epoch {} has begun"
OPEN = ("waiting", "reading", "paused")
_END_BACKFILL = """\
update pipeline.backfills set state = %(state)s, reason = %(reason)s, finished_at = now()
where id = %(id)s and state in ('waiting', 'reading', 'paused')
"""
"""End a backfill that has not ended yet."""
_MORE_RANGES = """\
update pipeline.backfills set ranges_all = ranges_all + %(added)s, files = coalesce(%(files)s, files) where id = %(id)s
"""
"""Change the number of a backfill's ranges, and its files if they have changed."""


@dataclass(frozen=True)
class StoredBackfill:
    """A row of `pipeline.backfills`. `after_xid` is an xid8; None until the wait for older transactions has begun.

    `gap_after`, `gap_until`: LSNs; `gap_*`, `told_seqs`, `floor_seqs`, `relations`, `bounds`: see the table's comments.
    """

    id: int
    source_id: uuid.UUID
    epoch: int
    table_oid: int
    table_schema: str
    table_name: str
    kind: str
    condition: str | None
    state: str
    reason: str | None
    after_xid: int | None
    after_lsn: int | None
    since_seqs: dict[str, int] | None
    files: dict[str, int]
    by_key: bool | None
    rows_estimated: int | None
    bytes_estimated: int | None
    ranges_all: int
    ranges_done: int
    rows_read: int
    rows_added: int
    events_table: str | None
    first_seq: int | None
    last_seq: int | None
    gap_after: int | None
    gap_until: int | None
    told_seqs: dict[str, int] | None
    floor_seqs: dict[str, int] | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    void_upto: list[int] | None
    relations: list[int] | None = None
    bounds: list[Line | None] | None = None

    @property
    def partial(self) -> bool:
        """True if the backfill reads or compares only some partitions of its table."""
        return self.relations is not None or self.bounds is not None

    @property
    def table(self) -> str:
        """Schema and name."""
        return f"{self.table_schema}.{self.table_name}"

    @property
    def compares(self) -> bool:
        """True if only what differs from the log becomes events."""
        return self.kind == DIFFERENCES

    @property
    def differences(self) -> dict[str, Any] | None:
        """Return what the shuffler must know about the ranges of a comparison; None if the backfill does not compare.

        `metadata` marks the events. `told_seqs`: the seqs after which the log has every change. `void_upto`: events up
        to this epoch and LSN identify the rows by another key.
        """
        if not self.compares:
            return None
        recovered: dict[str, Any] = {"backfill": self.id}
        if self.gap_after is not None and self.gap_until is not None:
            recovered |= {"after": lsn.show(self.gap_after), "until": lsn.show(self.gap_until)}
        return {"metadata": {"recovered": recovered}, "told_seqs": self.told_seqs, "void_upto": self.void_upto}


def list_open(connection: Connection, source: uuid.UUID) -> list[StoredBackfill]:
    """Return the backfills of a source that have not ended, the oldest first."""
    query = _ALL + "where b.source_id = %(source)s and b.state in ('waiting', 'reading', 'paused') order by b.id"
    return queries.rows(connection, StoredBackfill, query, {"source": source})


def find(connection: Connection, backfill: int) -> StoredBackfill | None:
    """Return the backfill with this id, in any state; None if there is none."""
    return queries.one(connection, StoredBackfill, _ALL + "where b.id = %(id)s", {"id": backfill})


def list_newest(connection: Connection, source: uuid.UUID, most: int = 100) -> list[StoredBackfill]:
    """Return at most `most` backfills of a source, in any state, the newest first."""
    query = _ALL + "where b.source_id = %(source)s order by b.id desc limit %(most)s"
    return queries.rows(connection, StoredBackfill, query, {"source": source, "most": most})


def start(
    connection: Connection,
    source: uuid.UUID,
    epoch: int,
    table: tuple[int, str, str],
    kind: str,
    condition: str | None = None,
    gap: tuple[int, int] | None = None,
    *,
    relations: Sequence[int] | None = None,
    bounds: Sequence[Line | None] | None = None,
) -> int | None:
    """Start a backfill of this table (oid, schema, name); None if another one of the table is under way.

    `gap`: for a comparison, the LSNs between which changes are missing. `relations`, `bounds`: see the table's
    comments.
    """
    values = {
        "source": source,
        "epoch": epoch,
        "oid": table[0],
        "schema": table[1],
        "name": table[2],
        "kind": kind,
        "condition": condition,
        "gap_after": gap[0] if gap else None,
        "gap_until": gap[1] if gap else None,
        "relations": None if relations is None else list(relations),
        "bounds": None if bounds is None else Jsonb(list(bounds)),
    }
    found: int | None = queries.value(connection, statement("snapshots", "start_backfill"), values)
    return found


def begin_wait(connection: Connection, backfill: int, xid: int, lsn: int, since_seqs: Mapping[str, int]) -> None:
    """Let the backfill wait until every transaction with a smaller xid has ended; then it reads."""
    values = {"id": backfill, "xid": str(xid), "lsn": lsn, "since_seqs": Jsonb(dict(since_seqs))}
    connection.execute(statement("snapshots", "begin_wait"), values)


def wait(connection: Connection, backfill: int, reason: str | None) -> None:
    """Store what the backfill waits for; None: nothing."""
    connection.execute(
        "update pipeline.backfills set reason = %s where id = %s and reason is distinct from %s",
        (reason, backfill, reason),
    )


def store_plan(
    connection: Connection,
    backfill: StoredBackfill,
    files: Mapping[int, int],
    by_key: bool,
    estimate: tuple[int, int],
    added: int,
    floor_seqs: Mapping[str, int] | None = None,
) -> None:
    """Store that the ranges are planned. `files`: see the table's comment. `estimate`: rows and bytes; `added`: ranges.

    `floor_seqs`: only of a comparison. Without them the backfill reads all rows, even if it was to compare.
    """
    compares = floor_seqs is not None
    values = {
        "id": backfill.id,
        "kind": "asked" if backfill.compares and not compares else backfill.kind,
        "floor_seqs": None if floor_seqs is None else Jsonb(dict(floor_seqs)),
        "files": Jsonb({str(oid): file for oid, file in files.items()}),
        "by_key": by_key,
        "rows": estimate[0],
        "bytes": estimate[1],
        "added": added,
    }
    connection.execute(statement("snapshots", "plan_backfill"), values)


def more_ranges(connection: Connection, backfill: int, added: int, files: Mapping[str, int] | None = None) -> None:
    """Add to the number of ranges, or subtract if `added` is negative. `files`: the current ones, if they changed."""
    values = {"id": backfill, "added": added, "files": None if files is None else Jsonb(dict(files))}
    connection.execute(_MORE_RANGES, values)


def count_moved(connection: Connection, backfill: int) -> MovedRanges:
    """Count the ranges that have become events since the last call."""
    with connection.transaction():
        moved = ranges.collect(connection, backfill)
        if moved.ranges:
            values = {**vars(moved), "id": backfill}
            connection.execute(statement("snapshots", "count_moved"), values)
    return moved


def start_over(connection: Connection, backfill: int) -> None:
    """Read the table from its beginning again, because it is no longer what was planned."""
    with connection.transaction():
        ranges.drop(connection, backfill)
        connection.execute(statement("snapshots", "start_over"), {"id": backfill})


def end(
    connection: Connection, backfill: int, state: str, reason: str | None = None, *, of_ended_epoch: bool = False
) -> bool:
    """End the backfill as 'complete', 'failed' or 'cancelled', and drop ranges that are not events yet.

    Returns False if the backfill had ended before.
    """
    with connection.transaction():
        values = {"id": backfill, "state": state, "reason": reason}
        ended = connection.execute(_END_BACKFILL, values).rowcount == 1
        if ended:
            ranges.drop(connection, backfill, placed=of_ended_epoch)
    return ended


def pause(connection: Connection, backfill: int, *, paused: bool) -> bool:
    """Pause the backfill, or resume it; False if its state does not allow that."""
    with connection.transaction():
        values = {"id": backfill, "paused": paused}
        changed = connection.execute(statement("snapshots", "pause_backfill"), values).rowcount == 1
        if changed:
            ranges.hold(connection, backfill, hold=paused)
    return changed
