"""The replication worker: reads the stream, tags and stages it, confirms what is durable. One loop, three tasks."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from pipeline import db
from pipeline.errors import Unsendable
from pipeline.replication.book import RelationBook
from pipeline.replication.resume import Replay
from pipeline.replication.stream import SENDER_TIMEOUT, ReplicationStream
from pipeline.replication.tagging import Tagger
from pipeline.staging.writer import Writer
from pipeline.wal import lsn, pgoutput
from pipeline.wal.messages import LogicalMessage, Message, Relation

logger = logging.getLogger(__name__)

FLUSH_BYTES = 2_000_000
"""Rows of this size are staged even while more is coming."""
BUFFER_BYTES = 8_000_000
"""Rows of this size stop the reading until staging has caught up: what bounds the worker's memory."""
PACE, BUSY_PACE = 0.004, 0.012
"""Seconds between two staging commits, at least, so that small transactions share one; longer when many come."""
BUSY_ROWS = 100
"""Rows of a batch from which on many come."""
CONFIRM_EVERY = 1.0
"""Seconds after which what was staged is made durable and confirmed."""
IDLE_BYTES, IDLE_SECONDS = 65_536, 10.0
"""With nothing for us in the WAL, the position moves after so many bytes or seconds. Storing it writes WAL too."""
WATCH_SECONDS = 2.0
"""Between two looks whether all is still published that was."""

_RELATION, _MESSAGE = ord("R"), ord("M")


