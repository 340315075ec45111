"""uvicorn's HTTP connection with limits for those who send nothing: they need no token, and keep nobody out."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import struct
import time
from collections.abc import Mapping
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

logger = logging.getLogger(__name__)

HEAD_SECONDS = 10.0
"""How long a client has to send the line and headers of a request."""
MOST = 10_000
"""Connections at a time, if so many files may be open."""
_OTHER_FILES = 100
"""Files that are open besides connections, at most: logs, sockets of databases, modules that are being read."""
_MOST_FILES = 65_536
_SAY_EVERY = 60.0
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


_RESET = "pipeline.reset"
_AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER, on, with no time: what has not been sent is dropped, and the peer gets an RST."""


def reset(scope: Mapping[str, Any]) -> None:
    """Cut the connection of a request in the middle of its answer, so that no client takes what it has for whole.

    Closing it would do over HTTP/1.1 only: in 1.0 the end of the connection is the end of the answer.
    """
    scope[_RESET]()


class LimitedHttp(H11Protocol):
    """Closed when the head of a request does not come in time, the oldest such one when there are too many."""

    most: int
    waiting: dict[LimitedHttp, None]
    """Those whose request has not come yet, the oldest first."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_timer: asyncio.TimerHandle | None = None
        self._wait_for_head()
        if len(self.connections) <= self.most:
            return
        oldest = next(iter(self.waiting))
        if oldest is self:  # all others are at work
            transport.write(_FULL)
            transport.close()
        else:
            oldest._head_has_come()  # it is closed only later, and must not be chosen again until then
            oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._head_has_come()
        elif self._head_timer is None and not self.transport.is_closing():
            self._wait_for_head()

    def handle_events(self) -> None:
        before = self.scope
        super().handle_events()
        if self.scope is not None and self.scope is not before:  # its task has not begun yet
            cast(dict[str, Any], self.scope)[_RESET] = self._reset

    def _reset(self) -> None:
        if (line := self.transport.get_extra_info("socket")) is not None and not self.transport.is_closing():
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_has_come()
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        self.waiting[self] = None
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _head_has_come(self) -> None:
        self.waiting.pop(self, None)
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def limited() -> type[LimitedHttp]:
    """The protocol of one server, for uvicorn.Config. Raises this process's limit of open files as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    most = max(1, min(MOST, files - _OTHER_FILES))
    return type("LimitedHttpOfOneServer", (LimitedHttp,), {"most": most, "waiting": {}})


class QuietSockets:
    """An asyncio exception handler that logs errors of sockets once a minute, and everything else as it comes."""

    def __init__(self) -> None:
        self._said_at = -_SAY_EVERY
        self._unsaid = 0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """For `set_exception_handler`."""
        error = context.get("exception")
        if not isinstance(error, OSError):
            loop.default_exception_handler(context)
        elif time.monotonic() - self._said_at < _SAY_EVERY:
            self._unsaid += 1
        else:
            more = f", and {self._unsaid} more since the last such line" if self._unsaid else ""
            logger.error("%s: %s%s", context.get("message"), error, more, extra={"action": "api.socket_error"})
            self._said_at, self._unsaid = time.monotonic(), 0
