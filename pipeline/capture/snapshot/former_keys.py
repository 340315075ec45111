"""Keys that tables had only between two looks at the catalog: what was done to rows meanwhile is in the log under them.

Such a version of a table is known by the stream alone, once it gets there.
"""

from __future__ import annotations

from collections import defaultdict

from pipeline.capture.schema_history import versions
from pipeline.capture.snapshot.captured_now import Captured
from pipeline.capture.snapshot.known_tables import Known
from pipeline.capture.source.sources import Source
from pipeline.postgres.connections import Connection

Key = frozenset[int]
"""Numbers of its columns."""


class FormerKeys:
    """Kept in memory; each look reads only what has been recorded since the one before."""

    def __init__(self, pipeline: Connection, stored: Source) -> None:
        self._pipeline, self._stored = pipeline, stored
        self._after = 0
        self._keys: dict[int, list[tuple[int, Key]]] = defaultdict(list)
        """By table, its keys one after the other, each with the commit_lsn of the first change that has it."""

    def look(self) -> None:
        """Read what the stream has learnt."""
        for number, oid, lsn, key in versions.new_keys(
            self._pipeline, self._stored.id, self._stored.epoch, self._after
        ):
            self._after = number
            keys, certain = self._keys[oid], Key(each for each in key if each is not None)
            if len(certain) == len(key) and (not keys or keys[-1][1] != certain):
                keys.append((lsn, certain))

    def had_another(self, table: Captured, known: Known) -> bool:
        """Whether its key was another one and is as before again, since the log has the table by this key.

        Where the stream knows it by another key for good, as one of which a column is not published, it says nothing.
        """
        if not table.key or ";" in table.key or known.since_lsn is None:
            return False
        since = [key for lsn, key in self._keys[table.oid] if lsn > known.since_lsn]
        return len(since) > 1 and since[-1] == Key(map(int, table.key.split(", ")))
