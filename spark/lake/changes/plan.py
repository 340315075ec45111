"""What an export of a range reads: how many rows of each table and schema version, in which pieces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import ceil
from typing import Any

from adbc_driver_postgresql import dbapi

from lake import layout
from lake.changes.writer import Piece
from pyspark_sequin_events import catalog
from pyspark_sequin_events.history import OURS, Version
from pyspark_sequin_events.query import bounded, changes_of, messages_of, qualified, untyped_of, within
from pyspark_sequin_events.reading import Read

ROWS_PER_FILE = 500_000
"""The most rows that one task reads and one file holds."""
MESSAGE_SCHEMA: Mapping[str, str] = {**OURS, "prefix": "string", "content": "string", "content_bytes": "binary"}
UNTYPED_SCHEMA: Mapping[str, str] = {**OURS, "record": "string"}


@dataclass(frozen=True)
class Part:
    """The rows of one dataset and schema version in a range, to be read with `read` (whose range is all of them)."""

    dataset: str
    version: int
    key: tuple[str, ...]
    read: Read
    rows: int

    def pieces(self, folder: str, rows_per_file: int) -> Iterator[Piece]:
        """The part in ranges of seq, each of about so many rows."""
        wide = ceil((self.read.upto - self.read.after) / max(1, ceil(self.rows / rows_per_file)))
        for after in range(self.read.after, self.read.upto, wide):
            read = replace(self.read, after=after, upto=min(after + wide, self.read.upto))
            yield Piece(read, self.dataset, self.version, folder)


def parts(connection: dbapi.Connection, dsn: str, events_table: str, after: int, upto: int) -> list[Part]:
    """Parts that hold every row with after < seq <= upto, each row in exactly one part."""
    tables = catalog.rows(
        connection,
        "select source_table_schema as schema, source_table_name as name, source_table_oid = 0 as message,"
        " source_database_id::text as source_id, count(*) as rows, count(commit_lsn) as placed,"
        f" min(seq) as first, max(seq) as last from {qualified(events_table)} where {bounded(after, upto)}"
        " group by 1, 2, 3, source_database_id order by 1, 2",
    )
    found: list[Part] = []
    messages = [row for row in tables if row["message"]]
    if messages:
        query = messages_of(events_table)
        bounds = min(row["first"] for row in messages) - 1, max(row["last"] for row in messages)
        read = Read(dsn, query, query, MESSAGE_SCHEMA, *bounds)
        found.append(Part(layout.MESSAGES, 1, (), read, sum(row["rows"] for row in messages)))
    rest = (row for row in tables if not row["message"])
    for (schema, name), group in groupby(rest, key=lambda row: (row["schema"], row["name"])):
        found += _of_table(connection, dsn, events_table, (schema, name), list(group))
    return found


def _of_table(
    connection: dbapi.Connection, dsn: str, events_table: str, table: tuple[str, str], held_by: list[dict[str, Any]]
) -> Iterator[Part]:
    schema, name = table
    dataset = layout.dataset(schema, name)
    versions = catalog.history(connection, schema, name)
    bounds = min(row["first"] for row in held_by) - 1, max(row["last"] for row in held_by)
    rows = sum(row["rows"] for row in held_by)
    known = 0
    for version in versions:
        query = changes_of(events_table, schema, name, version)
        held = rows if _holds_all(versions, held_by) else _count(connection, query, bounds)
        known += held
        if held:
            careful = changes_of(events_table, schema, name, version, careful=True)
            read = Read(dsn, query, careful, version.schema, *bounds)
            yield Part(dataset, version.number, version.key_names, read, held)
    if known < rows:
        query = untyped_of(events_table, schema, name, versions)
        yield Part(dataset, layout.UNTYPED, (), Read(dsn, query, query, UNTYPED_SCHEMA, *bounds), rows - known)


def _holds_all(versions: Sequence[Version], held_by: list[dict[str, Any]]) -> bool:
    """Whether all rows belong to the only version: nearly always so, and then no count is needed."""
    if len(versions) != 1:
        return False
    sources = {span.source_id for span in versions[0].spans if span.since is None and span.until is None}
    return all(row["source_id"] in sources and row["placed"] == row["rows"] for row in held_by)


def _count(connection: dbapi.Connection, query: str, bounds: tuple[int, int]) -> int:
    held = within(query, *bounds)
    return int(catalog.rows(connection, f"select count(*) as rows from ({held}) as held")[0]["rows"])


def datasets(found: Sequence[Part]) -> dict[str, dict[str, dict[str, object]]]:
    """Columns and key of each dataset's schema versions, as the ledger keeps them."""
    kept: dict[str, dict[str, dict[str, object]]] = {}
    for part in found:
        kept.setdefault(part.dataset, {})[str(part.version)] = {
            "columns": dict(part.read.schema),
            "key": list(part.key),
        }
    return kept
