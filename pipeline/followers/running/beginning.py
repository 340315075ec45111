"""How a follower begins: which tables it takes from the log, from where on, and what is copied before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from pipeline.config.settings import Config
from pipeline.errors import FollowerError
from pipeline.followers import connecting
from pipeline.followers.applying import position
from pipeline.followers.applying.copied import Copied
from pipeline.followers.applying.followed_tables import Wanted
from pipeline.followers.applying.passes import Gap
from pipeline.followers.applying.position import Position
from pipeline.followers.applying.table_versions import AS_OF_POSITION, Formed
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
from pipeline.followers.registry import Follower, Note, TableName
from pipeline.followers.running import epoch_gaps, joined_partitions, lost_log
from pipeline.followers.running.epoch_gaps import Compared
from pipeline.followers.schema_changes import reached_versions, rewritten_tables
from pipeline.followers.schema_changes.detected_partitions import PartitionChanges
from pipeline.followers.schema_changes.first_forms import FirstForms
from pipeline.followers.schema_changes.reached_versions import StoredForm
from pipeline.followers.schema_changes.renames import TableRenames
from pipeline.postgres import queries, reading_session, session_settings
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.process.signals import Stop

_NOT_YET = 2**63 - 1
_COMPARED = Note("is compared with the log after a gap, so some of its rows are as of another moment")
_JOINED = Note("gets the rows of a partition that was attached at the source")
_ROOM = "followers.running"
_COMPLETE_SEQS = """\
select table_oid::bigint, complete_seq from pipeline.snapshot_tables where source_id = %(source)s and captured
"""
"""From which seq on the log has the whole of each table; null where it does not yet. As it is stored: that a
partition came or left does not make a table incomplete for those that have it."""


@dataclass(frozen=True)
class Place:
    """Where an event is in the log."""

    source_epoch: int
    commit_lsn: int | None
    committed_at: datetime | None


def first_position(log: Connection, found: Follower) -> Position:
    """After the seq that is stored of it. Its transaction decides which form the tables have there."""
    place = queries.one(log, Place, statement(_ROOM, "place_of_seq"), {"seq": found.seq}) or Place(0, None, None)
    return Position(found.source_id, found.name, place.source_epoch, found.seq, place.commit_lsn, place.committed_at)


@dataclass(frozen=True)
class _InUse:
    """What of a source is in use."""

    epoch: int
    publications: list[str]


def begin(log: Connection, follower: Connection, found: Follower) -> None:
    """Let it begin; nothing where it has. Raises FollowerReleasedError."""
    begins = first_position(log, found)
    oids = [table.table_oid for table in found.table_states]
    position.reopen(follower, found.source_id, found.name, found.id)
    say_tables(follower, found)
    if found.copy == "source":
        copies.begin(follower, begins, found.id, oids)
    else:
        with follower.transaction():
            if position.begin(follower, begins):
                if found.copy == "log":
                    # Its tables have the form that they have by now, whatever they were when the log began.
                    reached_versions.begin(log, follower, begins, found.table_states)
                else:
                    reached_versions.begin_at_position(follower, begins, found.table_states)
    rewritten_tables.begin(log, follower, found, begins)


def say_tables(follower: Connection, found: Follower) -> None:
    """Say in the follower which tables it has of this source, so that no other source is made to feed them."""
    tables = list(called(follower, found).values())
    values = {
        "source": found.source_id,
        "follower": found.name,
        "oids": [each.table_oid for each in tables],
        "schemas": [each.table_schema for each in tables],
        "names": [each.table_name for each in tables],
    }
    follower.execute(statement(_ROOM, "store_tables"), values)


def copy(
    config: Config,
    log: Connection,
    follower: Connection,
    found: Follower,
    stop: Stop,
    go_on: Callable[[], bool],
    say: Callable[[TableName, Note | None], None],
) -> dict[TableName, Note]:
    """Copy the tables that are not copied yet; returns those that are refused, and why. Raises what stops it.

    A table that is refused is copied anew from then on, while the others follow the log. Raises CopyInterruptedError,
    too. `go_on` and `say` are called from several threads.
    """
    here, tables = current_position(follower, found), called(follower, found)
    refused = dict[TableName, Note]()
    if pending := table_copies.pending(follower, here, tables.values()):
        make_tables = source_tables(config, log, found)
        refused = _make_missing(config, found, here, pending)
        forms = FirstForms(log, found, renames(config, lambda: found), lambda: plain_session(found))

        @contextmanager
        def copier() -> Iterator[TableCopies]:
            with connect_source(config) as source, applier_session(found) as there:
                made = make_tables(source)
                yield TableCopies(made, there, here, forms, truncate=found.truncates, go_on=go_on, say=say)

        refused |= side_by_side.make(copier, [table for table in pending if table not in refused], stop.wait)
    anew = {each.oid for each in copies.requested(follower, here)} | {table.table_oid for table in refused}
    made = {oid: table for oid, table in tables.items() if oid not in anew}
    if pending_statements.unfinished_tables(follower, here) - anew:
        with plain_session(found) as session, connect_source(config) as source:
            for table, error in pending_statements.finish(session, here, made).items():
                refused[table] = refusals.note_of(error, session, source, table.table_oid)
    for table, note in refused.items():
        say(table, note)
    if refused:
        copies.request(follower, here, [table.table_oid for table in refused], first=True)
    return refused


def _make_missing(
    config: Config, found: Follower, here: Position, tables: Sequence[TableName]
) -> dict[TableName, Note]:
    """Make tables that the follower lacks, if it is to; returns those that are refused, and why."""
    if found.schema_mode != "create":
        return {}
    with connect_source(config) as source, plain_session(found) as session:
        why = missing_tables.make(source, config.source_reading, session, here, tables)
        return {table: refusals.note_of(error, session, source, table.table_oid) for table, error in why.items()}


def renames(config: Config, found: Callable[[], Follower]) -> TableRenames:
    """What gives the follower's tables their names. `found`: the follower as it is now."""
    return TableRenames(config, found, lambda follower: called(follower, found()))


