"""Plans the export of a range: the rows of each table and schema version, and how tasks read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from adbc_driver_postgresql import dbapi

from lake.changes import whole_truncates
from lake.storage import layout
from pyspark_sequin_events import catalog
from pyspark_sequin_events.history import OURS, SchemaVersion
from pyspark_sequin_events.query import (
    bounded,
    changes_query,
    messages_query,
    qualified,
    table_by_oid,
    untyped_query,
    within,
)
from pyspark_sequin_events.reading import RangeRead

ROWS_PER_FILE = 500_000
"""The most rows that one task reads, and that one file holds."""
MESSAGE_SCHEMA: Mapping[str, str] = {**OURS, "prefix": "string", "content": "string", "content_bytes": "binary"}
UNTYPED_SCHEMA: Mapping[str, str] = {**OURS, "record": "string"}


@dataclass(frozen=True)
class ExportPart:
    """The rows of one table and schema version in a range. `read` reads all of them.

    `source_id`, `source_epoch` and `table_oid`: the table; `dataset`: its name in the lake at that point.
    """

    dataset: str
    version: int
    source_id: str
    source_epoch: int
    table_oid: int
    key: tuple[str, ...]
    read: RangeRead
    rows: int


def plan_parts(connection: dbapi.Connection, dsn: str, events_table: str, after: int, upto: int) -> list[ExportPart]:
    """Return parts that hold every row with after < seq <= upto, each row in exactly one part."""
    tables = catalog.rows(
        connection,
        "select source_table_schema as schema, source_table_name as name, source_database_id::text as source_id,"
        " source_epoch as epoch, source_table_oid as oid, count(*) as rows, count(commit_lsn) as placed,"
        " min(commit_lsn) as first_lsn, max(commit_lsn) as last_lsn, min(seq) as first, max(seq) as last,"
        " count(*) filter (where action = 'truncate') as truncates"
        f" from {qualified(events_table)} where {bounded(after, upto)}"
        " group by source_table_schema, source_table_name, source_database_id, source_epoch, source_table_oid"
        " order by 1, 2, 3, 4, 5",
    )
    found: list[ExportPart] = []
    if messages := [row for row in tables if not row["oid"]]:
        found.append(_message_part(dsn, events_table, messages))
    rest = whole_truncates.count_by_table(
        connection, events_table, (after, upto), [row for row in tables if row["oid"]]
    )
    for (schema, name), group in groupby(rest, key=lambda row: (row["schema"], row["name"])):
        versions = catalog.history(connection, schema, name)
        for row in group:
            found += _table_parts(connection, dsn, events_table, row, versions)
    return found


def _message_part(dsn: str, events_table: str, counts: list[dict[str, Any]]) -> ExportPart:
    query = messages_query(events_table)
    bounds = min(row["first"] for row in counts) - 1, max(row["last"] for row in counts)
    read = RangeRead(dsn, query, query, MESSAGE_SCHEMA, *bounds)
    newest = max(counts, key=lambda row: int(row["last"]))
    rows = sum(row["rows"] for row in counts)
    return ExportPart(layout.MESSAGES, 1, newest["source_id"], newest["epoch"], 0, (), read, rows)


def _table_parts(
    connection: dbapi.Connection,
    dsn: str,
    events_table: str,
    counts: Mapping[str, Any],
    versions: Sequence[SchemaVersion],
) -> Iterator[ExportPart]:
    schema, name = counts["schema"], counts["name"]
    table = counts["source_id"], counts["epoch"], counts["oid"]
    dataset, where = layout.dataset(schema, name), table_by_oid(*table) + counts.get("where", "")
    events = counts.get("events")
    bounds = counts["first"] - 1, counts["last"]
    known = 0
    for version in versions:
        query = changes_query(events_table, schema, name, version, events=events, where=where)
        within_version = _is_within(version, counts)
        held = counts["rows"] if within_version else 0 if within_version is False else _count(connection, query, bounds)
        known += held
        if held:
            careful = changes_query(events_table, schema, name, version, careful=True, events=events, where=where)
            read = RangeRead(dsn, query, careful, version.schema, *bounds)
            yield ExportPart(dataset, version.number, *table, version.key_names, read, held)
    if known < counts["rows"]:
        query = untyped_query(events_table, schema, name, versions, where)
        read = RangeRead(dsn, query, query, UNTYPED_SCHEMA, *bounds)
        yield ExportPart(dataset, layout.UNTYPED, *table, (), read, counts["rows"] - known)


def _is_within(version: SchemaVersion, counts: Mapping[str, Any]) -> bool | None:
    """Return True if all rows are of that version, False if none is, None if the rows must be counted."""
    if counts["first_lsn"] is None:
        return False
    low, high = ((counts["epoch"], counts[name]) for name in ("first_lsn", "last_lsn"))
    sides = []
    for span in version.spans:
        since = (span.since.epoch, span.since.lsn) if span.since else (-1, -1)
        until = (span.until.epoch, span.until.lsn) if span.until else (1 << 31, 0)
        if span.source_id == counts["source_id"] and since <= high and until >= low:
            sides.append(since < low and until > high)
    if not sides:
        return False
    return True if any(sides) and counts["placed"] == counts["rows"] else None


def _count(connection: dbapi.Connection, query: str, bounds: tuple[int, int]) -> int:
    held = within(query, *bounds)
    return int(catalog.rows(connection, f"select count(*) as rows from ({held}) as held")[0]["rows"])


def schemas(found: Sequence[ExportPart]) -> dict[str, dict[int, dict[str, object]]]:
    """Return columns and key of each dataset's schema versions, as the ledger stores them."""
    kept: dict[str, dict[int, dict[str, object]]] = {}
    for part in found:
        kept.setdefault(part.dataset, {})[part.version] = {
            "columns": dict(part.read.schema),
            "key": list(part.key),
        }
    return kept
