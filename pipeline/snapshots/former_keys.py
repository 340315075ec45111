"""Find keys that tables had only for a while between two reads of the catalog: the log has changes under such keys.

Only the stream shows such a version of a table, once it gets to that point.
"""

from __future__ import annotations

from collections import defaultdict

import psycopg

from pipeline.capture.schema_history import versions
from pipeline.capture.source.captured_now import CapturedTable
from pipeline.capture.source.sources import ReplicationSource
from pipeline.comparing import compared_table
from pipeline.errors import NotComparableError
from pipeline.postgres.connections import Connection
from pipeline.snapshots.known_tables import SnapshotTable

Key = frozenset[int]
"""The attribute numbers of the key's columns."""
ELSEWHERE = Key((0,))
"""The key of a partition: its rows are those of another table."""


class FormerKeys:
    """The former keys of all tables. Each read continues after the last one."""

    def __init__(self, source: Connection, pipeline: Connection, stored: ReplicationSource) -> None:
        self._source, self._pipeline, self._stored = source, pipeline, stored
        self._after = 0
        self._keys: dict[int, list[tuple[int, Key]]] = defaultdict(list)
        """By table oid, the keys of its versions, each with the commit_lsn of the version's first change."""

    def read_new_versions(self) -> None:
        """Read the table versions that the stream has recorded."""
        for number, oid, lsn, partition, key in versions.new_keys(
            self._pipeline, self._stored.id, self._stored.epoch, self._after
        ):
            self._after = number
            certain = ELSEWHERE if partition else Key(each for each in key if each is not None)
            if partition or len(certain) == len(key):
                self._keys[oid].append((lsn, certain))

    def had_another(self, table: CapturedTable, known: SnapshotTable | None) -> bool:
        """True if the table had another key for a while after the log first had it with its current key.

        Also true if the table was a partition in between: the log has changes from that time as another table's.
        `known`: None if the table is not stored yet; then its key may have been another one since its capture began.
        """
        since_lsn = 0 if known is None else known.since_lsn
        if not table.key or ";" in table.key or since_lsn is None:
            return False
        since = {key for lsn, key in self._keys[table.oid] if lsn > since_lsn}
        others = since - {Key(map(int, table.key.split(", ")))}
        return bool(others) and self._as_sent(table) not in (None, *others)

    def _as_sent(self, table: CapturedTable) -> Key | None:
        """Return the key as the stream would have it now, without unpublished columns; None if it cannot be read."""
        try:
            found = compared_table.read(self._source, self._pipeline, self._stored, table.oid)
        except (NotComparableError, psycopg.errors.LockNotAvailable):  # cannot be read now
            return None
        return Key(column.attnum for column in found.key if column.attnum is not None)
