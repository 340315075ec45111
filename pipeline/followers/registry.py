"""The registry of followers: the rows of `pipeline.followers` and `pipeline.follower_tables`.

Commands store what a follower should be, and its applier how far it is. Both write these rows only through here.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal

import psycopg

from pipeline.errors import FollowerError, FollowerRefusedError
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

CopyMode = Literal["source", "log", "none"]
State = Literal["copying", "following", "waiting", "paused", "stopped"]
STATES: tuple[State, ...] = ("copying", "following", "waiting", "paused", "stopped")
NOT_STARTED = "no server has started this follower yet"
STARTS_SOON = "a running server starts it within seconds"
START_SERVER = "start `pipeline serve`"
NO_ACTION = "no action needed, the follower continues by itself"


@dataclass(frozen=True)
class FollowerOptions:
    """The options of `followers add`.

    `tables`: patterns; empty means all captured tables. `truncate`: empty the tables before they are copied.
    """

    tables: tuple[str, ...] = ()
    copy: CopyMode = "source"
    schema: Literal["create", "exists"] = "create"
    ddl: Literal["follow", "stop"] = "follow"
    on_rewrite: Literal["copy", "stop"] = "copy"
    truncate: bool = False


@dataclass(frozen=True)
class RegisteredPosition:
    """The position up to which the log is applied; LSN and time are of the last transaction, None before the first."""

    seq: int
    commit_lsn: int | None = None
    committed_at: datetime | None = None


@dataclass(frozen=True)
class DatabaseIdentity:
    """Identifies a follower's database.

    Copies of a cluster share both numbers: different numbers prove two databases, equal numbers do not prove one.
    """

    system_identifier: str
    database_oid: int
    database_name: str


@dataclass(frozen=True)
class NamedTable:
    """A table of the source. A partition counts as a part of its root table."""

    table_oid: int
    table_schema: str
    table_name: str


@dataclass(frozen=True)
class FollowerTable(NamedTable):
    """A row of `pipeline.follower_tables`. `reason`, `remedy`: why the table is in this state, and what to do."""

    state: str = "waiting"
    reason: str | None = None
    remedy: str | None = None

    @classmethod
    def of(cls, table: NamedTable, state: str, note: TableNote | None) -> FollowerTable:
        """Return the row of a table in this state, or in the state of the note if the note has one."""
        values = (note.state or state, note.reason, note.remedy) if note else (state,)
        return cls(table.table_oid, table.table_schema, table.table_name, *values)


@dataclass(frozen=True)
class TableNote:
    """The reason and remedy that `show` prints for a table that is followed or copied.

    `state`: the state that the reason puts the table into; None: its state does not change.
    """

    reason: str
    remedy: str = NO_ACTION
    state: Literal["stopped"] | None = None


@dataclass(frozen=True)
class RegisteredFollower:
    """A row of `pipeline.followers`, and how far the follower is behind the log.

    `wanted`: `running` or `paused`, as a user asked for. `state`, `reason`, `remedy` and the position are as its
    applier last reported them, at `reported_at`. `lag_seconds`: the age of the first event that is not applied, or 0.
    """

    id: int
    source_id: uuid.UUID
    name: str
    dsn: str
    tables: list[str]
    copy_mode: CopyMode
    schema_mode: str
    ddl: str
    on_rewrite: str
    truncates: bool
    system_identifier: str
    database_oid: int
    database_name: str
    wanted: str
    made_at: datetime
    made_seq: int
    seq: int
    commit_lsn: int | None
    committed_at: datetime | None
    state: str
    reason: str | None
    remedy: str | None
    reported_at: datetime | None
    lag_seqs: int
    lag_seconds: float
    passed_seqs: int = 0
    listed_tables: list[dict[str, Any]] = field(default_factory=list)

    @property
    def table_states(self) -> list[FollowerTable]:
        """The follower's tables, ordered by name."""
        return [FollowerTable(**each) for each in self.listed_tables]


