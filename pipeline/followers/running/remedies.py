"""What stopped a follower, in a line with its remedy."""

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
from pipeline.followers.applying.position import Position
from pipeline.followers.copying.refusals import AGAIN
from pipeline.followers.registry import Follower, Note, Report, TableName
from pipeline.postgres import connections

_AWAY_SECONDS = 5.0
"""Before it is tried again while a database is away, which may be back at any moment."""


def report_of(found: Follower, error: Exception) -> Report:
    """Waiting where it goes on once something is there again, else stopped until somebody has done something."""
    match error:
        case RowDiffersError() | NotFollowableError():
            return Report("stopped", str(error), _without(found, error))
        case CursorExpiredError():
            return Report("stopped", str(error), f"copy all of them anew: {_resync(found, '*')}")
        case StatementRefusedError():
            where = f"at the {error.place}" if error.place else "at the database that refused it"
            return Report("stopped", str(error), f"correct that {where}; {AGAIN}")
        case TableLockedError():
            return Report("waiting", str(error), f"{AGAIN} all the while{_ending(error)}")
        case FollowerError() if not isinstance(error, ApplierOvertakenError):
            return Report("stopped", str(error), _of_follower(found, error))
        case psycopg.Error():
            known = connecting.unavailable(found.name, found.dsn, error)
            return Report("waiting", str(known), AGAIN)
    return Report("waiting", connections.one_line(error), AGAIN)


def is_away(said: Report) -> bool:
    """True if a database does not answer, and nobody has to do anything but wait for it."""
    return said.state == "waiting" and said.remedy == AGAIN


def timed(said: Report, seconds: float) -> Report:
    """The report with the time at which an attempt follows, if it says only that one does."""
    if not is_away(said):
        return said
    at = datetime.now(UTC) + timedelta(seconds=seconds)
    return replace(said, remedy=f"{AGAIN} at {at:%H:%M:%S} UTC")


def pause(delay: float, said: Report) -> float:
    """Seconds until it is tried again: `delay`; for a database that is away 1, then 2, then 5 each time."""
    if not is_away(said):
        return delay
    return 2 * delay if delay <= 1 else _AWAY_SECONDS


def progress(
    here: Position, follows: bool, copied: bool, anew: Sequence[TableName], refused: Mapping[TableName, Note]
) -> Report:
    """Return what there is to say while nothing stops it.

    `follows`: some tables follow the log, and some of these were `copied` after it. While tables are copied `anew`, the
    follower has not everything up to its position. `refused`: why some of these cannot be copied.
    """
    if not anew:
        reached = registry.Position(here.seq, here.commit_lsn, here.committed_at)
        return Report("copying" if copied else "following", position=reached)
    stopped = [(table, note) for table in anew if (note := refused.get(table))]
    if not stopped:
        return Report("copying")
    table, note = stopped[0]
    more = f" (and {len(stopped) - 1} more)" if len(stopped) > 1 else ""
    name = f"{table.table_schema}.{table.table_name}"
    reason = note.reason + more if name in note.reason else f"table {name} {note.reason}{more}"
    return Report("copying" if follows or len(stopped) < len(anew) else "stopped", reason, note.remedy)


def _of_follower(found: Follower, error: FollowerError) -> str:
    if isinstance(error, FollowerReleasedError):
        return f"if `pipeline followers release {found.name}` was cut off, run it once more"
    return f"{error.remedy}; {AGAIN}" if isinstance(error, SchemaChangeError) else AGAIN


def _without(found: Follower, error: RowDiffersError | NotFollowableError) -> str:
    """How it goes on without what the log says, or does not say, of a table, or of all."""
    if isinstance(error, RowDiffersError):
        return _resync(found, error.table)
    if error.remedy is not None:
        return error.remedy
    skip = f"`pipeline followers skip-transaction {found.name} {error.seq}`"
    return f"{_resync(found, error.table or '*')}, or do without that transaction: {skip}"


def _resync(found: Follower, table: str) -> str:
    return f"`pipeline followers resync {found.name} {shlex.quote(table)}`"


def _ending(error: TableLockedError) -> str:
    return "" if error.pid is None else f", or end that session there: select pg_terminate_backend({error.pid})"
