"""The relation history: every form a source table has had, from which LSN, kept with what rows need to be encoded."""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass, replace
from typing import Any

from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from pipeline.capture.schema_history.fingerprint import Fingerprint
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

MESSAGE_OID = 0
"""`table_oid` of logical messages, which belong to no table."""


@dataclass(frozen=True)
class Name:
    """What a column is called from the change at (`lsn`, `idx`) on."""

    name: str
    lsn: int
    idx: int


@dataclass(frozen=True)
class Column:
    """A column as published. `base_type_oid` is json or jsonb for domains over them, else the type's own oid.

    `attnum`: None where the catalog had moved on too far to say. `names`: under which names the log has the values
    that are still its own; the list begins anew where values from before no longer say what rows hold.
    """

    name: str
    type_oid: int
    type_modifier: int
    type_name: str
    base_type_oid: int
    key: bool
    attnum: int | None = None
    names: tuple[Name, ...] = ()


@dataclass(frozen=True)
class TableVersion:
    """A table as it was for the changes that follow a place in the history.

    `relation_*` is what the stream names; `table_*` its partition root, or the same. `key_columns` is the replica
    identity, with FULL the primary key, in column order of the root; empty when there is none. `unique_in_root`: no two
    rows of the root share a key. `memberships`: oids by which updates are published; when all are new, some were not.
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
    unique_in_root: bool | None = None
    memberships: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Known:
    """The newest form of a relation, its id in the history, and the fingerprint read for it, if any."""

    id: int
    form: TableVersion
    fingerprint: Fingerprint | None = None


@dataclass(frozen=True)
class Seen:
    """A table in the catalog as it is now. `version` changes with everything that may rewrite it."""

    oid: int
    version: str
    relation_schema: str
    table_oid: int
    root_schema: str | None
    root_name: str | None
    read_at: int

    def renamed(self, form: TableVersion) -> TableVersion:
        """The form under the names of schema and root that the source does not send: a table's own name it does."""
        schema = self.relation_schema
        return replace(
            form,
            relation_schema=schema,
            table_oid=self.table_oid,
            table_schema=schema if self.root_schema is None else self.root_schema,
            table_name=form.relation_name if self.root_name is None else self.root_name,
            unique_in_root=form.unique_in_root if self.table_oid == form.table_oid else None,
        )


def message_form(prefix: str) -> TableVersion:
    """Stands in for the table of a logical message: no schema, the prefix as its name."""
    return TableVersion(MESSAGE_OID, "", prefix, MESSAGE_OID, "", prefix, "n", (), ())


def latest(connection: Connection, source_id: uuid.UUID, epoch: int) -> dict[tuple[int, str], Known]:
    """The last known form of each relation, by oid and (for logical messages) name."""
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(
            statement("capture.schema_history", "latest_relations"), {"source": source_id, "epoch": epoch}
        ).fetchall()
    found = [_known(row) for row in rows]
    return {identity(known.form): known for known in found}


def find(connection: Connection, source_id: uuid.UUID, epoch: int, identity: tuple[int, str]) -> Known | None:
    """The last known form of this relation; None when there is none, and, until the transaction ends, will be none.

    That is for workers that read parts of a backlog side by side: only inside of a transaction.
    """
    connection.execute(statement("capture.schema_history", "lock_relations"), {"source": source_id})
    values = {"source": source_id, "epoch": epoch, "oid": identity[0], "name": identity[1]}
    with connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(statement("capture.schema_history", "find_relation"), values).fetchone()
    return None if row is None else _known(row)


def _known(row: dict[str, Any]) -> Known:
    relation_id, fingerprint = row.pop("id"), row.pop("fingerprint")
    since = row.pop("from_lsn"), row.pop("from_idx")
    return Known(relation_id, form_of(row, since), Fingerprint.from_json(fingerprint) if fingerprint else None)


def form_of(stored: dict[str, Any], since: tuple[int, int]) -> TableVersion:
    """A form from its fields as they are stored, lists for tuples; `since`: the place from which on it held."""
    columns = tuple(_column(column, since) for column in stored["columns"])
    memberships = None if stored["memberships"] is None else tuple(stored["memberships"])
    lists = {"columns": columns, "key_columns": tuple(stored["key_columns"]), "memberships": memberships}
    return TableVersion(**{**stored, **lists})


def _column(stored: dict[str, Any], since: tuple[int, int]) -> Column:
    """A table as it was published has no names yet: of what came before, nothing is known."""
    names = stored.pop("names") or [{"name": stored["name"], "lsn": since[0], "idx": since[1]}]
    return Column(**stored, names=tuple(Name(**name) for name in names))


def record(
    connection: Connection,
    source_id: uuid.UUID,
    epoch: int,
    form: TableVersion,
    since: tuple[int, int],
    fingerprint: Fingerprint | None = None,
) -> int:
    """Add a form to the history, `since` the (commit_lsn, commit_idx) of its first change.

    Returns its id, which staged rows refer to.
    """
    row = connection.execute(
        statement("capture.schema_history", "record_relation"),
        {
            **vars(replace(form, columns=())),
            "columns": Jsonb([asdict(column) for column in form.columns]),
            "key_columns": list(form.key_columns),
            "memberships": None if form.memberships is None else list(form.memberships),
            "fingerprint": Jsonb(fingerprint.to_json()) if fingerprint else None,
            "source": source_id,
            "epoch": epoch,
            "from_lsn": since[0],
            "from_idx": since[1],
        },
    ).fetchone()
    assert row is not None  # noqa: S101  insert … returning
    return int(row[0])


def store_fingerprint(connection: Connection, relation_id: int, fingerprint: Fingerprint) -> None:
    """The form holds on, and this is what was read for it last."""
    connection.execute(
        "update pipeline.relations set fingerprint = %s where id = %s", (Jsonb(fingerprint.to_json()), relation_id)
    )


def identity(form: TableVersion) -> tuple[int, str]:
    """What stays the same through every form of a relation."""
    return form.relation_oid, form.relation_name if form.relation_oid == MESSAGE_OID else ""
