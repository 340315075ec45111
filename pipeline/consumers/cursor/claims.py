"""The claims of a process on the cursors that it reads, and the database session that ends with the process."""

from __future__ import annotations

import asyncio
import logging
import uuid

import psycopg
from psycopg.rows import DictRow, dict_row

from pipeline.consumers.cursor.feed import Connection
from pipeline.errors import ConsumerChangedError, ConsumerError, PipelineError, UnknownConsumerError
from pipeline.log.page import EventFilter
from pipeline.postgres import connections, session_settings

logger = logging.getLogger(__name__)

REVIEW_SECONDS = 2.0
"""Seconds between two checks of this process's cursors; the checks also show that the process is not frozen."""
_LOCK_SESSION = "select pg_catalog.pg_try_advisory_lock(1346981969, pg_catalog.hashtext(%(session)s))"
"""SQL for the advisory lock by which other processes see that this one lives; it ends with the session."""
_REVIEW_CURSORS = """\
select name, state, position, reader_session
from pipeline.consumers
where name = any (%(names)s::text[])
"""
"""SQL for the state of the cursors that this process has claimed."""


class CursorClaim:
    """The claim of this process on a cursor. `position`: the last acknowledged seq that is stored.

    `session`: identifies this claim in the cursor's row. `events_table`: `schema.table`; None is the default one.
    `ended`: gets the reason when this process may no longer read the cursor.
    """

    def __init__(
        self,
        name: str,
        session: str,
        event_filter: EventFilter,
        position: int,
        events_table: str | None,
        *,
        paused: bool,
    ) -> None:
        self.name = name
        self.session = session
        self.event_filter = event_filter
        self.position = position
        self.events_table = events_table
        self.ended: asyncio.Future[PipelineError] = asyncio.get_running_loop().create_future()
        self._active = asyncio.Event()
        self.set_paused(paused)

    async def wait_until_active(self) -> None:
        """Wait while the consumer is paused."""
        await self._active.wait()

    def set_paused(self, paused: bool) -> None:
        """Stop or resume sending events, because the consumer was paused or resumed."""
        if paused:
            self._active.clear()
        else:
            self._active.set()

    def end(self, reason: PipelineError) -> None:
        """End the claim, because this process may no longer read the cursor."""
        if not self.ended.done():
            self.ended.set_result(reason)


class CursorSession:
    """A connection that holds the advisory lock of its name. When it breaks, its claims end.

    `lost`: the error that has broken the connection.
    """

    def __init__(self, name: str, dsn: str, connection: Connection, claims: dict[str, CursorClaim]) -> None:
        self.name = name
        self.lost: PipelineError | None = None
        self._dsn = dsn
        self._connection = connection
        self._claims = claims
        self._task = asyncio.create_task(self._review_until_lost(), name="cursors")

    @classmethod
    async def open(cls, dsn: str, claims: dict[str, CursorClaim]) -> CursorSession:
        """Connect and take the lock. `claims`: all claims of this process. Raises DatabaseUnavailableError."""
        name = uuid.uuid4().hex
        try:
            connection = await connections.connect_async(dsn, name="pipeline cursors", settings=session_settings.SERVER)
            try:
                await connection.execute(_LOCK_SESSION, {"session": name})
            except BaseException:
                await connection.close()
                raise
        except (psycopg.Error, OSError) as error:
            raise connections.unavailable(dsn, "pipeline database", error) from error
        return cls(name, dsn, connection, claims)

    async def _review_until_lost(self) -> None:
        try:
            while True:
                await self._review_claims()
                await asyncio.sleep(REVIEW_SECONDS)
        except Exception as error:
            traceback = None if isinstance(error, psycopg.Error | OSError) else error
            self.lost = connections.unavailable(self._dsn, "pipeline database", error)
            logger.warning("lost all cursors: %s", self.lost, exc_info=traceback, extra={"action": "cursor.lost"})
            for claim in self._own_claims():
                claim.end(self.lost)
            await self._connection.close()

    async def close(self) -> None:
        """Close the connection, which releases the lock and thereby the claims."""
        self._task.cancel()
        await asyncio.wait({self._task})
        await self._connection.close()

    def _own_claims(self) -> list[CursorClaim]:
        return [claim for claim in self._claims.values() if claim.session.startswith(f"{self.name}:")]

    async def _review_claims(self) -> None:
        before = [(claim, claim.position) for claim in self._own_claims()]
        async with self._connection.cursor(row_factory=dict_row) as cursor:
            names = {"names": [claim.name for claim, _ in before]}
            await cursor.execute(_REVIEW_CURSORS, names, prepare=True)
            rows = {row["name"]: row for row in await cursor.fetchall()}
        for claim, position in before:
            if (reason := _review_claim(claim, position, rows.get(claim.name))) is not None:
                claim.end(reason)


def _review_claim(claim: CursorClaim, position: int, row: DictRow | None) -> ConsumerError | None:
    """Return the reason why a claim has ended, by the consumer's current row; None if it has not.

    Also pauses or resumes the claim.
    """
    if row is None:
        return UnknownConsumerError(f"consumer {claim.name} was dropped")
    if row["reader_session"] != claim.session:
        return ConsumerChangedError(f"consumer {claim.name} was reset, or taken by another reader; connect again")
    if row["position"] < position:
        return ConsumerChangedError(f"consumer {claim.name} was reset; connect again")
    claim.set_paused(row["state"] == "paused")
    return None
