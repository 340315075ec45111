"""Frees names of indexes and sequences that a new table needs, and that another table of the follower still uses.

At the source, the other table's indexes and sequences were renamed or dropped, which no event tells.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from psycopg import sql

from pipeline.followers.applying.position import FollowerPosition
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

logger = logging.getLogger(__name__)

_LONGEST_NAME = 63


def free(follower: Connection, here: FollowerPosition, names: Collection[tuple[str, str]]) -> None:
    """Rename indexes and sequences that have one of these names, each with its schema, in the open transaction.

    Only those that belong to a table that follows the log are renamed. The new name is the old one with the table's oid
    at the source.
    """
    values = {**vars(here), "schemas": [schema for schema, _ in names], "names": [name for _, name in names]}
    found = follower.execute(statement("followers.copying", "taken_names"), values).fetchall()
    for schema, name, kind, oid in found:
        other = displaced_name(name, oid)
        query = sql.SQL("alter {} {} rename to {}")
        follower.execute(query.format(sql.SQL(kind), sql.Identifier(schema, name), sql.Identifier(other)))
        text = "%s: %s %s.%s was renamed to %s, because a new table needs its name"
        logger.info(text, here.follower, kind, schema, name, other, extra={"action": "follower.altered"})


def displaced_name(name: str, oid: int) -> str:
    """Return the new name of an object whose name another one needs. `oid`: of its table at the source."""
    ending = f"_{oid}"
    return name.encode()[: _LONGEST_NAME - len(ending)].decode(errors="ignore") + ending
