"""Which changes were sent before a message that was written before them, wherever what is read is cut. Bytes only."""

from __future__ import annotations

import struct

import pytest

from pipeline.capture.replication.message_reorder import MessageReorder


def sent(kind: bytes, lsn: int) -> bytes:
    return b"w" + struct.pack(">QQq", lsn, lsn, 0) + kind


KEEPALIVE = b"k" + struct.pack(">QqB", 900, 0, False)
BEGIN, EARLIER, MESSAGE = sent(b"B", 300), sent(b"I", 100), sent(b"M", 200)
TIED = [sent(b"I", 200) + bytes([number]) for number in range(3)]


def test_changes_of_the_record_behind_the_message_are_found():
    assert MessageReorder.sent_too_early([BEGIN, EARLIER, *TIED, MESSAGE], 5) == TIED
    assert MessageReorder.sent_too_early([BEGIN, *TIED[:2], KEEPALIVE, TIED[2], KEEPALIVE, MESSAGE], 6) == TIED


def test_what_was_written_before_the_message_or_is_no_change_stays():
    assert MessageReorder.sent_too_early([BEGIN, EARLIER, MESSAGE], 2) == []
    assert MessageReorder.sent_too_early([*TIED, sent(b"R", 0), MESSAGE], 4) == []
    assert MessageReorder.sent_too_early([sent(b"C", 200), MESSAGE], 1) == []
    assert MessageReorder.sent_too_early([MESSAGE], 0) == []


@pytest.mark.parametrize("cut", range(7))
def test_they_are_found_wherever_what_is_read_is_cut(cut: int):
    stream = [BEGIN, EARLIER, *TIED, MESSAGE]
    first = stream[:cut]
    reorder = MessageReorder()
    reorder.hold_back(first)
    second = reorder.with_held(stream[cut:])
    assert first + second == stream
    if MESSAGE in second:
        assert MessageReorder.sent_too_early(second, second.index(MESSAGE)) == TIED
    else:
        assert MESSAGE in first


def test_only_changes_are_held_back_and_no_keepalive():
    messages = [BEGIN, EARLIER, TIED[0], KEEPALIVE]
    reorder = MessageReorder()
    reorder.hold_back(messages)
    assert reorder.held == [TIED[0]]
    assert messages == [BEGIN, EARLIER, KEEPALIVE]
    for rest in ([], [BEGIN], [sent(b"C", 200)], [KEEPALIVE]):
        reorder.hold_back(rest)
        assert reorder.held == []
