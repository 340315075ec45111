"""One session: what it was sent, what it has acknowledged, and how far the shared position may move for its sake."""

from __future__ import annotations

import asyncio

from pipeline.consumers.cursor.claims import Claim
from pipeline.consumers.cursor.feed import Follower
from pipeline.errors import PipelineError
from pipeline.log.shapes import EventColumns
from pipeline.wires.walstream.ledger import Ledger
from pipeline.wires.walstream.store import SessionNote


class Session:
    """`ended`: why it must end. `id`: of its row."""

    def __init__(self, session: int, claim: Claim, follower: Follower[EventColumns]) -> None:
        """`claim`: of the cursor, behind whose position it begins, as `follower` does."""
        self.id = session
        self.claim = claim
        self.follower = follower
        self.ended: asyncio.Future[PipelineError] = asyncio.get_running_loop().create_future()
        self._acknowledged = self._sent = follower.position
        self._ledger = Ledger(follower.position)
        self._transaction: str | None = None
        self._noted: SessionNote | None = None

    def begin_to_send(self, event: EventColumns) -> None:
        """It is about to be sent this event."""
        self._ledger.sent(event.commit_lsn or 0, event.seq, begins=event.transaction != self._transaction)
        self._transaction, self._sent = event.transaction, event.seq

    def whole(self) -> None:
        """No transaction continues after what was sent."""
        self._ledger.whole()

    def acknowledge(self, lsn: int) -> None:
        """It has the next event with that `pg_lsn` that it had not acknowledged, and all before it."""
        self._ledger.acknowledge(lsn)

    def note(self, *, ended: bool = False) -> SessionNote:
        """Return what its row must say: up to which seq it needs nothing, and what it was sent."""
        ledger = self._ledger
        passed = ledger.settled if ledger.owes else max(ledger.settled, self.follower.position)
        self._acknowledged = max(self._acknowledged, passed)
        return SessionNote(self.id, self._acknowledged, self._sent, ledger.unacknowledged, ended)

    def news(self) -> list[SessionNote]:
        """Return the note if it has changed since the last call."""
        before, self._noted = self._noted, self.note()
        return [] if self._noted == before else [self._noted]
