"""Ranges of tables whose rows were read at the source: staged as a segment each, outside of the order of commits.

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
"""Ranges of blocks of a file that a relation is no longer in. What was read of it before is as it was."""
_GIVE_RANGE_BACK = """\
update pipeline.snapshot_ranges set state = 'planned', token = null, reader_pid = null, reader_start = null
where id = %(id)s and token = %(token)s and state = 'reading'
"""
"""A range that its reader could not read."""
_HOLD_RANGES = """\
update pipeline.snapshot_ranges set state = case when %(hold)s then 'held' else 'planned' end
where backfill_id = %(backfill)s and state = case when %(hold)s then 'planned' else 'held' end
"""
"""Ranges of a backfill that are not to be read for now, or that are again."""
_RANGE_COMPARED = """\
delete from pipeline.snapshot_ranges where id = %(id)s and token = %(token)s and state = 'reading' and compares
"""
"""A table is compared: what differs is planned in this transaction. No row when another session has taken it over."""
_RANGE_VERSION = """\
select version from pipeline.snapshot_ranges where token = %(token)s::uuid and state in ('staged', 'placed')
"""
"""The form of the table that a range was read of; no row for a marker that nothing waits for."""
_UNCOLLECTED = """\
select distinct backfill_id from pipeline.snapshot_ranges where source_id = %(source)s and state = 'moved'
"""
"""Backfills with ranges that have become events since they were counted."""


@dataclass(frozen=True)
class PlannedRange:
    """What to read: blocks of a relation, the last one excluded (None: to its end), or rows with these keys.

    `file`: its pg_relation_filenode then; None where its rows are found wherever they are. `keys`: texts of the key's
    columns, in the order of the key. `compares`, `differences`: see the table's comments.
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
    """A range that this session is to read, with its new token."""

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
    """How it was read. `snapshot`: as pg_snapshot prints it. `since_seqs`, `departed`: see the table's comments.

    `version`: the table's form then. `by_key`: its rows have keys that identify them. `marker_xid`: of the transaction.
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
    """A range with its place, for the shuffler. `segment_id`: None where it has no rows."""

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


def take(connection: Connection, source: uuid.UUID, most: int, without: Sequence[int] = ()) -> ClaimedRange | None:
    """The next range to read, now this session's; None when there is none, or `most` are under way already.

    `without`: backfills that must wait.
    """
    values = {"source": source, "most": most, "without": list(without)}
    return queries.one(connection, ClaimedRange, statement("log.staging", "take_range"), values)


def give_back(connection: Connection, taken: ClaimedRange) -> None:
    """It is to be read again, by whoever takes it next."""
    connection.execute(_GIVE_RANGE_BACK, {"id": taken.id, "token": taken.token})


def compared(connection: Connection, taken: ClaimedRange) -> bool:
    """It was to compare, and all that it has found is planned; False when it is no longer this session's."""
    values = {"id": taken.id, "token": taken.token}
    return connection.execute(_RANGE_COMPARED, values).rowcount == 1


def compares(connection: Connection, backfill: int) -> bool:
    """Whether a comparison is to be made, or is under way."""
    query = "select exists (select from pipeline.snapshot_ranges where backfill_id = %s and compares)"
    return bool(queries.value(connection, query, (backfill,)))


def split(connection: Connection, taken: ClaimedRange, at: int) -> None:
    """It takes too long: it ends before block `at` from now on, and another one begins there."""
    connection.execute(statement("log.staging", "split_range"), {"id": taken.id, "token": taken.token, "at": at})


def shorten(connection: Connection, taken: ClaimedRange, at: int) -> bool:
    """It ends before block `at`, and another one begins there; False when it is no longer this session's."""
    values = {"id": taken.id, "token": taken.token, "at": at}
    return connection.execute(statement("log.staging", "shorten_range"), values).rowcount == 1


def version_of(connection: Connection, token: str) -> dict[str, Any] | None:
    """The form of the table that a range with this token was read of; None when nothing waits for this marker."""
    found: dict[str, Any] | None = queries.value(connection, _RANGE_VERSION, {"token": token})
    return found


