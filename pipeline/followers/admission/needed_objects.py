"""What tables need at a follower before they are made there: extensions, types, functions, sequences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import psycopg

from pipeline.errors import FollowerRefused
from pipeline.postgres import connections, queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.printable import identifier, in_comment

_ROOM = "followers.admission"
_SHOWN = 5


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


class ObjectsMissing(FollowerRefused):
    """A follower lacks what tables need that are to be made there. `script`: the SQL that makes it."""

    def __init__(self, what: str, missing: Sequence[NeededObject], script: Sequence[str]) -> None:
        listed = ", ".join(map(str, missing))
        super().__init__(
            f"{what}: it lacks what its tables need: {listed}; let an administrator there run what "
            "`pipeline followers add … --sql` prints, or leave the tables out with --tables"
        )
        self.script = list(script)


def require(what: str, source: Connection, follower: Connection, tables: Sequence[int], user: str) -> None:
    """Raises ObjectsMissing with all that the follower lacks for these tables of the source, by oid.

    `user`: the follower's user, who shall own it.
    """
    needed = queries.rows(source, NeededObject, statement(_ROOM, "needed_objects"), {"oids": list(tables)})
    missing = [each for each in needed if not _is_there(follower, each)]
    if missing:
        raise ObjectsMissing(what, missing, list(_script(follower, missing, user)))


def _is_there(follower: Connection, each: NeededObject) -> bool:
    try:
        with follower.transaction():
            values = (each.kind, each.names, each.args)
            follower.execute("select pg_catalog.pg_get_object_address(%s, %s::text[], %s::text[])", values)
    except (psycopg.ProgrammingError, psycopg.DataError) as error:
        if connections.is_ours(error):
            raise
        return False
    return True


def _script(follower: Connection, missing: Sequence[NeededObject], user: str) -> Iterator[str]:
    """Statements and comments: schemas and extensions as an administrator, all else as the user."""
    schemas = sorted({each.schema for each in missing if each.schema is not None})
    there = {name for (name,) in follower.execute("select nspname::text from pg_catalog.pg_namespace").fetchall()}
    for schema in schemas:
        if schema not in there:
            yield f"create schema if not exists {identifier(schema)} authorization {identifier(user)};"
    extensions = [each for each in missing if each.kind == "extension"]
    for each in extensions:
        yield from _made(each)
    rest = [each for each in missing if each.kind != "extension"]
    if rest:
        yield f"set role {identifier(user)};"
        yield "set check_function_bodies = off;"
        for each in rest:
            yield from _made(each)
        yield "reset check_function_bodies;"
        yield "reset role;"


def _made(each: NeededObject) -> Iterator[str]:
    yield f"-- {in_comment(str(each))}"
    if each.definition is None:
        yield f"-- no SQL makes it: {in_comment(each.kind)} of the source"
    else:
        yield f"{each.definition};"
