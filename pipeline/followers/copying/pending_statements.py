"""What is still to be made of tables that we have made: keys, indexes and checks, each by itself, after their rows.

The statements are stored in the follower, so that a crash forgets none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import psycopg

from pipeline.errors import FollowerError
from pipeline.followers.applying.position import Position
from pipeline.followers.copying import checks, refusals
from pipeline.followers.registry import TableName
from pipeline.postgres import connections
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_ROOM = "followers.copying"
_TAKE_UNMADE = """\
delete from pipeline_follower.unmade
where source_database_id = %(source)s and follower = %(follower)s and table_oid = %(oid)s and place = %(place)s
"""
"""A statement is run in this transaction; no row if another session has run it."""


def store(follower: Connection, here: Position, oid: int, statements: Iterable[str]) -> None:
    """Let these be run once the rows of this table are there, in this order."""
    with follower.cursor() as cursor:
        listed = [{**vars(here), "oid": oid, "statement": each} for each in statements]
        cursor.executemany(statement(_ROOM, "store_unmade"), listed)


def unfinished_tables(follower: Connection, here: Position) -> set[int]:
    """Tables, by their oids at the source, that lack something; 0 if it is not known which (of an older version)."""
    found = follower.execute(statement(_ROOM, "find_unmade"), {**vars(here), "oids": None}).fetchall()
    return {oid for oid, _, _ in found} | checks.unfinished_tables(follower, here)


def finish(follower: Connection, here: Position, tables: Mapping[int, TableName]) -> dict[TableName, FollowerError]:
    """Make what is left of these tables, by their oids at the source; returns those that are refused, and why.

    `follower`: a session of its own, which is changed. Each statement is run in a transaction of its own, and what
    comes after one that is refused waits for that; checks are validated last. Raises what ends the connection, and
    FollowerError if statements of an older version are refused, of which it is not known which table they are of.
    """
    refused = dict[TableName, FollowerError]()
    values = {**vars(here), "oids": list(tables)}
    found = follower.execute(statement(_ROOM, "find_unmade"), values).fetchall()
    for oid, place, text in found:
        table = tables.get(oid)
        if table is not None and table in refused:
            continue
        try:
            with follower.transaction():
                if follower.execute(_TAKE_UNMADE, {**values, "oid": oid, "place": place}).rowcount:
                    follower.execute(text.encode())
        except psycopg.Error as error:
            if connections.is_gone(error) or connections.is_ours(error):
                raise
            made = refusals.creation_error(table, error, "keys, indexes and checks of ")
            if table is None:
                raise made from error
            refused[table] = made
    return refused | checks.validate(follower, here, {oid: each for oid, each in tables.items() if each not in refused})
