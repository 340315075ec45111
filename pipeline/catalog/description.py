"""What the source's catalog adds to a Relation message. The catalog is as it is now, the message as it was."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import psycopg
from psycopg import Cursor
from psycopg.rows import dict_row

from pipeline import db
from pipeline.catalog.fingerprint import ColumnPrint, Fingerprint
from pipeline.catalog.keys import key_columns
from pipeline.catalog.relations import Column, Known, TableForm
from pipeline.db import Connection, sql
from pipeline.wal.messages import Relation, RelationColumn

_DROPPED_MEANWHILE = 3
_PATIENCE, _POLL = 5.0, 0.002
"""Seconds to wait for a transaction that was sent to be seen, and between two looks."""


@dataclass(frozen=True)
class Description:
    """A form whose columns have no `names` yet, and what was read of the table, None when it is gone."""

    form: TableForm
    fingerprint: Fingerprint | None


def describe(
    source: Connection,
    relation: Relation,
    slot: str,
    publications: Sequence[str],
    xid: int | None,
    before: Known | None,
    *,
    again: bool,
    made: Sequence[int] = (),
) -> Description:
    """Completes a Relation message: attnums, partition root, FULL's primary key, domains over json.

    `xid`: of the transaction that the change belongs to, None when unknown. `before`: what the history has of it, which
    wins over a catalog that has moved on. `again`: the message has come in this session already. `made`: oids of
    publications of ours, which have no column lists.
    """
    if xid is not None:
        _wait_until_visible(source, xid)
    values = {"oid": relation.oid, "slot": slot, "publications": list(publications), "xid": xid, "made": list(made)}
    facts, types = _read(source, relation, values)
    past = before.form if before else None
    moved = not facts or (_moved_on(relation, facts) and (not again or past is None or _differs(past, relation)))
    attnums = _attnums(relation, facts)
    root_of = past if moved or _root_moved_on(facts, past) else None
    root = _root(relation, facts, root_of)
    key = key_columns(relation, attnums, facts, past, root[0], moved=moved)
    kept = past if moved or facts["altered_later"] or (root_of and root[0] != facts["table_oid"]) else None
    form = TableForm(
        relation_oid=relation.oid,
        relation_schema=relation.schema,
        relation_name=relation.name,
        table_oid=root[0],
        table_schema=root[1],
        table_name=root[2],
        replica_identity=relation.replica_identity,
        columns=_columns(relation, attnums, types, past, key),
        key_columns=key,
        unique_in_root=kept.unique_in_root if kept else _unique(relation, facts, key),
        memberships=_memberships(facts, past),
    )
    return Description(form, _fingerprint(facts, attnums))


def _wait_until_visible(source: Connection, xid: int) -> None:
    """A transaction is sent at its commit record, and seen by others only later: after a synchronous standby, say."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        if (db.value(source, sql("catalog", "is_visible"), {"xid": xid})) or time.monotonic() > deadline:
            return
        time.sleep(_POLL)


def look(source: Connection, known: Known, slot: str) -> Description | None:
    """A table as the catalog has it now, whatever the stream has come to; None when it is gone."""
    columns = tuple(RelationColumn(column.key, column.name, column.type_oid, 0) for column in known.form.columns)
    form = known.form
    shown = Relation(form.relation_oid, form.relation_schema, form.relation_name, form.replica_identity, columns)
    facts, _ = _read(
        source, shown, {"oid": form.relation_oid, "slot": slot, "publications": [], "xid": None, "made": []}
    )
    if not facts:
        return None
    attnums = [column.attnum for column in form.columns if column.attnum is not None]
    last = max(attnums, default=0)
    live = [
        Column(column["name"], column["type_oid"], 0, "", column["type_oid"], False, column["attnum"])
        for column in facts["columns"]
        if not column["dropped"] and (column["attnum"] in attnums or (column["attnum"] > last and attnums))
    ]
    return Description(replace(form, columns=tuple(live)), _fingerprint(facts, [column.attnum for column in live]))


def present(
    source: Connection, oid: int, slot: str, publications: Sequence[str], made: Sequence[int]
) -> TableForm | None:
    """A table as a change of it would be described now; None when it is gone."""
    with source.transaction():
        source.execute("set local search_path = ''")  # names of types come out qualified
        row = source.execute(sql("catalog", "describe_sent"), {"oid": oid}).fetchone()
        if row is None:
            return None
        name, schema, identity, columns = row
        relation = Relation(oid, schema, name, identity, tuple(RelationColumn(*column) for column in columns))
        found = describe(source, relation, slot, publications, None, None, again=False, made=made)
    return found.form if found.fingerprint else None


def _read(
    source: Connection, relation: Relation, values: dict[str, Any]
) -> tuple[dict[str, Any], dict[int, tuple[str, int]]]:
    with source.cursor(row_factory=dict_row) as cursor:
        facts = _facts(cursor, values)
        oids = {"oids": [column.type_oid for column in relation.columns]}
        rows = cursor.execute(sql("catalog", "describe_types"), oids).fetchall()
    return facts, {row["oid"]: (row["type_name"], row["base_oid"]) for row in rows}


