"""Ranges of tables whose rows are read at the source, and staged as a segment each, outside of the commit order.

A range goes planned → reading → staged → placed → moved. The transaction that reads it carries a marker, a logical
message with the range's token, and commits only once its rows are durable here. When the worker meets the marker in the
stream, the range gets its place: that of the marker's commit. Then the shuffler moves its rows. Rows whose marker does
not commit are dropped.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg.types.json import Jsonb

from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_DROP_OUTDATED = """\
delete from pipeline.snapshot_ranges
where backfill_id = %(backfill)s and state in ('planned', 'held', 'reading')
    and file is distinct from (%(files)s::jsonb ->> relation_oid::text)::bigint
"""
"""Delete ranges of blocks of a file that a relation no longer uses. Ranges that were read before stay."""
_GIVE_RANGE_BACK = """\
update pipeline.snapshot_ranges set state = 'planned', token = null, reader_pid = null, reader_start = null
where id = %(id)s and token = %(token)s and state = 'reading'
"""
"""Plan a range again that its reader could not read."""
_HOLD_RANGES = """\
update pipeline.snapshot_ranges set state = case when %(hold)s then 'held' else 'planned' end
where backfill_id = %(backfill)s and state = case when %(hold)s then 'planned' else 'held' end
"""
"""Hold the planned ranges of a backfill, or plan its held ones again."""
_RANGE_COMPARED = """\
delete from pipeline.snapshot_ranges where id = %(id)s and token = %(token)s and state = 'reading' and compares
"""
"""End the comparison of a table: this transaction plans the rows that differ. No row if another session has it."""
_RANGE_VERSION = """\
select version from pipeline.snapshot_ranges where token = %(token)s::uuid and state in ('staged', 'placed')
"""
"""Read the table version that a range was read with; no row for a marker without a waiting range."""
_UNCOLLECTED = """\
select distinct backfill_id from pipeline.snapshot_ranges where source_id = %(source)s and state = 'moved'
"""
"""List backfills with ranges that have become events since the last count."""


@dataclass(frozen=True)
class PlannedRange:
    """A range to read: blocks of a relation up to `until_block` (exclusive; None: to the end), or rows by key.

    `file`: the relation's pg_relation_filenode at planning; None if rows are read wherever they are. `keys`: texts of
    the key's columns, in the order of the key. `compares`, `differences`: see the table's comments.
    """

    relation_oid: int
    table_oid: int
    file: int | None
    from_block: int | None = None
    until_block: int | None = None
    keys: Sequence[Sequence[str]] | None = None
    compares: bool = False
    differences: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class ClaimedRange:
    """A range that this session reads, with its new token."""

    id: int
    token: uuid.UUID
    epoch: int
    backfill_id: int
    relation_oid: int
    table_oid: int
    file: int | None
    from_block: int | None
    until_block: int | None
    keys: list[list[str]] | None
    compares: bool = False
    differences: dict[str, Any] | None = None


@dataclass(frozen=True)
class RangeReadResult:
    """The result of reading a range. `snapshot`: as pg_snapshot prints it. `since_seqs`, `departed`: see the table's
    comments.

    `version`: the table's columns and key at that time. `by_key`: its rows have keys that identify them. `marker_xid`:
    the transaction that carries the marker.
    """

    rows: int
    snapshot: str
    since_seqs: Mapping[str, int]
    version: Mapping[str, Any]
    by_key: bool
    marker_xid: str
    departed: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class PlacedRange:
    """A range with its place in the log, for the shuffler. `segment_id`: None if the range has no rows."""

    id: int
    segment_id: int | None
    of_keys: bool
    table_oid: int
    snapshot: str
    since_seqs: dict[str, int]
    by_key: bool
    rows_read: int
    commit_lsn: int
    committed_at: Any
    xid: int
    relation_id: int
    differences: dict[str, Any] | None
    departed: dict[str, Any] | None


@dataclass(frozen=True)
class UnfinishedRange:
    """A range whose reader is gone, or that may have lost its place. `marker_xid`: None before it was staged."""

    id: int
    state: str
    marker_xid: str | None
    seen_lsn: int | None
    alive: bool
    passed: bool


def plan(connection: Connection, source: uuid.UUID, epoch: int, backfill: int, planned: Iterable[PlannedRange]) -> int:
    """Add ranges to read; returns how many. They are read in this order."""
    values = [
        {
            **vars(each),
            "keys": None if each.keys is None else Jsonb([list(key) for key in each.keys]),
            "differences": None if each.differences is None else Jsonb(dict(each.differences)),
            "source": source,
            "epoch": epoch,
            "backfill": backfill,
        }
        for each in planned
    ]
    with connection.cursor() as cursor:
        cursor.executemany(statement("log.staging", "plan_range"), values)
    return len(values)


def claim_range(
    connection: Connection, source: uuid.UUID, most: int, without: Sequence[int] = ()
) -> ClaimedRange | None:
    """Claim the next range for this session; None if no range is planned, or `most` are under way already.

    `without`: backfills that must wait.
    """
    values = {"source": source, "most": most, "without": list(without)}
    return queries.one(connection, ClaimedRange, statement("log.staging", "take_range"), values)


def give_back(connection: Connection, taken: ClaimedRange) -> None:
    """Return the range to the planned ones, so that another session can read it."""
    connection.execute(_GIVE_RANGE_BACK, {"id": taken.id, "token": taken.token})


def end_comparison(connection: Connection, taken: ClaimedRange) -> bool:
    """End a comparison whose differences are all planned; False if another session has taken the range over."""
    values = {"id": taken.id, "token": taken.token}
    return connection.execute(_RANGE_COMPARED, values).rowcount == 1


def has_comparison(connection: Connection, backfill: int) -> bool:
    """Return True if a backfill has a comparison that is planned or under way."""
    query = "select exists (select from pipeline.snapshot_ranges where backfill_id = %s and compares)"
    return bool(queries.value(connection, query, (backfill,)))


def split(connection: Connection, taken: ClaimedRange, at: int) -> None:
    """Split a range that takes too long to read: it ends before block `at`, and a new range begins there."""
    connection.execute(statement("log.staging", "split_range"), {"id": taken.id, "token": taken.token, "at": at})


def shorten(connection: Connection, taken: ClaimedRange, at: int) -> bool:
    """End a range before block `at`, and plan a new one from there; False if another session has taken it over."""
    values = {"id": taken.id, "token": taken.token, "at": at}
    return connection.execute(statement("log.staging", "shorten_range"), values).rowcount == 1


def version_of(connection: Connection, token: str) -> dict[str, Any] | None:
    """Return the table version that the range with this token was read with; None if no range waits for this marker."""
    found: dict[str, Any] | None = queries.value(connection, _RANGE_VERSION, {"token": token})
    return found


def place(connection: Connection, token: str, relation: int, commit_lsn: int, committed_at: int, xid: int) -> None:
    """Give a range the place at which its marker committed. `committed_at`: µs since 2000. May be repeated."""
    values = {
        "token": token,
        "relation": relation,
        "commit_lsn": commit_lsn,
        "committed_at": committed_at,
        "xid": xid,
    }
    connection.execute(statement("log.staging", "place_range"), values)


def read_placed(connection: Connection, source: uuid.UUID, commit_lsn: int) -> list[PlacedRange]:
    """Return the ranges with this place: one, since each marker has a separate transaction."""
    values = {"source": source, "commit_lsn": commit_lsn}
    return queries.rows(connection, PlacedRange, statement("log.staging", "placed_ranges"), values)


def record_moved(
    connection: Connection, range_id: int, events_table: str, last_seq: int, added: int, left_out: Sequence[str] | None
) -> None:
    """Record that a range's rows are events up to `last_seq`, in the transaction that adds them.

    `left_out`: the keys of a range of keys of which the log had a newer event.
    """
    values = {"id": range_id, "events_table": events_table, "last_seq": last_seq, "added": added}
    values["left_out"] = None if left_out is None else list(left_out)
    connection.execute(statement("log.staging", "range_moved"), values)


def read_unfinished(connection: Connection, source: uuid.UUID) -> list[UnfinishedRange]:
    """Return the ranges that a session has claimed, and that have not become events."""
    return queries.rows(connection, UnfinishedRange, statement("log.staging", "unfinished_ranges"), {"source": source})


def reset(connection: Connection, ids: Sequence[int]) -> None:
    """Plan these ranges again, and drop their staged rows."""
    connection.execute(statement("log.staging", "reset_ranges"), {"ids": list(ids)})


def drop(connection: Connection, backfill: int, ids: Sequence[int] | None = None, *, placed: bool = False) -> None:
    """Delete all ranges of a backfill that have no place yet, or only these, with their staged rows.

    `placed`: also those that have a place, in an epoch that has ended.
    """
    values = {"backfill": backfill, "ids": None if ids is None else list(ids), "placed": placed}
    connection.execute(statement("log.staging", "drop_ranges"), values)


def drop_outdated(connection: Connection, backfill: int, files: Mapping[str, int]) -> int:
    """Delete ranges of relations that have moved to other files; returns how many. `files`: by oid as a text."""
    values = {"backfill": backfill, "files": Jsonb(dict(files))}
    return connection.execute(_DROP_OUTDATED, values).rowcount


def store_seen_lsn(connection: Connection, range_id: int, lsn: int) -> None:
    """Record that a range's marker has committed before this LSN of the source."""
    connection.execute(
        "update pipeline.snapshot_ranges set seen_lsn = %s where id = %s and seen_lsn is null", (lsn, range_id)
    )


