"""Keys that tables had only between two looks at the catalog: what was done to rows meanwhile is in the log under them.

Such a version of a table is known by the stream alone, once it gets there.
"""

from __future__ import annotations

from collections import defaultdict

import psycopg

from pipeline.capture.schema_history import versions
from pipeline.capture.source.captured_now import CapturedTable
from pipeline.capture.source.sources import ReplicationSource
from pipeline.comparing import compared
from pipeline.errors import NotComparableError
from pipeline.postgres.connections import Connection
from pipeline.snapshots.known_tables import SnapshotTable

Key = frozenset[int]
"""Numbers of its columns."""
ELSEWHERE = Key((0,))
"""The key of a partition: its rows are those of another table."""


class FormerKeys:
    """Kept in memory; each look reads only what has been recorded since the one before."""

    def __init__(self, source: Connection, pipeline: Connection, stored: ReplicationSource) -> None:
        self._source, self._pipeline, self._stored = source, pipeline, stored
        self._after = 0
        self._keys: dict[int, list[tuple[int, Key]]] = defaultdict(list)
        """By table, the keys of its versions, each with the commit_lsn of the version's first change."""

    def look(self) -> None:
        """Read what the stream has learnt."""
        for number, oid, lsn, partition, key in versions.new_keys(
            self._pipeline, self._stored.id, self._stored.epoch, self._after
        ):
            self._after = number
            certain = ELSEWHERE if partition else Key(each for each in key if each is not None)
            if partition or len(certain) == len(key):
                self._keys[oid].append((lsn, certain))

    def had_another(self, table: CapturedTable, known: SnapshotTable | None) -> bool:
        """Whether its key was another one and is as before again, since the log has the table by this key.

        Or it was a partition for a while, and what was done to it then is another table's in the log.
        `known`: None before the first look at it: then its key may have been another since it is captured.
        """
        since_lsn = 0 if known is None else known.since_lsn
        if not table.key or ";" in table.key or since_lsn is None:
            return False
        since = {key for lsn, key in self._keys[table.oid] if lsn > since_lsn}
        others = since - {Key(map(int, table.key.split(", ")))}
        return bool(others) and self._as_sent(table) not in (None, *others)

    def _as_sent(self, table: CapturedTable) -> Key | None:
        """Its key as the stream would have it now: without columns that are not published."""
        try:
            found = compared.read(self._source, self._pipeline, self._stored, table.oid)
        except (NotComparableError, psycopg.errors.LockNotAvailable):  # not now
            return None
        return Key(column.attnum for column in found.key if column.attnum is not None)
