"""The events tables that calls read, each with one feed for all services. A feed reads only while it has followers."""

from __future__ import annotations

from pipeline.consumers.cursor.feed import LogFeed
from pipeline.errors import CursorExpiredError, WrongArgumentError
from pipeline.log import shapes
from pipeline.log.page import DEFAULT_LOG, NewestSeq, OldestKeptSeq, beyond, is_expired
from pipeline.log.shapes import EventColumns
from pipeline.log.table import EventsTable
from pipeline.rpc.service import GrpcResources


class ReadableTable:
    """An events table, with its feed and its bounds."""

    def __init__(self, name: str, resources: GrpcResources) -> None:
        """`name`: `schema.table`."""
        config, self._lend = resources.config, resources.database.connection
        table = EventsTable.parse(name)
        self.relation = DEFAULT_LOG if name == config.events_table else table.identifier
        self.pages = shapes.columns_of(self.relation)
        self.feed: LogFeed[EventColumns] = LogFeed(config.database, resources.wakeups, self._lend, self.pages, name)
        self._kept_from = OldestKeptSeq(table)
        self._newest = NewestSeq(table)

    async def begin(self, after: int | None) -> int:
        """Return the seq after which a call begins to read. `after` None: it begins at the oldest kept event.

        Raises CursorExpiredError if events after `after` are no longer kept, or if the log lost the event `after`, and
        WrongArgumentError if `after` is larger than the newest seq.
        """
        async with self._lend() as connection:
            if after is None:
                return await self._kept_from.read_async(connection) - 1
            kept_from, lost = await self._kept_from.read_with_lost_async(connection, after)
            if lost:
                raise CursorExpiredError(str(lost), lost.before)
            if wrong := beyond(after, await self._newest.read_async(connection), kept_from):
                raise WrongArgumentError(wrong)
        _require_kept(after, kept_from)
        return after

    async def require_kept(self, after: int) -> None:
        """Raise CursorExpiredError if events after that seq may have been dropped unread; call this after reading."""
        async with self._lend() as connection:
            _require_kept(after, await self._kept_from.read_async(connection))

    async def head(self) -> int:
        """Return the newest seq."""
        async with self._lend() as connection:
            return await self.pages.newest_async(connection)


class ReadableTables:
    """The events tables that calls have requested."""

    def __init__(self, resources: GrpcResources) -> None:
        self._resources = resources
        self._known: dict[str, ReadableTable] = {}

    def get(self, name: str) -> ReadableTable:
        """Return the table of that name, which must be in the settings, or read by a consumer."""
        if name not in self._known:
            self._known[name] = ReadableTable(name, self._resources)
        return self._known[name]


def _require_kept(after: int, kept_from: int) -> None:
    if is_expired(after, kept_from):
        raise CursorExpiredError(
            f"the events up to seq {kept_from - 1} were dropped by retention; continue with after.seq = "
            f"{kept_from - 1}, or without `from`",
            kept_from - 1,
        )
