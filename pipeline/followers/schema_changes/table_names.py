"""Tables that are called otherwise at the source: renamed at the follower too, also where names are exchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from psycopg import sql

from pipeline.errors import SchemaStopped
from pipeline.followers.schema_changes.alterations import Alteration
from pipeline.followers.schema_changes.source_tables import SourceTable
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

Name = tuple[str, str]
_ROOM = "followers.schema_changes"


def moves(
    oid: int,
    target: Name,
    called: Mapping[int, Name],
    at_source: Callable[[Iterable[int]], Mapping[int, SourceTable]],
) -> dict[int, Name]:
    """Which tables get another name, so that this one gets this: others that have it go where the source has them now.

    `called`: what the follower calls its tables. Raises SchemaStopped where the name stays taken.
    """
    found = {oid: target}
    holders = {name: other for other, name in called.items()}
    while (holder := holders.get(target)) is not None and holder not in found:
        there = at_source([holder]).get(holder)
        if there is None or there.called in found.values():
            raise SchemaStopped(
                f"table {'.'.join(called[oid])} of the follower stops: the source calls it {'.'.join(target)} now, and"
                " the follower has another table of that name, which the source has dropped",
                f"`drop table {'.'.join(target)}` there",
            )
        found[holder] = target = there.called
    return {each: name for each, name in found.items() if called[each] != name}


def alterations(follower: Connection, wanted: Mapping[int, Name], called: Mapping[int, Name]) -> list[Alteration]:
    """The statements that give these tables these names. Raises SchemaStopped where something else has one of them."""
    pending = {oid: name for oid, name in wanted.items() if _is_there(follower, called[oid])}
    for oid, name in wanted.items():
        free = name in (called[other] for other in pending)
        if oid in pending and not free and _is_there(follower, name):
            raise SchemaStopped(
                f"table {'.'.join(called[oid])} of the follower stops: the source calls it {'.'.join(name)} now, and"
                " the follower has something else of that name",
                f"`alter table {'.'.join(name)} rename to …` there",
            )
    exchanged = any(name in (called[other] for other in pending) for name in pending.values())
    return list(_statements(pending, called, exchanged=exchanged))


def _statements(wanted: Mapping[int, Name], called: Mapping[int, Name], *, exchanged: bool) -> Iterator[Alteration]:
    """Names that are exchanged go over a third one."""
    here = {oid: called[oid] for oid in wanted}
    if exchanged:
        for oid in wanted:
            yield _renamed(called[oid], here[oid], over := f"pipeline_follower {oid}")
            here[oid] = here[oid][0], over
    for oid, (schema, name) in wanted.items():
        what = f"the source calls {'.'.join(called[oid])} {schema}.{name} now"
        if schema != here[oid][0]:
            yield Alteration(what, sql.SQL("create schema if not exists {}").format(sql.Identifier(schema)))
            moved = sql.SQL("alter table {} set schema {}")
            over = here[oid][1]
            if over not in (name, f"pipeline_follower {oid}"):
                # The other schema may have a table that is called as this one was.
                over = f"pipeline_follower {oid}"
                yield _renamed(called[oid], here[oid], over)
            yield Alteration(what, moved.format(sql.Identifier(here[oid][0], over), sql.Identifier(schema)))
            here[oid] = schema, over
        if here[oid] != (schema, name):
            yield _renamed(called[oid], here[oid], name)


def _renamed(called: Name, here: Name, name: str) -> Alteration:
    what = f"the source calls {'.'.join(called)} {name} now"
    return Alteration(what, sql.SQL("alter table {} rename to {}").format(sql.Identifier(*here), sql.Identifier(name)))


def _is_there(follower: Connection, name: Name) -> bool:
    values = {"schema": name[0], "name": name[1]}
    return queries.value(follower, statement(_ROOM, "there"), values) is not None
