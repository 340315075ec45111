"""Which keys rows have left by an update: the log has no event of its own under such a key that says so."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from psycopg import sql
from psycopg.types.json import Jsonb

from pipeline.capture.schema_history.versions import TableVersion
from pipeline.capture.source.sources import Source
from pipeline.log import tables as events_tables
from pipeline.log.table import EventsTable
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

Place = list[int]
"""Epoch, commit_lsn and commit_idx."""


class Departures:
    """Of one table at a time, kept in memory: each look reads only what has come to the log since the one before."""

    def __init__(self, pipeline: Connection, stored: Source) -> None:
        self._pipeline, self._stored = pipeline, stored
        self._of: tuple[int, tuple[str, ...]] = (0, ())
        self._seqs: dict[str, int] = {}
        self._places: dict[str, Place] = {}

    def of(self, table_oid: int, version: TableVersion, keys: Iterable[str]) -> dict[str, Any]:
        """Of these keys, as `record_pk` has them and as far as was looked: `pipeline.snapshot_ranges.departed`."""
        if self._of != (table_oid, version.key_columns):
            return {"keys": {}, "seqs": {}}
        return {"keys": {key: self._places[key] for key in keys if key in self._places}, "seqs": self._seqs}

    def look(self, table_oid: int, version: TableVersion) -> None:
        """Read what the log has now of this table."""
        if self._of != (table_oid, version.key_columns):
            self._of = table_oid, version.key_columns
            self._seqs, self._places = {}, {}
        values = {"source": self._stored.id}
        seqs: dict[str, int] = queries.value(self._pipeline, statement("capture.snapshot", "sample"), values)
        for table in events_tables.with_known(self._pipeline, []):
            if seqs.get(str(table), 0) > self._seqs.get(str(table), 0):
                self._look(table, version, seqs[str(table)])
        self._seqs = dict(seqs)

    def _look(self, table: EventsTable, version: TableVersion, upto: int) -> None:
        query = sql.SQL(statement("capture.snapshot", "departures")).format(
            events=table.identifier,
            key=sql.SQL(statement("readers.queue", "key_of_record")).format(
                names=sql.SQL("%(names)s::text[]"),
                record=sql.SQL("e.was"),
                columns=sql.SQL("%(columns)s::jsonb"),
            ),
        )
        values = {
            "source": self._stored.id,
            "table": self._of[0],
            "after": self._seqs.get(str(table), 0),
            "upto": upto,
            "names": list(version.key_columns),
            "columns": Jsonb([asdict(column) for column in version.columns]),
        }
        for key, *place in self._pipeline.execute(query, values).fetchall():
            self._places[key] = max(place, self._places.get(key, []))
