"""Limits the connections of an HTTP server: at most a tenth of them may wait for the rest of a request.

A place is the permission to be one of the server's connections. If places run out, connections that wait lose theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Set
from typing import Protocol

WAITING_SHARE = 10
"""One place in this many may belong to a connection with an incomplete request."""
ARRIVAL_SECONDS = 0.1
"""Seconds for which waiting connections may exceed their share, since most new ones send a complete request at once."""
MAX_INCOMPLETE_BYTES = 32_000_000
"""The most bytes that all incomplete requests hold together."""


class PlacedConnection(Protocol):
    """A connection that has a place, and may lose it.

    `has_token`: one of its requests had the token. `held`: bytes of its incomplete request in memory.
    """

    has_token: bool
    held: int

    def yield_place(self) -> None:
        """Close this connection, or answer 503 if its body is being read."""


class ConnectionPlaces:
    """The connections of one server that wait for the rest of a request, and those that may be closed for others."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._most_waiting = max(1, most // WAITING_SHARE)
        self._waiting: dict[PlacedConnection, None] = {}
        self._spare: dict[PlacedConnection, None] = {}
        self._held = 0
        self._is_full = False

    def wait(self, connection: PlacedConnection, size: int, connections: int) -> None:
        """Record that an incomplete request got `size` more bytes. This may close other connections.

        `connections`: how many connections the server has.
        """
        if connection not in self._waiting:
            self.leave(connection)
            self._waiting[connection] = None
            if connections > self._most:
                self._displace()
            if len(self._waiting) > self._most_waiting and not self._is_full:
                self._is_full = True
                asyncio.get_running_loop().call_later(ARRIVAL_SECONDS, self._make_room)
        connection.held += size
        self._held += size
        while self._held > MAX_INCOMPLETE_BYTES:
            _first_to_close(each for each in self._waiting if each.held).yield_place()

    def _make_room(self) -> None:
        self._is_full = False
        while len(self._waiting) > self._most_waiting:
            self._displace()

    def _displace(self) -> None:
        """Close the oldest waiting connection, but never the newest one."""
        if len(self._waiting) > 1:
            _first_to_close(list(self._waiting)[:-1]).yield_place()

    def mark_closable(self, connection: PlacedConnection) -> None:
        """Mark a connection as idle or refused: the server closes it if a request finds no place."""
        self.leave(connection)
        self._spare[connection] = None

    def discard(self, connection: PlacedConnection) -> None:
        """Subtract the bytes of this connection's request, which are no longer in memory."""
        self._held -= connection.held
        connection.held = 0

    def leave(self, connection: PlacedConnection) -> None:
        """Remove a connection that is closed, or whose request is complete."""
        self.discard(connection)
        self._waiting.pop(connection, None)
        self._spare.pop(connection, None)

    def has_room(self, connections: Set[object]) -> bool:
        """True if there is a place for one more complete request, also if an idle or refused connection must end."""
        if len(connections) - len(self._waiting) <= max(1, self._most - self._most_waiting):
            return True
        if not self._spare:
            return False
        _first_to_close(self._spare).yield_place()
        return True


def _first_to_close(connections: Iterable[PlacedConnection]) -> PlacedConnection:
    """Return the oldest connection that never sent the token; if all have sent it, the oldest of all."""
    candidates = list(connections)
    return next((each for each in candidates if not each.has_token), candidates[0])
