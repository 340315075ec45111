"""Makes the record_pk of rows of a state from their values: after a change of the key, no event has the new record_pk.

The text is the one that pipeline/wal/record_key.py makes when a row is written, so that later changes find the row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from lake.errors import UnclearHistoryError
from lake.states import schema_cast
from lake.tables.columns import NumberedForm
from lake.tables.forms import FormColumn

LONGEST_KEY = 2_000
"""The most bytes of a key; a digest replaces a longer text."""
BOOL, BPCHAR, JSONB, NUMERIC = 16, 1042, 3802, 1700
_NUMBERS = {20, 21, 23, 26, NUMERIC}
Text = Callable[[Any], str]


def rekey_rows(rows: DataFrame, form: NumberedForm) -> DataFrame:
    """Return the rows with the record_pk that their values make under the key of `form`.

    Raises UnclearHistoryError if this module cannot print a type of the key, or if two rows share a key, which
    means that the state lacks changes. Spark reads the values of a row when it evaluates the frame.
    """
    key = key_function(form)
    numbers = [form.numbers[name] for name in form.form.key]
    made = arrow_udf(key, "string")  # type: ignore[call-overload]  # the stub knows no functions of a varying number of columns
    columns = [F.col(schema_cast.column(number)) for number in numbers]
    with_key = rows.withColumn("record_pk", made(F.col("exact"), *columns)).persist()
    if shared := with_key.groupBy("record_pk").count().where("count > 1").take(1):
        raise UnclearHistoryError(_shared_key_message(form, shared[0][0]))
    return with_key


def require_distinct(keys: pa.Array, form: NumberedForm) -> None:
    """Raise UnclearHistoryError if two rows share a key."""
    counts = pc.value_counts(keys)
    shared = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
    if len(shared):
        raise UnclearHistoryError(_shared_key_message(form, shared[0].as_py()))


def key_function(form: NumberedForm) -> Callable[..., pa.Array]:
    """Return a function that makes record_pk of `exact` (maps, by the fold's names) and of the key's columns."""
    types = {column.name: column for column in form.form.columns}
    key = [types[name] for name in form.form.key]
    names = [schema_cast.column(form.numbers[column.name]) for column in key]
    texts = [_text(column, form) for column in key]
    is_json = [column.type_oid in _NUMBERS | {BOOL} or column.is_json for column in key]
    unknown = f"{form.table} has rows whose new key ({', '.join(form.form.key)}) is not known; {form.remedy}"

    def made(exact: pa.Array, *columns: pa.Array) -> pa.Array:
        return pa.array(list(_keys(exact, columns)), pa.string())

    def _keys(exact: pa.Array, columns: tuple[pa.Array, ...]) -> Iterator[str]:
        for other, *values in zip(exact.to_pylist(), *(column.to_pylist() for column in columns), strict=True):
            held: Mapping[str, str] = dict(other or ())
            parts = []
            for name, value, text, plain in zip(names, values, texts, is_json, strict=True):
                if value is None and name not in held:
                    raise UnclearHistoryError(unknown)
                found = held[name] if value is None else text(value)
                parts.append(found if plain and found[-1:] != "N" else json.dumps(found, ensure_ascii=False))
                single = found
            key = single if len(parts) == 1 else f"[{','.join(parts)}]"
            yield key if len(key.encode()) <= LONGEST_KEY else f"sha256:{sha256(key.encode()).hexdigest()}"

    return made


def _text(column: FormColumn, form: NumberedForm) -> Text:
    """Return a function that prints a value of the column in a key as Postgres does."""
    if column.type == "boolean":
        return (lambda value: "t" if value else "f") if len(form.form.key) == 1 else (lambda value: str(value).lower())
    if column.type in ("int", "bigint"):
        return str
    if column.type.startswith("decimal"):
        return _decimal
    if column.type == "string":
        return str
    if column.type == "binary":
        return lambda value: "\\x" + value.hex()
    if column.type == "date":
        return date.isoformat
    if column.type in ("timestamp", "timestamp_ntz"):
        return _zoned if column.type == "timestamp" else _local
    raise UnclearHistoryError(
        f"a key of type {column.type} cannot be computed from values ({column.name} of {form.table}); {form.remedy}"
    )


def _decimal(value: Decimal) -> str:
    return f"{value:f}"


def _local(value: datetime) -> str:
    text = value.replace(tzinfo=None).isoformat(sep=" ")
    return text.rstrip("0") if "." in text else text


def _zoned(value: datetime) -> str:
    return _local(value) + "+00"


def _shared_key_message(form: NumberedForm, key: str) -> str:
    return f"{form.table} has rows that share the key {key}; {form.remedy}"
