"""The registry of followers: the rows of `pipeline.followers` and `pipeline.follower_tables`.

Who adds one says what it is to be; its applier says how far it is. Both only through here.
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

Copy = Literal["source", "log", "none"]
State = Literal["copying", "following", "waiting", "paused", "stopped"]
STATES: tuple[State, ...] = ("copying", "following", "waiting", "paused", "stopped")
NOT_TAKEN_UP = "no server has taken it up yet"
TAKES_UP = "the running server does so within seconds"
START_SERVER = "start `pipeline serve`"


ITSELF = "it goes on by itself"


@dataclass(frozen=True)
class Options:
    """What a follower is to be. `tables`: patterns; empty means all that are captured. `truncate`: before a copy."""

    tables: tuple[str, ...] = ()
    copy: Copy = "source"
    schema: Literal["create", "exists"] = "create"
    ddl: Literal["follow", "stop"] = "follow"
    on_rewrite: Literal["copy", "stop"] = "copy"
    truncate: bool = False


@dataclass(frozen=True)
class Position:
    """Up to where the log is applied; LSN and time are of the last transaction, None before the first."""

    seq: int
    commit_lsn: int | None = None
    committed_at: datetime | None = None


@dataclass(frozen=True)
class Database:
    """Which database it is. Copies of a cluster share both numbers, so they prove only that two are not one."""

    system_identifier: str
    database_oid: int
    database_name: str


@dataclass(frozen=True)
class TableName:
    """A table of the source, of partitions the root."""

    table_oid: int
    table_schema: str
    table_name: str


@dataclass(frozen=True)
class FollowerTable(TableName):
    """A row of `pipeline.follower_tables`. `reason`, `remedy`: why it is in this state, and what to do."""

    state: str = "waiting"
    reason: str | None = None
    remedy: str | None = None

    @classmethod
    def of(cls, table: TableName, state: str, note: Note | None) -> FollowerTable:
        """The row of a table in this state, unless the note says another."""
        said = (note.state or state, note.reason, note.remedy) if note else (state,)
        return cls(table.table_oid, table.table_schema, table.table_name, *said)


@dataclass(frozen=True)
class Note:
    """What `show` says of a table that is followed or copied. `remedy`: what somebody may do.

    `state`: the one that it is in for this reason; None: any.
    """

    reason: str
    remedy: str = ITSELF
    state: Literal["stopped"] | None = None


@dataclass(frozen=True)
class Follower:
    """A row of `pipeline.followers`, and how far the log is beyond it. `wanted`: running or paused.

    `state`, `reason`, `remedy` and the position are as its applier last reported, at `reported_at`. `lag_seconds`: the
    age of the first event that it has not applied; 0 where it has all.
    """

    id: int
    source_id: uuid.UUID
    name: str
    dsn: str
    tables: list[str]
    copy: Copy
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
        """Its tables by name."""
        return [FollowerTable(**each) for each in self.listed_tables]


@dataclass(frozen=True)
class Report:
    """What an applier says of its follower. `position`: None leaves the last one, which must never go back."""

    state: State
    reason: str | None = None
    remedy: str | None = None
    position: Position | None = None


def find(connection: Connection, name: str | None = None) -> list[Follower]:
    """All of them by name, or the named one; empty when there is none."""
    return queries.rows(connection, Follower, statement("followers", "find_followers"), {"name": name})


def names(connection: Connection) -> list[str]:
    """The names that are taken."""
    return [name for (name,) in connection.execute("select name from pipeline.followers order by name").fetchall()]


def is_there(connection: Connection) -> bool:
    """Whether there is a registry: an older revision of the pipeline database has none."""
    return connection.execute("select to_regclass('pipeline.followers') is not null").fetchall() == [(True,)]


def add(
    connection: Connection,
    source: uuid.UUID,
    name: str,
    dsn: str,
    options: Options,
    database: Database,
    begins: Position,
    tables: Iterable[TableName],
) -> None:
    """Store a new follower, which begins after this position; retention waits for it from then on.

    `dsn`: as `connecting.parts` takes it. Raises FollowerRefusedError when somebody has taken the name meanwhile.
    """
    values = {
        **asdict(options),
        **vars(database),
        **vars(begins),
        "tables": list(options.tables),
        "source": source,
        "name": name,
        "dsn": dsn,
        "reason": NOT_TAKEN_UP,
        "remedy": TAKES_UP,
    }
    try:
        with connection.transaction():
            made: int = queries.value(connection, statement("followers", "add_follower"), values)
            add_tables(connection, made, tables)
    except psycopg.errors.UniqueViolation as error:
        raise FollowerRefusedError(
            f'somebody has just added a follower "{name}", or one with its password variable; choose another name'
        ) from error


def add_tables(connection: Connection, follower: int, tables: Iterable[TableName]) -> None:
    """Tables that it is to have, too; those that it has already stay as they are, but for their names."""
    with connection.cursor() as cursor:
        listed = [{"follower": follower, **vars(each)} for each in tables]
        cursor.executemany(statement("followers", "add_table"), listed)


def forget_tables(connection: Connection, follower: int, oids: Sequence[int]) -> None:
    """Tables that it has no longer."""
    query = "delete from pipeline.follower_tables where follower_id = %s and table_oid = any(%s)"
    connection.execute(query, (follower, list(oids)))


def report(connection: Connection, follower: int, said: Report) -> bool:
    """Store what its applier says; False when it was removed. A position never goes back."""
    position = vars(said.position) if said.position else dict.fromkeys(("seq", "commit_lsn", "committed_at"))
    values = {"id": follower, "state": said.state, "reason": said.reason, "remedy": said.remedy, **position}
    return connection.execute(statement("followers", "report_follower"), values).rowcount == 1


def report_tables(connection: Connection, follower: int, said: Sequence[FollowerTable]) -> None:
    """Store the states of these tables; others stay as they are."""
    with connection.cursor() as cursor:
        cursor.executemany(
            statement("followers", "report_table"), [{"follower": follower, **vars(each)} for each in said]
        )


def want(connection: Connection, name: str, wanted: Literal["running", "paused"]) -> None:
    """Let its applier run or pause. Raises FollowerError where it was asked for that already."""
    query = "update pipeline.followers set wanted = %s where name = %s and wanted <> %s"
    if connection.execute(query, (wanted, name, wanted)).rowcount == 0:
        raise FollowerError(f'follower "{name}" is {"paused" if wanted == "paused" else "not paused"} already')


def remove(connection: Connection, name: str) -> None:
    """Forget it; retention no longer waits for it. Nothing in its database is changed."""
    connection.execute("delete from pipeline.followers where name = %s", (name,))
