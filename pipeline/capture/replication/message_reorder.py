"""Restores the order of logical messages, which Postgres may send after changes that were made later. Pure.

The changes of subtransactions are merged by LSN (reorderbuffer.c, ReorderBufferIterTXNNext). A change has the LSN of
the beginning of its WAL record. A message (pg_logical_emit_message) has the LSN of the end of its record (decode.c,
logicalmsg_decode), where the next record begins. With the same LSN, either of the two may be sent first.
"""

from __future__ import annotations

from pipeline.wal import pgoutput

_LSN = slice(1, 9)
"""The bytes of the LSN in the header of XLogData."""
_ROWS = frozenset(b"IUD")
"""Changes of rows, without truncations: records of new files come between a message and the record of a truncation.
"""


class MessageReorder:
    """Finds the changes before which a message belongs, even if an earlier read returned them."""

    def __init__(self) -> None:
        self.held: list[bytes] = []
        """The last changes read, all of one record: a message that belongs before them may still follow."""

    def hold_back(self, messages: list[bytes]) -> None:
        """Remove the changes of one record at the end of `messages`: the next message may belong before them.

        Their transaction is not complete yet, so this delays nothing.
        """
        places = _of_one_record(messages, len(messages), None)
        self.held = [messages[place] for place in places]
        for place in reversed(places):
            del messages[place]

    def with_held(self, messages: list[bytes]) -> list[bytes]:
        """Return the changes that were held back, followed by the messages that were read next."""
        return self.held + messages

    @staticmethod
    def sent_too_early(messages: list[bytes], place: int) -> list[bytes]:
        """Return the changes directly before the message at `place` that were made after the message."""
        return [messages[found] for found in _of_one_record(messages, place, messages[place][_LSN])]


def _of_one_record(messages: list[bytes], end: int, lsn: bytes | None) -> list[int]:
    """Return the indexes of the changes before `end` with this LSN, by default the last one's.

    Keepalives may be between them.
    """
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