@dataclass(frozen=True)
class ApplierReport:
    """An applier's report on its follower. `position`: None keeps the last position; a position never goes back."""

    state: State
    reason: str | None = None
    remedy: str | None = None
    position: RegisteredPosition | None = None


def find(connection: Connection, name: str | None = None) -> list[RegisteredFollower]:
    """Return all followers ordered by name, or only the follower with this name; empty if none exists."""
    return queries.rows(connection, RegisteredFollower, statement("followers", "find_followers"), {"name": name})


def list_names(connection: Connection) -> list[str]:
    """Return the names of all followers."""
    return [name for (name,) in connection.execute("select name from pipeline.followers order by name").fetchall()]


def exists(connection: Connection) -> bool:
    """Return True if the registry exists; an older revision of the pipeline database has none."""
    return connection.execute("select to_regclass('pipeline.followers') is not null").fetchall() == [(True,)]


def add(
    connection: Connection,
    source: uuid.UUID,
    name: str,
    dsn: str,
    options: FollowerOptions,
    database: DatabaseIdentity,
    begins: RegisteredPosition,
    tables: Iterable[NamedTable],
) -> None:
    """Store a new follower that begins after this position; from then on retention keeps the log for it.

    `dsn`: without secrets, as `connecting.parse_dsn` requires. Raises FollowerRefusedError if another command has just
    taken the name.
    """
    values = {
        **asdict(options),
        **vars(database),
        **vars(begins),
        "tables": list(options.tables),
        "source": source,
        "name": name,
        "dsn": dsn,
        "reason": NOT_STARTED,
        "remedy": STARTS_SOON,
    }
    try:
        with connection.transaction():
            made: int = queries.value(connection, statement("followers", "add_follower"), values)
            add_tables(connection, made, tables)
    except psycopg.errors.UniqueViolation as error:
        raise FollowerRefusedError(
            f'another command has just added a follower "{name}", or one with the same password variable; '
            "choose another name"
        ) from error


def add_tables(connection: Connection, follower: int, tables: Iterable[NamedTable]) -> None:
    """Give a follower more tables. Tables that it has already get their new names and stay as they are otherwise."""
    with connection.cursor() as cursor:
        listed = [{"follower": follower, **vars(each)} for each in tables]
        cursor.executemany(statement("followers", "add_table"), listed)


def forget_tables(connection: Connection, follower: int, oids: Sequence[int]) -> None:
    """Delete a follower's rows of these tables."""
    query = "delete from pipeline.follower_tables where follower_id = %s and table_oid = any(%s)"
    connection.execute(query, (follower, list(oids)))


def store_report(connection: Connection, follower: int, report: ApplierReport) -> bool:
    """Store an applier's report; returns False if the follower was removed. A position never goes back."""
    position = vars(report.position) if report.position else dict.fromkeys(("seq", "commit_lsn", "committed_at"))
    values = {"id": follower, "state": report.state, "reason": report.reason, "remedy": report.remedy, **position}
    return connection.execute(statement("followers", "report_follower"), values).rowcount == 1


def store_table_states(connection: Connection, follower: int, tables: Sequence[FollowerTable]) -> None:
    """Store the states of these tables; other tables keep theirs."""
    with connection.cursor() as cursor:
        cursor.executemany(
            statement("followers", "report_table"), [{"follower": follower, **vars(each)} for each in tables]
        )


def set_wanted(connection: Connection, name: str, wanted: Literal["running", "paused"]) -> None:
    """Ask a follower's applier to run or to pause. Raises FollowerError if that was asked for already."""
    query = "update pipeline.followers set wanted = %s where name = %s and wanted <> %s"
    if connection.execute(query, (wanted, name, wanted)).rowcount == 0:
        raise FollowerError(f'follower "{name}" is {"paused" if wanted == "paused" else "not paused"} already')


def remove(connection: Connection, name: str) -> None:
    """Delete a follower, so that retention no longer keeps the log for it. Its database does not change."""
    connection.execute("delete from pipeline.followers where name = %s", (name,))
