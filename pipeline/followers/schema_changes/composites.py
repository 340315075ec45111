"""Compares composite types of the source and the follower. A value has a number of attributes, but not their names."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import sql
from psycopg.types.json import Jsonb

from pipeline.errors import SchemaChangeError
from pipeline.followers.applying.position import FollowerPosition
from pipeline.followers.schema_changes.type_alterations import TypeAlteration
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.printable import shortest

_ROOM = "followers.schema_changes"
Parts = Mapping[str, str | None]
"""The name of each attribute that a type has had, by number; None: the attribute was dropped."""
_KNOWN_TYPES = """\
select type_schema, type_name, type_oid, parts from pipeline_follower.types
where source_database_id = %(source)s and follower = %(follower)s
"""
"""Read the labels or attributes that the source's types had when the follower's types were last altered."""


@dataclass(frozen=True)
class CompositeType:
    """A composite type. `names`, `types`: of its attributes in order; types as SQL with an empty search_path.

    `is_of_table`: the row type of a table or view. `parts`: all attributes that the type has had. `columns`: tables and
    columns whose values contain the type.
    """

    schema: str
    name: str
    oid: int
    is_of_table: bool
    names: list[str]
    types: list[str]
    parts: dict[str, str | None]
    columns: list[tuple[str, str]]

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def attributes(self) -> list[tuple[int, str, str]]:
        """Number, name and type of each attribute."""
        numbers = sorted(int(number) for number, name in self.parts.items() if name is not None)
        return list(zip(numbers, self.names, self.types, strict=True))


@dataclass(frozen=True)
class TypeDifference:
    """The difference between a type of the follower and the type of the source.

    `known`: the source's attributes at the time when both types were the same; None if unknown, or if the source has
    replaced the type.
    """

    at_follower: CompositeType
    at_source: CompositeType
    known: Parts | None

    @property
    def is_same(self) -> bool:
        """True if both types have the same attribute names in the same order, and none was dropped and added again."""
        made_again = not self.is_known and bool(self.dropped) and self.at_follower.types != self.at_source.types
        return self.at_follower.names == self.at_source.names and not (self.known and made_again)

    @property
    def is_known(self) -> bool:
        """True if the source's type was not altered since."""
        return self.known == self.at_source.parts

    @property
    def is_clear(self) -> bool:
        """True if the number of attributes in a value written since then tells which attributes it has."""
        if self.known is None:
            return False
        before, now = _existing_numbers(self.known), _existing_numbers(self.at_source.parts)
        last, end = _last_number(self.known), _last_number(self.at_source.parts)
        one_dropped = now <= before and len(before - now) <= 1 and end == last
        return one_dropped or (before <= now and now - before == set(range(last + 1, end + 1)))

    @property
    def renamed(self) -> dict[str, str]:
        """New names of attributes by old ones, for attributes that the follower's type has."""
        found = {old: self.at_source.parts.get(number) for number, old in (self.known or {}).items()}
        return {old: new for old, new in found.items() if old in self.at_follower.names and new and old != new}

    @property
    def dropped(self) -> list[str]:
        """Attributes of the follower's type that the source's type no longer has."""
        if self.known is None:
            return [name for name in self.at_follower.names if name not in self.at_source.names]
        gone = _existing_numbers(self.known) - _existing_numbers(self.at_source.parts)
        return [name for number, name in self.known.items() if int(number) in gone and name in self.at_follower.names]

    @property
    def added(self) -> list[tuple[int, str, str]]:
        """Number, name and type of each attribute that the follower's type lacks."""
        renamed, dropped = self.renamed, self.dropped
        kept = {renamed.get(name, name) for name in self.at_follower.names if name not in dropped}
        return [each for each in self.at_source.attributes if each[1] not in kept]

    def alteration(
        self, here: FollowerPosition, *, renames: bool = True, drops: bool = True, adds: int = 1600
    ) -> TypeAlteration:
        """Return the statements that alter the follower's type. `adds`: the most attributes to add.

        Raises SchemaChangeError if no such statements lead to the source's attributes, or if the type is a table's.
        """
        renamed, dropped = self.renamed if renames else {}, self.dropped if drops else []
        added, is_all = self.added[:adds], renames and drops and adds >= len(self.added)
        left = [renamed.get(name, name) for name in self.at_follower.names if name not in dropped]
        names = [*left, *(name for _, name, _ in added)]
        if (is_all and names != self.at_source.names) or len(set(names)) < len(names) or self.at_follower.is_of_table:
            raise self._stopped()
        parts = self.at_source.parts
        if not is_all:
            upto = added[-1][0] if added else _last_number(self.known or {})
            parts = {number: name for number, name in parts.items() if int(number) <= upto}
            if not drops:
                parts |= {number: name for number, name in (self.known or {}).items() if name in self.dropped}
        return self._alteration(here, list(self._statements(renamed, dropped, added)), parts)

    def record(self, here: FollowerPosition) -> TypeAlteration:
        """Return an alteration without statements, which only records that the follower's type equals the source's."""
        return self._alteration(here, [], self.at_source.parts)

    def _alteration(self, here: FollowerPosition, statements: list[sql.Composed], parts: Parts) -> TypeAlteration:
        values = {
            "schema": self.at_follower.schema,
            "name": self.at_follower.name,
            "oid": self.at_source.oid,
            "parts": Jsonb(parts),
        }
        what = f"{self._where}has other attributes at the source ({', '.join(self.at_source.names)})"
        return TypeAlteration(
            str(self.at_follower), what, statements, statement(_ROOM, "store_type"), {**vars(here), **values}
        )

    def _statements(
        self, renamed: Mapping[str, str], dropped: Sequence[str], added: Sequence[tuple[int, str, str]]
    ) -> Iterator[sql.Composed]:
        alter = sql.SQL("alter type {} ").format(sql.Identifier(self.at_follower.schema, self.at_follower.name))
        # Exchanged names use a temporary third name.
        over = {
            old: f"{new} of pipeline_follower" if new in self.at_follower.names else new for old, new in renamed.items()
        }
        names = [*over.items(), *((over[old], new) for old, new in renamed.items() if over[old] != new)]
        for old, new in names:
            yield alter + sql.SQL("rename attribute {} to {}").format(sql.Identifier(old), sql.Identifier(new))
        changes = [sql.SQL("drop attribute {}").format(sql.Identifier(name)) for name in dropped]
        changes += [
            sql.SQL("add attribute {} {}").format(sql.Identifier(name), sql.SQL(kind)) for _, name, kind in added
        ]
        if changes:
            yield alter + sql.SQL(", ").join(changes)

    @property
    def _where(self) -> str:
        """A column of the type, for messages."""
        found = self.at_follower.columns or self.at_source.columns
        return f"(column {found[0][1]} of {found[0][0]}) " if found else ""

    def _stopped(self) -> SchemaChangeError:
        changes = [
            f"drop attribute {shortest(name)}" for name in self.at_follower.names if name not in self.at_source.names
        ]
        changes += [
            f"add attribute {shortest(name)} {kind}"
            for _, name, kind in self.at_source.attributes
            if name not in self.at_follower.names
        ]
        kind, listed = "type", ", ".join(changes) or "…"
        if self.at_follower.is_of_table:
            kind, listed = "table", listed.replace(" attribute ", " column ")
        return SchemaChangeError(
            f"the follower stops: type {self.at_follower} {self._where}has other attributes at the source"
            f" ({', '.join(self.at_source.names)}), and they cannot be had by adding, dropping and renaming alone",
            f"`alter {kind} {shortest(self.at_follower.schema, self.at_follower.name)} {listed}` there",
        )


