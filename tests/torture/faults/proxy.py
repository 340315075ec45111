"""A TCP proxy in front of one Postgres server that cuts and freezes connections and holds them at chosen messages.

It runs in its own thread; everything public may be called from any other. The product knows nothing of it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from tests.torture.faults.link import CHUNK, Link
from tests.torture.faults.traps import Trap

T = TypeVar("T")


class Proxy:
    """Listens on 127.0.0.1 at `port` and passes on to 127.0.0.1 at `upstream` until `close`."""

    def __init__(self, upstream: int) -> None:
        self.upstream = upstream
        self.traps: list[Trap] = []
        self._frozen: frozenset[str] = frozenset()
        self._links: set[Link] = set()
        self._changed = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._server = self._call(self._listen())
        self.port: int = self._server.sockets[0].getsockname()[1]

    def names(self) -> list[str]:
        """The application_name of each open connection."""
        return [link.name for link in tuple(self._links)]

    def cut(self, prefix: str = "") -> int:
        """Reset every connection whose name begins so, at both ends; returns how many."""
        return self._call(self._cut(prefix))

    def freeze(self, prefix: str = "") -> None:
        """No byte passes in either direction any more, on connections made later neither; nothing ends."""
        self._call(self._set_frozen(self._frozen | {prefix}))

    def strand(self, prefix: str = "", *, whole: bool = False) -> int:
        """As `freeze`, of the connections that are open now and not of later ones: not even their end passes.

        `whole`: only of those whose name is exactly this. Returns how many.
        """
        found = [link for link in tuple(self._links) if link.name.startswith(prefix)]
        found = [link for link in found if link.name == prefix or not whole]
        for link in found:
            link.stranded = True
        return len(found)

    def thaw(self, prefix: str = "") -> None:
        """Everything that waited passes, on connections whose name begins so."""
        for link in tuple(self._links):
            link.stranded = link.stranded and not link.name.startswith(prefix)
        self._call(self._set_frozen(frozenset(name for name in self._frozen if not name.startswith(prefix))))

    def arm(self, trap: Trap) -> Trap:
        """From the next message on."""
        self.traps.append(trap)
        return trap

    def disarm(self) -> None:
        """Forget all traps; one that is acting goes on."""
        self.traps.clear()

    def close(self) -> None:
        """Stop listening, then cut everything."""
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def passage(self, link: Link) -> None:
        """Returns when nothing holds this connection up. In the proxy's own thread."""
        while link.stranded or any(link.name.startswith(prefix) for prefix in self._frozen):
            await self._changed.wait()

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=CHUNK)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = Link(self, reader, writer)
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)

    async def _end(self) -> None:
        """In its own thread: a connection that ends by itself just then closes the server's end too."""
        self._server.close()
        await self._cut("")

    async def _cut(self, prefix: str) -> int:
        links = [link for link in self._links if link.name.startswith(prefix)]
        for link in links:
            link.abort()
        await asyncio.gather(*(link.task for link in links if link.task), return_exceptions=True)
        return len(links)

    async def _set_frozen(self, prefixes: frozenset[str]) -> None:
        self._frozen = prefixes
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)
