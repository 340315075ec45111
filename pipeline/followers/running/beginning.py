"""Which tables a follower takes from the log, and up to where events only say what a row is."""

from __future__ import annotations

from pipeline.followers.applying.followed_tables import Wanted
from pipeline.followers.registry import Follower
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_NOT_YET = 2**63 - 1


def wanted_tables(log: Connection, found: Follower) -> dict[int, Wanted]:
    """By oid. Of one that began from the log, a table may lack rows until it has been read (`pipeline.snapshots`)."""
    complete = dict[int, int | None]()
    if found.copy == "log":
        complete = dict(log.execute(statement("followers.running", "complete_seqs"), {"source": found.source_id}))
    return {
        each.table_oid: Wanted(
            each.table_schema, each.table_name, filled_upto=complete.get(each.table_oid, 0) or _NOT_YET
        )
        if found.copy == "log"
        else Wanted(each.table_schema, each.table_name)
        for each in found.table_states
    }
