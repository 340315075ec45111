"""Waits for a socket. The event loop watches the socket only during the wait."""

from __future__ import annotations

import asyncio


class SocketWatch:
    """A watch of one socket. If a loop watched it all the time, unread data would keep the loop turning."""

    def __init__(self) -> None:
        self._readable = asyncio.Event()
        self._socket = -1
        self._watched = False

    def set_socket(self, socket: int) -> None:
        """Set the number of the socket to watch."""
        self._socket = socket

    async def wait(self) -> None:
        """Wait until there is something to read, or until `wake`."""
        self._readable.clear()
        if not self._watched:
            asyncio.get_running_loop().add_reader(self._socket, self._on_data)
            self._watched = True
        await self._readable.wait()

    def wake(self) -> None:
        """Let `wait` return, if it is waiting."""
        self._readable.set()

    def close(self) -> None:
        """Stop watching the socket, also if the wait was cancelled. Raises RuntimeError outside of an event loop."""
        if self._watched:
            self._watched = False
            asyncio.get_running_loop().remove_reader(self._socket)

    def _on_data(self) -> None:
        self.close()
        self._readable.set()
