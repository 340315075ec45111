"""Shares the places for connections of an HTTP server: incomplete requests may have a tenth of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Set
from typing import Protocol

WAITING_SHARE = 10
"""Incomplete requests may have one connection in this many."""
ARRIVAL_SECONDS = 0.1
"""Seconds for which new connections may have too many places, since most of them send a complete request at once."""
MAX_INCOMPLETE_BYTES = 32_000_000
"""The most bytes that all incomplete requests hold together."""


class PlacedConnection(Protocol):
    """A connection that has a place.

    `has_token`: one of its requests had the token. `held`: bytes of its incomplete request.
    """

    has_token: bool
    held: int

    def yield_place(self) -> None:
        """Close this connection, or answer 503 if its body is being read."""


class ConnectionPlaces:
    """Knows which connections wait for the rest of a request, and which of them may be closed for others."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._most_waiting = max(1, most // WAITING_SHARE)
        self._waiting: dict[PlacedConnection, None] = {}
        self._spare: dict[PlacedConnection, None] = {}
        self._held = 0
        self._is_full = False

    def wait(self, connection: PlacedConnection, size: int, connections: int) -> None:
        """Record `size` more bytes of an incomplete request, for which other connections may be closed.

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
            _yielding(each for each in self._waiting if each.held).yield_place()

    def _make_room(self) -> None:
        self._is_full = False
        while len(self._waiting) > self._most_waiting:
            self._displace()

    def _displace(self) -> None:
        """Close the oldest waiting connection, but never the newest one."""
        if len(self._waiting) > 1:
            _yielding(list(self._waiting)[:-1]).yield_place()

    def spare(self, connection: PlacedConnection) -> None:
        """Mark a connection as idle or refused: the server closes it if a request finds no place."""
        self.leave(connection)
        self._spare[connection] = None

    def discard(self, connection: PlacedConnection) -> None:
        """Release the bytes that are kept of the connection's request."""
        self._held -= connection.held
        connection.held = 0

    def leave(self, connection: PlacedConnection) -> None:
        """Remove a connection that is closed, or whose request is complete."""
        self.discard(connection)
        self._waiting.pop(connection, None)
        self._spare.pop(connection, None)

    def has_room(self, connections: Set[object]) -> bool:
        """True if the newest complete request has a place; an idle or refused connection may be closed for it."""
        if len(connections) - len(self._waiting) <= max(1, self._most - self._most_waiting):
            return True
        if not self._spare:
            return False
        _yielding(self._spare).yield_place()
        return True


def _yielding(connections: Iterable[PlacedConnection]) -> PlacedConnection:
    """Return the oldest connection that has not shown the token; if all have shown it, the oldest one."""
    candidates = list(connections)
    return next((each for each in candidates if not each.has_token), candidates[0])
