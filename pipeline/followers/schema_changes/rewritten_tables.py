"""Requests copies of tables whose values DDL changed without events: only a copy brings them to a follower."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from pipeline.errors import SchemaChangeError
from pipeline.followers.applying.position import FollowerPosition
from pipeline.followers.copying import copies
from pipeline.followers.registry import RegisteredFollower
from pipeline.followers.schema_changes.table_names import Name
from pipeline.followers.schema_changes.type_changes import UncertainTables
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

logger = logging.getLogger(__name__)
_ROOM = "followers.schema_changes"
_OF_TYPES = frozenset({"attributes", "renamed"})
OF_COMPOSITES = "composite types"
OF_ENUMS = "enums"
"""Messages name this instead of columns if a type of the table's values was altered."""
_BEGIN_REWRITES = """\
update pipeline_follower.position set rewrites_upto = %(upto)s
where source_database_id = %(source)s and follower = %(follower)s and rewrites_upto is null
"""
"""Store this rewrite, if none is stored yet: only later rewrites need copies of their tables."""
_NEWEST_REWRITE = "select coalesce(max(r.id), 0) from pipeline.rewrites r where r.source_id = %(source)s"
"""Read the newest rewrite of any table that was found at a source."""
_STORE_REWRITES = """\
update pipeline_follower.position set rewrites_upto = greatest(rewrites_upto, %(upto)s)
where source_database_id = %(source)s and follower = %(follower)s
"""
"""Store the newest rewrite up to which all copies of rewritten tables are made or requested."""


@dataclass(frozen=True)
class _Rewritten:
    """A rewritten table, as `unsettled_rewrites.sql` returns it."""

    table: str
    table_oid: int
    ids: list[int]
    columns: list[str]
    kinds: list[str]
    from_lsn: int | None
    found_at: datetime


def begin(log: Connection, follower: Connection, registration: RegisteredFollower, here: FollowerPosition) -> None:
    """Store the newest rewrite, unless one is stored. Copies that begin afterwards contain all earlier rewrites."""
    upto = _newest(log, here)
    if registration.copy_mode != "source":
        values = {**vars(here), "made_at": registration.made_at}
        upto = queries.value(log, statement(_ROOM, "rewrites_before"), values)
    follower.execute(_BEGIN_REWRITES, {**vars(here), "upto": upto})


def request_new_copies(
    log: Connection,
    follower: Connection,
    registration: RegisteredFollower,
    here: FollowerPosition,
    called: Mapping[int, Name],
    find_uncertain: Callable[[], UncertainTables],
) -> bool:
    """Request copies of tables that were rewritten since their last copies; returns True if there are any.

    `called`: names of the follower's tables by oid. `find_uncertain`: finds tables whose values are uncertain because
    composite types were altered. Raises SchemaChangeError if the settings forbid new copies.
    """
    reached: int = queries.value(follower, statement(_ROOM, "find_rewrites"), vars(here))
    newest = _newest(log, here)
    if newest <= reached:
        return False
    types = find_uncertain()
    query = statement("capture.schema_history", "unsettled_rewrites")
    unsettled = queries.rows(log, _Rewritten, query, {"source": here.source, "emptied": True})
    concerned = {
        each.table_oid: each.columns
        for each in unsettled
        if max(each.ids) > reached and (not _OF_TYPES.issuperset(each.kinds) or each.table_oid in types.unknown)
    }
    concerned |= {oid: concerned.get(oid, [OF_COMPOSITES]) for oid in types.ambiguous}
    with follower.transaction():
        is_copied = request_copies(follower, registration, here, called, concerned)
        follower.execute(_STORE_REWRITES, {**vars(here), "upto": newest})
    return is_copied


def request_copies(
    follower: Connection,
    registration: RegisteredFollower,
    here: FollowerPosition,
    called: Mapping[int, Name],
    rewritten: Mapping[int, list[str]],
) -> bool:
    """Request new copies of tables, except those that wait for one already; returns True if there are any.

    `rewritten`: by oid, what changed in the table. Raises SchemaChangeError if the settings forbid new copies.
    """
    pending = {each.oid for each in copies.requested(follower, here)}
    names = {oid: ".".join(called[oid]) for oid in rewritten if oid in called and oid not in pending}
    for oid, name in names.items():
        if registration.on_rewrite == "stop":
            raise SchemaChangeError(
                f"table {name} of the follower stops: DDL has changed values of {', '.join(rewritten[oid])} at the"
                " source without events, and --on-rewrite is stop",
                f"`pipeline followers resync {registration.name} {name}`",
            )
        extra = {"action": "follower.rewritten"}
        logger.info(
            "%s: table %s was rewritten at the source and is copied again", registration.name, name, extra=extra
        )
    if names:
        copies.request(follower, here, names)
    return bool(names)


def is_up_to_date(log: Connection, follower: Connection, here: FollowerPosition) -> bool:
    """Return True if `request_new_copies` has seen all rewrites that the log knows."""
    return _newest(log, here) <= int(queries.value(follower, statement(_ROOM, "find_rewrites"), vars(here)))


def _newest(log: Connection, here: FollowerPosition) -> int:
    return int(queries.value(log, _NEWEST_REWRITE, {"source": here.source}))
