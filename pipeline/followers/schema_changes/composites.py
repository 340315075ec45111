"""Attributes that a composite type of the source has got, or lost: an event has as many values as the type had then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from psycopg import sql

from pipeline.errors import SchemaStopped
from pipeline.followers.schema_changes.altered_types import TypeAlteration
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.printable import shortest


@dataclass(frozen=True)
class _Composite:
    """`names`: of its attributes, in order; `types`: theirs, as SQL writes them with an empty search_path."""

    schema: str
    name: str
    names: list[str]
    types: list[str]


def alterations(source: Connection, follower: Connection) -> Iterator[TypeAlteration]:
    """What gives the follower's composite types the attributes of the source's, if one of its values does not fit.

    Raises SchemaStopped if some were added and others dropped: the value may be of between.
    """
    theirs = {(each.schema, each.name): each for each in _read(source)}
    for each in _read(follower):
        there = theirs.get((each.schema, each.name))
        if there is None or there.names == each.names:
            continue
        name = sql.Identifier(each.schema, each.name)
        added = [pair for pair in zip(there.names, there.types, strict=True) if pair[0] not in each.names]
        dropped = [attribute for attribute in each.names if attribute not in there.names]
        kept = [attribute for attribute in each.names if attribute in there.names]
        if (added and dropped) or kept + [attribute for attribute, _ in added] != there.names:
            raise SchemaStopped(
                f"the follower stops: type {each.schema}.{each.name} has other attributes at the source"
                f" ({', '.join(there.names)}), and it is not clear which of them a value has",
                f"`alter type {shortest(each.schema, each.name)} …` there",
            )
        changes = [
            sql.SQL("add attribute {} {}").format(sql.Identifier(attribute), sql.SQL(kind)) for attribute, kind in added
        ]
        changes += [sql.SQL("drop attribute {}").format(sql.Identifier(attribute)) for attribute in dropped]
        altered = sql.SQL("alter type {} {}").format(name, sql.SQL(", ").join(changes))
        yield TypeAlteration(f"{each.schema}.{each.name}", "has other attributes at the source", [altered])


def _read(connection: Connection) -> list[_Composite]:
    with connection.transaction():
        connection.execute("set local search_path = ''")  # names of types come out qualified
        return queries.rows(connection, _Composite, statement("followers.schema_changes", "attributes"))
