"""Rows of any schema version of a table as rows of its newest one.

While a fold works, the table's columns are called c0, c1, …, whatever their names, and `exact` is a map.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lake import layout
from lake.states.plan import STATE, BucketFile, Folding, Source, own
from pyspark_sequin_events.frame import struct
from pyspark_sequin_events.types import element, wider

_MARKS = "event_metadata"
_TEXTS = "map<string,string>"
_WHOLE = {
    "mode": "FAILFAST",
    "maxStringLen": str(2**31 - 1),
    "maxNumLen": str(2**31 - 1),
}
"""For `from_json`: by default it gives null for what cannot be parsed, and for strings of more than 20,000,000
characters and numbers of 1,000 (StreamReadConstraints of Jackson). More than 1,000 levels of nesting fail."""
CHANGE: Mapping[str, str] = {
    "seq": "bigint",
    "source_epoch": "int",
    "source_table_oid": "bigint",
    "action": "string",
    "committed_at": "timestamp",
    "record_pk": "string",
    "previous_record_pk": "string",
    "unchanged_columns": "array<string>",
    _MARKS: "string",
}
"""The columns that a fold needs of a change, besides those of its table."""


def column(number: int) -> str:
    """The name of the table's column with that number, during a fold."""
    return f"c{number}"


def changes(spark: SparkSession, root: Path, folding: Folding) -> DataFrame:
    """The changes of a fold: what CHANGE names, `exact`, and the table's columns."""
    frames = [_of_source(spark, root, source, folding) for source in folding.sources]
    if not frames:
        nothing = struct({**CHANGE, "exact": "string", **folding.columns})
        frames = [_unified(spark.createDataFrame([], nothing), folding.columns, folding.columns, CHANGE)]
    within = (F.col("seq") > folding.after) & (F.col("seq") <= folding.seq)
    return reduce(DataFrame.unionByName, frames).where(within).where(_has_content()).drop(_MARKS)


def _has_content() -> Column:
    """Whether a change says anything of its row: not the event in place of a dead letter, nor one retried too late."""
    parked, outdated = (F.get_json_object(_MARKS, f"$.{mark}").isNotNull() for mark in ("parked", "outdated"))
    of_row = F.col("action").isin("insert", "update", "read")
    return F.col(_MARKS).isNull() | ~((parked & of_row) | outdated)


def rows(
    spark: SparkSession, folder: Path, files: Iterable[BucketFile], had: Mapping[str, str], wanted: Mapping[str, str]
) -> DataFrame:
    """The rows of a state in `folder`: record_pk, seq, committed_at, `exact`, and the table's columns."""
    frame = _read(spark, {**STATE, **had}, (folder / file.name for file in files))
    return _unified(frame, had, wanted, ("record_pk", "seq", "committed_at"))


def _of_source(spark: SparkSession, root: Path, source: Source, folding: Folding) -> DataFrame:
    frame = _read(spark, source.columns, (root / path for path in source.paths))
    if not source.has_key:
        frame = frame.where(F.col("action") == "truncate")
    if source.schema_version == layout.UNTYPED:
        return from_record(frame, folding.columns)
    return _unified(frame, own(source.columns), folding.columns, CHANGE)


def _read(spark: SparkSession, columns: Mapping[str, str], paths: Iterable[Path]) -> DataFrame:
    literal = [re.sub(r"([\[\]{}*?\\])", r"\\\1", str(path)) for path in paths]
    return spark.read.schema(struct(columns)).option("datetimeRebaseMode", "CORRECTED").parquet(*literal)


def _unified(frame: DataFrame, had: Mapping[str, str], wanted: Mapping[str, str], ours: Iterable[str]) -> DataFrame:
    """The table's columns in the types of `wanted`. A value that does not fit is null, and its text is in `exact`."""
    exact = F.coalesce(F.from_json("exact", _TEXTS, _WHOLE), _no_texts())
    values: list[Column] = []
    texts: dict[str, Column] = {}
    kept: list[str] = []
    for number, (name, spark) in enumerate(wanted.items()):
        before = had.get(name)
        if before is None:
            value = F.lit(None).cast(spark)
        elif wider(before, spark) == spark:
            value = F.col(_quoted(name)).cast(spark)
            kept.append(name)
        else:
            text = F.coalesce(exact[name], _text(F.col(_quoted(name)), before))
            array = _elements(F.col(_quoted(name)), before, spark)
            value = _typed(text, spark) if array is None else array
            texts[name] = F.when(value.isNull(), text)
        values.append(value.alias(column(number)))
    if len(kept) < len(had):  # some columns were dropped, or have another type
        exact = with_texts(F.map_filter(exact, lambda name, _: name.isin(kept)), texts)
    return frame.select(*ours, exact.alias("exact"), *values)


def from_record(frame: DataFrame, wanted: Mapping[str, str]) -> DataFrame:
    """As `_unified`, for rows that are only stored as JSON text."""
    record = F.from_json("record", _TEXTS, _WHOLE)
    values = {name: _typed(record[name], spark) for name, spark in wanted.items()}
    texts = {name: F.when(value.isNull(), record[name]) for name, value in values.items()}
    columns = [value.alias(column(number)) for number, value in enumerate(values.values())]
    return frame.select(*CHANGE, with_texts(_no_texts(), texts).alias("exact"), *columns)


def with_texts(exact: Column, texts: Mapping[str, Column]) -> Column:
    """`exact` with one more entry for each text that is not null. It must have none of these names yet."""
    if not texts:
        return exact
    entries = [F.when(text.isNotNull(), F.struct(F.lit(name), text)) for name, text in texts.items()]
    return F.map_concat(exact, F.map_from_entries(F.array_compact(F.array(*entries))))


def _no_texts() -> Column:
    return F.create_map().cast(_TEXTS)


def _text(value: Column, spark: str) -> Column:
    """The value as Postgres prints it, exact enough to be cast back."""
    if inner := element(spark):
        texts = F.transform(value, lambda each: F.coalesce(_element_text(each, inner), F.lit("NULL")))
        return F.when(value.isNotNull(), F.concat(F.lit("{"), F.array_join(texts, ","), F.lit("}")))
    if spark == "binary":
        return F.concat(F.lit("\\x"), F.lower(F.hex(value)))
    if spark == "timestamp":
        return F.concat(value.cast("string"), F.lit("+00"))
    return value.cast("string")


def _element_text(value: Column, spark: str) -> Column:
    if spark != "string":
        return _text(value, spark)
    escaped = F.replace(F.replace(value, F.lit("\\"), F.lit("\\\\")), F.lit('"'), F.lit('\\"'))
    return F.concat(F.lit('"'), escaped, F.lit('"'))


def _typed(text: Column, spark: str) -> Column:
    """The text as a value of that type; null if it is not one."""
    if element(spark):
        return F.lit(None).cast(spark)
    if spark == "binary":
        return F.when(text.startswith("\\x"), F.unhex(F.substring(text, 3, 2**31 - 1)))
    return text.try_cast(spark)


def _elements(value: Column, before: str, after: str) -> Column | None:
    """An array as an array of another type, null unless all elements fit; None if one of the types is not an array."""
    old, new = element(before), element(after)
    if old is None or new is None:
        return None
    typed = F.transform(value, lambda each: _typed(_text(each, old), new))
    lost = F.exists(F.zip_with(value, typed, lambda a, b: a.isNotNull() & b.isNull()), lambda each: each)
    return F.when(~lost, typed)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
