"""Begins a follower: which tables take changes from the log, after which position, and which are copied before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from pipeline.config.settings import Config
from pipeline.errors import FollowerError
from pipeline.followers import connecting
from pipeline.followers.applying import position
from pipeline.followers.applying.followed_tables import TableToFollow
from pipeline.followers.applying.passes import EpochGap
from pipeline.followers.applying.position import FollowerPosition
from pipeline.followers.applying.snapshot_copy import SnapshotCopy
from pipeline.followers.applying.table_versions import AS_OF_POSITION, ReachedVersion
from pipeline.followers.copying import (
    copies,
    log_progress,
    missing_tables,
    pending_statements,
    refusals,
    side_by_side,
    table_copies,
)
from pipeline.followers.copying.source_tables import SourceTables
from pipeline.followers.copying.table_copies import TableCopies
from pipeline.followers.registry import NamedTable, RegisteredFollower, TableNote
from pipeline.followers.running import epoch_gaps, joined_partitions, lost_log
from pipeline.followers.running.epoch_gaps import LogComparison
from pipeline.followers.schema_changes import reached_versions, rewritten_tables
from pipeline.followers.schema_changes.detected_partitions import PartitionChanges
from pipeline.followers.schema_changes.first_copy_preparer import FirstCopyPreparer
from pipeline.followers.schema_changes.reached_versions import StoredVersion
from pipeline.followers.schema_changes.renames import TableRenames
from pipeline.postgres import queries, reading_session, session_settings
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.process.signals import StopSignal

_NOT_YET = 2**63 - 1
_COMPARED = TableNote("is compared with the log after a gap, so some of its rows are as of another moment")
_JOINED = TableNote("gets the rows of a partition that was attached at the source")
_FOLDER = "followers.running"
_COMPLETE_SEQS = """\
select table_oid::bigint, complete_seq from pipeline.snapshot_tables where source_id = %(source)s and captured
"""
"""From which seq on the log has each table completely; null: not yet.

A partition that joined or left the source's table does not change the stored seq.
"""


@dataclass(frozen=True)
class EventCommit:
    """The commit of an event's transaction: the epoch, the LSN and the time."""

    source_epoch: int
    commit_lsn: int | None
    committed_at: datetime | None


def first_position(log: Connection, registration: RegisteredFollower) -> FollowerPosition:
    """Return the position of the registered seq. Its commit decides which versions the tables have there."""
    values = {"seq": registration.seq}
    last = queries.one(log, EventCommit, statement(_FOLDER, "commit_of_seq"), values) or EventCommit(0, None, None)
    return FollowerPosition(
        registration.source_id,
        registration.name,
        last.source_epoch,
        registration.seq,
        last.commit_lsn,
        last.committed_at,
    )


@dataclass(frozen=True)
class _InUse:
    """The epoch and the publications of a source that are in use."""

    epoch: int
    publications: list[str]


def begin(log: Connection, follower: Connection, registration: RegisteredFollower) -> None:
    """Begin a follower, unless it has begun already. Raises FollowerReleasedError."""
    begins = first_position(log, registration)
    oids = [table.table_oid for table in registration.table_states]
    position.reopen(follower, registration.source_id, registration.name, registration.id)
    store_tables(follower, registration)
    if registration.copy_mode == "source":
        copies.begin(follower, begins, registration.id, oids)
    else:
        with follower.transaction():
            if position.begin(follower, begins):
                if registration.copy_mode == "log":
                    # The tables have the source's current version, even if the log begins with an older one.
                    reached_versions.begin(log, follower, begins, registration.table_states)
                else:
                    reached_versions.begin_at_position(follower, begins, registration.table_states)
    rewritten_tables.begin(log, follower, registration, begins)


def store_tables(follower: Connection, registration: RegisteredFollower) -> None:
    """Store in the follower which tables this source feeds, so that no other source is added that feeds them, too."""
    tables = list(table_names(follower, registration).values())
    values = {
        "source": registration.source_id,
        "follower": registration.name,
        "oids": [each.table_oid for each in tables],
        "schemas": [each.table_schema for each in tables],
        "names": [each.table_name for each in tables],
    }
    follower.execute(statement(_FOLDER, "store_tables"), values)


