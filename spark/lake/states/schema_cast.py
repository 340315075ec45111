"""Converts rows of any form of a table to rows of one form.

During a fold, the table's columns are named c0, c1, … after their numbers, also in `unchanged_columns` and in `exact`,
which is a map.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lake.states import object_frames
from lake.states.plan import STATE, BucketFile, ChangeReading, ChangeSource, PlannedFold, own_columns
from lake.states.plan import StateColumn as TableColumn
from lake.storage import layout
from lake.storage.where import LakePath, ObjectPath
from lake.tables.forms import ReplicationPlace
from pyspark_sequin_events.frame import spark_schema
from pyspark_sequin_events.types import element, wider

_MARKS, _UNCHANGED, _PLACE = "event_metadata", "unchanged_columns", ("commit_lsn", "commit_idx")
_TEXTS = "map<string,string>"
_WHOLE = {
    "mode": "FAILFAST",
    "maxStringLen": str(2**31 - 1),
    "maxNumLen": str(2**31 - 1),
}
"""Options for `from_json`: fail on text that cannot be parsed, and accept strings and numbers of any length.

By default, `from_json` returns null for such text, for strings of more than 20,000,000 characters, and for numbers of
more than 1,000 (StreamReadConstraints of Jackson). More than 1,000 levels of nesting fail.
"""
CHANGE: Mapping[str, str] = {
    "seq": "bigint",
    "source_epoch": "int",
    "source_table_oid": "bigint",
    "action": "string",
    "committed_at": "timestamp",
    "record_pk": "string",
    "previous_record_pk": "string",
    _UNCHANGED: "array<string>",
    _MARKS: "string",
    "commit_lsn": "bigint",
    "commit_idx": "int",
}
"""The columns that a fold needs of a change, besides those of its table."""


def column(number: int) -> str:
    """Return the name of the table's column with that number, during a fold."""
    return f"c{number}"


def read_changes(spark: SparkSession, root: LakePath, folding: PlannedFold) -> DataFrame:
    """Return the changes of a fold: the columns of CHANGE, `exact`, and the table's columns."""
    frames = [frame for source in folding.sources for frame in _of_source(spark, root, source, folding)]
    if not frames:
        nothing = spark_schema({**CHANGE, "exact": "string"})
        frames = [_unified(spark.createDataFrame([], nothing), {}, {}, folding.columns, CHANGE)]
    return reduce(DataFrame.unionByName, frames).drop(_MARKS, *_PLACE)


def _has_content() -> Column:
    """Return a condition: false for the event in place of a dead letter, and for an event that was retried too late."""
    parked, outdated = (F.get_json_object(_MARKS, f"$.{mark}").isNotNull() for mark in ("parked", "outdated"))
    of_row = F.col("action").isin("insert", "update", "read")
    return F.col(_MARKS).isNull() | ~((parked & of_row) | outdated)


def read_rows(
    spark: SparkSession,
    folder: LakePath,
    files: Iterable[BucketFile],
    had: Sequence[TableColumn],
    wanted: Sequence[TableColumn],
) -> DataFrame:
    """Return rows of a state in `folder`, with columns `had`: record_pk, seq, committed_at, `exact`, the table's."""
    types = {each.name: each.type for each in had}
    frame = _read(spark, {**STATE, **types}, (folder / file.name for file in files))
    numbers = {each.name: each.number for each in had}
    return _unified(frame, types, numbers, wanted, ("record_pk", "seq", "committed_at"))


def retype_rows(rows: DataFrame, had: Sequence[TableColumn], wanted: Sequence[TableColumn]) -> DataFrame:
    """Return rows of a fold, whose columns are `had`, with the columns `wanted`."""
    frame = rows.withColumn("exact", F.when(F.size("exact") > 0, F.to_json("exact")))
    types = {column(each.number): each.type for each in had}
    numbers = {column(each.number): each.number for each in had}
    return _unified(frame, types, numbers, wanted, ("record_pk", "seq", "committed_at"))


def _of_source(spark: SparkSession, root: LakePath, source: ChangeSource, folding: PlannedFold) -> Iterator[DataFrame]:
    of_table = [(F.col("source_epoch") == epoch) & (F.col("source_table_oid") == oid) for epoch, oid in source.tables]
    in_range = (F.col("seq") > folding.after) & (F.col("seq") <= folding.seq)
    for reading in source.readings:
        frame = _read(spark, source.columns, (root / path for path in source.paths))
        frame = frame.where(reduce(or_, of_table)).where(in_range & _between(reading)).where(_has_content())
        if reading.refused:
            frame = frame.where(F.raise_error(F.lit(reading.refused)).isNotNull())
        if not reading.has_key:
            frame = frame.where(F.col("action") == "truncate")
        if source.schema_version == layout.UNTYPED:
            yield from_record(frame, folding.columns)
        else:
            yield _unified(frame, own_columns(source.columns), reading.numbers, folding.columns, CHANGE)


def _between(reading: ChangeReading) -> Column:
    """Return the condition that a change is at a place of the reading. Changes without a place come first."""
    here = F.lit(True)
    if reading.since is not None:
        here = here & F.coalesce(_not_before(reading.since), F.lit(False))
    if reading.until is not None:
        here = here & ~F.coalesce(_not_before(reading.until), F.lit(False))
    return here