class ReplicationWorker:
    """Stages everything the stream brings until `stop` is called or something fails.

    The stream must be started at the writer's position, or before it: what comes again is left out. Confirms only what
    is durable in the pipeline database, and never a point inside of a transaction.
    """

    def __init__(self, stream: ReplicationStream, writer: Writer, book: RelationBook) -> None:
        self._stream = stream
        self._writer = writer
        self._book = book
        self._tagger = Tagger()
        self._received = 0
        self._confirmed = 0
        self._confirmed_at = 0.0
        self._idle_position = 0
        self._hurry = False
        self._work = asyncio.Event()
        self._space = asyncio.Event()
        self._stopping = asyncio.Event()
        self._begun = asyncio.Event()
        self._resumed = False
        self._asking = asyncio.Lock()
        """Held while the book talks to its databases."""
        self._unsendable: Unsendable | None = None

    def stop(self) -> None:
        """Stage and confirm what is whole, then return from `run`."""
        self._stopping.set()
        self._begun.set()
        self._work.set()

    async def run(self) -> None:
        """Until stopped. Raises what went wrong, the first of it; nothing that was confirmed is ever lost by that.

        Where the source cannot send a transaction, all before it is stored durably when Unsendable is raised.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                reader = tasks.create_task(self._read())
                others = [tasks.create_task(self._feedback()), tasks.create_task(self._watch_source())]
                await self._write()
                for task in (reader, *others):
                    task.cancel()
        except BaseExceptionGroup as group:
            raise _first(group) from group
        if self._unsendable is not None:
            raise self._unsendable

    async def _read(self) -> None:
        try:
            await self._read_on()
        except Unsendable as error:
            if (open_ := self._tagger.unfinished) is not None:
                begin, error.changes = open_
                error.commit_lsn, error.committed_at, error.xid = begin
            self._unsendable = error
            self.stop()

    async def _read_on(self) -> None:
        messages = await self._resume()
        while not self._stopping.is_set():
            for data in messages:
                if data[0] == pgoutput.XLOG_DATA:
                    if data[pgoutput.XLOG_HEADER] in (_RELATION, _MESSAGE):
                        await self._learn(pgoutput.decode(data, pgoutput.XLOG_HEADER))
                    else:
                        self._tagger.feed_bytes(data, pgoutput.XLOG_HEADER)
                elif data[0] == pgoutput.KEEPALIVE:
                    self._keepalive(data)
            if self._ready():
                self._work.set()
            while self._tagger.size >= BUFFER_BYTES:
                self._space.clear()
                await self._space.wait()
            await asyncio.sleep(0)
            messages = await self._stream.read()

    async def _resume(self) -> list[bytes]:
        """Pass over what the slot sends again; returns the first messages that are new."""
        replay = await asyncio.to_thread(self._book.replay, self._stream.asked_for)
        rest: list[bytes] = []
        while not replay.over and not self._stopping.is_set():
            rest = replay.pass_over(await self._stream.read())
            self._received = self._idle_position = replay.heard
            if replay.asked:
                self._send_status()
            if replay.verified:
                self._let_write(replay)
            await asyncio.sleep(0)
        if replay.over:
            for data in replay.relations.values():
                await self._learn(pgoutput.decode(data, pgoutput.XLOG_HEADER), (replay.new_from, 0))
            self._let_write(replay)
        return rest

    def _let_write(self, replay: Replay) -> None:
        """Nothing is stored or confirmed before what came again has turned out to be what we have."""
        if not self._resumed:
            self._resumed = True
            self._confirmed = replay.from_lsn
            self._begun.set()

    async def _learn(self, message: Message, since: tuple[int, int] | None = None) -> None:
        """Relations and message prefixes are looked up before rows that refer to them are tagged."""
        if isinstance(message, Relation):
            xid = None if since else self._tagger.xid
            since = since or self._tagger.next_place
            changed = self._tagger.last_change(message.oid)
            async with self._asking:
                learned = await asyncio.to_thread(self._book.describe, message, since, xid, changed)
            self._tagger.learn(message, learned)
            return
        if isinstance(message, LogicalMessage) and not self._tagger.knows_prefix(message):
            async with self._asking:
                learned = await asyncio.to_thread(self._book.describe, message, self._tagger.next_place)
            self._tagger.learn(message.prefix, learned)
        self._tagger.feed(message)

    def _keepalive(self, data: bytes) -> None:
        keepalive = pgoutput.decode_keepalive(data)
        self._received = max(self._received, keepalive.wal_end)
        if not self._tagger.in_transaction:  # inside of one, wal_end is its own commit (facts/postgres.md 8)
            self._idle_position = keepalive.wal_end
        self._hurry = self._hurry or keepalive.reply_requested
        if keepalive.reply_requested:
            self._send_status()
        self._work.set()

    def _ready(self) -> bool:
        tagger = self._tagger
        return tagger.size >= FLUSH_BYTES or (tagger.has_whole and self._stream.idle)

    async def _write(self) -> None:
        confirm_at = 0.0
        await self._begun.wait()
        if not self._resumed:
            return
        while not (self._stopping.is_set() and not self._tagger.has_whole):
            await self._wait_for_work()
            if self._ready() or (self._stopping.is_set() and self._tagger.has_whole):
                started = time.monotonic()
                rows = await self._stage(durable=started >= confirm_at)
                if started >= confirm_at:
                    confirm_at = started + CONFIRM_EVERY
                pace = PACE if rows < BUSY_ROWS else BUSY_PACE
                await asyncio.sleep(max(0.0, pace - (time.monotonic() - started)))
            else:
                await self._store_idle_position()
        await self._confirm_all()

    async def _wait_for_work(self) -> None:
        self._work.clear()
        if self._ready() or self._stopping.is_set():
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(CONFIRM_EVERY):
                await self._work.wait()

    async def _stage(self, *, durable: bool) -> int:
        """Stage what has come together; returns how many rows that were."""
        batch = self._tagger.take()
        if batch is None:
            return 0
        self._space.set()
        if not batch.rows:  # transactions without anything for us move on as idle WAL does
            self._idle_position = max(self._idle_position, batch.position or 0)
            return 0
        await self._writer.append(batch, durable=durable)
        if durable:
            self._confirm(self._writer.position)
        logger.debug("staged", extra={"action": "replication.staged", "rows": len(batch.rows)})
        return len(batch.rows)

    async def _store_idle_position(self) -> None:
        """Nothing to stage: make what was staged durable, and move on past WAL that holds nothing for us."""
        target = self._writer.position
        if not self._tagger.in_transaction and not self._tagger.has_whole:
            target = max(target, self._idle_position)
        behind = target - self._confirmed
        if behind <= 0:
            self._hurry = False
            return
        waited = time.monotonic() - self._confirmed_at
        unconfirmed_rows = self._writer.position > self._confirmed
        if (
            (unconfirmed_rows and waited >= CONFIRM_EVERY)
            or behind >= IDLE_BYTES
            or waited >= IDLE_SECONDS
            or (self._hurry and waited >= PACE)
        ):
            self._hurry = False
            await self._writer.store_position(target)
            self._confirm(self._writer.position)

    async def _confirm_all(self) -> None:
        if self._writer.position > self._confirmed:
            await self._writer.store_position(self._writer.position)
            self._confirm(self._writer.position)
        logger.info("drained", extra={"action": "replication.drained", "confirmed": lsn.show(self._confirmed)})

    def _confirm(self, position: int) -> None:
        self._confirmed = position
        self._confirmed_at = time.monotonic()
        self._send_status()

    def _send_status(self) -> None:
        self._stream.send_status(self._received, self._confirmed)

    async def _feedback(self) -> None:
        """Keep the walsender from giving us up, whatever staging is waiting for."""
        while True:
            await asyncio.sleep(SENDER_TIMEOUT / 6)
            self._stream.require_alive()
            self._send_status()

    async def _watch_source(self) -> None:
        """The source does not say when it leaves changes out, rewrites a table, or renames a partition's root."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            async with self._asking:
                await asyncio.to_thread(self._book.require_still_published)
                await asyncio.to_thread(self._book.look, self._tagger.last_change)
                await self._rename()

    async def _rename(self) -> None:
        """Under a name that the source did not send, from where the stream has passed the place it was found at."""
        if self._book.has_renamed:
            place = self._tagger.next_place
            if not self._tagger.in_transaction and self._idle_position > place[0]:
                place = self._idle_position, 0
            for oid, learned in (await asyncio.to_thread(self._book.rename, place)).items():
                self._tagger.rename(oid, learned)


async def connect_writer(dsn: str) -> AsyncConnection[TupleRow]:
    """The worker's staging connection. Raises Unavailable."""
    try:
        return await AsyncConnection.connect(db.conninfo(dsn, application_name="pipeline staging"), autocommit=True)
    except psycopg.OperationalError as error:
        raise db.unavailable(dsn, "pipeline database", error) from error


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
