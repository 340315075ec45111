"""A session's client that counts and acknowledges, and takes little of the processors that it shares with the server.

python -m tests.benchmarks.session_client PORT SLOT CHANGES SECONDS: says "connected"; when this many changes have come,
or the seconds are over, "drained CHANGES SECONDS FRAMES LONGEST": from its request on, and the longest frame's bytes.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterator

ACKNOWLEDGE_SECONDS = 0.1
"""Seconds between two reports, at least."""
_TEXT, _FIRST, _PIECE, _LAST, _CLOSE, _PING = 0x81, 0x01, 0x00, 0x80, 0x88, 0x89
_PONG = b"\x8a\x80\x00\x00\x00\x00"
_ROOM = 1 << 20


class Connection:
    """One WebSocket, of which whole frames come."""

    def __init__(self, port: int, slot: str, seconds: float) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), seconds)
        self._rest = b""
        request = (
            f"GET /v1/lr/stream?slotName={slot} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        self._socket.sendall(request.encode())
        while b"\r\n\r\n" not in self._rest:
            self._rest += self._socket.recv(_ROOM)
        head, _, self._rest = self._rest.partition(b"\r\n\r\n")
        if b" 101 " not in head.split(b"\r\n")[0]:
            raise SystemExit(f"no stream: {head.decode()} {self._rest.decode()}")

    def frames(self) -> Iterator[bytes]:
        """Texts; raises SystemExit with the reason of a close, TimeoutError when nothing comes."""
        data, at = self._rest, 0
        pieces: list[bytes] = []
        while True:
            if (found := _head(data, at)) is None or len(data) < found[1] + found[2]:
                data, at = data[at:] + self._more(found, len(data)), 0
                continue
            kind, begin, length = found
            at = begin + length
            if kind == _TEXT:
                yield data[begin:at]
            elif kind in (_FIRST, _PIECE, _LAST):
                pieces.append(data[begin:at])
                if kind == _LAST:
                    yield b"".join(pieces)
                    pieces = []
            elif kind == _PING:
                self._socket.sendall(_PONG)
            elif kind == _CLOSE:
                raise SystemExit(f"closed: {data[begin:at]!r}")

    def acknowledge(self, lsn: bytes) -> None:
        text = b'{"lsn":"' + lsn + b'"}'
        self._socket.sendall(bytes([_TEXT, 0x80 | len(text)]) + bytes(4) + text)

    def _more(self, found: tuple[int, int, int] | None, have: int) -> bytes:
        """At least what is missing of the frame that has begun, in pieces that are joined once."""
        missing = found[1] + found[2] - have if found and found[1] + found[2] > have else 1
        pieces: list[bytes] = []
        while missing > 0:
            piece = self._socket.recv(max(_ROOM, min(missing, 1 << 24)))
            if not piece:
                raise SystemExit("the connection broke")
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)


def _head(data: bytes, at: int) -> tuple[int, int, int] | None:
    """Kind, where the payload begins, and its length; None while the head is not whole."""
    if len(data) < at + 10:
        if len(data) < at + 2 or data[at + 1] > 125:
            return None
        return data[at], at + 2, data[at + 1]
    length = data[at + 1]
    if length < 126:
        return data[at], at + 2, length
    size = 2 if length == 126 else 8
    return data[at], at + 2 + size, int.from_bytes(data[at + 2 : at + 2 + size])


def main(port: int, slot: str, changes: int, seconds: float) -> None:
    started = acknowledged = time.monotonic()
    connection = Connection(port, slot, seconds)
    print("connected", flush=True)
    seen = frames = longest = 0
    for text in connection.frames():
        frames += 1
        longest = max(longest, len(text))
        seen += text.count(b'{"kind":"')
        now = time.monotonic()
        if seen >= changes or now > acknowledged + ACKNOWLEDGE_SECONDS:
            acknowledged = now
            connection.acknowledge(text[12 : text.index(b'"', 12)])
        if seen >= changes or now > started + seconds:
            break
    print("drained", seen, f"{time.monotonic() - started:.6f}", frames, longest, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
