"""Keys whose row may differ between the source and the log.

This version compares nothing: it gives all keys that the one or the other has, which is right, and slow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice

from psycopg import sql

from pipeline.capture.schema_history import introspection
from pipeline.capture.schema_history.versions import TableVersion
from pipeline.capture.source import publication_ledger
from pipeline.capture.source.sources import Source
from pipeline.log import tables as events_tables
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

KEYS = 1_000
"""In a batch."""
_JSON = (114, 3802)


def keys(
    source: Connection, pipeline: Connection, stored: Source, table_oid: int, stopping: Callable[[], bool]
) -> Iterator[list[list[str]]]:
    """Batches of keys, texts in the order of the version's key; a key may come more than once.

    Ends early once `stopping` says so.
    """
    found = _version(source, stored, table_oid)
    if found is None:
        return
    version, leaves = found
    each = chain(_at_source(source, version, leaves), _in_log(pipeline, stored, table_oid, version))
    while not stopping() and (batch := list(islice(each, KEYS))):
        yield batch


def _version(source: Connection, stored: Source, table_oid: int) -> tuple[TableVersion, list[str]] | None:
    """Of the first relation that holds rows of the table, and the names of all."""
    leaves = source.execute(statement("capture.content", "leaves"), {"oid": table_oid}).fetchall()
    names, made = list(publication_ledger.known(stored)), list(stored.publications.values())
    for oid, _ in leaves:
        described = introspection.present(source, oid, stored.slot, names, made)
        if described is not None:
            return described.version, [name for _, name in leaves]
    return None


def _at_source(source: Connection, version: TableVersion, leaves: list[str]) -> Iterator[list[str]]:
    key = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(name)) for name in version.key_columns)
    for leaf in leaves:
        query = sql.SQL("select {} from only {}").format(key, sql.SQL(leaf))
        yield from map(list, source.execute(query).fetchall())


def _in_log(pipeline: Connection, stored: Source, table_oid: int, version: TableVersion) -> Iterator[list[str]]:
    types = {column.name: column.base_type_oid for column in version.columns}
    parts = sql.SQL(", ").join(
        sql.SQL("(e.record -> {})::text" if types[name] in _JSON else "e.record ->> {}").format(sql.Literal(name))
        for name in version.key_columns
    )
    for table in events_tables.with_known(pipeline, []):
        query = sql.SQL(statement("capture.content", "keys_in_log")).format(key=parts, events=table.identifier)
        for (key,) in pipeline.execute(query, {"source": stored.id, "table": table_oid}).fetchall():
            if None not in key:
                yield key
