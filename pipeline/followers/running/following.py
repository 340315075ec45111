"""What an applier does while its follower is wanted: apply, wait for more, stop before what cannot be applied.

Nothing ends it but the end of its follower's row: what stopped it is tried again, later and later, so that it goes on
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
from pipeline.followers.applying.applier import Applier
from pipeline.followers.applying.followed_tables import Wanted
from pipeline.followers.applying.position import Position
from pipeline.followers.applying.upcoming import Shared
from pipeline.followers.copying import log_progress
from pipeline.followers.copying.table_copies import CopyInterruptedError
from pipeline.followers.registry import Follower, FollowerTable, Note, Report, TableName
from pipeline.followers.running import beginning, lost_log, remedies
from pipeline.followers.running.copier import Copier
from pipeline.followers.running.joined_partitions import PartitionNews
from pipeline.followers.schema_changes import changed_types
from pipeline.followers.schema_changes.changes import SchemaChanges
from pipeline.followers.schema_changes.detected_partitions import PartitionChanges
from pipeline.followers.schema_changes.renames import TableRenames
from pipeline.log.table import CHANNEL, EventsTable
from pipeline.postgres import connections, queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.process.signals import Stop

logger = logging.getLogger(__name__)

REPORT_SECONDS = 0.5
"""How often it is stored how far the follower is, and looked whether it is still wanted."""
IDLE_SECONDS = 1.0
"""How long to wait for a notification of new events."""
FIRST_DELAY, LONGEST_DELAY = 0.5, 30.0
"""Seconds before what stopped it is tried again; each failure in a row doubles them."""


class Following:
    """One follower. `log` is read; over `state` it is stored how the follower is, and heard that there is more."""

    def __init__(
        self,
        config: Config,
        log: Connection,
        state: Connection,
        follower: int,
        name: str,
        shared: Shared | None = None,
    ) -> None:
        """`follower`: the id of its row, which another one of that name would not have. `shared`: as for an applier."""
        self._config, self._log, self._state, self._id, self._name = config, log, state, follower, name
        self._shared = shared
        self._said: Report | None = None
        self._said_at = 0.0
        self._delay, self._pause, self._is_in_log = FIRST_DELAY, FIRST_DELAY, False
        self._said_tables = dict[int, FollowerTable]()
        self._copier = Copier(config, follower, name)
        self._news = PartitionNews(log)

    def run(self, stop: Stop) -> None:
        """Until told to stop, or until the follower was removed. Raises psycopg.Error of the pipeline database."""
        self._state.execute(f"listen {CHANNEL}".encode())
        with self._copier:
            self._run(stop)

    def _run(self, stop: Stop) -> None:
        while not stop and (found := self._find()) is not None:
            if found.wanted == "paused":
                self._copier.stop()
                self._say(Report("paused"))
                stop.wait(IDLE_SECONDS)
                continue
            try:
                self._follow(found, stop)
            except (PipelineError, psycopg.Error) as error:
                if isinstance(error, psycopg.Error) and (
                    connections.is_ours(error) or self._log.broken or self._state.broken
                ):
                    raise
                # Whoever moved the position may have taken away what was in the way; a lock may be free at any moment.
                if isinstance(error, ApplierOvertakenError | TableLockedError):
                    self._delay = FIRST_DELAY
                self._stopped(found, error)
                self._rest(stop)

    def _find(self) -> Follower | None:
        return next((each for each in registry.find(self._state, self._name) if each.id == self._id), None)

    def _follow(self, found: Follower, stop: Stop) -> None:
        """While it is wanted. Raises what stops it."""
        with beginning.applier_session(found) as follower:
            position.install(follower)
            beginning.begin(self._log, follower, found)
            renames = beginning.renames(self._config, lambda: found)
            if renames.follow_missing_tables(self._state, follower):
                return
            changed_types.remember_labels(self._config, follower, found)
            try:
                with changed_types.following_types(self._config, self._log, follower, found):
                    self._copy(follower, found, stop)
            except (CopyInterruptedError, FollowedTablesChangedError):
                return
            self._apply(follower, found, renames, stop)

    def _copy(self, follower: Connection, found: Follower, stop: Stop) -> None:
        """Copy the tables that need it. Raises CopyInterruptedError if no copy is wanted now, and what stops a copy."""

        one_at_a_time = threading.Lock()

        def say(table: TableName, note: Note | None) -> None:
            with one_at_a_time:
                self._say_table(table, "copying", note)

        def go_on() -> bool:
            with one_at_a_time:
                return not stop and self._is_wanted(Report("copying"))

        self._copier.refused |= beginning.copy(self._config, self._log, follower, found, stop, go_on, say)

    def _apply(self, follower: Connection, found: Follower, renames: TableRenames, stop: Stop) -> None:
        """Until it is not wanted any more, or its tables are others than they were: then it begins anew from there."""
        self._news.begin()
        here = beginning.current_position(follower, found)
        if beginning.want_unknown(self._log, follower, found, here):
            return
        changed_types.remember_labels(self._config, follower, found)
        looked = PartitionChanges(self._config, self._log, follower, found, renames.called(follower))
        wanted = beginning.wanted_tables(self._log, follower, found, here, looked)
        changes = SchemaChanges(self._config, self._log, self._state, follower, found, wanted, renames, looked)
        try:
            if not self._is_in_log:  # once for this session with the log
                lost_log.require_in_log(self._log, here)
                self._is_in_log = True
            changes.request_copies()
            self._apply_to(follower, found, here, wanted, changes, stop)
        except FollowedTablesChangedError:
            self._delay = FIRST_DELAY
        except (CursorExpiredError, NotFollowableError, StatementRefusedError) as error:
            if not _is_mended(error, self._log, follower, found, changes):
                raise

    def _apply_to(
        self,
        follower: Connection,
        found: Follower,
        here: Position,
        wanted: Mapping[int, Wanted],
        changes: SchemaChanges,
        stop: Stop,
    ) -> None:
        """Until it is not wanted any more, or is past its last copy: then nothing is left out any longer."""
        copied = {oid: each.copied for oid, each in wanted.items() if each.copied is not None}
        settling = beginning.settling(self._log, follower, found)
        anew = [table for oid, table in beginning.called(follower, found).items() if oid not in wanted]
        with closing(self._applier(follower, found, wanted, changes)) as applier:
            if applier.position.generation != here.generation:  # what is wanted may be of before that
                return
            self._say_tables(wanted, {*copied, *settling}, anew, settling, changes)
            if anew:
                self._copier.ensure(anew)
            # What stopped it is still in the way until something was applied, or there is nothing left to apply.
            applied = applier.apply()
            while not stop and self._is_wanted(
                remedies.progress(applier.position, bool(wanted), bool(copied or settling), anew, self._copier.refused)
            ):
                if anew:
                    self._copier.ensure(anew)
                if applied is None:
                    self._hear()
                    position.require(follower, applier.position)
                    if settling and beginning.settling(self._log, follower, found) != settling:
                        return
                    self._say_tables(wanted, {*copied, *settling}, anew, settling, changes)
                else:
                    self._delay = FIRST_DELAY
                    logger.debug("applied", extra={"action": "follower.applied", "seq": applied.seq})
                applied = applier.apply()
                changes.inheritance.follow_due(applier.position)
                is_past = bool(copied) and not log_progress.outstanding(self._log, applier.position, copied)
                if is_past or self._news.has_come() or changes.partition_changes.follow_due(applier.position, wanted):
                    return

    def _applier(
        self, follower: Connection, found: Follower, wanted: Mapping[int, Wanted], changes: SchemaChanges
    ) -> Applier:
        applier = Applier(
            self._log,
            follower,
            found.source_id,
            found.name,
            wanted,
            events_table=EventsTable.parse(self._config.events_table),
            connect=self._connect,
            shared=self._shared,
            on_history=changes.request_copies,
            bound_of=partial(ask_partition_bounds, self._config),
            gap=beginning.gap(self._log, follower, found, wanted),
        )
        changes.request_copies()  # once more: what came before the applier has read its tables is no growth for it
        return applier

    def _connect(self) -> Connection:
        """To read ahead of what is written."""
        return connections.connect(self._config.database, "pipeline database", name="pipeline applier ahead")

    def _say_tables(
        self,
        wanted: Mapping[int, Wanted],
        copying: Collection[int],
        anew: Sequence[TableName],
        settling: Mapping[int, Note],
        changes: SchemaChanges,
    ) -> None:
        for table in anew:
            self._say_table(table, "copying", self._copier.refused.get(table))
        notes = {**changes.notes(), **settling}
        for oid, each in wanted.items():
            table = TableName(oid, each.schema, each.name)
            self._say_table(table, "copying" if oid in copying else "following", notes.get(oid))

    def _is_wanted(self, said: Report) -> bool:
        """Say how far it is, and look whether somebody wants something else; both now and then."""
        if time.monotonic() < self._said_at + REPORT_SECONDS:
            return True
        self._say(said)
        found = self._find()
        return found is not None and found.wanted == "running"

    def _say_table(self, table: TableName, state: str, note: Note | None = None) -> None:
        """Say what is with a table, once."""
        said = FollowerTable.of(table, state, note)
        if self._said_tables.get(table.table_oid) != said:
            registry.report_tables(self._state, self._id, [said])
            self._said_tables[table.table_oid] = said
            if note is not None:
                extra = {"action": "follower.copy_waits" if state == "copying" else "follower.divided"}
                name = f"{table.table_schema}.{table.table_name}"
                logger.info("%s: table %s: %s", self._name, name, note.reason, extra=extra)

    def _hear(self) -> None:
        """Wait for new events, or for a while."""
        for _ in self._state.notifies(timeout=IDLE_SECONDS, stop_after=1):
            pass

    def _say(self, said: Report) -> None:
        registry.report(self._state, self._id, said)
        if self._said is not None and (said.state, said.reason) != (self._said.state, self._said.reason):
            log = logger.info if said.state in ("following", "copying", "paused") else logger.warning
            log("%s: %s", self._name, said.reason or said.state, extra={"action": f"follower.{said.state}"})
        self._said, self._said_at = said, time.monotonic()

    def _stopped(self, found: Follower, error: Exception) -> None:
        """Report what stopped an attempt, unless a command has asked for something else since the attempt began."""
        now, said = self._find(), self._said
        known = {(each.state, each.reason) for each in (found, said) if each is not None}
        if now is None or (now.state, now.reason) in known:
            said = remedies.report_of(found, error)
            self._pause = remedies.pause(self._delay, said)
            self._say(remedies.timed(said, self._pause))
        else:
            self._said, self._delay, self._pause = None, FIRST_DELAY, FIRST_DELAY

    def _is_as_said(self, found: Follower) -> bool:
        """Whether its row still has what we have last said: a command that takes away what stopped it says so there."""
        return self._said is None or (found.state, found.reason) == (self._said.state, self._said.reason)

    def _rest(self, stop: Stop) -> None:
        """Before it is tried again; ends early where it is paused or removed, or who changed something has said so."""
        until, placed = time.monotonic() + self._pause, self._copier.placed
        self._delay = min(2 * self._delay, LONGEST_DELAY)
        while time.monotonic() < until and not stop.wait(min(IDLE_SECONDS, self._delay)):
            if (found := self._find()) is None or not self._is_as_said(found):
                return
            if found.wanted == "paused" or self._copier.placed != placed or self._news.has_come():
                return


def _is_mended(
    error: CursorExpiredError | NotFollowableError | StatementRefusedError,
    log: Connection,
    follower: Connection,
    found: Follower,
    changes: SchemaChanges,
) -> bool:
    """Whether it is there no longer. Raises what stops the follower instead."""
    if isinstance(error, CursorExpiredError):
        return _skip_expired(log, follower, found, changes)
    if isinstance(error, StatementRefusedError):
        return changes.resolve_refusal(error)
    if error.why in ("changed", "unknown"):
        changes.follow(error)
        return True
    return False


def _skip_expired(log: Connection, follower: Connection, found: Follower, changes: SchemaChanges) -> bool:
    """Whether it goes on without what the log does not have any more, since all tables are copied anew."""
    head = int(queries.value(log, "select pipeline.log_head()"))
    changes.request_copies()  # what is new up to there is not looked for after it
    skipped = beginning.skip_expired(log, follower, found, head)
    if skipped:
        extra = {"action": "follower.skipped_expired", "seq": head}
        logger.info("%s: goes on from seq %s with copies of all tables", found.name, head, extra=extra)
    return skipped


def ask_partition_bounds(config: Config, root: int, partition: int) -> str | None:
    """SQL that holds for the rows of a partition, by oids; None where it is not attached any more, or nothing says so.

    Raises DatabaseUnavailableError where the source does not answer.
    """
    with connecting.connect_catalog(config) as source:  # names are printed as they are found
        values = {"root": root, "partition": partition}
        found: str | None = queries.value(source, statement("followers.running", "partition_bound"), values)
    return found
