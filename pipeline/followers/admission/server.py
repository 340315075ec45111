"""What a follower's server and user must be like, and what an earlier applier has left there."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.errors import FollowerRefusedError
from pipeline.followers import connecting
from pipeline.followers.applying import position
from pipeline.followers.registry import Position
from pipeline.postgres import poolers, queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

MIN_VERSION = 140000
SCHEMA = "pipeline_follower"
"""What an applier keeps in its follower."""


@dataclass(frozen=True)
class ServerFacts:
    """`has_schema`, `may_use_schema`, `is_installed`: of what an applier keeps there; its tables may all be missing."""

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
        """The user's name for a statement."""
        return '"{}"'.format(self.user_name.replace('"', '""'))


def read(follower: Connection) -> ServerFacts:
    """As they are now."""
    found = queries.one(follower, ServerFacts, statement("followers.admission", "facts"))
    assert found is not None  # noqa: S101  the database we are in
    return found


def require_direct(name: str, first: Connection, second: Connection) -> None:
    """Two sessions of its DSN. Raises FollowerRefusedError where a pooler or proxy answers instead of the server."""
    found = poolers.look(first, second)
    if found.in_between or found.shared:
        raise FollowerRefusedError(
            f"{connecting.what(name)}: a pooler or proxy is in front of it, and settings of a session would not last; "
            "connect to its server directly, not through a pooler such as pgbouncer"
        )


def require_writable(name: str, facts: ServerFacts) -> None:
    """Raises FollowerRefusedError for a server that is too old, or cannot be written."""
    if facts.version < MIN_VERSION:
        raise FollowerRefusedError(
            f"{connecting.what(name)}: it runs Postgres {facts.shown_version}, but 14 or newer is needed; upgrade it"
        )
    if facts.standby:
        raise FollowerRefusedError(
            f"{connecting.what(name)}: database {facts.database} is a standby, which follows its own primary; "
            "name a server that can be written, or promote it"
        )
    if facts.read_only:
        raise FollowerRefusedError(
            f"{connecting.what(name)}: database {facts.database} is read-only; "
            "set default_transaction_read_only = off there, or name one that can be written"
        )


def require_known_schema(name: str, follower: Connection) -> None:
    """Raises FollowerRefusedError where an applier of a newer version has been there."""
    found = position.installed(follower)
    if found is not None and found > position.VERSION:
        raise FollowerRefusedError(
            f"{connecting.what(name)}: its schema {SCHEMA} is of version {found}, made by a newer server, and this one "
            f"knows {position.VERSION}; use that server's version, or drop the schema there"
        )


def warnings(name: str, facts: ServerFacts) -> Iterator[str]:
    """What may become a trouble later."""
    if facts.encoding != "UTF8":
        yield (
            f"{connecting.what(name)}: database {facts.database} is encoded in {facts.encoding}, which cannot hold "
            "every text: what it cannot hold would stop it"
        )


def positions(follower: Connection, facts: ServerFacts, source: uuid.UUID) -> dict[str, Position]:
    """Where appliers have left it, by name of the follower that it was then."""
    if not facts.is_installed:
        return {}
    query = """select follower::text, seq, commit_lsn, committed_at from pipeline_follower.position
        where source_database_id = %s"""
    return {name: Position(seq, lsn, at) for name, seq, lsn, at in follower.execute(query, (source,)).fetchall()}


def forget_statement(source: uuid.UUID, name: str) -> str:
    """The statement by which somebody forgets one of them, there."""
    return f"delete from {SCHEMA}.position where (source_database_id, follower) = ('{source}', '{name}')"  # noqa: S608