def connect_source(config: Config) -> Connection:
    """A session that reads tables there, as the log has their values. Raises DatabaseUnavailableError."""
    return reading_session.connect(config, name="pipeline follower copy", settings=session_settings.COPY)


def source_tables(config: Config, log: Connection, found: Follower) -> Callable[[Connection], SourceTables]:
    """Makes the source's tables, over a connection to it, with what is in use of it now."""
    used = queries.one(log, _InUse, statement("followers.running", "publications"), {"source": found.source_id})
    if used is None:
        raise FollowerError("the source of this follower is not known any more")
    publications, epoch = used.publications, used.epoch
    return lambda source: SourceTables(source, config.source_reading, publications, epoch)


def wanted_tables(
    log: Connection, follower: Connection, found: Follower, here: Position, looked: PartitionChanges
) -> dict[int, Wanted]:
    """By oid, without those that are to be copied anew; `copied` is given with those whose copies the log is not past.

    Of a follower that began from the log, a table may lack rows until it has been read, and of any one after a gap,
    until it has been compared, or until the rows of a partition that joined are read; unless it was copied since.
    `here`: the position, read before this; who applies has to be of its generation.
    """
    complete = dict[int, int | None]()
    if found.copy == "log":
        complete = dict(log.execute(_COMPLETE_SEQS, {"source": found.source_id}))
    made, anew = copies.find(follower, here), {each.oid for each in copies.requested(follower, here)}
    copied = log_progress.outstanding(log, here, made)
    formed, compared = reached_versions.find(follower, here), epoch_gaps.compared(log, found.source_id)
    joined = joined_partitions.joined(log, found.source_id, here.seq, made)

    def filled_upto(oid: int) -> int:
        upto = (complete.get(oid, 0) or _NOT_YET) if found.copy == "log" and oid not in made else 0
        if oid in joined:
            upto = max(upto, joined[oid] or _NOT_YET)
        copy = made.get(oid)
        if oid in compared and (copy is None or copy.source_epoch < compared[oid].epoch):
            seq = compared[oid].right_from
            return max(upto, _NOT_YET if seq is None else seq)
        return upto

    def wanted(table: TableName) -> Wanted:
        oid = table.table_oid
        place, filled = _formed(formed.get(oid), made.get(oid)), filled_upto(oid)
        joins_at = looked.joins_at(oid)
        return Wanted(table.table_schema, table.table_name, filled, place, copied.get(oid), joins_at)

    return {oid: wanted(table) for oid, table in called(follower, found).items() if oid not in anew}


