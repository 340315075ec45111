"""Handles checks that existing rows may violate, of tables that the server created in a follower.

Rows may violate a check that is NOT VALID, or one that depends on the time. Each check is dropped before the first
copy, and added after it as NOT VALID. A check that is valid at the source is then validated; if a row violates the
check, it stays NOT VALID. The table `pipeline_follower.checks` lists these checks. A not null constraint that is not
valid is treated in the same way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import psycopg

from pipeline.errors import FollowerError
from pipeline.followers.applying.position import FollowerPosition
from pipeline.followers.copying import refusals
from pipeline.followers.registry import NamedTable, TableNote
from pipeline.postgres import connections, queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_ROOM = "followers.copying"
_FORGET_REASONS = """\
update pipeline_follower.checks set reason = null
where source_database_id = %(source)s and follower = %(follower)s and table_oid = %(oid)s
"""
"""Forget why checks of a table stay NOT VALID, because its rows were replaced."""
_RECORD_CHECK = """\
insert into pipeline_follower.checks (source_database_id, follower, table_oid, relation, name, is_valid)
values (%(source)s, %(follower)s, %(oid)s, %(relation)s::bigint::oid, %(name)s, %(is_valid)s)
on conflict (source_database_id, follower, relation, name) do nothing
"""
"""Record a check that was created with a table, before the check is dropped; an existing record stays as it is."""


@dataclass(frozen=True)
class _Check:
    """A check of a table or partition, `relation` by its oid at the follower.

    `drops`, `adds`: the SQL that drops the check, and that adds it as NOT VALID.
    """

    relation: int
    name: str
    is_valid: bool
    drops: str
    adds: str


@dataclass(frozen=True)
class UnvalidatedCheck:
    """A check that is valid at the source and not at the follower. `table_oid`: the table's oid at the source.

    `relation`, `shown`: the table or partition at the follower. `validates`: the SQL that validates the check.
    `reason`: why the check is not valid; None before the first attempt.
    """

    table_oid: int
    relation: int
    shown: str
    name: str
    validates: str
    reason: str | None

    def __str__(self) -> str:
        return f"check {self.name} of {self.shown} is not valid there as it is at the source: {self.reason}"


def record(follower: Connection, here: FollowerPosition, table: NamedTable) -> None:
    """Record the checks of a table that the server has just created, in the transaction that creates it."""
    _record(follower, here, table, _find(follower, here, table))


def drop_all(follower: Connection, here: FollowerPosition, table: NamedTable) -> list[str]:
    """Drop the checks of a table that the server created and that has no rows yet, in the open transaction.

    Returns the statements that add the checks again.
    """
    listed = _find(follower, here, table)
    _record(follower, here, table, listed)
    for each in listed:
        follower.execute(each.drops.encode())
    return [each.adds for each in listed]


def run_without(follower: Connection, here: FollowerPosition, table: NamedTable, replace: Callable[[], None]) -> None:
    """Call `replace` in the open transaction; the new rows may violate recorded checks, which become NOT VALID."""
    listed = _find(follower, here, table, recorded=True)
    for each in listed:
        follower.execute(each.drops.encode())
    replace()
    for each in listed:
        follower.execute(each.adds.encode())
    follower.execute(_FORGET_REASONS, {**vars(here), "oid": table.table_oid})


def are_recorded(follower: Connection, here: FollowerPosition, table: NamedTable) -> bool:
    """Return True if a table has recorded checks, which the server created."""
    return bool(_find(follower, here, table, recorded=True))


def unvalidated(follower: Connection, here: FollowerPosition) -> list[UnvalidatedCheck]:
    """Return the checks that are valid at the source and not at the follower."""
    return queries.rows(follower, UnvalidatedCheck, statement(_ROOM, "find_unvalidated"), vars(here))


def unfinished_tables(follower: Connection, here: FollowerPosition) -> set[int]:
    """Return the tables, by their oids at the source, with checks that must still be validated."""
    return {each.table_oid for each in unvalidated(follower, here) if each.reason is None}


def validate(
    follower: Connection, here: FollowerPosition, tables: Mapping[int, NamedTable]
) -> dict[NamedTable, FollowerError]:
    """Validate the remaining checks of these tables, by their oids at the source, each in its own transaction.

    If a row violates a check, the reason is stored, and the check stays NOT VALID. Returns the tables whose rows cannot
    be checked, with the errors. Raises errors that end the connection.
    """
    refused = dict[NamedTable, FollowerError]()
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


def notes(follower: Connection, here: FollowerPosition) -> dict[int, TableNote]:
    """Return notes on tables whose rows violate a check, by the tables' oids at the source."""
    found = defaultdict[int, list[UnvalidatedCheck]](list)
    for each in unvalidated(follower, here):
        if each.reason is not None:
            found[each.table_oid].append(each)
    remedy = "correct those rows at the source, then run there: `{}`"
    return {
        oid: TableNote("; ".join(map(str, listed)), remedy.format("; ".join(each.validates for each in listed)))
        for oid, listed in found.items()
    }


def _find(follower: Connection, here: FollowerPosition, table: NamedTable, *, recorded: bool = False) -> list[_Check]:
    """Return the checks of a table and of its partitions, or only the recorded ones."""
    values = {**vars(here), "schema": table.table_schema, "name": table.table_name, "recorded": recorded}
    return queries.rows(follower, _Check, statement(_ROOM, "checks_of_table"), values)


def _record(follower: Connection, here: FollowerPosition, table: NamedTable, found: Sequence[_Check]) -> None:
    with follower.cursor() as cursor:
        listed = [{**vars(here), **vars(each), "oid": table.table_oid} for each in found]
        cursor.executemany(_RECORD_CHECK, listed)


def _violated(follower: Connection, relation: int, name: str, validates: str) -> psycopg.errors.CheckViolation | None:
    """Validate a check. If a row violates the check, return the error, and validate each child table by itself."""
    try:
        with follower.transaction():
            follower.execute(validates.encode())
    except psycopg.errors.CheckViolation as error:
        values = {"relation": relation, "name": name}
        for child, text in follower.execute(statement(_ROOM, "children_with_check"), values).fetchall():
            _violated(follower, child, name, text)
        return error
    return None
