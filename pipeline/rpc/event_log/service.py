"""The calls of EventLog: Read, which streams transactions, and Ack, which moves the position of a consumer.

Requests are checked, events grouped into messages, and a consumer is kept for a while for late acknowledgements.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import grpc
from google.protobuf.timestamp_pb2 import Timestamp
from psycopg import sql

from pipeline.config import patterns
from pipeline.consumers.cursor.acknowledged_position import AcknowledgementTracker
from pipeline.consumers.cursor.claims import CursorClaim
from pipeline.consumers.cursor.feed import Batch
from pipeline.consumers.cursor.frames import MAX_EVENTS
from pipeline.consumers.cursor.reading import CursorReading
from pipeline.errors import ConsumerChangedError, DatabaseUnavailableError, TableRefusedError, WrongArgumentError
from pipeline.log.page import EventFilter
from pipeline.log.shapes import EventColumns
from pipeline.postgres.queries import statement
from pipeline.rpc import statuses
from pipeline.rpc.calls import RunningCalls, until_one_ends
from pipeline.rpc.parsing import parser, require
from pipeline.rpc.protos import event_log_pb2 as pb
from pipeline.rpc.service import GrpcResources
from pipeline.rpc.tables import ReadableTable, ReadableTables

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
SESSION = "session"
"""The key of Read's initial metadata whose value Ack repeats."""

PART_BYTES = 900_000
"""A message ends before its events exceed this many characters; a single event may be larger."""
PART_EVENTS = 10_000
_OVERHEAD = 100
"""Estimated bytes of an event without its jsonb columns."""
_ACTION_NUMBERS = {name.lower(): number for name, number in pb.Action.items()}
ACTIONS = tuple(name.lower() for name in pb.Action.keys()[1:])
MAX_SEQ = (1 << 63) - 1
KEPT_SECONDS = 30.0
"""Seconds after the end of a call in which its events can still be acknowledged.

Until then, no other session reads the consumer.
"""
_LOOK_SECONDS = 0.05


class EventLogService:
    """The service pipeline.v1.EventLog: reads the log, and stores the positions of cursor consumers."""

    name = "pipeline.v1.EventLog"

    def __init__(self, resources: GrpcResources, tables: ReadableTables) -> None:
        self._config = resources.config
        self._server = resources.server
        self._database = resources.database
        self._cursors = resources.cursors
        self._tables = tables
        self._readings: dict[str, CursorReading] = {}
        self._calls = RunningCalls()
        self._unacknowledged = UnacknowledgedReads()

    @property
    def handlers(self) -> grpc.GenericRpcHandler:
        """The handlers of Read and Ack."""
        return grpc.method_handlers_generic_handler(
            self.name,
            {
                "Read": grpc.unary_stream_rpc_method_handler(
                    self._read, parser(pb.ReadRequest.FromString), pb.Transaction.SerializeToString
                ),
                "Ack": grpc.unary_unary_rpc_method_handler(
                    self._ack, parser(pb.AckRequest.FromString), pb.AckReply.SerializeToString
                ),
            },
        )

    async def close(self) -> None:
        """End every call with UNAVAILABLE."""
        await self._calls.end(DatabaseUnavailableError(statuses.LEAVING))
        await self._unacknowledged.close()

    async def _read(self, request: pb.ReadRequest | None, context: Context) -> None:
        try:
            await self._calls.run(self._serve(require(request), context))
        except Exception as error:
            await statuses.abort(context, error)

    async def _serve(self, request: pb.ReadRequest, context: Context) -> None:
        wanted = read_plan(request, self._config.events_table, self._config.events_tables)
        if wanted.consumer is not None:
            await self._serve_consumer(wanted, wanted.consumer, context)
            return
        table = self._tables.get(wanted.table)
        after = await table.begin(wanted.after)
        await statuses.begin(context)
        await self._send_from(table, wanted, after, context)

    async def _send_from(self, table: ReadableTable, wanted: ReadPlan, after: int, context: Context) -> None:
        grouping = TransactionGrouping()
        if not wanted.follow:
            async for batch in _up_to_head(table, wanted.filter, after, grouping):
                await _send(context, grouping, batch)
            return
        async with table.feed.follower(wanted.filter, after) as follower:
            async for batch in follower.batches():
                if batch.paged:
                    await table.require_kept(batch.after)
                await _send(context, grouping, batch)

    async def _serve_consumer(self, wanted: ReadPlan, consumer: str, context: Context) -> None:
        await self._unacknowledged.end(consumer)
        async with AsyncExitStack() as stack:
            reader = f"{context.peer()} through server {self._server}"
            claim = await stack.enter_async_context(self._cursors.claim(consumer, reader))
            table = self._tables.get(claim.events_table or self._config.events_table)
            follower = await stack.enter_async_context(table.feed.follower(claim.event_filter, claim.position))
            grouping = TransactionGrouping()
            acknowledgements = AcknowledgementTracker(claim.position, by_transaction=True)
            reading = CursorReading(self._cursors, claim, follower, acknowledgements, lambda: grouping.has_pending)
            self._readings[claim.session] = reading
            stack.callback(self._readings.pop, claim.session)
            await statuses.begin(context, (SESSION, claim.session))
            if wanted.follow:
                batches = follower.batches()
            else:
                batches = _up_to_head(table, claim.event_filter, claim.position, grouping)
            await until_one_ends(claim.ended, _send_read(batches, claim, reading, grouping, context), _store(reading))
            if not reading.is_settled:  # everything is sent, and the client may still acknowledge it
                self._unacknowledged.keep(reading, stack.pop_all())

    async def _ack(self, request: pb.AckRequest | None, context: Context) -> pb.AckReply:
        try:
            return await self._calls.run(self._acknowledge(require(request)))
        except ConsumerChangedError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except Exception as error:
            await statuses.abort(context, error)
        raise AssertionError("abort raises")

    async def _acknowledge(self, request: pb.AckRequest) -> pb.AckReply:
        reading = self._readings.get(request.session)
        if reading is None or reading.claim.name != request.consumer:
            raise ConsumerChangedError(
                f"this session does not read consumer {request.consumer[:63]!r} here; call Read, then Ack with the "
                f"{SESSION!r} of Read's initial metadata"
            )
        reading.acknowledge(request.position.seq)
        await reading.store()
        return pb.AckReply(position=await self._position(reading.claim))

    async def _position(self, claim: CursorClaim) -> pb.Position:
        table = self._tables.get(claim.events_table or self._config.events_table)
        query = sql.SQL(statement("rpc.event_log", "place")).format(events=table.relation)
        async with self._database.connection() as connection:
            row = await (await connection.execute(query, {"seq": claim.position})).fetchone()
        epoch, commit_lsn = row or (None, None)
        return pb.Position(source_epoch=epoch, commit_lsn=commit_lsn, seq=claim.position)