def formed(follower: Connection, here: Position, oid: int) -> Formed:
    """Which form the follower's table has, which is the source's with this oid."""
    return _formed(reached_versions.find(follower, here).get(oid), copies.find(follower, here).get(oid))


def _formed(stored: StoredForm | None, copy: Copied | None) -> Formed:
    place = Formed(stored.place) if stored is not None else AS_OF_POSITION
    if copy is not None and (place.place is None or place.place < copy.place):
        place = Formed(copy.place, copy.form, is_gone=copy.form is None)
    return place


def called(follower: Connection, found: Follower) -> dict[int, TableName]:
    """Its tables by oid: as they were called when they were registered, or since a schema change has reached them."""
    names = {
        each.table_oid: TableName(each.table_oid, each.table_schema, each.table_name) for each in found.table_states
    }
    formed = reached_versions.find(follower, Position(found.source_id, found.name))
    return names | {
        oid: TableName(oid, each.table_schema, each.table_name) for oid, each in formed.items() if oid in names
    }


def settling(log: Connection, follower: Connection, found: Follower) -> dict[int, Note]:
    """Return tables, by oid, whose comparison with the log after a gap the follower is not past, or that still get the
    rows of a partition that joined; with what to say of it.
    """
    here = current_position(follower, found)
    made = copies.find(follower, here)

    def settles(oid: int, each: Compared) -> bool:
        copy = made.get(oid)
        if copy is not None and copy.source_epoch >= each.epoch:
            return False
        return each.right_from is None or each.right_from > here.seq

    known = {table.table_oid for table in found.table_states}
    compared = epoch_gaps.compared(log, found.source_id)
    joined = joined_partitions.joined(log, found.source_id, here.seq, made)
    reasons = dict.fromkeys(joined, _JOINED)
    reasons |= {oid: _COMPARED for oid, each in compared.items() if settles(oid, each)}
    return {oid: reason for oid, reason in reasons.items() if oid in known}


def gap(log: Connection, follower: Connection, found: Follower, wanted: Mapping[int, Wanted]) -> Gap | None:
    """Before which epoch it has to stop, as the log is applied to these tables: one that is to be copied anew will lack
    nothing. Raises DatabaseUnavailableError where that is not known yet.
    """
    here = current_position(follower, found)
    names = {oid: f"{each.schema}.{each.name}" for oid, each in wanted.items()}
    return epoch_gaps.first(log, found, names, here, copies.find(follower, here))


def want_unknown(log: Connection, follower: Connection, found: Follower, here: Position) -> bool:
    """Let tables be copied anew of which the log cannot say any more what they have; whether there are any.

    Raises ApplierOvertakenError.
    """
    made, anew = copies.find(follower, here), {each.oid for each in copies.requested(follower, here)}
    lacking = [oid for oid in epoch_gaps.unknown(log, found, made) if oid not in anew]
    if lacking:
        copies.request(follower, here, lacking)
    return bool(lacking)


def skip_expired(log: Connection, follower: Connection, found: Follower, head: int) -> bool:
    """Let a follower go on from this seq, if the log no longer reaches back to it or lost what it has; whether it does.

    It may where all of its tables are to be copied anew: their copies lack nothing of before. `head`: an end of the log
    up to which it knows all tables that are new.
    """
    with follower.transaction():
        here = position.existing(follower, found.source_id, found.name, held=True)
        anew = {each.oid for each in copies.requested(follower, here)}
        place = queries.one(log, Place, statement(_ROOM, "place_of_seq"), {"seq": head})
        is_lost = lost_log.why(log, here) is not None
        if (
            (here.seq >= head and not is_lost)
            or place is None
            or place.committed_at is None
            or anew != called(follower, found).keys()
        ):
            return False
        after = position.advanced(here, place.source_epoch, head, place.commit_lsn, place.committed_at)
        position.move(follower, here, after)
    return True


def plain_session(found: Follower) -> Connection:
    """One in which tables are made: what their statements set ends with it."""
    return connecting.connect(found.name, found.dsn, program="pipeline applier")


def applier_session(found: Follower, program: str = "pipeline applier") -> Connection:
    """One in which the log is applied and rows are copied."""
    return connecting.connect(found.name, found.dsn, program=program, settings=session_settings.FOLLOWER)


def current_position(follower: Connection, found: Follower) -> Position:
    """Where it is. Raises FollowerError where it has no position."""
    return position.existing(follower, found.source_id, found.name)
