"""Lead the snapshot workers: wait for older transactions, plan ranges, and mark tables as complete in the log."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

from pipeline import printable
from pipeline.capture.schema_history import introspection, rewrites
from pipeline.capture.schema_history.versions import HistoryVersion
from pipeline.capture.source import publication_ledger
from pipeline.capture.source.sources import ReplicationSource
from pipeline.config.settings import Config
from pipeline.log import tables as events_tables
from pipeline.log.staging import ranges
from pipeline.log.staging.ranges import PlannedRange, UnfinishedRange
from pipeline.postgres import connections, queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.snapshots import backfills, comparing, partition_changes, register, to_read, truncates, unresolved
from pipeline.snapshots.backfills import StoredBackfill
from pipeline.snapshots.plan import RelationSize
from pipeline.snapshots.samples import SeqSampler
from pipeline.snapshots.shapes import has_key, without_key
from pipeline.snapshots.unresolved import KEYS_PER_RANGE, UnresolvedKeySearch

logger = logging.getLogger(__name__)

LOCK_TIMEOUT = "2s"
TABLES_SECONDS = 2.0
"""Seconds between two queries for the list of captured tables."""
TRUNCATES_SECONDS = 5.0
"""Seconds between two searches for truncates: a truncated table is complete, even if it was never read."""
_SETTLE_TABLE = """\
update pipeline.snapshot_tables set settled_lsn = %(lsn)s
where source_id = %(source)s and table_oid = %(oid)s and epoch = %(epoch)s and captured
"""
"""Store that a table was compared, and that all its differences are in the log: from here on, the log is complete."""

_MARKER_STATES = """\
select xid::text, pg_catalog.pg_xact_status(xid)
from unnest(%(xids)s::text[]::xid8[]) xid
where xid < pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())
"""
"""The states of transactions: committed, aborted or in progress; null if the transaction is too old to know."""


class SnapshotCoordinator:
    """Advances all backfills of one epoch. Uses both connections, from one thread."""

    def __init__(
        self, config: Config, source: Connection, pipeline: Connection, stored: ReplicationSource, from_lsn: int
    ) -> None:
        """`from_lsn`: where the stream of the source's epoch begins."""
        self._source, self._pipeline, self._stored = source, pipeline, stored
        source.execute("set search_path = ''")
        source.execute(f"set lock_timeout = '{LOCK_TIMEOUT}'".encode())
        self._config = config
        self._register = register.TableRegister(config, source, pipeline, stored, from_lsn)
        self._samples = SeqSampler(source, pipeline, stored)
        self._rounds: dict[int, UnresolvedKeySearch] = {}
        self._ended: set[int] = set()
        """Backfills whose last range, an empty one, is planned."""
        self._truncates = truncates.TableTruncates(pipeline, stored)
        self._tables_at = self._truncates_at = 0.0

    def step(self) -> bool:
        """Do what can be done now, without waiting; returns whether workers are needed."""
        now = time.monotonic()
        if now >= self._tables_at:
            self._tables_at = now + TABLES_SECONDS
            self._register.update()
        self._collect()
        for backfill in backfills.list_open(self._pipeline, self._stored.id):
            if backfill.epoch != self._stored.epoch:
                reason = backfills.ENDED_EPOCH.format(self._stored.epoch)
                backfills.end(self._pipeline, backfill.id, "failed", reason, of_ended_epoch=True)
            elif backfill.state == "paused":
                ranges.hold(self._pipeline, backfill.id)
            else:
                self._try_to_advance(backfill)
        recover_ranges(self._source, self._pipeline, self._stored.id)
        if now >= self._truncates_at:
            self._truncates_at = now + TRUNCATES_SECONDS
            self._truncates.complete_truncated(lambda oid: [extent.oid for extent in self._extents(oid)])
        return any(each.state == "reading" for each in backfills.list_open(self._pipeline, self._stored.id))

    def _try_to_advance(self, backfill: StoredBackfill) -> None:
        """Do the next step of the backfill. A lock on its table, or an error there, does not stop other backfills."""
        try:
            self._advance(backfill)
        except psycopg.errors.LockNotAvailable:
            holders = statement("snapshots", "holders_of_table")
            row = self._source.execute(holders, {"oid": backfill.table_oid}).fetchone()
            reason = "waits for a lock on the table" if row is None else f"waits for pid {row[0]}, which locks it"
            backfills.wait(self._pipeline, backfill.id, reason)
        except (psycopg.ProgrammingError, psycopg.DataError) as error:
            reason = f"{connections.one_line(error)}; it is tried again"
            if reason != backfill.reason:
                logger.exception("%s cannot be read now", backfill.table, extra={"action": "snapshot.refused"})
            backfills.wait(self._pipeline, backfill.id, reason)

    def _advance(self, backfill: StoredBackfill) -> None:
        if backfill.state == "reading":
            self._follow(backfill)
        elif backfill.after_xid is None:
            self._begin_wait(backfill)
        else:
            row = self._source.execute(
                statement("snapshots", "older_transactions"), {"xid": backfill.after_xid}
            ).fetchone()
            assert row is not None  # noqa: S101  function calls
            ended, oldest = row
            if ended:
                self._plan(backfill)
            else:
                reason = f"waits for transactions that had begun before it, as {oldest or 'one that has just ended'}"
                backfills.wait(self._pipeline, backfill.id, reason)

    def _begin_wait(self, backfill: StoredBackfill) -> None:
        self._rounds.pop(backfill.id, None)
        self._ended.discard(backfill.id)
        next_xid, seqs = self._samples.take_sample()
        lsn = int(queries.value(self._source, statement("snapshots", "end_of_wal")))
        backfills.begin_wait(self._pipeline, backfill.id, next_xid, lsn, seqs)
        name = backfill.table
        logger.info(
            "the server reads the existing rows of %s", name, extra={"action": "snapshot.begins", "table": name}
        )

    def _extents(self, table_oid: int) -> Sequence[RelationSize]:
        return to_read.relations(self._source, [table_oid], (), sized=True)

    def _plan(self, backfill: StoredBackfill) -> None:
        extents = _extents_to_read(backfill, self._extents(backfill.table_oid))
        if backfill.compares and not extents:
            backfills.end(self._pipeline, backfill.id, "failed", comparing.NOTHING)
            return
        versions = [self._version(extent.oid) for extent in extents]
        by_key = all(version is not None and has_key(version) for version in versions)
        if not by_key:
            logger.info(
                "%s has no key: it is read in one transaction, which holds a snapshot at the source until its end",
                backfill.table,
                extra={"action": "snapshot.keyless", "table": backfill.table},
            )
        compares = backfill.compares and by_key
        planned = (
            [comparing.comparison(backfill)]
            if compares
            else to_read.ranges(self._config, self._source, extents, by_key=by_key)
        )
        floor_seqs = comparing.floor_seqs(self._pipeline) if compares else None
        estimate = sum(extent.rows for extent in extents), sum(extent.bytes for extent in extents)
        with self._pipeline.transaction():
            added = ranges.plan(self._pipeline, self._stored.id, self._stored.epoch, backfill.id, planned)
            files = {extent.oid: extent.file for extent in extents}
            backfills.store_plan(self._pipeline, backfill, files, by_key, estimate, added, floor_seqs)

    def _version(self, oid: int) -> HistoryVersion | None:
        made = self._stored.publications
        names = list(publication_ledger.known_publications(self._stored))
        found = introspection.describe_current(self._source, oid, self._stored.slot, names, list(made.values()))
        return found.version if found else None

    def _collect(self) -> None:
        """Count the ranges that became events, including those of ended backfills."""
        for number in ranges.find_uncollected(self._pipeline, self._stored.id):
            moved = backfills.count_moved(self._pipeline, number)
            if number in self._rounds:
                self._rounds[number].left_out += moved.left_out

    def _follow(self, backfill: StoredBackfill) -> None:
        """Plan changed relations again; if all ranges are read, finish the backfill."""
        extents = _extents_to_read(backfill, self._extents(backfill.table_oid))
        if backfill.compares:
            if ranges.count_remaining(self._pipeline, backfill.id) == 0:
                self._finish(backfills.find(self._pipeline, backfill.id) or backfill, extents)
            return
        changed = [each for each in extents if backfill.files.get(str(each.oid), each.file) != each.file]
        gone = backfill.files.keys() - {str(each.oid) for each in extents}
        if changed or gone:
            self._plan_again(backfill, changed, gone)
        elif ranges.count_remaining(self._pipeline, backfill.id) == 0:
            self._finish(backfills.find(self._pipeline, backfill.id) or backfill, extents)
        elif outdated := ranges.drop_outdated(self._pipeline, backfill.id, backfill.files):
            backfills.more_ranges(self._pipeline, backfill.id, -outdated)

    def _plan_again(
        self, backfill: StoredBackfill, changed: Sequence[RelationSize], gone: Collection[str] = ()
    ) -> None:
        """Plan ranges of relations that were rewritten or are new, and drop those of relations that are gone.

        The rows of a rewritten relation are in other blocks.
        """
        self._ended.discard(backfill.id)
        planned = to_read.ranges(self._config, self._source, changed, by_key=bool(backfill.by_key))
        files = {**backfill.files, **{str(extent.oid): extent.file for extent in changed}}
        files = {oid: file for oid, file in files.items() if oid not in gone}
        with self._pipeline.transaction():
            outdated = ranges.drop_outdated(self._pipeline, backfill.id, files)
            added = ranges.plan(self._pipeline, self._stored.id, self._stored.epoch, backfill.id, planned)
            backfills.more_ranges(self._pipeline, backfill.id, added - outdated, files)
        backfills.wait(self._pipeline, backfill.id, None)

    def _finish(self, backfill: StoredBackfill, extents: Sequence[RelationSize]) -> None:
        if not extents:
            self._register.update()  # it ends the backfill of a table that was dropped
        new = [each for each in extents if str(each.oid) not in backfill.files]
        if new and not backfill.compares:
            self._plan_again(backfill, new)
        elif not self._ends(backfill, extents) and not (
            backfill.by_key and backfill.condition is None and self._read_unresolved(backfill, extents)
        ):
            self._complete(backfill)

    def _ends(self, backfill: StoredBackfill, extents: Sequence[RelationSize]) -> bool:
        """Plan one empty range as the last one; False if it was planned before, or if the table has no relation.

        When the marker of this range has arrived, the log has all changes that the table had until its last range was
        read. The marker of the last range with rows is too early: a relation may have been emptied or dropped since.
        """
        if backfill.id in self._ended or not extents:
            return False
        self._ended.add(backfill.id)
        if backfill.compares and not backfill.partial:
            self._settle(backfill)
        first = extents[0]
        last = PlannedRange(first.oid, first.table_oid, first.file, 0, 0)
        self._add(backfill, comparing.split_keys(backfill, []) if backfill.compares else [last])
        return True

    def _settle(self, backfill: StoredBackfill) -> None:
        """Store from which LSN on an update may omit values that only earlier epochs have.

        This happens before the last search for unresolved keys, which reads rows whose updates came too early.
        """
        lsn = int(queries.value(self._source, statement("snapshots", "end_of_wal")))
        values = {"source": self._stored.id, "oid": backfill.table_oid, "epoch": backfill.epoch, "lsn": lsn}
        self._pipeline.execute(_SETTLE_TABLE, values)

    def _add(self, backfill: StoredBackfill, planned: Sequence[PlannedRange]) -> None:
        with self._pipeline.transaction():
            added = ranges.plan(self._pipeline, self._stored.id, self._stored.epoch, backfill.id, planned)
            backfills.more_ranges(self._pipeline, backfill.id, added)

    def _read_unresolved(self, backfill: StoredBackfill, extents: Sequence[RelationSize]) -> bool:
        """Plan ranges of the keys that must be read again; False if there are none."""
        version = next(filter(None, (self._version(each.oid) for each in extents)), None)
        if version is None:
            return False
        if not has_key(version):
            backfills.wait(self._pipeline, backfill.id, without_key(backfill.table, backfill.id))
            return True
        last = self._rounds.setdefault(backfill.id, UnresolvedKeySearch(backfill.since_seqs or {}))
        _, seqs = self._samples.take_sample()
        written = events_tables.with_known(self._pipeline, [self._config.events_table])
        found = unresolved.keys(self._pipeline, backfill, version, last, written)
        if not found:
            return False
        last.begin(seqs)
        parts = [found[at : at + KEYS_PER_RANGE] for at in range(0, len(found), KEYS_PER_RANGE)]
        planned = [PlannedRange(each.oid, each.table_oid, each.file, keys=part) for each in extents for part in parts]
        self._add(backfill, comparing.split_keys(backfill, found) if backfill.compares else planned)
        return True

    def _complete(self, backfill: StoredBackfill) -> None:
        unknown = backfill.compares and not comparing.knows_all_changes(
            backfill.told_seqs, comparing.floor_seqs(self._pipeline)
        )
        with self._pipeline.transaction():
            if not backfills.end(self._pipeline, backfill.id, "complete", comparing.UNKNOWN if unknown else None):
                return
            name = backfill.events_table or self._config.events_table
            values = {"source": self._stored.id, "name": name}
            seq = int(queries.value(self._pipeline, statement("snapshots", "newest_seq"), values))
            if backfill.condition is None:
                partition_changes.settle(self._pipeline, backfill, seq)
            if backfill.condition is None and not backfill.partial:
                self._complete_table(backfill, seq)
            if backfill.compares and not backfill.partial and backfill.started_at is not None:
                place = backfill.epoch, backfill.after_lsn
                for rewritten in rewrites.read_unsettled(self._pipeline, backfill.source_id):
                    if rewritten.table_oid == backfill.table_oid:
                        rewrites.settle(self._pipeline, rewritten, backfill.started_at, place)
        self._rounds.pop(backfill.id, None)
        self._ended.discard(backfill.id)
        said = "; the log had the other rows already" if backfill.compares else ""
        if not said and backfill.rows_added < backfill.rows_read:
            said = "; the log had newer events of the other rows"
        logger.info(
            "%s is read: %s, of which %s%s",
            backfill.table,
            printable.count(backfill.rows_read, "row"),
            f"{backfill.rows_added:,} {'is an event' if backfill.rows_added == 1 else 'are events'}",
            said,
            extra={"action": "snapshot.complete", "table": backfill.table},
        )

    def _complete_table(self, backfill: StoredBackfill, seq: int) -> None:
        told = (backfill.told_seqs or backfill.floor_seqs) if backfill.compares else backfill.since_seqs
        values = {
            "source": self._stored.id,
            "oid": backfill.table_oid,
            "seq": seq,
            "first_seq": None if backfill.compares else backfill.first_seq,
            "events_table": backfill.events_table or self._config.events_table,
            "told_seqs": None if told is None else Jsonb(told),
        }
        self._pipeline.execute(statement("snapshots", "complete_table"), values)


