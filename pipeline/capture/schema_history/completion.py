"""A Relation message, completed from the catalog, which is as it is now, and the history. Pure.

The message is as the table was for the change that follows. Where the catalog has moved on since, the form before wins.
"""

from __future__ import annotations

from typing import NamedTuple

from pipeline.capture.schema_history.catalog_table import CatalogColumn, CatalogTable
from pipeline.capture.schema_history.keys import key_columns
from pipeline.capture.schema_history.versions import Column, TableVersion
from pipeline.wal.messages import Relation


class _Root(NamedTuple):
    oid: int
    schema: str
    name: str


def complete(
    relation: Relation,
    table: CatalogTable | None,
    types: dict[int, tuple[str, int]],
    past: TableVersion | None,
    *,
    again: bool,
) -> TableVersion:
    """The form that holds from the message on; its columns have no `names` yet.

    `table`: None when it is gone. `types`: name and base type by oid. `past`: what the history has. `again`: the
    message has come in this session already.
    """
    numbers = attnums(relation, table)
    moved = _moved(relation, table, past, again=again)
    root_of = past if moved or _root_moved_on(table, past) else None
    root = _root(relation, table, root_of)
    key = key_columns(relation, numbers, table, past, root.oid, moved=moved)
    another_root = root_of is not None and table is not None and root.oid != table.table_oid
    kept = past if moved or another_root or (table is not None and table.altered_later) else None
    return TableVersion(
        relation_oid=relation.oid,
        relation_schema=relation.schema,
        relation_name=relation.name,
        table_oid=root.oid,
        table_schema=root.schema,
        table_name=root.name,
        replica_identity=relation.replica_identity,
        columns=_columns(relation, numbers, types, past, key),
        key_columns=key,
        unique_in_root=kept.unique_in_root if kept else _unique(relation, table, key),
        memberships=_memberships(table, past),
    )


def attnums(relation: Relation, table: CatalogTable | None) -> list[int | None]:
    """Of the message's columns, None where they are not certain.

    The source sends columns in their order without dropped ones; new ones are only ever added at the end.
    """
    if table is None:
        return [None] * len(relation.columns)
    certain = {(column.name, column.type_oid): column.attnum for column in table.live if column.settled}
    by_name = [certain.get((column.name, column.type_oid)) for column in relation.columns]
    if table.column_list or any(column.dropped and not column.settled for column in table.columns):
        return by_name
    generated = any(column.generated for column in table.live)
    for candidates in (
        [column for column in table.live if not column.generated],
        [column for column in table.live if column.generated != "v"],
    ):
        placed = _placed(relation, candidates, by_name, certain=table.publication_settled and not generated)
        if placed is not None:
            return placed
    return by_name


def _placed(
    relation: Relation, candidates: list[CatalogColumn], by_name: list[int | None], *, certain: bool
) -> list[int | None] | None:
    """The numbers of the first of these, where the message has just them; None where it may have others.

    `certain`: it has them under other names too, as far as those that are known by name agree.
    """
    names = [column.name for column in relation.columns]
    first = candidates[: len(names)]
    placed: list[int | None] = [column.attnum for column in first]
    same = [column.name for column in first] == names
    agrees = len(first) == len(names) and all(a in (None, b) for a, b in zip(by_name, placed, strict=False))
    return placed if same or (agrees and certain) else None


def _moved(relation: Relation, table: CatalogTable | None, past: TableVersion | None, *, again: bool) -> bool:
    """Whether the catalog does not say how the table was for the change."""
    if table is None:
        return True
    return _contradicts(relation, table) and (not again or past is None or _differs(past, relation))


def _contradicts(relation: Relation, table: CatalogTable) -> bool:
    """Whether the catalog contradicts the message, and so is later than it."""
    now = table.relation_schema, table.relation_name, table.replica_identity
    if now != (relation.schema, relation.name, relation.replica_identity):
        return True
    live = {(column.name, column.type_oid) for column in table.live}
    return not {(column.name, column.type_oid) for column in relation.columns} <= live


def _differs(past: TableVersion, relation: Relation) -> bool:
    """Whether something that the message says is why it came."""
    columns = [(column.name, column.type_oid, column.type_modifier) for column in past.columns]
    return (past.relation_schema, past.relation_name, past.replica_identity, columns) != (
        relation.schema,
        relation.name,
        relation.replica_identity,
        [(column.name, column.type_oid, column.type_modifier) for column in relation.columns],
    )


def _root_moved_on(table: CatalogTable | None, past: TableVersion | None) -> bool:
    """Whether the catalog says since after the transaction of which root a table is, or what that is called."""
    if past is None or table is None:
        return False
    if table.table_oid != past.table_oid:
        return table.altered_later or table.root_later
    return table.root_later or table.schema_later


def _root(relation: Relation, table: CatalogTable | None, kept: TableVersion | None) -> _Root:
    known = kept or table
    if known is None or known.table_oid == relation.oid:  # no partition: the message knows the name it had then
        return _Root(relation.oid, relation.schema, relation.name)
    return _Root(known.table_oid, known.table_schema, known.table_name)


def _unique(relation: Relation, table: CatalogTable | None, key: tuple[str, ...]) -> bool:
    """Whether a key names one row of the root: partitions may have keys that the root does not have."""
    if table is None or table.table_oid == relation.oid:
        return True
    return any(set(key).issuperset(each) for each in table.root_keys)


def _memberships(table: CatalogTable | None, past: TableVersion | None) -> tuple[int, ...]:
    """Those that were there for the change that is described: older than its transaction, or there before."""
    known = (past.memberships if past else None) or ()
    if table is None:
        return known
    return tuple(sorted(oid for oid, older in table.memberships if older or oid in known))


def _columns(
    relation: Relation,
    numbers: list[int | None],
    types: dict[int, tuple[str, int]],
    past: TableVersion | None,
    key: tuple[str, ...],
) -> tuple[Column, ...]:
    """Names of types that have been dropped since the history knows."""
    dropped = {each.type_oid: (each.type_name, each.base_type_oid) for each in (past.columns if past else ())}
    names = dropped | types
    return tuple(
        Column(
            column.name,
            column.type_oid,
            column.type_modifier,
            *names.get(column.type_oid, ("", column.type_oid)),
            key=column.name in key,
            attnum=attnum,
        )
        for column, attnum in zip(relation.columns, numbers, strict=True)
    )
