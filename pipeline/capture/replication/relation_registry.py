"""The relations of the stream: completes their descriptions from the catalog, and records each new version."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from pipeline.capture.replication import still_published
from pipeline.capture.replication.composite_types import CompositeTypes
from pipeline.capture.replication.replay import ReplayCheck
from pipeline.capture.schema_history import baselines, introspection, rewrites, versions
from pipeline.capture.schema_history.continuity import ColumnRewrite, altered_before, first_version, next_version
from pipeline.capture.schema_history.fingerprint import TableFingerprint
from pipeline.capture.schema_history.introspection import TableDescription
from pipeline.capture.schema_history.staged_relation import StagedRelation
from pipeline.capture.schema_history.versions import CatalogNames, HistoryVersion, KnownVersion
from pipeline.capture.source import own_tables, slots, sources
from pipeline.capture.source.own_tables import OwnTables
from pipeline.capture.source.sources import ReplicationSource
from pipeline.errors import DecodeError, SlotMissingError
from pipeline.log.staging import progress, ranges
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.wal.messages import BeginMessage, LogicalMessage, RelationMessage

TABLES_PER_CHECK = 50
"""The most tables that `check_tables` compares at once: relations that arrive in the meantime wait for it."""


class RelationRegistry:
    """Looks up and records relations in both databases; for one thread at a time."""

    def __init__(
        self,
        source: Connection,
        pipeline: Connection,
        stored: ReplicationSource,
        publications: Sequence[str] = (),
        slot: str | None = None,
        described: Iterable[int] = (),
        own: OwnTables = own_tables.NONE,
    ) -> None:
        """`publications`: those that are replicated. `slot`: the slot that is read, if it is a copy of the source's.

        `described`: oids of relations that the source has sent in this session. `own`: our own tables at the source.
        """
        self._source = source
        self._source.execute("set search_path = ''")  # so that names of types are qualified
        self._pipeline = pipeline
        self._stored = stored
        self._slot = slot or stored.slot
        self._publications = publications
        found = sources.find(pipeline, stored.id)
        self._made = list(found.publications.values()) if found else []
        self._known = versions.latest(pipeline, stored.id, stored.epoch)
        self._described = set(described)
        self._own = own
        self._row_versions: dict[int, str] = {}
        self._renamed: dict[int, CatalogNames] = {}
        self.composites = CompositeTypes(self._known.values())
        """The composite types in the values of the stream's relations."""

    def is_own(self, message: RelationMessage) -> bool:
        """True if the relation is one of our own, whose rows are counted, but not staged."""
        return self._own.includes(message.schema, [f"{message.schema}.{message.name}"])

    def describe(
        self,
        message: RelationMessage | LogicalMessage,
        since: tuple[int, int],
        xid: int | None = None,
        changed: int = 0,
    ) -> StagedRelation:
        """Look a relation up, and record its version if it is new.

        `xid`: of the transaction at `since`; None if not known. `changed`: commit_lsn of the last transaction with
        rows of the relation as it was described last.
        """
        key = (
            (message.oid, "") if isinstance(message, RelationMessage) else versions.identity(versions.message_version())
        )
        if key in self._known:
            return self._describe(message, since, xid, changed)
        with self._pipeline.transaction():  # the worker of another part may have recorded it first
            found = versions.find(self._pipeline, self._stored.id, self._stored.epoch, key)
            if found is not None:
                self._known[key] = found
            return self._describe(message, since, xid, changed)

    def place_range(self, token: bytes, opened: tuple[BeginMessage, int] | None) -> bool:
        """Place the rows of a range at the open transaction; False if no range has this token.

        The version of their table is that of the snapshot in which the rows were read. The table has been locked
        since then, so its fingerprint is certain.
        """
        if opened is None:
            raise DecodeError("a marker outside of a transaction")
        try:
            known_as = str(uuid.UUID(token.decode()))
        except ValueError:
            return False
        begin, _ = opened
        stored = ranges.version_of(self._pipeline, known_as)
        if stored is None:
            return False
        place = begin.final_lsn, 0
        read = TableDescription.from_json(stored, place)
        if read.fingerprint is not None:
            read = replace(read, fingerprint=read.fingerprint.settle())
        with self._pipeline.transaction():
            key = versions.identity(read.version)
            found = self._known.get(key) or versions.find(self._pipeline, self._stored.id, self._stored.epoch, key)
            if found is not None:
                self._known[key] = found
            relation = self._compare(read, found, place)
            ranges.place(self._pipeline, known_as, relation.id, begin.final_lsn, begin.committed_at, begin.xid)
        return True

    def require_still_published(self) -> None:
        """Raises PublicationChangedError if another user has narrowed a publication in use."""
        still_published.require_still_published(self._source, self._pipeline, self._stored.id)

    def replay(self, start_position: int) -> ReplayCheck:
        """Return the check of replayed transactions, for a slot that starts at `start_position`."""
        slot = slots.find(self._source, self._slot)
        staged = progress.staged(self._pipeline, self._stored.id)
        if slot is None or staged is None:
            raise SlotMissingError(f'slot "{self._slot}" no longer exists')
        from_lsn = max(slot.confirmed_lsn or 0, start_position)
        carried = sources.carried_transactions(self._pipeline, self._stored.id, from_lsn)
        return ReplayCheck(staged, from_lsn, carried, self.is_own)

    def check_tables(self, last_change: Callable[[int], int]) -> None:
        """Find what the stream does not say, or not yet: rewritten tables, and new names of schemas and roots.

        `last_change`: `ChangeTagger.last_change`, which may settle a fingerprint that was in doubt.
        """
        for (oid, _), known in self._known.items():
            read = known.fingerprint
            if read is not None and not read.settled and last_change(oid) > read.read_at:
                self._settle(known, read)
        roots = {oid: known.version.table_oid for (oid, _), known in self._known.items() if oid != versions.MESSAGE_OID}
        values = {"oids": list(roots), "roots": list(roots.values())}
        query = statement("capture.replication", "find_table_names")
        seen = queries.rows(self._source, versions.CatalogNames, query, values)
        changed = [table for table in seen if self._row_versions.get(table.oid) != table.row_version]
        for table in changed[:TABLES_PER_CHECK]:
            self._find_rewrites(self._known[table.oid, ""])
            self._row_versions[table.oid] = table.row_version
        for table in seen:
            version, pending = self._known[table.oid, ""].version, self._renamed.get(table.oid)
            now = table.renamed(version)
            if now == version:
                self._renamed.pop(table.oid, None)
            elif pending is None or pending.renamed(version) != now:
                self._renamed[table.oid] = table

    def _settle(self, known: KnownVersion, read: TableFingerprint) -> None:
        read = read.settle()
        versions.store_fingerprint(self._pipeline, known.id, read)
        self._known[versions.identity(known.version)] = replace(known, fingerprint=read)

    def record_unsent(self, place: tuple[int, int], xids: Collection[int] = ()) -> dict[int, StagedRelation]:
        """Record what no message says: names that `check_tables` found, and attributes that composite types have now.

        Returns relations by oid, with the version that their changes have from `place` on. First waits until the
        changes of the transactions `xids` are visible.
        """
        for xid in xids:
            introspection.wait_until_visible(self._source, xid)
        found = self._rename(place)
        for oid in self.composites.altered(self._source):
            if learned := self._alter_types(self._known[oid, ""], place):
                found[oid] = learned
        return found

    def _alter_types(self, known: KnownVersion, place: tuple[int, int]) -> StagedRelation | None:
        """Record the version of a table whose types were altered; None if the table was dropped."""
        read = introspection.describe_now(self._source, known, self._slot)
        if known.fingerprint is None or read is None or read.fingerprint is None:
            return None
        now = known.fingerprint.with_attributes(read.fingerprint)
        version, found = next_version(known.version, known.fingerprint.settle(), known.version, now.settle(), place)
        return self._remember(version, now, place, found)

    def _rename(self, place: tuple[int, int]) -> dict[int, StagedRelation]:
        """Return, by oid, relations whose new name `check_tables` found at an LSN that the stream has passed."""
        due = [oid for oid, table in self._renamed.items() if table.read_at < place[0]]
        found = {}
        for oid in due:
            known = self._known[oid, ""]  # the source may have sent other columns since then
            renamed = self._renamed.pop(oid).renamed(known.version)
            if renamed != known.version:
                version, _ = next_version(known.version, None, renamed, None, place)
                found[oid] = self._remember(version, known.fingerprint, place, [])
        return found

    def _find_rewrites(self, known: KnownVersion) -> None:
        found = rewrites.find_rewrites(self._source, known, self._slot)
        self._record_rewrites(known.version, found, None)

    def _record_rewrites(
        self, version: HistoryVersion, found: list[ColumnRewrite], since: tuple[int, int] | None
    ) -> None:
        rewrites.record(self._source, self._pipeline, self._stored.id, self._stored.epoch, version, found, since)

    def _describe(
        self, message: RelationMessage | LogicalMessage, since: tuple[int, int], xid: int | None, changed: int
    ) -> StagedRelation:
        if isinstance(message, LogicalMessage):
            return self._remember(versions.message_version(), None, since, [])
        before = self._known.get((message.oid, ""))
        if before and before.fingerprint and changed > before.fingerprint.read_at:
            before = replace(before, fingerprint=before.fingerprint.settle())
        again = message.oid in self._described
        self._described.add(message.oid)
        pending = self._renamed.get(message.oid)
        if pending is not None and pending.read_at < since[0]:  # the message has a later name
            self._renamed[message.oid] = replace(pending, relation_schema=message.schema, relation_name=message.name)
        return self._compare(self._read_catalog(message, xid, before, again=again), before, since)

    def _compare(self, now: TableDescription, before: KnownVersion | None, since: tuple[int, int]) -> StagedRelation:
        """Record the version of a table from `since` on, if the version is new."""
        if before is None:
            found = altered_before(now.version, now.fingerprint)
            return self._remember(first_version(now.version, since), now.fingerprint, since, found)
        read = now.fingerprint.settle_by(before.fingerprint) if now.fingerprint else None
        version, found = next_version(before.version, before.fingerprint, now.version, read, since)
        return self._remember(version, read, since, found)

    def _read_catalog(
        self, message: RelationMessage, xid: int | None, before: KnownVersion | None, *, again: bool
    ) -> TableDescription:
        """Describe the table as the catalog has it now.

        `before`: its last known version; without one, the version at its publication is used.
        """
        return introspection.describe(
            self._source,
            message,
            self._slot,
            self._publications,
            xid,
            before or self._published(message.oid),
            again=again,
            made=self._made,
        )

    def _published(self, oid: int) -> KnownVersion | None:
        """Return the version of a table when it was published, for its first change."""
        version = baselines.find(self._pipeline, self._stored.id, self._stored.epoch, oid)
        return KnownVersion(0, version) if version else None

    def _remember(
        self,
        version: HistoryVersion,
        read: TableFingerprint | None,
        since: tuple[int, int],
        found: list[ColumnRewrite],
    ) -> StagedRelation:
        key = versions.identity(version)
        before = self._known.get(key)
        with self._pipeline.transaction():
            if before is None or before.version != version:
                number = versions.record(self._pipeline, self._stored.id, self._stored.epoch, version, since, read)
            else:
                number = before.id
                if read is not None and read != before.fingerprint:
                    versions.store_fingerprint(self._pipeline, number, read)
            self._record_rewrites(version, found, since)
        self._known[key] = KnownVersion(number, version, read)
        self.composites.remember(self._known[key])
        return StagedRelation(number, version)