def copy_tables(
    config: Config,
    log: Connection,
    follower: Connection,
    registration: RegisteredFollower,
    stop: StopSignal,
    go_on: Callable[[], bool],
    say: Callable[[NamedTable, TableNote | None], None],
) -> dict[NamedTable, TableNote]:
    """Copy the tables that are not copied yet; returns the tables that cannot be copied, and why.

    Each of these is retried later by `TableCopier`, while the other tables follow the log. `go_on` and `say` are called
    from several threads. Raises CopyInterruptedError, and any error that stops the copies.
    """
    here, tables = current_position(follower, registration), table_names(follower, registration)
    refused = dict[NamedTable, TableNote]()
    if pending := table_copies.pending(follower, here, tables.values()):
        make_tables = source_tables(config, log, registration)
        refused = _make_missing(config, registration, here, pending)
        renames = make_renames(config, lambda: registration)
        preparer = FirstCopyPreparer(log, registration, renames, lambda: plain_session(registration))

        @contextmanager
        def copier() -> Iterator[TableCopies]:
            with connect_source(config) as source, applier_session(registration) as session:
                made = make_tables(source)
                yield TableCopies(made, session, here, preparer, truncate=registration.truncates, go_on=go_on, say=say)

        refused |= side_by_side.make(copier, [table for table in pending if table not in refused], stop.wait)
    later = {each.oid for each in copies.requested(follower, here)} | {table.table_oid for table in refused}
    made = {oid: table for oid, table in tables.items() if oid not in later}
    if pending_statements.unfinished_tables(follower, here) - later:
        with plain_session(registration) as session, connect_source(config) as source:
            for table, error in pending_statements.finish(session, here, made).items():
                refused[table] = refusals.note_of(error, session, source, table.table_oid)
    for table, note in refused.items():
        say(table, note)
    if refused:
        copies.request(follower, here, [table.table_oid for table in refused], first=True)
    return refused


def _make_missing(
    config: Config, registration: RegisteredFollower, here: FollowerPosition, tables: Sequence[NamedTable]
) -> dict[NamedTable, TableNote]:
    """Create the tables that the follower lacks, unless `--schema exists`; returns those that failed, and why."""
    if registration.schema_mode != "create":
        return {}
    with connect_source(config) as source, plain_session(registration) as session:
        why = missing_tables.make(source, config.source_reading, session, here, tables)
        return {table: refusals.note_of(error, session, source, table.table_oid) for table, error in why.items()}


def make_renames(config: Config, found: Callable[[], RegisteredFollower]) -> TableRenames:
    """Return the object that renames the follower's tables. `found` returns the follower's current registration."""
    return TableRenames(config, found, lambda follower: table_names(follower, found()))


def connect_source(config: Config) -> Connection:
    """Return a session at the source that prints values as the log has them. Raises DatabaseUnavailableError."""
    return reading_session.connect(config, name="pipeline follower copy", settings=session_settings.COPY)


def source_tables(
    config: Config, log: Connection, registration: RegisteredFollower
) -> Callable[[Connection], SourceTables]:
    """Return a function that makes `SourceTables` over a connection to the source, with its current publications."""
    used = queries.one(log, _InUse, statement(_FOLDER, "publications"), {"source": registration.source_id})
    if used is None:
        raise FollowerError("the pipeline database no longer knows the source of this follower")
    publications, epoch = used.publications, used.epoch
    return lambda source: SourceTables(source, config.source_reading, publications, epoch)


def wanted_tables(
    log: Connection,
    follower: Connection,
    registration: RegisteredFollower,
    here: FollowerPosition,
    partition_changes: PartitionChanges,
) -> dict[int, TableToFollow]:
    """Return the tables to follow by oid, without those that will be copied again.

    A table has its `copy` until the position has passed the place of the copy. Without a later copy, it may lack rows
    up to `filled_upto`: the follower began from the log, and the server still reads the table's existing rows; or the
    server compares the table with the log after a gap; or a partition with rows joined the table.

    `here`: the position, read before this call; the applier must have its generation.
    """
    complete = dict[int, int | None]()
    if registration.copy_mode == "log":
        complete = dict(log.execute(_COMPLETE_SEQS, {"source": registration.source_id}))
    made, requested = copies.find(follower, here), {each.oid for each in copies.requested(follower, here)}
    outstanding = log_progress.outstanding(log, here, made)
    stored, compared = reached_versions.find(follower, here), epoch_gaps.find_comparisons(log, registration.source_id)
    joined = joined_partitions.find_joined(log, registration.source_id, here.seq, made)

    def filled_upto(oid: int) -> int:
        upto = (complete.get(oid, 0) or _NOT_YET) if registration.copy_mode == "log" and oid not in made else 0
        if oid in joined:
            upto = max(upto, joined[oid] or _NOT_YET)
        copy = made.get(oid)
        if oid in compared and (copy is None or copy.source_epoch < compared[oid].epoch):
            seq = compared[oid].right_from
            return max(upto, _NOT_YET if seq is None else seq)
        return upto

    def wanted(table: NamedTable) -> TableToFollow:
        oid = table.table_oid
        reached, filled = _later_version(stored.get(oid), made.get(oid)), filled_upto(oid)
        names = table.table_schema, table.table_name
        return TableToFollow(*names, filled, reached, outstanding.get(oid), partition_changes.joins_at(oid))

    return {oid: wanted(table) for oid, table in table_names(follower, registration).items() if oid not in requested}


