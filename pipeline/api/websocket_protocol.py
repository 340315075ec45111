"""uvicorn's WebSocket connection, changed so that slow clients are tolerated, and vanished clients disconnected."""

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
"""The most bytes of a client's message."""
PING_SECONDS = 20.0
"""Seconds between two pings to a client."""
LINGER_SECONDS = 2.0
"""Seconds after a close in which a client may read data; the rest is discarded."""
PIECE_BYTES = 1 << 18
"""The bytes of one piece. A longer text is sent in pieces, each after the client has read the earlier ones."""
_MAX_UNANSWERED = 8
"""The unanswered retransmissions, for about a minute, after which the peer's machine or network counts as gone."""
_CONTINUED, _FIRST, _FINAL = 0x00, 0x01, 0x80
_WHOLE_TEXT = _FIRST | _FINAL
_UNANSWERED_COUNTERS = range(2, 4)
"""Offsets of tcpi_retransmits and tcpi_probes in Linux's tcp_info. Any packet from the peer's kernel resets both."""


class PatientWebSocket(WebSocketsSansIOProtocol):
    """A connection that ends if the peer's kernel is silent, but not if a pong is late because of unread data."""

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
        else:  # the client has enough to read
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
        """Send a message of ASGI, or many UTF-8 texts at once: `{"type": "websocket.send", "texts": [bytes, …]}`.

        Waits while the client does not read. Raises ClientDisconnected.
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
        """Send all short texts in one write; a call of `send` for each would double the time of a text."""
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
        """Send a text in fragments of one message, between which pings, pongs and a close may be sent."""
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
"""Settings for uvicorn.Config. Without compression a client needs little memory, and all get the same frames."""


def _frame_head(opcode: int, size: int) -> bytes:
    """Return the head of a frame, by RFC 6455, 5.2; a server's frames are not masked."""
    if size < 126:
        return bytes((opcode, size))
    return struct.pack("!BBH", opcode, 126, size) if size < 1 << 16 else struct.pack("!BBQ", opcode, 127, size)


def _is_utf8(frames: list[bytes]) -> bool:
    try:
        b"".join(frames).decode()
    except UnicodeDecodeError:
        return False
    return True
