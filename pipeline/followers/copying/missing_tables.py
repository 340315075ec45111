"""Makes the tables that a follower lacks, before the copy; their keys and indexes after it, when they cost less."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from psycopg import sql

from pipeline.errors import FollowerError, TablesChanged
from pipeline.followers.applying.position import Position
from pipeline.followers.copying import copies, schema_dump, source_forms
from pipeline.followers.copying.schema_dump import SchemaDump
from pipeline.followers.copying.source_forms import SourceForm
from pipeline.followers.registry import TableName
from pipeline.postgres import connections, queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

TRIES = 10
"""So many dumps are made until one is of a moment at which nobody altered a table."""
_ROOM = "followers.copying"


def make(source: Connection, dsn: str, follower: Connection, of: Position, tables: Sequence[TableName]) -> None:
    """Those that the follower lacks, as they are at the source now. `follower`: a session of its own, which is changed.

    What is to be made after the copy, and the form that each has, is stored in the transaction that makes them. Raises
    FollowerError.
    """
    with _made(source, dsn, follower, of, tables) as after:
        if after is not None:
            values = {**vars(of), "after_copy": after}
            follower.execute(statement(_ROOM, "store_after_copy"), values, prepare=False)


def make_whole(source: Connection, dsn: str, follower: Connection, of: Position, tables: Sequence[TableName]) -> None:
    """The same with their keys and indexes, so that nothing is left to be made."""
    with _made(source, dsn, follower, of, tables) as after:
        if after is not None:
            follower.execute(after.encode())


@contextmanager
def _made(
    source: Connection, dsn: str, follower: Connection, of: Position, tables: Sequence[TableName]
) -> Iterator[str | None]:
    """In a transaction with those that are missing; what is to be made after their rows, None where none is missing."""
    missing = lacking(follower, tables)
    found = _dumped(source, dsn, [table.table_oid for table in missing]) if missing else None
    if found is None:
        yield None
        return
    named = {(form.oid, *form.called) for form in found.forms.values()}
    if named - {(each.table_oid, each.table_schema, each.table_name) for each in missing}:
        raise TablesChanged(f"tables of follower {of.follower} were renamed at the source before they were made")
    known = follower.execute("select name from pg_catalog.pg_settings").fetchall()
    preamble = found.dump.preamble(name for (name,) in known)
    with _explained(missing), follower.transaction():
        for schema in found.schemas:
            follower.execute(sql.SQL("create schema if not exists {}").format(sql.Identifier(schema)))
        follower.execute((preamble + found.dump.before).encode())
        for form in found.forms.values():
            copies.store_form(follower, of, form)
        yield preamble + found.dump.after


@dataclass(frozen=True)
class _Dumped:
    """`forms`: those that the tables have in the dump, by oid. `schemas`: that are in it."""

    dump: SchemaDump
    forms: Mapping[int, SourceForm]
    schemas: list[str]


def _dumped(source: Connection, dsn: str, oids: Sequence[int]) -> _Dumped | None:
    """Tables and their partitions; None where all were dropped. Who alters one meanwhile has it read again."""
    for _ in range(TRIES):
        forms = source_forms.read(source, oids)
        found = source.execute(statement(_ROOM, "tree_of_tables"), {"oids": oids}).fetchall()
        if not found:
            return None
        dump = schema_dump.read(source, dsn, [name for name, _ in found])
        if source_forms.read(source, oids) == forms:
            return _Dumped(dump, forms, sorted({schema for _, schema in found}))
    raise FollowerError(
        f"--schema create: somebody alters tables of the source all the while, so that {TRIES} dumps of their schema"
        " were outdated at once"
    )


def is_unfinished(follower: Connection, of: Position) -> bool:
    """Whether something is to be made after the copy."""
    return queries.value(follower, statement(_ROOM, "find_after_copy"), vars(of)) is not None


def finish(follower: Connection, of: Position) -> None:
    """Keys and indexes of the tables that were made, once all are copied; nothing where they are there."""
    with follower.transaction():
        rest = queries.value(follower, statement(_ROOM, "find_after_copy"), vars(of))
        if rest is None:
            return
        follower.execute(statement(_ROOM, "store_after_copy"), {**vars(of), "after_copy": None})
        with _explained([]):
            follower.execute(rest.encode())


def lacking(follower: Connection, tables: Sequence[TableName]) -> list[TableName]:
    """Those of which the follower has nothing under their names."""
    names = {(table.table_schema, table.table_name): table for table in tables}
    values = {"schemas": [schema for schema, _ in names], "names": [name for _, name in names]}
    return [names[found] for found in follower.execute(statement(_ROOM, "missing_tables"), values).fetchall()]


@contextmanager
def _explained(tables: Sequence[TableName]) -> Iterator[None]:
    """Say what the follower does not let us make."""
    try:
        yield
    except psycopg.Error as error:
        if connections.is_gone(error) or connections.is_ours(error):
            raise
        what = ", ".join(f"{table.table_schema}.{table.table_name}" for table in tables[:5]) or "keys and indexes"
        raise FollowerError(
            f"--schema create: the follower does not let us make {what}: {connections.one_line(error)}"
            f" (SQLSTATE {error.sqlstate}); make there what is missing"
        ) from error
