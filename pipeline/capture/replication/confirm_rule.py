"""Decides what may be confirmed to the source, and when, also if no changes wait to be staged. Pure: time is passed
in.

A keepalive says that everything before its `wal_end` was sent, so the position moves past WAL without changes for us.
Inside of a transaction that is not so: there `wal_end` is the commit of that same transaction (postgres-facts.md 8).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

PACE = 0.004
"""The least seconds between two commits of the worker."""
CONFIRM_EVERY = 1.0
"""Seconds after the last confirmation until staged changes are made durable and confirmed."""
IDLE_BYTES, IDLE_SECONDS = 65_536, 10.0
"""In WAL without changes for us, the position moves after this many bytes or seconds: storing it writes WAL, too."""
IDLE_PACE = 0.1
"""The least seconds between two such moves.

If our own database is on the same server, its writes are such WAL, megabytes a second.
"""
NEVER = 2**63
"""An LSN beyond all others."""


@dataclass(frozen=True)
class ConfirmPace:
    """The seconds after its last move until a position that may move does so.

    `reply`: if the source waits for a reply; `confirm`: past staged changes; `idle`: past WAL without changes for us;
    `idle_many`: past `idle_bytes` or more of such WAL.
    """

    reply: float = PACE
    confirm: float = CONFIRM_EVERY
    idle: float = IDLE_SECONDS
    idle_many: float = IDLE_PACE
    idle_bytes: int = IDLE_BYTES


WORKER = ConfirmPace()


class PartEndedError(Exception):
    """Raised when all later transactions belong to another worker."""


class ConfirmRule:
    """Decides which position may be confirmed, from each Begin, Commit and keepalive, and from what is staged and
    durable.

    It never allows a position inside of a transaction, nor one that has received changes before it that are not
    staged yet.
    """

    def __init__(self, position: int = 0, pace: ConfirmPace = WORKER) -> None:
        """`position`: everything before it is staged."""
        self._pace = pace
        self.until = NEVER
        """Transactions that commit here or later belong to another worker."""
        self.passed = 0
        """The source has sent everything before this LSN; updated only outside of transactions."""
        self.position = position
        self.confirmed = 0
        """Everything before this LSN is durable, and was confirmed to the source."""
        self.resumed = False
        """True once the source has shown that its history contains our position; before that, nothing is confirmed.
        """
        self.ended = False
        """True if everything before `until` has arrived."""
        self._confirmed_at = 0.0
        self._open = False
        self._whole = False
        self._taken = False
        self.held = False
        """True if taken changes are not stored yet, though all of them are written."""
        self._asked = False
        self._wanted = NEVER
        self._staged = 0

    def begin(self, commit_lsn: int) -> None:
        """Note that a transaction begins to arrive. Raises PartEndedError if it belongs to another worker."""
        if commit_lsn >= self.until:
            self._end()
        self._open = True

    def commit(self, *, empty: bool = False) -> None:
        """Note that the transaction has arrived completely and waits to be staged; `empty`: it has nothing to stage."""
        self._open = False
        self._whole = self._whole or not empty

    def keepalive(self, wal_end: int, *, asked: bool = False) -> None:
        """Note how far the source has sent; `asked`: it waits for a reply.

        Raises PartEndedError if everything before `until` has arrived.
        """
        self._asked = self._asked or asked
        if not self._open:
            self.pass_to(wal_end)
            self.require_more()

    def want(self, position: int) -> None:
        """Note that a client waits until the log has everything before `position`: it is then stored as soon as it is
        passed.
        """
        self._wanted = position

    def pass_to(self, position: int) -> None:
        """Note that everything for us that commits before `position` has arrived."""
        self.passed = min(position, self.until)

    def require_more(self) -> None:
        """Raises PartEndedError if everything before `until` has arrived."""
        if self.passed >= self.until:
            self._end()

    def begin_staging(self) -> None:
        """Note that the arrived changes are about to be staged."""
        self._whole = False
        self._taken = True

    def stage(self, position: int, *, empty: bool = False) -> None:
        """Note that the taken changes and all before `position` are staged; `empty`: none of them is for us."""
        self._taken = False
        if empty:
            self.passed = max(self.passed, position)
        else:
            self.position = position

    def resume(self, position: int) -> None:
        """Note that replayed transactions, from `position` on, have proved equal to what is stored."""
        self.resumed = True
        self.confirmed = position

    def confirm(self, position: int, now: float) -> None:
        """Note that everything before `position` is durable."""
        self.confirmed, self._confirmed_at = position, now

    def due(self, now: float) -> int | None:
        """Return the position to store and confirm now, if nothing waits to be staged; None if that can wait.

        Storing the position makes durable what was staged before.
        """
        target, is_due = self._target, self.is_due(now)
        if is_due or target <= self.confirmed:  # the source has its reply, and a waiting client its position
            self._asked = False
            self._wanted = NEVER if target > self._wanted else self._wanted
        return target if is_due else None

    def is_due(self, now: float) -> bool:
        """True if `due` would return a position now."""
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
        """True if a client waits for the position that `due` would return."""
        return self._target > self._wanted

    @property
    def _target(self) -> int:
        return self.position if self._open or self._whole or self.held else max(self.position, self.passed)

    def due_at_end(self) -> int | None:
        """Return the position to store and confirm at the end, when all complete transactions are staged; None if
        none.
        """
        target = max(self.position, self.until if self.ended else 0)
        return target if target > self.confirmed else None

    @property
    def staged(self) -> int:
        """An LSN: no change for us that commits before it waits to be staged; 0 before `resume`."""
        if self.resumed:
            busy = self._taken or self._open or self._whole or self.held
            self._staged = max(self._staged, self.position, 0 if busy else self.passed)
        return self._staged

    def _end(self) -> NoReturn:
        self.ended = True
        raise PartEndedError
