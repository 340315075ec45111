"""Compares the partitions of a follower's tables with the source's, because no event tells that one joined or left."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from pipeline.capture.source import captured_now
from pipeline.capture.source.sources import ReplicationSource
from pipeline.comparing import source_rows
from pipeline.config.settings import Config
from pipeline.followers import connecting
from pipeline.followers.applying import position
from pipeline.followers.applying.table_versions import HistoryPlace
from pipeline.followers.copying import copies
from pipeline.followers.registry import RegisteredFollower
from pipeline.followers.running import beginning
from pipeline.followers.schema_changes import detected_partitions, partitions
from pipeline.followers.schema_changes.detected_partitions import PartitioningState
from pipeline.followers.schema_changes.table_names import Name
from pipeline.postgres import queries, reading_session, session_settings
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.snapshots import known_tables
from pipeline.snapshots.partitions import LeafPartition

_PROGRAM = "pipeline followers"
_MARK_SECONDS = 1.0
_TRIED_AGAIN = timedelta(seconds=1)
"""If a follower's report is this much later than a new partition, the follower has tried again with the partition."""


@dataclass(frozen=True)
class PartitionFinding:
    """One line with what a follower lacks or keeps of partitions. `waits`: True if that changes by itself."""

    text: str
    waits: bool


@dataclass(frozen=True)
class _Change:
    """The newest change of a partition that the server found in the source's catalog."""

    id: int
    root_oid: int
    leaf_oid: int
    leaf_name: str
    what: Literal["attached", "returned", "detached", "dropped"]
    epoch: int
    seen_lsn: int
    seen_at: datetime
    settled_as: str | None
    settled_seq: int | None
    is_read: bool

    @property
    def place(self) -> HistoryPlace:
        return HistoryPlace(self.epoch, self.seen_lsn, 0)

    @property
    def has_joined(self) -> bool:
        return self.what in ("attached", "returned")


class FollowerPartitions:
    """Compares the partitions of followers of one source. It uses the connections only during calls."""

    def __init__(self, config: Config, source: Connection, pipeline: Connection, stored: ReplicationSource) -> None:
        self._config, self._source, self._pipeline, self._stored = config, source, pipeline, stored
        self._marked_at = time.monotonic()

    def find_unseen(self, registration: RegisteredFollower) -> str | None:
        """Return which table has other partitions at the source than the server has seen; None if no table has."""
        known = known_tables.read(self._pipeline, self._stored)
        names = {
            each.table_oid: f"{each.table_schema}.{each.table_name}"
            for each in registration.table_states
            if each.table_oid in known and known[each.table_oid].captured
        }
        there = queries.rows(
            self._source, LeafPartition, statement("snapshots", "partition_tree"), {"roots": list(names)}
        )
        covered = self._covered()
        now = {
            (leaf.root_oid, leaf.leaf_oid): leaf.attached_by
            for leaf in there
            if leaf.leaf_oid != leaf.root_oid and (covered is None or leaf.leaf_oid in covered)
        }
        values = {"source": self._stored.id}
        seen = {
            (leaf.root_oid, leaf.leaf_oid): leaf.attached_by
            for leaf in queries.rows(self._pipeline, LeafPartition, statement("snapshots", "known_partitions"), values)
            if leaf.root_oid in names
        }
        differing = {root for root, _ in dict(now.items() ^ seen.items())}
        return next((f"the server has yet to see the partitions of {names[root]}" for root in sorted(differing)), None)

    def _covered(self) -> Collection[int] | None:
        """Return leaves in publications that the server did not make; None: the server adds each leaf to its own."""
        if self._stored.publications:
            return None
        tables = captured_now.read(self._config, self._source, self._pipeline, self._stored)
        return {oid for table in tables.values() for oid in table.covered}

    def may_continue(self, registration: RegisteredFollower) -> bool:
        """Return True if a stopped follower has not tried again since a partition joined."""
        if self.find_unseen(registration) is not None or registration.reported_at is None:
            return True
        return any(
            each.has_joined and each.is_read and registration.reported_at < each.seen_at + _TRIED_AGAIN
            for each in self._changes(registration)
        )

    def compare(self, registration: RegisteredFollower) -> PartitionFinding | None:
        """Return the first thing that a follower lacks or keeps; None if there is none.

        Raises DatabaseUnavailableError.
        """
        if (unseen := self.find_unseen(registration)) is not None:
            return PartitionFinding(unseen, waits=True)
        changes = self._changes(registration)
        if not changes:
            return None
        with (
            connecting.connect(
                registration.name, registration.dsn, program=_PROGRAM, prepare_threshold=None
            ) as follower,
            reading_session.transaction(follower, session_settings.SOURCE),
        ):
            there = _FollowerState.read(follower, registration)
            findings = [finding for each in changes if there and (finding := there.check(each))]
        self._mark()
        return min(findings, key=lambda each: each.waits, default=None)

    def _mark(self) -> None:
        """Write a mark at an idle source, so that the log and the follower get past the partition change."""
        if time.monotonic() >= self._marked_at + _MARK_SECONDS:
            source_rows.mark(self._source)
            self._marked_at = time.monotonic()

    def _changes(self, registration: RegisteredFollower) -> list[_Change]:
        values = {"source": registration.source_id, "roots": [each.table_oid for each in registration.table_states]}
        return queries.rows(self._pipeline, _Change, statement("followers.operating", "partitions_of_tables"), values)


