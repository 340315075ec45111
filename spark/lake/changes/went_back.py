"""Whether the log and the ledger were restored to a state before that of the lake, whose events they then lack."""

from __future__ import annotations

from typing import Any

from lake.errors import TargetUnfit, no_jump
from lake.storage.identity import Lake
from pyspark_sequin_events.query import qualified

_PLACE = """
    select e.source_epoch, e.commit_lsn, (extract(epoch from e.committed_at) * 1000000)::bigint as committed_at
    from {events} e where e.seq = (select max(l.seq) from {events} l where l.seq <= $1)
"""


def places(lake: Lake, upto: int) -> list[dict[str, Any]]:
    """The places at the source of the last event up to a seq: none if it is dropped, several only in a legacy table."""
    return [dict(row) for row in lake.ledger.rows(_PLACE.format(events=qualified(lake.events_table)), (upto,))]


def require_same_log(lake: Lake, head: dict[str, Any]) -> int | None:
    """Raise TargetUnfit if the manifest, whose `head` this is, is ahead of the log, or may be until the log jumps.

    Returns the first seq behind the newest jump of the log if the manifest does not know of that jump: then the ledger
    may lack what is in the lake.
    """
    listed, exported = int(head.get("exported_upto", 0)), lake.ledger.exported_upto(lake.id)
    if head and lake.ledger.waits_for_jump():
        raise no_jump(lake.root)
    known, newest = int(head.get("jump", 0)), lake.ledger.newest_jump(lake.events_table)
    place = head.get("place")
    if known > newest:
        reason = f"it knows that the log jumped to seq {known}, and the log does not"
    elif listed > exported and not listed < newest > known:
        reason = f"it holds events up to seq {listed}, and the log knows of an export up to {exported}"
    elif listed <= exported and place is not None and (there := places(lake, listed)) and place not in there:
        reason = f"the log has another event at seq {listed}"
    else:
        return newest if newest > known else None
    raise TargetUnfit(
        f"{lake.root} is ahead of the log: {reason}, so the pipeline database was restored to an earlier state; "
        "name another PIPELINE_EXPORT_DIR, an empty folder, to begin a new lake"
    )
