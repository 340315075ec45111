"""Retention: which events may be dropped, which readers still need them, and the only code that drops them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import psycopg

from pipeline.config.settings import Config
from pipeline.errors import ConfigError, RetentionBusyError
from pipeline.exports import lakes, status
from pipeline.log import tables
from pipeline.log.partitions import EventsPartition
from pipeline.log.readers import LAKE, LaggingReader, ReaderRegistry
from pipeline.log.retention import delete_rows, drop_partition, policy, preserve_values
from pipeline.log.retention.policy import DropRecord
from pipeline.log.table import EventsTable
from pipeline.postgres import connections, queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_NOBODY = 2**63 - 1
_LOCK = 1_817_104_724
MOMENTS = 2.0
"""Seconds that a drop may take before a session is reported to delay it."""
_LOG_SIZE = """\
select coalesce(sum(pg_total_relation_size(t.relid)), pg_total_relation_size(%(table)s::regclass))::bigint
from pg_partition_tree(%(table)s::regclass) t
"""
"""Bytes that an events table takes on disk, with its indexes."""


@dataclass(frozen=True)
class EventHolder:
    """A holder of events that are old enough to drop: a consumer, a lake that lacks them, or a session that reads them.

    `position`: the holder no longer needs events up to this seq; None for a session.
    """

    kind: str
    name: str
    position: int | None
    remedy: str

    def __str__(self) -> str:
        at = "" if self.position is None else f" is at {self.position}"
        name = self.name if self.kind == "session" else f'{self.kind} "{self.name}"'
        return f"{name}{at}; {self.remedy}"


@dataclass(frozen=True)
class RetentionStatus:
    """The status of retention. `keep`: the setting. `first_seq`, `oldest_at`: seq and time of the table's first event.

    `droppable`: whole partitions that would be dropped now; `trim_from`: the seq from which on rows would be deleted.
    `due`: when the next events become old enough. `held_by`: the holders of events that already are.
    """

    keep: str
    events_table: str
    dropped_below: int = 1
    dropped_at: datetime | None = None
    first_seq: int | None = None
    oldest_at: datetime | None = None
    bytes: int = 0
    droppable: list[str] = field(default_factory=list)
    trim_from: int | None = None
    due: datetime | None = None
    held_by: list[EventHolder] = field(default_factory=list)
    beside: list[RetentionStatus] = field(default_factory=list)
    """The status of each other table; only set in the status of the default table."""


@dataclass(frozen=True)
class RetentionOutcome:
    """The numbers of partitions and of single rows that one run dropped.

    `below`: the default table's events with a smaller seq are dropped. `waiting`: a session holds up a drop.
    """

    partitions: int = 0
    rows: int = 0
    below: int = 1
    waiting: bool = False


def read(config: Config, connection: Connection) -> RetentionStatus | None:
    """Read the status; None if retention is off and has never dropped an event."""
    table = EventsTable.parse(config.events_table)
    known = policy.dropped(connection, table)
    keep = config.retention_seconds
    if keep is None:
        return RetentionStatus(config.retention, str(table), known.below, known.at) if known.at else None
    try:
        others = [_read(config, connection, each, keep) for each in _written(config, connection)[1:]]
        return replace(_read(config, connection, table, keep), beside=others)
    except psycopg.errors.UndefinedTable:  # not created yet, or just dropped: the next call sees it
        return None


def run(config: Config, stopped: Callable[[], bool]) -> RetentionOutcome:
    """Drop the events that may be dropped.

    Raises RetentionBusyError if another session is dropping events, ConfigError if PIPELINE_RETENTION is none.
    """
    keep = config.retention_seconds
    if keep is None:
        raise ConfigError("PIPELINE_RETENTION is none: nothing is ever dropped; set it, for instance to 7d")
    with connections.connect(config.database, "pipeline database", name="pipeline retention") as connection:
        found = [_run(config, connection, table, keep, stopped) for table in _written(config, connection)]
    return RetentionOutcome(
        partitions=sum(each.partitions for each in found),
        rows=sum(each.rows for each in found),
        below=found[0].below,
        waiting=any(each.waiting for each in found),
    )


def lacking(connection: Connection, config: Config, directory: str) -> LaggingReader | None:
    """Return the lake in this folder as a reader that lags; None if it lacks no events, or does not exist."""
    lagging = ReaderRegistry(connection, EventsTable.parse(config.events_table)).lagging()
    return next((each for each in lagging if (each.kind, each.name) == (LAKE, directory)), None)


def release_lake(connection: Connection, directory: str) -> None:
    """Make retention stop waiting for exports to this folder. Raises ConfigError for an unknown folder."""
    if connection.execute(statement("operate", "release_lake"), {"directory": directory}).fetchone() is None:
        raise ConfigError(
            f"no lake in {directory} prevents the drop of events; `pipeline retention --dry-run` shows which readers do"
        )


def _written(config: Config, connection: Connection) -> list[EventsTable]:
    """The default table, then all other tables that events were ever written to."""
    return tables.with_known(connection, [config.events_table])


def _run(
    config: Config, connection: Connection, table: EventsTable, keep: float, stopped: Callable[[], bool]
) -> RetentionOutcome:
    with _alone(connection, table):
        return _drop(config, connection, table, keep, stopped)


def _drop(
    config: Config, connection: Connection, table: EventsTable, keep: float, stopped: Callable[[], bool]
) -> RetentionOutcome:
    before = policy.dropped(connection, table)
    gone = 0
    if before.dropping is not None:
        if not drop_partition.finish(connection, table):
            return RetentionOutcome(below=before.below, waiting=True)
        gone += 1
    plan = policy.plan(connection, table, keep, _needed_after(config, connection, table))
    for partition in plan.drops:
        if not preserve_values.preserve(connection, table, partition, stopped):
            break
        if stopped() or not _record(config, connection, table, partition):
            break
        if not drop_partition.finish(connection, table):
            return RetentionOutcome(gone, 0, partition.upper, waiting=True)
        gone += 1
    rows = delete_rows.delete(connection, table, plan.deletion, keep, stopped) if plan.deletion else 0
    return RetentionOutcome(gone, rows, policy.dropped(connection, table).below)


def _record(config: Config, connection: Connection, table: EventsTable, partition: EventsPartition) -> bool:
    """Record that the partition is being dropped; return False if a new reader needs it."""
    before = policy.dropped(connection, table)
    policy.record(connection, table, partition.upper, partition)
    if partition.upper - 1 <= _needed_after(config, connection, table):
        return True
    policy.undo_record(connection, table, before)
    return False


@contextmanager
def _alone(connection: Connection, table: EventsTable) -> Iterator[None]:
    """Lock the table against other retention runs, at the latest until the connection ends."""
    values = (_LOCK, str(table))
    if not (queries.value(connection, "select pg_try_advisory_lock(%s, hashtext(%s))", values)):
        raise RetentionBusyError("retention is already running; try again when it has ended")
    yield
    connection.execute("select pg_advisory_unlock(%s, hashtext(%s))", values)


def _read(config: Config, connection: Connection, table: EventsTable, keep: float) -> RetentionStatus:
    holders = _holders(config, connection, table)
    plan = policy.plan(connection, table, keep, _lowest(holders))
    known = policy.dropped(connection, table)
    size = connection.execute(_LOG_SIZE, {"table": table.identifier.as_string(connection)}).fetchone()
    held = [each for each in holders if each.position is not None and each.position < plan.aged_upto]
    return RetentionStatus(
        keep=config.retention,
        events_table=str(table),
        dropped_below=known.below,
        dropped_at=known.at,
        first_seq=plan.oldest.seq if plan.oldest else None,
        oldest_at=plan.oldest.at if plan.oldest else None,
        bytes=size[0] if size else 0,
        droppable=[str(each) for each in plan.drops],
        trim_from=plan.oldest.seq if plan.deletion and plan.oldest else None,
        due=plan.due,
        held_by=_readers(connection, table, known) + held,
    )


def _needed_after(config: Config, connection: Connection, table: EventsTable) -> int:
    return _lowest(_holders(config, connection, table))


def _lowest(holders: Sequence[EventHolder]) -> int:
    return min((each.position for each in holders if each.position is not None), default=_NOBODY)


def _holders(config: Config, connection: Connection, table: EventsTable) -> list[EventHolder]:
    """Every reader with a position in the table, the lowest first; also the lake that the first export will create."""
    readers = ReaderRegistry(connection, table)
    found = [EventHolder(each.kind, each.name, each.needs_after, each.remedy) for each in readers.needing()]
    lake = str(lakes.folder(config, str(table)))
    exported = status.why_off(config) is None
    if exported and (LAKE, lake) not in readers.known():
        upto = policy.dropped(connection, table).below - 1
        found.append(
            EventHolder(
                LAKE,
                lake,
                upto,
                "it waits for the first export: see `pipeline export list`, or set PIPELINE_EXPORT_SCHEDULE=off",
            )
        )
    return sorted(found, key=lambda each: (each.position or 0, each.kind, each.name))


def _readers(connection: Connection, table: EventsTable, known: DropRecord) -> list[EventHolder]:
    """The session that reads a partition being dropped, once the drop has waited for more than MOMENTS."""
    if known.since is None or datetime.now(UTC) - known.since < timedelta(seconds=MOMENTS):
        return []
    session = drop_partition.blocking_session(connection, table)
    if session is None:
        unseen = "a session that this user may not see (grant it pg_read_all_stats) reads"
        return [EventHolder("session", unseen, None, "the drop continues when that transaction ends")]
    since = f" has been reading since {session.since:%Y-%m-%d %H:%M:%S}" if session.since else " reads"
    return [EventHolder("session", f"{session}{since}", None, "the drop continues when its transaction ends")]
