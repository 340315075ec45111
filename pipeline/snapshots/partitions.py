"""Find partitions that joined or left a captured table since the last read of the catalog: no event says so."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from psycopg.types.json import Jsonb

from pipeline.capture.source import captured_tables
from pipeline.capture.source.captured_now import CapturedTable
from pipeline.capture.source.captured_tables import CaptureStart
from pipeline.capture.source.sources import ReplicationSource
from pipeline.comparing.partition_bounds import Line
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.snapshots.known_tables import SnapshotTable

logger = logging.getLogger(__name__)

_LEFT = {
    "detached": "partition %s left %s: it was detached, and the log keeps its rows",
    "dropped": "partition %s left %s: it was dropped, and the log keeps its rows",
}
_LEFT_PARTITIONS = """\
select distinct c.root_oid, c.leaf_oid from pipeline.partition_changes c
where c.source_id = %(source)s and c.what in ('detached', 'dropped')
    and coalesce(c.settled_as, 'kept') = 'kept'
"""
"""Leaf partitions that have left a table while the log probably still has their rows."""
_PARTITION_LOOKS = "select root_oid, epoch from pipeline.partition_looks where source_id = %(source)s"
"""Partitioned tables whose leaves are stored."""


@dataclass(frozen=True)
class LeafPartition:
    """A partition that can have rows. `attached_by`, `bounds`: see the comments of `pipeline.partitions`.

    `made_so`: the transaction that created the partition attached it, and it never left since. `captured_first`: the
    table was published before the partition was attached.
    """

    root_oid: int
    leaf_oid: int
    leaf_name: str
    attached_by: str
    bounds: Line | None = None
    made_so: bool = True
    captured_first: bool = False


@dataclass(frozen=True)
class ObservedLeaves:
    """The leaves that the catalog has now, by root and oid. `passing`: see `PartitionWatcher.passing`."""

    leaves: Mapping[int, Mapping[int, LeafPartition]]
    passing: Collection[tuple[int, int, str]]


class PartitionWatcher:
    """Compares the leaves of captured tables with the stored ones. `why_unread`: the reason why a table is not read."""

    def __init__(
        self,
        source: Connection,
        pipeline: Connection,
        stored: ReplicationSource,
        from_lsn: int,
        why_unread: Callable[[CapturedTable], str | None],
    ) -> None:
        self._source, self._pipeline, self._stored = source, pipeline, stored
        self._from_lsn, self._why_unread = from_lsn, why_unread

    def passing(self) -> Collection[tuple[int, int, str]]:
        """Return root, oid and name of leaves that the stream has met and that were never stored.

        Call this before the catalog is read, because a leaf may be created at any time.
        """
        values = {"source": self._stored.id, "epoch": self._stored.epoch}
        return self._pipeline.execute(statement("snapshots", "passing_partitions"), values).fetchall()

    def read(self, tables: Mapping[int, CapturedTable], passing: Collection[tuple[int, int, str]]) -> ObservedLeaves:
        """Read the leaves that are captured with their root."""
        roots = [oid for oid, table in tables.items() if table.relations != (oid,)]
        values = {"roots": roots}
        found = queries.rows(self._source, LeafPartition, statement("snapshots", "partition_tree"), values)
        leaves: dict[int, dict[int, LeafPartition]] = {root: {} for root in roots}
        for leaf in found:
            if leaf.leaf_oid in tables[leaf.root_oid].covered:
                leaves[leaf.root_oid][leaf.leaf_oid] = leaf
        return ObservedLeaves(leaves, passing)

    def compare(
        self,
        seen: ObservedLeaves,
        tables: Mapping[int, CapturedTable],
        before: Mapping[int, SnapshotTable],
        joined: Mapping[int, CaptureStart],
        lsn: int,
        *,
        upgraded: bool,
    ) -> None:
        """Store the changes of partitions. `before`: the stored tables.

        `lsn`: the end of the WAL after the catalog was read. `upgraded`: the former version of the server recorded no
        partitions.
        """
        comparison = _PartitionComparison(self._source, self._pipeline, self._stored, self._from_lsn, lsn, joined)
        for root, leaves in seen.leaves.items():
            if comparison.epochs.get(root) != self._stored.epoch:
                known = before.get(root)
                unknown = known is not None and known.captured and known.epoch == self._stored.epoch
                comparison.begin(root, leaves, unknown=unknown, new=known is None and not upgraded)
            else:
                comparison.compare(root, leaves, self._why_unread(tables[root]))
        for root, oid, name in seen.passing:
            if root in seen.leaves and root in comparison.compared and oid not in seen.leaves[root]:
                comparison.leave(LeafPartition(root, oid, name, ""))


class _PartitionComparison:
    """One comparison of the leaves with the stored ones, in a transaction."""

    def __init__(
        self,
        source: Connection,
        pipeline: Connection,
        stored: ReplicationSource,
        from_lsn: int,
        lsn: int,
        joined: Mapping[int, CaptureStart],
    ) -> None:
        self._source, self._pipeline, self._stored = source, pipeline, stored
        self._from_lsn, self._lsn, self._joined = from_lsn, lsn, joined
        values = {"source": stored.id}
        self.epochs: dict[int, int] = dict(pipeline.execute(_PARTITION_LOOKS, values).fetchall())
        self.compared: set[int] = set()
        self._known: dict[int, dict[int, LeafPartition]] = {}
        for leaf in queries.rows(pipeline, LeafPartition, statement("snapshots", "known_partitions"), values):
            self._known.setdefault(leaf.root_oid, {})[leaf.leaf_oid] = leaf
        self._left = set(pipeline.execute(_LEFT_PARTITIONS, values).fetchall())

    def begin(self, root: int, leaves: Mapping[int, LeafPartition], *, unknown: bool, new: bool) -> None:
        """Store the leaves of a table for the first time in this epoch. `unknown`: the table was captured before.

        `new`: the table was not captured before. Then all of it is read, but a leaf may have joined or left since the
        table was published.
        """
        values = {"root": root, "epoch": self._stored.epoch, "unknown": unknown, "new": new}
        self._execute("begin_partitions", values)
        for leaf in self._with_bounds(leaves.values()):
            if new and leaf.captured_first and not leaf.made_so:
                self._add(leaf, "attached", None, settled="empty")
            self._store(leaf)

    def compare(self, root: int, leaves: Mapping[int, LeafPartition], unread: str | None) -> None:
        """Find leaf partitions that joined or left.

        `unread`: why joining partitions are not read; None: they are read.
        """
        self.compared.add(root)
        known = self._known.get(root, {})
        of_version_before = any(not leaf.attached_by for leaf in known.values())
        for oid in known.keys() - leaves.keys():
            self.leave(known[oid])
        changed = [
            leaf for oid, leaf in leaves.items() if oid not in known or known[oid].attached_by != leaf.attached_by
        ]
        filled = self._filled([leaf.leaf_oid for leaf in changed if leaf.leaf_oid not in known])
        for leaf in self._with_bounds(changed):
            oid = leaf.leaf_oid
            joined = self._joined.get(oid)
            if (oid in known and known[oid].attached_by) or (root, oid) in self._left:
                self._add(leaf, "returned", unread)
            elif oid not in known and not (of_version_before and joined is not None and joined.root_oid is None):
                empty = not filled[oid] or self._joined_empty(leaf)
                self._add(leaf, "attached", None if empty else unread, settled="empty" if empty else None)
            self._store(leaf)

    def leave(self, leaf: LeafPartition) -> None:
        """Store that a leaf was detached or dropped; the log still has its rows."""
        there = captured_tables.find_existing(self._source, [leaf.leaf_oid])
        what = "detached" if there else "dropped"
        self._add(leaf, what, None)
        self._execute("drop_partition", {"root_oid": leaf.root_oid, "leaf_oid": leaf.leaf_oid})

    def _joined_empty(self, leaf: LeafPartition) -> bool:
        """True if the leaf was empty when the stream began to have its rows as those of its root."""
        joined = self._joined.get(leaf.leaf_oid)
        return (
            joined is not None
            and joined.was_empty is True
            and joined.root_oid == leaf.root_oid
            and joined.joined_lsn >= self._from_lsn
        )

    def _filled(self, oids: Collection[int]) -> dict[int, bool]:
        """Return for each leaf whether it may have rows now."""
        found = captured_tables.find_filled(self._source, oids)
        return {oid: found.get(oid, False) is not False for oid in oids}

    def _with_bounds(self, leaves: Collection[LeafPartition]) -> list[LeafPartition]:
        if not leaves:
            return []
        values = {"leaves": [leaf.leaf_oid for leaf in leaves]}
        found: dict[int, Line] = dict(
            self._source.execute(statement("snapshots", "partition_bounds"), values).fetchall()
        )
        return [replace(leaf, bounds=found.get(leaf.leaf_oid)) for leaf in leaves]

    def _store(self, leaf: LeafPartition) -> None:
        self._execute("store_partition", {**_values(leaf), "epoch": self._stored.epoch})

    def _add(self, leaf: LeafPartition, what: str, reason: str | None, *, settled: str | None = None) -> None:
        values = {"epoch": self._stored.epoch, "what": what, "reason": reason, "settled": settled, "lsn": self._lsn}
        values["in_doubt"] = what == "attached" and not leaf.made_so
        self._execute("add_partition_change", {**_values(leaf), **values})
        if settled is None:
            text = _LEFT.get(what, "partition %s joined %s")
            table = _named(self._pipeline, self._stored, leaf.root_oid)
            action = {"action": f"partition.{what}", "table": table, "partition": leaf.leaf_name}
            logger.log(logging.WARNING if what in _LEFT else logging.INFO, text, leaf.leaf_name, table, extra=action)

    def _execute(self, name: str, values: Mapping[str, object]) -> None:
        self._pipeline.execute(statement("snapshots", name), {**values, "source": self._stored.id})


def _values(leaf: LeafPartition) -> dict[str, object]:
    return {**vars(leaf), "bounds": None if leaf.bounds is None else Jsonb(list(leaf.bounds))}


def _named(pipeline: Connection, stored: ReplicationSource, root: int) -> str:
    query = """select table_schema || '.' || table_name from pipeline.snapshot_tables
        where source_id = %s and table_oid = %s"""
    return str(queries.value(pipeline, query, (stored.id, root)))
