"""The status of everything: positions, lag, counts, rates, roles, and what is not captured. Reads, never writes."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any

from psycopg.rows import dict_row

from pipeline.capture.catchup import plan_reader
from pipeline.capture.catchup.plan import BacklogPart
from pipeline.capture.schema_history import rewrites
from pipeline.capture.schema_history.rewrites import RewrittenTable
from pipeline.capture.source import blocked_transactions, captured_tables, sources
from pipeline.capture.source.captured_tables import CaptureGap
from pipeline.capture.source.failover import FailoverReport
from pipeline.capture.source.timeline import ADOPT
from pipeline.config.settings import Config
from pipeline.consumers import status as consumer_status
from pipeline.consumers.status import ConsumerStatus
from pipeline.errors import PipelineError
from pipeline.exports import status as export_status
from pipeline.exports.status import ExportStatus
from pipeline.followers.operating import status as followers
from pipeline.followers.operating.status import FollowerStatus
from pipeline.log import dead_letters, latency, tables
from pipeline.log.latency import CommitLatency
from pipeline.log.table import EventsTable
from pipeline.log.tables import KnownTable
from pipeline.operate import adoption, retention, ways
from pipeline.operate.adoption import BacklogAdoption
from pipeline.operate.lag import facts, stages
from pipeline.operate.lag.facts import SourceReading, StoredPositions
from pipeline.operate.lag.model import LagLimit, LagReport, is_late
from pipeline.operate.lag.slot_lag import SlotLag
from pipeline.operate.retention import RetentionStatus
from pipeline.operate.verify import verifications
from pipeline.operate.verify.verifications import StoredVerification
from pipeline.operate.ways import WayCount
from pipeline.postgres import connections, migrations, role_locks
from pipeline.postgres.connections import Connection
from pipeline.postgres.kept_connection import CheckConnections
from pipeline.postgres.queries import statement
from pipeline.snapshots import snapshot_status
from pipeline.snapshots.snapshot_status import SnapshotStatus
from pipeline.terminal.json_values import as_json
from pipeline.version import installed_version
from pipeline.wal import lsn
from pipeline.wires.pgdeltastream import status
from pipeline.wires.pgdeltastream.sessions import store as session_store
from pipeline.wires.pgdeltastream.status import SessionsReport
from pipeline.wires.walstream import status as walstream_status
from pipeline.wires.walstream.status import WalstreamStatus

IDLE_BYTES = 1_000_000
"""The server counts as caught up if the source is at most this many bytes ahead and no staged change waits."""


@dataclass(frozen=True)
class PipelineProgress:
    """The counters of the pipeline database. LSNs are integers, None before the first start.

    `complete_at`: when the source, by its clock, was last seen to have written no more than the log has.
    """

    staged_lsn: lsn.Shown | None = None
    open_lsn: lsn.Shown | None = None
    open_changes: int = 0
    staged_changes: int = 0
    staged_transactions: int = 0
    shuffled_lsn: lsn.Shown | None = None
    shuffled_at: datetime | None = None
    unshuffled: bool = False
    complete_at: datetime | None = None
    last_seq: int | None = None
    events: int = 0
    changes_per_second: float | None = None
    events_per_second: float | None = None
    read_at: datetime | None = None


@dataclass(frozen=True)
class PipelineStatus:
    """The whole status. `reasons`: why the server is not replicating; empty if it is. `lag_seconds` 0: caught up.

    `warnings`: one line for each user that reads tables of other roles and is or can become a superuser, and for each
    table whose reading failed because the reading role lacks rights. `version`: of this program; the other two: of
    Postgres in both databases.

    Text, JSON, metrics and exit status all say `replicating`.
    """

    source_id: str | None = None
    database: str | None = None
    slot: str | None = None
    revision: str | None = None
    source_lsn: lsn.Shown | None = None
    confirmed_lsn: lsn.Shown | None = None
    retained_bytes: int | None = None
    safe_wal_bytes: int | None = None
    lag_bytes: int | None = None
    lag_seconds: float | None = None
    progress: PipelineProgress = field(default_factory=PipelineProgress)
    roles: list[role_locks.RoleState] = field(default_factory=list)
    failed_schedules: dict[str, str] = field(default_factory=dict)
    not_captured: dict[str, str] = field(default_factory=dict)
    rewritten: list[RewrittenTable] = field(default_factory=list)
    gaps: list[CaptureGap] = field(default_factory=list)
    events_tables: list[KnownTable] = field(default_factory=list)
    commit_to_inserted: CommitLatency | None = None
    exports: ExportStatus | None = None
    retention: RetentionStatus | None = None
    consumers: list[ConsumerStatus] = field(default_factory=list)
    followers: list[FollowerStatus] = field(default_factory=list)
    dead_letters: dict[str, int] = field(default_factory=dict)
    ways: list[WayCount] = field(default_factory=list)
    adoption: BacklogAdoption | None = None
    slots: list[SlotLag] = field(default_factory=list)
    slot_marked: bool | None = None
    failover: FailoverReport | None = None
    catchup: list[BacklogPart] = field(default_factory=list)
    snapshots: SnapshotStatus | None = None
    sessions: SessionsReport | None = None
    walstream: WalstreamStatus | None = None
    verification: StoredVerification | None = None
    lag: LagReport | None = None
    warnings: list[str] = field(default_factory=list)
    version: str = field(default_factory=installed_version)
    source_version: str | None = None
    pipeline_version: str | None = None
    reasons: list[str] = field(default_factory=list)

    @property
    def replicating(self) -> bool:
        """True if changes arrive in the log; else `reasons` says why not."""
        return not self.reasons

    def to_json(self) -> dict[str, Any]:
        """Return the status for `--json`, with the counters on the same level as the rest."""
        values: dict[str, Any] = {"replicating": self.replicating} | as_json(self) | as_json(self.progress)
        return {name: value for name, value in values.items() if name not in ("progress", "read_at")}


def collect(config: Config, patience: float = 60.0, opened: CheckConnections | None = None) -> PipelineStatus:
    """Read the status now.

    Raises DatabaseUnavailableError only for the pipeline database; an unavailable source is listed in `reasons`.
    `patience`: seconds that the pipeline database has to answer, once it has accepted the connection. Without `opened`,
    connections are opened for this reading.
    """
    opened = opened or CheckConnections.once(config, "pipeline status")
    with opened.pipeline(patience) as connection:
        now, reading, moved = _read(config, connection, opened)
        if not now.revision:
            return now
        found = replace(
            now,
            events_tables=tables.known(connection),
            commit_to_inserted=latency.measure_newest(connection, EventsTable.parse(config.events_table)),
            exports=_exports(config, connection, now),
            retention=retention.read(config, connection),
            consumers=consumer_status.find_consumers(connection),
            followers=followers.list_followers(connection),
            dead_letters=dead_letters.counts(connection),
            walstream=walstream_status.read(config, connection),
        )
        if stored := sources.find(connection, config.source_id):
            found = replace(
                found,
                snapshots=snapshot_status.read(connection, stored),
                ways=ways.counts(connection, stored.id),
                adoption=adoption.read(connection, stored.id),
                verification=verifications.last(connection, stored),
            )
        return _explained(config, connection, found, reading, moved)


def _exports(config: Config, connection: Connection, now: PipelineStatus) -> ExportStatus:
    """The status of exports; without a next run if no server runs their schedule."""
    found = export_status.read(config, connection)
    scheduled = any(role.role == "schedule" and role.held for role in now.roles)
    return found if scheduled else replace(found, next_run=None)


def _explained(
    config: Config,
    connection: Connection,
    now: PipelineStatus,
    reading: SourceReading | PipelineError,
    moved: StoredPositions | None,
) -> PipelineStatus:
    """The status with its lag by stage and its causes; `lag_seconds` is the lag of the last stage, if known."""
    if now.source_id is None:
        return now
    if isinstance(reading, PipelineError):
        return replace(now, lag=LagReport([LagLimit("source", str(reading))]))
    lag = stages.measure(config, connection, reading, moved, now.reasons, now.exports)
    shuffled = lag.stage("shuffled")
    late = shuffled.behind_seconds if shuffled else None
    # 0 stays 0: a server counts as caught up although a few changes are still on their way.
    seconds = late if late is not None and (now.lag_seconds or is_late(late)) else now.lag_seconds
    return replace(now, lag=lag, lag_seconds=seconds)


def read(config: Config, connection: Connection) -> PipelineStatus:
    """Read the positions, roles and lag over a connection to the pipeline database; reads the source too."""
    return _read(config, connection, CheckConnections.once(config, "pipeline status"))[0]


def _read(
    config: Config, connection: Connection, opened: CheckConnections
) -> tuple[PipelineStatus, SourceReading | PipelineError, StoredPositions | None]:
    """The status; the state of the source, or the error why it does not answer; and the positions of our database."""
    revision = migrations.current_revision(connection)
    if revision is None:
        starts = role_locks.server_starts(connection, "replication")
        remedy = "a server has just started and will migrate it" if starts else "start `pipeline serve`"
        problem = PipelineError(f"the pipeline database was never migrated; {remedy}")
        return PipelineStatus(reasons=[str(problem)]), problem, None
    stored = sources.find(connection, config.source_id)
    known = session_store.recent(connection)
    reading: SourceReading | PipelineError
    try:
        reading = facts.read_source(config, connection, stored, known, opened)
    except PipelineError as error:
        reading = error
    held = list(role_locks.states(connection).values())
    progress, moved = _progress(connection, stored.id) if stored else (PipelineProgress(), None)
    now = PipelineStatus(
        source_id=str(stored.id) if stored else None,
        database=stored.database_name if stored else None,
        slot=config.slot,
        revision=revision,
        pipeline_version=connections.server_version(connection),
        progress=progress,
        roles=held,
        failed_schedules=role_locks.failed_schedules(held),
        rewritten=rewrites.read_unsettled(connection),
        gaps=captured_tables.read_gaps(connection, stored.id) if stored else [],
        catchup=plan_reader.read_plan(connection, stored.id) if stored else [],
        sessions=status.report(
            config, known, reading.sessions if isinstance(reading, SourceReading) else None, datetime.now(UTC)
        ),
        reasons=why_not(config, connection, held),
    )
    return _with_source(now, reading, moved), reading, moved


def _with_source(
    now: PipelineStatus, reading: SourceReading | PipelineError, moved: StoredPositions | None
) -> PipelineStatus:
    """The status with the source's report and the lag behind it; or with the reason why the source does not answer."""
    running = not role_reasons(now.roles)
    if isinstance(reading, PipelineError):
        seconds = _lag_seconds(now.progress, None, running=running)
        return replace(now, lag_seconds=seconds, reasons=[*now.reasons, str(reading)])
    at = reading.at
    lag = max(0, at.written - stages.positions(at, moved)["shuffled"]) if moved else None
    return replace(
        now,
        source_lsn=at.written,
        confirmed_lsn=at.confirmed,
        retained_bytes=None if at.restart is None else at.written - at.restart,
        safe_wal_bytes=at.safe_bytes,
        not_captured=reading.not_captured,
        slots=reading.slots,
        slot_marked=reading.marked,
        source_version=reading.version,
        lag_bytes=lag,
        lag_seconds=_lag_seconds(now.progress, lag, running=running),
        reasons=[*now.reasons, *([f"replication: {reading.narrowed}; {ADOPT}"] if reading.narrowed else [])],
    )


