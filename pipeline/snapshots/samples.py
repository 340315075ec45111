"""After which seq of the log comes every transaction that a snapshot does not contain."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from psycopg import sql

from pipeline.capture.source.sources import ReplicationSource
from pipeline.log.table import EventsTable
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

Seqs = Mapping[str, int]
"""By events table."""


class SeqSampler:
    """Looks at both databases from time to time: first at the log, then at which transactions run.

    A transaction that gets its xid after that look comes after the seqs. One that was running then, and still is, may
    be in the log already, as long as others cannot see it; so it is looked for among the events since the look before.
    """

    def __init__(self, source: Connection, pipeline: Connection, stored: ReplicationSource) -> None:
        self._source, self._pipeline, self._stored = source, pipeline, stored
        self._next_xid = 0
        self._seqs: Seqs = {}
        self._absent: dict[int, Seqs | None] = {}
        """Running transactions, with seqs up to which they are not in the log; None: not known."""

    def take(self) -> tuple[int, Seqs]:
        """Look; returns the next xid and the seqs that were read before it."""
        seqs: Seqs = queries.value(self._pipeline, statement("snapshots", "sample"), {"source": self._stored.id})
        next_xid, running = parts(queries.value(self._source, "select pg_catalog.pg_current_snapshot()::text"))
        known = {xid for xid in running if self._next_xid and (xid >= self._next_xid or self._absent.get(xid))}
        there = self._found(known, seqs) if known else set()
        self._absent = {
            xid: None if xid not in known else self._before(xid) if xid in there else seqs for xid in running
        }
        self._next_xid, self._seqs = next_xid, seqs
        return next_xid, seqs

    def _before(self, xid: int) -> Seqs | None:
        """Up to where it was known to be absent at the look before."""
        return self._seqs if xid >= self._next_xid else self._absent.get(xid)

    def _found(self, xids: Collection[int], seqs: Seqs) -> set[int]:
        """Those of these transactions that are in the log between the look before and these seqs."""
        lower = {xid & 0xFFFFFFFF: xid for xid in xids}
        found: set[int] = set()
        for name, upto in seqs.items():
            after = self._seqs.get(name, 0)
            if upto > after:
                query = sql.SQL(statement("snapshots", "seen_transactions")).format(
                    events=EventsTable.parse(name).identifier
                )
                values = {"after": after, "upto": upto, "xids": list(lower), "epoch": self._stored.epoch}
                found |= {lower[xid] for (xid,) in self._pipeline.execute(query, values).fetchall()}
        # What is pinned stays where it is.
        return found | {xid for xid in xids if (pinned := self._absent.get(xid)) and pinned != self._seqs}

    def before(self, snapshot: str, since: Seqs) -> Seqs:
        """Seqs before everything that this snapshot, taken after the last look, does not contain.

        `since`: seqs that are certainly before it.
        """
        _, running = parts(snapshot)
        found = self._seqs
        for xid in running:
            if xid < self._next_xid:
                absent = self._absent.get(xid) or since
                found = {name: min(seq, absent.get(name, 0)) for name, seq in found.items()}
        return found


def parts(snapshot: str) -> tuple[int, set[int]]:
    """The next xid of a pg_snapshot, and the transactions that were running."""
    _, xmax, running = snapshot.split(":")
    return int(xmax), {int(xid) for xid in running.split(",") if xid}
