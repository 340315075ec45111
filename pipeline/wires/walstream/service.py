"""Serves plugin.PluginService, whose one call is a session of a walstream client."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from typing import Any, NoReturn, TypeAlias

import grpc
import psycopg

from pipeline.consumers.cursor.feed import LogFeed
from pipeline.errors import DatabaseUnavailableError, PipelineError
from pipeline.log.shapes import EventColumns
from pipeline.postgres.pool import Pool
from pipeline.postgres.queries import statement
from pipeline.process import supervised
from pipeline.rpc import statuses
from pipeline.rpc.calls import RunningCalls, until_one_ends
from pipeline.rpc.parsing import parser, require
from pipeline.rpc.protos import plugin_pb2 as pb
from pipeline.rpc.service import GrpcResources
from pipeline.wires.walstream.hub import SessionHub
from pipeline.wires.walstream.messages import WalstreamMessages
from pipeline.wires.walstream.session import ClientSession
from pipeline.wires.walstream.store import WalstreamStore

logger = logging.getLogger(__name__)

NAME = "plugin.PluginService"
CLOSE_SECONDS = 1.0
_RETRY_SECONDS = 2.0
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"

FirstRowsSpan = tuple[int, int | None]
"""The span of seqs in which a backfill's events are first rows: after the first seq, up to the second one.

The second is None while the backfill still runs."""

Table = tuple[str, int, int]
"""The source, epoch and oid of a table."""


class PluginService:
    """The gRPC service of walstream's clients."""

    name = NAME

    def __init__(self, resources: GrpcResources, feed: LogFeed[EventColumns]) -> None:
        """`feed`: that of the default events table."""
        self._database = resources.database
        self._store = WalstreamStore(resources.database, resources.server)
        self._hub = SessionHub(resources.cursors, feed, self._store, resources.server)
        self._messages = WalstreamMessages(lambda: self._hub.schedule_write(self._store.count_shortened))
        self._calls = RunningCalls()
        self._making = supervised.start_task("walstream consumer", self._make_consumer)

    @property
    def handlers(self) -> grpc.GenericRpcHandler:
        """The handler of Session, whose answers are already serialized."""
        session = grpc.stream_stream_rpc_method_handler(self._session, parser(pb.ClientMessage.FromString), bytes)
        return grpc.method_handlers_generic_handler(self.name, {"Session": session})

    async def close(self) -> None:
        """End every session with UNAVAILABLE, and store what was acknowledged."""
        self._making.cancel()
        await self._calls.end(DatabaseUnavailableError(statuses.LEAVING))
        await self._hub.close(CLOSE_SECONDS)

    async def _make_consumer(self) -> None:
        """Create the consumer at the head of the log when the wire is first served."""
        while True:
            with suppress(psycopg.Error, PipelineError, OSError):
                if await self._store.make_consumer():
                    logger.info("consumer walstream begins at the head of the log", extra={"action": "walstream.made"})
                return
            await asyncio.sleep(_RETRY_SECONDS)

    async def _session(self, requests: AsyncIterator[pb.ClientMessage | None], context: Context) -> None:
        try:
            await statuses.begin(context)  # without this, clients do not notice that they are connected
            await self._calls.run(self._serve(requests, context))
        except Exception as error:
            await statuses.abort(context, error)

    async def _serve(self, requests: AsyncIterator[pb.ClientMessage | None], context: Context) -> None:
        async with self._hub.session(context.peer()) as session:
            await until_one_ends(session.ended, self._send(session, context), self._receive(session, requests))

    async def _send(self, session: ClientSession, context: Context) -> NoReturn:
        first_rows = FirstRows(self._database)
        reads_all = "read" in session.claim.event_filter.actions
        async for batch in session.follower.batches():
            await session.claim.wait_until_active()
            await first_rows.learn(batch.entries)
            for event in batch.entries:
                if event.action == "read" and not (reads_all or first_rows.include(event)):
                    continue
                if (message := self._messages.serialize(event)) is not None:
                    session.begin_to_send(event)
                    await context.write(message)  # waits for a slow client
            if batch.is_complete:
                session.end_transaction()
        raise DatabaseUnavailableError("the log cannot be read now; call again")

    async def _receive(self, session: ClientSession, requests: AsyncIterator[pb.ClientMessage | None]) -> NoReturn:
        async for received in requests:
            message = require(received)
            if message.HasField("ack"):
                self._hub.acknowledge(session, message.ack.pg_lsn)
        await asyncio.Event().wait()  # a client that closes its side continues to receive
        raise AssertionError("the event is never set")


class FirstRows:
    """Decides which `read` events a session is sent. The answer for an ended backfill never changes.

    A table joins after its first rows were written, so these are `read` events, which clients that are older than the
    table need. If the table is older than the clients, they are existing rows that no client has asked for.
    """

    def __init__(self, database: Pool) -> None:
        self._database = database
        self._known: dict[Table, list[FirstRowsSpan]] = {}

    async def learn(self, events: Iterable[EventColumns]) -> None:
        """Read the backfills of these events' tables, except those that are known to have ended."""
        reads = [event for event in events if event.action == "read"]
        asked = list({_first_rows_table(event) for event in reads if not self._is_within(event, ended=True)})
        if not asked:
            return
        sources, epochs, oids = (list(each) for each in zip(*asked, strict=True))
        values = {"sources": sources, "epochs": epochs, "oids": oids}
        rows = await self._database.rows(statement("wires.walstream", "first_rows"), values)
        self._known |= {table: [] for table in asked}
        for row in rows:
            self._known[asked[row["at"] - 1]].append((row["after"], row["upto"]))

    def include(self, event: EventColumns) -> bool:
        """True if this event is of the first rows of a new table or partition. `learn` must know it."""
        return self._is_within(event)

    def _is_within(self, event: EventColumns, *, ended: bool = False) -> bool:
        return any(
            after < event.seq and (not ended if upto is None else event.seq <= upto)
            for after, upto in self._known.get(_first_rows_table(event), ())
        )


def _first_rows_table(event: EventColumns) -> Table:
    return event.source, event.epoch, event.table_oid
