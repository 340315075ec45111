"""The applier's loop: applies the log to one follower, waits for more, and stops before a change that it cannot apply.

The loop ends only if the follower is removed. After an error it tries again with growing delays, so that it continues
by itself once the cause is gone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from functools import partial

import psycopg

from pipeline.config.settings import Config
from pipeline.errors import (
    ApplierOvertakenError,
    CursorExpiredError,
    FollowedTablesChangedError,
    NotFollowableError,
    PipelineError,
    StatementRefusedError,
    TableLockedError,
)
from pipeline.followers import connecting, registry
from pipeline.followers.applying import position
from pipeline.followers.applying.applier import LogApplier
from pipeline.followers.applying.followed_tables import TableToFollow
from pipeline.followers.applying.position import FollowerPosition
from pipeline.followers.applying.snapshot_copy import SnapshotCopy
from pipeline.followers.applying.upcoming_passes import SharedReader
from pipeline.followers.copying import log_progress
from pipeline.followers.copying.table_copies import CopyInterruptedError
from pipeline.followers.registry import ApplierReport, FollowerTable, NamedTable, RegisteredFollower, TableNote
from pipeline.followers.running import beginning, lost_log, remedies
from pipeline.followers.running.copier import TableCopier
from pipeline.followers.running.joined_partitions import PartitionNews
from pipeline.followers.schema_changes import type_changes
from pipeline.followers.schema_changes.changes import SchemaChanges
from pipeline.followers.schema_changes.detected_partitions import PartitionChanges
from pipeline.followers.schema_changes.renames import TableRenames
from pipeline.log.table import CHANNEL, EventsTable
from pipeline.postgres import connections, queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.process.signals import StopSignal

logger = logging.getLogger(__name__)

REPORT_SECONDS = 0.5
"""Seconds between two reports of the follower's position; each report also checks if a user paused the follower."""
IDLE_SECONDS = 1.0
"""Seconds to wait for a notification of new events."""
FIRST_DELAY, LONGEST_DELAY = 0.5, 30.0
"""Seconds before an attempt after an error; each failure in a row doubles them."""


