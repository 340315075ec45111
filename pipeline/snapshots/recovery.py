"""Ranges whose reader has died, or whose place was lost: they are read again, and only where they have to be."""

from __future__ import annotations

import logging
from uuid import UUID

from pipeline.log.staging import ranges
from pipeline.log.staging.ranges import Unfinished
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

logger = logging.getLogger(__name__)
_MARKER_STATES = """\
select xid::text, pg_catalog.pg_xact_status(xid)
from unnest(%(xids)s::text[]::xid8[]) xid
where xid < pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())
"""
"""What has become of transactions: committed, aborted or in progress; null when it is too long ago to know."""


def recover(source: Connection, pipeline: Connection, source_id: UUID) -> None:
    """Look once at all ranges that are under way.

    A range that is staged belongs to the stream as soon as its marker has committed, whatever has become of its reader.
    Its marker has come by when the stream is beyond it; if the range has no place by then, an older version has met it.
    """
    found = ranges.unfinished(pipeline, source_id)
    lost = [each.id for each in found if (each.state == "reading" and not each.alive) or each.passed]
    lost += _without_marker(source, pipeline, [each for each in found if each.state == "staged" and not each.passed])
    if lost:
        logger.info("%s ranges are read again", len(lost), extra={"action": "snapshot.again"})
        ranges.reset(pipeline, lost)


def _without_marker(source: Connection, pipeline: Connection, staged: list[Unfinished]) -> list[int]:
    """Those whose marker will not come; of the others it is noted before which LSN it has committed."""
    unsure = {each.marker_xid: each for each in staged if each.seen_lsn is None and each.marker_xid is not None}
    if not unsure:
        return []
    rows = source.execute(_MARKER_STATES, {"xids": list(unsure)}).fetchall()
    states: dict[str, str | None] = dict(rows)
    lsn = int(queries.value(source, statement("snapshots", "end_of_wal")))
    lost = []
    for xid, each in unsure.items():
        state = states.get(xid, "aborted")
        if state == "aborted":
            lost.append(each.id)
        elif state != "in progress":
            ranges.seen(pipeline, each.id, lsn)
    return lost
