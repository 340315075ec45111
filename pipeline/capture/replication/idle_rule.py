"""What may be stored and confirmed while nothing for us waits to be staged. Pure: it is told the time.

A keepalive says that everything before its `wal_end` was sent, so a position moves on over WAL that holds nothing for
us. Inside of a transaction it says nothing: `wal_end` is that transaction's own commit then (postgres-facts.md 8).
"""

from __future__ import annotations

from typing import NoReturn

PACE = 0.004
"""Seconds between two commits of the worker, at least."""
CONFIRM_EVERY = 1.0
"""Seconds after which what was staged is made durable and confirmed."""
IDLE_BYTES, IDLE_SECONDS = 65_536, 10.0
"""With nothing for us in the WAL, the position moves after so many bytes or seconds. Storing it writes WAL too."""
NEVER = 2**63
"""No LSN is as large."""


class PartEnded(Exception):
    """What comes now is another worker's."""


class IdleRule:
    """Fed Begin, Commit and keepalive as they come, and what is staged and durable, says what may be confirmed.

    Never a point inside of a transaction, nor one behind which something that has come is not staged yet.
    """

    def __init__(self, position: int = 0) -> None:
        """`position`: everything before it is staged."""
        self.until = NEVER
        """Transactions that commit here or later are another worker's."""
        self.passed = 0
        """Outside of transactions, the source has sent everything before."""
        self.position = position
        self.confirmed = 0
        """Everything before is durable, and the source was told so."""
        self.resumed = False
        """Whether the source has shown that its history goes through our position: before, nothing is confirmed."""
        self.ended = False
        """Whether all before `until` has come."""
        self._confirmed_at = 0.0
        self._open = False
        self._whole = False
        self._taken = False
        self._asked = False
        self._staged = 0

    def begin(self, commit_lsn: int) -> None:
        """A transaction begins to come. Raises PartEnded when it is another worker's."""
        if commit_lsn >= self.until:
            self._end()
        self._open = True

    def commit(self) -> None:
        """It has come whole, and waits to be staged."""
        self._open = False
        self._whole = True

    def keepalive(self, wal_end: int, *, asked: bool = False) -> None:
        """`asked`: the source waits for an answer. Raises PartEnded when all that is ours has come."""
        self._asked = self._asked or asked
        if not self._open:
            self.pass_to(wal_end)
            self.require_more()

    def pass_to(self, position: int) -> None:
        """Nothing for us commits before it but what has come."""
        self.passed = min(position, self.until)

    def require_more(self) -> None:
        """Raises PartEnded when all that is ours has come."""
        if self.passed >= self.until:
            self._end()

    def take(self) -> None:
        """What has come is about to be staged."""
        self._whole = False
        self._taken = True

    def stage(self, position: int, *, empty: bool = False) -> None:
        """What was taken is staged, so everything before `position`; `empty`: nothing of it is for us."""
        self._taken = False
        if empty:
            self.passed = max(self.passed, position)
        else:
            self.position = position

    def resume(self, position: int) -> None:
        """What comes again, from `position` on, has turned out to be what we have."""
        self.resumed = True
        self.confirmed = position

    def confirm(self, position: int, now: float) -> None:
        """Everything before `position` is durable."""
        self.confirmed, self._confirmed_at = position, now

    def due(self, now: float) -> int | None:
        """The position to store and confirm now, when nothing can be staged; None when that can wait.

        Storing it makes durable what was staged before.
        """
        target = self.position if self._open or self._whole else max(self.position, self.passed)
        behind, waited = target - self.confirmed, now - self._confirmed_at
        if behind <= 0:
            self._asked = False
            return None
        has_rows = self.position > self.confirmed
        if (
            (has_rows and waited >= CONFIRM_EVERY)
            or behind >= IDLE_BYTES
            or waited >= IDLE_SECONDS
            or (self._asked and waited >= PACE)
        ):
            self._asked = False
            return target
        return None

    def due_at_end(self) -> int | None:
        """The same once everything that came whole is staged and nothing more will be."""
        target = max(self.position, self.until if self.ended else 0)
        return target if target > self.confirmed else None

    @property
    def staged(self) -> int:
        """Nothing for us that commits before it waits to be staged; 0 before `resume`."""
        if self.resumed:
            busy = self._taken or self._open or self._whole
            self._staged = max(self._staged, self.position, 0 if busy else self.passed)
        return self._staged

    def _end(self) -> NoReturn:
        self.ended = True
        raise PartEnded
