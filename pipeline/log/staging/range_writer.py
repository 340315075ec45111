"""Write the rows of a range, while it is read, to a separate segment.

The range gets its place in the log when the stream brings its marker:
`pipeline/capture/replication/relation_registry.py:RelationRegistry.place_range`.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from psycopg import sql
from psycopg.types.json import Jsonb

from pipeline.log.staging import rows, segments
from pipeline.log.staging.ranges import ClaimedRange, RangeReadResult
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.pipelined_copy import HEADER, TRAILER
from pipeline.postgres.queries import statement

WORKER = -1
"""The worker number of segments with rows of ranges; no worker of the stream claims or drains them."""
_COLUMNS = ", ".join(rows.COLUMNS)
_ADD_FREE_SEGMENT = "insert into pipeline.segments (state) values ('free') returning id"
"""Add a segment that no worker fills yet; its table is created next."""
_HAS_FREE_SEGMENT = "select exists (select from pipeline.segments where state = 'free')"
"""True if a segment is free."""


class RangeWriter:
    """The rows of one range, while they are read: a transaction that `store` commits, durably.

    A context manager; without `store` nothing is left of it.
    """

    def __init__(self, connection: Connection, source: uuid.UUID, taken: ClaimedRange) -> None:
        self._connection = connection
        self._source = source
        self._taken = taken
        self._segment = 0
        self.rows = 0
        """Rows added so far."""

    def __enter__(self) -> RangeWriter:
        self._make_room()
        self._connection.execute("begin")
        return self

    def __exit__(self, *_: object) -> None:
        if not self._connection.closed:
            self._connection.execute("rollback")

    def add(self, staged: Sequence[bytes]) -> None:
        """Add rows, as pipeline.log.staging.rows.row packs them."""
        if not self._segment:
            self._segment = self._take_segment()
        copy = sql.SQL("copy {} ({}) from stdin (format binary)").format(
            segments.table(self._segment), sql.SQL(_COLUMNS)
        )
        with self._connection.cursor() as cursor, cursor.copy(copy) as target:
            target.write(b"".join((HEADER, *staged, TRAILER)))
        self.rows += len(staged)

    def store(self, read: RangeReadResult) -> bool:
        """Commit the staged rows; False, with nothing stored, if another session has taken the range over."""
        values = {
            "id": self._taken.id,
            "token": self._taken.token,
            "segment": self._segment or None,
            "rows": read.rows,
            "snapshot": read.snapshot,
            "since_seqs": Jsonb(dict(read.since_seqs)),
            "version": Jsonb(dict(read.version)),
            "by_key": read.by_key,
            "marker_xid": read.marker_xid,
            "departed": None if read.departed is None else Jsonb(dict(read.departed)),
        }
        if not queries.value(self._connection, statement("log.staging", "store_range"), values):
            return False
        self._connection.execute("commit")
        return True

    def _make_room(self) -> None:
        """Create a segment if none is free, in a separate transaction, since that locks wal_events against others."""
        if queries.value(self._connection, _HAS_FREE_SEGMENT):
            return
        with self._connection.transaction():
            made = int(queries.value(self._connection, _ADD_FREE_SEGMENT))
            self._connection.execute(segments.create(made))

    def _take_segment(self) -> int:
        who = {"source": self._source, "worker": WORKER}
        found: int | None = queries.value(self._connection, statement("log.staging", "take_segment"), who)
        if found is not None:
            return found
        made = int(queries.value(self._connection, statement("log.staging", "add_segment"), who))
        self._connection.execute(segments.create(made))
        return made
