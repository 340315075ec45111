"""An ordinary connection to the source for each stream: finds names of types, and notices a shutdown early.

A source that shuts down ends ordinary connections at once, but its walsenders only when all is sent and confirmed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import psycopg

from pipeline.errors import DatabaseUnavailableError
from pipeline.postgres import connections
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.process.signals import in_thread
from pipeline.wal.messages import RelationMessage, TypeMessage

_GONE = "???"


class TypeCatalog:
    """Names types as format_type does in the database's own search path. One task at a time may use it."""

    def __init__(self, source: Connection, dsn: str) -> None:
        self._source = source
        self._dsn = dsn
        self._named: dict[int, str] = {}
        self._lost: Callable[[DatabaseUnavailableError], None] | None = None
        self._line = source.fileno()  # a lost connection has no number to remove its reader by

    def watch(self, lost: Callable[[DatabaseUnavailableError], None]) -> None:
        """Call `lost`, in the running loop, when the source ends the connection."""
        self._lost = lost
        asyncio.get_running_loop().add_reader(self._line, self._read_unasked)

    def name(self, message: TypeMessage) -> None:
        """Remember the name of a type that is not built in, from the stream: the type may have been dropped since."""
        self._named[message.oid] = message.name

    async def types(self, relation: RelationMessage) -> list[str]:
        """Return the names of the types of a relation's columns. Raises DatabaseUnavailableError."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._line)
        try:
            return await in_thread(self._types, relation)
        except psycopg.Error as error:
            raise connections.unavailable(self._dsn, "source", error) from error
        finally:
            if self._lost is not None and not self._source.closed:
                loop.add_reader(self._line, self._read_unasked)

    def close(self) -> None:
        """Close the connection."""
        self._forget()
        self._source.close()

    def _forget(self) -> None:
        """Stop watching the socket, before another one gets its number."""
        if self._lost is not None:
            self._lost = None
            with suppress(RuntimeError):  # the event loop has ended
                asyncio.get_running_loop().remove_reader(self._line)

    def _types(self, relation: RelationMessage) -> list[str]:
        columns = relation.columns
        values = {"types": [c.type_oid for c in columns], "modifiers": [c.type_modifier for c in columns]}
        with self._source.transaction():
            self._source.execute("set local search_path to default")
            rows = self._source.execute(statement("wires.pgdeltastream.sessions", "type_names"), values).fetchall()
        return [
            self._named.get(column.type_oid, _GONE) if name == _GONE else str(name)
            for column, (name,) in zip(columns, rows, strict=True)
        ]

    def _read_unasked(self) -> None:
        """Read what the source has sent without a request: a notice, or the end of the connection."""
        try:
            self._source.pgconn.consume_input()
        except psycopg.OperationalError as error:
            lost = self._lost
            self._forget()
            if lost is not None:
                lost(connections.unavailable(self._dsn, "source", error))
