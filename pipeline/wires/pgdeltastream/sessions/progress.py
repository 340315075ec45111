"""Tracks what a session's client has acknowledged, and the position to store and to confirm.

Does no IO; callers pass the time. The rule of the worker applies, but a transaction counts as staged when its frame is
acknowledged.
"""

from __future__ import annotations

from pipeline.capture.replication.confirm_rule import NEVER, ConfirmPace, ConfirmRule
from pipeline.wires.pgdeltastream.sessions.acknowledgements import FrameAcknowledgements

IDLE_SECONDS = 10.0
"""Seconds after which a session that has acknowledged everything moves past idle WAL."""
SHUTDOWN_SECONDS = 2.0
"""The source asks for a reply twice within these seconds only if it shuts down and waits for confirmations."""
PACE = ConfirmPace(reply=0.0, idle=IDLE_SECONDS, idle_bytes=NEVER)


class SessionProgress:
    """The progress of one session, from its stream and its acknowledgements. A position is stored, then confirmed."""

    def __init__(self, position: int, now: float) -> None:
        """`position`: everything before it is acknowledged, and stored."""
        self.rule = ConfirmRule(position, PACE)
        self.rule.resume(position)
        self.rule.confirm(position, now)
        self._acknowledgements = FrameAcknowledgements(position)
        self._asked_at = -SHUTDOWN_SECONDS
        self.begun = 0
        """The LSN of the commit of the last transaction that has begun to arrive."""

    @property
    def pending(self) -> bool:
        """True if a frame is not acknowledged."""
        return self._acknowledgements.pending

    def begin(self, commit_lsn: int) -> None:
        """Record that a transaction begins to arrive."""
        self.begun = commit_lsn
        self.rule.begin(commit_lsn)

    def end(self, end: int, has_frame: bool) -> None:
        """Record that the transaction has arrived. `end`: its end."""
        self.rule.commit(empty=not has_frame)
        if has_frame:
            self._acknowledgements.expect(end)
        else:
            self.rule.stage(end, empty=True)

    def sent(self, end: int) -> None:
        """Record that the frame of the transaction with this end is about to be sent."""
        self._acknowledgements.sent_to = end

    def keepalive(self, wal_end: int, *, asked: bool, now: float) -> bool:
        """Return True if the source shuts down and waits for this client: it has asked for a reply twice."""
        self.rule.keepalive(wal_end, asked=asked)
        again = asked and now - self._asked_at < SHUTDOWN_SECONDS
        if asked:
            self._asked_at = now
        return again and self.pending

    def acknowledge(self, text: str) -> bool:
        """Take a client's acknowledgement; return True if the position has moved and must be stored."""
        position = self._acknowledgements.acknowledge(text)
        if position is None:
            return False
        if not self.pending:
            self.rule.begin_staging()
        self.rule.stage(position)
        return True

    @property
    def acknowledged(self) -> int | None:
        """The acknowledged position that must be stored at once; None if it is stored."""
        return self.rule.position if self.rule.position > self.rule.confirmed else None

    def due(self, now: float) -> int | None:
        """Return the position to store now: `acknowledged`, or one beyond idle WAL; None if nothing must be stored."""
        return self.acknowledged or self.rule.due(now)
