"""Items that are received, with what the log and the history of their tables say of them, in one transaction."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString, NamedTuple, TypeVar
from uuid import UUID

from orjson import loads
from psycopg.rows import args_row

from pipeline.api.wires.sequin.row_cast import RowCast
from pipeline.postgres.connections import AsyncConnection
from pipeline.postgres.queries import statement

T = TypeVar("T")
PACKAGE = "api.wires.sequin"
_NO_CAST = RowCast()


class Item(NamedTuple):
    """A delivery: the columns of receive_items.sql, in their order. Of legacy events some are null."""

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


class Place(NamedTuple):
    """Where events come from: the columns of find_places.sql, in their order. `action`: theirs.

    `versions`: how many table versions there are now.
    """

    source_id: UUID
    epoch: int | None
    table_oid: int
    action: str
    versions: int
    seqs: list[int]


class _Version(NamedTuple):
    from_lsn: int
    from_idx: int
    key_columns: list[str]
    columns: str | None


@dataclass(frozen=True, slots=True)
class _Versions:
    """Those of one table: where each begins, and how its rows are cast. `counted`: of all tables, when it was read."""

    begins: list[tuple[int, int]]
    casts: list[RowCast]
    counted: int

    def at(self, item: Item) -> RowCast:
        if item.commit_lsn is None or item.commit_idx is None:
            return _NO_CAST
        number = bisect_right(self.begins, (item.commit_lsn, item.commit_idx))
        return self.casts[number - 1] if number else _NO_CAST


Delivery = tuple[Item, Place, RowCast]


class Items:
    """Receives them; remembers table versions, which never change, until there are more."""

    def __init__(self) -> None:
        self._tables: dict[tuple[UUID, int | None, int], _Versions] = {}

    async def receive(self, connection: AsyncConnection, consumer: str, most: int) -> list[Delivery]:
        """The next items of a consumer; empty when there are none."""
        items = await _rows(connection, Item, statement(PACKAGE, "receive_items"), name=consumer, most=most)
        if not items:
            return []
        places = await _places(connection, items)
        await self._learn(connection, places)
        by_seq = {seq: (place, self._tables[_table(place)]) for place in places for seq in place.seqs}
        return [(item, place, versions.at(item)) for item in items for place, versions in (by_seq[item.seq],)]

    async def _learn(self, connection: AsyncConnection, places: Iterable[Place]) -> None:
        """Read the versions of tables that are not known, or may have more of them by now."""
        for place in places:
            table = _table(place)
            known = self._tables.get(table)
            if known is not None and known.counted == place.versions:
                continue
            values = dict(zip(("source_id", "epoch", "table_oid"), table, strict=True))
            found = await _rows(connection, _Version, statement(PACKAGE, "find_versions"), **values)
            self._tables[table] = _Versions(
                [(each.from_lsn, each.from_idx) for each in found], _casts(found), place.versions
            )


def _casts(found: Sequence[_Version]) -> list[RowCast]:
    """Of each version; one for all that do not differ, as those of partitions."""
    different = {(each.columns, *each.key_columns): each for each in found}
    casts = {key: RowCast(loads(each.columns or "[]"), each.key_columns) for key, each in different.items()}
    return [casts[each.columns, *each.key_columns] for each in found]


def _table(place: Place) -> tuple[UUID, int | None, int]:
    return place.source_id, place.epoch, place.table_oid


async def _places(connection: AsyncConnection, items: Iterable[Item]) -> list[Place]:
    ids = {item.seq: item.ack_id for item in items}
    found = await _rows(connection, Place, statement(PACKAGE, "find_places"), seqs=list(ids))
    if missing := ids.keys() - {seq for place in found for seq in place.seqs}:
        kept = statement("readers.queue", "find_kept_events")
        found += await _rows(connection, Place, kept, ack_ids=[ids[seq] for seq in missing])
    return found


async def _rows(connection: AsyncConnection, shape: type[T], query: LiteralString, **values: Any) -> list[T]:
    async with connection.cursor(row_factory=args_row(shape)) as cursor:
        return await (await cursor.execute(query, values)).fetchall()