def _extents_to_read(backfill: StoredBackfill, extents: Sequence[RelationSize]) -> Sequence[RelationSize]:
    """Return the relations whose rows the backfill reads: all relations of its table, or only some partitions."""
    return extents if backfill.relations is None else [each for each in extents if each.oid in backfill.relations]


def recover_ranges(source: Connection, pipeline: Connection, source_id: UUID) -> None:
    """Release the ranges whose reader or marker was lost, so that they are read again.

    A staged range belongs to the stream once its marker has committed, even if its reader has died. If the stream is
    beyond the marker and the range still has no place, an older version of the server has met the marker.
    """
    found = ranges.read_unfinished(pipeline, source_id)
    lost = [each.id for each in found if (each.state == "reading" and not each.alive) or each.passed]
    lost += _without_marker(source, pipeline, [each for each in found if each.state == "staged" and not each.passed])
    if lost:
        logger.info("%s ranges are read again", len(lost), extra={"action": "snapshot.again"})
        ranges.reset(pipeline, lost)


def _without_marker(source: Connection, pipeline: Connection, staged: list[UnfinishedRange]) -> list[int]:
    """Return the staged ranges whose marker will not come. For the others, store an LSN before which it committed."""
    unsure = {each.marker_xid: each for each in staged if each.seen_lsn is None and each.marker_xid is not None}
    if not unsure:
        return []
    rows = source.execute(_MARKER_STATES, {"xids": list(unsure)}).fetchall()
    states: dict[str, str | None] = dict(rows)
    lsn = int(queries.value(source, statement("snapshots", "end_of_wal")))
    lost = []
    for xid, each in unsure.items():
        state = states.get(xid, "aborted")
        if state == "aborted":
            lost.append(each.id)
        elif state != "in progress":
            ranges.store_seen_lsn(pipeline, each.id, lsn)
    return lost
