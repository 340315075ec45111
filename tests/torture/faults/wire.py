"""The Postgres frontend/backend protocol as far as faults need it: messages, statements, positions. Pure: no IO.

Source: the Postgres manual, "Message Formats" and "Streaming Replication Protocol".
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

CANCEL, SSL, GSS = 80877102, 80877103, 80877104
"""Codes of the requests that may come in the place of a StartupMessage."""
_HEADER = struct.Struct(">ci")
_XLOG_HEADER = 25
_AFTER_COPY = re.compile(r"(.*\bfrom stdin\b[^;]*;)\s*(.+)", re.DOTALL)
_START = re.compile(r"START_REPLICATION .*? LOGICAL ([0-9A-F]+)/([0-9A-F]+)", re.DOTALL)


class Message(NamedTuple):
    """One message: its type byte, what follows the length, and all of its bytes."""

    kind: bytes
    payload: bytes
    raw: bytes


class Splitter:
    """Bytes in, whole messages out; what is not whole yet waits."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that `data` completes."""
        buffer, at = self._buffer + data, 0
        while len(buffer) - at >= _HEADER.size:
            kind, length = _HEADER.unpack_from(buffer, at)
            end = at + 1 + length
            if end > len(buffer):
                break
            yield Message(kind, buffer[at + 5 : end], buffer[at:end])
            at = end
        self._buffer = buffer[at:]


def message(kind: bytes, payload: bytes) -> bytes:
    """A message's bytes."""
    return _HEADER.pack(kind, len(payload) + 4) + payload


def startup_code(startup: bytes) -> int:
    """What a first message of a connection is: a protocol version, or one of the codes above."""
    return int.from_bytes(startup[4:8], "big")


def application_name(startup: bytes) -> str:
    """The name that a StartupMessage gives; empty when none."""
    words = startup[8:].split(b"\0")
    return dict(zip(words[::2], words[1::2], strict=False)).get(b"application_name", b"").decode()


class Statements:
    """Which statement a frontend message runs, prepared ones included, and what ran before in its transaction."""

    def __init__(self) -> None:
        self._prepared: dict[bytes, str] = {}
        self._portals: dict[bytes, str] = {}
        self._after_copy = ""
        self.transaction: list[str] = []

    def feed(self, kind: bytes, payload: bytes) -> str | None:
        """The text that this message runs; None when it runs none. What follows a COPY in one, the copy's end runs."""
        if kind == b"Q":
            query = payload.rstrip(b"\0").decode()
            found = _AFTER_COPY.fullmatch(query)
            query, self._after_copy = found.groups() if found else (query, "")
            return self._run(query)
        if kind == b"c" and self._after_copy:
            rest, self._after_copy = self._after_copy, ""
            return self._run(rest)
        if kind == b"P":
            name, text, _ = payload.split(b"\0", 2)
            self._prepared[name] = text.decode()
        elif kind == b"B":
            portal, name, _ = payload.split(b"\0", 2)
            self._portals[portal] = self._prepared.get(name, "")
        elif kind == b"E":
            return self._run(self._portals.get(payload.split(b"\0", 1)[0], ""))
        return None

    def _run(self, text: str) -> str:
        if text.upper().startswith("BEGIN"):
            self.transaction = []
        self.transaction.append(text)
        return text


def start_position(text: str) -> int | None:
    """From where a START_REPLICATION asks to stream; None for any other statement."""
    found = _START.match(text)
    return int(found[1], 16) << 32 | int(found[2], 16) if found else None


def flushed(payload: bytes) -> int | None:
    """The position that a standby status update confirms; None for other CopyData."""
    return struct.unpack_from(">q", payload, 9)[0] if payload[:1] == b"r" and len(payload) == 34 else None


def change_kind(payload: bytes) -> bytes:
    """The pgoutput type byte of an XLogData; empty for other CopyData."""
    return payload[_XLOG_HEADER : _XLOG_HEADER + 1] if payload[:1] == b"w" else b""


def final_lsn(payload: bytes) -> int:
    """Of the XLogData of a Begin: the LSN of the transaction's commit record."""
    return int(struct.unpack_from(">q", payload, _XLOG_HEADER + 1)[0])


def keepalive(wal_end: int) -> bytes:
    """A primary keepalive that asks for a reply, as the CopyData that carries it."""
    return message(b"d", struct.pack(">cqqb", b"k", wal_end, 0, 1))
