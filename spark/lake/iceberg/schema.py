"""Makes the Iceberg schema of a table's columns: a column keeps its field id when it is renamed. Pure.

The files have no field ids: `name_mapping` gives the field of each of their columns.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from pyspark_sequin_events.types import decimal, element

_TYPES: Mapping[str, PrimitiveType] = {
    "boolean": BooleanType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "date": DateType(),
    "timestamp": TimestamptzType(),
    "timestamp_ntz": TimestampType(),
}
_WIDER = {(IntegerType, LongType), (FloatType, DoubleType)}


@dataclass(frozen=True)
class ColumnField:
    """The field of a column in files: its id, and the id of a list's elements."""

    field: int
    element: int | None


@dataclass(frozen=True)
class SchemaFields:
    """A schema, and the fields by the names of columns in new and in existing files.

    `breaks`: True if a name means another field than before, so that earlier snapshots would be read wrongly.
    """

    schema: Schema
    names: Mapping[str, ColumnField]
    breaks: bool = False

    @property
    def name_mapping(self) -> str:
        """The fields as in Iceberg's `schema.name-mapping.default`."""
        called: dict[ColumnField, list[str]] = {}
        for name, named in self.names.items():
            called.setdefault(named, []).append(name)
        return json.dumps([_mapping_entry(named, names) for named, names in called.items()])


def fields(
    columns: Mapping[str, str], before: SchemaFields | None = None, same: Mapping[str, str] | None = None, last: int = 0
) -> SchemaFields:
    """Make the fields of these columns (name → type, as in Spark's DDL).

    `same`: name → name of the column `before`; by default the same name. `last`: the greatest field id ever used.
    """
    numbers = count(last + 1)
    had = {field.name: field for field in before.schema.fields} if before else {}
    made: list[NestedField] = []
    for name, spark in columns.items():
        old = had.get(name if same is None else same.get(name, ""))
        made.append(_field(name, spark, old, numbers))
    found = fields_of(Schema(*made))
    if before is None:
        return found
    if any(found.names.get(name, named) != named for name, named in before.names.items()):
        return SchemaFields(found.schema, found.names, breaks=True)
    return SchemaFields(found.schema, {**before.names, **found.names})


def fields_of(schema: Schema) -> SchemaFields:
    """Return the fields of a new schema."""
    return SchemaFields(schema, {field.name: ColumnField(field.field_id, _element(field)) for field in schema.fields})


def existing_fields(schema: Schema, mapping: str) -> SchemaFields:
    """Return the fields of an existing table."""
    names: dict[str, ColumnField] = {}
    for each in json.loads(mapping):
        inner = each.get("fields")
        named = ColumnField(each["field-id"], inner[0]["field-id"] if inner else None)
        names |= dict.fromkeys(each["names"], named)
    return SchemaFields(schema, names)


def is_same(one: Schema, other: Schema) -> bool:
    """Return True if two schemas have the same fields in the same order."""
    return one.as_struct() == other.as_struct()


def _field(name: str, spark: str, old: NestedField | None, numbers: Iterator[int]) -> NestedField:
    inner = element(spark)
    if old is not None and not _keeps(old.field_type, spark):
        old = None
    number = old.field_id if old else next(numbers)
    if inner is None:
        return NestedField(number, name, _primitive(spark), required=False)
    known_element = _element(old) if old else None
    listed = ListType(next(numbers) if known_element is None else known_element, _primitive(inner), False)
    return NestedField(number, name, listed, required=False)


def _keeps(before: IcebergType, spark: str) -> bool:
    """Return True if Iceberg can keep the field: the type is the same, or a wider one."""
    inner = element(spark)
    if isinstance(before, ListType) != (inner is not None):
        return False
    old, new = before.element_type if isinstance(before, ListType) else before, _primitive(inner or spark)
    if isinstance(old, DecimalType) and isinstance(new, DecimalType):
        return old.scale == new.scale and old.precision <= new.precision
    return old == new or (type(old), type(new)) in _WIDER


def _primitive(spark: str) -> PrimitiveType:
    if parts := decimal(spark):
        return DecimalType(*parts)
    return _TYPES[spark]


def _element(field: NestedField) -> int | None:
    return field.field_type.element_id if isinstance(field.field_type, ListType) else None


def _mapping_entry(named: ColumnField, names: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"field-id": named.field, "names": names}
    if named.element is not None:
        found["fields"] = [{"field-id": named.element, "names": ["element"]}]
    return found
