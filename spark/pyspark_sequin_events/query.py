"""Writes the SQL of one short read: a range of seq, with the columns of one schema version in their own types.

COPY takes no parameters, so names and numbers are part of the text: identifiers and literals go through
`identifier` and `literal`, positions through `int`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyspark_sequin_events.history import OURS, HistoryPosition, SchemaVersion, VersionSpan
from pyspark_sequin_events.types import decimal, element

_CASTS = {
    "boolean": "boolean",
    "binary": "bytea",
    "int": "int4",
    "bigint": "int8",
    "float": "float4",
    "double": "float8",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
    "string": "text",
}
_LATE = "294(24[7-9]|2[5-7][0-9])-"
"""Matches a time that is too late for Parquet: its microseconds end in January 294247, Postgres's times in 294276."""

EVENTS: Mapping[str, str] = {
    "seq": "bigint",
    "source_database_id": "string",
    "source_epoch": "int",
    "commit_lsn": "bigint",
    "commit_idx": "int",
    "xid": "bigint",
    "source_table_oid": "bigint",
    "source_table_schema": "string",
    "source_table_name": "string",
    "record_pk": "string",
    "record": "string",
    "changes": "string",
    "exact": "string",
    "action": "string",
    "unchanged_columns": "array<string>",
    "transaction_annotations": "string",
    "metadata": "string",
    "committed_at": "timestamp",
    "inserted_at": "timestamp",
}
"""The columns of an event as they are in its table, with uuid and JSON as text."""
_AS_TEXT = frozenset(
    {"source_database_id", "record_pk", "record", "changes", "exact", "transaction_annotations", "metadata"}
)


def identifier(name: str) -> str:
    """Return a name quoted for SQL, whatever characters it has."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text as an SQL literal, whatever standard_conforming_strings is."""
    escaped = text.replace("'", "''")
    return "E'" + escaped.replace("\\", "\\\\") + "'" if "\\" in escaped else f"'{escaped}'"


def qualified(table: str) -> str:
    """Return `schema.table`, quoted."""
    schema, _, name = table.partition(".")
    return f"{identifier(schema)}.{identifier(name)}"


def events_query(events: str, wanted: Iterable[str] = EVENTS) -> str:
    """Return a query for all events, with these columns of EVENTS. It ends with conditions, so ` and seq …` can follow.

    `events`: the quoted name of the events table, or a relation with the columns of one.
    """
    columns = [f"{name}::text as {name}" if name in _AS_TEXT else name for name in wanted]
    return f"select {', '.join(columns)} from {events} where true"


def table_by_oid(source_id: str, epoch: int, oid: int) -> str:
    """Return the condition that a change is of this table, for an index. The text begins with ` and `."""
    source = literal(source_id)
    return f" and source_database_id = {source} and source_table_oid = {int(oid)} and source_epoch = {int(epoch)}"


def changes_query(
    events_table: str,
    schema: str,
    name: str,
    version: SchemaVersion,
    *,
    careful: bool = False,
    events: str | None = None,
    wanted: Sequence[str] | None = None,
    where: str = "",
) -> str:
    """Return a query for rows of tables of one name in one version: the columns of `version.schema`, or `wanted`.

    The text ends with its conditions, so ` and seq …` can follow. With `careful`, a value that its type cannot hold is
    null, and its text is in `exact`. Without `careful`, the reader must find such values (`reading._unfit`). Arrays are
    always read carefully: the driver drops their dimensions silently. `events`: as in `events_query`, instead of the
    table.
    """
    guarded = {
        column: _unfit(column, spark)
        for column, spark in version.columns.items()
        if column not in version.json and (careful or element(spark))
    }
    columns = _ours(_previous_key(version), _unchanged(version), _exact(guarded, version.names))
    for column, spark in version.columns.items():
        value = _json(column) if column in version.json else _typed(_text(column), spark, guarded.get(column))
        columns[version.names[column]] = f"{value} as {identifier(version.names[column])}"
    shown = ", ".join(columns.values() if wanted is None else (columns[each] for each in wanted))
    spans = " or ".join(within_span(span) for span in version.spans)
    conditions = f"{table_named(schema, name)}{where} and ({spans})"
    return f"select {shown} from {events or qualified(events_table)} where {conditions}"


def messages_query(events_table: str) -> str:
    """Return a query for logical messages: OURS, `prefix`, and the content as text or as bytes."""
    columns = [
        *_ours().values(),
        "source_table_name as prefix",
        "record->>'content' as content",
        "decode(record->>'content_base64', 'base64') as content_bytes",
    ]
    return f"select {', '.join(columns)} from {qualified(events_table)} where source_table_oid = 0"


def untyped_query(events_table: str, schema: str, name: str, versions: Sequence[SchemaVersion], where: str = "") -> str:
    """Return a query as `changes_query` does, for rows of none of these versions: OURS, and the record as JSON text."""
    known = " or ".join(within_span(span) for version in versions for span in version.spans) or "false"
    return (
        f"select {', '.join(_ours().values())}, record::text as record from {qualified(events_table)}"
        f" where {table_named(schema, name)}{where} and ({known}) is not true"
    )


def bounded(after: int, upto: int) -> str:
    """Return the condition after < seq <= upto."""
    return f"seq > {int(after)} and seq <= {int(upto)}"


def within(query: str, after: int, upto: int) -> str:
    """Return `query` for the rows with after < seq <= upto."""
    return f"{query} and {bounded(after, upto)}"


def in_range(query: str, after: int, upto: int, order: str = "seq") -> str:
    """Return `query` for the rows with after < seq <= upto, in order of seq or of `order`."""
    return f"{within(query, after, upto)} order by {order}"


