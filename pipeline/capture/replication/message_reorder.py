"""Logical messages that Postgres sends after the change that was made after them. Pure.

The changes of subtransactions are merged by LSN (reorderbuffer.c, ReorderBufferIterTXNNext). A change has the LSN of
the beginning of its WAL record, but a message (pg_logical_emit_message) that of the end of its record (decode.c,
logicalmsg_decode), which is where the next record begins: with the same LSN, either of the two may be sent first.
"""

from __future__ import annotations

from pipeline.wal import pgoutput

_LSN = slice(1, 9)
"""Where the LSN is in the header of XLogData."""
_ROWS = frozenset(b"IUD")
"""Not truncations: their record is never the next one, because records of new files come before it."""


class MessageReorder:
    """Finds the changes before which a message belongs, also where they were read in another batch of messages."""

    def __init__(self) -> None:
        self.held: list[bytes] = []
        """The last changes read, all of one record: a message that belongs before them may still follow."""

    def hold_back(self, messages: list[bytes]) -> None:
        """Remove the changes of one record at the end of `messages`: the next message may belong before them.

        Their transaction is not complete yet, so nothing is delayed by that.
        """
        places = _of_one_record(messages, len(messages), None)
        self.held = [messages[place] for place in places]
        for place in reversed(places):
            del messages[place]

    def joined(self, messages: list[bytes]) -> list[bytes]:
        """What was held back, followed by what was read next."""
        return self.held + messages

    @staticmethod
    def sent_too_early(messages: list[bytes], place: int) -> list[bytes]:
        """The changes directly before the message at `place` that were made after it."""
        return [messages[found] for found in _of_one_record(messages, place, messages[place][_LSN])]


def _of_one_record(messages: list[bytes], end: int, lsn: bytes | None) -> list[int]:
    """Indexes of the changes before `end` with this LSN, by default the last one's; keepalives may be between."""
    found: list[int] = []
    for place in reversed(range(end)):
        data = messages[place]
        if data[0] == pgoutput.KEEPALIVE:
            continue
        if data[pgoutput.XLOG_HEADER] not in _ROWS or (lsn is not None and data[_LSN] != lsn):
            break
        lsn = data[_LSN]
        found.append(place)
    return found[::-1]
