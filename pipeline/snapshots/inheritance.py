"""Which tables inherit from which, as the source's catalog says: no event says that this has changed."""

from __future__ import annotations

from collections.abc import Collection

from pipeline.capture.source import captured_tables
from pipeline.capture.source.sources import Source
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_ROOM = "snapshots"
_LOOKED = (0, 0)
"""Stored once there was a look."""

Edge = tuple[int, int]
"""The oids of a table and of one that it inherits from."""
_INHERITING_TABLES = """\
select i.inhrelid::pg_catalog.int8, i.inhparent::pg_catalog.int8
from pg_catalog.pg_inherits i join pg_catalog.pg_class c on c.oid operator(pg_catalog.=) i.inhrelid
where c.relkind operator(pg_catalog.=) 'r' and not c.relispartition
"""
"""Tables that inherit from others; not partitions."""


class Inheritance:
    """Stores what has changed since the last look."""

    def __init__(self, source: Connection, pipeline: Connection, stored: Source) -> None:
        self._source, self._pipeline, self._stored = source, pipeline, stored

    def read(self) -> set[Edge]:
        """What the catalog says now. Partitions are not among it."""
        return set(self._source.execute(_INHERITING_TABLES).fetchall())

    def compare(self, now: set[Edge], lsn: int) -> None:
        """Store what `read` found changed. `lsn`: the end of the WAL after that."""
        values = {"source": self._stored.id}
        known = set(self._pipeline.execute(statement(_ROOM, "known_inheritance"), values).fetchall())
        is_first = _LOOKED not in known
        now = {_LOOKED, *now}
        self._store(now - known, lsn, inherits=True, is_first=is_first)
        left = known - now
        there = captured_tables.present(self._source, {oid for edge in left for oid in edge})
        ended = {edge for edge in left if there.issuperset(edge)}
        self._store(ended, lsn, inherits=False)
        self._execute("forget_inheritance", left - ended)  # a table was dropped

    def _store(self, edges: Collection[Edge], lsn: int, *, inherits: bool, is_first: bool = False) -> None:
        values = {"epoch": self._stored.epoch, "lsn": lsn, "inherits": inherits, "first": is_first}
        self._execute("store_inheritance", edges, **values)

    def _execute(self, name: str, edges: Collection[Edge], **values: object) -> None:
        if edges:
            oids = {"children": [child for child, _ in edges], "parents": [parent for _, parent in edges]}
            self._pipeline.execute(statement(_ROOM, name), {**values, **oids, "source": self._stored.id})
