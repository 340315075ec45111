"""Keep `pipeline.snapshot_tables` up to date: which tables are captured, and which of them are complete in the log."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from datetime import datetime

from pipeline.capture.source import captured_now, captured_tables, sources
from pipeline.capture.source.captured_now import CapturedTable
from pipeline.capture.source.captured_tables import CaptureStart
from pipeline.capture.source.seen_tables import SeenTables
from pipeline.capture.source.sources import ReplicationSource
from pipeline.comparing import source_rows
from pipeline.config import patterns
from pipeline.config.settings import Config
from pipeline.log.staging import progress
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.snapshots import backfills, known_tables, partition_changes
from pipeline.snapshots.former_keys import FormerKeys
from pipeline.snapshots.known_tables import EMPTY, SnapshotTable
from pipeline.snapshots.partitions import PartitionWatcher
from pipeline.snapshots.truncates import PartitionTruncates

logger = logging.getLogger(__name__)

EARLIER = "it was captured before rows that tables already had were read; `pipeline backfill start` reads them"
ANOTHER_EPOCH = "epoch {} began without its rows being read; `pipeline backfill start` reads them"
NEVER = "PIPELINE_SNAPSHOT was never when it joined; `pipeline backfill start` reads its rows"
NOT_CHOSEN = "PIPELINE_SNAPSHOT_TABLES did not match it when it joined; `pipeline backfill start` reads its rows"
NOT_CAPTURED = "the table is no longer captured"
UNKEYED = "the table has no key, so rows that are read could count twice"

_ROOM = "snapshots"
_LOOKED = (0, 0)
"""An edge that is stored when the inheritance was read for the first time."""

InheritanceEdge = tuple[int, int]
"""The oids of a table and of one table from which it inherits."""
_INHERITING_TABLES = """\
select i.inhrelid::pg_catalog.int8, i.inhparent::pg_catalog.int8
from pg_catalog.pg_inherits i join pg_catalog.pg_class c on c.oid operator(pg_catalog.=) i.inhrelid
where c.relkind operator(pg_catalog.=) 'r' and not c.relispartition
"""
"""Tables that inherit from others, without partitions."""


def begin_reading(
    pipeline: Connection, stored: ReplicationSource, table: CapturedTable, kind: str, gap: tuple[int, int] | None = None
) -> int | None:
    """Start a backfill of all rows, which makes the table complete in the log; None if another one is under way.

    `gap`: the LSNs between which changes of the table are missing.
    """
    with pipeline.transaction():
        each = table.oid, table.schema, table.name
        started = backfills.start(pipeline, stored.id, stored.epoch, each, kind, gap=gap)
        if started is None:
            return None
        values = {"source": stored.id, "oid": table.oid, "backfill": started}
        pipeline.execute(statement("snapshots", "read_by"), values)
    return started


class TableRegister:
    """Stores which tables are captured, and starts a backfill for each table that joins."""

    def __init__(
        self, config: Config, source: Connection, pipeline: Connection, stored: ReplicationSource, from_lsn: int
    ) -> None:
        """`from_lsn`: where the stream of this epoch begins."""
        self._config = config
        self._source, self._pipeline = source, pipeline
        self._stored = stored
        self._from_lsn = from_lsn
        self._former = FormerKeys(source, pipeline, stored)
        self._seen = SeenTables(source, pipeline, stored.id, stored.epoch)
        self._partitions = PartitionWatcher(source, pipeline, stored, from_lsn, self._why_unread)
        self._partition_truncates = PartitionTruncates(pipeline, stored)
        self._inheritance = InheritanceWatcher(source, pipeline, stored)
        self._rereads = False
        """True during the first update in an epoch whose tables must be compared with the log."""
        self._at = 0
        """The end of the source's WAL after its catalog was last read."""

    def update(self) -> None:
        """Read which tables are captured now, store that, and start backfills of those that joined."""
        self._seen.record_new()
        passing = self._partitions.passing()
        now = captured_now.read(self._config, self._source, self._pipeline, self._stored)
        stored = known_tables.read(self._pipeline, self._stored)
        joined = captured_tables.read_starts(self._pipeline, self._stored.id)
        self._former.read_new_versions()
        partitions = self._partitions.read(now, passing)
        inheriting = self._inheritance.read()
        self._at = int(queries.value(self._source, statement("snapshots", "end_of_wal")))
        with self._pipeline.transaction():
            since = sources.reads_from(self._pipeline, self._stored.id)
            self._rereads = sources.requested_reread(self._pipeline, self._stored.id) == self._stored.epoch
            for oid, table in now.items():
                self._compare(table, stored.get(oid), joined, since)
            for oid in stored.keys() - now.keys():
                self._end_capture(stored[oid])
            self._partitions.compare(partitions, now, stored, joined, self._at, upgraded=since is not None)
            self._inheritance.compare(inheriting, self._at)
            if since is not None:
                sources.read_tables(self._pipeline, self._stored.id)
            if self._rereads:
                sources.request_reread(self._pipeline, self._stored.id, None)
        partition_changes.end_doubts(self._pipeline, self._stored.id, self._stored.epoch)
        self._partition_truncates.store_truncates()
        self._read_partitions(now)
        if any(each.awaited for each in known_tables.read(self._pipeline, self._stored).values()):
            source_rows.mark(self._source)  # without writes at the source, the log would not reach this LSN

    def _read_partitions(self, tables: Mapping[int, CapturedTable]) -> None:
        changes = partition_changes.unsettled(self._pipeline, self._stored)
        for root in {each.root_oid for each in changes} & tables.keys():
            with self._pipeline.transaction():
                of_root = [each for each in changes if each.root_oid == root]
                partition_changes.begin(self._pipeline, self._stored, tables[root], of_root)

    def _compare(
        self,
        table: CapturedTable,
        before: SnapshotTable | None,
        all_joined: Mapping[int, CaptureStart],
        since: datetime | None,
    ) -> None:
        joined = all_joined.get(table.oid)
        another = self._former.had_another(table, before)
        if before is not None and before.epoch != self._stored.epoch:
            self._begin_epoch(table, before, joined)
        elif before is None and since is not None and (joined is None or joined.joined_at <= since):
            self._store_earlier(table, joined)
        elif before is None or another or known_tables.has_joined(table, before, joined):
            rekeyed = another or (
                known_tables.had_inserts_alone(table, all_joined)
                if before is None
                else known_tables.is_rekeyed(table, before)
            )
            again = before is not None and (joined is None or joined.id == before.joined)
            empty_at = None if rekeyed or again else self._empty_at(table, all_joined)
            same = joined is not None and joined.root_oid == table.oid and not (rekeyed or again)
            self._join(table, joined, empty_at, joined.joined_lsn if joined and same else None, rekeyed=rekeyed)
        elif before.awaited and before.since_lsn is not None and self._log_reaches(before.since_lsn):
            self._execute("complete_empty", {"oid": table.oid, "events_table": self._config.events_table})
        elif before.reread is not None:
            self._reread(table, before.reread)
        elif before.unread:
            begin_reading(self._pipeline, self._stored, table, "initial")
        elif not known_tables.is_described(table, before):
            self._execute("rename_table", _stored_values(table))

    def _store_earlier(self, table: CapturedTable, joined: CaptureStart | None) -> None:
        if self._rereads:
            self._store(table, joined, None, reread="asked")
            self._reread(table, "asked")
        else:
            self._store(table, joined, EARLIER)

    def _begin_epoch(self, table: CapturedTable, before: SnapshotTable, joined: CaptureStart | None) -> None:
        """Store a table at its first update in an epoch. The log lacks its changes between the epochs."""
        rekeyed = known_tables.has_another_key(table, before)
        same = self._is_same(table, before) and not rekeyed
        kind = backfills.DIFFERENCES if same and table.keyed else "asked"
        reason = None if self._rereads else ANOTHER_EPOCH.format(self._stored.epoch)
        self._store(table, joined, reason, reread=kind if self._rereads else None, keeps=same, rekeyed=rekeyed)
        if self._rereads:
            self._end_before(table)
            self._reread(table, kind)
        if self._rereads and not same:
            logger.info(
                "%s.%s has another oid or key than before epoch %s: all its rows are read",
                table.schema,
                table.name,
                self._stored.epoch,
                extra={"action": "snapshot.another_oid", "table": f"{table.schema}.{table.name}"},
            )

    def _end_before(self, table: CapturedTable) -> None:
        """End a backfill of an earlier epoch, which would never end by itself."""
        for backfill in backfills.list_open(self._pipeline, self._stored.id):
            if backfill.table_oid == table.oid and backfill.epoch != self._stored.epoch:
                reason = backfills.ENDED_EPOCH.format(self._stored.epoch)
                backfills.end(self._pipeline, backfill.id, "failed", reason, of_ended_epoch=True)

    def _reread(self, table: CapturedTable, kind: str) -> None:
        """Start a backfill in the new epoch, unless another one is under way; then a later update does."""
        gap = sources.epoch_gap(self._pipeline, self._stored.id, self._stored.epoch)
        begin_reading(self._pipeline, self._stored, table, kind, gap)

    def _is_same(self, table: CapturedTable, before: SnapshotTable) -> bool:
        """True if this oid was the same table in the earlier epoch: in another cluster it may be another table's."""
        clusters = sources.clusters(self._pipeline, self._stored.id)
        return (table.schema, table.name) == (before.table_schema, before.table_name) or (
            clusters.get(before.epoch) == clusters.get(self._stored.epoch)
        )

    def _empty_at(self, table: CapturedTable, joined: Mapping[int, CaptureStart]) -> int | None:
        """Return the LSN at which the table joined if it was empty; None if the stream lacks inserts since then."""
        found = [joined.get(oid) for oid in table.relations]
        there = [
            each.joined_lsn
            for each in found
            if each is not None and each.was_empty and each.root_oid == table.oid and each.joined_lsn >= self._from_lsn
        ]
        return max(there, default=0) if len(there) == len(found) else None

    def _log_reaches(self, lsn: int) -> bool:
        return progress.log_reaches(self._pipeline, self._stored.id, lsn)[0]

    def _join(
        self,
        table: CapturedTable,
        joined: CaptureStart | None,
        empty_at: int | None,
        since: int | None,
        *,
        rekeyed: bool,
    ) -> None:
        """Store a table that joins, or gets another key, and read its rows unless the settings say otherwise.

        `empty_at`: where the table was empty. It may have had rows before, so a log that lags is incomplete until then.
        `since`: the LSN from which on the table is captured with this key, as far as is known; None: from now on.
        """
        unread = self._unwanted(table)
        if empty_at is not None:
            there = self._log_reaches(empty_at)
            self._store(table, joined, None if there else EMPTY, complete=there, since=empty_at)
        elif unread is not None:
            self._store(table, joined, unread, rekeyed=rekeyed, since=since)
        else:
            self._store(table, joined, None, rekeyed=rekeyed, since=since)
            if begin_reading(self._pipeline, self._stored, table, "initial") is None:
                self._read_from_the_beginning(table)

    def _unwanted(self, table: CapturedTable) -> str | None:
        """Return why the settings exclude existing rows of the table from reading; None: they are read."""
        if self._config.snapshot == "never":
            return NEVER
        chosen = self._config.snapshot_tables
        return None if not chosen or patterns.matches(chosen, f"{table.schema}.{table.name}") else NOT_CHOSEN

    def _why_unread(self, table: CapturedTable) -> str | None:
        return self._unwanted(table) if table.keyed else UNKEYED

    def _read_from_the_beginning(self, table: CapturedTable) -> None:
        """Restart a backfill that is under way: it has read rows whose changes were not captured then."""
        for backfill in backfills.list_open(self._pipeline, self._stored.id):
            if backfill.table_oid == table.oid and backfill.partial:
                backfills.end(self._pipeline, backfill.id, "cancelled", "all of its table is read instead")
                begin_reading(self._pipeline, self._stored, table, "initial")
            elif backfill.table_oid == table.oid and backfill.condition is None:
                backfills.start_over(self._pipeline, backfill.id)
                self._execute("read_by", {"oid": table.oid, "backfill": backfill.id})

    def _end_capture(self, table: SnapshotTable) -> None:
        if table.captured:
            self._execute("table_left", {"oid": table.table_oid, "reason": NOT_CAPTURED})
            for backfill in backfills.list_open(self._pipeline, self._stored.id):
                if backfill.table_oid == table.table_oid:
                    backfills.end(self._pipeline, backfill.id, "failed", NOT_CAPTURED)

    def _store(
        self,
        table: CapturedTable,
        joined: CaptureStart | None,
        reason: str | None,
        *,
        complete: bool = False,
        reread: str | None = None,
        keeps: bool = False,
        rekeyed: bool = False,
        since: int | None = None,
    ) -> None:
        """Store that a table is captured in this epoch. `reread`: kind of the backfill that must begin.

        `keeps`: the log has earlier rows under this oid. `rekeyed`: the log knows them by another key. `since`: as in
        `_join`.
        """
        values = {
            **_stored_values(table),
            "epoch": self._stored.epoch,
            "joined": joined.id if joined else None,
            "reason": reason,
            "complete": complete,
            "reread": reread,
            "keeps": keeps,
            "rekeyed": rekeyed,
            "lsn": self._at,
            "since_lsn": self._at if since is None else since,
            "events_table": self._config.events_table,
        }
        self._execute("store_table", values)

    def _execute(self, name: str, values: Mapping[str, object]) -> None:
        self._pipeline.execute(statement("snapshots", name), {**values, "source": self._stored.id})