def hold(connection: Connection, backfill: int, *, hold: bool = True) -> None:
    """Hold a backfill's ranges, or with `hold=False` release them; ranges that are being read are finished."""
    connection.execute(_HOLD_RANGES, {"backfill": backfill, "hold": hold})


@dataclass(frozen=True)
class MovedRanges:
    """The ranges of a backfill that became events since the last `collect`, counted.

    `left_out`: the keys of ranges of keys of which the log had a newer event.
    """

    ranges: int
    rows_read: int
    rows_added: int
    events_table: str | None
    first_seq: int | None
    last_seq: int | None
    left_out: list[str]


def collect(connection: Connection, backfill: int) -> MovedRanges:
    """Count the ranges of a backfill that have become events, and delete them, in the caller's transaction."""
    found = queries.one(connection, MovedRanges, statement("log.staging", "collect_moved"), {"backfill": backfill})
    assert found is not None  # noqa: S101  an aggregate
    return found


def find_uncollected(connection: Connection, source: uuid.UUID) -> list[int]:
    """Return the backfills that have ranges to `collect`."""
    return [number for (number,) in connection.execute(_UNCOLLECTED, {"source": source}).fetchall()]


def count_remaining(connection: Connection, backfill: int) -> int:
    """Return how many ranges of a backfill are not read, not events, or not counted yet."""
    query = "select count(*) from pipeline.snapshot_ranges where backfill_id = %s"
    return int(queries.value(connection, query, (backfill,)))
