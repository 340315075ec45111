"""What may be confirmed to the source, and when, also while no changes wait to be staged. Pure: time is passed to it.

A keepalive says that everything before its `wal_end` was sent, so the position moves past WAL without changes for us.
Inside of a transaction it does not: there `wal_end` is the commit of that same transaction (postgres-facts.md 8).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

PACE = 0.004
"""At least so many seconds between two commits of the worker."""
CONFIRM_EVERY = 1.0
"""So many seconds after the last confirmation, what was staged is made durable and confirmed."""
IDLE_BYTES, IDLE_SECONDS = 65_536, 10.0
"""In WAL without changes for us, the position moves after so many bytes or seconds: storing it writes WAL too."""
IDLE_PACE = 0.1
"""And at most so often: where our own database is on the same server, its writes are such WAL, megabytes a second."""
NEVER = 2**63
"""No LSN is as large."""


@dataclass(frozen=True)
class ConfirmPace:
    """When a position that may move does: so many seconds after it last did.

    `reply`: where the source waits for a reply; `confirm`: past what is staged; `idle`: past WAL without changes for
    us, and `idle_many` past `idle_bytes` of it or more.
    """

    reply: float = PACE
    confirm: float = CONFIRM_EVERY
    idle: float = IDLE_SECONDS
    idle_many: float = IDLE_PACE
    idle_bytes: int = IDLE_BYTES


WORKER = ConfirmPace()


class PartEndedError(Exception):
    """Everything from here on belongs to another worker."""


class ConfirmRule:
    """Fed with each Begin, Commit and keepalive, and with what is staged and durable, it says what may be confirmed.

    Never a point inside of a transaction, nor one with received changes before it that are not staged yet.
    """

    def __init__(self, position: int = 0, pace: ConfirmPace = WORKER) -> None:
        """`position`: everything before it is staged."""
        self._pace = pace
        self.until = NEVER
        """Transactions that commit here or later belong to another worker."""
        self.passed = 0
        """The source has sent everything before it; updated only outside of transactions."""
        self.position = position
        self.confirmed = 0
        """Everything before it is durable, and was confirmed to the source."""
        self.resumed = False
        """Whether the source has shown that its history contains our position: until then, nothing is confirmed."""
        self.ended = False
        """Whether everything before `until` has arrived."""
        self._confirmed_at = 0.0
        self._open = False
        self._whole = False
        self._taken = False
        self.held = False
        """Whether something that was taken is not stored yet, though all that was taken is written."""
        self._asked = False
        self._wanted = NEVER
        self._staged = 0

    def begin(self, commit_lsn: int) -> None:
        """A transaction begins to arrive. Raises PartEndedError when it belongs to another worker."""
        if commit_lsn >= self.until:
            self._end()
        self._open = True

    def commit(self, *, empty: bool = False) -> None:
        """It has arrived completely, and waits to be staged; `empty`: there is nothing to stage."""
        self._open = False
        self._whole = self._whole or not empty

    def keepalive(self, wal_end: int, *, asked: bool = False) -> None:
        """`asked`: the source waits for a reply. Raises PartEndedError when everything before `until` has arrived."""
        self._asked = self._asked or asked
        if not self._open:
            self.pass_to(wal_end)
            self.require_more()

    def want(self, position: int) -> None:
        """Somebody waits until the log has everything before it: it is stored as soon as it is passed."""
        self._wanted = position

    def pass_to(self, position: int) -> None:
        """Everything for us that commits before it has arrived."""
        self.passed = min(position, self.until)

    def require_more(self) -> None:
        """Raises PartEndedError when everything before `until` has arrived."""
        if self.passed >= self.until:
            self._end()

    def take(self) -> None:
        """What has arrived is about to be staged."""
        self._whole = False
        self._taken = True

    def stage(self, position: int, *, empty: bool = False) -> None:
        """What was taken is staged, and with it everything before `position`; `empty`: none of it is for us."""
        self._taken = False
        if empty:
            self.passed = max(self.passed, position)
        else:
            self.position = position

    def resume(self, position: int) -> None:
        """Replayed transactions, from `position` on, have proved equal to what is stored."""
        self.resumed = True
        self.confirmed = position

    def confirm(self, position: int, now: float) -> None:
        """Everything before `position` is durable."""
        self.confirmed, self._confirmed_at = position, now

    def due(self, now: float) -> int | None:
        """The position to store and confirm now, when there is nothing to stage; None when that can wait.

        Storing it makes durable what was staged before.
        """
        target, is_due = self._target, self.is_due(now)
        if is_due or target <= self.confirmed:  # who asked, or waits for something before it, is answered
            self._asked = False
            self._wanted = NEVER if target > self._wanted else self._wanted
        return target if is_due else None

    def is_due(self, now: float) -> bool:
        """Whether there is such a position."""
        target = self._target
        behind, waited = target - self.confirmed, now - self._confirmed_at
        return behind > 0 and (
            (self.position > self.confirmed and waited >= self._pace.confirm)
            or (behind >= self._pace.idle_bytes and waited >= self._pace.idle_many)
            or waited >= self._pace.idle
            or (self._asked and waited >= self._pace.reply)
            or target > self._wanted
        )

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits for the position that is `due`."""
        return self._target > self._wanted

    @property
    def _target(self) -> int:
        return self.position if self._open or self._whole or self.held else max(self.position, self.passed)

    def due_at_end(self) -> int | None:
        """The same at the end, when every complete transaction is staged and no more will be."""
        target = max(self.position, self.until if self.ended else 0)
        return target if target > self.confirmed else None

    @property
    def staged(self) -> int:
        """No change for us that commits before it waits to be staged; 0 before `resume`."""
        if self.resumed:
            busy = self._taken or self._open or self._whole or self.held
            self._staged = max(self._staged, self.position, 0 if busy else self.passed)
        return self._staged

    def _end(self) -> NoReturn:
        self.ended = True
        raise PartEndedError
