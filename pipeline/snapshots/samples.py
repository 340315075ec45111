"""Find a seq of the log such that all transactions that a snapshot does not contain come after it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from psycopg import sql

from pipeline.capture.source.sources import ReplicationSource
from pipeline.log.table import EventsTable
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

Seqs = Mapping[str, int]
"""A seq for each events table."""


class SeqSampler:
    """Takes samples of both databases: first the newest seqs of the log, then the running transactions.

    A transaction that gets its xid after the sample comes after these seqs. A transaction that was running at the
    sample may be in the log although other sessions still see it as running: a commit that waits for a standby is
    streamed. So such transactions are searched among the events since the previous sample.
    """

    def __init__(self, source: Connection, pipeline: Connection, stored: ReplicationSource) -> None:
        self._source, self._pipeline, self._stored = source, pipeline, stored
        self._next_xid = 0
        self._seqs: Seqs = {}
        self._absent: dict[int, Seqs | None] = {}
        """Running transactions, with seqs up to which they are not in the log; None: not known."""

    def take_sample(self) -> tuple[int, Seqs]:
        """Take a sample; returns the next xid, and the seqs that were read before it."""
        seqs: Seqs = queries.value(self._pipeline, statement("snapshots", "sample"), {"source": self._stored.id})
        next_xid, running = parts(queries.value(self._source, "select pg_catalog.pg_current_snapshot()::text"))
        known = {xid for xid in running if self._next_xid and (xid >= self._next_xid or self._absent.get(xid))}
        present = self._found(known, seqs) if known else set()
        self._absent = {
            xid: None if xid not in known else self._before(xid) if xid in present else seqs for xid in running
        }
        self._next_xid, self._seqs = next_xid, seqs
        return next_xid, seqs

    def _before(self, xid: int) -> Seqs | None:
        """Return the seqs up to which the log does not have the transaction, as the previous sample found."""
        return self._seqs if xid >= self._next_xid else self._absent.get(xid)

    def _found(self, xids: Collection[int], seqs: Seqs) -> set[int]:
        """Return the transactions among these that the log has between the previous sample and these seqs."""
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
        # The seqs of a transaction that an earlier sample found in the log do not move.
        return found | {xid for xid in xids if (pinned := self._absent.get(xid)) and pinned != self._seqs}

    def before(self, snapshot: str, since: Seqs) -> Seqs:
        """Return seqs before every transaction that this snapshot, taken after the last sample, does not contain.

        `since`: seqs that are certainly before these transactions.
        """
        _, running = parts(snapshot)
        found = self._seqs
        for xid in running:
            if xid < self._next_xid:
                absent = self._absent.get(xid) or since
                found = {name: min(seq, absent.get(name, 0)) for name, seq in found.items()}
        return found


def parts(snapshot: str) -> tuple[int, set[int]]:
    """Return the next xid of a pg_snapshot, and the transactions that were running."""
    _, xmax, running = snapshot.split(":")
    return int(xmax), {int(xid) for xid in running.split(",") if xid}