def _facts(cursor: Cursor[dict[str, Any]], values: dict[str, Any], again: int = _DROPPED_MEANWHILE) -> dict[str, Any]:
    try:
        return cursor.execute(sql("catalog", "describe_table"), values).fetchone() or {}
    except psycopg.errors.InternalError_:  # it was there for the snapshot, and gone for a function in it
        if not again:
            raise
        return _facts(cursor, values, again - 1)


def _moved_on(relation: Relation, facts: dict[str, Any]) -> bool:
    """Whether the catalog contradicts the message, and so is later than it."""
    if not facts:
        return True
    now = facts["relation_schema"], facts["relation_name"], facts["replica_identity"]
    if now != (relation.schema, relation.name, relation.replica_identity):
        return True
    live = {(column["name"], column["type_oid"]) for column in facts["columns"] if not column["dropped"]}
    return not {(column.name, column.type_oid) for column in relation.columns} <= live


def _root_moved_on(facts: dict[str, Any], past: TableForm | None) -> bool:
    """Whether the catalog says since after the transaction of which root a table is, or what that is called."""
    if past is None:
        return False
    if facts["table_oid"] != past.table_oid:
        return bool(facts["altered_later"] or facts["root_later"])
    return bool(facts["root_later"] or facts["schema_later"])


def _differs(past: TableForm, relation: Relation) -> bool:
    """Whether something that the message says is why it came."""
    columns = [(column.name, column.type_oid, column.type_modifier) for column in past.columns]
    return (past.relation_schema, past.relation_name, past.replica_identity, columns) != (
        relation.schema,
        relation.name,
        relation.replica_identity,
        [(column.name, column.type_oid, column.type_modifier) for column in relation.columns],
    )


def _root(relation: Relation, facts: dict[str, Any], kept: TableForm | None) -> tuple[int, str, str]:
    oid, schema, name = (
        (kept.table_oid, kept.table_schema, kept.table_name)
        if kept
        else (facts.get("table_oid", relation.oid), facts.get("table_schema"), facts.get("table_name"))
    )
    if oid == relation.oid or schema is None or name is None:  # no partition: the message knows the name it had then
        return relation.oid, relation.schema, relation.name
    return oid, schema, name


def _unique(relation: Relation, facts: dict[str, Any], key: tuple[str, ...]) -> bool:
    """Whether a key names one row of the root: partitions may have keys that the root does not have."""
    keys = facts.get("root_keys") or []
    return facts.get("table_oid", relation.oid) == relation.oid or any(set(key).issuperset(each) for each in keys)


def _memberships(facts: dict[str, Any], past: TableForm | None) -> tuple[int, ...]:
    """Those that were there for the change that is described: older than its transaction, or there before."""
    known = (past.memberships if past else None) or ()
    if not facts:
        return known
    return tuple(sorted(oid for oid, older in facts["memberships"] or [] if older or oid in known))


def _columns(
    relation: Relation,
    attnums: list[int | None],
    types: dict[int, tuple[str, int]],
    past: TableForm | None,
    key: tuple[str, ...],
) -> tuple[Column, ...]:
    """`types`: name and base type by oid; of those that have been dropped since, the history knows them."""
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
        for column, attnum in zip(relation.columns, attnums, strict=True)
    )


def _attnums(relation: Relation, facts: dict[str, Any]) -> list[int | None]:
    """The source sends columns in their order without dropped ones; new ones are only ever added at the end."""
    columns = facts.get("columns") or []
    live = [column for column in columns if not column["dropped"]]
    certain = {(column["name"], column["type_oid"]): column["attnum"] for column in live if column["settled"]}
    by_name = [certain.get((column.name, column.type_oid)) for column in relation.columns]
    if not facts or facts["column_list"] or any(column["dropped"] and not column["settled"] for column in columns):
        return by_name
    names = [column.name for column in relation.columns]
    generated = [column for column in live if column["generated"]]
    for candidates in (
        [column for column in live if not column["generated"]],
        [column for column in live if column["generated"] != "v"],
    ):
        first = candidates[: len(names)]
        placed = [column["attnum"] for column in first]
        same = [column["name"] for column in first] == names
        agrees = len(first) == len(names) and all(a in (None, b) for a, b in zip(by_name, placed, strict=False))
        if same or (agrees and facts["publication_settled"] and not generated):
            return placed
    return by_name


def _fingerprint(facts: dict[str, Any], attnums: list[int | None]) -> Fingerprint | None:
    if not facts:
        return None
    columns = {
        column["attnum"]: ColumnPrint(column["version"], column["settled"], column["missing"], column["filled"])
        for column in facts["columns"]
        if column["attnum"] in attnums
    }
    return Fingerprint(facts["file"], facts["file_settled"], facts["read_at"], columns)