class FollowerLoop:
    """Runs one follower. `log`: reads events; `state`: stores reports and listens for new events."""

    def __init__(
        self,
        config: Config,
        log: Connection,
        state: Connection,
        follower: int,
        name: str,
        shared: SharedReader | None = None,
    ) -> None:
        """`follower`: the id of its row; a later follower of that name has another. `shared`: see `LogApplier`."""
        self._config, self._log, self._state, self._id, self._name = config, log, state, follower, name
        self._shared = shared
        self._last_report: ApplierReport | None = None
        self._reported_at = 0.0
        self._delay, self._pause, self._is_checked = FIRST_DELAY, FIRST_DELAY, False
        self._reported_tables = dict[int, FollowerTable]()
        self._copier = TableCopier(config, follower, name)
        self._news = PartitionNews(log)

    def run(self, stop: StopSignal) -> None:
        """Run until told to stop, or until the follower is removed. Raises psycopg.Error of the pipeline database."""
        self._state.execute(f"listen {CHANNEL}".encode())
        with self._copier:
            self._run(stop)

    def _run(self, stop: StopSignal) -> None:
        while not stop and (found := self._find()) is not None:
            if found.wanted == "paused":
                self._copier.stop()
                self._report(ApplierReport("paused"))
                stop.wait(IDLE_SECONDS)
                continue
            try:
                self._follow(found, stop)
            except (PipelineError, psycopg.Error) as error:
                if isinstance(error, psycopg.Error) and (
                    connections.is_ours(error) or self._log.broken or self._state.broken
                ):
                    raise
                # The session that moved the position may have removed the obstacle; a lock may be free at any moment.
                if isinstance(error, ApplierOvertakenError | TableLockedError):
                    self._delay = FIRST_DELAY
                self._report_error(found, error)
                self._wait_to_retry(stop)

    def _find(self) -> RegisteredFollower | None:
        return next((each for each in registry.find(self._state, self._name) if each.id == self._id), None)

    def _follow(self, registration: RegisteredFollower, stop: StopSignal) -> None:
        """Copy and apply in one session with the follower, while it is not paused. Raises any error that stops it."""
        with beginning.applier_session(registration) as follower:
            position.install(follower)
            beginning.begin(self._log, follower, registration)
            renames = beginning.make_renames(self._config, lambda: registration)
            if renames.follow_missing_tables(self._state, follower):
                return
            type_changes.remember_labels(self._config, follower, registration)
            try:
                with type_changes.following_types(self._config, self._log, follower, registration):
                    self._copy(follower, registration, stop)
            except (CopyInterruptedError, FollowedTablesChangedError):
                return
            self._apply(follower, registration, renames, stop)

    def _copy(self, follower: Connection, registration: RegisteredFollower, stop: StopSignal) -> None:
        """Copy the tables that are not copied yet. Raises CopyInterruptedError if paused, and any error of a copy."""
        one_at_a_time = threading.Lock()

        def say(table: NamedTable, note: TableNote | None) -> None:
            with one_at_a_time:
                self._report_table(table, "copying", note)

        def go_on() -> bool:
            with one_at_a_time:
                return not stop and self._may_continue(ApplierReport("copying"))

        self._copier.refused |= beginning.copy_tables(self._config, self._log, follower, registration, stop, go_on, say)

    def _apply(
        self, follower: Connection, registration: RegisteredFollower, renames: TableRenames, stop: StopSignal
    ) -> None:
        """Apply the log until the follower is paused or its tables change; then `_follow` begins again."""
        self._news.begin()
        here = beginning.current_position(follower, registration)
        if beginning.request_unknown_copies(self._log, follower, registration, here):
            return
        type_changes.remember_labels(self._config, follower, registration)
        partitions = PartitionChanges(self._config, self._log, follower, registration, renames.called(follower))
        wanted = beginning.wanted_tables(self._log, follower, registration, here, partitions)
        changes = SchemaChanges(
            self._config, self._log, self._state, follower, registration, wanted, renames, partitions
        )
        try:
            if not self._is_checked:  # once for this session with the log
                lost_log.require_in_log(self._log, here)
                self._is_checked = True
            changes.request_copies()
            self._apply_to(follower, registration, here, wanted, changes, stop)
        except FollowedTablesChangedError:
            self._delay = FIRST_DELAY
        except (CursorExpiredError, NotFollowableError, StatementRefusedError) as error:
            if not _is_resolved(error, self._log, follower, registration, changes):
                raise

    def _apply_to(
        self,
        follower: Connection,
        registration: RegisteredFollower,
        here: FollowerPosition,
        wanted: Mapping[int, TableToFollow],
        changes: SchemaChanges,
        stop: StopSignal,
    ) -> None:
        """Apply the log to these tables until the follower is paused, its tables change, or it is past all copies."""
        outstanding = {oid: each.copy for oid, each in wanted.items() if each.copy is not None}
        settling = beginning.unsettled_tables(self._log, follower, registration)
        recopied = [table for oid, table in beginning.table_names(follower, registration).items() if oid not in wanted]
        with closing(self._applier(follower, registration, wanted, changes)) as applier:
            if applier.position.generation != here.generation:  # `wanted` may be of an earlier generation
                return
            self._report_tables(wanted, {*outstanding, *settling}, recopied, settling, changes)
            if recopied:
                self._copier.ensure(recopied)
            # Report progress only after this first call: what stopped the last attempt may stop this one, too.
            applied = applier.apply()
            is_copying = bool(outstanding or settling)
            while not stop and self._may_continue(
                remedies.progress_report(applier.position, bool(wanted), is_copying, recopied, self._copier.refused)
            ):
                if recopied:
                    self._copier.ensure(recopied)
                if applied is None:
                    self._wait_for_events()
                    position.require_unmoved(follower, applier.position)
                    if settling and beginning.unsettled_tables(self._log, follower, registration) != settling:
                        return
                    self._report_tables(wanted, {*outstanding, *settling}, recopied, settling, changes)
                else:
                    self._delay = FIRST_DELAY
                    logger.debug("applied", extra={"action": "follower.applied", "seq": applied.seq})
                applied = applier.apply()
                changes.inheritance.follow_due(applier.position)
                if self._must_restart(changes, applier.position, wanted, outstanding):
                    return

    def _must_restart(
        self,
        changes: SchemaChanges,
        here: FollowerPosition,
        wanted: Mapping[int, TableToFollow],
        outstanding: Mapping[int, SnapshotCopy],
    ) -> bool:
        """Return True if the position has passed all copies, or if partitions of the tables have changed."""
        if outstanding and not log_progress.outstanding(self._log, here, outstanding):
            return True
        return self._news.has_arrived() or changes.partition_changes.follow_due(here, wanted)

    def _applier(
        self,
        follower: Connection,
        registration: RegisteredFollower,
        wanted: Mapping[int, TableToFollow],
        changes: SchemaChanges,
    ) -> LogApplier:
        database = self._config.database
        applier = LogApplier(
            self._log,
            follower,
            registration.source_id,
            registration.name,
            wanted,
            events_table=EventsTable.parse(self._config.events_table),
            connect=partial(connections.connect, database, "pipeline database", name="pipeline applier ahead"),
            shared=self._shared,
            on_history=changes.request_copies,
            bound_of=partial(ask_partition_bounds, self._config),
            gap=beginning.next_gap(self._log, follower, registration, wanted),
        )
        # Again: the applier has just read its tables, and does not report changes that are older than that.
        changes.request_copies()
        return applier

    def _report_tables(
        self,
        wanted: Mapping[int, TableToFollow],
        copying: Collection[int],
        recopied: Sequence[NamedTable],
        settling: Mapping[int, TableNote],
        changes: SchemaChanges,
    ) -> None:
        for table in recopied:
            self._report_table(table, "copying", self._copier.refused.get(table))
        notes = {**changes.notes(), **settling}
        for oid, each in wanted.items():
            table = NamedTable(oid, each.schema, each.name)
            self._report_table(table, "copying" if oid in copying else "following", notes.get(oid))

    def _may_continue(self, report: ApplierReport) -> bool:
        """Store this report and return False if the follower was paused or removed; at most every REPORT_SECONDS."""
        if time.monotonic() < self._reported_at + REPORT_SECONDS:
            return True
        self._report(report)
        found = self._find()
        return found is not None and found.wanted == "running"

    def _report_table(self, table: NamedTable, state: str, note: TableNote | None = None) -> None:
        """Store the state of a table, if it has changed."""
        row = FollowerTable.of(table, state, note)
        if self._reported_tables.get(table.table_oid) != row:
            registry.store_table_states(self._state, self._id, [row])
            self._reported_tables[table.table_oid] = row
            if note is not None:
                extra = {"action": "follower.copy_waits" if state == "copying" else "follower.divided"}
                name = f"{table.table_schema}.{table.table_name}"
                logger.info("%s: table %s: %s", self._name, name, note.reason, extra=extra)

    def _wait_for_events(self) -> None:
        """Wait for new events, at most IDLE_SECONDS."""
        for _ in self._state.notifies(timeout=IDLE_SECONDS, stop_after=1):
            pass

    def _report(self, report: ApplierReport) -> None:
        registry.store_report(self._state, self._id, report)
        if self._last_report is not None and (report.state, report.reason) != (
            self._last_report.state,
            self._last_report.reason,
        ):
            log = logger.info if report.state in ("following", "copying", "paused") else logger.warning
            log("%s: %s", self._name, report.reason or report.state, extra={"action": f"follower.{report.state}"})
        self._last_report, self._reported_at = report, time.monotonic()

    def _report_error(self, registration: RegisteredFollower, error: Exception) -> None:
        """Report what stopped an attempt, unless a command has asked for something else since the attempt began."""
        now, report = self._find(), self._last_report
        known = {(each.state, each.reason) for each in (registration, report) if each is not None}
        if now is None or (now.state, now.reason) in known:
            report = remedies.report_of(registration, error)
            self._pause = remedies.retry_pause(self._delay, report)
            self._report(remedies.with_retry_time(report, self._pause))
        else:
            self._last_report, self._delay, self._pause = None, FIRST_DELAY, FIRST_DELAY

    def _is_unchanged(self, registration: RegisteredFollower) -> bool:
        """Return True if no command has changed the follower's state or reason since the last report."""
        return self._last_report is None or (registration.state, registration.reason) == (
            self._last_report.state,
            self._last_report.reason,
        )

    def _wait_to_retry(self, stop: StopSignal) -> None:
        """Wait before the next attempt; a command, a copy that is finished, or changed partitions end the wait."""
        until, replaced = time.monotonic() + self._pause, self._copier.replaced
        self._delay = min(2 * self._delay, LONGEST_DELAY)
        while time.monotonic() < until and not stop.wait(min(IDLE_SECONDS, self._delay)):
            if (found := self._find()) is None or not self._is_unchanged(found):
                return
            if found.wanted == "paused" or self._copier.replaced != replaced or self._news.has_arrived():
                return


