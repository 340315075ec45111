"""What the source's catalog adds to a Relation message. The catalog is as it is now, the message as it was."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipeline.capture.schema_history import catalog_table
from pipeline.capture.schema_history.completion import attnums, complete
from pipeline.capture.schema_history.fingerprint import Fingerprint
from pipeline.capture.schema_history.versions import Column, Known, TableVersion
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.wal.messages import Relation, RelationColumn

_PATIENCE, _POLL = 5.0, 0.002
"""Seconds to wait for a transaction that was sent to be seen, and between two looks."""


@dataclass(frozen=True)
class Description:
    """A form whose columns have no `names` yet, and what was read of the table, None when it is gone."""

    form: TableVersion
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
    table = catalog_table.read(source, relation.oid, slot, publications, xid, made)
    types = catalog_table.type_names(source, [column.type_oid for column in relation.columns])
    form = complete(relation, table, types, before.form if before else None, again=again)
    return Description(form, table.fingerprint(attnums(relation, table)) if table else None)


def _wait_until_visible(source: Connection, xid: int) -> None:
    """A transaction is sent at its commit record, and seen by others only later: after a synchronous standby, say."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        if (
            queries.value(source, statement("capture.schema_history", "is_visible"), {"xid": xid})
        ) or time.monotonic() > deadline:
            return
        time.sleep(_POLL)


def look(source: Connection, known: Known, slot: str) -> Description | None:
    """A table as the catalog has it now, whatever the stream has come to; None when it is gone."""
    form = known.form
    table = catalog_table.read(source, form.relation_oid, slot)
    if table is None:
        return None
    numbers = [column.attnum for column in form.columns if column.attnum is not None]
    last = max(numbers, default=0)
    live = [
        Column(column.name, column.type_oid, 0, "", column.type_oid, False, column.attnum)
        for column in table.live
        if column.attnum in numbers or (column.attnum > last and numbers)
    ]
    return Description(replace(form, columns=tuple(live)), table.fingerprint([column.attnum for column in live]))


def present(
    source: Connection, oid: int, slot: str, publications: Sequence[str], made: Sequence[int]
) -> TableVersion | None:
    """A table as a change of it would be described now; None when it is gone."""
    with source.transaction():
        source.execute("set local search_path = ''")  # names of types come out qualified
        row = source.execute(statement("capture.schema_history", "describe_sent"), {"oid": oid}).fetchone()
        if row is None:
            return None
        name, schema, identity, columns = row
        relation = Relation(oid, schema, name, identity, tuple(RelationColumn(*column) for column in columns))
        found = describe(source, relation, slot, publications, None, None, again=False, made=made)
    return found.form if found.fingerprint else None
