"""One session: what it was sent, what it has acknowledged, and how far the shared position may move for its sake."""

from __future__ import annotations

import asyncio

from pipeline.errors import PipelineError
from pipeline.readers.cursor.feed import Follower
from pipeline.readers.cursor.leases import Claim
from pipeline.readers.cursor.shapes import Columns
from pipeline.rpc.walstream.ledger import Ledger


class Session:
    """`ended`: why it must end. `id`: of its row."""

    def __init__(self, session: int, peer: str, claim: Claim, follower: Follower[Columns]) -> None:
        """`claim`: of the cursor, behind whose position it begins, as `follower` does."""
        self.id = session
        self.peer = peer
        self.claim = claim
        self.follower = follower
        self.ended: asyncio.Future[PipelineError] = asyncio.get_running_loop().create_future()
        self.sent = position = follower.position
        self._ledger = Ledger(position)
        self._transaction: str | None = None
        self._noted = (position, 0)

    def begin_to_send(self, event: Columns) -> None:
        """It is about to be sent this event."""
        self._ledger.sent(event.commit_lsn or 0, event.seq, begins=event.transaction != self._transaction)
        self._transaction, self.sent = event.transaction, event.seq

    def whole(self) -> None:
        """No transaction continues after what was sent."""
        self._ledger.whole()

    def acknowledge(self, lsn: int) -> None:
        """It has the next event with that `pg_lsn` that it had not acknowledged, and all before it."""
        self._ledger.acknowledge(lsn)

    @property
    def owes(self) -> bool:
        """Whether it has not acknowledged all that it was sent."""
        return self._ledger.owes

    @property
    def unacknowledged(self) -> int:
        """Events that it was sent and has not acknowledged."""
        return self._ledger.unacknowledged

    @property
    def floor(self) -> int:
        """The seq up to which it needs nothing any more."""
        settled = self._ledger.settled
        return settled if self._ledger.owes else max(settled, self.follower.position)

    def news(self) -> tuple[int, int] | None:
        """What its row should say, if that has changed since it was last asked for: sent seq and unacknowledged."""
        now = self.sent, self.unacknowledged
        if now == self._noted:
            return None
        self._noted = now
        return now
