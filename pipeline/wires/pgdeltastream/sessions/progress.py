"""How far a session's client has acknowledged, and so the position to store and to confirm. Pure: it is told the time.

Rows are the worker's affair elsewhere; here a transaction counts as staged when its frame is acknowledged.
"""

from __future__ import annotations

from pipeline.capture.replication.confirm_rule import NEVER, ConfirmRule, Pace
from pipeline.wires.pgdeltastream.sessions.acknowledgements import Acknowledgements

IDLE_SECONDS = 10.0
"""A session that has acknowledged all it got moves over idle WAL so long after its position moved last."""
SHUTDOWN_SECONDS = 2.0
"""The source asks for a reply twice within so many seconds only when it waits for all that it sent to be confirmed."""
PACE = Pace(reply=0.0, idle=IDLE_SECONDS, idle_bytes=NEVER)


class Progress:
    """Fed with the stream and with acknowledgements. A position is confirmed to the source once it is `stored`."""

    def __init__(self, position: int, now: float) -> None:
        """`position`: everything before it is acknowledged, and stored."""
        self.rule = ConfirmRule(position, PACE)
        self.rule.resume(position)
        self.rule.confirm(position, now)
        self._acknowledgements = Acknowledgements(position)
        self._asked_at = -SHUTDOWN_SECONDS
        self.begun = 0
        """Where the commit of the last transaction that has begun to arrive begins."""

    @property
    def pending(self) -> bool:
        """Whether there is a frame that is not acknowledged."""
        return self._acknowledgements.pending

    def begin(self, commit_lsn: int) -> None:
        """A transaction begins to arrive."""
        self.begun = commit_lsn
        self.rule.begin(commit_lsn)

    def end(self, end: int, has_frame: bool) -> None:
        """It has arrived."""
        self.rule.commit(empty=not has_frame)
        if has_frame:
            self._acknowledgements.expect(end)
        else:
            self.rule.stage(end, empty=True)

    def sent(self, end: int) -> None:
        """The frame of the transaction that ends there is about to be sent."""
        self._acknowledgements.sent_to = end

    def keepalive(self, wal_end: int, *, asked: bool, now: float) -> bool:
        """Whether the source shuts down and would wait for this client: it has asked twice for what is not there."""
        self.rule.keepalive(wal_end, asked=asked)
        again = asked and now - self._asked_at < SHUTDOWN_SECONDS
        if asked:
            self._asked_at = now
        return again and self.pending

    def acknowledge(self, text: str) -> bool:
        """What a client says; whether something is to be stored by it."""
        position = self._acknowledgements.acknowledge(text)
        if position is None:
            return False
        if not self.pending:
            self.rule.take()
        self.rule.stage(position)
        return True

    @property
    def acknowledged(self) -> int | None:
        """The position to store at once, since a client has acknowledged it; None where it is stored."""
        return self.rule.position if self.rule.position > self.rule.confirmed else None

    def due(self, now: float) -> int | None:
        """The position to store now: `acknowledged`, or one beyond idle WAL."""
        return self.acknowledged or self.rule.due(now)
