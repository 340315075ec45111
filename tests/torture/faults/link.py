"""One connection through the proxy: both directions message by message, held where a trap says so."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

from tests.torture.faults import wire
from tests.torture.faults.traps import Seen, Trap
from tests.torture.faults.wire import Message, Splitter, Statements

CHUNK = 1 << 17
_ANSWERED = b"ZGHW"
"""Backend messages that end the answer to a statement: ReadyForQuery, or a COPY that begins."""
_RESET = struct.pack("ii", 1, 0)
"""As SO_LINGER: a socket is closed by a reset."""


class Gate(Protocol):
    """What a link asks its proxy."""

    upstream: int
    traps: list[Trap]

    async def passage(self, link: Link) -> None:
        """Returns when nothing holds this connection up."""


class Link:
    """A client's connection and ours to the server. `name` is the application_name once it is known."""

    def __init__(self, gate: Gate, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._gate = gate
        self._client = reader, writer
        self._writers = [writer]
        self._statements = Statements()
        self._confirmed: int | None = None
        self._final_lsn = 0
        self._answer_to: Trap | None = None
        self._held: list[bytes] = []
        self.name = ""
        self.stranded = False
        """Nothing passes, whatever others of its name may do."""
        self.task = asyncio.current_task()

    def abort(self) -> None:
        """Reset both ends now."""
        for writer in self._writers:
            with suppress(OSError):
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()
        if self.task is not None:
            self.task.cancel()

    async def run(self) -> None:
        """Until either end hangs up or it is aborted."""
        with suppress(OSError, EOFError, asyncio.CancelledError):
            await self._run()
        for writer in self._writers:
            writer.close()

    async def _run(self) -> None:
        startup = await self._startup()
        self.name = wire.application_name(startup) if wire.startup_code(startup) != wire.CANCEL else ""
        await self._gate.passage(self)
        reader, writer = await asyncio.open_connection("127.0.0.1", self._gate.upstream, limit=CHUNK)
        self._writers.append(writer)
        writer.write(startup)
        pumps = {
            asyncio.create_task(self._pump(self._client[0], writer, self._frontend)),
            asyncio.create_task(self._pump(reader, self._client[1], self._backend)),
        }
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _startup(self) -> bytes:
        """The StartupMessage or CancelRequest; a client that asks for encryption first hears that there is none."""
        reader, writer = self._client
        while True:
            head = await reader.readexactly(8)
            startup = head + await reader.readexactly(int.from_bytes(head[:4], "big") - 8)
            if wire.startup_code(startup) not in (wire.SSL, wire.GSS):
                return startup
            writer.write(b"N")

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, look: Callable[[Message], Seen]
    ) -> None:
        splitter = Splitter()
        while data := await reader.read(CHUNK):
            await self._gate.passage(self)
            ready: list[bytes] = []
            for message in splitter.feed(data):
                seen = look(message)
                trap = next((t for t in tuple(self._gate.traps) if t.springs(self.name, seen)), None)
                if trap is not None:
                    await self._spring(trap, seen, ready, writer)
                elif not seen.frontend and self._answer_to is not None:
                    await self._hold_answer(message, ready)
                else:
                    ready.append(message.raw)
            await self._gate.passage(self)
            writer.write(b"".join(ready))
            await writer.drain()
        await self._gate.passage(self)  # the end does not pass either

    def _frontend(self, message: Message) -> Seen:
        if message.kind == b"d":
            confirmed = wire.flushed(message.payload)
            advances = confirmed is not None and self._confirmed is not None and confirmed > self._confirmed
            if advances:
                self._confirmed = confirmed
            return Seen(True, message, advances=advances)
        text = self._statements.feed(message.kind, message.payload)
        if text is None:
            return Seen(True, message)
        start = wire.start_position(text)
        self._confirmed = start if start is not None else self._confirmed
        return Seen(True, message, text, tuple(self._statements.transaction))

    def _backend(self, message: Message) -> Seen:
        if message.kind == b"d" and wire.change_kind(message.payload) == b"B":
            self._final_lsn = wire.final_lsn(message.payload)
        return Seen(False, message)

    async def _spring(self, trap: Trap, seen: Seen, ready: list[bytes], writer: asyncio.StreamWriter) -> None:
        if trap.when == "after" and seen.text is not None:
            self._answer_to = trap
            ready.append(seen.message.raw)
            return
        rest = seen.message.raw
        if trap.when == "after" or trap.half:
            size = len(rest) if trap.when == "after" else len(rest) // 2
            ready.append(rest[:size])
            rest = rest[size:]
        if trap.keepalive is not None:
            ready.append(wire.keepalive(trap.keepalive(self._final_lsn)))
        writer.write(b"".join(ready))
        ready.clear()
        await writer.drain()
        await self._act(trap)
        ready.append(rest)

    async def _hold_answer(self, message: Message, ready: list[bytes]) -> None:
        self._held.append(message.raw)
        if message.kind not in _ANSWERED or self._answer_to is None:
            return
        trap, self._answer_to = self._answer_to, None
        await self._act(trap)
        ready.extend(self._held)
        self._held = []

    async def _act(self, trap: Trap) -> None:
        """Run the trap's action in a thread; a cut of this connection meanwhile does not stop it."""
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        threading.Thread(target=_run, args=[trap, partial(loop.call_soon_threadsafe, ended.set)], daemon=True).start()
        await ended.wait()
        if trap.then == "cut":
            self.abort()
            await asyncio.Event().wait()  # cancelled now: nothing that was held passes


def _run(trap: Trap, ended: Callable[[], object]) -> None:
    trap.run()
    with suppress(RuntimeError):  # the proxy was closed meanwhile
        ended()
