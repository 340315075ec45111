"""Builds the query for a page of a table. The source finds the table and columns in the snapshot, and quotes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from psycopg import sql
from psycopg.rows import class_row

from pipeline.capture.source.published_relations import PublishedRelation
from pipeline.config.settings import Config
from pipeline.errors import TableRefusedError
from pipeline.postgres import connections, session_settings
from pipeline.postgres.connections import AsyncConnection
from pipeline.postgres.queries import statement, trusted
from pipeline.wires.pgdeltastream.sessions import table_names

T = TypeVar("T")
MOST = 2**63 - 1
"""The largest offset and limit that Postgres accepts; no table has more rows."""


@dataclass(frozen=True)
class SnapshotPage:
    """A page: rows `offset` to `offset + limit` of a table. The client names the table and the column that orders rows.

    Without an order, rows are read in their physical order, which is the same for each page of a snapshot.
    """

    table: str
    offset: int
    limit: int
    order_by: tuple[str, Literal["asc", "desc"]] | None = None


@dataclass(frozen=True)
class PageColumn:
    """A column of a page.

    `type`: an oid. `json`: it is json or jsonb, or a domain over one. `unique`: no two rows have the same value.
    """

    name: str
    type: int
    json: bool
    generated: bool
    unique: bool


@dataclass(frozen=True)
class PageQuery:
    """The query, None if there is no row to read, and the columns that it returns."""

    query: sql.Composable | None
    columns: list[PageColumn]


@dataclass(frozen=True)
class _Table:
    oid: int
    relations: list[int]


@dataclass(frozen=True)
class _Relation:
    """A relation that has rows. `by_place`: the role may read ctid."""

    name: str
    is_there: bool
    moved: bool
    by_place: bool


async def look_up(
    connection: AsyncConnection, config: Config, page: SnapshotPage, publications: Sequence[str]
) -> PageQuery:
    """Build the query for a page, in a transaction with the snapshot; locks its tables until the end.

    This plans no query of a user's table, because planning may run functions of the table's owner, which could change
    what is found later. Raises TableRefusedError if the table or column does not exist, or is not published.
    """
    refused = TableRefusedError(f"table {page.table[:100]!r} does not exist, or is not published")
    table = await _one(connection, _Table, "page_table", {"names": table_names.tables(page.table)})
    if table is None:
        raise refused
    found = [await _published(connection, oid, publications) for oid in table.relations]
    values = {"oid": table.oid, "publications": list(publications)}
    if not found and not await _value(connection, "page_published", values):
        raise refused
    if (published := [each for each in found if each is not None]) != found:
        raise (
            refused if not published else TableRefusedError(f"not every partition of {page.table[:100]!r} is published")
        )
    columns = _readable(await _all(connection, PageColumn, "page_columns", {"oid": table.oid}), published)
    order = _order(page, columns)
    locked = [(await _locked(connection, config, each), each.condition) for each in published]
    existing = [(relation, condition) for relation, condition in locked if relation is not None]
    return PageQuery(_query(page, existing, columns, order) if existing else None, columns)


async def _published(connection: AsyncConnection, oid: int, publications: Sequence[str]) -> PublishedRelation | None:
    """Return the published part of a relation that has rows; None if it is not published."""
    values = {"oid": oid, "publications": list(publications)}
    async with connection.cursor(row_factory=class_row(PublishedRelation)) as cursor:
        await cursor.execute(statement("capture.source", "published_relations"), values)
        return await cursor.fetchone()


def _readable(columns: list[PageColumn], published: Sequence[PublishedRelation]) -> list[PageColumn]:
    """Return the columns that are published of every relation, sorted as bytes.

    Generated columns, which Postgres sends from version 18 on, are part of the row unless a column list omits them.
    """
    for each in published:
        named = set(each.columns or ())
        if not all(column.name in named for column in columns if not column.generated):
            columns = [column for column in columns if column.name in named]
    return sorted(columns, key=lambda column: column.name.encode())


def _order(page: SnapshotPage, columns: list[PageColumn]) -> PageColumn | None:
    if page.order_by is None:
        return None
    wanted = page.order_by[0]
    name = table_names.column(wanted, [column.name for column in columns])
    if name is None:
        raise TableRefusedError(f"table {page.table[:100]!r} has no column {wanted[:100]!r} to order by")
    return next(column for column in columns if column.name == name)


async def _locked(connection: AsyncConnection, config: Config, relation: PublishedRelation) -> _Relation | None:
    """Lock a relation against a drop or a rewrite, and return it; None if it was dropped.

    PREPARE locks the relation, too. Unlike LOCK TABLE, it needs no right to all columns. It plans nothing.
    """
    values = {"oid": relation.oid}
    found = await _one(connection, _Relation, "page_relation", values)
    if found is None or not found.is_there:
        return None
    hold = sql.SQL("prepare hold as select from only {}; deallocate hold")
    await connection.execute(hold.format(trusted(found.name)))
    found = await _one(connection, _Relation, "page_relation", values)
    if found is None or not found.is_there:
        return None
    if found.moved and await _value(connection, "relation_form", values) != await _form_now(
        config.source, relation.oid
    ):
        raise TableRefusedError(
            f"{found.name} was altered since the snapshot was taken, and the snapshot no longer contains its rows"
        )
    return found


async def _form_now(dsn: str, oid: int) -> Any:
    """Return the form of a relation outside of the snapshot.

    An ALTER TABLE that rewrites the relation hides its rows from the snapshot.
    """
    settings = session_settings.SOURCE
    async with await connections.connect_async(dsn, name="pipeline session", settings=settings) as catalog_session:
        return await _value(catalog_session, "relation_form", {"oid": oid})


def _query(
    page: SnapshotPage,
    relations: Sequence[tuple[_Relation, str | None]],
    columns: Sequence[PageColumn],
    order: PageColumn | None,
) -> sql.Composable:
    names = [column.name for column in columns]
    by_place = all(each.by_place for each, _ in relations)
    last = (
        sql.SQL("t.ctid")
        if by_place
        else sql.SQL('row({})::pg_catalog.text collate pg_catalog."C"').format(_listed(names))
    )
    if len(relations) == 1:
        rows = _rows(relations[0][0].name, relations[0][1], names)
    else:
        parts = [
            _rows(each.name, condition, names, sql.SQL("{} as tableoid, {} as ctid").format(number, last))
            for number, (each, condition) in enumerate(relations)
        ]
        together = sql.SQL(" union all ").join(parts)
        rows = sql.SQL("select {} from ({}) as t").format(_listed(names), together)
        last = sql.SQL("t.tableoid, t.ctid")
    return sql.SQL("{}{} offset {} limit {}").format(
        rows,
        _ordered(page, order, None if order is not None and order.unique and len(relations) == 1 else last),
        min(page.offset, MOST),
        min(page.limit, MOST),
    )


def _ordered(page: SnapshotPage, order: PageColumn | None, last: sql.Composable | None) -> sql.Composable:
    """Return the ORDER BY: the column, then `last` if several rows may have the same value.

    Each row is then on one page. `last`: the ctid, or the row itself if the role may not read ctid.
    """
    if order is None or page.order_by is None:
        return sql.SQL("")
    direction = sql.SQL("desc" if page.order_by[1] == "desc" else "asc")
    rest = sql.SQL("") if last is None else sql.SQL(", {}").format(last)
    return sql.SQL(" order by t.{} {}{}").format(sql.Identifier(order.name), direction, rest)


def _rows(
    name: str, condition: str | None, columns: Sequence[str], place: sql.Composable | None = None
) -> sql.Composable:
    """Return the query of a relation's rows. `name` and `condition` were written by the source."""
    listed = sql.SQL(", ").join([_listed(columns)] * bool(columns) + ([place] if place is not None else []))
    where = sql.SQL(" where {}").format(trusted(condition)) if condition is not None else sql.SQL("")
    return sql.SQL("select {} from only {} as t{}").format(listed, trusted(name), where)


def _listed(columns: Sequence[str]) -> sql.Composable:
    return sql.SQL(", ").join(sql.SQL("t.{}").format(sql.Identifier(name)) for name in columns)


async def _all(connection: AsyncConnection, shape: type[T], name: str, values: dict[str, Any]) -> list[T]:
    async with connection.cursor(row_factory=class_row(shape)) as cursor:
        await cursor.execute(statement("wires.pgdeltastream.sessions", name), values)
        return await cursor.fetchall()


async def _one(connection: AsyncConnection, shape: type[T], name: str, values: dict[str, Any]) -> T | None:
    return next(iter(await _all(connection, shape, name, values)), None)


async def _value(connection: AsyncConnection, name: str, values: dict[str, Any]) -> Any:
    row = await (await connection.execute(statement("wires.pgdeltastream.sessions", name), values)).fetchone()
    return row[0] if row else None
