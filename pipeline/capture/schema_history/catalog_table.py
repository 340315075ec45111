"""Reads a table from the source's catalog, and how certain it is that the table was the same for an earlier change."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import Cursor
from psycopg.rows import dict_row

from pipeline.capture.schema_history.fingerprint import ColumnFingerprint, TableFingerprint
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_RETRIES = 3


@dataclass(frozen=True)
class CatalogColumn:
    """A row of pg_attribute. `settled`: the row is older than every change that the slot may still send.

    `generated`, `version`, `missing`, `filled` and `attributes`: see ColumnFingerprint and attgenerated.
    `attributes_later`: a composite type was altered after the transaction of the described change.
    """

    attnum: int
    name: str
    type_oid: int
    type_modifier: int
    dropped: bool = False
    generated: str = ""
    version: str = ""
    missing: bool = False
    filled: bool = False
    settled: bool = True
    attributes: str | None = None
    attributes_later: bool = False

    @property
    def fingerprint(self) -> ColumnFingerprint:
        """The column's fingerprint, which shows whether its values were changed without an event."""
        return ColumnFingerprint(
            self.version, self.settled, self.missing, self.filled, self.attributes, not self.attributes_later
        )


@dataclass(frozen=True)
class CatalogTable:
    """A table read in one snapshot. `table_*` is the partition root, or the same as `relation_*`.

    `…_later`: altered after the transaction of the described change; `…settled`: already the same for that change.
    `primary_key`: attnums. `column_order`: names in the order of the root. `root_keys`: columns of each unique index
    of the root. `memberships`: oids that publish updates, each with whether it existed before the transaction.
    `published`: oids of the rows that name the table in publications of other users; `column_list`: one of these rows
    has a column list.
    """

    relation_schema: str
    relation_name: str
    replica_identity: str
    table_oid: int
    table_schema: str
    table_name: str
    columns: tuple[CatalogColumn, ...]
    file: int = 0
    file_settled: bool = True
    altered_later: bool = False
    root_later: bool = False
    schema_later: bool = False
    column_list: bool = False
    publication_settled: bool = True
    published: tuple[int, ...] = ()
    column_order: tuple[str, ...] = ()
    primary_key: tuple[int, ...] = ()
    primary_later: bool = False
    root_keys: tuple[tuple[str, ...], ...] = ()
    memberships: tuple[tuple[int, bool], ...] = ()
    read_at: int = 0

    @property
    def live(self) -> list[CatalogColumn]:
        """The table's columns without the dropped ones."""
        return [column for column in self.columns if not column.dropped]

    def fingerprint(self, attnums: Collection[int | None]) -> TableFingerprint:
        """Return the fingerprint of the table with these columns."""
        columns = {column.attnum: column.fingerprint for column in self.columns if column.attnum in attnums}
        return TableFingerprint(self.file, self.file_settled, self.read_at, columns)


def read(
    source: Connection,
    oid: int,
    slot: str,
    publications: Sequence[str] = (),
    xid: int | None = None,
    made: Sequence[int] = (),
) -> CatalogTable | None:
    """Return the table; None if it was dropped. `xid`: of the transaction of the change; None if not known.

    `publications`: those whose memberships are read; `made`: oids of those among them that have no column lists.
    """
    values = {"oid": oid, "slot": slot, "publications": list(publications), "xid": xid, "made": list(made)}
    with source.cursor(row_factory=dict_row) as cursor:
        row = _read(cursor, values)
    return None if row is None else _table(row)


def type_names(source: Connection, oids: Iterable[int]) -> dict[int, tuple[str, int, str]]:
    """Return, for each existing type by oid, its name, its base type, and the type that a domain is over.

    The history's columns have them in the same form.
    """
    rows = source.execute(statement("capture.schema_history", "describe_types"), {"oids": list(oids)}).fetchall()
    return {oid: (name, base_oid, domain_of) for oid, name, base_oid, domain_of in rows}


def _read(cursor: Cursor[dict[str, Any]], values: dict[str, Any], again: int = _RETRIES) -> dict[str, Any] | None:
    try:
        return cursor.execute(statement("capture.schema_history", "describe_table"), values).fetchone()
    except psycopg.errors.InternalError_:  # dropped after the snapshot: a function no longer finds it
        if not again:
            raise
        return _read(cursor, values, again - 1)


def _table(row: dict[str, Any]) -> CatalogTable:
    """Make a table of a row of the query, whose columns are named like the fields; its empty lists are NULL."""
    lists = {
        "columns": tuple(CatalogColumn(**column) for column in row["columns"]),
        "column_order": tuple(row["column_order"] or ()),
        "primary_key": tuple(row["primary_key"] or ()),
        "root_keys": tuple(tuple(key) for key in row["root_keys"] or ()),
        "memberships": tuple((oid, older) for oid, older in row["memberships"] or ()),
        "published": tuple(row["published"] or ()),
    }
    return CatalogTable(**{**row, **lists})