async def _up_to_head(
    table: ReadableTable, wanted: EventFilter, after: int, grouping: TransactionGrouping
) -> AsyncIterator[Batch[EventColumns]]:
    """Yield the events up to the head of the log, then the rest of a transaction that `grouping` has in part.

    The caller adds each batch to `grouping`.
    """
    head, rows = await table.head(), MAX_EVENTS
    while after < head or grouping.has_pending_upto(head):
        batch = await table.feed.read_page(after, wanted, rows)
        await table.require_kept(after)
        yield batch
        if batch.upto <= after:  # another user has deleted the rows
            return
        after, rows = batch.upto, batch.next_rows


async def _send(context: Context, grouping: TransactionGrouping, batch: Batch[EventColumns]) -> None:
    for message in grouping.add(batch.entries, is_complete=batch.is_complete):
        await context.write(message)


async def _send_read(
    batches: AsyncIterator[Batch[EventColumns]],
    claim: CursorClaim,
    reading: CursorReading,
    grouping: TransactionGrouping,
    context: Context,
) -> None:
    async for batch in batches:
        await claim.wait_until_active()
        for message in grouping.add(batch.entries, is_complete=batch.is_complete):
            reading.record_sent(message.position.seq, ends=message.complete)
            await context.write(message)


async def _store(reading: CursorReading) -> NoReturn:
    """Store a position after events that the filter leaves out; Ack stores acknowledged positions itself."""
    while True:
        await reading.wait_for_acknowledgement()
        await reading.store()


class TransactionGrouping:
    """Groups events into messages. The last part of a transaction is held until it is known to be the last."""

    def __init__(self) -> None:
        self._part: list[EventColumns] = []
        self._size = 0

    @property
    def has_pending(self) -> bool:
        """True if some of the added events are in no message yet."""
        return bool(self._part)

    def has_pending_upto(self, seq: int) -> bool:
        """Return True if an event up to this seq is in no message yet."""
        return bool(self._part) and self._part[0].seq <= seq

    def add(self, events: Sequence[EventColumns], *, is_complete: bool) -> Iterator[pb.Transaction]:
        """Yield the messages that these events complete. `is_complete`: no transaction continues after them."""
        for event in events:
            size = event.size + _OVERHEAD
            if self._part and event.transaction != self._part[-1].transaction:
                yield self._take_transaction(complete=True)
            elif self._part and (self._size + size > PART_BYTES or len(self._part) >= PART_EVENTS):
                yield self._take_transaction(complete=False)
            self._part.append(event)
            self._size += size
        if is_complete and self._part:
            yield self._take_transaction(complete=True)

    def _take_transaction(self, *, complete: bool) -> pb.Transaction:
        part, self._part, self._size = self._part, [], 0
        last = part[-1]
        seconds, micros = divmod(last.committed_at, 1_000_000)
        return pb.Transaction(
            position=pb.Position(source_epoch=last.epoch, commit_lsn=last.commit_lsn or 0, seq=last.seq),
            xid=last.xid or 0,
            committed_at=Timestamp(seconds=seconds, nanos=micros * 1000),
            complete=complete,
            changes=[_change(event) for event in part],
        )


