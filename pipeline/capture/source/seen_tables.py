"""Records which tables of the source are new: created after the slot was made, or after the epoch began."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping

from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_KEPT_DAYS = 30
"""Days for which a dropped table is remembered: a reader may be that far behind."""


def begin(source: Connection, pipeline: Connection, source_id: uuid.UUID, epoch: int) -> None:
    """Store that all existing tables are old. Must be called before the slot is made, or as an epoch begins."""
    with pipeline.transaction():
        values = {"source": source_id, "epoch": epoch}
        pipeline.execute("delete from pipeline.seen_tables where source_id = %(source)s and epoch = %(epoch)s", values)
        _store(pipeline, values, [0, *_existing(source)], old=True)


class SeenTables:
    """Stores when the server first saw each new table of one epoch."""

    def __init__(self, source: Connection, pipeline: Connection, source_id: uuid.UUID, epoch: int) -> None:
        self._source, self._pipeline = source, pipeline
        self._values: Mapping[str, object] = {"source": source_id, "epoch": epoch}
        self._known: set[int] = set()

    def record_new(self) -> None:
        """Record tables that are new in the catalog.

        If an older version made the slot or began the epoch, existing tables count as old.
        """
        existing = _existing(self._source)
        if not self._known:
            self._begin(existing)
        if new := existing - self._known:
            _store(self._pipeline, self._values, new, old=False)
            self._known |= new

    def _begin(self, existing: Collection[int]) -> None:
        values = {**self._values, "existing": [*existing], "days": _KEPT_DAYS}
        self._pipeline.execute(statement("capture.source", "forget_seen_tables"), values)
        known = "select table_oid from pipeline.seen_tables where source_id = %(source)s and epoch = %(epoch)s"
        self._known = {row[0] for row in self._pipeline.execute(known, self._values)}
        if not self._known:
            self._known = {0, *existing}
            _store(self._pipeline, self._values, self._known, old=True)


def _existing(source: Connection) -> set[int]:
    return set(queries.value(source, statement("capture.source", "existing_tables")))


def _store(pipeline: Connection, values: Mapping[str, object], oids: Collection[int], *, old: bool) -> None:
    pipeline.execute(statement("capture.source", "see_tables"), {**values, "oids": [*oids], "old": old})
