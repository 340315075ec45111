"""Selects table, schema version, rows and columns of a read, and writes the SQL for a range of seq."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql.types import StructType

from pyspark_sequin_events.conditions import option_conditions
from pyspark_sequin_events.frame import spark_schema
from pyspark_sequin_events.history import SchemaVersion
from pyspark_sequin_events.options import SourceOptions
from pyspark_sequin_events.query import EVENTS, changes_query, events_query, qualified
from pyspark_sequin_events.reading import RangeRead

_SPLIT_COLUMNS: Mapping[str, str] = {
    "action": "case part when 1 then 'delete' when 2 then 'insert' else e.action end",
    "record_pk": "case part when 1 then old.record_pk else e.record_pk end",
    "record": "case part when 1 then old.record else e.record end",
    "changes": "case part when 0 then e.changes end",
    "exact": "case part when 1 then null else e.exact end",
    "unchanged_columns": "case part when 1 then null else e.unchanged_columns end",
}
_VERSIONS = """
    select r.source_id, r.epoch, r.table_oid, r.key_columns, r.columns, r.from_lsn, r.from_idx,
        lead(r.from_lsn) over w as until_lsn, lead(r.from_idx) over w as until_idx
    from pipeline.relations r
    window w as (partition by r.source_id, r.epoch, r.table_oid order by r.from_lsn, r.from_idx, r.id)"""
KEY_OF_RECORD = """
    select (case when octet_length(whole.key) > 2000
            then 'sha256:' || encode(sha256(convert_to(whole.key, 'UTF8')), 'hex') else whole.key end) collate "C"
            as record_pk,
        whole.record
    from (
        select case when count(*) = 1 then min(part.plain) else '[' || string_agg(part.json, ',' order by n) || ']' end
                as key,
            jsonb_object_agg(name, as_json) as record
        from unnest({names}) with ordinality key (name, n)
        cross join lateral (select {record} -> name as as_json, {record} ->> name as as_text) written
        cross join lateral (
            select (c ->> 'base_type_oid')::bigint as oid from jsonb_array_elements({columns}) c
            where c ->> 'name' = name limit 1
        ) type
        cross join lateral (
            select case when jsonb_typeof(as_json) <> 'number' then null
                when type.oid = 700 then as_text::float4::text
                when type.oid = 701 then as_text::float8::text end as as_float
        ) printed
        cross join lateral (
            select coalesce(as_float, as_json::text) as json,
                case when as_float is not null then as_float
                    when type.oid = 16 then left(as_text, 1)
                    when type.oid = 3802 then as_json::text
                    else as_text end as plain
        ) part
    ) whole"""
"""SQL for the record_pk of a row of `record` (jsonb), as the server's pipeline/log/sql/key_of_record.sql makes it.

