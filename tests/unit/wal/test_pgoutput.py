"""pgoutput's bytes as messages: every kind, every torn prefix of it, and what must be refused."""

from __future__ import annotations

import struct

import pytest

from pipeline.errors import DecodeError
from pipeline.wal import pgoutput
from pipeline.wal.messages import (
    UNCHANGED,
    BeginMessage,
    CommitMessage,
    DeleteMessage,
    InsertMessage,
    KeepaliveMessage,
    LogicalMessage,
    Message,
    OriginMessage,
    RelationColumn,
    RelationMessage,
    TruncateMessage,
    TypeMessage,
    UpdateMessage,
)


def text(value: bytes) -> bytes:
    return b"t" + struct.pack(">I", len(value)) + value


def row(*columns: bytes) -> bytes:
    return struct.pack(">H", len(columns)) + b"".join(columns)


REL = struct.pack(">I", 16385)
LSN = struct.pack(">Q", 0x16B374D848)
END = struct.pack(">Q", 0x16B374D900)
TIME = struct.pack(">q", 848_000_000_000_001)

CASES: list[tuple[bytes, Message]] = [
    (b"B" + LSN + TIME + struct.pack(">I", 4711), BeginMessage(0x16B374D848, 848_000_000_000_001, 4711)),
    (b"C\0" + LSN + END + TIME, CommitMessage(0x16B374D848, 0x16B374D900, 848_000_000_000_001)),
    (b"O" + LSN + b"upstream\0", OriginMessage(0x16B374D848, "upstream")),
    (
        b"R"
        + REL
        + b"public\0t\0d"
        + struct.pack(">H", 2)
        + b"\1id\0"
        + struct.pack(">Ii", 20, -1)
        + b"\0n\0"
        + struct.pack(">Ii", 1700, 786438),
        RelationMessage(
            16385, "public", "t", "d", (RelationColumn(True, "id", 20, -1), RelationColumn(False, "n", 1700, 786438))
        ),
    ),
    (b"R" + REL + b"\0pg_class\0n" + struct.pack(">H", 0), RelationMessage(16385, "pg_catalog", "pg_class", "n", ())),
    (b"Y" + REL + b"public\0mood\0", TypeMessage(16385, "public", "mood")),
    (b"I" + REL + b"N" + row(text(b"1"), b"n", text(b"")), InsertMessage(16385, [b"1", None, b""])),
    (b"U" + REL + b"N" + row(text(b"1"), b"u"), UpdateMessage(16385, None, False, [b"1", UNCHANGED])),
    (
        b"U" + REL + b"K" + row(text(b"1"), b"n") + b"N" + row(text(b"2"), text(b"x")),
        UpdateMessage(16385, [b"1", None], False, [b"2", b"x"]),
    ),
    (
        b"U" + REL + b"O" + row(text(b"1"), text(b"w")) + b"N" + row(text(b"1"), text(b"x")),
        UpdateMessage(16385, [b"1", b"w"], True, [b"1", b"x"]),
    ),
    (b"D" + REL + b"K" + row(text(b"1"), b"n"), DeleteMessage(16385, [b"1", None], False)),
    (b"D" + REL + b"O" + row(text(b"1"), text(b"x")), DeleteMessage(16385, [b"1", b"x"], True)),
    (b"T" + struct.pack(">I", 2) + b"\3" + REL + struct.pack(">I", 7), TruncateMessage((16385, 7), True, True)),
    (b"M\1" + LSN + b"pfx\0" + struct.pack(">I", 3) + b"abc", LogicalMessage(True, 0x16B374D848, "pfx", b"abc")),
    (b"M\0" + LSN + b"\0" + struct.pack(">I", 0), LogicalMessage(False, 0x16B374D848, "", b"")),
]
IDS = [f"{data[:1].decode()}-{i}" for i, (data, _) in enumerate(CASES)]


@pytest.mark.parametrize(("data", "message"), CASES, ids=IDS)
def test_each_message(data: bytes, message: Message) -> None:
    decoded = pgoutput.decode(data)
    assert decoded == message
    assert type(decoded) is type(message)


@pytest.mark.parametrize(("data", "message"), CASES, ids=IDS)
def test_at_an_offset(data: bytes, message: Message) -> None:
    assert pgoutput.decode(b"w" + bytes(24) + data, pgoutput.XLOG_HEADER) == message


@pytest.mark.parametrize(("data", "message"), CASES, ids=IDS)
def test_every_prefix_is_torn(data: bytes, message: Message) -> None:
    for end in range(len(data)):
        with pytest.raises(DecodeError):
            pgoutput.decode(data[:end])


@pytest.mark.parametrize(("data", "message"), CASES, ids=IDS)
def test_bytes_that_are_left_over_are_refused(data: bytes, message: Message) -> None:
    with pytest.raises(DecodeError):
        pgoutput.decode(data + b"\0")


@pytest.mark.parametrize("data", [b"S" + LSN, b"I" + REL + b"X", b"U" + REL + b"X", b"D" + REL + b"N" + row()])
def test_what_was_not_asked_for_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        pgoutput.decode(data)


def test_keepalive() -> None:
    assert pgoutput.decode_keepalive(b"k" + LSN + TIME + b"\1") == KeepaliveMessage(0x16B374D848, True)
    with pytest.raises(DecodeError):
        pgoutput.decode_keepalive(b"k" + LSN)


def test_status_reports_confirmed_as_flushed_and_applied() -> None:
    data = pgoutput.encode_status(30, 20, 10)
    assert data == b"r" + struct.pack(">QQQqB", 30, 20, 20, 10, 0)
    assert pgoutput.encode_status(30, 20, 10, ask=True) == data[:-1] + b"\1"
    assert pgoutput.encode_status(30, 20, 10, applied=25) == b"r" + struct.pack(">QQQqB", 30, 20, 25, 10, 0)
    assert pgoutput.encode_status(30, 20, 10, applied=5) == data
