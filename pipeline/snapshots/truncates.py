"""From a truncate on, the log has a table whole, whether it was ever read or not."""

from __future__ import annotations

from collections.abc import Callable, Collection

from psycopg import sql

from pipeline.capture.source.sources import Source
from pipeline.log import tables as events_tables
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement


class Watch:
    """Looks for truncates of captured tables that are not whole, each time only among newer events."""

    def __init__(self, pipeline: Connection, stored: Source) -> None:
        self._pipeline, self._stored = pipeline, stored
        self._after: dict[str, int] = {}
        self._truncated: dict[int, tuple[str, int, int]] = {}

    def look(self, leaves: Callable[[int], Collection[int]]) -> None:
        """`leaves`: the relations that hold the rows of a table now; all of them must have been truncated."""
        source = {"source": self._stored.id}
        incomplete = self._pipeline.execute(statement("snapshots", "incomplete_tables"), source).fetchall()
        if not incomplete:
            return
        self._find([oid for _, relations, *_ in incomplete for oid in relations])
        for table, relations, since_seqs, since_lsn in incomplete:
            known = {oid: self._truncated[oid] for oid in relations if oid in self._truncated}
            # A log that lags gets truncates that were made before.
            found = {
                oid: (name, seq)
                for oid, (name, seq, lsn) in known.items()
                if seq > since_seqs.get(name, 0) and lsn > since_lsn
            }
            if found and (holding := leaves(table)) and found.keys() >= set(holding):
                name, seq = max((found[oid] for oid in holding), key=lambda place: place[1])
                values = {
                    **source,
                    "oid": table,
                    "seq": seq,
                    "events_table": name,
                    "first_seq": None,
                    "told_seqs": None,
                }
                self._pipeline.execute(statement("snapshots", "complete_table"), values)

    def _find(self, oids: list[int]) -> None:
        for table in events_tables.with_known(self._pipeline, []):
            newest = self._pipeline.execute(
                statement("snapshots", "newest_seq"), {"source": self._stored.id, "name": str(table)}
            ).fetchone()
            query = sql.SQL(statement("snapshots", "truncated_since")).format(events=table.identifier)
            values = {
                "source": self._stored.id,
                "epoch": self._stored.epoch,
                "oids": oids,
                "after": self._after.get(str(table), 0),
            }
            for oid, seq, lsn in self._pipeline.execute(query, values).fetchall():
                self._truncated[oid] = str(table), seq, lsn
            self._after[str(table)] = newest[0] if newest else 0
