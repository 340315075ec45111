"""Shows and changes followers, for the terminal and over HTTP."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime

from pipeline.config.settings import describe
from pipeline.errors import UnknownFollowerError
from pipeline.followers import registry
from pipeline.followers.registry import START_SERVER, RegisteredFollower
from pipeline.postgres import role_locks
from pipeline.postgres.connections import Connection
from pipeline.wal import lsn

ROLE = "followers"
"""The role of a server that applies the log to followers."""
NO_SERVER = "no server runs that could apply the log to this follower"
STARTING = "a server has just started, and does not apply the log to it yet"


@dataclass(frozen=True)
class FollowerTableStatus:
    """A table of a follower: `schema.table`, its state, the reason and the remedy."""

    table: str
    state: str
    reason: str | None
    remedy: str | None


@dataclass(frozen=True)
class FollowerStatus:
    """The status of a follower. `seq`: everything up to it is applied; LSN and time are of the last transaction.

    `lag_seqs`: the number of events that are not applied; `lag_seconds`: the age of the first of them, or 0.
    `database`: its address, without any secret. `patterns`: of its tables; empty means all captured tables.
    """

    name: str
    state: str
    reason: str | None
    remedy: str | None
    seq: int
    commit_lsn: lsn.Shown | None
    committed_at: datetime | None
    lag_seqs: int
    lag_seconds: float
    tables: list[FollowerTableStatus]
    database: str
    patterns: list[str]
    copy: str
    schema: str
    ddl: str
    on_rewrite: str
    truncate: bool
    made_at: datetime
    made_seq: int
    reported_at: datetime | None

    @property
    def JSON(self) -> list[str]:
        """The names of the printed fields."""
        return [*(each.name for each in fields(self)), "lacks"]

    @property
    def not_followed(self) -> list[FollowerTableStatus]:
        """The tables that the follower does not follow: they wait, are copied, or are stopped."""
        return [table for table in self.tables if table.state != "following"]

    @property
    def lacks(self) -> str | None:
        """One line with the reason why the follower does not follow all of its tables; None if it does.

        A paused follower follows what it followed before: its seq says what it has.
        """
        for table in self.not_followed:
            reason, remedy = table.reason or self.reason, table.remedy or self.remedy
            return join_reason(f"table {table.table} is {table.state}", reason, remedy)
        return (
            None
            if self.state in ("following", "paused")
            else join_reason(f"it is {self.state}", self.reason, self.remedy)
        )


def join_reason(what: str, reason: str | None, remedy: str | None) -> str:
    """Return one line with the problem, its reason, and the remedy."""
    return what + (f": {reason}" if reason else "") + (f"; {remedy}" if remedy else "")


def follower_status(each: RegisteredFollower, *, served: bool, starts: bool = False) -> FollowerStatus:
    """Return the status of a follower. `served`: a server applies the log; `starts`: a server has just started."""
    state, reason, remedy = _state(each, served, starts)
    tables = [
        FollowerTableStatus(f"{table.table_schema}.{table.table_name}", table.state, table.reason, table.remedy)
        for table in each.table_states
    ]
    return FollowerStatus(
        name=each.name,
        state=state,
        reason=reason,
        remedy=remedy,
        seq=each.seq,
        commit_lsn=each.commit_lsn,
        committed_at=each.committed_at,
        lag_seqs=each.lag_seqs,
        lag_seconds=round(each.lag_seconds, 3),
        tables=tables,
        database=describe(each.dsn),
        patterns=each.tables,
        copy=each.copy_mode,
        schema=each.schema_mode,
        ddl=each.ddl,
        on_rewrite=each.on_rewrite,
        truncate=each.truncates,
        made_at=each.made_at,
        made_seq=each.made_seq,
        reported_at=each.reported_at,
    )


def _state(each: RegisteredFollower, served: bool, starts: bool) -> tuple[str, str | None, str | None]:
    """Return state, reason and remedy: a user's request comes first, because a stopped applier reports nothing."""
    if each.wanted == "paused":
        return "paused", "a user has paused it", f"`pipeline followers resume {each.name}`"
    if not served and each.state != "stopped":
        return ("waiting", STARTING, None) if starts else ("waiting", NO_SERVER, START_SERVER)
    if each.state == "paused":
        return "waiting", "the follower was resumed, and its server has not started it yet", None
    return each.state, each.reason, each.remedy


def list_followers(pipeline: Connection) -> list[FollowerStatus]:
    """Return the status of all followers, ordered by name."""
    return _shown(pipeline, registry.find(pipeline))


def show(pipeline: Connection, name: str) -> FollowerStatus:
    """Return the status of one follower. Raises UnknownFollowerError."""
    found = _shown(pipeline, registry.find(pipeline, name))
    if not found:
        raise UnknownFollowerError(
            f'there is no follower "{name[:200]}"; `pipeline followers list` and GET /v1/followers show all'
        )
    return found[0]


def pause(pipeline: Connection, name: str) -> FollowerStatus:
    """Pause a follower, for which the log is kept. Raises UnknownFollowerError, FollowerError."""
    with pipeline.transaction():
        show(pipeline, name)
        registry.set_wanted(pipeline, name, "paused")
        return show(pipeline, name)


def resume(pipeline: Connection, name: str) -> FollowerStatus:
    """Resume a follower at its position. Raises UnknownFollowerError, FollowerError."""
    with pipeline.transaction():
        show(pipeline, name)
        registry.set_wanted(pipeline, name, "running")
        return show(pipeline, name)


def remove(pipeline: Connection, name: str) -> FollowerStatus:
    """Remove a follower, and return its last status. Its database keeps its rows and its position."""
    with pipeline.transaction():
        found = show(pipeline, name)
        registry.remove(pipeline, name)
    return found


def is_served(pipeline: Connection) -> bool:
    """Return True if a server runs that applies the log to followers."""
    role = role_locks.states(pipeline).get(ROLE)
    return role is not None and role.held


def _shown(pipeline: Connection, found: list[RegisteredFollower]) -> list[FollowerStatus]:
    served = bool(found) and is_served(pipeline)
    starts = bool(found) and not served and role_locks.server_starts(pipeline, ROLE)
    return [follower_status(each, served=served, starts=starts) for each in found]
