"""Which changes were sent before a message that was written before them, wherever what is read is cut. Bytes only."""

from __future__ import annotations

import struct

import pytest

from pipeline.replication.ties import changes_behind, hold_back


def sent(kind: bytes, lsn: int) -> bytes:
    return b"w" + struct.pack(">QQq", lsn, lsn, 0) + kind


KEEPALIVE = b"k" + struct.pack(">QqB", 900, 0, False)
BEGIN, EARLIER, MESSAGE = sent(b"B", 300), sent(b"I", 100), sent(b"M", 200)
TIED = [sent(b"I", 200) + bytes([number]) for number in range(3)]


def test_changes_of_the_record_behind_the_message_are_found():
    assert changes_behind([BEGIN, EARLIER, *TIED, MESSAGE], 5) == TIED
    assert changes_behind([BEGIN, *TIED[:2], KEEPALIVE, TIED[2], KEEPALIVE, MESSAGE], 6) == TIED


def test_what_was_written_before_the_message_or_is_no_change_stays():
    assert changes_behind([BEGIN, EARLIER, MESSAGE], 2) == []
    assert changes_behind([*TIED, sent(b"R", 0), MESSAGE], 4) == []
    assert changes_behind([sent(b"C", 200), MESSAGE], 1) == []
    assert changes_behind([MESSAGE], 0) == []


@pytest.mark.parametrize("cut", range(7))
def test_they_are_found_wherever_what_is_read_is_cut(cut: int):
    stream = [BEGIN, EARLIER, *TIED, MESSAGE]
    first = stream[:cut]
    held = hold_back(first)
    second = held + stream[cut:]
    assert first + second == stream
    if MESSAGE in second:
        assert changes_behind(second, second.index(MESSAGE)) == TIED
    else:
        assert MESSAGE in first


def test_only_changes_are_held_back_and_no_keepalive():
    messages = [BEGIN, EARLIER, TIED[0], KEEPALIVE]
    assert hold_back(messages) == [TIED[0]]
    assert messages == [BEGIN, EARLIER, KEEPALIVE]
    for rest in ([], [BEGIN], [sent(b"C", 200)], [KEEPALIVE]):
        assert hold_back(rest) == []