def _change(event: EventColumns) -> pb.Change:
    return pb.Change(
        seq=event.seq,
        commit_idx=event.commit_idx or 0,
        schema=event.schema,
        table=event.name,
        action=pb.Action.Name(_ACTION_NUMBERS.get(event.action, 0)),
        record_pk=event.record_pk,
        record=event.record,
        changes=event.changes,
        exact=event.exact,
        unchanged_columns=event.unchanged_columns,
        annotations=event.annotations,
        metadata=event.metadata,
    )


@dataclass(frozen=True)
class ReadPlan:
    """The events that a call reads.

    `consumer`: read from its position, with its filter. `after` None: all kept events.
    """

    table: str
    follow: bool
    consumer: str | None
    after: int | None
    filter: EventFilter


def read_plan(request: pb.ReadRequest, default: str, tables: Collection[str]) -> ReadPlan:
    """Return the plan of a request. `default`: the default events table; `tables`: all configured ones.

    Raises WrongArgumentError, TableRefusedError.
    """
    start = request.WhichOneof("from")
    consumer = request.consumer if start == "consumer" else None
    if consumer is not None:
        for name in ("tables", "actions", "events_table"):
            if getattr(request, name):
                raise WrongArgumentError(f"a consumer has its own filter and events table: leave out {name}")
    after = request.after.seq if start == "after" else None
    if after is not None and not 0 <= after <= MAX_SEQ:
        raise WrongArgumentError(f"after.seq must be 0 or more, not {after}")
    return ReadPlan(
        _events_table(request.events_table, default, tables),
        request.follow,
        consumer,
        after,
        EventFilter(actions=_actions(request.actions), within=_tables(request.tables)),
    )


def _events_table(name: str, default: str, tables: Collection[str]) -> str:
    if name in tables:
        return name
    if name:
        raise TableRefusedError(
            f"there is no events table {name[:200]!r} in the settings; there are: {', '.join(tables)}"
        )
    return default


def _tables(given: Collection[str]) -> tuple[str, ...]:
    try:
        patterns.require_qualified(given)
        patterns.require_few(given)
    except ValueError as error:
        raise WrongArgumentError(str(error)) from None
    if any("\0" in pattern for pattern in given):
        raise WrongArgumentError("a text may not hold a zero byte")
    return tuple(given)


def _actions(given: Collection[str]) -> tuple[str, ...]:
    for action in given:
        if action not in ACTIONS:
            raise WrongArgumentError(f"there is no action {action[:100]!r}; there are: {', '.join(ACTIONS)}")
    return tuple(given)


class UnacknowledgedReads:
    """Ended reads of this process with events that can still be acknowledged, by the consumer's name."""

    def __init__(self) -> None:
        self._kept: dict[str, asyncio.Task[None]] = {}

    def keep(self, reading: CursorReading, held: AsyncExitStack) -> None:
        """Keep a read.

        Closes `held`, the read's resources, once all is acknowledged, the claim ends, or KEPT_SECONDS have passed.
        """
        self._kept[reading.claim.name] = asyncio.create_task(_keep(reading, held), name="unacknowledged")

    async def end(self, consumer: str) -> None:
        """End the kept read of a consumer, since a new call of this process reads it."""
        if (task := self._kept.pop(consumer, None)) is not None:
            task.cancel()
            await asyncio.wait([task])

    async def close(self) -> None:
        """End all kept reads."""
        for consumer in list(self._kept):
            await self.end(consumer)


async def _keep(reading: CursorReading, held: AsyncExitStack) -> None:
    async with held:
        until = asyncio.get_running_loop().time() + KEPT_SECONDS
        while not reading.is_settled and asyncio.get_running_loop().time() < until:
            done, _ = await asyncio.wait([reading.claim.ended], timeout=_LOOK_SECONDS)
            if done:
                return
