"""Keeps the exported snapshots of this process, and reads pages of rows from them.

A snapshot lasts as long as the replication connection that exported it stays open. Each page has its own connection.
"""

from __future__ import annotations

import asyncio
import select
import threading
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from weakref import WeakKeyDictionary

import psycopg
from orjson import dumps
from psycopg import sql

from pipeline.config.settings import Config
from pipeline.errors import PipelineError, SessionGoneError, StatementRefusedError
from pipeline.postgres import connections, copy_text, reading_session, session_settings
from pipeline.postgres import silence as silences
from pipeline.postgres.connections import AsyncConnection, Connection
from pipeline.postgres.silence import SilenceProbe
from pipeline.wal import wal2json
from pipeline.wal.encoding import as_is
from pipeline.wires.pgdeltastream.sessions import page_query
from pipeline.wires.pgdeltastream.sessions.backends import page_name
from pipeline.wires.pgdeltastream.sessions.page_query import PageColumn, SnapshotPage
from pipeline.wires.pgdeltastream.sessions.store import StoredSession

PAGES = 4
"""How many pages a process reads in parallel; more requests wait for their turn."""
PIECE_BYTES = 256_000
"""The size of the pieces in which rows are passed to the client, in bytes."""
SLICE_SECONDS = 0.002
"""How long a page may write rows before other tasks of the event loop have their turn."""
HOLD_SECONDS = 60.0
"""A client that takes no piece for this time loses its turn, because others wait for it."""
CANCEL_SECONDS = 5.0
SETTINGS = {
    **session_settings.SOURCE,
    "lock_timeout": "10s",
    # Rows without an order are read from the first page of the table on, even if other sessions scan it.
    "synchronize_seqscans": "off",
    "max_parallel_workers_per_gather": "0",
}
"""Settings by which values are written as by a walsender, with the search path of the database."""
_WRITTEN_BY_USERS = ("22", "P0", "38", "39")
"""SQLSTATE classes of errors whose text may contain values."""


class ExportedSnapshot:
    """A session whose snapshot can be read. Every method may be called from any thread."""

    def __init__(self, session: StoredSession, name: str, publications: Sequence[str], connection: Connection) -> None:
        """`name`: the snapshot's. `publications`: those that the session streams. `connection`: closed by `close`."""
        self.session = session
        self.name = name
        self.publications = tuple(publications)
        self._connection = connection
        self._lock = threading.Lock()

    @property
    def alive(self) -> bool:
        """True if the source still has the snapshot, as far as this process knows; sends no query."""
        with self._lock:
            if not self._connection.closed:
                self._take_notice()
            return not self._connection.closed

    def close(self) -> None:
        """End the snapshot; pages that are being read continue to their end."""
        with self._lock:
            self._connection.close()

    def _take_notice(self) -> None:
        """Read messages of the source. It sends none while the snapshot is held, except when it ends the connection."""
        pgconn = self._connection.pgconn
        line = select.poll()
        line.register(pgconn.socket, select.POLLIN)
        try:
            while line.poll(0):
                pgconn.consume_input()  # raises at the end of the connection, not at what comes before it
        except psycopg.OperationalError:
            self._connection.close()


