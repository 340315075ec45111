"""Maps Postgres types to Spark types, and finds the wider of two types.

Types are written as in Spark's DDL: `int`, `decimal(12,2)`, `array<string>`. A type that no Spark type represents
exactly is `string`, in the text that Postgres prints.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa

SCALARS: Mapping[int, str] = {
    16: "boolean",
    17: "binary",
    20: "bigint",
    21: "int",
    23: "int",
    26: "bigint",
    700: "float",
    701: "double",
    1082: "date",
    1114: "timestamp_ntz",
    1184: "timestamp",
}
"""Oids of pg_type → Spark type; numeric depends on its modifier, all others are text."""
ARRAYS: Mapping[int, int] = {
    1000: 16,
    1001: 17,
    1005: 21,
    1007: 23,
    1016: 20,
    1021: 700,
    1022: 701,
    1028: 26,
    1115: 1114,
    1182: 1082,
    1185: 1184,
    1231: 1700,
}
"""Oid of an array type → oid of its elements' type."""
NUMERIC = 1700
BOX_ARRAY = 1020
"""The one built-in array whose elements are not separated by commas; it stays text."""
MAX_PRECISION = 38
"""The most digits of a decimal in Spark and in Parquet."""

_ARROW: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_WIDER = {("int", "bigint"), ("float", "double")}


def spark_type(type_oid: int, type_modifier: int, type_name: str) -> str:
    """Return the Spark type of a Postgres type. `type_name`: from format_type, which ends in [] for arrays."""
    if type_oid in ARRAYS:
        return f"array<{spark_type(ARRAYS[type_oid], type_modifier, '')}>"
    if type_oid == NUMERIC:
        return _decimal(type_modifier)
    if type_name.endswith("[]") and type_oid != BOX_ARRAY:
        return "array<string>"
    return SCALARS.get(type_oid, "string")


def _decimal(type_modifier: int) -> str:
    """Return the type for a modifier: ((precision << 16) | scale) + 4, where scale has 11 bits, signed (numeric.c)."""
    if type_modifier < 0:
        return "string"
    packed = type_modifier - 4
    precision, scale = packed >> 16 & 0xFFFF, ((packed & 0x7FF) ^ 1024) - 1024
    if scale < 0:  # rounds to tens, hundreds, …
        precision, scale = precision - scale, 0
    precision = max(precision, scale)
    return f"decimal({precision},{scale})" if precision <= MAX_PRECISION else "string"


def element(spark: str) -> str | None:
    """Return the type of an array type's elements; None for other types."""
    found = re.fullmatch(r"array<(.+)>", spark)
    return found[1] if found else None


def decimal(spark: str) -> tuple[int, int] | None:
    """Return precision and scale of a decimal type; None for other types."""
    found = re.fullmatch(r"decimal\((\d+),(\d+)\)", spark)
    return (int(found[1]), int(found[2])) if found else None


def wider(before: str, after: str) -> str | None:
    """Return the type that holds every value of both and that every reader of Parquet casts to; None if there is none.

    Decimals of different scales and arrays of wider elements have none: polars casts neither while it scans.
    """
    if before == after:
        return before
    if (before, after) in _WIDER or (after, before) in _WIDER:
        return "bigint" if "int" in (before, after) else "double"
    old, new = decimal(before), decimal(after)
    if old and new and old[1] == new[1]:
        return f"decimal({max(old[0], new[0])},{old[1]})"
    return None


def arrow_type(spark: str) -> pa.DataType:
    """Return the Arrow type of a Spark type, which is the same in Parquet."""
    if inner := element(spark):
        return pa.list_(arrow_type(inner))
    if parts := decimal(spark):
        return pa.decimal128(*parts)
    return _ARROW[spark]
