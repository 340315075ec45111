"""What stopped a follower, in a line with its remedy."""

from __future__ import annotations

import psycopg

from pipeline.errors import (
    CursorExpired,
    Differs,
    FollowerError,
    Locked,
    NotFollowable,
    Overtaken,
    Refused,
    Released,
)
from pipeline.followers import connecting
from pipeline.followers.registry import Follower, Report
from pipeline.postgres import connections

_AGAIN = "it is tried again by itself"


def report_of(found: Follower, error: Exception) -> Report:
    """Waiting where it goes on once something is there again, else stopped until somebody has done something."""
    match error:
        case Differs() | NotFollowable() | CursorExpired():
            return Report("stopped", str(error), getattr(error, "remedy", None) or _anew(found))
        case Refused():
            return Report("stopped", str(error), f"mend that in the follower; {_AGAIN}")
        case Locked():
            return Report("waiting", str(error), f"{_AGAIN} all the while{_ending(error)}")
        case Released():
            remedy = f"if `pipeline followers release {found.name}` was cut off, run it once more"
            return Report("stopped", str(error), remedy)
        case FollowerError() if not isinstance(error, Overtaken):
            return Report("stopped", str(error), _AGAIN)
        case psycopg.Error():
            known = connecting.unavailable(found.name, found.dsn, error)
            return Report("waiting", str(known), _AGAIN)
    return Report("waiting", connections.one_line(error), _AGAIN)


def _ending(error: Locked) -> str:
    return "" if error.pid is None else f", or end that session there: select pg_terminate_backend({error.pid})"


def _anew(found: Follower) -> str:
    copy = "log" if found.copy == "log" else "source"
    return f"remove it, and add it again with --copy {copy} --truncate: `pipeline followers remove {found.name}`"
