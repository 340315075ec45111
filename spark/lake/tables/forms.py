"""Reads the forms of tables from the relation history: names, columns and key, from a place in the WAL on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lake.ledger import LakeLedger, bigints
from lake.storage import layout
from pyspark_sequin_events.history import JSON_OIDS, SchemaVersion
from pyspark_sequin_events.types import spark_type


@dataclass(frozen=True, order=True)
class ReplicationPlace:
    """A place in all replicated changes. `source`: the source's number, in the order in which sources were added."""

    source: int
    epoch: int
    lsn: int
    idx: int


@dataclass(frozen=True)
class FormColumn:
    """A column of a form. `attnum`: None if it is not certain. `type`: as in Spark's DDL.

    `continues`: True if the log's older values under that name are known to be this column's; None: not recorded.
    """

    name: str
    attnum: int | None
    type: str
    type_oid: int
    type_modifier: int
    base_type_oid: int
    continues: bool | None

    @property
    def is_json(self) -> bool:
        """True if the column's values are embedded in the record as JSON."""
        return self.base_type_oid in JSON_OIDS


@dataclass(frozen=True)
class LakeTableForm:
    """The form of a table from `place` on. `relation_oid`: the table, or the partition whose changes had this form.

    `id`: the row of pipeline.relations. `key`: names of the key's columns, in the order of `record_pk`.
    """

    id: int
    source_id: str
    place: ReplicationPlace
    relation_oid: int
    table_oid: int
    schema: str
    name: str
    columns: tuple[FormColumn, ...]
    key: tuple[str, ...]

    @property
    def dataset(self) -> str:
        """The name of the table in the lake."""
        return layout.dataset(self.schema, self.name)

    @property
    def file_names(self) -> Mapping[str, str]:
        """Name at the source → name in files: our columns' names are reserved, and some readers ignore case."""
        columns = {column.name: column.type for column in self.columns}
        return SchemaVersion(1, columns, frozenset(), self.key).names


@dataclass(frozen=True)
class SourceServer:
    """The server that a source was in an epoch. LSNs and oids have one meaning only on one server."""

    system_identifier: str
    timeline: int | None


_FORMS = """
    select r.id, r.source_id::text, r.epoch, r.from_lsn, r.from_idx, r.relation_oid, r.table_oid, r.table_schema,
        r.table_name, r.columns::text, to_json(r.key_columns)::text as key
    from pipeline.relations r
    where r.table_oid <> 0 and (
        r.table_oid = any($1::text::bigint[])
        or (r.table_schema, r.table_name) in (
            select n ->> 0, n ->> 1 from json_array_elements($2::text::json) n
        )
    )
"""


def read_forms(ledger: LakeLedger, oids: Iterable[int], names: Iterable[tuple[str, str]]) -> list[LakeTableForm]:
    """Read all forms of these tables, of all that ever had these names, and of all that shared a name with them."""
    asked_oids, asked_names = set(oids), set(names)
    sources = _sources(ledger)
    while True:
        parameters = bigints(asked_oids), json.dumps(sorted(asked_names))
        rows = ledger.rows(_FORMS, parameters)
        all_oids = asked_oids | {row["table_oid"] for row in rows}
        all_names = asked_names | {(row["table_schema"], row["table_name"]) for row in rows}
        if (all_oids, all_names) == (asked_oids, asked_names):
            return sorted((_form(row, sources) for row in rows), key=lambda form: (form.place, form.id))
        asked_oids, asked_names = all_oids, all_names


def servers(ledger: LakeLedger) -> dict[tuple[str, int], SourceServer]:
    """Return the server of each epoch of each source."""
    rows = ledger.rows("select source_id::text, epoch, system_identifier, timeline from pipeline.epochs")
    return {(row["source_id"], row["epoch"]): SourceServer(row["system_identifier"], row["timeline"]) for row in rows}


def _sources(ledger: LakeLedger) -> Mapping[str, int]:
    rows = ledger.rows("select id::text from pipeline.sources order by created_at, id")
    return {row["id"]: number for number, row in enumerate(rows)}


def _form(row: Mapping[str, Any], sources: Mapping[str, int]) -> LakeTableForm:
    return LakeTableForm(
        row["id"],
        row["source_id"],
        ReplicationPlace(sources[row["source_id"]], row["epoch"], row["from_lsn"], row["from_idx"]),
        row["relation_oid"],
        row["table_oid"],
        row["table_schema"],
        row["table_name"],
        _columns(json.loads(row["columns"]), (row["from_lsn"], row["from_idx"])),
        tuple(json.loads(row["key"])),
    )


def _columns(columns: Sequence[Mapping[str, Any]], since: tuple[int, int]) -> tuple[FormColumn, ...]:
    names = [column.get("names") for column in columns]
    return tuple(
        FormColumn(
            column["name"],
            column.get("attnum"),
            spark_type(column["type_oid"], column["type_modifier"], column["type_name"]),
            column["type_oid"],
            column["type_modifier"],
            column["base_type_oid"],
            (called[0]["lsn"], called[0]["idx"]) < since if called else None,
        )
        for column, called in zip(columns, names, strict=True)
    )
