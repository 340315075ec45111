"""Explains errors of a follower's functions that use names without a schema, which need a search_path.

The server's sessions have an empty search_path: otherwise a user who may create objects in one of its schemas could
choose what a function calls. So a function that needs a search_path must have its own, which its owner sets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import psycopg

from pipeline.errors import StatementRefusedError
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.printable import shortest

_ROOM = "followers.copying"
_STATES = ("42883", "42P01", "42704")
"""SQLSTATEs for a function or operator, a table, or another object that does not exist."""
_FUNCTION = re.compile(r'function (?:(?P<signature>(?:"[^"]*"|[^\s"(])+\([^\n]*?\)) line \d|"(?P<name>[^"\n]+)")')
"""Matches the innermost function in the context of an error. Postgres leaves out the schema of SQL functions."""
_MISSING = (
    re.compile(r"(?:function|procedure|aggregate) ([^.()]+)\("),
    re.compile(r'[a-z ]+ "([^".]+)"'),
    re.compile(r"operator .*? ([^\w\s]+)"),
)
"""Patterns of error messages that report a name without a schema which Postgres has not found."""


@dataclass(frozen=True)
class UnfoundName:
    """A name that a function has not found at the follower.

    `signature`: the signature of the function; None if only its name is known.
    """

    name: str
    signature: str | None
    function: str

    def remedy(self, follower: Connection, source: Connection) -> str | None:
        """Return advice for the follower's administrator; None if no schema of the source has the name either.

        Neither session may have an open transaction.
        """
        values = {"signature": self.signature, "name": self.function, "missing": self.name}
        functions = queries.rows(follower, _Function, statement(_ROOM, "functions_named"), values)
        theirs = _schemas(source, self.name)
        if not functions or not theirs:
            return None
        shown = functions[0].signature
        if not set(theirs) & set(_schemas(follower, self.name)):
            return f"create {self.name} in the schema {theirs[0]} at the follower, as at the source: {shown} needs it"
        altered = [text for each in functions if (text := each.altered(theirs)) is not None]
        if not altered:
            return None
        return f"run `{'; '.join(altered)}` at the follower: {shown} finds {self.name} only through a search_path"


@dataclass(frozen=True)
class _Function:
    """A function of the follower. `search_path`: the setting of the function; None if it has none."""

    signature: str
    schema: str
    kind: str
    search_path: str | None

    def altered(self, schemas: list[str]) -> str | None:
        """Return the statement that adds these schemas to the function's search_path; None if they are in it."""
        own = shortest(self.schema)
        known = [each.strip() for each in (self.search_path or "").split(",")]
        listed = [each for each in known if each not in ("", '""', "pg_catalog")]
        more = [own] if own in schemas else schemas
        if set(more) <= set(listed):
            return None
        path = ", ".join([*listed, *(each for each in more if each not in listed), "pg_catalog"])
        return f"alter {self.kind} {self.signature} set search_path = {path}"


def from_error(error: BaseException) -> UnfoundName | None:
    """Return the name that a function of the follower does not find, from the error or its cause; else None."""
    if isinstance(error, StatementRefusedError) and error.database != "follower":
        return None
    cause = error if isinstance(error, psycopg.Error) else error.__cause__
    if not isinstance(cause, psycopg.Error) or cause.sqlstate not in _STATES:
        return None
    function = _FUNCTION.search(cause.diag.context or "")
    missing = [found[1] for each in _MISSING if (found := each.match(cause.diag.message_primary or ""))]
    if function is None or not missing:
        return None
    signature = function["signature"]
    name = function["name"] or signature.split("(")[0].rsplit(".", 1)[-1].strip('"')
    return UnfoundName(missing[0], signature, name)


def _schemas(connection: Connection, name: str) -> list[str]:
    """Return the quoted names of schemas that have an object of this name."""
    return [schema for (schema,) in connection.execute(statement(_ROOM, "schemas_of_name"), {"name": name}).fetchall()]
