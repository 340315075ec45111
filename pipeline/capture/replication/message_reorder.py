"""Messages that Postgres sends behind the change that came after them. Pure.

What the subtransactions of a transaction wrote is merged by LSN (reorderbuffer.c, ReorderBufferIterTXNNext). A change
has that of the beginning of its WAL record, but a message (pg_logical_emit_message) that of the end of its own
(decode.c, logicalmsg_decode), which is where the next record begins: of the two, either may be sent first.
"""

from __future__ import annotations

from pipeline.wal import pgoutput

_LSN = slice(1, 9)
"""In the header of what is sent."""
_ROWS = frozenset(b"IUD")
"""A truncation's record is never the next one: new files come first."""


class MessageReorder:
    """Finds the changes before which a message belongs, wherever what is read is cut."""

    def __init__(self) -> None:
        self.held: list[bytes] = []
        """Changes of one record that nothing has come behind yet: a message may, which belongs before them."""

    def hold_back(self, messages: list[bytes]) -> None:
        """Take away the changes of one record with which these end: what is read next may be a message before them.

        Their transaction is not whole yet, so nobody waits for them.
        """
        places = _of_one_record(messages, len(messages), None)
        self.held = [messages[place] for place in places]
        for place in reversed(places):
            del messages[place]

    def joined(self, messages: list[bytes]) -> list[bytes]:
        """What was held back, and what was read next."""
        return self.held + messages

    @staticmethod
    def sent_too_early(messages: list[bytes], place: int) -> list[bytes]:
        """The changes directly before the message at `place` that came after it."""
        return [messages[found] for found in _of_one_record(messages, place, messages[place][_LSN])]


def _of_one_record(messages: list[bytes], end: int, lsn: bytes | None) -> list[int]:
    """Where the changes before `end` are that have this LSN, by default the last one's; keepalives may be between."""
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