def _ours(
    previous_key: str = "null::text", unchanged: str = "unchanged_columns", exact: str = "null::text"
) -> dict[str, str]:
    columns = {name: name for name in OURS} | {
        "previous_record_pk": previous_key,
        "unchanged_columns": unchanged,
        "transaction_annotations": "transaction_annotations::text",
        "event_metadata": "metadata::text",
        "exact": exact,
    }
    return {name: f"{expression} as {name}" for name, expression in columns.items()}


def table_named(schema: str, name: str) -> str:
    """Return the condition that an event is of the source table with this name."""
    return f"source_table_oid <> 0 and source_table_schema = {literal(schema)} and source_table_name = {literal(name)}"


def _text(column: str, of: str = "record") -> str:
    return f"{of}->>{literal(column)}"


def _json(column: str) -> str:
    """Return SQL for the source's own text. A JSON null is only in `exact`; a null in the record is an SQL NULL."""
    name = literal(column)
    return f"coalesce(exact->>{name}, nullif((record->{name})::text, 'null'))"


def _typed(text: str, spark: str, unfit: str | None) -> str:
    if spark == "string":
        return text
    inner = element(spark)
    cast = _CASTS.get(inner or spark, "numeric") + ("[]" if inner else "")
    value = f"({text})::{cast}"
    return f"case when {unfit} then null else {value} end" if unfit else value


def _unfit(column: str, spark: str) -> str | None:
    text = _text(column)
    inner = element(spark)
    tests = []
    if inner:
        tests += [f"{text} like '[%'", f"{text} like '{{{{%'"]
    of = inner or spark
    if of in ("date", "timestamp", "timestamp_ntz"):
        tests.append(f"{text} like '%infinity%'")
    if of in ("timestamp", "timestamp_ntz"):
        tests.append(f"{text} ~ '{_LATE}'")
    if decimal(of):
        tests.append(f"{text} like '%NaN%'" if inner else f"{text} = 'NaN'")
    return f"({' or '.join(tests)})" if tests else None


def _exact(guarded: dict[str, str | None], names: Mapping[str, str]) -> str:
    unfit = {column: test for column, test in guarded.items() if test}
    if not unfit:
        return "null::text"
    pairs = ", ".join(
        f"{literal(names[column])}, case when {test} then {_text(column)} end" for column, test in unfit.items()
    )
    return f"case when {' or '.join(unfit.values())} then jsonb_strip_nulls(jsonb_build_object({pairs}))::text end"


def _previous_key(version: SchemaVersion) -> str:
    """Return SQL for the record_pk before an update that changed it, by the key that the table had at that place."""
    keys: dict[tuple[str, ...], list[VersionSpan]] = {}
    for span in version.spans:
        keys.setdefault(span.key, []).append(span)
    if len(keys) == 1:
        return _previous_of(version, *keys)
    cases = " ".join(
        f"when {' or '.join(map(within_span, spans))} then {_previous_of(version, key)}" for key, spans in keys.items()
    )
    return f"case {cases} end"


def _previous_of(version: SchemaVersion, key: tuple[str, ...]) -> str:
    if not key:
        return "null::text"
    names = ", ".join(literal(column) for column in key)
    if len(key) == 1:
        before = _key_text(version, key[0], "changes", quoted=False)
    else:
        parts = [
            f"case when changes ? {literal(column)} then {_key_text(version, column, 'changes', quoted=True)} "
            f"else {_key_text(version, column, 'record', quoted=True)} end"
            for column in key
        ]
        before = "'[' || " + " || ',' || ".join(parts) + " || ']'"
    return f"case when action = 'update' and changes ?| array[{names}] then {_shortened(before)} end"


def _shortened(key: str) -> str:
    """Return SQL for a key as in record_pk: a key of more than 2,000 bytes becomes a digest."""
    digest = "'sha256:' || encode(sha256(convert_to(k, 'UTF8')), 'hex')"
    return f"(select case when octet_length(k) > 2000 then {digest} else k end from (select {key} as k) key)"


def _key_text(version: SchemaVersion, column: str, of: str, *, quoted: bool) -> str:
    """Return SQL for a column's text as in a key: jsonb writes a float without an exponent, the key with one."""
    name = literal(column)
    plain = f"({of}->{name})::text" if quoted else f"{of}->>{name}"
    if version.columns.get(column) == "boolean" and not quoted:
        return f"left({plain}, 1)"  # Postgres prints a boolean as t or f
    if version.columns.get(column) not in ("float", "double"):
        return plain
    cast = _CASTS[version.columns[column]]
    return f"case jsonb_typeof({of}->{name}) when 'number' then ({of}->>{name})::{cast}::text else {plain} end"


def _unchanged(version: SchemaVersion) -> str:
    expression = "unchanged_columns"
    for column, name in version.names.items():
        if name != column:
            expression = f"array_replace({expression}, {literal(column)}, {literal(name)})"
    return expression


def within_span(span: VersionSpan) -> str:
    """Return the condition that an event is in that part of a source's history."""
    parts = [f"source_database_id = {literal(span.source_id)}", "commit_lsn is not null"]
    for bound, comparison in ((span.since, ">="), (span.until, "<")):
        if bound is not None:
            parts.append(f"(source_epoch, commit_lsn, commit_idx) {comparison} {_row(bound)}")
    return f"({' and '.join(parts)})"


def _row(position: HistoryPosition) -> str:
    return f"({int(position.epoch)}, {int(position.lsn)}, {int(position.idx)})"
