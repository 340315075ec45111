"""Completes a Relation message from the catalog, as it is now, and from the history. Pure.

The message describes the table for the next change. If the catalog was changed since then, the previous version is
used.
"""

from __future__ import annotations

from typing import NamedTuple

from pipeline.capture.schema_history.catalog_table import CatalogTable
from pipeline.capture.schema_history.keys import key_columns
from pipeline.capture.schema_history.placement import place_columns
from pipeline.capture.schema_history.versions import HistoryVersion, PublishedColumn
from pipeline.wal.messages import RelationMessage


class _Root(NamedTuple):
    oid: int
    schema: str
    name: str


def complete_version(
    relation: RelationMessage,
    table: CatalogTable | None,
    types: dict[int, tuple[str, int, str]],
    previous: HistoryVersion | None,
    *,
    again: bool,
) -> HistoryVersion:
    """Return the table version from this message on; its columns have no `names` yet.

    `table`: None if it was dropped. `types`: name, base type, and the type that a domain is over, by oid. `previous`:
    the last known version. `again`: the message was already sent in this session.
    """
    numbers = place_columns(relation, table, previous)
    moved = _moved(relation, table, previous, again=again)
    root_of = previous if moved or _root_moved_on(table, previous) else None
    root = _root(relation, table, root_of)
    key = key_columns(relation, numbers, table, previous, root.oid, moved=moved)
    another_root = root_of is not None and table is not None and root.oid != table.table_oid
    kept = previous if moved or another_root or (table is not None and table.altered_later) else None
    return HistoryVersion(
        relation_oid=relation.oid,
        relation_schema=relation.schema,
        relation_name=relation.name,
        table_oid=root.oid,
        table_schema=root.schema,
        table_name=root.name,
        replica_identity=relation.replica_identity,
        columns=_columns(relation, numbers, types, previous, key),
        key_columns=key,
        unique_in_root=kept.unique_in_root if kept else _unique(relation, table, key),
        memberships=_memberships(table, previous),
    )


def _moved(
    relation: RelationMessage, table: CatalogTable | None, previous: HistoryVersion | None, *, again: bool
) -> bool:
    """True if the catalog no longer shows the table as it was for the change."""
    if table is None:
        return True
    return _contradicts(relation, table) and (not again or previous is None or _differs(previous, relation))


def _contradicts(relation: RelationMessage, table: CatalogTable) -> bool:
    """True if the catalog contradicts the message, because the catalog was changed since then."""
    now = table.relation_schema, table.relation_name, table.replica_identity
    if now != (relation.schema, relation.name, relation.replica_identity):
        return True
    live = {(column.name, column.type_oid) for column in table.live}
    return not {(column.name, column.type_oid) for column in relation.columns} <= live


def _differs(previous: HistoryVersion, relation: RelationMessage) -> bool:
    """True if the message differs from the previous version, which is then why the source sent it."""
    columns = [(column.name, column.type_oid, column.type_modifier) for column in previous.columns]
    return (previous.relation_schema, previous.relation_name, previous.replica_identity, columns) != (
        relation.schema,
        relation.name,
        relation.replica_identity,
        [(column.name, column.type_oid, column.type_modifier) for column in relation.columns],
    )


def _root_moved_on(table: CatalogTable | None, previous: HistoryVersion | None) -> bool:
    """True if the table's root, or the root's name, was changed in the catalog after the transaction."""
    if previous is None or table is None:
        return False
    if table.table_oid != previous.table_oid:
        return table.altered_later or table.root_later
    return table.root_later or table.schema_later


def _root(relation: RelationMessage, table: CatalogTable | None, kept: HistoryVersion | None) -> _Root:
    known = kept or table
    if known is None or known.table_oid == relation.oid:  # not a partition: the message has the name at that time
        return _Root(relation.oid, relation.schema, relation.name)
    return _Root(known.table_oid, known.table_schema, known.table_name)


def _unique(relation: RelationMessage, table: CatalogTable | None, key: tuple[str, ...]) -> bool:
    """True if the key identifies one row of the root: partitions may have keys that the root does not have."""
    if table is None or table.table_oid == relation.oid:
        return True
    return any(set(key).issuperset(each) for each in table.root_keys)


def _memberships(table: CatalogTable | None, previous: HistoryVersion | None) -> tuple[int, ...]:
    """Return the memberships that existed for the described change: older than its transaction, or known before."""
    known = (previous.memberships if previous else None) or ()
    if table is None:
        return known
    return tuple(sorted(oid for oid, older in table.memberships if older or oid in known))


def _columns(
    relation: RelationMessage,
    numbers: list[int | None],
    types: dict[int, tuple[str, int, str]],
    previous: HistoryVersion | None,
    key: tuple[str, ...],
) -> tuple[PublishedColumn, ...]:
    """Return the columns; names of types that were dropped since then come from the previous version."""
    before = previous.columns if previous else ()
    names = {each.type_oid: (each.type_name, each.base_type_oid, each.domain_of) for each in before} | types
    described = [names.get(column.type_oid, ("", column.type_oid, "")) for column in relation.columns]
    return tuple(
        PublishedColumn(
            column.name,
            column.type_oid,
            column.type_modifier,
            type_name,
            base_type_oid,
            key=column.name in key,
            attnum=attnum,
            domain_of=domain_of,
        )
        for column, attnum, (type_name, base_type_oid, domain_of) in zip(
            relation.columns, numbers, described, strict=True
        )
    )
