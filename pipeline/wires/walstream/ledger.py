"""What one session was sent and has acknowledged, transaction by transaction. Pure.

Clients acknowledge events by `pg_lsn`, which all events of a transaction share.
"""

from __future__ import annotations

from array import array

REMEMBERED = 65_536
"""So many transactions that were sent and are not acknowledged are remembered; of more, the oldest half is forgotten.

Acknowledging one that is forgotten means nothing, so that what comes again is more, never less.
"""


class Ledger:
    """`settled`: the session has everything up to this seq, which ends a transaction, or where it began."""

    def __init__(self, position: int) -> None:
        """The session begins after this seq."""
        self.settled = position
        self.unacknowledged = 0
        """Events that were sent and not acknowledged."""
        self._lsns = array("q")
        self._ends = array("q")
        self._counts = array("q")
        self._first = 0  # those before are acknowledged, or forgotten
        self._acknowledged = 0  # events of the first one
        self._forgotten = 0  # events of forgotten ones
        self._open = False  # more events of the last one may follow

    @property
    def owes(self) -> bool:
        """Whether something that was sent is not acknowledged, or only a part of a transaction was sent."""
        return self._first < len(self._lsns)

    def sent(self, lsn: int, seq: int, *, begins: bool) -> None:
        """An event is about to be sent. `begins`: it is the first of its transaction."""
        if begins:
            self.whole()
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

    def whole(self) -> None:
        """The transaction of the last event was sent as a whole."""
        self._open = False
        self._settle()

    def acknowledge(self, lsn: int) -> bool:
        """The next event of this `pg_lsn` that is not acknowledged, and all before it, are; False: it means nothing."""
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
        """The first transaction is settled once it is acknowledged and nothing more of it comes."""
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
