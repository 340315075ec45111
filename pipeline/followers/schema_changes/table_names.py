"""Plans and builds renames of a follower's tables after renames at the source, including exchanged names."""

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
    """New names of tables by oid. `gone`: tables that the source has dropped, and whose names other tables need.

    A dropped table has a new name here if another table of the follower gets its name. If a new table gets the name,
    the rows of its copy replace the rows of the dropped table, which then has no new name.
    """

    names: Mapping[int, Name] = field(default_factory=dict)
    gone: frozenset[int] = frozenset()


def plan_names(
    targets: Mapping[int, Name],
    called: Mapping[int, Name],
    at_source: Callable[[Iterable[int]], Mapping[int, CurrentSourceTable]],
) -> NameChanges:
    """Plan renames, so that these tables get their target names and no two tables have the same name.

    `called`: the follower's names of its tables; `targets` may contain tables that it does not have yet. A table whose
    name another table needs gets its current name at the source. The same applies to a table whose target another table
    has at the source now.
    """
    holders = {name: oid for oid, name in called.items()}
    if all(holders.get(name, oid) == oid for oid, name in targets.items()):
        return NameChanges({oid: name for oid, name in targets.items() if called.get(oid) != name})
    now = {oid: each.called for oid, each in at_source({*called, *targets}).items()}
    owners = {name: oid for oid, name in now.items()}
    names, gone, pending = dict[int, Name](), set[int](), list(targets.items())
    while pending:
        oid, target = pending.pop()
        if owners.get(target, oid) != oid:  # the event is older: another table has got the name since
            if oid not in now:
                gone.add(oid)
                names[oid] = _displaced_name(oid, called.get(oid, target))
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
                names[holder] = _displaced_name(holder, target)
    return NameChanges({oid: name for oid, name in names.items() if called.get(oid) != name}, frozenset(gone))


def _displaced_name(oid: int, name: Name) -> Name:
    return name[0], displaced_name(name[1], oid)


def alterations(
    follower: Connection, wanted: Mapping[int, Name], called: Mapping[int, Name]
) -> list[tuple[Name, TableAlteration]]:
    """Return the statements that give these tables these names, each with the table's previous name.

    Tables that do not exist have no statement. Raises SchemaChangeError if another object has one of the names.
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
    along = {oid: _conflicting_objects(follower, called[oid], name[0]) for oid, name in pending.items()}
    aside, back = list[tuple[Name, TableAlteration]](), dict[int, list[tuple[Name, TableAlteration]]]()
    for oid, moving in along.items():
        back[oid] = []
        for index, (part, kind) in enumerate(moving):
            over = f"pipeline_follower {oid} {index}"
            aside.append(_rename_statement(called[oid], (called[oid][0], part), over, kind))
            back[oid].append(_rename_statement(called[oid], (pending[oid][0], over), part, kind))
    return [*aside, *_statements(pending, called, back, exchanged=exchanged)]


def _conflicting_objects(follower: Connection, called: Name, schema: str) -> list[tuple[str, str]]:
    """Return names and kinds of a table's objects whose names the other schema has already.

    This happens, for example, if two tables exchange their schemas.
    """
    values = {"schema": called[0], "name": called[1], "target": schema}
    found = follower.execute(statement(_ROOM, "conflicting_objects"), values).fetchall() if called[0] != schema else []
    return [(name, "sequence" if is_sequence else "index") for name, is_sequence in found]


def _statements(
    wanted: Mapping[int, Name],
    called: Mapping[int, Name],
    back: Mapping[int, Iterable[tuple[Name, TableAlteration]]],
    *,
    exchanged: bool,
) -> Iterator[tuple[Name, TableAlteration]]:
    """Yield statements that rename tables; exchanged names use a temporary third name.

    `back`: the statements that follow once a table is in its schema.
    """
    here = {oid: called[oid] for oid in wanted}
    if exchanged:
        for oid in wanted:
            yield _rename_statement(called[oid], here[oid], over := f"pipeline_follower {oid}")
            here[oid] = here[oid][0], over
    for oid, (schema, name) in wanted.items():
        what = f"the source calls {'.'.join(called[oid])} {schema}.{name} now"
        if schema != here[oid][0]:
            made = sql.SQL("create schema if not exists {}").format(sql.Identifier(schema))
            yield called[oid], TableAlteration(what, made)
            over = here[oid][1]
            if over not in (name, f"pipeline_follower {oid}"):
                # The other schema may have a table with this one's former name.
                over = f"pipeline_follower {oid}"
                yield _rename_statement(called[oid], here[oid], over)
            moved = sql.SQL("alter table {} set schema {}").format(
                sql.Identifier(here[oid][0], over), sql.Identifier(schema)
            )
            yield called[oid], TableAlteration(what, moved)
            here[oid] = schema, over
            yield from back[oid]
        if here[oid] != (schema, name):
            yield _rename_statement(called[oid], here[oid], name)


def _rename_statement(called: Name, here: Name, name: str, kind: str = "table") -> tuple[Name, TableAlteration]:
    what = f"the source calls {'.'.join(called)} {name} now"
    made = sql.SQL("alter {} {} rename to {}").format(sql.SQL(kind), sql.Identifier(*here), sql.Identifier(name))
    return called, TableAlteration(what, made)


def _exists(follower: Connection, name: Name) -> bool:
    values = {"schema": name[0], "name": name[1]}
    return queries.value(follower, statement(_ROOM, "find_relation"), values) is not None