def _is_resolved(
    error: CursorExpiredError | NotFollowableError | StatementRefusedError,
    log: Connection,
    follower: Connection,
    registration: RegisteredFollower,
    changes: SchemaChanges,
) -> bool:
    """Return True if the obstacle was removed. Raises the error that stops the follower instead."""
    if isinstance(error, CursorExpiredError):
        return _skip_expired(log, follower, registration, changes)
    if isinstance(error, StatementRefusedError):
        return changes.resolve_refusal(error)
    if error.why in ("changed", "unknown"):
        changes.follow(error)
        return True
    return False


def _skip_expired(
    log: Connection, follower: Connection, registration: RegisteredFollower, changes: SchemaChanges
) -> bool:
    """Skip events that the log no longer has, if all tables will be copied again; returns True if it does."""
    head = int(queries.value(log, "select pipeline.log_head()"))
    changes.request_copies()  # later calls do not find older changes
    skipped = beginning.skip_expired(log, follower, registration, head)
    if skipped:
        extra = {"action": "follower.skipped_expired", "seq": head}
        logger.info("%s: continues from seq %s with copies of all tables", registration.name, head, extra=extra)
    return skipped


def ask_partition_bounds(config: Config, root: int, partition: int) -> str | None:
    """Return an SQL condition that is true for the rows of a partition, from the oids of its root and itself.

    None if the partition is no longer attached, or if no such condition exists. Raises DatabaseUnavailableError if the
    source does not answer.
    """
    with connecting.connect_catalog(config) as source:  # its search_path decides how names are printed
        values = {"root": root, "partition": partition}
        found: str | None = queries.value(source, statement("followers.running", "partition_bound"), values)
    return found
