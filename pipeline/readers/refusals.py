"""One table of what an error means to a reader: the SQL functions' SQLSTATEs, our errors, HTTP status, close code."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import psycopg
from psycopg_pool import PoolTimeout, TooManyRequests

from pipeline.errors import (
    ConsumerError,
    CursorExpired,
    CursorHeld,
    PipelineError,
    StorageError,
    Unavailable,
    UnknownConsumer,
    WrongArgument,
    WrongKind,
)
from pipeline.postgres import connections
from pipeline.readers.cursor import frames

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Meaning:
    """`sqlstate`: by which the SQL functions say it. After close code RESTART the client connects again."""

    error: type[PipelineError]
    status: int
    close_code: int
    sqlstate: str | None = None


_TABLE = (
    Meaning(UnknownConsumer, 404, frames.UNKNOWN, "42704"),
    Meaning(WrongKind, 409, frames.POLICY, "42809"),
    Meaning(CursorHeld, 409, frames.HELD, "55006"),
    Meaning(CursorExpired, 410, frames.EXPIRED, "22003"),  # retention has dropped what comes next
    Meaning(ConsumerError, 409, frames.RESTART, "42710"),  # the name is taken
    Meaning(WrongArgument, 422, frames.RESTART, "22023"),
    Meaning(Unavailable, 503, frames.RESTART),
    Meaning(PipelineError, 500, frames.RESTART),
)
_LATER = ("08", "53", "57", "40", "55P03")
"""The beginnings of states that go away: no connection, no room, shutdown, deadlock, a lock that was not to be had."""
_NOT_MIGRATED = ("42P01", "42703", "42883", "3F000")


def meaning(error: PipelineError) -> Meaning:
    """How an error of ours is told over each transport."""
    return next(each for each in _TABLE if isinstance(error, each.error))


def refusal(error: psycopg.Error) -> PipelineError | None:
    """What an SQL function says, and what it advises, as our error; None when it is not a refusal of theirs."""
    kind = next((each.error for each in _TABLE if each.sqlstate and each.sqlstate == error.sqlstate), None)
    if kind is None:
        return None
    said, hint = connections.one_line(error), (error.diag.message_hint or "").strip().rstrip(".")
    return kind(f"{said}; {hint[0].lower()}{hint[1:]}" if hint else said)


def ours(error: Exception) -> PipelineError | None:
    """What a reader is told of any error while it is served; None of one that nobody expected."""
    if isinstance(error, PipelineError):
        return error
    if isinstance(error, PoolTimeout | TooManyRequests):
        return Unavailable("the pipeline database does not answer, or is busy; try again later")
    if isinstance(error, psycopg.Error):
        return refusal(error) or _of_database(error)
    return _later(error) if isinstance(error, OSError) else None


def _later(error: Exception) -> Unavailable:
    return Unavailable(f"the pipeline database does not do it now: {connections.one_line(error)}; try again later")


def _of_database(error: psycopg.Error) -> PipelineError:
    state = error.sqlstate or ""
    if state.startswith(_LATER) or isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return _later(error)
    if state in _NOT_MIGRATED:
        return Unavailable("the pipeline database is of another version; run `pipeline migrate`")
    if isinstance(error, psycopg.DataError):
        return WrongArgument("a value is not one that Postgres can take, such as a text with a zero byte")
    logger.error("%s", connections.one_line(error), extra={"action": "api.failed", "sqlstate": state})
    return StorageError("the pipeline database refused what the server asked; the server's log says why")


def of_command(error: BaseException) -> PipelineError | None:
    """What a command says when a database refuses a statement of its; None when the error is no driver's."""
    if not isinstance(error, psycopg.Error):
        return None
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        remedy = "connect as a user who may, or grant it"
    elif error.sqlstate in _NOT_MIGRATED:
        remedy = "its tables are of another version: run `pipeline migrate`, or the version that made them"
    else:
        remedy = "run `pipeline check` to see what is wrong"
    return PipelineError(f"a database refuses: {connections.one_line(error)}; {remedy}")
