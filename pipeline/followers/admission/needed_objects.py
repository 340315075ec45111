"""What a follower lacks before its tables are made: extensions, types, functions, sequences, rights of its user."""

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
"""Each schema, and whether the user may make objects there."""


@dataclass(frozen=True)
class NeededObject:
    """`names`, `args`: as `pg_get_object_address` takes them. `definition`: the SQL that makes it; None: there is none.

    `tables`: those that need it.
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
    """A follower's user lacks rights, or its database what tables need that must be made there.

    `script`: the SQL for an administrator there.
    """

    def __init__(
        self, what: str, rights: Sequence[MissingRight], missing: Sequence[NeededObject], script: Sequence[str]
    ) -> None:
        said = [each.text for each in rights[:_SHOWN]]
        said += [f"{len(rights) - _SHOWN} rights more"] if len(rights) > _SHOWN else []
        said += [f"it lacks what its tables need: {', '.join(map(str, missing))}"] if missing else []
        grants = list(dict.fromkeys(each.grant for each in rights if each.grant))
        if missing or len(rights) > _SHOWN:
            said.append("let an administrator there run what `pipeline followers add … --sql` prints")
            said[-1] += ", or leave the tables out with --tables" if missing else ""
        elif grants:
            said.append(f"run there: {'; '.join(grants)}")
        super().__init__(f"{what}: {'; '.join(said)}")
        self.script = list(script)


def find(source: Connection, follower: Connection, tables: Sequence[int]) -> list[NeededObject]:
    """Return all that the follower lacks for these tables of the source, by oid."""
    needed = queries.rows(source, NeededObject, statement(_ROOM, "needed_objects"), {"oids": list(tables)})
    return [each for each in needed if not _exists(follower, each)]


def statements(source: Connection, follower: Connection, tables: Sequence[int]) -> list[str]:
    """Return the SQL that makes all that the follower lacks for these tables of the source, for its user to own.

    Each statement is one printable line. Empty if nothing is missing, or if no SQL makes some of it. Nothing may be
    open in either session.
    """
    with source.transaction():
        source.execute("set local search_path = ''")  # names of types come out qualified
        missing = find(source, follower, tables)
    if any(each.definition is None for each in missing):
        return []
    user: str = queries.value(follower, "select current_user::text")
    script = [each for each in _script(follower, [], missing, user) if not each.startswith("--")]
    return [sql_in_one_line(each.rstrip(";")) for each in script]


def require(
    what: str, follower: Connection, user: str, rights: Sequence[MissingRight], missing: Sequence[NeededObject]
) -> None:
    """Raises FollowerLacksError if something is missing. `user`: the follower's, who shall own what is made."""
    if rights or missing:
        raise FollowerLacksError(what, rights, missing, list(_script(follower, rights, missing, user)))


def _exists(follower: Connection, each: NeededObject) -> bool:
    """Return whether the object exists, or is in a schema that the user may not use, which is a right to be granted."""
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
    """Statements and comments: schemas, extensions and rights as an administrator, all else as the user."""
    there: dict[str, bool] = dict(follower.execute(_SCHEMAS).fetchall())
    for schema in _schemas(missing):
        if schema not in there:
            yield f"create schema if not exists {identifier(schema)} authorization {identifier(user)};"
    for each in missing:
        if each.kind == "extension":
            yield from _made(each)
    grants = [each.grant or f"-- {in_comment(each.text)}" for each in rights]
    rest = [each for each in missing if each.kind != "extension"]
    refused = [identifier(schema) for schema in _schemas(rest) if not there.get(schema, True)]
    grants += [f"grant usage, create on schema {schema} to {identifier(user)}" for schema in refused]
    yield from (f"{grant};" for grant in dict.fromkeys(grants))
    if rest:
        yield f"set role {identifier(user)};"
        yield "set check_function_bodies = off;"
        for each in rest:
            yield from _made(each)
        yield "reset check_function_bodies;"
        yield "reset role;"


def _schemas(objects: Sequence[NeededObject]) -> list[str]:
    return sorted({each.schema for each in objects if each.schema is not None})


def _made(each: NeededObject) -> Iterator[str]:
    yield f"-- {in_comment(str(each))}"
    if each.definition is None:
        yield f"-- no SQL makes it: {in_comment(each.kind)} of the source"
    else:
        yield f"{each.definition};"
