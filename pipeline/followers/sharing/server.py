"""The server's side of shared reading: answers the appliers of one server, each over its own socket."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection as Line

from pipeline.followers.sharing.messages import PassRequest, UnknownKey
from pipeline.followers.sharing.stream import SharedStream, encode
from pipeline.postgres.connections import Connection


class SharedReading:
    """Serves appliers from shared streams: one for each key, with its own connection to the log."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        """`connect` opens a connection to the log; any thread may call it."""
        self._connect = connect
        self._lock = threading.Lock()
        self._streams = dict[bytes, SharedStream]()

    def open_socket(self) -> socket.socket:
        """Return the socket for the `client.SharedLog` of another applier, and serve it until the applier closes it."""
        ours, theirs = socket.socketpair()
        threading.Thread(target=self._serve, args=(Line(ours.detach()),), name="serves an applier", daemon=True).start()
        return theirs

    def close(self) -> None:
        """Stop all streams, so that the appliers read alone."""
        with self._lock:
            for stream in self._streams.values():
                stream.close()

    def _serve(self, line: Line) -> None:
        joined: tuple[bytes, SharedStream] | None = None
        # However the applier ends, `finally` removes it from its stream.
        with line, suppress(EOFError, OSError):
            try:
                while True:
                    ask: PassRequest = line.recv()
                    if joined is None or joined[0] != ask.key or joined[1].ended:
                        self._leave(joined)
                        joined = None
                        joined = ask.key, self._join(ask.key, line)
                    for message in joined[1].answer(ask):
                        line.send_bytes(message)
            finally:
                self._leave(joined)

    def _join(self, key: bytes, line: Line) -> SharedStream:
        """Join the stream with this key, or make it from the selection that the applier sends."""
        with self._lock:
            if (found := self._join_known(key)) is not None:
                return found
        line.send_bytes(encode(UnknownKey()))
        source = line.recv()
        with self._lock:
            if (found := self._join_known(key)) is None:
                found = self._streams[key] = SharedStream(self._connect, source)
                found.readers = 1
            return found

    def _join_known(self, key: bytes) -> SharedStream | None:
        found = self._streams.get(key)
        if found is None or found.ended:
            return None
        found.readers += 1
        return found

    def _leave(self, joined: tuple[bytes, SharedStream] | None) -> None:
        if joined is None:
            return
        key, stream = joined
        with self._lock:
            stream.readers -= 1
            if stream.readers == 0:
                stream.close()
                if self._streams.get(key) is stream:
                    del self._streams[key]
