"""Tables whose values DDL has changed without events: a follower has them only by a copy."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from pipeline.errors import SchemaStopped
from pipeline.followers.applying.position import Position
from pipeline.followers.copying import copies
from pipeline.followers.registry import Follower
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

logger = logging.getLogger(__name__)
_ROOM = "followers.schema_changes"


@dataclass(frozen=True)
class _Rewritten:
    """As `unsettled_rewrites.sql` has it."""

    table: str
    table_oid: int
    ids: list[int]
    columns: list[str]
    kinds: list[str]
    from_lsn: int | None
    found_at: datetime


def begin(log: Connection, follower: Connection, found: Follower, here: Position) -> None:
    """Before anything is copied; nothing where it has begun. Copies have what was rewritten before they are made."""
    upto = _newest(log, here)
    if found.copy != "source":
        values = {**vars(here), "made_at": found.made_at}
        upto = queries.value(log, statement(_ROOM, "rewrites_before"), values)
    follower.execute(statement(_ROOM, "begin_rewrites"), {**vars(here), "upto": upto})


def copy_anew(log: Connection, follower: Connection, found: Follower, here: Position, called: Collection[int]) -> bool:
    """Let those be copied that were rewritten and are not copied since; whether there was one.

    `called`: oids of the follower's tables. Raises SchemaStopped where they are not to be copied by themselves.
    """
    reached: int = queries.value(follower, statement(_ROOM, "find_rewrites"), vars(here))
    newest = _newest(log, here)
    if newest <= reached:
        return False
    pending = {each.oid for each in copies.wanted(follower, here)}
    query = statement("capture.schema_history", "unsettled_rewrites")
    unsettled = queries.rows(log, _Rewritten, query, {"source": here.source})
    concerned = [each for each in unsettled if max(each.ids) > reached and each.table_oid in called]
    concerned = [each for each in concerned if each.table_oid not in pending]
    if concerned and found.on_rewrite == "stop":
        each = concerned[0]
        raise SchemaStopped(
            f"table {each.table} of the follower stops: DDL has changed values of {', '.join(each.columns)} at the"
            " source without events, and --on-rewrite is stop",
            f"`pipeline followers resync {found.name} {each.table}`",
        )
    with follower.transaction():
        if concerned:
            copies.want(follower, here, [each.table_oid for each in concerned])
        follower.execute(statement(_ROOM, "store_rewrites"), {**vars(here), "upto": newest})
    for each in concerned:
        extra = {"action": "follower.rewritten"}
        logger.info("%s: table %s was rewritten at the source: it is copied anew", found.name, each.table, extra=extra)
    return bool(concerned)


def _newest(log: Connection, here: Position) -> int:
    return int(queries.value(log, statement(_ROOM, "newest_rewrite"), {"source": here.source}))
