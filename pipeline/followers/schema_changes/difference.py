"""Computes the difference between two definitions of a table. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


class TableDefinition(Protocol):
    """The name, columns and key of a table, as a `TableVersion` or a `SourceDefinition` has them."""

    @property
    def table_schema(self) -> str: ...
    @property
    def table_name(self) -> str: ...
    @property
    def columns(self) -> list[dict[str, Any]]: ...
    @property
    def key_columns(self) -> list[str]: ...


@dataclass(frozen=True)
class ColumnDefinition:
    """A column's name and type. `type_name`: as SQL prints it with an empty search_path, without the modifier."""

    name: str
    type_name: str
    type_modifier: int


@dataclass(frozen=True)
class DefinitionDifference:
    """The difference between two definitions, with columns by name. `renamed`: new names by old ones.

    `dropped`: their numbers; None if unknown. `key`: the columns of the new key; None if the key is unchanged.
    `unclear`: some columns disappeared and others appeared, and no numbers tell whether these are the same.
    """

    name: tuple[str, str]
    renamed: Mapping[str, str]
    dropped: Mapping[str, int | None]
    added: tuple[ColumnDefinition, ...]
    retyped: tuple[ColumnDefinition, ...]
    old_key: tuple[str, ...]
    key: tuple[str, ...] | None
    unclear: bool


def between(before: TableDefinition, after: TableDefinition, *, numbered: bool) -> DefinitionDifference:
    """Return the difference between two definitions. `numbered`: equal numbers of columns mean the same column.

    `old_key` and `key` of the result use the new names.
    """
    known_by = "attnum" if numbered else "name"
    then = {column[known_by]: column for column in before.columns}
    now = {column[known_by]: column for column in after.columns}
    kept = [(then[known], column) for known, column in now.items() if known in then]
    renamed = {old["name"]: new["name"] for old, new in kept if old["name"] != new["name"]}
    dropped = {column["name"]: column["attnum"] for known, column in then.items() if known not in now}
    added = tuple(_definition(column) for known, column in now.items() if known not in then)
    old_key = tuple(renamed.get(name, name) for name in before.key_columns)
    is_same_key = _key(before, known_by) == _key(after, known_by)
    return DefinitionDifference(
        (after.table_schema, after.table_name),
        renamed,
        dropped,
        added,
        tuple(_definition(new) for old, new in kept if _type(old) != _type(new)),
        old_key,
        None if is_same_key else tuple(after.key_columns),
        unclear=not numbered and bool(dropped) and bool(added),
    )


def _key(of: TableDefinition, known_by: str) -> set[Any]:
    """Return what identifies the key's columns: a new column may have the name of an old one."""
    numbers = {column["name"]: column[known_by] for column in of.columns}
    return {numbers.get(name, name) for name in of.key_columns}


def _definition(column: Mapping[str, Any]) -> ColumnDefinition:
    return ColumnDefinition(column["name"], column["type_name"], column["type_modifier"])


def _type(column: Mapping[str, Any]) -> tuple[int, int]:
    return column["type_oid"], column["type_modifier"]
