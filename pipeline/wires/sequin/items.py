"""Receives items, and reads their events and the versions of their tables in the same transaction."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, LiteralString, NamedTuple, TypeVar
from uuid import UUID

from orjson import loads
from psycopg.rows import args_row

from pipeline.postgres.connections import AsyncConnection
from pipeline.postgres.queries import statement
from pipeline.wires.sequin.row_cast import RowCast

T = TypeVar("T")
PACKAGE = "wires.sequin"
_NO_CAST = RowCast()


class ReceivedItem(NamedTuple):
    """A received item: the columns of receive_items.sql, in their order. Some are null for legacy events.

    `table_key`: source, epoch and oid of the event's table. `newest_version`: the highest id of a table version of its
    source, whatever the table.
    """

    ack_id: str
    seq: int
    commit_lsn: int | None
    commit_idx: int | None
    source_table_schema: str
    source_table_name: str
    record_pk: str
    action: str
    record: str
    changes: str | None
    exact: str | None
    annotations: str | None
    committed_at: str
    event_action: str | None
    table_key: str | None
    newest_version: int | None


class DeliveredItem(NamedTuple):
    """An item with the source of its event and the cast of its row."""

    item: ReceivedItem
    source_id: UUID
    cast: RowCast


class _EventTable(NamedTuple):
    seq: int
    event_action: str
    table_key: str
    newest_version: int


class _Version(NamedTuple):
    from_lsn: int
    from_idx: int
    key_columns: list[str]
    columns: str | None


@dataclass(frozen=True, slots=True)
class _Table:
    """The versions of a table: where each begins, and how its rows are cast.

    `newest`: the `newest_version` of the source when they were read.
    """

    source_id: UUID
    begins: list[tuple[int, int]]
    casts: list[RowCast]
    newest: int | None

    def delivery(self, item: ReceivedItem) -> DeliveredItem:
        if item.commit_lsn is None or item.commit_idx is None:
            return DeliveredItem(item, self.source_id, _NO_CAST)
        number = bisect_right(self.begins, (item.commit_lsn, item.commit_idx))
        return DeliveredItem(item, self.source_id, self.casts[number - 1] if number else _NO_CAST)


class ItemReceiver:
    """Receives items, and caches table versions, which never change, until the source has newer ones."""

    def __init__(self) -> None:
        self._tables: dict[str, _Table] = {}

    async def receive(self, connection: AsyncConnection, consumer: str, most: int) -> list[DeliveredItem]:
        """Receive the next items of a consumer; empty if there are none."""
        items = await _rows(connection, ReceivedItem, statement(PACKAGE, "receive_items"), name=consumer, most=most)
        if any(item.table_key is None for item in items):
            items = await _completed(connection, consumer, items)
        known = [(item, str(item.table_key)) for item in items]
        for key, newest in {key: item.newest_version for item, key in known}.items():
            if key not in self._tables or self._tables[key].newest != newest:
                self._tables[key] = await _read(connection, key, newest)
        return [self._tables[key].delivery(item) for item, key in known]


async def _completed(connection: AsyncConnection, consumer: str, items: Sequence[ReceivedItem]) -> list[ReceivedItem]:
    """Return the items with the tables of events that the receiving statement did not see.

    Their events arrived during the statement, or are in the items themselves or in another events table.
    """
    ids = {item.seq: item.ack_id for item in items if item.table_key is None}
    found = await _rows(connection, _EventTable, statement(PACKAGE, "find_tables"), name=consumer, seqs=list(ids))
    if missing := ids.keys() - {each.seq for each in found}:
        kept = statement("wires.sequin", "find_kept_events")
        found += await _rows(connection, _EventTable, kept, ack_ids=[ids[seq] for seq in missing])
    by_seq = {each.seq: each._asdict() for each in found}
    return [item._replace(**by_seq[item.seq]) if item.seq in ids else item for item in items]


async def _read(connection: AsyncConnection, key: str, newest: int | None) -> _Table:
    source_id, epoch, oid = key.split(" ")
    values = {"source_id": source_id, "epoch": epoch or None, "table_oid": oid}
    found = await _rows(connection, _Version, statement(PACKAGE, "find_versions"), **values)
    return _Table(UUID(source_id), [(each.from_lsn, each.from_idx) for each in found], _casts(found), newest)


def _casts(found: Sequence[_Version]) -> list[RowCast]:
    """Return the cast of each version; equal versions, such as those of partitions, share one."""
    different = {(each.columns, *each.key_columns): each for each in found}
    casts = {key: RowCast(loads(each.columns or "[]"), each.key_columns) for key, each in different.items()}
    return [casts[each.columns, *each.key_columns] for each in found]


async def _rows(connection: AsyncConnection, shape: type[T], query: LiteralString, **values: Any) -> list[T]:
    async with connection.cursor(row_factory=args_row(shape)) as cursor:
        return await (await cursor.execute(query, values)).fetchall()
