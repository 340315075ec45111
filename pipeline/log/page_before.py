"""Read events before a seq, the newest first, as JSON: of all tables, or the history of one row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from pipeline.config import patterns
from pipeline.log.page import SPAN
from pipeline.postgres import queries
from pipeline.postgres.connections import AsyncConnection
from pipeline.postgres.queries import statement


@dataclass(frozen=True)
class BackwardRequest:
    """The newest events before a seq: `rows` of them, or until they take `bytes`; the last one may exceed `bytes`.

    `tables`: patterns `schema.table`; `actions`; empty: all. With `key`, only events of the row with this `record_pk`,
    and `tables` is the name of its table.
    """

    before: int
    rows: int
    bytes: int
    tables: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    key: str | None = None


@dataclass(frozen=True)
class BackwardPage:
    """Events as JSON, the newest first. `first_seq`: no other event with this seq or a larger one is wanted.

    It is 0 if no older event is left. `head`: the newest seq of the log.
    """

    events: Sequence[str]
    first_seq: int
    head: int


class BackwardReader:
    """Reads an events table backward."""

    def __init__(self, events: sql.Identifier) -> None:
        self._page = queries.composed(statement("log", "page_before"), events=events)
        self._row = queries.composed(statement("log", "history_of_row"), events=events)

    async def read(self, connection: AsyncConnection, request: BackwardRequest) -> BackwardPage:
        """Read the requested page, which looks at no more than SPAN seqs, or at the events of one row."""
        values: dict[str, Any] = {"before": request.before, "rows": request.rows, "bytes": request.bytes}
        if request.key is None:
            values |= {"span": SPAN, "tables": patterns.likes(request.tables), "actions": list(request.actions)}
        else:
            values |= {"table": request.tables[0], "key": request.key, "actions": list(request.actions)}
        cursor = await connection.execute(self._page if request.key is None else self._row, values)
        rows = await cursor.fetchall()
        head, searched, has_older, found = rows[0][:4]
        events = [event for *_, event in rows if event is not None]
        if found and (found >= request.rows or len(events) < found):
            return BackwardPage(events, rows[-1][4], head)
        return BackwardPage(events, searched if has_older else 0, head)
