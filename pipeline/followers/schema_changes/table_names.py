"""Tables that are called otherwise at the source: renamed at the follower too, also where names are exchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from psycopg import sql

from pipeline.errors import SchemaChangeError
from pipeline.followers.copying.taken_names import displaced_name
from pipeline.followers.schema_changes.alterations import TableAlteration
from pipeline.followers.schema_changes.source_tables import CurrentSourceTable
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

Name = tuple[str, str]
_ROOM = "followers.schema_changes"


@dataclass(frozen=True)
class NameChanges:
    """Tables that get another name, by oid. `gone`: tables that the source has dropped, which give way to others.

    Those of them that have a name here get it because another table of the follower gets theirs; a table that is new
    to the follower gets the rows of its copy in the place of theirs.
    """

    names: Mapping[int, Name] = field(default_factory=dict)
    gone: frozenset[int] = frozenset()


def moves(
    targets: Mapping[int, Name],
    called: Mapping[int, Name],
    at_source: Callable[[Iterable[int]], Mapping[int, CurrentSourceTable]],
) -> NameChanges:
    """What happens to names, so that these tables get these, and no two tables have one.

    `called`: what the follower calls its tables; `targets` may have others, which it does not have yet. A table that
    has a name of another one by now gets the name that it has at the source now, as does a table whose target another
    one has at the source now.
    """
    holders = {name: oid for oid, name in called.items()}
    if all(holders.get(name, oid) == oid for oid, name in targets.items()):
        return NameChanges({oid: name for oid, name in targets.items() if called.get(oid) != name})
    now = {oid: each.called for oid, each in at_source({*called, *targets}).items()}
    owners = {name: oid for oid, name in now.items()}
    names, gone, pending = dict[int, Name](), set[int](), list(targets.items())
    while pending:
        oid, target = pending.pop()
        if owners.get(target, oid) != oid:  # what an older event says: the name has gone to another table since
            if oid not in now:
                gone.add(oid)
                names[oid] = _aside(oid, called.get(oid, target))
                continue
            target = now[oid]
        names[oid] = target
        holder = holders.get(target, oid)
        if holder in names or holder in gone or holder == oid:
            continue
        if holder in now:
            pending.append((holder, now[holder]))
        else:
            gone.add(holder)
            if oid in called:
                names[holder] = _aside(holder, target)
    return NameChanges({oid: name for oid, name in names.items() if called.get(oid) != name}, frozenset(gone))


def _aside(oid: int, name: Name) -> Name:
    return name[0], displaced_name(name[1], oid)


def alterations(
    follower: Connection, wanted: Mapping[int, Name], called: Mapping[int, Name]
) -> list[tuple[Name, TableAlteration]]:
    """The statements that give these tables these names, each with the name of before; those that are not there have
    none. Raises SchemaChangeError where something else has one of the names.
    """
    pending = {oid: name for oid, name in wanted.items() if oid in called and _exists(follower, called[oid])}
    for oid, name in pending.items():
        free = name in (called[other] for other in pending)
        if not free and _exists(follower, name):
            raise SchemaChangeError(
                f"table {'.'.join(called[oid])} of the follower stops: the source calls it {'.'.join(name)} now, and"
                " the follower has something else of that name",
                f"`alter table {'.'.join(name)} rename to …` there",
            )
    exchanged = any(name in (called[other] for other in pending) for name in pending.values())
    along = {oid: _moving_along(follower, called[oid], name[0]) for oid, name in pending.items()}
    aside, back = list[tuple[Name, TableAlteration]](), dict[int, list[tuple[Name, TableAlteration]]]()
    for oid, moving in along.items():
        back[oid] = []
        for place, (part, kind) in enumerate(moving):
            over = f"pipeline_follower {oid} {place}"
            aside.append(_renamed(called[oid], (called[oid][0], part), over, kind))
            back[oid].append(_renamed(called[oid], (pending[oid][0], over), part, kind))
    return [*aside, *_statements(pending, called, back, exchanged=exchanged)]


def _moving_along(follower: Connection, called: Name, schema: str) -> list[tuple[str, str]]:
    """What of a table the other schema has a name of, such as where schemas exchange names; and what kind it is of."""
    values = {"schema": called[0], "name": called[1], "target": schema}
    found = follower.execute(statement(_ROOM, "moving_along"), values).fetchall() if called[0] != schema else []
    return [(name, "sequence" if is_sequence else "index") for name, is_sequence in found]


def _statements(
    wanted: Mapping[int, Name],
    called: Mapping[int, Name],
    back: Mapping[int, Iterable[tuple[Name, TableAlteration]]],
    *,
    exchanged: bool,
) -> Iterator[tuple[Name, TableAlteration]]:
    """Names that are exchanged go over a third one. `back`: what follows once a table is in its schema."""
    here = {oid: called[oid] for oid in wanted}
    if exchanged:
        for oid in wanted:
            yield _renamed(called[oid], here[oid], over := f"pipeline_follower {oid}")
            here[oid] = here[oid][0], over
    for oid, (schema, name) in wanted.items():
        what = f"the source calls {'.'.join(called[oid])} {schema}.{name} now"
        if schema != here[oid][0]:
            made = sql.SQL("create schema if not exists {}").format(sql.Identifier(schema))
            yield called[oid], TableAlteration(what, made)
            over = here[oid][1]
            if over not in (name, f"pipeline_follower {oid}"):
                # The other schema may have a table that is called as this one was.
                over = f"pipeline_follower {oid}"
                yield _renamed(called[oid], here[oid], over)
            moved = sql.SQL("alter table {} set schema {}").format(
                sql.Identifier(here[oid][0], over), sql.Identifier(schema)
            )
            yield called[oid], TableAlteration(what, moved)
            here[oid] = schema, over
            yield from back[oid]
        if here[oid] != (schema, name):
            yield _renamed(called[oid], here[oid], name)


def _renamed(called: Name, here: Name, name: str, kind: str = "table") -> tuple[Name, TableAlteration]:
    what = f"the source calls {'.'.join(called)} {name} now"
    made = sql.SQL("alter {} {} rename to {}").format(sql.SQL(kind), sql.Identifier(*here), sql.Identifier(name))
    return called, TableAlteration(what, made)


def _exists(follower: Connection, name: Name) -> bool:
    values = {"schema": name[0], "name": name[1]}
    return queries.value(follower, statement(_ROOM, "find_relation"), values) is not None
