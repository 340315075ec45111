"""Reads for the appliers of one server: each asks over a socket of its own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection as Line

from pipeline.followers.sharing.messages import Ask, Unknown
from pipeline.followers.sharing.stream import Stream, encode
from pipeline.postgres.connections import Connection


class SharedReading:
    """A stream for each key that appliers ask with, over a connection of its own, while there are such."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        """`connect`: to the log; from any thread."""
        self._connect = connect
        self._lock = threading.Lock()
        self._streams = dict[bytes, Stream]()

    def attach(self) -> socket.socket:
        """For one more applier: the socket for `client.SharedLog`. It is served until it is closed there."""
        ours, theirs = socket.socketpair()
        threading.Thread(target=self._serve, args=(Line(ours.detach()),), name="serves an applier", daemon=True).start()
        return theirs

    def close(self) -> None:
        """Read nothing more."""
        with self._lock:
            for stream in self._streams.values():
                stream.close()

    def _serve(self, line: Line) -> None:
        attached: tuple[bytes, Stream] | None = None
        # However the applier ends, nothing is left of it here.
        with line, suppress(EOFError, OSError):
            try:
                while True:
                    ask: Ask = line.recv()
                    if attached is None or attached[0] != ask.key or attached[1].ended:
                        self._detach(attached)
                        attached = None
                        attached = ask.key, self._stream(ask.key, line)
                    for message in attached[1].answer(ask):
                        line.send_bytes(message)
            finally:
                self._detach(attached)

    def _stream(self, key: bytes, line: Line) -> Stream:
        """The one with this key, one reader more. What it reads is asked of the applier where there is none."""
        with self._lock:
            if (found := self._known(key)) is not None:
                return found
        line.send_bytes(encode(Unknown()))
        source = line.recv()
        with self._lock:
            if (found := self._known(key)) is None:
                found = self._streams[key] = Stream(self._connect, source)
                found.readers = 1
            return found

    def _known(self, key: bytes) -> Stream | None:
        found = self._streams.get(key)
        if found is None or found.ended:
            return None
        found.readers += 1
        return found

    def _detach(self, attached: tuple[bytes, Stream] | None) -> None:
        if attached is None:
            return
        key, stream = attached
        with self._lock:
            stream.readers -= 1
            if stream.readers == 0:
                stream.close()
                if self._streams.get(key) is stream:
                    del self._streams[key]
