"""Waiting for a socket, which the event loop watches only meanwhile."""

from __future__ import annotations

import asyncio


class SocketWatch:
    """Of one socket. What has come and is not read would keep a loop turning that watches it all the time."""

    def __init__(self) -> None:
        self._come = asyncio.Event()
        self._socket = -1
        self._watched = False

    def set_socket(self, socket: int) -> None:
        """The socket's number."""
        self._socket = socket

    async def wait(self) -> None:
        """Until there is something to read, or until `wake`."""
        self._come.clear()
        if not self._watched:
            asyncio.get_running_loop().add_reader(self._socket, self._seen)
            self._watched = True
        await self._come.wait()

    def wake(self) -> None:
        """Let `wait` return, where it waits now."""
        self._come.set()

    def close(self) -> None:
        """No longer watch it, also where the wait was given up. Raises RuntimeError outside of an event loop."""
        if self._watched:
            self._watched = False
            asyncio.get_running_loop().remove_reader(self._socket)

    def _seen(self) -> None:
        self.close()
        self._come.set()