def read(follower: Connection, tables: Collection[str]) -> list[CompositeType]:
    """Return the composite types in the values of these tables of the follower."""
    return _read(follower, tables=list(tables))


def unknown(follower: Connection, here: FollowerPosition, tables: Collection[str]) -> list[CompositeType]:
    """Return the composite types of these tables for which nothing is stored."""
    stored = _stored(follower, here)
    return [each for each in read(follower, tables) if (each.schema, each.name) not in stored]


def differences(
    source: Connection, follower: Connection, of: FollowerPosition, here: Collection[CompositeType]
) -> list[TypeDifference]:
    """Compare these types of the follower with the source's types. Types that the source lacks are left out."""
    stored = _stored(follower, of)
    known = {(each.schema, each.name): stored.get((each.schema, each.name)) for each in here}
    found = _read(source, names=list(map(str, here)), oids=[each[0] for each in known.values() if each])
    by_oid, by_name = {each.oid: each for each in found}, {(each.schema, each.name): each for each in found}
    listed = []
    for each in here:
        before = known[each.schema, each.name]
        there = (by_oid.get(before[0]) if before else None) or by_name.get((each.schema, each.name))
        if there is not None:
            listed.append(_difference(each, there, before))
    return listed


def differences_of_copy(
    source: Connection, follower: Connection, position: FollowerPosition, oid: int
) -> list[TypeDifference]:
    """Compare the types in the values of a table, by its oid at the source, with the follower's types of the same
    names.
    """
    theirs = _read(source, table=oid)
    stored = _stored(follower, position)
    here = {(each.schema, each.name): each for each in _read(follower, names=list(map(str, theirs)))}
    return [
        _difference(here[each.schema, each.name], each, stored.get((each.schema, each.name)))
        for each in theirs
        if (each.schema, each.name) in here
    ]


def _difference(here: CompositeType, there: CompositeType, known: tuple[int, Parts] | None) -> TypeDifference:
    return TypeDifference(here, there, known[1] if known and known[0] == there.oid else None)


def _stored(follower: Connection, here: FollowerPosition) -> dict[tuple[str, str], tuple[int, Parts]]:
    rows = follower.execute(_KNOWN_TYPES, vars(here)).fetchall()
    return {(schema, name): (oid, parts) for schema, name, oid, parts in rows}


def _read(connection: Connection, **given: Any) -> list[CompositeType]:
    """Return the types in a table with this oid, in tables with these names, or the types with these names or oids."""
    values = {"table": None, "tables": None, "names": None, "oids": None, **given}
    if values["names"] is None:
        # Most tables have no composite types, and a check for that is several times as fast as finding the types.
        if not queries.value(connection, statement(_ROOM, "may_hold_composites"), values):
            return []
    elif not values["names"] and not values["oids"]:
        return []
    with connection.transaction():
        connection.execute("set local search_path = ''")  # Postgres then prints names of types with their schemas
        return queries.rows(connection, CompositeType, statement(_ROOM, "composites"), values)


def _existing_numbers(parts: Parts) -> set[int]:
    return {int(number) for number, name in parts.items() if name is not None}


def _last_number(parts: Parts) -> int:
    return max(map(int, parts), default=0)