def place(connection: Connection, token: str, relation: int, commit_lsn: int, committed_at: int, xid: int) -> None:
    """The range's marker has committed: its rows come there. `committed_at`: µs since 2000. May be repeated."""
    values = {
        "token": token,
        "relation": relation,
        "commit_lsn": commit_lsn,
        "committed_at": committed_at,
        "xid": xid,
    }
    connection.execute(statement("log.staging", "place_range"), values)


def placed(connection: Connection, source: uuid.UUID, commit_lsn: int) -> list[PlacedRange]:
    """The ranges with this place: one, as each marker has a transaction of its own."""
    values = {"source": source, "commit_lsn": commit_lsn}
    return queries.rows(connection, PlacedRange, statement("log.staging", "placed_ranges"), values)


def moved(
    connection: Connection, range_id: int, events_table: str, last_seq: int, added: int, left_out: Sequence[str] | None
) -> None:
    """Its rows are events, the last of them with this seq. In the transaction that adds them.

    `left_out`: of a range of keys those of which the log had something newer.
    """
    values = {"id": range_id, "events_table": events_table, "last_seq": last_seq, "added": added}
    values["left_out"] = None if left_out is None else list(left_out)
    connection.execute(statement("log.staging", "range_moved"), values)


def unfinished(connection: Connection, source: uuid.UUID) -> list[UnfinishedRange]:
    """Ranges that somebody has taken, and that have not become events."""
    return queries.rows(connection, UnfinishedRange, statement("log.staging", "unfinished_ranges"), {"source": source})


def reset(connection: Connection, ids: Sequence[int]) -> None:
    """Read these again: what was staged of them is dropped."""
    connection.execute(statement("log.staging", "reset_ranges"), {"ids": list(ids)})


def drop(connection: Connection, backfill: int, ids: Sequence[int] | None = None, *, placed: bool = False) -> None:
    """Forget all ranges of a backfill that have no place yet, or only these. What was staged is dropped.

    `placed`: also those that have one, in an epoch that has ended.
    """
    values = {"backfill": backfill, "ids": None if ids is None else list(ids), "placed": placed}
    connection.execute(statement("log.staging", "drop_ranges"), values)


def drop_outdated(connection: Connection, backfill: int, files: Mapping[str, int]) -> int:
    """Forget ranges of relations that are in other files now; returns how many. `files`: by oid, as JSON has them."""
    values = {"backfill": backfill, "files": Jsonb(dict(files))}
    return connection.execute(_DROP_OUTDATED, values).rowcount


def seen(connection: Connection, range_id: int, lsn: int) -> None:
    """Its marker has committed before this LSN of the source."""
    connection.execute(
        "update pipeline.snapshot_ranges set seen_lsn = %s where id = %s and seen_lsn is null", (lsn, range_id)
    )


def hold(connection: Connection, backfill: int, *, hold: bool = True) -> None:
    """Read none of its ranges for now, or again; those that are being read are finished."""
    connection.execute(_HOLD_RANGES, {"backfill": backfill, "hold": hold})


@dataclass(frozen=True)
class MovedRanges:
    """What has become of ranges since the last `collect`.

    `left_out`: of ranges of keys those of which the log had something newer.
    """

    ranges: int
    rows_read: int
    rows_added: int
    events_table: str | None
    first_seq: int | None
    last_seq: int | None
    left_out: list[str]


def collect(connection: Connection, backfill: int) -> MovedRanges:
    """The ranges of a backfill that have become events; they are forgotten. In the transaction that counts them."""
    found = queries.one(connection, MovedRanges, statement("log.staging", "collect_moved"), {"backfill": backfill})
    assert found is not None  # noqa: S101  an aggregate
    return found


def uncollected(connection: Connection, source: uuid.UUID) -> list[int]:
    """Backfills with something to `collect`."""
    return [number for (number,) in connection.execute(_UNCOLLECTED, {"source": source}).fetchall()]


def left(connection: Connection, backfill: int) -> int:
    """How many ranges of a backfill are to be read, or to become events, or to be counted."""
    query = "select count(*) from pipeline.snapshot_ranges where backfill_id = %s"
    return int(queries.value(connection, query, (backfill,)))