def _not_before(place: ReplicationPlace) -> Column:
    epoch, lsn, idx = (F.col(name) for name in ("source_epoch", "commit_lsn", "commit_idx"))
    within = (lsn > place.lsn) | ((lsn == place.lsn) & (idx >= place.idx))
    return (epoch > place.epoch) | ((epoch == place.epoch) & within)


def _read(spark: SparkSession, columns: Mapping[str, str], paths: Iterable[LakePath]) -> DataFrame:
    found = list(paths)
    if objects := [each for each in found if isinstance(each, ObjectPath)]:
        return object_frames.read(spark, columns, objects)
    literal = [re.sub(r"([\[\]{}*?\\])", r"\\\1", str(path)) for path in found]
    return spark.read.schema(spark_schema(columns)).option("datetimeRebaseMode", "CORRECTED").parquet(*literal)


def _unified(
    frame: DataFrame,
    had: Mapping[str, str],
    numbers: Mapping[str, int],
    wanted: Sequence[TableColumn],
    ours: Iterable[str],
) -> DataFrame:
    """Return rows with the columns and types of `wanted`. A value that does not fit is null, with its text in `exact`.

    `had`: name → type of the frame's columns; `numbers`: name → number of the table's column.
    """
    names = {number: name for name, number in numbers.items()}
    exact = _by_number(numbers, wanted) if numbers else _no_texts()
    values: list[Column] = []
    texts: dict[str, Column] = {}
    for each in wanted:
        name = names.get(each.number)
        before = had.get(name) if name is not None else None
        if name is None or before is None:
            value = F.lit(None).cast(each.type)
        elif wider(before, each.type) == each.type:
            value = F.col(_quoted(name)).cast(each.type)
        else:
            text = F.coalesce(exact[column(each.number)], _text(F.col(_quoted(name)), before))
            array = _elements(F.col(_quoted(name)), before, each.type)
            value = _typed(text, each.type) if array is None else array
            texts[column(each.number)] = F.when(value.isNull(), text)
        values.append(value.alias(column(each.number)))
    if texts:
        exact = with_texts(F.map_filter(exact, lambda key, _: ~key.isin(list(texts))), texts)
    named = [_unchanged(numbers).alias(name) if name == _UNCHANGED else F.col(name) for name in ours]
    return frame.select(*named, exact.alias("exact"), *values)


def _by_number(numbers: Mapping[str, int], wanted: Sequence[TableColumn]) -> Column:
    """Return `exact` under the names of the fold, for wanted columns only."""
    kept = {each.number for each in wanted}
    known = _lookup({name: number for name, number in numbers.items() if number in kept})
    texts = F.from_json("exact", _TEXTS, _WHOLE)
    renamed = F.transform_keys(
        F.map_filter(texts, lambda name, _: known[name].isNotNull()), lambda name, _: known[name]
    )
    return F.coalesce(renamed, _no_texts())


def _unchanged(numbers: Mapping[str, int]) -> Column:
    """Return `unchanged_columns` under the names of the fold."""
    if not numbers:
        return F.lit(None).cast("array<string>")
    known = _lookup(numbers)
    return F.array_compact(F.transform(_UNCHANGED, lambda name: known[name]))


def _lookup(numbers: Mapping[str, int]) -> Column:
    pairs = [F.lit(text) for name, number in numbers.items() for text in (name, column(number))]
    return F.create_map(*pairs) if pairs else _no_texts()


def from_record(frame: DataFrame, wanted: Sequence[TableColumn]) -> DataFrame:
    """Return rows as `_unified` does, for rows that are stored only as JSON text, under the names of the columns."""
    record = F.from_json("record", _TEXTS, _WHOLE)
    values = {column(each.number): _typed(record[each.name], each.type) for each in wanted}
    texts = {column(each.number): record[each.name] for each in wanted}
    kept = {name: F.when(values[name].isNull(), text) for name, text in texts.items()}
    numbers = {each.name: each.number for each in wanted}
    named = [_unchanged(numbers).alias(name) if name == _UNCHANGED else F.col(name) for name in CHANGE]
    columns = [value.alias(name) for name, value in values.items()]
    return frame.select(*named, with_texts(_no_texts(), kept).alias("exact"), *columns)


def with_texts(exact: Column, texts: Mapping[str, Column]) -> Column:
    """Return `exact` with one more entry for each text that is not null. It must not have any of these names yet."""
    if not texts:
        return exact
    entries = [F.when(text.isNotNull(), F.struct(F.lit(name), text)) for name, text in texts.items()]
    return F.map_concat(exact, F.map_from_entries(F.array_compact(F.array(*entries))))


def _no_texts() -> Column:
    return F.create_map().cast(_TEXTS)


def _text(value: Column, spark: str) -> Column:
    """Return the value as Postgres prints it, exact enough for a cast back."""
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
    """Return the text as a value of that type; null if the type does not accept the text."""
    if element(spark):
        return F.lit(None).cast(spark)
    if spark == "binary":
        return F.when(text.startswith("\\x"), F.unhex(F.substring(text, 3, 2**31 - 1)))
    return text.try_cast(spark)


def _elements(value: Column, before: str, after: str) -> Column | None:
    """Return an array as an array of another type, null unless all elements fit; None if a type is not an array."""
    old, new = element(before), element(after)
    if old is None or new is None:
        return None
    typed = F.transform(value, lambda each: _typed(_text(each, old), new))
    lost = F.exists(F.zip_with(value, typed, lambda a, b: a.isNotNull() & b.isNull()), lambda each: each)
    return F.when(~lost, typed)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
