"""Makes the tables that a follower lacks, before the copy; their keys, indexes and checks after it.

Keys and indexes cost less then, and rows that are there may violate a check.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql

from pipeline.errors import FollowedTablesChangedError, FollowerError
from pipeline.followers.applying.position import Position
from pipeline.followers.copying import (
    checks,
    copies,
    pending_statements,
    refusals,
    schema_dump,
    source_forms,
    taken_names,
)
from pipeline.followers.copying.schema_dump import SchemaDump
from pipeline.followers.copying.source_forms import SourceForm
from pipeline.followers.registry import TableName
from pipeline.postgres import connections
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

TRIES = 10
"""So many dumps are made until one is of a moment at which nobody altered a table."""
_ROOM = "followers.copying"


def make(
    source: Connection, dsn: str, follower: Connection, here: Position, tables: Sequence[TableName]
) -> dict[TableName, FollowerError]:
    """Those that the follower lacks, as they are at the source now; returns those that are refused, and why.

    `follower`: a session of its own, which is changed. The form of each, and what is to be made after its copy, is
    stored in the transaction that makes it. Raises FollowedTablesChangedError if one was renamed at the source.
    """

    def made(table: TableName, dumped: _TableDump, preamble: str) -> None:
        after = [*dumped.dump.after, *checks.take_off(follower, here, table)]
        pending_statements.store(follower, here, table.table_oid, [preamble + each for each in after])

    return _make(source, dsn, follower, here, tables, made)


def make_whole(source: Connection, dsn: str, follower: Connection, here: Position, table: TableName) -> None:
    """One of them with its keys and indexes, so that nothing is left to be made. Raises FollowerError."""

    def made(table: TableName, dumped: _TableDump, preamble: str) -> None:
        follower.execute("".join([preamble, *dumped.dump.after]).encode())
        checks.record(follower, here, table)

    for error in _make(source, dsn, follower, here, [table], made).values():
        raise error


@dataclass(frozen=True)
class _TableDump:
    """A table with its partitions. `form`: the one that it has in the dump. `names`: schemas and names of its parts."""

    dump: SchemaDump
    form: SourceForm
    names: Collection[tuple[str, str]]


def _make(
    source: Connection,
    dsn: str,
    follower: Connection,
    here: Position,
    tables: Sequence[TableName],
    made: Callable[[TableName, _TableDump, str], None],
) -> dict[TableName, FollowerError]:
    """`made` is called in each table's transaction, with the settings that statements of its dump need."""
    missing = lacking(follower, tables)
    if not missing:
        return {}
    dumped, refused = _dumped(source, dsn, missing)
    known = [name for (name,) in follower.execute("select name from pg_catalog.pg_settings").fetchall()]
    while dumped:
        failed = dict[TableName, FollowerError]()
        for table, each in dumped.items():
            preamble = each.dump.preamble(known)
            try:
                with follower.transaction():
                    for schema in sorted({schema for schema, _ in each.names}):
                        follower.execute(sql.SQL("create schema if not exists {}").format(sql.Identifier(schema)))
                    taken_names.free(follower, here, each.names)
                    follower.execute((preamble + each.dump.before).encode())
                    copies.store_form(follower, here, each.form)
                    made(table, each, preamble)
            except psycopg.Error as error:
                if connections.is_gone(error) or connections.is_ours(error):
                    raise
                failed[table] = refusals.creation_error(table, error)
        if len(failed) == len(dumped):
            return refused | failed
        dumped = {table: dumped[table] for table in failed}  # what one of them needs may be there by now
    return refused


def _dumped(
    source: Connection, dsn: str, tables: Sequence[TableName]
) -> tuple[dict[TableName, _TableDump], dict[TableName, FollowerError]]:
    """Tables as the source has them, without those that were dropped; and those that cannot be read, with why."""
    try:
        return _dumped_at_once(source, dsn, tables), {}
    except FollowedTablesChangedError:
        raise
    except FollowerError as error:
        if len(tables) == 1:
            return {}, {tables[0]: error}
    dumped, refused = dict[TableName, _TableDump](), dict[TableName, FollowerError]()
    for table in tables:
        more, why = _dumped(source, dsn, [table])
        dumped |= more
        refused |= why
    return dumped, refused


def _dumped_at_once(source: Connection, dsn: str, tables: Sequence[TableName]) -> dict[TableName, _TableDump]:
    """One dump of all. If they are altered meanwhile, they are read again. Raises FollowerError."""
    values = {"oids": [table.table_oid for table in tables]}
    for _ in range(TRIES):
        forms = source_forms.read(source, values["oids"])
        found = source.execute(statement(_ROOM, "tree_of_tables"), values).fetchall()
        if not found:
            return {}
        dump = schema_dump.read(source, dsn, [name for name, _ in found])
        labels = defaultdict[int, set[tuple[str, str]]](set)
        for oid, schema, label in source.execute(statement(_ROOM, "labels_of_dump"), values):
            labels[oid].add((schema, label))
        if source_forms.read(source, values["oids"]) == forms:
            there = [table for table in tables if table.table_oid in forms]
            if any(forms[each.table_oid].called != (each.table_schema, each.table_name) for each in there):
                raise FollowedTablesChangedError(
                    "tables of a follower were renamed at the source before they were made"
                )
            parts = {table: labels[table.table_oid] for table in there}
            return {table: _TableDump(dump.of(names), forms[table.table_oid], names) for table, names in parts.items()}
    raise FollowerError(
        f"--schema create: somebody alters tables of the source all the while, so that {TRIES} dumps of their schema"
        " were outdated at once"
    )


def lacking(follower: Connection, tables: Sequence[TableName]) -> list[TableName]:
    """Those of which the follower has nothing under their names."""
    names = {(table.table_schema, table.table_name): table for table in tables}
    values = {"schemas": [schema for schema, _ in names], "names": [name for _, name in names]}
    return [names[found] for found in follower.execute(statement(_ROOM, "missing_tables"), values).fetchall()]
