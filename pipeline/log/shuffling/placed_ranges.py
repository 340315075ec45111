"""Move rows that were read from a table to the place of their marker, except those of which the log has newer events.

A range is read in a snapshot, and its marker commits later: transactions that are visible to the snapshot have
committed before the marker, so a row comes after every change that it contains. Some changes that it does not contain
may have committed before the marker, too. A row whose key they touch is left out, since the log has a newer event of it
(docs/internals/decisions/0011-reading-beside-the-stream.md).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from pipeline.log import tables
from pipeline.log.shuffling import settled_ranges
from pipeline.log.shuffling.last_changes import LastChanges
from pipeline.log.shuffling.plan import ShuffleRun
from pipeline.log.shuffling.transfer import RowTransfer
from pipeline.log.staging import ranges, segments
from pipeline.log.staging.ranges import PlacedRange
from pipeline.log.staging.segments import Segment
from pipeline.log.table import EventsTable
from pipeline.postgres import connections
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_PLACED = """(select {commit_lsn}::bigint as commit_lsn, {place}::integer as commit_idx, {place} - 1 as ordinal,
    {relation}::integer as relation_id, {xid}::bigint as xid, {committed_at}::timestamptz as committed_at,
    s.action, s.record_pk, s.record, s.changes, s.exact, s.unchanged_columns, s.transaction_annotations, s.previous_pk,
    s.metadata from only {table} s{kept})"""
"""Staged rows with the place of their range; the columns of wal_events, in their order."""


@dataclass(frozen=True)
class PlacedSegment(Segment):
    """A segment with the rows of a placed range. `left_out`: ordinals of its rows that become no events."""

    placed: PlacedRange
    left_out: Sequence[int] = ()

    @property
    def rows(self) -> sql.Composable:
        """The query for its rows, whose places and ordinals have no gaps."""
        place: sql.Composable = sql.SQL("(s.ordinal + 1)")
        kept: sql.Composable = sql.SQL("")
        if self.left_out:
            place = sql.SQL("(row_number() over (order by s.ordinal))")
            kept = sql.SQL(" where s.ordinal <> all({}::bigint[])").format(sql.Literal(list(self.left_out)))
        return sql.SQL(_PLACED).format(
            commit_lsn=sql.Literal(self.placed.commit_lsn),
            place=place,
            relation=sql.Literal(self.placed.relation_id),
            xid=sql.Literal(self.placed.xid),
            committed_at=sql.Literal(self.placed.committed_at.isoformat()),
            table=segments.table(self.id),
            kept=kept,
        )


@dataclass(frozen=True)
class PlacedRun(ShuffleRun):
    """A run that moves the ranges with one place.

    Each range comes with the ordinals of rows of which the log has newer events, and of all rows that are left out.
    """

    ranges: tuple[tuple[PlacedRange, Sequence[int], Sequence[int]], ...]

    @property
    def only_reads(self) -> bool:
        """True if none of its rows becomes a change, as rows of a comparison may."""
        return all(placed.differences is None for placed, *_ in self.ranges)


def run_of(
    connection: Connection, source: uuid.UUID, epoch: int, after: int, commit_lsn: int, changes: LastChanges
) -> PlacedRun:
    """Return the steps that move the ranges placed at this commit; all earlier commits must be in the log."""
    written = tables.with_known(connection, [])
    upto = changes.read_last_seqs(connection, written)
    found = []
    for placed in ranges.read_placed(connection, source, commit_lsn):
        newer = _left_out(connection, source, epoch, placed, written, upto)
        left_out = newer
        if placed.differences is not None:
            left_out = sorted({*newer, *settled_ranges.settle(connection, source, placed, newer, written)})
        found.append((placed, newer, left_out))
    moving = [
        PlacedSegment(
            placed.segment_id, True, commit_lsn, commit_lsn, 0, placed.rows_read - len(left_out), placed, left_out
        )
        for placed, _, left_out in found
        if placed.segment_id is not None
    ]
    return PlacedRun(tuple(moving), after, commit_lsn, tuple(segment.id for segment in moving), tuple(found))


def _left_out(
    connection: Connection,
    source: uuid.UUID,
    epoch: int,
    placed: PlacedRange,
    written: Sequence[EventsTable],
    upto: Mapping[str, int],
) -> list[int]:
    """Return the ordinals of rows of which the log has a change that the range's snapshot does not contain.

    `upto`: the last seq that a change may have, by events table.
    """
    if placed.segment_id is None or not written:
        return []
    if not placed.by_key:
        return _known_already(connection, source, placed, placed.segment_id, written)
    key = sql.SQL(statement("log", "key_of_record")).format(
        names=sql.SQL("r.key_columns"), record=sql.SQL("n.was"), columns=sql.SQL("r.columns")
    )
    newer: dict[str, set[int]] = {}
    for table in written:
        since = placed.since_seqs.get(str(table), 0)
        if upto[str(table)] <= since:
            continue
        names = {"segment": segments.table(placed.segment_id), "events": table.identifier}
        values = {
            "source": source,
            "epoch": epoch,
            "table": placed.table_oid,
            "since": since,
            "upto": upto[str(table)],
            "snapshot": placed.snapshot,
            "relation": placed.relation_id,
        }
        query = sql.SQL(statement("log.shuffling", "touched_since")).format(key=key, **names)
        newer[str(table)] = {ordinal for (ordinal,) in connection.execute(query, values).fetchall()}
        if placed.of_keys and len(written) == 1:
            newer[str(table)] -= _completed(connection, names, {**values, "ordinals": list(newer[str(table)])})
    return sorted(set().union(*newer.values()))


def _completed(connection: Connection, names: Mapping[str, sql.Composable], values: Mapping[str, Any]) -> set[int]:
    """Complete rows whose newer events lack only values that did not change since; returns their ordinals.

    Otherwise a row that is updated all the time would be read again and again. May be repeated.
    """
    if not values["ordinals"]:
        return set()
    query = sql.SQL(statement("log.shuffling", "complete_rows")).format(**names)
    try:
        return {ordinal for (ordinal,) in connection.execute(query, values).fetchall()}
    except psycopg.Error as error:
        if connections.is_poison(error):
            return set()
        raise


def _known_already(
    connection: Connection, source: uuid.UUID, placed: PlacedRange, segment: int, written: Sequence[EventsTable]
) -> list[int]:
    """Return the ordinals of rows without a key that the log has: of equal rows as many as the log has."""
    each = sql.SQL(statement("log.shuffling", "rows_without_key"))
    events = sql.SQL("\nunion all\n").join(each.format(events=table.identifier) for table in written)
    query = sql.SQL(statement("log.shuffling", "known_without_key")).format(
        segment=segments.table(segment), changes=events
    )
    values = {"source": source, "table": placed.table_oid, "snapshot": placed.snapshot}
    return [ordinal for (ordinal,) in connection.execute(query, values).fetchall()]


def record_moved(connection: Connection, run: PlacedRun, transfer: RowTransfer) -> None:
    """Record that the rows of a run are events, in the transaction that adds them."""
    newest = transfer.newest if transfer.moved else ("", 0)
    for placed, newer, left_out in run.ranges:
        again = _keys_of(connection, placed, newer) if placed.of_keys else None
        ranges.record_moved(connection, placed.id, *newest, placed.rows_read - len(left_out), again)


def _keys_of(connection: Connection, placed: PlacedRange, ordinals: Sequence[int]) -> list[str]:
    """Return the keys of staged rows."""
    if placed.segment_id is None or not ordinals:
        return []
    query = sql.SQL("select record_pk from only {} where ordinal = any(%s)").format(segments.table(placed.segment_id))
    return [pk for (pk,) in connection.execute(query, (list(ordinals),)).fetchall()]
