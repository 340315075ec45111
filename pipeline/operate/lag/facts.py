"""Facts that status and lag read from both databases.

The source is read first; `stages.positions` limits later positions to its end of WAL.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

import psycopg
from psycopg.rows import dict_row

from pipeline.capture.replication import lag_sampler, prepare
from pipeline.capture.source import publication_form, slot_mark, slots
from pipeline.capture.source.sources import ReplicationSource
from pipeline.config.settings import Config
from pipeline.exports.status import ExportStatus
from pipeline.followers.applier_session import ApplierActivity
from pipeline.followers.operating.status import FollowerStatus
from pipeline.log.readers import LaggingReader
from pipeline.operate.lag import slot_lag
from pipeline.operate.lag.lsn_times import NearestSamples
from pipeline.operate.lag.slot_lag import SlotLag
from pipeline.postgres import connections, queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.kept_connection import CheckConnections
from pipeline.postgres.queries import statement
from pipeline.wires.pgdeltastream import status
from pipeline.wires.pgdeltastream.sessions.store import StoredSession

T = TypeVar("T")
SOURCE_SECONDS = 2.0
"""Seconds that the source has to accept a connection, and then again to answer a query."""


@dataclass(frozen=True)
class AtSource:
    """The source's WAL and our walsender.

    LSNs are integers; those from `sent` to `staged` are None if this user may not see them.

    `read_at` is by the source's clock. `sender`: pid of the slot's walsender. `sampled`: True if a sampler runs, which
    stores LSNs with the time at which the source wrote them.
    """

    written: int
    read_at: datetime
    restart: int | None = None
    safe_bytes: int | None = None
    confirmed: int | None = None
    sender: int | None = None
    wait_event: str | None = None
    sent: int | None = None
    received: int | None = None
    staged: int | None = None
    spilled_bytes: int | None = None
    sampled: bool = False


@dataclass(frozen=True)
class OldestTransaction:
    """The oldest transaction at the source that has written; `prepared`: its name if it is prepared."""

    pid: int | None
    prepared: str | None
    application: str | None
    username: str | None
    database: str | None
    state: str | None
    began: datetime
    seconds: float


@dataclass(frozen=True)
class SourceReading:
    """The source at one moment. `not_captured`: tables that match but are not captured in full, and why.

    `narrowed`: how a publication that the server made differs from what the server would create.

    `marked`: the slot carries the mark of this pipeline database. `sessions`: clients' sessions, whose slots are not in
    `slots`.
    """

    at: AtSource
    holder: OldestTransaction | None
    slots: list[SlotLag]
    not_captured: dict[str, str]
    marked: bool = True
    sessions: status.SessionsAtSource | None = None
    narrowed: str | None = None
    version: str | None = None


@dataclass(frozen=True)
class StoredPositions:
    """Positions in the pipeline database, and the worker's load.

    `starved`, `blocked` and `sending` are shares of time (0 to 1), measured `load_age` seconds ago.
    """

    source_id: uuid.UUID
    epoch: int
    staged: int
    complete: int
    watermark: int
    moved: int | None = None
    starved: float | None = None
    blocked: float | None = None
    sending: float | None = None
    load_age: float | None = None


@dataclass(frozen=True)
class RoleSession:
    """A session that stages or shuffles (`worker`, `staging`, `shuffle`). `silent`: seconds since its client spoke."""

    name: str
    pid: int
    silent: float
    blocker: int | None
    blocked_by: str | None
    blocker_seconds: float | None


@dataclass(frozen=True)
class LagFacts:
    """All facts that explain the lag.

    `around`: the stored samples next to each LSN; `spilled`: bytes in the last minute.

    `reasons`: why the roles do not run, as in `status`; `starts`: a server is running and will hold the roles.
    `applier`: what the applier of the latest follower does, if nothing else explains why that follower is late.
    """

    at: AtSource
    moved: StoredPositions
    holder: OldestTransaction | None = None
    sessions: Mapping[str, RoleSession] = field(default_factory=dict)
    readers: list[LaggingReader] = field(default_factory=list)
    around: Mapping[int, NearestSamples] = field(default_factory=dict)
    spilled: int = 0
    reasons: tuple[str, ...] = ()
    starts: bool = False
    exports: ExportStatus | None = None
    followers: Sequence[FollowerStatus] = ()
    applier: ApplierActivity | None = None


def read_source(
    config: Config,
    connection: Connection,
    stored: ReplicationSource | None,
    known: Sequence[StoredSession],
    opened: CheckConnections,
) -> SourceReading:
    """Read the source as it is now, over one connection.

    Raises DatabaseUnavailableError, within twice SOURCE_SECONDS even if the source is frozen. `known`: sessions of
    clients, which are read too.
    """
    values: dict[str, Any] = {"slot": config.slot, "sampler": lag_sampler.session_name(stored.id) if stored else None}
    with opened.source(SOURCE_SECONDS) as source:
        try:
            made = stored.publications if stored else {}
            missing = prepare.publisher(config, source, connection).missing(made)
            narrowed = publication_form.find_difference(source, made)
            holder = queries.rows(source, OldestTransaction, statement("operate.lag", "lag_holder"))
            found = [slot for slot in slots.all_slots(source) if slot.database == source.info.dbname]
            marked = slot_mark.own_id(connection) in slot_mark.find_marks(source, config.slot)
            clients = status.read_source(source, known, found)
            anchor = next((slot for slot in found if slot.name == config.slot), None)
            values["sender"] = anchor.active_pid if anchor else None
            with source.cursor(row_factory=dict_row) as cursor:  # read after the slots, so that no slot is beyond it
                row = cursor.execute(statement("operate.lag", "lag_source"), values).fetchone() or {}
            version = connections.server_version(source)
        except psycopg.OperationalError as error:
            raise connections.unavailable(config.source, "source", error) from error
    if anchor is not None:
        row |= {"restart": anchor.restart_lsn, "safe_bytes": anchor.safe_bytes, "confirmed": anchor.confirmed_lsn}
    at = AtSource(**row, sender=values["sender"])
    ours = slot_lag.measure_lags(found, config.slot, at.written)
    return SourceReading(at, holder[0] if holder else None, ours, missing, marked, clients, narrowed, version)


def sessions(connection: Connection, source_id: uuid.UUID) -> dict[str, RoleSession]:
    """The existing sessions that stage or shuffle, by name."""
    return {
        found.name: found
        for found in queries.rows(
            connection, RoleSession, statement("operate.lag", "lag_sessions"), {"source": source_id}
        )
    }


def around(connection: Connection, of: StoredPositions, lsns: Iterable[int]) -> dict[int, NearestSamples]:
    """The samples next to each of these LSNs, by LSN."""
    values = {"source": of.source_id, "epoch": of.epoch, "lsns": list(lsns)}
    return {
        found.asked: found
        for found in queries.rows(connection, NearestSamples, statement("operate.lag", "lag_written"), values)
    }


def spilled(connection: Connection, of: StoredPositions, at: AtSource) -> int:
    """Bytes that decoding has spilled at the source in about the last minute."""
    values = {"source": of.source_id, "epoch": of.epoch, "read_at": at.read_at}
    before = queries.value(connection, statement("operate.lag", "lag_spilled"), values)
    return 0 if before is None else max(0, (at.spilled_bytes or 0) - before)
