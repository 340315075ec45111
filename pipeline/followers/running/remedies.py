"""Turns the error that stopped a follower into its report: one line with the reason and the remedy."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import psycopg

from pipeline.errors import (
    ApplierOvertakenError,
    CursorExpiredError,
    FollowerError,
    FollowerReleasedError,
    NotFollowableError,
    RowDiffersError,
    SchemaChangeError,
    StatementRefusedError,
    TableLockedError,
)
from pipeline.followers import connecting, registry
from pipeline.followers.applying.position import FollowerPosition
from pipeline.followers.copying.refusals import AGAIN
from pipeline.followers.registry import ApplierReport, NamedTable, RegisteredFollower, TableNote
from pipeline.postgres import connections

_AWAY_SECONDS = 5.0
"""Seconds between two attempts while a database does not answer, which may be back at any moment."""


def report_of(registration: RegisteredFollower, error: Exception) -> ApplierReport:
    """Return a `waiting` report if the follower can continue by itself later, else a `stopped` one for a user."""
    match error:
        case RowDiffersError() | NotFollowableError():
            return ApplierReport("stopped", str(error), _bypass(registration, error))
        case CursorExpiredError():
            return ApplierReport("stopped", str(error), f"copy all tables again: {_resync(registration, '*')}")
        case StatementRefusedError():
            where = f"at the {error.database}" if error.database else "at the database that refused it"
            return ApplierReport("stopped", str(error), f"correct that {where}; {AGAIN}")
        case TableLockedError():
            return ApplierReport("waiting", str(error), f"{AGAIN} all the while{_kill_hint(error)}")
        case FollowerError() if not isinstance(error, ApplierOvertakenError):
            return ApplierReport("stopped", str(error), _of_follower(registration, error))
        case psycopg.Error():
            known = connecting.unavailable(registration.name, registration.dsn, error)
            return ApplierReport("waiting", str(known), AGAIN)
    return ApplierReport("waiting", connections.one_line(error), AGAIN)


def is_away(report: ApplierReport) -> bool:
    """Return True if the follower only waits for a database that does not answer."""
    return report.state == "waiting" and report.remedy == AGAIN


def with_retry_time(report: ApplierReport, seconds: float) -> ApplierReport:
    """Add the time of the next attempt to a report that only waits for a database."""
    if not is_away(report):
        return report
    at = datetime.now(UTC) + timedelta(seconds=seconds)
    return replace(report, remedy=f"{AGAIN} at {at:%H:%M:%S} UTC")


def retry_pause(delay: float, report: ApplierReport) -> float:
    """Return the seconds until the next attempt: `delay`, or 1, 2, then always 5 if a database does not answer."""
    if not is_away(report):
        return delay
    return 2 * delay if delay <= 1 else _AWAY_SECONDS


def progress_report(
    here: FollowerPosition,
    follows: bool,
    copying: bool,
    recopied: Sequence[NamedTable],
    refused: Mapping[NamedTable, TableNote],
) -> ApplierReport:
    """Return the report of a follower that no error stops.

    `follows`: some tables follow the log. `copying`: some of these still get rows, or were copied after the position.
    `recopied`: tables that are copied again, so the follower lacks changes up to its position. `refused`: why some
    of these cannot be copied.
    """
    if not recopied:
        reached = registry.RegisteredPosition(here.seq, here.commit_lsn, here.committed_at)
        return ApplierReport("copying" if copying else "following", position=reached)
    stopped = [(table, note) for table in recopied if (note := refused.get(table))]
    if not stopped:
        return ApplierReport("copying")
    table, note = stopped[0]
    more = f" (and {len(stopped) - 1} more)" if len(stopped) > 1 else ""
    name = f"{table.table_schema}.{table.table_name}"
    reason = note.reason + more if name in note.reason else f"table {name} {note.reason}{more}"
    return ApplierReport("copying" if follows or len(stopped) < len(recopied) else "stopped", reason, note.remedy)


def _of_follower(registration: RegisteredFollower, error: FollowerError) -> str:
    if isinstance(error, FollowerReleasedError):
        return f"if `pipeline followers release {registration.name}` was cut off, run it again"
    return f"{error.remedy}; {AGAIN}" if isinstance(error, SchemaChangeError) else AGAIN


def _bypass(registration: RegisteredFollower, error: RowDiffersError | NotFollowableError) -> str:
    """Return the command that lets the follower continue without these changes of a table, or of all tables."""
    if isinstance(error, RowDiffersError):
        return _resync(registration, error.table)
    if error.remedy is not None:
        return error.remedy
    skip = f"`pipeline followers skip-transaction {registration.name} {error.seq}`"
    return f"{_resync(registration, error.table or '*')}, or skip that transaction: {skip}"


def _resync(registration: RegisteredFollower, table: str) -> str:
    return f"`pipeline followers resync {registration.name} {shlex.quote(table)}`"


def _kill_hint(error: TableLockedError) -> str:
    return "" if error.pid is None else f", or end that session there: select pg_terminate_backend({error.pid})"
