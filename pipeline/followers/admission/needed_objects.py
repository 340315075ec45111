"""Finds what a follower lacks before its tables are created: extensions, types, functions, sequences, rights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import psycopg

from pipeline.errors import FollowerRefusedError
from pipeline.followers.admission.rights import MissingRight
from pipeline.postgres import connections, queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.printable import identifier, in_comment, sql_in_one_line

_ROOM = "followers.admission"
_SHOWN = 5
_SCHEMAS = """\
select nspname::text, pg_catalog.has_schema_privilege(oid, 'usage') and pg_catalog.has_schema_privilege(oid, 'create')
from pg_catalog.pg_namespace
"""
"""List each schema, and whether the user may create objects there."""


@dataclass(frozen=True)
class NeededObject:
    """An object that tables need. `names`, `args`: the arguments of `pg_get_object_address`.

    `definition`: the SQL that creates the object; None if no SQL can. `tables`: the tables that need the object.
    """

    kind: str
    identity: str
    names: list[str]
    args: list[str]
    tables: list[str]
    schema: str | None
    definition: str | None

    def __str__(self) -> str:
        more = f" and {len(self.tables) - _SHOWN} more" if len(self.tables) > _SHOWN else ""
        return f"{self.kind} {self.identity} (for {', '.join(self.tables[:_SHOWN])}{more})"


class FollowerLacksError(FollowerRefusedError):
    """The follower's user lacks rights, or its database lacks objects that the tables need.

    `script`: the SQL that an administrator of the follower must run.
    """

    def __init__(
        self, what: str, rights: Sequence[MissingRight], missing: Sequence[NeededObject], script: Sequence[str]
    ) -> None:
        parts = [each.text for each in rights[:_SHOWN]]
        parts += [f"{len(rights) - _SHOWN} rights more"] if len(rights) > _SHOWN else []
        parts += [f"it lacks what its tables need: {', '.join(map(str, missing))}"] if missing else []
        grants = list(dict.fromkeys(each.grant for each in rights if each.grant))
        if missing or len(rights) > _SHOWN:
            parts.append("let an administrator there run what `pipeline followers add … --sql` prints")
            parts[-1] += ", or leave the tables out with --tables" if missing else ""
        elif grants:
            parts.append(f"run there: {'; '.join(grants)}")
        super().__init__(f"{what}: {'; '.join(parts)}")
        self.script = list(script)


def find(source: Connection, follower: Connection, tables: Sequence[int]) -> list[NeededObject]:
    """Return the objects that the follower lacks for these tables. `tables`: their oids at the source."""
    needed = queries.rows(source, NeededObject, statement(_ROOM, "needed_objects"), {"oids": list(tables)})
    return [each for each in needed if not _exists(follower, each)]


def statements(source: Connection, follower: Connection, tables: Sequence[int]) -> list[str]:
    """Return the SQL that creates the objects that the follower lacks for these tables, owned by its user.

    Each statement is one printable line. The list is empty if nothing is missing, or if no SQL can create one of the
    objects. Neither session may have an open transaction.
    """
    with source.transaction():
        source.execute("set local search_path = ''")  # Postgres then prints names of types with their schemas
        missing = find(source, follower, tables)
    if any(each.definition is None for each in missing):
        return []
    user: str = queries.value(follower, "select current_user::text")
    script = [each for each in _script(follower, [], missing, user) if not each.startswith("--")]
    return [sql_in_one_line(each.rstrip(";")) for each in script]


def require(
    what: str, follower: Connection, user: str, rights: Sequence[MissingRight], missing: Sequence[NeededObject]
) -> None:
    """Raise FollowerLacksError if something is missing. `user`: the follower's user, who will own new objects."""
    if rights or missing:
        raise FollowerLacksError(what, rights, missing, list(_script(follower, rights, missing, user)))


def _exists(follower: Connection, each: NeededObject) -> bool:
    """Return True if the object exists, or is in a schema that the user may not use.

    The second case is a missing right, not a missing object.
    """
    try:
        with follower.transaction():
            values = (each.kind, each.names, each.args)
            follower.execute("select pg_catalog.pg_get_object_address(%s, %s::text[], %s::text[])", values)
    except psycopg.errors.InsufficientPrivilege:
        return True
    except (psycopg.ProgrammingError, psycopg.DataError) as error:
        if connections.is_ours(error):
            raise
        return False
    return True


def _script(
    follower: Connection, rights: Sequence[MissingRight], missing: Sequence[NeededObject], user: str
) -> Iterator[str]:
    """Yield statements and comments. An administrator creates schemas, extensions and rights; the user all else."""
    existing: dict[str, bool] = dict(follower.execute(_SCHEMAS).fetchall())
    for schema in _schemas(missing):
        if schema not in existing:
            yield f"create schema if not exists {identifier(schema)} authorization {identifier(user)};"
    for each in missing:
        if each.kind == "extension":
            yield from _definition(each)
    grants = [each.grant or f"-- {in_comment(each.text)}" for each in rights]
    rest = [each for each in missing if each.kind != "extension"]
    refused = [identifier(schema) for schema in _schemas(rest) if not existing.get(schema, True)]
    grants += [f"grant usage, create on schema {schema} to {identifier(user)}" for schema in refused]
    yield from (f"{grant};" for grant in dict.fromkeys(grants))
    if rest:
        yield f"set role {identifier(user)};"
        yield "set check_function_bodies = off;"
        for each in rest:
            yield from _definition(each)
        yield "reset check_function_bodies;"
        yield "reset role;"


def _schemas(objects: Sequence[NeededObject]) -> list[str]:
    return sorted({each.schema for each in objects if each.schema is not None})


def _definition(each: NeededObject) -> Iterator[str]:
    yield f"-- {in_comment(str(each))}"
    if each.definition is None:
        yield f"-- no SQL makes it: {in_comment(each.kind)} of the source"
    else:
        yield f"{each.definition};"
