"""Tracks what one session was sent and has acknowledged, transaction by transaction. Does no IO.

Clients acknowledge events by `pg_lsn`, which all events of a transaction share.
"""

from __future__ import annotations

from array import array

REMEMBERED = 65_536
"""The number of unacknowledged transactions that are remembered; if there are more, the oldest half is forgotten.

The acknowledgement of a forgotten transaction is ignored, so a client may get more events again, but never fewer.
"""


class AcknowledgementLedger:
    """The transactions that a session was sent. `settled`: the seq up to which it has acknowledged everything."""

    def __init__(self, position: int) -> None:
        """The session begins after this seq."""
        self.settled = position
        self.unacknowledged = 0
        """Events that were sent and not acknowledged."""
        self._lsns = array("q")
        self._ends = array("q")
        self._counts = array("q")
        self._first = 0  # those before it are acknowledged or forgotten
        self._acknowledged = 0  # acknowledged events of the first transaction
        self._forgotten = 0  # events of forgotten transactions
        self._open = False  # more events of the last transaction may follow

    @property
    def owes(self) -> bool:
        """True if an event is not acknowledged, or only a part of a transaction was sent."""
        return self._first < len(self._lsns)

    def sent(self, lsn: int, seq: int, *, begins: bool) -> None:
        """Record that an event is about to be sent. `begins`: it is the first of its transaction."""
        if begins:
            self.end_transaction()
            self._lsns.append(lsn)
            self._ends.append(seq)
            self._counts.append(1)
            self._open = True
            if len(self._lsns) - self._first > REMEMBERED:
                self._forget()
        else:
            self._ends[-1] = seq
            self._counts[-1] += 1
        self.unacknowledged += 1

    def end_transaction(self) -> None:
        """Record that the last transaction was sent completely."""
        self._open = False
        self._settle()

    def acknowledge(self, lsn: int) -> bool:
        """Acknowledge the next event of this `pg_lsn`, and all events before it; False if there is none."""
        try:
            at = self._lsns.index(lsn, self._first)
        except ValueError:
            return False
        self.unacknowledged -= self._forgotten
        self._forgotten = 0
        if at > self._first:
            passed = sum(self._counts[self._first : at]) - self._acknowledged
            self.settled = self._ends[at - 1]
            self._first, self._acknowledged = at, 0
            self.unacknowledged -= passed
        if self._acknowledged >= self._counts[at]:
            return False
        self._acknowledged += 1
        self.unacknowledged -= 1
        self._settle()
        return True

    def _settle(self) -> None:
        """Settle the first transaction if all of it was sent and acknowledged."""
        at = self._first
        if at >= len(self._lsns) or self._acknowledged < self._counts[at] or (self._open and at == len(self._lsns) - 1):
            return
        self.settled = self._ends[at]
        self._first, self._acknowledged = at + 1, 0
        if self._first * 2 > len(self._lsns) > 1_000 or self._first == len(self._lsns):
            self._drop(self._first)

    def _forget(self) -> None:
        oldest = self._first + REMEMBERED // 2
        self._forgotten += sum(self._counts[self._first : oldest]) - self._acknowledged
        self._first, self._acknowledged = oldest, 0
        self._drop(oldest)

    def _drop(self, upto: int) -> None:
        for each in (self._lsns, self._ends, self._counts):
            del each[:upto]
        self._first -= upto
