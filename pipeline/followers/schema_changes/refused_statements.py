"""Runs statements that the follower may refuse; the error then tells its owner what to do."""

from __future__ import annotations

import psycopg
from psycopg import sql

from pipeline.errors import SchemaChangeError
from pipeline.followers.copying import refusals
from pipeline.postgres import connections
from pipeline.postgres.connections import Connection

_OWNED = ": let an administrator of the follower make its role the owner of what it alters"


def execute(follower: Connection, query: sql.SQL | sql.Composed, why: str) -> str:
    """Run a statement; returns it as text. `why`: for messages, what stops, and what happened at the source.

    Raises SchemaChangeError if the follower refuses the statement, and psycopg.Error if the connection is lost.
    """
    text = query.as_string(follower)
    try:
        follower.execute(query)
    except psycopg.Error as error:
        if connections.is_gone(error) or connections.is_ours(error):
            raise
        raise SchemaChangeError(
            f"{why}, and the follower refuses that: {refusals.server_message(error)}",
            f"see that `{text}` can be run there" + (_OWNED if error.sqlstate == "42501" else ""),
        ) from error
    return text