@dataclass(frozen=True)
class _FollowerState:
    """A follower's tables by oid at the source: names, places of copies, and partition changes that they followed."""

    follower: Connection
    found: RegisteredFollower
    seq: int
    called: Mapping[int, Name]
    copied: Mapping[int, HistoryPlace]
    partitioned: Mapping[int, PartitioningState]

    @classmethod
    def read(cls, follower: Connection, registration: RegisteredFollower) -> _FollowerState | None:
        """Read the state of a follower; None if it has not begun."""
        here = position.find(follower, registration.source_id, registration.name)
        if here is None:
            return None
        called = {
            oid: (each.table_schema, each.table_name)
            for oid, each in beginning.table_names(follower, registration).items()
        }
        made = copies.find(follower, here)
        copied = {oid: copy.place for oid, copy in made.items() if copy is not None}
        partitioned = detected_partitions.partitioning_states(follower, registration)
        return cls(follower, registration, here.seq, called, copied, partitioned)

    def check(self, each: _Change) -> PartitionFinding | None:
        """Return what a table lacks or keeps of a partition."""
        if self.found.ddl != "stop" and each.seen_at > self.found.made_at and each.id > self._partitioning(each).upto:
            what = "attached" if each.has_joined else "detached"
            return PartitionFinding(
                f"partition {each.leaf_name} of table {self._table_name(each)} must still be {what}", waits=True
            )
        return self._check_joined(each) if each.has_joined else self._check_gone(each)

    def _check_joined(self, each: _Change) -> PartitionFinding | None:
        if self._is_copied(each) or self._is_declared(each):
            return None
        table = self._table_name(each)
        if each.is_read or (each.settled_seq or 0) > self.seq:
            return PartitionFinding(f"table {table} gets the rows of its partition {each.leaf_name}", waits=True)
        if each.settled_as in ("read", "compared", "whole", "empty") or each.leaf_oid in self.called:
            return None
        remedy = f"`pipeline followers resync {self.found.name} {table}`"
        what = f"table {table} lacks rows of its partition {each.leaf_name}, which nothing reads"
        return PartitionFinding(f"{what}; {remedy}", waits=False)

    def _check_gone(self, each: _Change) -> PartitionFinding | None:
        is_compared = each.settled_as == "compared" and (each.settled_seq or 0) <= self.seq
        if self._is_copied(each) or self._is_declared(each) or is_compared:
            return None
        table = self._table_name(each)
        what = f"table {table} keeps rows of partition {each.leaf_name}, which the source has no longer"
        names = map(".".join, partitions.names(self.follower, self.called[each.root_oid]))
        if self.found.ddl == "stop" and each.leaf_name in names:
            return PartitionFinding(f"{what}, as --ddl is stop; detach it there", waits=False)
        if self._is_kept(each):
            return PartitionFinding(f"{what}; `pipeline followers resync {self.found.name} {table}`", waits=False)
        return None

    def _is_kept(self, each: _Change) -> bool:
        """Return True if a partition's rows stay in the table, which has other partitions or began from the log."""
        if each.seen_at <= self.found.made_at:
            return self.found.copy_mode == "log"
        if self.found.ddl != "stop":
            return each.id in self._partitioning(each).kept
        query = statement("followers.schema_changes", "separate_tables")
        return self.follower.execute(query, {"names": [each.leaf_name]}).fetchone() is None

    def _partitioning(self, each: _Change) -> PartitioningState:
        return self.partitioned.get(each.root_oid, PartitioningState())

    def _is_copied(self, each: _Change) -> bool:
        """Return True if the table was copied after the change."""
        return each.root_oid in self.copied and self.copied[each.root_oid] >= each.place

    def _is_declared(self, each: _Change) -> bool:
        """Return True if the table was declared equal (`--copy none`) after the change."""
        return self.found.copy_mode == "none" and each.seen_at <= self.found.made_at

    def _table_name(self, each: _Change) -> str:
        return ".".join(self.called[each.root_oid])
