"""Truncates of partitions: events name the partition, and the log keeps its rows as those of its table."""

from __future__ import annotations

import logging
import time

from psycopg import sql
from psycopg.types.json import Jsonb

from pipeline.capture.source.sources import Source
from pipeline.log import tables as events_tables
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

logger = logging.getLogger(__name__)

_STORE_SECONDS = 60.0
"""Between two times that it stores how far it has looked."""


class PartitionTruncates:
    """Looks for them, each time only among newer events, and makes their tables incomplete.

    Each look begins where the one before the last ended: a partition that was truncated at once may be stored only now.
    """

    def __init__(self, pipeline: Connection, stored: Source) -> None:
        self._pipeline, self._stored = pipeline, stored
        self._after: dict[str, int] = {}
        self._newest: dict[str, int] = {}
        self._stored_at = time.monotonic()

    def look(self) -> None:
        """Find those that the log has got since the last look."""
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
