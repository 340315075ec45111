"""Find truncates in the log. A truncate of a table makes it complete; one of a partition makes it incomplete."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection

from psycopg import sql
from psycopg.types.json import Jsonb

from pipeline.capture.source.sources import ReplicationSource
from pipeline.log import tables as events_tables
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

logger = logging.getLogger(__name__)


_STORE_SECONDS = 60.0
"""Seconds after which the searched seqs are stored again."""


class TableTruncates:
    """Searches newer events for truncates of captured tables that are incomplete in the log, and completes these."""

    def __init__(self, pipeline: Connection, stored: ReplicationSource) -> None:
        self._pipeline, self._stored = pipeline, stored
        self._after: dict[str, int] = {}
        self._truncated: dict[int, tuple[str, int, int]] = {}

    def complete_truncated(self, leaves: Callable[[int], Collection[int]]) -> None:
        """Mark tables as complete in the log if all their relations were truncated.

        `leaves` returns the relations that hold the rows of a table now.
        """
        source = {"source": self._stored.id}
        incomplete = self._pipeline.execute(statement("snapshots", "incomplete_tables"), source).fetchall()
        if not incomplete:
            return
        self._find([oid for _, relations, *_ in incomplete for oid in relations])
        for table, relations, since_seqs, since_lsn in incomplete:
            known = {oid: self._truncated[oid] for oid in relations if oid in self._truncated}
            # A log that lags may receive truncates from before the table joined: they do not count.
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


class PartitionTruncates:
    """Searches newer events for truncates of partitions, and stores them, which makes their tables incomplete.

    Each search repeats the last one, too, because a new partition that was truncated at once may not have been stored
    then.
    """

    def __init__(self, pipeline: Connection, stored: ReplicationSource) -> None:
        self._pipeline, self._stored = pipeline, stored
        self._after: dict[str, int] = {}
        self._newest: dict[str, int] = {}
        self._stored_at = time.monotonic()

    def store_truncates(self) -> None:
        """Find and store the truncates of partitions since the last search."""
        place = {"source": self._stored.id, "epoch": self._stored.epoch}
        for table in events_tables.with_known(self._pipeline, []):
            name = str(table)
            if name not in self._after:
                query = """select min((after_seqs ->> %(name)s)::bigint) from pipeline.partition_looks
                    where source_id = %(source)s and epoch = %(epoch)s"""
                self._after[name] = queries.value(self._pipeline, query, {**place, "name": name}) or 0
            newest = queries.value(
                self._pipeline, statement("snapshots", "newest_seq"), {"source": self._stored.id, "name": name}
            )
            if newest == self._after[name]:
                continue
            found = sql.SQL(statement("snapshots", "truncated_partitions")).format(events=table.identifier)
            values = {**place, "name": name, "after": self._after[name]}
            for (leaf,) in self._pipeline.execute(found, values).fetchall():
                logger.warning(
                    "partition %s was truncated: the log keeps its rows",
                    leaf,
                    extra={"action": "partition.truncated", "partition": leaf},
                )
            self._after[name] = self._newest.get(name, self._after[name])
            self._newest[name] = newest
        if self._after and time.monotonic() >= self._stored_at + _STORE_SECONDS:
            self._stored_at = time.monotonic()
            self._pipeline.execute(statement("snapshots", "truncates_seen"), {**place, "seqs": Jsonb(self._after)})
