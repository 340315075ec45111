"""The replication worker: reads the stream and tags it, beside who stages it and confirms what is durable."""

from __future__ import annotations

import asyncio

from pipeline.capture.replication.feedback import Feedback
from pipeline.capture.replication.idle_rule import IdleRule, PartEnded
from pipeline.capture.replication.message_reorder import MessageReorder
from pipeline.capture.replication.relation_registry import RelationBook
from pipeline.capture.replication.replay import Replay
from pipeline.capture.replication.staging_pump import StagingPump
from pipeline.capture.replication.stream import ReplicationStream
from pipeline.capture.replication.tagger import Tagger
from pipeline.errors import Undecodable
from pipeline.process.signals import in_thread
from pipeline.staging.writer import Writer
from pipeline.wal import pgoutput
from pipeline.wal.messages import LogicalMessage, Message, Relation

FLUSH_BYTES = 2_000_000
"""Rows of this size are staged even while more is coming."""
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
        self._book = book
        self._idle = IdleRule(writer.position)
        self._tagger = Tagger(self._idle)
        self._reorder = MessageReorder()
        self._feedback = Feedback(stream, self._idle, lambda: self._tagger.batch.commit_lsn)
        self._pump = StagingPump(self._tagger.batch, writer, self._idle, self._feedback, self._ready)
        self.starved = stream.starved
        """How long reading has waited for the source."""
        self.blocked = self._pump.blocked
        """How long reading has waited for staging."""
        self._stopping = False
        self._asking = asyncio.Lock()
        """Held while the book talks to its databases."""
        self._undecodable: Undecodable | None = None
        if until is not None:
            self.end_at(until)

    @property
    def resumed(self) -> bool:
        """Whether the source has shown that its history goes through our position."""
        return self._idle.resumed

    @property
    def ended(self) -> bool:
        """Whether everything before `until` is staged: once `run` has returned."""
        return self._idle.ended

    @property
    def staged(self) -> int:
        """Nothing for us that commits before it waits to be staged; 0 while what comes again is looked through."""
        return self._idle.staged

    @property
    def begun(self) -> int:
        """Every transaction that commits here or later is still to come."""
        return max(self._idle.position, self._idle.passed, self._tagger.batch.commit_lsn + 1)

    def end_at(self, until: int) -> None:
        """Leave transactions that commit there or later to another worker, and return from `run` when all before are
        staged and the position is there, durably. `until` must be beyond `begun`.
        """
        self._idle.until = until

    def stop(self) -> None:
        """Stage and confirm what is whole, then return from `run`."""
        self._stopping = True
        self._pump.stop()

    async def run(self) -> None:
        """Until stopped. Raises what went wrong, the first of it; nothing that was confirmed is ever lost by that.

        Where the source cannot send a transaction, all before it is stored durably when Undecodable is raised.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                reader = tasks.create_task(self._read())
                others = [tasks.create_task(self._feedback.keep_telling()), tasks.create_task(self._watch_source())]
                await self._pump.run()
                for task in (reader, *others):
                    task.cancel()
        except BaseExceptionGroup as group:
            raise _first(group) from group
        if self._undecodable is not None:
            raise self._undecodable

    async def _read(self) -> None:
        try:
            await self._read_on()
        except PartEnded:
            self.stop()
        except Undecodable as error:
            self._tagger.feed_all(self._reorder.held, pgoutput.XLOG_HEADER)
            if (open_ := self._tagger.batch.unfinished) is not None:
                begin, error.changes = open_
                error.commit_lsn, error.committed_at, error.xid = begin
            self._undecodable = error
            self.stop()

    async def _read_on(self) -> None:
        messages = await self._resume()
        while not self._stopping:
            self._reorder.hold_back(messages)
            for place, data in enumerate(messages):
                if data[0] == pgoutput.XLOG_DATA:
                    if data[pgoutput.XLOG_HEADER] in (_RELATION, _MESSAGE):
                        await self._take_in(messages, place)
                    else:
                        self._tagger.feed_bytes(data, pgoutput.XLOG_HEADER)
                elif data[0] == pgoutput.KEEPALIVE:
                    self._keepalive(data)
            self._pump.offer()
            await self._pump.room()
            await asyncio.sleep(0)
            messages = self._reorder.joined(await self._stream.read(empty=self._pump.offer))

    async def _take_in(self, messages: list[bytes], place: int) -> None:
        """A Relation, or a message, which goes before changes that were sent too early."""
        message = pgoutput.decode(messages[place], pgoutput.XLOG_HEADER)
        early: list[bytes] = []
        if isinstance(message, LogicalMessage) and message.transactional:
            early = self._reorder.sent_too_early(messages, place)
            self._tagger.batch.take_back(len(early))
        await self._learn(message)
        self._tagger.feed_all(early, pgoutput.XLOG_HEADER)

    async def _resume(self) -> list[bytes]:
        """Pass over what the slot sends again; returns the first messages that are new."""
        replay = await in_thread(self._book.replay, self._stream.asked_for)
        rest: list[bytes] = []
        while not replay.over and not self._stopping:
            rest = replay.pass_over(await self._stream.read())
            self._feedback.received = replay.heard
            self._idle.pass_to(replay.heard)
            if replay.asked:
                self._feedback.send()
            if replay.verified:
                self._let_write(replay)
            await asyncio.sleep(0)
        if replay.over:
            for data in replay.relations.values():
                await self._learn(pgoutput.decode(data, pgoutput.XLOG_HEADER), (replay.new_from, 0))
            self._let_write(replay)
            self._idle.require_more()
        return rest

    def _let_write(self, replay: Replay) -> None:
        """Nothing is stored or confirmed before what came again has turned out to be what we have."""
        if not self._idle.resumed:
            self._idle.resume(replay.from_lsn)
            self._pump.begin()

    async def _learn(self, message: Message, since: tuple[int, int] | None = None) -> None:
        """Relations and message prefixes are looked up before rows that refer to them are tagged."""
        if isinstance(message, Relation):
            xid = None if since else self._tagger.batch.xid
            since = since or self._tagger.batch.next_place
            changed = self._tagger.last_change(message.oid)
            async with self._asking:
                learned = await in_thread(self._book.describe, message, since, xid, changed)
            self._tagger.learn(message, learned)
            return
        if isinstance(message, LogicalMessage) and not self._tagger.knows_prefix(message):
            async with self._asking:
                learned = await in_thread(self._book.describe, message, self._tagger.batch.next_place)
            self._tagger.learn(message.prefix, learned)
        self._tagger.feed(message)

    def _keepalive(self, data: bytes) -> None:
        keepalive = pgoutput.decode_keepalive(data)
        self._feedback.received = max(self._feedback.received, keepalive.wal_end)
        self._idle.keepalive(keepalive.wal_end, asked=keepalive.reply_requested)
        if keepalive.reply_requested:
            self._feedback.send()
        self._pump.wake()

    def _ready(self) -> bool:
        batch = self._tagger.batch
        return batch.size >= FLUSH_BYTES or (batch.has_whole and self._stream.idle)

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
            place = self._tagger.batch.next_place
            if not self._tagger.batch.in_transaction and self._idle.passed > place[0]:
                place = self._idle.passed, 0
            for oid, learned in (await in_thread(self._book.rename, place)).items():
                self._tagger.rename(oid, learned)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
