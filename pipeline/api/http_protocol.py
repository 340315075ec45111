"""uvicorn's HTTP connection, with limits for clients that send nothing, send slowly, or send too much."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from pipeline.api.connection_places import ConnectionPlaces
from pipeline.process import open_files

HEAD_SECONDS = 10.0
"""Seconds in which a client must send the line and headers of a request."""
REFUSED_SECONDS = 10.0
"""Seconds after a refusal in which a client may send the rest of its request and read the answer."""
MAX_HEAD = 65_536
"""The most bytes of a request's head, which is its first line and headers."""
MAX_HEAD_LINES = 256
"""The most lines in the head of a request; every line costs time."""
MAX_CONNECTIONS = 10_000
"""The most connections at a time, if the limit of open files allows them."""
_CHUNKS_A_TURN = 64
"""The most chunks of a body that are read before other connections get a turn."""
_CLOSING = b"connection: close\r\ncontent-length: 0\r\n\r\n"
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\n" + _CLOSING
_TOO_MANY_LINES = b"HTTP/1.1 431 Request Header Fields Too Large\r\n" + _CLOSING
_HEAD_END = re.compile(rb"\n\r?\n")
_CONNECTION = "pipeline.connection"
_AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER with zero seconds: the kernel drops unsent data and sends the peer an RST."""


class RequestConnection:
    """The connection of a request, which `access_guard` controls by these methods.

    The methods do nothing here: connections of other servers, such as a test client, have no limits.
    """

    is_displaced = False
    """True if the connection lost its place (see `connection_places`) while its body was read."""

    def admit(self, *, has_token: bool) -> None:
        """Let the application answer the request, without a time limit."""

    def refuse(self) -> None:
        """Keep the connection only for the guard's answer.

        The client has REFUSED_SECONDS to send the rest and to read the answer. In that time the connection may lose its
        place.
        """

    def read_body(self) -> None:
        """Read the body of the request, or its next chunks."""

    def has_room(self) -> bool:
        """True if there is a place for this request, which is complete."""
        return True


def connection_of(scope: Mapping[str, Any]) -> RequestConnection:
    """Return the connection of a request."""
    return cast(RequestConnection, scope.get(_CONNECTION) or RequestConnection())


def is_chunked(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """True if a request with these headers has a body in chunks."""
    return any(name == b"transfer-encoding" for name, _ in headers)


def reset(scope: Mapping[str, Any]) -> None:
    """Reset the connection in the middle of an answer, so that no client mistakes this part for the complete answer.

    A normal close would be enough only over HTTP/1.1. In HTTP/1.0 the end of the connection ends the answer.
    """
    cast(LimitedHttp, scope[_CONNECTION]).reset()


class _PacedConnection(h11.Connection):
    """An HTTP parser that reads at most `left` chunks of a body, then waits, since even a small chunk costs time."""

    left = 0
    _is_chunked = False

    @property
    def is_held(self) -> bool:
        """True if the parser must not read the next chunks now."""
        return self.their_state is h11.SEND_BODY and self._is_chunked and not self.left

    def next_event(self) -> Any:
        if self.is_held:
            return h11.NEED_DATA
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._is_chunked, self.left = is_chunked(event.headers), 0
            if self._is_chunked and any(name == b"content-length" for name, _ in event.headers):
                raise h11.RemoteProtocolError(
                    "the request has both Content-Length and Transfer-Encoding, so its end is ambiguous"
                )
        elif isinstance(event, h11.Data) and self._is_chunked:
            self.left -= 1
        return event


class _Phase(Enum):
    """The next thing that a connection waits for: more of a head, more of a body, the answer, or a new request."""

    HEAD, BODY, WORK, IDLE = range(4)


class LimitedHttp(H11Protocol, RequestConnection):
    """A connection with time limits. While its request is incomplete, it may lose its place to other connections."""

    places: ConnectionPlaces
    conn: _PacedConnection

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = _PacedConnection(h11.SERVER, MAX_HEAD)
        self.has_token = False
        self.held = 0
        self._timer: asyncio.TimerHandle | None = None
        self._phase = _Phase.WORK
        self._is_read = self._is_admitted = self._is_refused = self._is_upgraded = False
        self._pending = 0
        self._lines, self._tail = 0, b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._update_place(0)

    def data_received(self, data: bytes) -> None:
        if self.conn.is_held and not self._is_read:
            return  # part of a body that no application reads
        if self.conn.their_state is h11.IDLE and self._has_too_many_lines(data):
            self.transport.write(_TOO_MANY_LINES)
            self.transport.close()
            return
        super().data_received(data)
        self._update_place(len(data))

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY and self.cycle.response_complete:
            self.refuse()
        else:
            self._update_place(0)

    def connection_lost(self, exc: Exception | None) -> None:
        self.places.leave(self)
        self._end_within(None)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        before = self.scope
        super().handle_events()
        if self.scope is not None and self.scope is not before and not self._is_upgraded:
            cast(dict[str, Any], self.scope)[_CONNECTION] = self  # its task has not begun yet
            self._lines, self._tail = 0, b""
            self._is_admitted = self._is_refused = False
            self._pending = 0
            self._end_within(REFUSED_SECONDS)  # until the guard admits it
        if self._is_read and self.conn.is_held:
            self.transport.pause_reading()
            self.loop.call_soon(self.read_body)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._is_upgraded = True
        self.places.leave(self)
        self._end_within(None)
        if self.places.has_room(self.connections):
            super().handle_websocket_upgrade(event)
        else:
            self.transport.write(_FULL)
            self.transport.close()

    def reset(self) -> None:
        """Close the connection with an RST, without sending the remaining bytes."""
        if (line := self.transport.get_extra_info("socket")) is not None and not self.transport.is_closing():
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self.transport.abort()

    def admit(self, *, has_token: bool) -> None:
        self._is_admitted = True
        self.has_token |= has_token
        self._update_place(self._pending)

    def refuse(self) -> None:
        self._is_admitted = self._is_read = False
        self._is_refused = True
        self.places.discard(self)
        self._end_within(REFUSED_SECONDS)
        self._update_place(0)

    def read_body(self) -> None:
        if self.transport.is_closing() or self.is_displaced:
            return
        self._is_read = True
        self.conn.left = _CHUNKS_A_TURN
        if not self.flow.read_paused:
            self.transport.resume_reading()
        self.handle_events()
        self._update_place(0)

    def has_room(self) -> bool:
        return self.places.has_room(self.connections)

    def yield_place(self) -> None:
        """Give up the place: close the connection, or if its body is being read, let the reader answer 503 first.

        A complete request may close the connection before that answer is sent.
        """
        if self._is_read and not self.is_displaced:
            self.is_displaced = True
            self.places.mark_closable(self)
            self.cycle.message_event.set()
        else:
            self.places.leave(self)
            self.connections.discard(self)
            self.transport.abort()

    def _update_place(self, size: int) -> None:
        """Report the connection's phase to `places`, and set its time limit.

        `size`: the bytes that have just arrived; 0 after an answer.
        """
        if self._is_upgraded or self.is_displaced or self.transport.is_closing():
            return
        before, self._phase = self._phase, self._find_phase()
        is_read = not self.transport.get_write_buffer_size()
        if self._phase is _Phase.HEAD:
            if before is not _Phase.HEAD:
                self._end_within(HEAD_SECONDS)
        elif self._is_admitted or (self._phase is _Phase.IDLE and is_read):
            self._end_within(None)
        if self._phase in (_Phase.HEAD, _Phase.BODY):
            is_kept = self._is_admitted or self._phase is _Phase.HEAD
            self._pending += 0 if is_kept else size
            self.places.wait(self, size if is_kept else 0, len(self.connections))
            return
        self._is_read = False
        if self._is_refused or (self._phase is _Phase.IDLE and is_read):
            self.places.mark_closable(self)
        else:
            self.places.leave(self)

    def _find_phase(self) -> _Phase:
        state = self.conn.their_state
        if state is h11.IDLE:
            return _Phase.HEAD if self.scope is None or self.conn.trailing_data[0] else _Phase.IDLE
        return _Phase.BODY if state is h11.SEND_BODY else _Phase.WORK

    def _end_within(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)

    def _has_too_many_lines(self, data: bytes) -> bool:
        """Count the lines in these bytes of a request's head. Returns True once the head has too many lines."""
        end = _HEAD_END.search(known := self._tail + data)
        self._lines += known.count(b"\n", len(self._tail), end.start() if end else None)
        self._tail = known[-2:]
        return self._lines > MAX_HEAD_LINES


def limited() -> type[LimitedHttp]:
    """Return a protocol class for uvicorn.Config, whose connections share one server's places.

    Also increases this process's limit of open files, as far as the system allows.
    """
    return type(
        "LimitedHttpOfOneServer", (LimitedHttp,), {"places": ConnectionPlaces(open_files.raise_limit(MAX_CONNECTIONS))}
    )
