"""What walstream's clients are promised, told of what each was given and has acknowledged.

Events are known by a number, in the order of the log. A session begins with a transaction, and is given every event
from there, in order. It begins behind what was stored, and not beyond what a session has acknowledged that is there, or
has ended less than the hold before.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

SLACK = 1.0
"""Seconds that the server may take to see that a client has gone, or that one has come."""


@dataclass(frozen=True)
class Written:
    """One event of the log that these clients get. `first`: the number with which its transaction begins."""

    number: int
    seq: int
    lsn: int
    first: int
    last: int


class Log:
    """All of them, by number."""

    def __init__(self) -> None:
        self.events: list[Written] = []
        self._seqs: list[int] = []

    def add(self, seqs: list[int], lsn: int) -> None:
        """One transaction."""
        first = len(self.events)
        last = first + len(seqs) - 1
        self.events += [Written(first + place, seq, lsn, first, last) for place, seq in enumerate(seqs)]
        self._seqs += seqs

    def after(self, seq: int) -> int:
        """The number of the first event behind that seq."""
        return bisect_left(self._seqs, seq + 1)


@dataclass
class Given:
    """One session, as its client sees it."""

    kind: str
    stored: int  # the position that was read before it connected
    before: list[Given]  # sessions that it knows of, begun earlier
    numbers: list[int] = field(default_factory=list)
    acknowledged: int = 0  # of its events, from the first on, if the server has all that the client has sent
    early: Counter[int] = field(default_factory=Counter)  # of what is not received yet, but perhaps sent
    ended_at: float | None = None
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def receive(self, log: Log, number: int) -> None:
        """The next event."""
        with self.lock:
            self.numbers.append(number)
            lsn = log.events[number].lsn
            if self.early[lsn]:
                self.early[lsn] -= 1
                self.acknowledged = len(self.numbers)

    def acknowledge(self, log: Log, lsn: int) -> None:
        """As the server understands it, if it arrives."""
        with self.lock:
            for place in range(self.acknowledged, len(self.numbers)):
                if log.events[self.numbers[place]].lsn == lsn:
                    self.acknowledged = place + 1
                    return
            self.early[lsn] += 1

    def owes(self, log: Log) -> int | None:
        """The number with which its client must be able to go on; None: that is not known."""
        with self.lock:
            if self.acknowledged < len(self.numbers):
                return log.events[self.numbers[self.acknowledged]].first
            if not self.numbers or self.early.total():  # what was sent is perhaps acknowledged before it was received
                return None
            last = log.events[self.numbers[-1]]
            return last.first if last.number < last.last else last.number + 1


def wrong_with_next(log: Log, given: Given, number: int, hold: float) -> Iterator[str]:
    """What is wrong with the event that a session is given now."""
    if not given.numbers:
        yield from _wrong_beginning(log, given, log.events[number], hold)
    elif number != given.numbers[-1] + 1:
        yield f"a session ({given.kind}) was given event {number} after {given.numbers[-1]}"


def _wrong_beginning(log: Log, given: Given, event: Written, hold: float) -> Iterator[str]:
    number, now = event.number, time.monotonic()
    if event.first != number:
        yield f"a session begins with event {number}, inside of a transaction that begins with {event.first}"
    if number < log.after(given.stored):
        yield f"a session begins with event {number}, though the position was stored at seq {given.stored} before"
    for other in given.before:
        if number < other.numbers[0]:
            yield f"a session begins with event {number}, before an earlier one, which began with {other.numbers[0]}"
        if other.ended_at is not None and now > other.ended_at + hold - SLACK:
            continue
        owed = other.owes(log)
        if owed is not None and number > owed:
            gone = "is there" if other.ended_at is None else f"ended {now - other.ended_at:.1f} s ago"
            yield f"a session begins with event {number}, but one ({other.kind}) that {gone} owes from {owed} on"
