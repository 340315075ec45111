"""The relation history: every form a source table has had, from which LSN, kept with what rows need to be encoded."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace

from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from pipeline.db import Connection, sql
from pipeline.wal.messages import Relation

MESSAGE_OID = 0
"""`table_oid` of logical messages, which belong to no table."""


@dataclass(frozen=True)
class Column:
    """A column as published. `base_type_oid` is json or jsonb for domains over them, else the type's own oid."""

    name: str
    type_oid: int
    type_modifier: int
    type_name: str
    base_type_oid: int
    key: bool


@dataclass(frozen=True)
class TableForm:
    """A table as it was for the changes that follow a place in the history.

    `relation_*` is what the stream names; `table_*` its partition root, or the same. `key_columns` is the replica
    identity, with FULL the primary key, in column order of the root; empty when there is none.
    """

    relation_oid: int
    relation_schema: str
    relation_name: str
    table_oid: int
    table_schema: str
    table_name: str
    replica_identity: str
    columns: tuple[Column, ...]
    key_columns: tuple[str, ...]


def describe(source: Connection, relation: Relation) -> TableForm:
    """What the source's catalog adds to a Relation message: partition root, FULL's primary key, domains over json.

    The catalog is as it is now, the message as it was: what has been dropped since falls back on the message.
    """
    with source.cursor(row_factory=dict_row) as cursor:
        facts = cursor.execute(sql("catalog", "describe_table"), {"oid": relation.oid}).fetchone() or {}
        types = {
            row["oid"]: row
            for row in cursor.execute(
                sql("catalog", "describe_types"), {"oids": [column.type_oid for column in relation.columns]}
            )
        }
    flagged = [column.name for column in relation.columns if column.key]
    key = (facts.get("primary_key") or []) if relation.replica_identity == "f" else flagged
    if facts.get("table_oid") == relation.oid:  # no partition: the message knows the name it had then
        facts.update(table_schema=relation.schema, table_name=relation.name)
    order = {name: position for position, name in enumerate(facts.get("column_order") or [])}
    return TableForm(
        relation_oid=relation.oid,
        relation_schema=relation.schema,
        relation_name=relation.name,
        table_oid=facts.get("table_oid") or relation.oid,
        table_schema=facts.get("table_schema") or relation.schema,
        table_name=facts.get("table_name") or relation.name,
        replica_identity=relation.replica_identity,
        columns=tuple(
            Column(
                name=column.name,
                type_oid=column.type_oid,
                type_modifier=column.type_modifier,
                type_name=types[column.type_oid]["type_name"] if column.type_oid in types else "",
                base_type_oid=types[column.type_oid]["base_oid"] if column.type_oid in types else column.type_oid,
                key=column.name in key,
            )
            for column in relation.columns
        ),
        key_columns=tuple(sorted(key, key=lambda name: order.get(name, len(order)))),
    )


def message_form(prefix: str) -> TableForm:
    """Stands in for the table of a logical message: no schema, the prefix as its name."""
    return TableForm(MESSAGE_OID, "", prefix, MESSAGE_OID, "", prefix, "n", (), ())


def latest(connection: Connection, source_id: uuid.UUID, epoch: int) -> dict[tuple[int, str], tuple[int, TableForm]]:
    """The last known form of each relation with its id, by oid and (for logical messages) name."""
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(sql("catalog", "latest_relations"), {"source": source_id, "epoch": epoch}).fetchall()
    known = {}
    for row in rows:
        relation_id = row.pop("id")
        row["columns"] = tuple(Column(**column) for column in row["columns"])
        row["key_columns"] = tuple(row["key_columns"])
        form = TableForm(**row)
        known[identity(form)] = (relation_id, form)
    return known


def record(connection: Connection, source_id: uuid.UUID, epoch: int, form: TableForm, since: tuple[int, int]) -> int:
    """Add a form to the history, `since` the (commit_lsn, commit_idx) of its first change.

    Returns its id, which staged rows refer to.
    """
    row = connection.execute(
        sql("catalog", "record_relation"),
        {
            **vars(replace(form, columns=())),
            "columns": Jsonb([vars(column) for column in form.columns]),
            "key_columns": list(form.key_columns),
            "source": source_id,
            "epoch": epoch,
            "from_lsn": since[0],
            "from_idx": since[1],
        },
    ).fetchone()
    assert row is not None  # noqa: S101  insert … returning
    return int(row[0])


def identity(form: TableForm) -> tuple[int, str]:
    """What stays the same through every form of a relation."""
    return form.relation_oid, form.relation_name if form.relation_oid == MESSAGE_OID else ""
