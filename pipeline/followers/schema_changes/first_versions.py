"""Tables that DDL has changed at the source before their first event, of a follower that begins from the log.

They have the form of when the follower was added, which the relation history does not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from psycopg.rows import dict_row

from pipeline.followers.applying import table_versions
from pipeline.followers.applying.position import Position
from pipeline.followers.applying.table_versions import Place, TableVersion
from pipeline.followers.registry import TableName
from pipeline.followers.schema_changes import reached_versions
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement


def unlike(
    log: Connection, follower: Connection, here: Position, tables: Iterable[TableName], *, made: bool
) -> set[int]:
    """Of these, by oid, those that are others than the first version says which comes after the position.

    `made`: its tables were made as the source's were, so that it has no columns and types of its own.
    """
    listed = {table.table_oid: table for table in tables}
    reached = Place(here.source_epoch, here.commit_lsn or 0, 2**31 - 1)
    found = table_versions.all_versions(log, here.source, listed)
    first = {oid: versions[0] for oid, versions in found.items() if versions[0].place > reached}
    return {oid for oid, version in first.items() if not _is_like(follower, listed[oid], version, made=made)}


def _is_like(follower: Connection, table: TableName, version: TableVersion, *, made: bool) -> bool:
    if (version.table_schema, version.table_name) != (table.table_schema, table.table_name):
        return True  # of a name it is no question what the columns are
    types, there = reached_versions.types(follower, version), _columns(follower, table)
    if not made:
        return types.keys() <= there.keys()
    kept = {name: column["type_name"] for name, column in there.items() if name in types or not column["generated"]}
    return kept == types


def _columns(follower: Connection, table: TableName) -> Mapping[str, Mapping[str, Any]]:
    values = {"schema": table.table_schema, "name": table.table_name}
    with follower.cursor(row_factory=dict_row) as cursor:
        there = cursor.execute(statement("followers.applying", "describe_table"), values).fetchone()
    return {column["name"]: column for column in there["columns"]} if there else {}
