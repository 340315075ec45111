"""uvicorn's WebSocket connection, tolerant of clients that read slowly, but closing those that are gone."""

from __future__ import annotations

import socket
import struct
from asyncio.transports import BaseTransport
from collections.abc import Mapping, Sequence
from typing import Any, cast

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from pipeline.close_codes import NOT_TEXT

MAX_CLIENT_FRAME = 65_536
"""Bytes of a client's message."""
PING_SECONDS = 20.0
"""How often a client is pinged."""
LINGER_SECONDS = 2.0
"""How long after a close a client may take data; the rest is discarded."""
PIECE_BYTES = 1 << 18
"""A longer text goes out in pieces, each when the client has read those before it."""
_MAX_UNANSWERED = 8
"""After so many unanswered retransmissions, about a minute, the peer's machine or network is gone."""
_CONTINUED, _FIRST, _FINAL = 0x00, 0x01, 0x80
_WHOLE_TEXT = _FIRST | _FINAL
_UNANSWERED_COUNTERS = range(2, 4)
"""tcpi_retransmits and tcpi_probes in Linux's struct tcp_info: any packet from the peer's kernel resets both."""


class PatientWebSocket(WebSocketsSansIOProtocol):
    """A pong delayed by unread data does not close the connection; a peer whose kernel is silent is given up."""

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)
        if (line := transport.get_extra_info("socket")) is not None and line.family != socket.AF_UNIX:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send_keepalive_ping(self) -> None:
        if self._peer_is_gone():
            self.transport.abort()
        elif self.writable.is_set():
            super().send_keepalive_ping()
        else:  # it has enough to read
            self.schedule_ping()

    def handle_ping(self) -> None:
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()  # discards pongs for a client that pings without reading

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text" and not _is_utf8(self.frames):
            self.frames = []
            self.conn.fail(NOT_TEXT, "text must be UTF-8")
            self.handle_parser_exception()
            return
        super().send_receive_event_to_app()

    async def send(self, message: ASGISendEvent) -> None:
        """As ASGI says, and `{"type": "websocket.send", "texts": [bytes, …]}`: many text messages of UTF-8 at once.

        Held back while the client does not read. Raises ClientDisconnected.
        """
        await self.writable.wait()
        if self.close_sent:  # an invalid frame has closed it while the application was about to send
            raise ClientDisconnected
        texts = cast(Mapping[str, Any], message).get("texts")
        if texts is None:
            await super().send(message)
        else:
            await self._send_texts(texts)

    async def _send_texts(self, texts: Sequence[bytes]) -> None:
        """One write for all that are not long: through `send`, each would cost as much as decoding it did."""
        written: list[bytes] = []
        for text in texts:
            if len(text) <= PIECE_BYTES:
                written += (_frame_head(_WHOLE_TEXT, len(text)), text)
                continue
            self._write(written)
            written = []
            await self._send_long(text)
        self._write(written)

    async def _send_long(self, text: bytes) -> None:
        """In fragments of one message, between which pings, pongs and a close may go out."""
        whole, opcode = memoryview(text), _FIRST
        for start in range(0, len(text), PIECE_BYTES):
            piece = whole[start : start + PIECE_BYTES]
            opcode |= _FINAL if start + PIECE_BYTES >= len(text) else 0
            self._write([_frame_head(opcode, len(piece)), piece])
            opcode = _CONTINUED
            await self.writable.wait()

    def _write(self, parts: Sequence[bytes | memoryview]) -> None:
        if self.disconnected or self.close_sent or self.transport.is_closing():
            raise ClientDisconnected
        if parts:
            self.transport.write(b"".join(parts))

    def shutdown(self) -> None:
        super().shutdown()
        self._linger()

    async def run_asgi(self) -> None:
        await super().run_asgi()
        self._linger()

    def _linger(self) -> None:
        self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    def _peer_is_gone(self) -> bool:
        line = self.transport.get_extra_info("socket")
        if line is None or line.family == socket.AF_UNIX or not hasattr(socket, "TCP_INFO"):
            return False
        said = line.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)
        return any(said[place] >= _MAX_UNANSWERED for place in _UNANSWERED_COUNTERS)


SETTINGS: dict[str, Any] = {
    "ws": PatientWebSocket,
    "ws_max_size": MAX_CLIENT_FRAME,
    "ws_ping_interval": PING_SECONDS,
    "ws_ping_timeout": None,
    "ws_per_message_deflate": False,
}
"""For uvicorn.Config. Without compression each client needs little memory, and all clients get the same frames."""


def _frame_head(opcode: int, size: int) -> bytes:
    """RFC 6455, 5.2; a server's frames are not masked."""
    if size < 126:
        return bytes((opcode, size))
    return struct.pack("!BBH", opcode, 126, size) if size < 1 << 16 else struct.pack("!BBQ", opcode, 127, size)


def _is_utf8(frames: list[bytes]) -> bool:
    try:
        b"".join(frames).decode()
    except UnicodeDecodeError:
        return False
    return True
