"""What a table holds as of a seq, by going through its events one by one: nothing of the fold is used."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

Row = dict[str, Any]
EVENT = (
    "seq, source_epoch, source_table_oid, action, record_pk, record::text, changes::text, unchanged_columns,"
    " committed_at"
)
"""The columns of an event that a replay needs."""


def replay(events: Iterable[Mapping[str, Any]], key: Sequence[str], upto: int) -> dict[str, Row]:
    """Rows by record_pk: `seq` and `committed_at` of the last change of each, and its record as the source had it."""
    rows: dict[tuple[Any, ...], Row] = {}
    table: tuple[int, int] | None = None
    for event in events:
        if event["seq"] > upto:
            break
        now = event["source_epoch"], event["source_table_oid"]
        if table and table[0] == now[0] and table != now:
            rows = {}
        table = now
        if event["action"] == "truncate":
            rows = {}
        else:
            _apply(rows, event, key)
    return {row["record_pk"]: row for row in rows.values()}


def _apply(rows: dict[tuple[Any, ...], Row], event: Mapping[str, Any], key: Sequence[str]) -> None:
    record = _parsed(event["record"])
    changes = _parsed(event["changes"]) if event["changes"] else {}
    before = rows.pop(tuple(changes.get(column, record[column]) for column in key), {})
    if event["action"] == "delete":
        return
    unchanged = {column: before.get(column) for column in event["unchanged_columns"] or ()}
    ours = {name: event[name] for name in ("seq", "committed_at", "record_pk")}
    rows[tuple(record[column] for column in key)] = {**record, **unchanged, **ours}


def _parsed(text: str) -> Row:
    found: Row = json.loads(text, parse_float=Decimal)
    return found
