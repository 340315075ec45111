"""The replication worker: reads and tags the stream, while other tasks stage the rows and confirm what is durable."""

from __future__ import annotations

import asyncio

from pipeline.capture.replication.confirm_rule import ConfirmRule, PartEndedError
from pipeline.capture.replication.message_reorder import MessageReorder
from pipeline.capture.replication.progress_reporter import ProgressReporter
from pipeline.capture.replication.relation_registry import RelationRegistry
from pipeline.capture.replication.replay import ReplayCheck
from pipeline.capture.replication.staging_pump import StagingPump
from pipeline.capture.replication.stream import ReplicationStream
from pipeline.capture.replication.tagger import ChangeTagger
from pipeline.errors import UndecodableChangeError
from pipeline.log.writing.log_writer import LogWriter
from pipeline.process.signals import in_thread
from pipeline.wal import pgoutput
from pipeline.wal.markers import is_marker
from pipeline.wal.messages import LogicalMessage, Message, RelationMessage

FLUSH_BYTES = 2_000_000
"""If collected rows have more bytes, they are staged even while more rows arrive."""
WATCH_SECONDS = 2.0
"""Seconds between two checks that everything that was published still is."""

_RELATION, _MESSAGE = ord("R"), ord("M")


class ReplicationWorker:
    """Stages everything that the stream sends, until `stop` is called or something fails.

    The stream must be started at or before the writer's position: replayed transactions are skipped. The worker
    confirms only what is durable in the pipeline database, and never a point inside of a transaction.
    """

    def __init__(
        self, stream: ReplicationStream, writer: LogWriter, registry: RelationRegistry, until: int | None = None
    ) -> None:
        """`until`: transactions that commit there or later belong to another worker; None: all belong to this one."""
        self._stream = stream
        self._registry = registry
        self._confirm_rule = ConfirmRule(writer.position)
        self._tagger = ChangeTagger(self._confirm_rule, stream.encoding)
        self._reorder = MessageReorder()
        self._reporter = ProgressReporter(stream, self._confirm_rule, lambda: self._tagger.batch.commit_lsn)
        self._pump = StagingPump(
            self._tagger.batch, writer, self._confirm_rule, self._reporter, self._ready, self._record_unsent
        )
        self.starved = stream.starved
        """Adds up how long reading has waited for the source."""
        self.blocked = self._pump.blocked
        """Adds up how long reading has waited for staging."""
        self.may_read = asyncio.Event()
        """Cleared while a catch-up is planned, which decides which worker reads next."""
        self.may_read.set()
        self._stopping = False
        self._database_lock = asyncio.Lock()
        """Locked while the registry uses its two connections."""
        self._undecodable: UndecodableChangeError | None = None
        if until is not None:
            self.stop_before(until)

    @property
    def resumed(self) -> bool:
        """True once the source has shown that its history contains our position."""
        return self._confirm_rule.resumed

    @property
    def ended(self) -> bool:
        """True if everything before `until` is staged; valid once `run` has returned."""
        return self._confirm_rule.ended

    @property
    def staged(self) -> int:
        """An LSN: no change that commits before it waits to be staged; 0 until replayed transactions are verified."""
        return self._confirm_rule.staged

    @property
    def first_unread(self) -> int:
        """An LSN: no transaction that commits there or later has begun to arrive."""
        return max(self._confirm_rule.position, self._confirm_rule.passed, self._tagger.batch.commit_lsn + 1)

    def stop_before(self, until: int) -> None:
        """Leave transactions that commit at `until` or later to another worker.

        `run` returns when all transactions before `until` are staged and `until` is the stored position, durably.
        `until` must be beyond `first_unread`.
        """
        self._confirm_rule.until = until

    def stop(self) -> None:
        """Stage and confirm the complete transactions, then return from `run`."""
        self._stopping = True
        self._pump.stop()

    async def run(self) -> None:
        """Run until stopped. Raises the first error; an error never loses anything that was confirmed.

        If the source cannot send a transaction, all transactions before it are stored durably before
        UndecodableChangeError is raised.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                reader = tasks.create_task(self._read())
                others = [tasks.create_task(self._reporter.keep_reporting()), tasks.create_task(self._watch_source())]
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
        except PartEndedError:
            self.stop()
        except UndecodableChangeError as error:
            self._tagger.feed_all(self._reorder.held, pgoutput.XLOG_HEADER)
            if (open_ := self._tagger.batch.unfinished) is not None:
                begin, error.changes = open_
                error.commit_lsn, error.committed_at, error.xid = begin
            self._undecodable = error
            self.stop()

    async def _read_on(self) -> None:
        messages = await self._skip_replayed()
        while not self._stopping:
            self._reorder.hold_back(messages)
            for place, data in enumerate(messages):
                if data[0] == pgoutput.XLOG_DATA:
                    if data[pgoutput.XLOG_HEADER] in (_RELATION, _MESSAGE):
                        await self._feed_looked_up(messages, place)
                    else:
                        self._tagger.feed_bytes(data, pgoutput.XLOG_HEADER)
                elif data[0] == pgoutput.KEEPALIVE:
                    self._keepalive(data)
            self._pump.offer()
            await self._pump.wait_for_space()
            await self.may_read.wait()
            await asyncio.sleep(0)
            messages = self._reorder.with_held(await self._stream.read(before_wait=self._pump.offer))

    async def _feed_looked_up(self, messages: list[bytes], place: int) -> None:
        """Look up and feed a Relation or a logical message.

        A logical message is put before the changes that the source sent too early.
        """
        message = pgoutput.decode(messages[place], pgoutput.XLOG_HEADER)
        early: list[bytes] = []
        if isinstance(message, LogicalMessage) and message.transactional:
            early = self._reorder.sent_too_early(messages, place)
            self._tagger.take_back(early, pgoutput.XLOG_HEADER)
        await self._learn(message)
        self._tagger.feed_all(early, pgoutput.XLOG_HEADER)

    async def _skip_replayed(self) -> list[bytes]:
        """Skip the replayed transactions; returns the first messages that are new."""
        replay = await in_thread(self._registry.replay, self._stream.start_position)
        rest: list[bytes] = []
        while not replay.over and not self._stopping:
            rest = replay.skip(await self._stream.read())
            self._reporter.received = replay.received
            self._confirm_rule.pass_to(replay.received)
            if replay.reply_requested:
                self._reporter.send()
            if replay.verified:
                self._allow_writing(replay)
            await asyncio.sleep(0)
        if replay.over:
            for data in replay.relations.values():
                await self._learn(pgoutput.decode(data, pgoutput.XLOG_HEADER), (replay.new_from, 0))
            self._allow_writing(replay)
            self._confirm_rule.require_more()
        return rest

    def _allow_writing(self, replay: ReplayCheck) -> None:
        """Allow storing and confirming, once the replayed transactions have proved equal to what is stored."""
        if not self._confirm_rule.resumed:
            self._confirm_rule.resume(replay.from_lsn)
            self._pump.begin()

    async def _learn(self, message: Message, since: tuple[int, int] | None = None) -> None:
        """Look up relations, and the relation of messages, before rows that refer to them are tagged."""
        if isinstance(message, RelationMessage) and self._registry.is_own(message):
            self._tagger.ignore(message.oid)
            return
        if isinstance(message, RelationMessage):
            xid = None if since else self._tagger.batch.xid
            since = since or self._tagger.batch.next_place
            changed, _ = self._tagger.last_change(message.oid)
            async with self._database_lock:
                learned = await in_thread(self._registry.describe, message, since, xid, changed)
            self._tagger.learn(message, learned)
            return
        if is_marker(message):
            async with self._database_lock:
                if await in_thread(self._registry.place_range, message.content, self._tagger.batch.unfinished):
                    self._tagger.batch.place_range()
                    return
        if isinstance(message, LogicalMessage) and not self._tagger.knows(message):
            async with self._database_lock:
                learned = await in_thread(self._registry.describe, message, self._tagger.batch.next_place)
            self._tagger.learn(message, learned)
        self._tagger.feed(message)

    def _keepalive(self, data: bytes) -> None:
        keepalive = pgoutput.decode_keepalive(data)
        self._reporter.received = max(self._reporter.received, keepalive.wal_end)
        self._confirm_rule.keepalive(keepalive.wal_end, asked=keepalive.reply_requested)
        if keepalive.reply_requested:
            self._reporter.send()
        self._pump.wake()

    def _ready(self) -> bool:
        batch = self._tagger.batch
        return batch.size >= FLUSH_BYTES or (batch.has_whole and self._stream.is_drained)

    async def _watch_source(self) -> None:
        """Check what the stream does not say: changes left out, rewritten tables, renamed roots of partitions."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            async with self._database_lock:
                await in_thread(self._registry.require_still_published)
                await in_thread(self._registry.check_tables, lambda oid: self._tagger.last_change(oid)[0])
            await self._record_unsent()

    async def _record_unsent(self, first_lsn: int | None = None) -> None:
        """Record names, and attributes of composite types, that the source does not send.

        `first_lsn`: only if changes from there on may have values of such types. The log never has a value of an
        unknown form if this is awaited before those changes are staged.
        """
        changes = [self._tagger.last_change(oid) for oid in self._registry.composites.relations]
        xids = {xid for lsn, xid in changes if first_lsn is not None and lsn >= first_lsn}
        if first_lsn is not None and not xids:
            return
        async with self._database_lock:
            place = self._tagger.batch.next_place
            if not self._tagger.batch.in_transaction and self._confirm_rule.passed > place[0]:
                place = self._confirm_rule.passed, 0
            for oid, learned in (await in_thread(self._registry.record_unsent, place, xids)).items():
                self._tagger.rename(oid, learned)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
