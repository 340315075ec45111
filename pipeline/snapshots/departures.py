"""Find keys that rows no longer have after an update: the log has no separate event under such a key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from psycopg import sql
from psycopg.types.json import Jsonb

from pipeline.capture.schema_history.versions import HistoryVersion
from pipeline.capture.source.sources import ReplicationSource
from pipeline.log import tables as events_tables
from pipeline.log.table import EventsTable
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

ChangePlace = list[int]
"""The position of a change in the stream: epoch, commit_lsn and commit_idx."""
TABLES = 32
"""The most tables whose departures stay in memory: workers read ranges of several tables in turns."""


@dataclass
class _TableDepartures:
    """The departures of one table.

    `places`: by key, the last change with which a row left it. `seqs`: by events table, how far the log was read.
    """

    key_columns: tuple[str, ...]
    seqs: Mapping[str, int] = field(default_factory=dict)
    places: dict[str, ChangePlace] = field(default_factory=dict)


class KeyDepartures:
    """The departures of the tables that were read last. Each read continues after the last one."""

    def __init__(self, pipeline: Connection, stored: ReplicationSource) -> None:
        self._pipeline, self._stored = pipeline, stored
        self._known: dict[int, _TableDepartures] = {}

    def select(self, table_oid: int, version: HistoryVersion, keys: Iterable[str]) -> dict[str, Any]:
        """Return the departures of rows with these values of `record_pk`, as the column `departed` stores them."""
        known = self._known.get(table_oid)
        if known is None or known.key_columns != version.key_columns:
            return {"keys": {}, "seqs": {}}
        return {"keys": {key: known.places[key] for key in keys if key in known.places}, "seqs": known.seqs}

    def read_new_events(self, table_oid: int, version: HistoryVersion) -> None:
        """Read the events of this table that the log has by now."""
        known = self._known.pop(table_oid, None)
        if known is None or known.key_columns != version.key_columns:
            known = _TableDepartures(version.key_columns)
        values = {"source": self._stored.id}
        seqs: dict[str, int] = queries.value(self._pipeline, statement("snapshots", "sample"), values)
        for table in events_tables.with_known(self._pipeline, []):
            after, upto = known.seqs.get(str(table), 0), seqs.get(str(table), 0)
            if upto > after:
                for key, place in self._between(table, table_oid, version, after, upto):
                    known.places[key] = max(place, known.places.get(key, []))
        known.seqs = seqs
        self._known[table_oid] = known
        if len(self._known) > TABLES:
            del self._known[next(iter(self._known))]

    def _between(
        self, table: EventsTable, table_oid: int, version: HistoryVersion, after: int, upto: int
    ) -> Iterator[tuple[str, ChangePlace]]:
        query = sql.SQL(statement("snapshots", "departures")).format(
            events=table.identifier,
            key=sql.SQL(statement("log", "key_of_record")).format(
                names=sql.SQL("%(names)s::text[]"),
                record=sql.SQL("e.was"),
                columns=sql.SQL("%(columns)s::jsonb"),
            ),
        )
        values = {
            "source": self._stored.id,
            "table": table_oid,
            "after": after,
            "upto": upto,
            "names": list(version.key_columns),
            "columns": Jsonb([asdict(column) for column in version.columns]),
        }
        for key, *place in self._pipeline.execute(query, values).fetchall():
            yield key, place
