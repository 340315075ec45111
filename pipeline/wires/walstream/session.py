"""Tracks one session: what it was sent, what it has acknowledged, and how far it lets the shared position move."""

from __future__ import annotations

import asyncio

from pipeline.consumers.cursor.claims import CursorClaim
from pipeline.consumers.cursor.feed import FeedFollower
from pipeline.errors import PipelineError
from pipeline.log.shapes import EventColumns
from pipeline.wires.walstream.ledger import AcknowledgementLedger
from pipeline.wires.walstream.store import SessionState


class ClientSession:
    """A connected client's session. `ended`: why it must end. `id`: that of its row."""

    def __init__(self, session: int, claim: CursorClaim, follower: FeedFollower[EventColumns]) -> None:
        """`claim`: that of the cursor. The session and `follower` begin behind the position of the cursor."""
        self.id = session
        self.claim = claim
        self.follower = follower
        self.ended: asyncio.Future[PipelineError] = asyncio.get_running_loop().create_future()
        self._acknowledged = self._sent = follower.position
        self._ledger = AcknowledgementLedger(follower.position)
        self._transaction: str | None = None
        self._last_state: SessionState | None = None

    def begin_to_send(self, event: EventColumns) -> None:
        """Record that this event is about to be sent."""
        self._ledger.sent(event.commit_lsn or 0, event.seq, begins=event.transaction != self._transaction)
        self._transaction, self._sent = event.transaction, event.seq

    def end_transaction(self) -> None:
        """Record that the last transaction was sent completely."""
        self._ledger.end_transaction()

    def acknowledge(self, lsn: int) -> None:
        """Acknowledge the next event with that `pg_lsn`, and all events before it."""
        self._ledger.acknowledge(lsn)

    def state(self, *, ended: bool = False) -> SessionState:
        """Return the state to store: the seq up to which the session needs nothing, and what it was sent."""
        ledger = self._ledger
        passed = ledger.settled if ledger.owes else max(ledger.settled, self.follower.position)
        self._acknowledged = max(self._acknowledged, passed)
        return SessionState(self.id, self._acknowledged, self._sent, ledger.unacknowledged, ended)

    def changed_state(self) -> SessionState | None:
        """Return the state if it has changed since the last call."""
        before, self._last_state = self._last_state, self.state()
        return None if self._last_state == before else self._last_state