def _stored_values(table: CapturedTable) -> dict[str, object]:
    return {**vars(table), "members": list(table.members)}


class InheritanceWatcher:
    """Stores which tables inherit from others, and what changed since the last comparison."""

    def __init__(self, source: Connection, pipeline: Connection, stored: ReplicationSource) -> None:
        self._source, self._pipeline, self._stored = source, pipeline, stored

    def read(self) -> set[InheritanceEdge]:
        """Return the inheritance that the catalog has now, without partitions."""
        return set(self._source.execute(_INHERITING_TABLES).fetchall())

    def compare(self, now: set[InheritanceEdge], lsn: int) -> None:
        """Store the changes since the last call. `now`: from `read`; `lsn`: the end of the WAL after that."""
        values = {"source": self._stored.id}
        known = set(self._pipeline.execute(statement(_ROOM, "known_inheritance"), values).fetchall())
        is_first = _LOOKED not in known
        now = {_LOOKED, *now}
        self._store(now - known, lsn, inherits=True, is_first=is_first)
        left = known - now
        there = captured_tables.find_existing(self._source, {oid for edge in left for oid in edge})
        ended = {edge for edge in left if there.issuperset(edge)}
        self._store(ended, lsn, inherits=False)
        self._execute("forget_inheritance", left - ended)  # a table was dropped

    def _store(self, edges: Collection[InheritanceEdge], lsn: int, *, inherits: bool, is_first: bool = False) -> None:
        values = {"epoch": self._stored.epoch, "lsn": lsn, "inherits": inherits, "first": is_first}
        self._execute("store_inheritance", edges, **values)

    def _execute(self, name: str, edges: Collection[InheritanceEdge], **values: object) -> None:
        if edges:
            oids = {"children": [child for child, _ in edges], "parents": [parent for _, parent in edges]}
            self._pipeline.execute(statement(_ROOM, name), {**values, **oids, "source": self._stored.id})