def reached_version(follower: Connection, here: FollowerPosition, oid: int) -> ReachedVersion:
    """Return the version that a follower's table has reached, by its oid at the source."""
    return _later_version(reached_versions.find(follower, here).get(oid), copies.find(follower, here).get(oid))


def _later_version(stored: StoredVersion | None, copy: SnapshotCopy | None) -> ReachedVersion:
    if copy is not None and (stored is None or stored.place < copy.place):
        return ReachedVersion(copy.place, copy.columns, is_gone=copy.columns is None)
    return ReachedVersion(stored.place) if stored is not None else AS_OF_POSITION


def table_names(follower: Connection, registration: RegisteredFollower) -> dict[int, NamedTable]:
    """Return a follower's tables by oid, with their registered names or the names that a later schema change gave."""
    names = {
        each.table_oid: NamedTable(each.table_oid, each.table_schema, each.table_name)
        for each in registration.table_states
    }
    stored = reached_versions.find(follower, FollowerPosition(registration.source_id, registration.name))
    return names | {
        oid: NamedTable(oid, each.table_schema, each.table_name) for oid, each in stored.items() if oid in names
    }


def unsettled_tables(log: Connection, follower: Connection, registration: RegisteredFollower) -> dict[int, TableNote]:
    """Return tables by oid that still get rows, with the note for `show`.

    Such a table is compared with the log after a gap, or gets the rows of a partition that joined.
    """
    here = current_position(follower, registration)
    made = copies.find(follower, here)

    def settles(oid: int, each: LogComparison) -> bool:
        copy = made.get(oid)
        if copy is not None and copy.source_epoch >= each.epoch:
            return False
        return each.right_from is None or each.right_from > here.seq

    known = {table.table_oid for table in registration.table_states}
    compared = epoch_gaps.find_comparisons(log, registration.source_id)
    joined = joined_partitions.find_joined(log, registration.source_id, here.seq, made)
    reasons = dict.fromkeys(joined, _JOINED)
    reasons |= {oid: _COMPARED for oid, each in compared.items() if settles(oid, each)}
    return {oid: reason for oid, reason in reasons.items() if oid in known}


def next_gap(
    log: Connection, follower: Connection, registration: RegisteredFollower, wanted: Mapping[int, TableToFollow]
) -> EpochGap | None:
    """Return the gap before whose epoch the follower must stop, as far as the log is applied to these tables.

    A table that will be copied again lacks nothing. Raises DatabaseUnavailableError if the answer is not known yet.
    """
    here = current_position(follower, registration)
    names = {oid: f"{each.schema}.{each.name}" for oid, each in wanted.items()}
    return epoch_gaps.find_first(log, registration, names, here, copies.find(follower, here))


def request_unknown_copies(
    log: Connection, follower: Connection, registration: RegisteredFollower, here: FollowerPosition
) -> bool:
    """Request copies of tables whose deleted rows the log does not know; returns True if there are any.

    Raises ApplierOvertakenError.
    """
    made, requested = copies.find(follower, here), {each.oid for each in copies.requested(follower, here)}
    lacking = [oid for oid in epoch_gaps.find_unknown_deletes(log, registration, made) if oid not in requested]
    if lacking:
        copies.request(follower, here, lacking)
    return bool(lacking)


def skip_expired(log: Connection, follower: Connection, registration: RegisteredFollower, head: int) -> bool:
    """Move a follower to the seq `head` if the log has dropped or lost events that it needs; returns True if it moved.

    The follower moves only if all of its tables will be copied again, because their copies contain everything before.
    `head`: the end of the log at a moment; the follower knows all tables that were new by then.
    """
    with follower.transaction():
        here = position.require_existing(follower, registration.source_id, registration.name, held=True)
        requested = {each.oid for each in copies.requested(follower, here)}
        last = queries.one(log, EventCommit, statement(_FOLDER, "commit_of_seq"), {"seq": head})
        is_lost = lost_log.explain_loss(log, here) is not None
        if (
            (here.seq >= head and not is_lost)
            or last is None
            or last.committed_at is None
            or requested != table_names(follower, registration).keys()
        ):
            return False
        after = position.advance(here, last.source_epoch, head, last.commit_lsn, last.committed_at)
        position.move(follower, here, after)
    return True


def plain_session(registration: RegisteredFollower) -> Connection:
    """Return a session at the follower that creates tables; settings that their statements change end with it."""
    return connecting.connect(registration.name, registration.dsn, program="pipeline applier")


def applier_session(registration: RegisteredFollower, program: str = "pipeline applier") -> Connection:
    """Return a session at the follower that applies the log and copies rows."""
    return connecting.connect(registration.name, registration.dsn, program=program, settings=session_settings.FOLLOWER)


def current_position(follower: Connection, registration: RegisteredFollower) -> FollowerPosition:
    """Return the follower's position. Raises FollowerError if it has none."""
    return position.require_existing(follower, registration.source_id, registration.name)
