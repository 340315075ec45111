"""A TCP proxy that counts what a server sends."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

CHUNK = 65_536


class ByteCount:
    """Listens on 127.0.0.1 at `port` and passes on to 127.0.0.1 at `upstream`, for as long as the `with` block."""

    def __init__(self, upstream: int) -> None:
        self._upstream = upstream
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.sent = 0
        """Bytes that came from the server so far."""

    def __enter__(self) -> ByteCount:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(("127.0.0.1", self._upstream))
                threading.Thread(target=self._pass, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self._pass, args=(server, client, True), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, counted: bool) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK):
                self.sent += len(data) if counted else 0
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
