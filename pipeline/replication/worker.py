"""The replication worker: reads the stream, tags and stages it, confirms what is durable. One loop, three tasks."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress

from pipeline.errors import Unsendable
from pipeline.loop import in_thread
from pipeline.replication import ties
from pipeline.replication.book import RelationBook
from pipeline.replication.feedback import Feedback
from pipeline.replication.resume import Replay
from pipeline.replication.stopwatch import Stopwatch
from pipeline.replication.stream import ReplicationStream
from pipeline.replication.tagging import PartEnded, Tagger
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

    def __init__(self, stream: ReplicationStream, writer: Writer, book: RelationBook, until: int | None = None) -> None:
        """`until`: transactions that commit there or later are another worker's; None: all are ours."""
        self._stream = stream
        self._writer = writer
        self._book = book
        self._tagger = Tagger()
        self._feedback = Feedback(stream, lambda: self._tagger.commit_lsn, lambda: self.staged)
        self._idle_position = 0
        self._hurry = False
        self._appending = False
        self._staged = 0
        self.starved = stream.starved
        """How long reading has waited for the source."""
        self.blocked = Stopwatch()
        """How long reading has waited for staging."""
        self._work = asyncio.Event()
        self._space = asyncio.Event()
        self._stopping = asyncio.Event()
        self._begun = asyncio.Event()
        self._resumed = False
        self._asking = asyncio.Lock()
        """Held while the book talks to its databases."""
        self._unsendable: Unsendable | None = None
        self._held: list[bytes] = []
        """Changes before which a message may belong that comes next."""
        self.ended = False
        """Whether everything before `until` is staged: once `run` has returned."""
        if until is not None:
            self.end_at(until)

    @property
    def resumed(self) -> bool:
        """Whether the source has shown that its history goes through our position."""
        return self._resumed

    @property
    def begun(self) -> int:
        """Every transaction that commits here or later is still to come."""
        return max(self._writer.position, self._idle_position, self._tagger.commit_lsn + 1)

    def end_at(self, until: int) -> None:
        """Leave transactions that commit there or later to another worker, and return from `run` when all before are
        staged and the position is there, durably. `until` must be beyond `begun`.
        """
        self._tagger.until = until

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
                others = [tasks.create_task(self._feedback.keep_telling()), tasks.create_task(self._watch_source())]
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
        except PartEnded:
            self.ended = True
            self.stop()
        except Unsendable as error:
            self._feed(self._held)
            if (open_ := self._tagger.unfinished) is not None:
                begin, error.changes = open_
                error.commit_lsn, error.committed_at, error.xid = begin
            self._unsendable = error
            self.stop()

    async def _read_on(self) -> None:
        messages = await self._resume()
        while not self._stopping.is_set():
            self._held = ties.hold_back(messages)
            for place, data in enumerate(messages):
                if data[0] == pgoutput.XLOG_DATA:
                    if data[pgoutput.XLOG_HEADER] in (_RELATION, _MESSAGE):
                        await self._take_in(messages, place)
                    else:
                        self._tagger.feed_bytes(data, pgoutput.XLOG_HEADER)
                elif data[0] == pgoutput.KEEPALIVE:
                    self._keepalive(data)
            self._offer()
            while self._tagger.size >= BUFFER_BYTES:
                self._space.clear()
                with self.blocked:
                    await self._space.wait()
            await asyncio.sleep(0)
            messages = self._held + await self._stream.read(empty=self._offer)

    async def _take_in(self, messages: list[bytes], place: int) -> None:
        """A Relation, or a message, which goes before changes that were sent too early."""
        message = pgoutput.decode(messages[place], pgoutput.XLOG_HEADER)
        early: list[bytes] = []
        if isinstance(message, LogicalMessage) and message.transactional:
            early = ties.changes_behind(messages, place)
            self._tagger.take_back(len(early))
        await self._learn(message)
        self._feed(early)

    def _feed(self, changes: list[bytes]) -> None:
        for data in changes:
            self._tagger.feed_bytes(data, pgoutput.XLOG_HEADER)

    async def _resume(self) -> list[bytes]:
        """Pass over what the slot sends again; returns the first messages that are new."""
        replay = await in_thread(self._book.replay, self._stream.asked_for)
        rest: list[bytes] = []
        while not replay.over and not self._stopping.is_set():
            rest = replay.pass_over(await self._stream.read())
            self._feedback.received = replay.heard
            self._idle_position = min(replay.heard, self._tagger.until)
            if replay.asked:
                self._feedback.send()
            if replay.verified:
                self._let_write(replay)
            await asyncio.sleep(0)
        if replay.over:
            for data in replay.relations.values():
                await self._learn(pgoutput.decode(data, pgoutput.XLOG_HEADER), (replay.new_from, 0))
            self._let_write(replay)
            self._end_if_idle()
        return rest

    def _let_write(self, replay: Replay) -> None:
        """Nothing is stored or confirmed before what came again has turned out to be what we have."""
        if not self._resumed:
            self._resumed = True
            self._feedback.confirmed = replay.from_lsn
            self._begun.set()

    async def _learn(self, message: Message, since: tuple[int, int] | None = None) -> None:
        """Relations and message prefixes are looked up before rows that refer to them are tagged."""
        if isinstance(message, Relation):
            xid = None if since else self._tagger.xid
            since = since or self._tagger.next_place
            changed = self._tagger.last_change(message.oid)
            async with self._asking:
                learned = await in_thread(self._book.describe, message, since, xid, changed)
            self._tagger.learn(message, learned)
            return
        if isinstance(message, LogicalMessage) and not self._tagger.knows_prefix(message):
            async with self._asking:
                learned = await in_thread(self._book.describe, message, self._tagger.next_place)
            self._tagger.learn(message.prefix, learned)
        self._tagger.feed(message)

    def _keepalive(self, data: bytes) -> None:
        keepalive = pgoutput.decode_keepalive(data)
        self._feedback.received = max(self._feedback.received, keepalive.wal_end)
        if not self._tagger.in_transaction:  # inside of one, wal_end is its own commit (postgres-facts.md 8)
            self._idle_position = min(keepalive.wal_end, self._tagger.until)
            self._end_if_idle()
        self._hurry = self._hurry or keepalive.reply_requested
        if keepalive.reply_requested:
            self._feedback.send()
        self._work.set()

    def _end_if_idle(self) -> None:
        if self._idle_position >= self._tagger.until:
            raise PartEnded

    def _ready(self) -> bool:
        tagger = self._tagger
        return tagger.size >= FLUSH_BYTES or (tagger.has_whole and self._stream.idle)

    def _offer(self) -> None:
        if self._ready():
            self._work.set()

    async def _write(self) -> None:
        confirm_at = 0.0
        await self._begun.wait()
        if not self._resumed:
            return
        while not (self._stopping.is_set() and not self._tagger.has_whole):
            _require_going_on()
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
        if batch.is_idle:
            self._idle_position = max(self._idle_position, batch.position or 0)
            return 0
        self._appending = True
        await self._writer.append(batch, durable=durable)
        self._appending = False
        if durable:
            self._feedback.confirm(self._writer.position)
        logger.debug("staged", extra={"action": "replication.staged", "rows": len(batch.rows)})
        return len(batch.rows)

    async def _store_idle_position(self) -> None:
        """Nothing to stage: make what was staged durable, and move on past WAL that holds nothing for us."""
        target = self._writer.position
        if not self._tagger.in_transaction and not self._tagger.has_whole:
            target = max(target, self._idle_position)
        behind = target - self._feedback.confirmed
        if behind <= 0:
            self._hurry = False
            return
        waited = time.monotonic() - self._feedback.confirmed_at
        unconfirmed_rows = self._writer.position > self._feedback.confirmed
        if (
            (unconfirmed_rows and waited >= CONFIRM_EVERY)
            or behind >= IDLE_BYTES
            or waited >= IDLE_SECONDS
            or (self._hurry and waited >= PACE)
        ):
            self._hurry = False
            await self._writer.store_position(target)
            self._feedback.confirm(self._writer.position)

    async def _confirm_all(self) -> None:
        target = max(self._writer.position, self._tagger.until if self.ended else 0)
        if target > self._feedback.confirmed:
            await self._writer.store_position(target)
            self._feedback.confirm(self._writer.position)
        logger.info("drained", extra={"action": "replication.drained", "confirmed": lsn.show(self._feedback.confirmed)})

    @property
    def staged(self) -> int:
        """Nothing for us that commits before it waits to be staged; 0 while what comes again is looked through."""
        if self._resumed:
            busy = self._appending or self._tagger.in_transaction or self._tagger.has_whole
            self._staged = max(self._staged, self._writer.position, 0 if busy else self._idle_position)
        return self._staged

    async def _watch_source(self) -> None:
        """The source does not say when it leaves changes out, rewrites a table, or renames a partition's root."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            async with self._asking:
                await in_thread(self._book.require_still_published)
                await in_thread(self._book.look, self._tagger.last_change)
                await self._rename()

    async def _rename(self) -> None:
        """Under a name that the source did not send, from where the stream has passed the place it was found at."""
        if self._book.has_renamed:
            place = self._tagger.next_place
            if not self._tagger.in_transaction and self._idle_position > place[0]:
                place = self._idle_position, 0
            for oid, learned in (await in_thread(self._book.rename, place)).items():
                self._tagger.rename(oid, learned)


def _require_going_on() -> None:
    """Python before 3.12 forgets a cancellation that comes together with what was waited for (wait_for, gh-86296)."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