def why_not(config: Config, connection: Connection, held: Sequence[role_locks.RoleState]) -> list[str]:
    """The reasons why nothing is replicated: a transaction that the source cannot send, and roles that do not run."""
    stored = sources.find(connection, config.source_id)
    stop = blocked_transactions.current(connection, stored.id) if stored else None
    reasons = role_reasons(held)
    if stop:  # more exact than the role's reason, except for a server that has ended
        ended = [reason for reason in reasons if reason == "replication is not running"]
        reasons = [f"replication: {stop}", *ended, *role_reasons(held, ("shuffle",))]
    return [f"replication: {stored.unmatched}", *reasons] if stored and stored.unmatched else reasons


def role_reasons(held: Sequence[role_locks.RoleState], needed: Sequence[str] = ("replication", "shuffle")) -> list[str]:
    """The reasons why roles that move data do not run, as text."""
    by_name = {role.role: role for role in held}
    reasons = []
    for name in needed:
        role = by_name.get(name)
        if role is not None and role.held and role.state == "running":
            continue
        if role is None:
            reasons.append(f"{name} has never run")
        elif role.reason and (role.held or role.state == "failed"):
            reasons.append(f"{name}: {role.reason}")
        else:
            reasons.append(f"{name} is {role.state if role.held else 'not running'}")
    return reasons


def _progress(connection: Connection, source_id: uuid.UUID) -> tuple[PipelineProgress, StoredPositions | None]:
    """Read progress and positions in one statement.

    While a backlog is read in parts, no change is missing before the staged position.
    """
    with connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(statement("operate", "progress"), {"source": source_id}).fetchone()
    if row is None:
        return PipelineProgress(), None
    shown, moved = (
        {each.name: row[each.name] for each in fields(kind)} for kind in (PipelineProgress, StoredPositions)
    )
    return PipelineProgress(**shown), StoredPositions(**moved)


def _lag_seconds(progress: PipelineProgress, lag: int | None, *, running: bool) -> float | None:
    """Return 0 if caught up; else the seconds since the log is known to have had everything.

    That is when the newest event was committed, or when the source last had written no more than the log has.
    """
    if running and not progress.unshuffled and lag is not None and lag < IDLE_BYTES:
        return 0.0
    known = [at for at in (progress.shuffled_at, progress.complete_at) if at is not None]
    if not known or progress.read_at is None:
        return None
    return max(0.0, round((progress.read_at - max(known)).total_seconds(), 3))
