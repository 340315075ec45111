"""Finds which columns are the key of a table, and in which order, by their attnums, because names change. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.capture.schema_history.catalog_table import CatalogTable
from pipeline.capture.schema_history.versions import HistoryVersion
from pipeline.wal.messages import RelationMessage

DEFAULT, FULL = "d", "f"


def key_columns(
    relation: RelationMessage,
    attnums: Sequence[int | None],
    table: CatalogTable | None,
    previous: HistoryVersion | None,
    root_oid: int,
    *,
    moved: bool,
) -> tuple[str, ...]:
    """Return the replica identity, or with FULL the primary key, in column order of the root; empty if none is
    published.

    `attnums`: of the message's columns. `table`: as the catalog has it; None if it was dropped. `previous`: the last
    known version, used if the catalog has `moved` on, and for the order if the catalog no longer knows the root.
    """
    names = [column.name for column in relation.columns]
    previous_key = _renamed(previous, relation, attnums) if previous else []
    if relation.replica_identity != FULL:
        key = [column.name for column in relation.columns if column.key]
    else:
        key = _primary(table, previous, relation, attnums, previous_key, moved=moved)
    if root_oid == relation.oid:
        order = names
    elif table is not None and root_oid == table.table_oid:
        order = _in_root(table, names, attnums)
    else:
        order = [*previous_key, *(name for name in names if name not in previous_key)]
    return tuple(sorted(key, key=order.index))


def _primary(
    table: CatalogTable | None,
    previous: HistoryVersion | None,
    relation: RelationMessage,
    attnums: Sequence[int | None],
    previous_key: list[str],
    *,
    moved: bool,
) -> list[str]:
    """Return the primary key of a table with FULL: the catalog's if that existed for the change, else the previous."""
    names = [column.name for column in relation.columns]
    kept = previous is not None and set(names).issuperset(previous_key)
    if table is not None and table.primary_later and not _retyped(table, relation, attnums):
        return previous_key if kept and previous and previous.replica_identity in (DEFAULT, FULL) else []
    if table is not None and table.primary_key:
        for numbers in attnums, _by_name(relation, table):
            found = [name for name, attnum in zip(names, numbers, strict=True) if attnum in table.primary_key]
            if len(found) == len(table.primary_key):
                return found
    # The key was dropped since then, or one of its columns is not published, or the table was dropped.
    before = (FULL,) if table is not None else (DEFAULT, FULL)
    return previous_key if moved and kept and previous and previous.replica_identity in before else []


def _retyped(table: CatalogTable, relation: RelationMessage, attnums: Sequence[int | None]) -> bool:
    """True if the key is later only because one of its columns got another type, which recreates the constraint."""
    now = {column.attnum: (column.type_oid, column.type_modifier) for column in table.columns}
    return any(
        attnum in table.primary_key and now[attnum] != (column.type_oid, column.type_modifier)
        for column, attnum in zip(relation.columns, attnums, strict=True)
    )


def _by_name(relation: RelationMessage, table: CatalogTable) -> list[int | None]:
    """Return attnums by name, only if their order agrees.

    They are for columns that were altered since the slot's catalog_xmin, for example by a new key. The source sends
    columns in order of attnum, so two columns that have swapped their names are detected.
    """
    live = {(column.name, column.type_oid): column.attnum for column in table.live}
    found = [live.get((column.name, column.type_oid)) for column in relation.columns]
    known = [attnum for attnum in found if attnum is not None]
    return found if known == sorted(known) else [None] * len(found)


def _renamed(previous: HistoryVersion, relation: RelationMessage, attnums: Sequence[int | None]) -> list[str]:
    """Return the previous key, under the names that its columns have in the message."""
    names = [column.name for column in relation.columns]
    if not any(attnums) and len(previous.columns) == len(
        names
    ):  # the table was dropped, but columns may only have been renamed before
        by_place = {column.name: name for column, name in zip(previous.columns, names, strict=True)}
        found = [by_place[name] for name in previous.key_columns if name in by_place]
        if {*found} == {column.name for column in relation.columns if column.key}:
            return found
    now = {attnum: name for attnum, name in zip(attnums, names, strict=True) if attnum is not None}
    numbers = {column.name: column.attnum for column in previous.columns}
    return [now.get(numbers.get(name) or 0, name) for name in previous.key_columns]


def _in_root(table: CatalogTable, names: Sequence[str], attnums: Sequence[int | None]) -> list[str]:
    """Return the message's columns in the order of the root: a partition may have them in another order."""
    now = {column.attnum: column.name for column in table.columns}
    place = {name: position for position, name in enumerate(table.column_order)}
    placed = [
        (place.get(now.get(attnum or 0, name), len(place)), name) for name, attnum in zip(names, attnums, strict=True)
    ]
    return [name for _, name in sorted(placed, key=lambda it: it[0])]
