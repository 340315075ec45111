"""Decides which relations of a later part may be used while workers still read earlier parts.

Table versions are recorded in the order of the stream, so a part's worker must not add any before all earlier parts
are staged. But most tables are not altered while a backlog builds up. For these the newest version holds for the
whole backlog, and the worker need not wait.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from pipeline.capture.replication.relation_registry import RelationRegistry
from pipeline.capture.replication.replay import ReplayCheck
from pipeline.capture.schema_history import versions
from pipeline.capture.schema_history.continuity import first_version, next_version
from pipeline.capture.schema_history.staged_relation import StagedRelation
from pipeline.capture.schema_history.versions import HistoryVersion, KnownVersion
from pipeline.capture.source import own_tables, slots
from pipeline.capture.source.own_tables import OwnTables
from pipeline.capture.source.sources import ReplicationSource
from pipeline.errors import SlotMissingError
from pipeline.log.staging import progress
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.wal.messages import LogicalMessage, RelationMessage

_AFTER_ALL = 2**63, 0
"""A place after all names that a column has had."""


class PartRegistry(RelationRegistry):
    """The registry of a part's worker.

    Until the part is reached, the worker calls `admit`. Then `reload` returns a new registry, which is used like
    worker 0's.
    """

    def __init__(
        self,
        source: Connection,
        pipeline: Connection,
        stored: ReplicationSource,
        publications: Sequence[str],
        worker: int,
        slot: str,
        described: Iterable[int] = (),
        own: OwnTables = own_tables.NONE,
        *,
        reached: bool = False,
    ) -> None:
        """`slot`: the copy that the worker reads. `described`: oids of relations that the source has sent in this
        session.
        """
        super().__init__(source, pipeline, stored, publications, slot, described, own)
        self._worker, self._reached = worker, reached

    def replay(self, start_position: int) -> ReplayCheck:
        """Return the check of replayed transactions, for a copy that starts at `start_position`."""
        slot = slots.find(self._source, self._slot)
        staged = progress.staged(self._pipeline, self._stored.id, self._worker)
        if slot is None or staged is None:
            raise SlotMissingError(f'slot "{self._slot}" no longer exists')
        return ReplayCheck(staged, max(slot.confirmed_lsn or 0, start_position), is_own=self.is_own)

    def reload(self, described: Iterable[int]) -> PartRegistry:
        """Return a new registry, with the history as it is now."""
        return PartRegistry(
            self._source,
            self._pipeline,
            self._stored,
            self._publications,
            self._worker,
            self._slot,
            described,
            self._own,
            reached=True,
        )

    def _alter_types(self, known: KnownVersion, place: tuple[int, int]) -> StagedRelation | None:
        """Record altered types as worker 0 does, but no new version before the part is reached."""
        if self._reached:
            return super()._alter_types(known, place)
        self._find_rewrites(known)
        return None

    def admit(
        self, message: RelationMessage | LogicalMessage, xid: int | None, catalog_xmin: str
    ) -> StagedRelation | None:
        """Return the newest version if nothing can have changed since the slot had this catalog_xmin; else None.

        If the history has no version, the one in the catalog is recorded, from the anchor's position on.
        """
        if isinstance(message, LogicalMessage):
            return self._admit_messages()
        if self._ask(self._source, "being_changed", {"oids": [message.oid]}):
            return None
        with self._pipeline.transaction():
            before = versions.find(self._pipeline, self._stored.id, self._stored.epoch, (message.oid, ""))
            now = self._read_catalog(message, xid, before, again=False)
            if self.may_have_changed([message.oid], catalog_xmin):  # only valid after the catalog was read
                return None
            if before is None:
                since = self._anchor()
                version = first_version(now.version, since)
                number = versions.record(
                    self._pipeline, self._stored.id, self._stored.epoch, version, since, now.fingerprint
                )
                return StagedRelation(number, version)
        version, found = next_version(before.version, before.fingerprint, now.version, now.fingerprint, _AFTER_ALL)
        return None if found or not _is_same(version, before.version) else StagedRelation(before.id, before.version)

    def _admit_messages(self) -> StagedRelation:
        """Return the version of logical messages, of which there is only one."""
        version = versions.message_version()
        with self._pipeline.transaction():
            before = versions.find(self._pipeline, self._stored.id, self._stored.epoch, versions.identity(version))
            if before is None:
                number = versions.record(self._pipeline, self._stored.id, self._stored.epoch, version, self._anchor())
                before = KnownVersion(number, version)
        return StagedRelation(before.id, before.version)

    def may_have_changed(self, oids: Collection[int], catalog_xmin: str) -> bool:
        """True if anything of these tables may have changed since the slot had this catalog_xmin."""
        values = {"oids": list(oids), "publications": list(self._publications), "catalog_xmin": catalog_xmin}
        return self._ask(self._source, "changed_since", values)

    def is_reached(self) -> bool:
        """True if everything before this part is staged."""
        return read_reach(self._pipeline, self._stored.id, self._worker)[0]

    def _anchor(self) -> tuple[int, int]:
        """Return a place before everything that the anchor has not staged yet."""
        return read_reach(self._pipeline, self._stored.id, self._worker)[1], 0

    @staticmethod
    def _ask(connection: Connection, name: str, values: dict[str, object]) -> bool:
        return bool(queries.value(connection, statement("capture.catchup", name), values))


def _is_same(version: HistoryVersion, before: HistoryVersion) -> bool:
    """True if a table is as before.

    Without memberships no updates are published, and each description begins new lists of column names: then these
    lists do not count.
    """
    return version == before or (not version.memberships and _bare(version) == _bare(before))


def _bare(version: HistoryVersion) -> HistoryVersion:
    return replace(version, columns=tuple(replace(column, names=()) for column in version.columns))


def read_reach(connection: Connection, source_id: uuid.UUID, worker: int) -> tuple[bool, int]:
    """Read whether everything before this worker's part is staged, and worker 0's position."""
    row = connection.execute(
        statement("capture.catchup", "is_reached"), {"source": source_id, "worker": worker}
    ).fetchone()
    return (False, 0) if row is None else (row[0], row[1])
