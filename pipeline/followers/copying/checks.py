"""Checks of tables that we have made, which existing rows may violate: one that is NOT VALID, or asks for the time.

Each is taken off before the first copy and added after it as NOT VALID. One that is valid at the source is validated
then; if a row violates it, it stays NOT VALID. `pipeline_follower.checks` has them. A not null that is not valid is
treated likewise.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import psycopg

from pipeline.errors import FollowerError
from pipeline.followers.applying.position import Position
from pipeline.followers.copying import refusals
from pipeline.followers.registry import Note, TableName
from pipeline.postgres import connections, queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_ROOM = "followers.copying"
_FORGET_REASONS = """\
update pipeline_follower.checks set reason = null
where source_database_id = %(source)s and follower = %(follower)s and table_oid = %(oid)s
"""
"""A table has other rows: whether they violate its checks is asked again."""
_RECORD_CHECK = """\
insert into pipeline_follower.checks (source_database_id, follower, table_oid, relation, name, is_valid)
values (%(source)s, %(follower)s, %(oid)s, %(relation)s::bigint::oid, %(name)s, %(is_valid)s)
on conflict (source_database_id, follower, relation, name) do nothing
"""
"""A check that was made with a table, before it is taken off; what is known of it stays."""


@dataclass(frozen=True)
class _Check:
    """`relation`: its table or partition, by the oid at the follower. `drops`, `adds`: SQL, the latter as NOT VALID."""

    relation: int
    name: str
    is_valid: bool
    drops: str
    adds: str


@dataclass(frozen=True)
class UnvalidatedCheck:
    """A check that is valid at the source and not at the follower, of a table by its oid at the source.

    `relation`, `shown`: the table or partition at the follower. `validates`: SQL. `reason`: None before it was tried.
    """

    table_oid: int
    relation: int
    shown: str
    name: str
    validates: str
    reason: str | None

    def __str__(self) -> str:
        return f"check {self.name} of {self.shown} is not valid there as it is at the source: {self.reason}"


def record(follower: Connection, here: Position, table: TableName) -> None:
    """Store which checks we have made with a table, in the transaction that makes it."""
    _record(follower, here, table, _find(follower, here, table))


def take_off(follower: Connection, here: Position, table: TableName) -> list[str]:
    """Drop the checks of a table that we have made and that has no rows yet, in the transaction that is open.

    Returns the statements that add them.
    """
    found = _find(follower, here, table)
    _record(follower, here, table, found)
    for each in found:
        follower.execute(each.drops.encode())
    return [each.adds for each in found]


def run_without(follower: Connection, here: Position, table: TableName, replace: Callable[[], None]) -> None:
    """Replace rows in the transaction that is open, and let them violate checks that we have made: NOT VALID then."""
    found = _find(follower, here, table, recorded=True)
    for each in found:
        follower.execute(each.drops.encode())
    replace()
    for each in found:
        follower.execute(each.adds.encode())
    follower.execute(_FORGET_REASONS, {**vars(here), "oid": table.table_oid})


def are_made(follower: Connection, here: Position, table: TableName) -> bool:
    """True if a table has checks that we have made."""
    return bool(_find(follower, here, table, recorded=True))


def unvalidated(follower: Connection, here: Position) -> list[UnvalidatedCheck]:
    """Return the checks that are valid at the source and not at the follower."""
    return queries.rows(follower, UnvalidatedCheck, statement(_ROOM, "find_unvalidated"), vars(here))


def unfinished_tables(follower: Connection, here: Position) -> set[int]:
    """Return tables, by their oids at the source, with checks that are to be validated."""
    return {each.table_oid for each in unvalidated(follower, here) if each.reason is None}


def validate(follower: Connection, here: Position, tables: Mapping[int, TableName]) -> dict[TableName, FollowerError]:
    """Validate the checks that are left of these tables, by their oids at the source, each in its own transaction.

    If a row violates one, it is stored why it stays NOT VALID. Returns the tables whose rows cannot be asked, and why.
    Raises what ends the connection.
    """
    refused = dict[TableName, FollowerError]()
    for each in unvalidated(follower, here):
        table = tables.get(each.table_oid)
        if table is None or each.reason is not None:
            continue
        try:
            violated = _violated(follower, each.relation, each.name, each.validates)
        except psycopg.Error as error:
            if connections.is_gone(error) or connections.is_ours(error):
                raise
            refused[table] = refusals.creation_error(table, error, f"check {each.name} of ")
            continue
        if violated is not None:
            values = {
                **vars(here),
                "relation": each.relation,
                "name": each.name,
                "reason": refusals.server_message(violated),
            }
            follower.execute(statement(_ROOM, "store_reason"), values)
    return refused


def notes(follower: Connection, here: Position) -> dict[int, Note]:
    """Return what there is to say of tables, by their oids at the source, whose rows violate a check."""
    found = defaultdict[int, list[UnvalidatedCheck]](list)
    for each in unvalidated(follower, here):
        if each.reason is not None:
            found[each.table_oid].append(each)
    remedy = "correct those rows at the source, then run there: `{}`"
    return {
        oid: Note("; ".join(map(str, listed)), remedy.format("; ".join(each.validates for each in listed)))
        for oid, listed in found.items()
    }


def _find(follower: Connection, here: Position, table: TableName, *, recorded: bool = False) -> list[_Check]:
    """The checks of a table and of its partitions; or only those that are `recorded`."""
    values = {**vars(here), "schema": table.table_schema, "name": table.table_name, "recorded": recorded}
    return queries.rows(follower, _Check, statement(_ROOM, "checks_of_table"), values)


def _record(follower: Connection, here: Position, table: TableName, found: Sequence[_Check]) -> None:
    with follower.cursor() as cursor:
        listed = [{**vars(here), **vars(each), "oid": table.table_oid} for each in found]
        cursor.executemany(_RECORD_CHECK, listed)


def _violated(follower: Connection, relation: int, name: str, validates: str) -> psycopg.errors.CheckViolation | None:
    """Validate a check; returns why that is not possible, and then its children are validated by themselves."""
    try:
        with follower.transaction():
            follower.execute(validates.encode())
    except psycopg.errors.CheckViolation as error:
        values = {"relation": relation, "name": name}
        for child, text in follower.execute(statement(_ROOM, "children_with_check"), values).fetchall():
            _violated(follower, child, name, text)
        return error
    return None
