"""Names that a function of a follower does not find, as the source finds them only through its search_path.

Our sessions have none: it would let whoever may create in one of its schemas choose what the function calls. So the
function is told by its owner where to look.
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
"""A function or operator, a table, or another object that is not there."""
_FUNCTION = re.compile(r'function (?:(?P<signature>(?:"[^"]*"|[^\s"(])+\([^\n]*?\)) line \d|"(?P<name>[^"\n]+)")')
"""In the context of an error, innermost first. Only a function in SQL is named without its schema."""
_MISSING = (
    re.compile(r"(?:function|procedure|aggregate) ([^.()]+)\("),
    re.compile(r'[a-z ]+ "([^".]+)"'),
    re.compile(r"operator .*? ([^\w\s]+)"),
)
"""A name without a schema that was not found."""


@dataclass(frozen=True)
class UnfoundName:
    """A name that a function does not find. `signature`: of the function, None if only its name is known."""

    name: str
    signature: str | None
    function: str

    def remedy(self, follower: Connection, source: Connection) -> str | None:
        """Say what to run at the follower; None if the source does not find the name in a schema either.

        Nothing may be open in either session.
        """
        values = {"signature": self.signature, "name": self.function, "missing": self.name}
        functions = queries.rows(follower, _Function, statement(_ROOM, "functions_named"), values)
        theirs = _schemas(source, self.name)
        if not functions or not theirs:
            return None
        shown = functions[0].signature
        if not set(theirs) & set(_schemas(follower, self.name)):
            return f"make {self.name} in the schema {theirs[0]} there, as at the source: {shown} needs it"
        altered = [text for each in functions if (text := each.altered(theirs)) is not None]
        if not altered:
            return None
        return f"run there, as {shown} finds {self.name} only through a search_path: `{'; '.join(altered)}`"


@dataclass(frozen=True)
class _Function:
    """A function of the follower. `search_path`: the one that is set for it."""

    signature: str
    schema: str
    kind: str
    search_path: str | None

    def altered(self, schemas: list[str]) -> str | None:
        """The statement that lets it find what is in these schemas; None if it looks there. What was set stays."""
        own = shortest(self.schema)
        known = [each.strip() for each in (self.search_path or "").split(",")]
        listed = [each for each in known if each not in ("", '""', "pg_catalog")]
        more = [own] if own in schemas else schemas
        if set(more) <= set(listed):
            return None
        path = ", ".join([*listed, *(each for each in more if each not in listed), "pg_catalog"])
        return f"alter {self.kind} {self.signature} set search_path = {path}"


def of(error: BaseException) -> UnfoundName | None:
    """What a function of the follower does not find, by the error or by its cause; None if it is another error."""
    if isinstance(error, StatementRefusedError) and error.place != "follower":
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
    """Schemas, quoted, that have something of this name."""
    return [schema for (schema,) in connection.execute(statement(_ROOM, "schemas_of_name"), {"name": name}).fetchall()]
