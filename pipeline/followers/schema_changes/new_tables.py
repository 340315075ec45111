"""Tables that the source has got since a follower was added: each is made and copied before its first event."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from pipeline.config import patterns
from pipeline.config.settings import Config
from pipeline.errors import SchemaStopped
from pipeline.followers import registry
from pipeline.followers.applying.position import Position
from pipeline.followers.copying import copies
from pipeline.followers.registry import Follower, TableName
from pipeline.followers.routed import is_routed
from pipeline.followers.schema_changes import reached_versions, source_tables
from pipeline.followers.schema_changes.table_names import Name
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

logger = logging.getLogger(__name__)
_ROOM = "followers.schema_changes"


def take_up(
    config: Config,
    log: Connection,
    state: Connection,
    follower: Connection,
    found: Follower,
    here: Position,
    called: Mapping[int, Name],
) -> bool:
    """Let those be copied that the follower is to have and does not; whether there was one.

    `called`: what the follower calls its tables. One that was dropped and made again under its name takes the place of
    the one before. Raises SchemaStopped where it is not to follow such changes.
    """
    values = {**vars(here), "known": list(called)}
    listed = queries.rows(log, TableName, statement(_ROOM, "tables_after"), values)
    new = [table for table in listed if _is_wanted(config, found, table)]
    if not new:
        return False
    holders = {name: oid for oid, name in called.items()}
    held = {holders[name] for table in new if (name := (table.table_schema, table.table_name)) in holders}
    there = source_tables.read(config, [*held, *(table.table_oid for table in new)])
    # What has been dropped since leaves nothing to follow; what was renamed since is called as it is now.
    new = [TableName(each.table_oid, *there[each.table_oid].called) for each in new if each.table_oid in there]
    if new:
        _require_wanted(found, new[0])
        _want(state, follower, found, here, new, [oid for oid in held if oid not in there])
    return bool(new)


def _require_wanted(found: Follower, new: TableName) -> None:
    if found.ddl == "stop":
        name = f"{new.table_schema}.{new.table_name}"
        raise SchemaStopped(
            f"the follower stops: table {name} is new at the source, and --ddl is stop",
            f"remove it, and add it again with its table {name}: `pipeline followers remove {found.name}`",
        )


def _want(
    state: Connection,
    follower: Connection,
    found: Follower,
    here: Position,
    new: Sequence[TableName],
    gone: Sequence[int],
) -> None:
    """`gone`: oids of tables in whose places they are."""
    with follower.transaction():
        copies.want(follower, here, [table.table_oid for table in new])
        reached_versions.forget(follower, here, gone)
        copies.forget(follower, here, gone)
    registry.forget_tables(state, found.id, gone)
    registry.add_tables(state, found.id, new)
    for table in new:
        extra = {"action": "follower.new_table"}
        logger.info("%s: table %s.%s is new", found.name, table.table_schema, table.table_name, extra=extra)


def _is_wanted(config: Config, found: Follower, table: TableName) -> bool:
    name = f"{table.table_schema}.{table.table_name}"
    return patterns.matches(tuple(found.tables), name) and not is_routed(config, table.table_schema, table.table_name)
