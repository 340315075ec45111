"""Finds users of the server that are or can become superusers and read captured tables of other roles.

Postgres runs functions of a table's owner in sessions that read the table: see `pipeline.postgres.reading_session`.
Such a function has the rights of the session's user.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import psycopg

from pipeline.capture.replication import prepare
from pipeline.capture.source import publication_ledger, publishable_tables, sources
from pipeline.capture.source.publishable_tables import PublishableTable, QualifiedTableName
from pipeline.config.settings import Config
from pipeline.errors import PipelineError
from pipeline.followers import connecting, registry
from pipeline.followers.registry import RegisteredFollower
from pipeline.postgres import migrations, queries, reading_session
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

REMEDY = "use a role that can do less: `pipeline check --sql` prints it (docs/how-to/roles-at-the-source.md)"
FOLLOWER_REMEDY = (
    "use a role that owns the follower's tables and can do little else (docs/how-to/role-of-a-follower.md)"
)
_PROGRAM = "pipeline roles"
_SECONDS = 2.0
"""Seconds that a follower has to answer; a follower that does not is skipped."""


@dataclass(frozen=True)
class OwnedTable:
    """A table whose owner is no superuser."""

    name: str
    owner: str


@dataclass(frozen=True)
class SuperuserRisk:
    """A user of the server, how that user is or becomes a superuser, and a table whose owner could exploit it.

    `follower`: the follower at which the user exists; None: the source.
    """

    user: str
    how: str
    table: OwnedTable
    follower: str | None = None

    @property
    def text(self) -> str:
        """The warning, in one line."""
        where = "at the source" if self.follower is None else f'of follower "{self.follower}"'
        return (
            f'user "{self.user}" {where} {self.how}, and {self.table.name} belongs to "{self.table.owner}": code of '
            "that owner may run with the user's rights"
        )

    @property
    def remedy(self) -> str:
        """The remedy for the warning."""
        return REMEDY if self.follower is None else FOLLOWER_REMEDY


def find(config: Config, source: Connection, pipeline: Connection | None) -> list[SuperuserRisk]:
    """Find the risks at the source, then at followers that answer. Raises PipelineError if the source does not."""
    owned = _owned(source, [table.table_name for table in captured(config, source, pipeline)])
    followers = _followers(pipeline)
    found = list(_at_source(config, source, owned)) if owned else []
    if followers:
        with ThreadPoolExecutor(max_workers=min(len(followers), 16)) as pool:
            found += [risk for risk in pool.map(lambda each: _at_follower(each, owned), followers) if risk]
    return found


def captured(config: Config, source: Connection, pipeline: Connection | None) -> list[PublishableTable]:
    """The tables that are or will be captured, partitions too."""
    found = prepare.publisher(config, source, pipeline).tables()
    published = publication_ledger.read_publications(source, [config.publication])
    stored = sources.find_in_any(pipeline, config.source_id) if pipeline is not None else None
    made = stored.publications if stored else {}
    if config.publication not in published or made.get(config.publication) == published[config.publication].oid:
        return found
    return publishable_tables.find_covered(found, published.values())


def _at_source(config: Config, source: Connection, owned: OwnedTable) -> Iterator[SuperuserRisk]:
    how = reach(source)
    if how:
        yield SuperuserRisk(source.info.user, how, owned)
    with reading_session.catalog_session(config, source, name=_PROGRAM) as reading:
        if reading.info.user != source.info.user and (how := reach(reading)):
            yield SuperuserRisk(reading.info.user, how, owned)


def _followers(pipeline: Connection | None) -> list[RegisteredFollower]:
    if pipeline is None or migrations.current_revision(pipeline) != migrations.head():
        return []
    return registry.find(pipeline)


def _at_follower(found: RegisteredFollower, at_source: OwnedTable | None) -> SuperuserRisk | None:
    tables = [QualifiedTableName(table.table_schema, table.table_name) for table in found.table_states]
    try:
        with connecting.answering(found.name, found.dsn, _SECONDS, program=_PROGRAM) as follower:
            how = reach(follower)
            owned = (at_source or _owned(follower, tables)) if how else None
            return SuperuserRisk(follower.info.user, how, owned, found.name) if how and owned else None
    except (PipelineError, psycopg.Error):
        return None  # the follower's status reports this error


def reading_user(config: Config, source: Connection) -> str:
    """The name of the role that reads rows. Raises PipelineError if it cannot log in."""
    with reading_session.catalog_session(config, source, name=_PROGRAM) as reading:
        return reading.info.user


def reach(connection: Connection) -> str | None:
    """Describe why the session's user is a superuser or how that user can become one; None if neither."""
    row = connection.execute(statement("operate", "superuser_reach")).fetchone()
    return str(row[0]) if row else None


def _owned(connection: Connection, tables: Sequence[QualifiedTableName]) -> OwnedTable | None:
    values = {"schemas": [each.schema for each in tables], "names": [each.name for each in tables]}
    return queries.one(connection, OwnedTable, statement("operate", "owners_of_tables"), values)