This package is installed without the server, so it has its own copy; a test compares the two over all types.
"""
_OLD_KEY = """select made.record_pk, made.record from ({}) made where made.record_pk <> e.record_pk""".format(
    KEY_OF_RECORD.format(
        record="(e.record || e.changes)",
        names="case when e.changes ?| f.key_columns then f.key_columns end",
        columns="f.columns",
    )
)
KEY_CHANGE_ORDER = "seq, part"
"""The order of the rows: a delete comes before the insert with the same seq."""


@dataclass(frozen=True)
class ChosenTable:
    """A source table, by schema and name, in one schema version."""

    schema: str
    name: str
    version: SchemaVersion

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True)
class ReadSelection:
    """Rows of an events table. `chosen`: the source table; None: all source tables, with events as they are.

    `conditions`: SQL that holds for each row. `columns`: the columns to read; None: all. `split`: an update of a key
    becomes a delete and an insert.
    """

    dsn: str
    events_table: str
    chosen: ChosenTable | None
    conditions: tuple[str, ...]
    columns: tuple[str, ...] | None
    split: bool

    @classmethod
    def from_options(cls, options: SourceOptions, chosen: ChosenTable | None) -> ReadSelection:
        """Make the selection that the options describe. Raises ValueError for unknown columns."""
        if chosen is not None:
            options.refuse("tables", because="cannot be combined with option table")
        names = options.names("columns")
        conditions = option_conditions(
            options.names("tables"), options.names("actions"), options.names("keys", only_json=True)
        )
        found = cls(options.dsn, options.events_table, chosen, conditions, None, options.flag("splitKeyChanges"))
        return found if names is None else found.with_columns(names)

    @property
    def every_column(self) -> Mapping[str, str]:
        """Name → type of all columns that can be read."""
        return self.chosen.version.schema if self.chosen else EVENTS

    @property
    def schema(self) -> Mapping[str, str]:
        """Name → type of the columns that are read."""
        every = self.every_column
        return every if self.columns is None else {name: every[name] for name in self.columns}

    def with_columns(self, columns: tuple[str, ...]) -> ReadSelection:
        """Return the selection with these columns, in this order. Raises ValueError for an unknown column."""
        wrong = [name for name in columns if name not in self.every_column]
        if wrong or not columns:
            raise ValueError(
                f"sequin_events: there is no column {next(iter(wrong), '')!r}; there are {', '.join(self.every_column)}"
            )
        return replace(self, columns=columns)

    def for_schema(self, schema: StructType) -> ReadSelection:
        """Return the selection with the columns of the user's schema. Raises ValueError for wrong names or types."""
        found = self.with_columns(tuple(schema.fieldNames()))
        for ours, theirs in zip(spark_schema(found.schema).fields, schema.fields, strict=True):
            if ours.dataType.simpleString() != theirs.dataType.simpleString():
                raise ValueError(
                    f"sequin_events: column {ours.name} is {ours.dataType.simpleString()}, and not "
                    f"{theirs.dataType.simpleString()} as the given schema says; cast it after reading"
                )
        return found

    def where(self, *more: str) -> ReadSelection:
        """Return the selection with further conditions."""
        return replace(self, conditions=(*self.conditions, *more))

    def range_read(self, after: int, upto: int) -> RangeRead:
        """Return the read of a range of the selection."""
        careful = self._query(careful=True)
        plain = self.split or "seq" not in self.schema
        query = careful if plain else self._query(careful=False)
        order = KEY_CHANGE_ORDER if self.split else "seq"
        return RangeRead(self.dsn, query, careful, self.schema, after, upto, order)

    def _query(self, *, careful: bool) -> str:
        events = qualified(self.events_table)
        if self.split:
            events = split_key_changes(events, EVENTS)
        if self.chosen is None:
            query = events_query(events, tuple(self.schema))
        else:
            of = (self.events_table, self.chosen.schema, self.chosen.name, self.chosen.version)
            query = changes_query(*of, careful=careful, events=events, wanted=tuple(self.schema))
        return query + "".join(f" and {condition}" for condition in self.conditions)


def split_key_changes(events: str, columns: Mapping[str, str]) -> str:
    """Return SQL for a relation with these columns of an events table, whose quoted name is `events`, and `part`.

    The record of the delete has only the columns of the key at that time, which the relation history knows. The text of
    a key is as pipeline/wal/record_key.py writes it.
    """
    shown = ", ".join(f"{_SPLIT_COLUMNS.get(name, f'e.{name}')} as {name}" for name in columns)
    return f"""(
    select {shown}, part
    from {events} e
    left join ({_VERSIONS}) f on e.action = 'update' and e.changes is not null
        and f.source_id = e.source_database_id and f.epoch = e.source_epoch and f.table_oid = e.source_table_oid
        and (e.commit_lsn, e.commit_idx) >= (f.from_lsn, f.from_idx)
        and (f.until_lsn is null or (e.commit_lsn, e.commit_idx) < (f.until_lsn, f.until_idx))
    left join lateral ({_OLD_KEY}) old on true
    cross join lateral unnest(case when old.record_pk is null then array[0] else array[1, 2] end) as parts (part)
) split"""
