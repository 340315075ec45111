"""Tables that the source has got since a follower was added: each is made and copied before its first event."""

from __future__ import annotations

import logging

from pipeline.config import patterns
from pipeline.config.settings import Config
from pipeline.errors import SchemaStopped
from pipeline.followers import registry
from pipeline.followers.applying import position
from pipeline.followers.registry import Follower, TableName
from pipeline.followers.routed import is_routed
from pipeline.followers.schema_changes import source_tables
from pipeline.followers.schema_changes.renames import Renames
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

logger = logging.getLogger(__name__)
_ROOM = "followers.schema_changes"


def take_up(
    config: Config, log: Connection, state: Connection, follower: Connection, found: Follower, renames: Renames
) -> bool:
    """Let those be copied that the follower is to have and does not; whether there was one.

    What has been dropped since leaves nothing to follow; what was renamed since is called as it is now. One that was
    dropped and made again under its name takes the place of the one before. Raises SchemaStopped where the follower is
    not to follow such changes.
    """
    here = position.existing(follower, found.source_id, found.name)
    values = {**vars(here), "known": list(renames.called(follower)), "partitions_stay": found.ddl == "stop"}
    listed = queries.rows(log, TableName, statement(_ROOM, "tables_after"), values)
    new = [table.table_oid for table in listed if _is_wanted(config, found, table)]
    targets = {oid: each.called for oid, each in source_tables.read(config, new).items()} if new else {}
    if not targets:
        return False
    _require_wanted(found, ".".join(next(iter(targets.values()))))
    taken = renames.take(state, follower, targets)
    registry.add_tables(state, found.id, [TableName(oid, *name) for oid, name in taken.items()])
    for schema, name in taken.values():
        logger.info("%s: table %s.%s is new", found.name, schema, name, extra={"action": "follower.new_table"})
    return True


def _require_wanted(found: Follower, name: str) -> None:
    if found.ddl == "stop":
        raise SchemaStopped(
            f"the follower stops: table {name} is new at the source, and --ddl is stop",
            f"remove it, and add it again with its table {name}: `pipeline followers remove {found.name}`",
        )


def _is_wanted(config: Config, found: Follower, table: TableName) -> bool:
    name = f"{table.table_schema}.{table.table_name}"
    return patterns.matches(tuple(found.tables), name) and not is_routed(config, table.table_schema, table.table_name)
