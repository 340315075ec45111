"""Settle which rows of a comparison become events: those that differ from the last event of their key.

When a range is moved, the log has everything before its place and nothing after it. As for every range, a row is left
out first if a transaction has touched it that the range's snapshot does not contain.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from pipeline.log.staging import segments
from pipeline.log.staging.ranges import PlacedRange
from pipeline.log.table import EventsTable
from pipeline.postgres import connections, queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_UNION = sql.SQL("\n    union all\n    ")


def settle(
    connection: Connection,
    source: uuid.UUID,
    placed: PlacedRange,
    touched: Sequence[int],
    written: Sequence[EventsTable],
) -> list[int]:
    """Give staged rows their actions; returns the ordinals of those that are no events. May be repeated.

    `touched`: ordinals that are left out already; `written`: all events tables.
    """
    if placed.segment_id is None or placed.differences is None:
        return []
    if not written:  # the log knows no row: all rows that were read become events
        gone = sql.SQL("select ordinal from only {} where action = 'delete'").format(segments.table(placed.segment_id))
        return [ordinal for (ordinal,) in connection.execute(gone).fetchall()]
    query = _query(placed.segment_id, written)
    void_epoch, void_lsn = placed.differences["void_upto"] or (None, None)
    values = {
        "source": source,
        "void_epoch": void_epoch,
        "void_lsn": void_lsn,
        "table": placed.table_oid,
        "relation": placed.relation_id,
        "touched": list(touched),
        "departed": Jsonb(placed.departed or {"keys": {}, "seqs": {}}),
        "metadata": json.dumps(placed.differences["metadata"]),
    }
    while True:
        is_complete = _log_is_complete(connection, placed, written)
        found = _settle(connection, query, {**values, "log_is_complete": is_complete}, 0, placed.rows_read - 1)
        if not is_complete or _log_is_complete(connection, placed, written):
            return found  # otherwise retention has begun to drop events that the query needed


def _settle(connection: Connection, query: sql.Composed, values: Mapping[str, Any], low: int, high: int) -> list[int]:
    """Settle the rows from one ordinal to another.

    A row that is no JSON, or too large, stays as it is: it cannot be written.
    """
    try:
        return [each for (each,) in connection.execute(query, {**values, "low": low, "high": high}).fetchall()]
    except psycopg.Error as error:
        if not connections.is_poison(error):
            raise
    if low >= high:
        return []
    middle = (low + high) // 2
    return _settle(connection, query, values, low, middle) + _settle(connection, query, values, middle + 1, high)


def _query(segment: int, written: Sequence[EventsTable]) -> sql.Composed:
    key = sql.SQL(statement("log", "key_of_record")).format(
        names=sql.SQL("form.key_columns"), record=sql.SQL("e.was"), columns=sql.SQL("form.columns")
    )
    departures = sql.SQL(statement("log.shuffling", "left_keys"))
    return sql.SQL(statement("log.shuffling", "settle_rows")).format(
        segment=segments.table(segment),
        truncates=_each("truncates_of_table", written),
        departures=_UNION.join(
            departures.format(events=table.identifier, name=sql.Literal(str(table)), key=key) for table in written
        ),
        events=_each("newest_of_key", written),
    )


def _each(name: str, written: Sequence[EventsTable]) -> sql.Composable:
    each = sql.SQL(statement("log.shuffling", name))
    return _UNION.join(each.format(events=table.identifier, name=sql.Literal(str(table))) for table in written)


def _log_is_complete(connection: Connection, placed: PlacedRange, written: Sequence[EventsTable]) -> bool:
    """Return True if the log has events of all keys that the table ever had, and retention has dropped none."""
    complete_seqs = (placed.differences or {}).get("told_seqs")
    if complete_seqs is None:
        return False
    values = {"tables": [str(table) for table in written], "complete_seqs": Jsonb(complete_seqs)}
    return bool(queries.value(connection, statement("log.shuffling", "log_is_complete"), values))
