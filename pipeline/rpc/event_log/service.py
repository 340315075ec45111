"""The calls of EventLog: Read, which streams transactions, and Ack, which moves the position of a consumer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, NoReturn, TypeAlias

import grpc
from psycopg import sql

from pipeline.consumers.cursor.acknowledgements import Acknowledgements
from pipeline.consumers.cursor.claims import Claim
from pipeline.consumers.cursor.feed import Batch
from pipeline.consumers.cursor.frames import MAX_EVENTS
from pipeline.consumers.cursor.reading import Reading
from pipeline.errors import ConsumerChanged, Unavailable
from pipeline.log.page import Filter
from pipeline.log.shapes import Columns
from pipeline.postgres.queries import statement
from pipeline.rpc import statuses
from pipeline.rpc.calls import Calls, until_one_ends
from pipeline.rpc.event_log import request as requests
from pipeline.rpc.event_log.messages import Grouping
from pipeline.rpc.event_log.request import Wanted
from pipeline.rpc.event_log.unacknowledged import Unacknowledged
from pipeline.rpc.parsing import parser, require
from pipeline.rpc.protos import event_log_pb2 as pb
from pipeline.rpc.service import Surroundings
from pipeline.rpc.tables import Table, Tables

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
SESSION = "session"
"""The key of Read's initial metadata whose value Ack repeats."""


class EventLog:
    """The service."""

    name = "pipeline.v1.EventLog"

    def __init__(self, surroundings: Surroundings, tables: Tables) -> None:
        self._config = surroundings.config
        self._server = surroundings.server
        self._database = surroundings.database
        self._cursors = surroundings.cursors
        self._tables = tables
        self._readings: dict[str, Reading] = {}
        self._calls = Calls()
        self._unacknowledged = Unacknowledged()

    @property
    def handlers(self) -> grpc.GenericRpcHandler:
        """Read and Ack."""
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
        await self._calls.end(Unavailable(statuses.LEAVING))
        await self._unacknowledged.close()

    async def _read(self, request: pb.ReadRequest | None, context: Context) -> None:
        try:
            await self._calls.run(self._serve(require(request), context))
        except Exception as error:
            await statuses.abort(context, error)

    async def _serve(self, request: pb.ReadRequest, context: Context) -> None:
        wanted = requests.wanted(request, self._config.events_table, self._config.events_tables)
        if wanted.consumer is not None:
            await self._serve_consumer(wanted, wanted.consumer, context)
            return
        table = self._tables.get(wanted.table)
        after = await table.begin(wanted.after)
        await statuses.begin(context)
        await self._send_from(table, wanted, after, context)

    async def _send_from(self, table: Table, wanted: Wanted, after: int, context: Context) -> None:
        grouping = Grouping()
        if not wanted.follow:
            async for batch in _up_to_head(table, wanted.filter, after, grouping):
                await _send(context, grouping, batch)
            return
        async with table.feed.follower(wanted.filter, after) as follower:
            async for batch in follower.batches():
                if batch.paged:
                    await table.require_kept(batch.after)
                await _send(context, grouping, batch)

    async def _serve_consumer(self, wanted: Wanted, consumer: str, context: Context) -> None:
        await self._unacknowledged.end(consumer)
        async with AsyncExitStack() as stack:
            reader = f"{context.peer()} through server {self._server}"
            claim = await stack.enter_async_context(self._cursors.claim(consumer, reader))
            table = self._tables.get(claim.events_table or self._config.events_table)
            follower = await stack.enter_async_context(table.feed.follower(claim.wanted, claim.position))
            grouping = Grouping()
            acknowledgements = Acknowledgements(claim.position, whole=True)
            reading = Reading(self._cursors, claim, follower, acknowledgements, lambda: grouping.has_pending)
            self._readings[claim.session] = reading
            stack.callback(self._readings.pop, claim.session)
            await statuses.begin(context, (SESSION, claim.session))
            if wanted.follow:
                batches = follower.batches()
            else:
                batches = _up_to_head(table, claim.wanted, claim.position, grouping)
            await until_one_ends(claim.ended, _send_read(batches, claim, reading, grouping, context), _store(reading))
            if not reading.settled:  # all is sent, and the client may acknowledge it yet
                self._unacknowledged.keep(reading, stack.pop_all())

    async def _ack(self, request: pb.AckRequest | None, context: Context) -> pb.AckReply:
        try:
            return await self._calls.run(self._acknowledge(require(request)))
        except ConsumerChanged as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except Exception as error:
            await statuses.abort(context, error)
        raise AssertionError("abort raises")

    async def _acknowledge(self, request: pb.AckRequest) -> pb.AckReply:
        reading = self._readings.get(request.session)
        if reading is None or reading.claim.name != request.consumer:
            raise ConsumerChanged(
                f"this session does not read consumer {request.consumer[:63]!r} here; Read it, and repeat the "
                f"{SESSION!r} of its initial metadata"
            )
        reading.acknowledge(request.position.seq)
        await reading.store()
        return pb.AckReply(position=await self._position(reading.claim))

    async def _position(self, claim: Claim) -> pb.Position:
        table = self._tables.get(claim.events_table or self._config.events_table)
        query = sql.SQL(statement("rpc.event_log", "place")).format(events=table.relation)
        async with self._database.connection() as connection:
            row = await (await connection.execute(query, {"seq": claim.position})).fetchone()
        epoch, commit_lsn = row or (None, None)
        return pb.Position(source_epoch=epoch, commit_lsn=commit_lsn, seq=claim.position)


async def _up_to_head(table: Table, wanted: Filter, after: int, grouping: Grouping) -> AsyncIterator[Batch[Columns]]:
    """What is in the log by now, and what completes it in `grouping`, to which each batch is added meanwhile."""
    head, rows = await table.head(), MAX_EVENTS
    while after < head or grouping.has_pending_upto(head):
        batch = await table.feed.page(after, wanted, rows)
        await table.require_kept(after)
        yield batch
        if batch.upto <= after:  # somebody has deleted what was there
            return
        after, rows = batch.upto, batch.next_rows


async def _send(context: Context, grouping: Grouping, batch: Batch[Columns]) -> None:
    for message in grouping.add(batch.entries, whole=batch.whole):
        await context.write(message)


async def _send_read(
    batches: AsyncIterator[Batch[Columns]], claim: Claim, reading: Reading, grouping: Grouping, context: Context
) -> None:
    async for batch in batches:
        await claim.active()
        for message in grouping.add(batch.entries, whole=batch.whole):
            reading.sent(message.position.seq, ends=message.complete)
            await context.write(message)


async def _store(reading: Reading) -> NoReturn:
    """Passes over what the filter leaves out; what is acknowledged Ack stores itself."""
    while True:
        await reading.acknowledged()
        await reading.store()
