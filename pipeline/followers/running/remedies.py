"""What stopped a follower, in a line with its remedy."""

from __future__ import annotations

import psycopg

from pipeline.errors import (
    CursorExpired,
    Differs,
    FollowerError,
    NotFollowable,
    Overtaken,
    PipelineError,
    Refused,
    SchemaStopped,
)
from pipeline.followers import connecting
from pipeline.followers.registry import Follower, Report
from pipeline.postgres import connections

_AGAIN = "it is tried again by itself"


def report_of(found: Follower, error: Exception) -> Report:
    """Waiting where it goes on once something is there again, else stopped until somebody has done something."""
    match error:
        case SchemaStopped():
            return Report("stopped", str(error), f"{error.remedy}; {_AGAIN}")
        case Differs() | NotFollowable() | CursorExpired():
            return Report("stopped", str(error), _anew(found))
        case Refused():
            return Report("stopped", str(error), f"mend that in the follower; {_AGAIN}")
        case Overtaken():
            return Report("waiting", str(error), _AGAIN)
        case FollowerError():
            return Report("stopped", str(error), _AGAIN)
        case psycopg.Error():
            known = connecting.unavailable(found.name, found.dsn, error)
            return Report("waiting", str(known), _AGAIN)
        case PipelineError():
            return Report("waiting", str(error), _AGAIN)
    return Report("waiting", connections.one_line(error), _AGAIN)


def _anew(found: Follower) -> str:
    copy = "log" if found.copy == "log" else "source"
    return f"remove it, and add it again with --copy {copy} --truncate: `pipeline followers remove {found.name}`"
