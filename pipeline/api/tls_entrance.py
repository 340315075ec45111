"""TLS in front of HTTP connections: a handshake has the place of an incomplete request, and ten seconds."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import MutableSet

from pipeline.api.connection_places import ConnectionPlaces

HANDSHAKE_SECONDS = 10.0
"""How long a TLS handshake may take, and closing the connection too."""


class TlsEntrance(asyncio.Protocol):
    """Shakes hands with a client, then hands the encrypted connection to the HTTP protocol."""

    has_token = False
    held = 0

    def __init__(
        self, http: asyncio.Protocol, context: ssl.SSLContext, places: ConnectionPlaces, connections: MutableSet[object]
    ) -> None:
        """`connections`: those of the server, of which this is one until `http` replaces it."""
        self._http = http
        self._context = context
        self._places = places
        self._connections = connections
        self._early = bytearray()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin the handshake."""
        transport.pause_reading()  # `start_tls` resumes
        self._transport = transport
        self._connections.add(self)
        self._places.wait(self, 0, len(self._connections))
        self._task = asyncio.get_running_loop().create_task(self._shake_hands())

    def data_received(self, data: bytes) -> None:
        """Keep what comes with the end of the handshake."""
        self._early += data

    def give_way(self) -> None:
        """Close the connection, in the middle of its handshake."""
        self._places.leave(self)
        self._connections.discard(self)
        self._transport.abort()

    shutdown = give_way

    async def _shake_hands(self) -> None:
        encrypted: asyncio.Transport | None = None
        try:
            encrypted = await asyncio.get_running_loop().start_tls(
                self._transport,
                self,
                self._context,
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=HANDSHAKE_SECONDS,
            )
        except OSError:  # what clients do is not ours to log
            self._transport.abort()
        finally:
            self._places.leave(self)
            self._connections.discard(self)
        if encrypted is not None and not encrypted.is_closing():
            encrypted.set_protocol(self._http)
            self._http.connection_made(encrypted)
            if self._early:
                self._http.data_received(bytes(self._early))
