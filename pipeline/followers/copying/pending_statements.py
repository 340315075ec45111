"""Creates the keys, indexes and checks of tables that the server has created, after their rows are copied.

Their statements are stored in the follower until they have run, so that a crash loses none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import psycopg

from pipeline.errors import FollowerError
from pipeline.followers.applying.position import FollowerPosition
from pipeline.followers.copying import checks, refusals
from pipeline.followers.registry import NamedTable
from pipeline.postgres import connections
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_ROOM = "followers.copying"
_CLAIM_STATEMENT = """\
delete from pipeline_follower.unmade
where source_database_id = %(source)s and follower = %(follower)s and table_oid = %(oid)s and place = %(number)s
"""
"""Claim a statement for the current transaction; no row if another session has run the statement."""


def store(follower: Connection, here: FollowerPosition, oid: int, statements: Iterable[str]) -> None:
    """Store statements that must run in this order once the table's rows are copied."""
    with follower.cursor() as cursor:
        listed = [{**vars(here), "oid": oid, "statement": each} for each in statements]
        cursor.executemany(statement(_ROOM, "store_pending"), listed)


def unfinished_tables(follower: Connection, here: FollowerPosition) -> set[int]:
    """Return the tables, by their oids at the source, that still lack keys, indexes or checks.

    The oid 0 stands for statements that an older server stored without their table.
    """
    found = follower.execute(statement(_ROOM, "find_pending"), {**vars(here), "oids": None}).fetchall()
    return {oid for oid, _, _ in found} | checks.unfinished_tables(follower, here)


def finish(
    follower: Connection, here: FollowerPosition, tables: Mapping[int, NamedTable]
) -> dict[NamedTable, FollowerError]:
    """Run the stored statements of these tables, which are given by oid. Returns the tables that failed, with errors.

    `follower`: a session that no other code uses, because its settings change. Each statement runs in its own
    transaction. If the follower refuses a statement, the table's later statements wait. Checks are validated last.
    Raises errors that end the connection, and FollowerError if the follower refuses a statement that an older server
    stored without its table.
    """
    refused = dict[NamedTable, FollowerError]()
    values = {**vars(here), "oids": list(tables)}
    found = follower.execute(statement(_ROOM, "find_pending"), values).fetchall()
    for oid, number, text in found:
        table = tables.get(oid)
        if table is not None and table in refused:
            continue
        try:
            with follower.transaction():
                if follower.execute(_CLAIM_STATEMENT, {**values, "oid": oid, "number": number}).rowcount:
                    follower.execute(text.encode())
        except psycopg.Error as error:
            if connections.is_gone(error) or connections.is_ours(error):
                raise
            made = refusals.creation_error(table, error, "keys, indexes and checks of ")
            if table is None:
                raise made from error
            refused[table] = made
    return refused | checks.validate(follower, here, {oid: each for oid, each in tables.items() if each not in refused})
