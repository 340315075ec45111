"""What is asked of both databases to explain lag. The source first: what moves meanwhile is late for nobody."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

import psycopg
from psycopg.rows import class_row

from pipeline import db
from pipeline.config import Config
from pipeline.db import Connection, sql
from pipeline.errors import Unavailable
from pipeline.operations.export_status import Exports
from pipeline.operations.lag_times import Around
from pipeline.replication import sampling

T = TypeVar("T")


@dataclass(frozen=True)
class AtSource:
    """LSNs as integers, `read_at` by the source's clock; `sent` to `staged` are None where we may not see them.

    `sender`: pid of the walsender that reads the slot. `sampled`: somebody stores what the source writes when.
    """

    written: int
    read_at: datetime
    restart: int | None = None
    confirmed: int | None = None
    sender: int | None = None
    wait_event: str | None = None
    sent: int | None = None
    received: int | None = None
    staged: int | None = None
    spilled_bytes: int | None = None
    sampled: bool = False


@dataclass(frozen=True)
class Holder:
    """The oldest transaction at the source that has written; `prepared` is its name when it is a prepared one."""

    pid: int | None
    prepared: str | None
    application: str | None
    username: str | None
    database: str | None
    state: str | None
    began: datetime
    seconds: float


@dataclass(frozen=True)
class Moved:
    """Positions of the pipeline database; the shares (0 to 1) are of time in the seconds before `load_age`."""

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
class Session:
    """One that stages or shuffles (`worker`, `staging`, `shuffle`). `silent`: seconds without a word of its client."""

    name: str
    pid: int
    silent: float
    blocker: int | None
    blocked_by: str | None
    blocker_seconds: float | None


@dataclass(frozen=True)
class Reader:
    """A consumer, or the lake, that has something to take: its first event, and how many seqs there are from there."""

    name: str
    kind: str
    paused: bool
    unread: bool
    seqs: int
    commit_lsn: int | None
    committed_at: datetime
    epoch: int


@dataclass(frozen=True)
class Facts:
    """All of it. `around`: what is known of the time at which an LSN was written; `spilled`: bytes in a minute.

    `reasons`: why the roles do not run, as `status` says it.
    """

    at: AtSource
    moved: Moved
    holder: Holder | None = None
    sessions: Mapping[str, Session] = field(default_factory=dict)
    readers: list[Reader] = field(default_factory=list)
    around: Mapping[int, Around] = field(default_factory=dict)
    spilled: int = 0
    reasons: tuple[str, ...] = ()
    exports: Exports | None = None


def present(connection: Connection) -> bool:
    """Whether the pipeline database is of a version that keeps what is needed."""
    row = connection.execute("select to_regclass('pipeline.worker_load') is not null").fetchone()
    return bool(row and row[0])


def ask_source(config: Config, source_id: uuid.UUID) -> tuple[AtSource, Holder | None]:
    """Raises Unavailable."""
    values = {"slot": config.slot, "sampler": sampling.session_name(source_id)}
    with db.connect(config.source, "source", name="pipeline status") as source:
        try:
            holder = _rows(source, "lag_holder", Holder)
            at = _rows(source, "lag_source", AtSource, values)
        except psycopg.OperationalError as error:
            raise db.unavailable(config.source, "source", error) from error
    if not at:
        raise Unavailable("source: it does not say how far it has written")
    return at[0], holder[0] if holder else None


def moved(connection: Connection, source_id: uuid.UUID) -> Moved | None:
    """None before anything was staged."""
    found = _rows(connection, "lag_progress", Moved, {"source": source_id})
    return found[0] if found else None


def sessions(connection: Connection, source_id: uuid.UUID) -> dict[str, Session]:
    """By name; those that there are."""
    return {found.name: found for found in _rows(connection, "lag_sessions", Session, {"source": source_id})}


def readers(connection: Connection, directory: str, exported: int | None) -> list[Reader]:
    """Those that have something to take. `exported`: up to which seq the lake in `directory` is; None: leave it out."""
    return _rows(connection, "lag_consumers", Reader, {"directory": directory, "exported": exported})


def around(connection: Connection, of: Moved, lsns: Iterable[int]) -> dict[int, Around]:
    """What is known of the times at which these LSNs were written."""
    values = {"source": of.source_id, "epoch": of.epoch, "lsns": list(lsns)}
    return {found.asked: found for found in _rows(connection, "lag_written", Around, values)}


def spilled(connection: Connection, of: Moved, at: AtSource) -> int:
    """Bytes that decoding has spilled at the source in about the last minute."""
    values = {"source": of.source_id, "epoch": of.epoch, "read_at": at.read_at}
    row = connection.execute(sql("operations", "lag_spilled"), values).fetchone()
    before = row[0] if row else None
    return 0 if before is None else max(0, (at.spilled_bytes or 0) - before)


def _rows(connection: Connection, name: Any, of: type[T], values: Mapping[str, Any] | None = None) -> list[T]:
    with connection.cursor(row_factory=class_row(of)) as cursor:
        return cursor.execute(sql("operations", name), values).fetchall()