class SnapshotRegistry:
    """The snapshots that this process has exported, by slot. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._exported: dict[str, ExportedSnapshot] = {}
        self._lock = threading.Lock()

    def add(self, exported: ExportedSnapshot) -> None:
        """Keep the snapshot until `end`. An earlier snapshot of that slot has ended with its session."""
        with self._lock:
            gone = [slot for slot, known in self._exported.items() if not known.alive]
            for slot in {*gone, exported.session.slot} & self._exported.keys():
                self._exported.pop(slot).close()
            self._exported[exported.session.slot] = exported

    def get(self, slot: str) -> ExportedSnapshot | None:
        """Return the snapshot that was exported with this slot, unless it was ended here; it may not be `alive`."""
        with self._lock:
            return self._exported.get(slot)

    def end(self, slot: str) -> None:
        """End the snapshot of this slot, if this process has one."""
        with self._lock:
            exported = self._exported.pop(slot, None)
        if exported is not None:
            exported.close()

    def close(self) -> None:
        """End all snapshots."""
        with self._lock:
            every = list(self._exported.values())
            self._exported.clear()
        for exported in every:
            exported.close()


async def rows(
    config: Config, exported: ExportedSnapshot, wanted: SnapshotPage, silence: SilenceProbe | None = None
) -> AsyncGenerator[bytes, None]:
    """Read a page as a JSON array of objects, in pieces.

    The first piece is yielded once rows or their end have arrived.

    Raises TableRefusedError if the table does not exist or is not published, SessionGoneError if the snapshot has
    ended, DatabaseSilentError if the source does not answer, or another PipelineError. `silence`: of the source, shared
    by all pages. After an error, further pages can be read. Holds one piece or one row in memory. The caller must close
    it.
    """
    turns, silence = _turns(), silence or SilenceProbe(config.source_reading, "source")
    await silence.unless_silent(turns.acquire(), lambda _: turns.release())
    reading = _Reading(config, exported, turns, silence)
    try:
        async with aclosing(reading.pieces(wanted)) as pieces:
            async for piece in pieces:
                reading.watcher.cancel()
                held = asyncio.get_running_loop().call_later(HOLD_SECONDS, reading.end)
                try:
                    yield piece
                finally:
                    held.cancel()
    except psycopg.Error as error:
        raise reading.explained(error) from error
    finally:
        reading.end()


_waiting: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


def _turns() -> asyncio.Semaphore:
    """Return the semaphore of this event loop."""
    return _waiting.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(PAGES))


class _Reading:
    """A page that is being read."""

    def __init__(
        self, config: Config, exported: ExportedSnapshot, turn: asyncio.Semaphore, silence: SilenceProbe
    ) -> None:
        """`turn`: acquired by the caller, and released at the end."""
        self._silence, self._is_silent = silence, False
        self.watcher = asyncio.create_task(self._watch())
        self._config, self._exported, self._turn = config, exported, turn
        self._connection: AsyncConnection | None = None
        self._ended = False

    async def pieces(self, page: SnapshotPage) -> AsyncGenerator[bytes, None]:
        """Yield the page in pieces. Raises psycopg's errors, which `explained` converts."""
        connection = await self._begin()
        asked = page_query.look_up(connection, self._config, page, self._exported.publications)
        found = await self._silence.unless_silent(asked)
        if found.query is None:
            yield b"[]"
            return
        writer, head = _RowWriter(found.columns), b"["
        piece, size, since = list[bytes](), 0, time.perf_counter()
        async for lines in copy_text.read_lines_async(connection, sql.SQL("copy ({}) to stdout").format(found.query)):
            for line in lines:
                piece.append(row := writer.write(line))
                size += len(row)
                if size >= PIECE_BYTES:
                    yield head + b",".join(piece)
                    head, piece, size = b",", [], 0
                if time.perf_counter() - since > SLICE_SECONDS:
                    await asyncio.sleep(0)
                    since = time.perf_counter()
        yield (head if piece or head == b"[" else b"") + b",".join(piece) + b"]"

    async def _begin(self) -> AsyncConnection:
        """Return a connection in a transaction that sees the snapshot."""
        slot, snapshot = self._exported.session.slot, self._exported.name
        gone = SessionGoneError(f'the snapshot of session "{slot}" has ended')
        if not self._exported.alive:
            raise gone
        name = page_name(slot)
        connecting = reading_session.connect_async(self._config, name=name, settings=SETTINGS)
        self._connection = connection = await self._silence.unless_silent(connecting, lambda each: each.pgconn.finish())
        version = connection.info.server_version
        await connection.execute(reading_session.beginning(version, SETTINGS, search_path=None).encode())
        try:
            await connection.execute(sql.SQL("set transaction snapshot {}").format(snapshot))
        except (psycopg.DataError, psycopg.errors.UndefinedObject) as error:
            raise gone from error
        return connection

    def explained(self, error: psycopg.Error) -> PipelineError:
        """Return the PipelineError for an error of psycopg, without values of rows."""
        if self._is_silent:
            return self._silence.error
        if self._ended:
            return SessionGoneError(f"the client took no part of the page for {HOLD_SECONDS:g} s, so reading has ended")
        if (error.sqlstate or "").startswith(_WRITTEN_BY_USERS):
            return StatementRefusedError(f"the source refused to read a page (SQLSTATE {error.sqlstate})")
        return connections.unavailable(self._config.source_reading, "source", error)

    async def _watch(self) -> None:
        """End the connection of a page if the source is silent: no timeout of the connection does."""
        while not self._is_silent:
            await asyncio.sleep(silences.PATIENCE_SECONDS)
            self._is_silent = await self._silence.is_silent()
        if self._connection is not None:
            connections.hang_up(self._connection)

    def end(self) -> None:
        """End the query and the connection without waiting, because a cancelled task cannot wait."""
        if not self._ended:
            self._ended = True
            self.watcher.cancel()
            task = asyncio.get_running_loop().create_task(self._close())
            _closing.add(task)
            task.add_done_callback(_closing.discard)

    async def _close(self) -> None:
        connection = self._connection
        try:
            if connection is not None and connection.info.transaction_status == psycopg.pq.TransactionStatus.ACTIVE:
                with suppress(psycopg.Error):
                    await connection.cancel_safe(timeout=CANCEL_SECONDS)
        finally:
            self._turn.release()
            if connection is not None:
                await connection.close()


_closing: set[asyncio.Task[None]] = set()
"""References to closing tasks: the event loop itself keeps no task alive."""


class _RowWriter:
    """Writes rows of COPY as JSON objects."""

    def __init__(self, columns: Sequence[PageColumn]) -> None:
        names = [dumps(column.name) + b":" for column in columns]
        self._names = [(b"," if place else b"{") + name for place, name in enumerate(names)]
        self._writers = [as_is if column.json else wal2json.value_writer(column.type) for column in columns]

    def write(self, line: bytes) -> bytes:
        """Return a row as JSON. `line`: in COPY's text format, without its newline."""
        if not self._names:
            return b"{}"
        written = []
        values = copy_text.split_line(line, len(self._names))
        for name, write, value in zip(self._names, self._writers, values, strict=True):
            written += [name, write(value) if isinstance(value, bytes) else b"null"]
        return b"".join([*written, b"}"])
