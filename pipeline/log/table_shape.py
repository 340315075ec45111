"""Describe the relation with the name of an events table: its kind, its columns, and the rights of this user."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pipeline.errors import SchemaError
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.printable import identifier

if TYPE_CHECKING:
    from pipeline.log.table import EventsTable

FENCE = "one_writer_since_migration"
"""A constraint that every row of this server satisfies and no row of an older server does: the older server fails with
an error instead of mixing in its rows."""
REQUIRED: Mapping[str, str] = {
    "seq": "bigint",
    "source_database_id": "uuid",
    "source_table_oid": "bigint",
    "source_table_schema": "text",
    "source_table_name": "text",
    "record_pk": "text",
    "record": "jsonb",
    "changes": "jsonb",
    "action": "text",
    "committed_at": "timestamp with time zone",
    "inserted_at": "timestamp with time zone",
}
"""Columns that an events table of any age has."""
ADDED: Mapping[str, str] = {
    "source_epoch": "integer",
    "commit_lsn": "bigint",
    "commit_idx": "integer",
    "xid": "bigint",
    "exact": "jsonb",
    "unchanged_columns": "text[]",
    "transaction_annotations": "jsonb",
    "metadata": "jsonb",
}
"""Columns that were added since, with their types."""
COLUMNS = json.dumps({**REQUIRED, **ADDED})
"""The columns of an events table that the server created, with their types, as JSON."""
_OFTEN_NULL = ("changes", "exact", "unchanged_columns", "transaction_annotations", "metadata")
_SYNONYMS = {"character varying": "text"}
KINDS = {
    "v": "a view",
    "m": "a materialized view",
    "f": "a foreign table",
    "S": "a sequence",
    "i": "an index",
    "I": "an index",
    "c": "a type",
}
"""The values of pg_class.relkind, in words."""


@dataclass(frozen=True)
class _Column:
    name: str
    type: str
    not_null: bool
    has_default: bool
    identity: bool
    sequence: int | None


@dataclass(frozen=True)
class ExistingRelation:
    """A relation with the name of an events table. `kind`: pg_class.relkind. `user`: the user of this connection."""

    oid: int
    kind: str
    owner: str
    user: str
    is_owner: bool
    may_create: bool
    partitioned_by: str | None
    has_default: bool
    has_fence: bool
    columns: Mapping[str, _Column] = field(default_factory=dict)
    has_sequence: bool = False

    @property
    def lacks(self) -> list[str]:
        """The current columns that the table lacks."""
        return [name for name in ADDED if name not in self.columns]

    @property
    def is_current(self) -> bool:
        """True if the table needs no migration."""
        return not self.lacks and self.has_sequence


def describe_relation(connection: Connection, table: EventsTable) -> ExistingRelation | None:
    """Return the relation with this name; None if there is none. Changes nothing, locks nothing."""
    values = {"table": table.identifier.as_string(connection), "fence": FENCE}
    found = queries.one(connection, ExistingRelation, statement("log", "describe_table"), values)
    if found is None:
        return None
    rows = queries.rows(connection, _Column, statement("log", "list_columns"), {"oid": found.oid})
    columns = {row.name: row for row in rows}
    sequence = queries.value(connection, "select to_regclass(%s)::oid::bigint", [table.sequence.as_string(connection)])
    seq = columns.get("seq")
    has_sequence = bool(seq and not seq.identity and sequence is not None and seq.sequence == sequence)
    return ExistingRelation(**{**vars(found), "columns": columns, "has_sequence": has_sequence})


def refuse_unfit(found: ExistingRelation, table: EventsTable) -> None:
    """Raise SchemaError if this user cannot make the relation an events table. Changes nothing."""
    if found.kind not in ("r", "p"):
        raise SchemaError(
            f"{table} is {KINDS.get(found.kind, 'no table')}, not an events table; "
            "name another in PIPELINE_EVENTS_TABLE, or rename that one"
        )
    wrong = list(_defects(found))
    if wrong:
        raise SchemaError(
            f"{table} exists and is not an events table that this server can write: {'; '.join(wrong)}; "
            "fix that, or name another in PIPELINE_EVENTS_TABLE"
        )
    if found.is_current:
        return
    if not found.is_owner:
        raise SchemaError(
            f'{table} is from an older version and belongs to "{found.owner}", so user "{found.user}" cannot migrate '
            f"it; run as a superuser or as {found.owner}: grant {identifier(found.owner)} to {identifier(found.user)}"
        )
    if not found.may_create:
        raise SchemaError(
            f'user "{found.user}" may not create a sequence in the schema of {table}; run as its owner: '
            f"grant create on schema {identifier(table.schema)} to {identifier(found.user)}"
        )


def _defects(found: ExistingRelation) -> Iterator[str]:
    """Yield the reasons why the server's rows cannot be written to the table, in plain words."""
    columns = found.columns
    missing = [name for name in REQUIRED if name not in columns]
    if missing:
        yield f"it has no column {', '.join(missing)}"
    for column in columns.values():
        yield from _column_defects(column)
    by = found.partitioned_by
    if by and not by.startswith(("RANGE (seq)", "RANGE (committed_at)", "HASH")) and not found.has_default:
        yield f"it is partitioned by {by} without a default partition, so some events would have no partition"


def _column_defects(column: _Column) -> Iterator[str]:
    expected = REQUIRED.get(column.name, ADDED.get(column.name))
    if expected is None:
        if column.not_null and not column.has_default:
            yield f"column {column.name} is not null and has no default"
        return
    if _SYNONYMS.get(column.type, column.type) != expected:
        yield f"column {column.name} is {column.type} where {expected} is expected"
    if column.name in _OFTEN_NULL and column.not_null:
        yield f"column {column.name} is not null, but events may leave it null"
