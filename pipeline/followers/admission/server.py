"""Checks a follower's server and user, and reads what an earlier applier left in its database."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.errors import FollowerRefusedError
from pipeline.followers import connecting
from pipeline.followers.applying import position
from pipeline.followers.registry import RegisteredPosition
from pipeline.postgres import poolers, queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

MIN_VERSION = 140000
SCHEMA = "pipeline_follower"
"""The schema in which an applier keeps its tables in a follower."""


@dataclass(frozen=True)
class ServerFacts:
    """Facts about a follower's server, database and user.

    `has_schema`: the schema of an applier exists. `may_use_schema`: the user may use the schema and all its tables.
    `is_installed`: its table `position` exists.
    """

    version: int
    shown_version: str
    standby: bool
    read_only: bool
    encoding: str
    database: str
    user_name: str
    may_create_schemas: bool
    may_make_temporary_tables: bool
    has_schema: bool
    may_use_schema: bool
    is_installed: bool

    @property
    def quoted_user(self) -> str:
        """The user's name, quoted for a statement."""
        return '"{}"'.format(self.user_name.replace('"', '""'))


def read(follower: Connection) -> ServerFacts:
    """Return the current facts."""
    facts = queries.one(follower, ServerFacts, statement("followers.admission", "facts"))
    assert facts is not None  # noqa: S101  the current database exists
    return facts


def require_direct(name: str, first: Connection, second: Connection) -> None:
    """Raise FollowerRefusedError if a pooler or proxy answers instead of the server.

    `first`, `second`: two sessions of the follower's DSN.
    """
    found = poolers.detect_pooler(first, second)
    if found.in_between or found.shared:
        raise FollowerRefusedError(
            f"{connecting.label(name)}: a pooler or proxy is in front of it, and settings of a session would not last; "
            "connect to its server directly, not through a pooler such as pgbouncer"
        )


def require_writable(name: str, facts: ServerFacts) -> None:
    """Raise FollowerRefusedError if the server is too old, or its database cannot be written."""
    if facts.version < MIN_VERSION:
        raise FollowerRefusedError(
            f"{connecting.label(name)}: it runs Postgres {facts.shown_version}, but 14 or newer is needed; upgrade it"
        )
    if facts.standby:
        raise FollowerRefusedError(
            f"{connecting.label(name)}: database {facts.database} is a standby, which follows its own primary; "
            "name a server that can be written, or promote it"
        )
    if facts.read_only:
        raise FollowerRefusedError(
            f"{connecting.label(name)}: database {facts.database} is read-only; "
            "set default_transaction_read_only = off there, or name one that can be written"
        )


def require_known_schema(name: str, follower: Connection) -> None:
    """Raise FollowerRefusedError if an applier of a newer version created the schema there."""
    found = position.schema_version(follower)
    if found is not None and found > position.SCHEMA_VERSION:
        raise FollowerRefusedError(
            f"{connecting.label(name)}: its schema {SCHEMA} is of version {found}, made by a newer server, and this "
            f"one knows {position.SCHEMA_VERSION}; use that server's version, or drop the schema there"
        )


def warnings(name: str, facts: ServerFacts) -> Iterator[str]:
    """Yield warnings about what may stop the follower later."""
    if facts.encoding != "UTF8":
        yield (
            f"{connecting.label(name)}: database {facts.database} is encoded in {facts.encoding}, which cannot hold "
            "every text: a text that it cannot hold would stop the follower"
        )


def positions(follower: Connection, facts: ServerFacts, source: uuid.UUID) -> dict[str, RegisteredPosition]:
    """Return the positions in this database by follower; earlier followers and other servers may have left them."""
    if not facts.is_installed:
        return {}
    query = """select follower::text, seq, commit_lsn, committed_at from pipeline_follower.position
        where source_database_id = %s"""
    return {
        name: RegisteredPosition(seq, lsn, at) for name, seq, lsn, at in follower.execute(query, (source,)).fetchall()
    }


def forget_statement(source: uuid.UUID, name: str) -> str:
    """Return the statement that deletes one of these positions, to be run in the follower's database."""
    return f"delete from {SCHEMA}.position where (source_database_id, follower) = ('{source}', '{name}')"  # noqa: S608
