"""Creates the tables that a follower lacks before the copy, and their keys, indexes and checks after it.

Keys and indexes are cheaper to create after the copy, and copied rows may violate a check.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql

from pipeline.errors import FollowedTablesChangedError, FollowerError
from pipeline.followers.applying.position import FollowerPosition
from pipeline.followers.copying import (
    checks,
    copies,
    pending_statements,
    refusals,
    schema_dump,
    source_definitions,
    taken_names,
)
from pipeline.followers.copying.schema_dump import SchemaDump
from pipeline.followers.copying.source_definitions import SourceDefinition
from pipeline.followers.registry import NamedTable
from pipeline.postgres import connections
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

TRIES = 10
"""How many dumps are tried until no session alters a table during one of them."""
_ROOM = "followers.copying"


def make(
    source: Connection, dsn: str, follower: Connection, here: FollowerPosition, tables: Sequence[NamedTable]
) -> dict[NamedTable, FollowerError]:
    """Create the tables that the follower lacks, as they are at the source now; returns the refused ones, and why.

    `follower`: a session that no other code uses, because its settings change. The transaction that creates a table
    also stores its definition, and the statements that must run after its copy. Raises FollowedTablesChangedError if a
    table was renamed at the source.
    """

    def store_rest(table: NamedTable, dumped: _TableDump, preamble: str) -> None:
        after = [*dumped.dump.after, *checks.drop_all(follower, here, table)]
        pending_statements.store(follower, here, table.table_oid, [preamble + each for each in after])

    return _make(source, dsn, follower, here, tables, store_rest)


def make_whole(source: Connection, dsn: str, follower: Connection, here: FollowerPosition, table: NamedTable) -> None:
    """Create a table together with its keys and indexes, so that nothing remains to be done. Raises FollowerError."""

    def make_rest(table: NamedTable, dumped: _TableDump, preamble: str) -> None:
        follower.execute("".join([preamble, *dumped.dump.after]).encode())
        checks.record(follower, here, table)

    for error in _make(source, dsn, follower, here, [table], make_rest).values():
        raise error


@dataclass(frozen=True)
class _TableDump:
    """A table with its partitions. `definition`: the table's in the dump. `names`: schemas and names of its parts."""

    dump: SchemaDump
    definition: SourceDefinition
    names: Collection[tuple[str, str]]


def _make(
    source: Connection,
    dsn: str,
    follower: Connection,
    here: FollowerPosition,
    tables: Sequence[NamedTable],
    finish: Callable[[NamedTable, _TableDump, str], None],
) -> dict[NamedTable, FollowerError]:
    """Create the missing tables, each in one transaction; returns the refused ones, and why.

    The transaction calls `finish` with the settings that the statements of the dump need.
    """
    missing = lacking(follower, tables)
    if not missing:
        return {}
    dumped, refused = _dump(source, dsn, missing)
    known = [name for (name,) in follower.execute("select name from pg_catalog.pg_settings").fetchall()]
    while dumped:
        failed = dict[NamedTable, FollowerError]()
        for table, each in dumped.items():
            preamble = each.dump.preamble(known)
            try:
                with follower.transaction():
                    for schema in sorted({schema for schema, _ in each.names}):
                        follower.execute(sql.SQL("create schema if not exists {}").format(sql.Identifier(schema)))
                    taken_names.free(follower, here, each.names)
                    follower.execute((preamble + each.dump.before).encode())
                    copies.store_definition(follower, here, each.definition)
                    finish(table, each, preamble)
            except psycopg.Error as error:
                if connections.is_gone(error) or connections.is_ours(error):
                    raise
                failed[table] = refusals.creation_error(table, error)
        if len(failed) == len(dumped):
            return refused | failed
        dumped = {table: dumped[table] for table in failed}  # another table may have created what these need
    return refused


def _dump(
    source: Connection, dsn: str, tables: Sequence[NamedTable]
) -> tuple[dict[NamedTable, _TableDump], dict[NamedTable, FollowerError]]:
    """Dump tables of the source that still exist; also return the tables that cannot be dumped, and why."""
    try:
        return _dump_at_once(source, dsn, tables), {}
    except FollowedTablesChangedError:
        raise
    except FollowerError as error:
        if len(tables) == 1:
            return {}, {tables[0]: error}
    dumped, refused = dict[NamedTable, _TableDump](), dict[NamedTable, FollowerError]()
    for table in tables:
        more, why = _dump(source, dsn, [table])
        dumped |= more
        refused |= why
    return dumped, refused


def _dump_at_once(source: Connection, dsn: str, tables: Sequence[NamedTable]) -> dict[NamedTable, _TableDump]:
    """Dump all tables at once. If a table is altered during the dump, all are dumped again. Raises FollowerError."""
    values = {"oids": [table.table_oid for table in tables]}
    for _ in range(TRIES):
        definitions = source_definitions.read(source, values["oids"])
        found = source.execute(statement(_ROOM, "tree_of_tables"), values).fetchall()
        if not found:
            return {}
        dump = schema_dump.read(source, dsn, [name for name, _ in found])
        labels = defaultdict[int, set[tuple[str, str]]](set)
        for oid, schema, label in source.execute(statement(_ROOM, "labels_of_dump"), values):
            labels[oid].add((schema, label))
        if source_definitions.read(source, values["oids"]) == definitions:
            there = [table for table in tables if table.table_oid in definitions]
            if any(definitions[each.table_oid].called != (each.table_schema, each.table_name) for each in there):
                raise FollowedTablesChangedError(
                    "tables of a follower were renamed at the source before they were made"
                )
            parts = {table: labels[table.table_oid] for table in there}
            return {
                table: _TableDump(dump.select(names), definitions[table.table_oid], names)
                for table, names in parts.items()
            }
    raise FollowerError(
        f"--schema create: tables of the source are altered all the time, so {TRIES} dumps of their schema were"
        " outdated at once; try again when no session alters them"
    )


def lacking(follower: Connection, tables: Sequence[NamedTable]) -> list[NamedTable]:
    """Return the tables whose names no relation of the follower has."""
    names = {(table.table_schema, table.table_name): table for table in tables}
    values = {"schemas": [schema for schema, _ in names], "names": [name for _, name in names]}
    return [names[found] for found in follower.execute(statement(_ROOM, "missing_tables"), values).fetchall()]
