"""Maps each error to its codes: SQLSTATE of the SQL functions, HTTP status, WebSocket close code, gRPC status.

This module also turns errors of a database into errors of the product.
"""

from __future__ import annotations

import logging
import traceback
from dataclasses import dataclass

import psycopg
from psycopg_pool import PoolTimeout, TooManyRequests

from pipeline import close_codes
from pipeline.errors import (
    BackfillError,
    ConditionRefusedError,
    ConsumerError,
    CursorExpiredError,
    CursorHeldError,
    DatabaseUnavailableError,
    FollowerError,
    PipelineError,
    StorageError,
    TableRefusedError,
    UnknownBackfillError,
    UnknownConsumerError,
    UnknownFollowerError,
    WrongArgumentError,
    WrongConsumerKindError,
)
from pipeline.postgres import connections

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ErrorCodes:
    """The codes of an error class.

    `close_code`: for WebSockets; after RESTART, clients reconnect. `grpc`: the name of a gRPC status; after
    UNAVAILABLE, clients call again. `sqlstate`: the code that SQL functions raise; None: they never raise this error.
    """

    error: type[PipelineError]
    status: int
    close_code: int
    grpc: str
    sqlstate: str | None = None


_TABLE = (
    ErrorCodes(UnknownConsumerError, 404, close_codes.UNKNOWN, "NOT_FOUND", "42704"),
    ErrorCodes(WrongConsumerKindError, 409, close_codes.POLICY, "FAILED_PRECONDITION", "42809"),
    ErrorCodes(CursorHeldError, 409, close_codes.HELD, "FAILED_PRECONDITION", "55006"),
    ErrorCodes(
        CursorExpiredError, 410, close_codes.EXPIRED, "OUT_OF_RANGE", "22003"
    ),  # retention has dropped the next events
    ErrorCodes(ConsumerError, 409, close_codes.RESTART, "UNAVAILABLE", "42710"),  # the name is taken
    ErrorCodes(WrongArgumentError, 422, close_codes.RESTART, "INVALID_ARGUMENT", "22023"),
    ErrorCodes(ConditionRefusedError, 422, close_codes.RESTART, "INVALID_ARGUMENT"),
    ErrorCodes(TableRefusedError, 422, close_codes.RESTART, "NOT_FOUND"),
    ErrorCodes(UnknownBackfillError, 404, close_codes.RESTART, "NOT_FOUND"),
    ErrorCodes(BackfillError, 409, close_codes.RESTART, "FAILED_PRECONDITION"),
    ErrorCodes(UnknownFollowerError, 404, close_codes.RESTART, "NOT_FOUND"),
    ErrorCodes(FollowerError, 409, close_codes.RESTART, "FAILED_PRECONDITION"),
    ErrorCodes(DatabaseUnavailableError, 503, close_codes.RESTART, "UNAVAILABLE"),
    ErrorCodes(PipelineError, 500, close_codes.RESTART, "INTERNAL"),
)
_TEMPORARY = ("08", "53", "57", "40", "55P03")
"""Prefixes of SQLSTATEs of temporary errors: no connection, no resources, shutdown, deadlock, lock not available."""
_REMEDIES = {
    "Create it": "create it: `pipeline consumers create`, or POST /v1/consumers",
    "Take another name, or drop it": (
        "take another name, or delete it: `pipeline consumers delete`, or DELETE /v1/consumers/NAME"
    ),
    "See all": "`pipeline consumers list`, or GET /v1/consumers, shows all",
}
"""Remedies for clients, by the beginning of the hint in SQL that sessions of Postgres get."""
_NOT_MIGRATED = ("42P01", "42703", "42883", "3F000")


def codes(error: PipelineError) -> ErrorCodes:
    """Return the codes by which each transport reports an error."""
    return next(each for each in _TABLE if isinstance(error, each.error))


def from_sqlstate(error: psycopg.Error) -> PipelineError | None:
    """Return the error that an SQL function of the log raised, with its hint; None if no such function raised it."""
    kind = next((each.error for each in _TABLE if each.sqlstate and each.sqlstate == error.sqlstate), None)
    if kind is None:
        return None
    text, hint = connections.one_line(error), (error.diag.message_hint or "").strip().rstrip(".")
    remedy = _REMEDIES.get(hint.partition(":")[0], f"{hint[:1].lower()}{hint[1:]}")
    return kind(f"{text}; {remedy}" if remedy else text)


def for_reader(error: Exception) -> PipelineError | None:
    """Return the product's error to report to a client whose request failed; None if the error is unexpected."""
    if isinstance(error, PipelineError):
        return error
    if isinstance(error, PoolTimeout | TooManyRequests):
        return DatabaseUnavailableError("the pipeline database does not answer or is busy; try again later")
    if isinstance(error, psycopg.Error):
        return from_sqlstate(error) or _from_database(error)
    return _temporary(error) if isinstance(error, OSError) else None


def log_unexpected(error: Exception, action: str) -> None:
    """Log where an unexpected error happened, without the error's text, which may hold values of rows."""
    frames = traceback.extract_tb(error.__traceback__)[-5:]
    where = " < ".join(f"{each.filename}:{each.lineno}" for each in reversed(frames))
    logger.error("unexpected %s", type(error).__name__, extra={"action": action, "where": where})


def _temporary(error: Exception) -> DatabaseUnavailableError:
    return DatabaseUnavailableError(
        f"the pipeline database cannot answer now: {connections.one_line(error)}; try again later"
    )


def _from_database(error: psycopg.Error) -> PipelineError:
    state = error.sqlstate or ""
    if state.startswith(_TEMPORARY) or connections.is_gone(error):
        return _temporary(error)
    if state in _NOT_MIGRATED:
        return DatabaseUnavailableError("the pipeline database has tables of another version; run `pipeline migrate`")
    if isinstance(error, psycopg.DataError):
        return WrongArgumentError("Postgres does not accept one of the values, for example a text with a zero byte")
    logger.error("%s", connections.one_line(error), extra={"action": "api.failed", "sqlstate": state})
    return StorageError("the pipeline database rejected the server's statement; the server's log says why")


def for_command(error: BaseException) -> PipelineError | None:
    """Return the error that a command reports if a database rejects a statement; None for an error of another kind."""
    if not isinstance(error, psycopg.Error):
        return None
    place: str = getattr(error, "place", "")
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        remedy = "connect as a user who has the privilege, or grant it"
    elif error.sqlstate in _NOT_MIGRATED and place in ("", "pipeline database"):
        remedy = "the tables belong to another version: run `pipeline migrate`, or use a newer server"
    else:
        remedy = "run `pipeline check` to see what is wrong"
    where = f"the {place}" if place else "a database"
    return PipelineError(f"{where} rejected a statement: {connections.one_line(error)}; {remedy}")
