"""Checks whether a follower's tables can store the rows of the source's tables."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql

from pipeline.errors import FollowerRefusedError
from pipeline.followers import connecting
from pipeline.followers.admission.server import ServerFacts, forget_statement
from pipeline.followers.registry import FollowerOptions
from pipeline.postgres import queries, reading_session, session_settings
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_SHOWN = 5
_AT_ONCE = 200
"""The number of tables that one statement checks for rows."""
_LOCK_TIMEOUT = "5s"


@dataclass(frozen=True)
class PublishedTable:
    """A table as the source publishes it. `key`: the columns that identify its rows; empty if it has no key.

    `deferrable`: Postgres checks the key at the commit, so rows may exchange their keys within a transaction.
    """

    oid: int
    schema: str
    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    deferrable: bool = False

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True)
class TableAtFollower:
    """The follower's table of the same name as a published one. `kind`: `relkind` of pg_class; None if none exists.

    `keys`: the columns of each unique index that Postgres checks in every statement. `refused`: rights that the user
    lacks. `secured`: a policy would hide rows from the user.
    """

    schema: str
    name: str
    has_schema: bool
    may_use_schema: bool
    may_create: bool
    kind: str | None
    columns: list[str]
    keys: list[list[str]]
    refused: list[str]
    secured: bool

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def identifier(self) -> sql.Identifier:
        """The name, quoted for SQL."""
        return sql.Identifier(self.schema, self.name)


def require_fit(
    name: str, follower: Connection, wanted: Sequence[PublishedTable], options: FollowerOptions
) -> list[TableAtFollower]:
    """Return the follower's tables of these names. Raises FollowerRefusedError for the first problem of any table.

    This function does not check rights, and reads no rows.
    """
    values = {"schemas": [each.schema for each in wanted], "names": [each.name for each in wanted]}
    rows = queries.rows(follower, TableAtFollower, statement("followers.admission", "tables"), values)
    found = {(each.schema, each.name): each for each in rows}
    pairs = [(each, found[each.schema, each.name]) for each in wanted]
    what = connecting.label(name)
    _require_existing(what, pairs, options)
    _require_columns(what, [(each, has) for each, has in pairs if has.kind is not None])
    return rows


@dataclass(frozen=True)
class _Fed:
    """A table to which another source's log is applied. `follower`: the follower's name for that source."""

    table: str
    follower: str
    source: uuid.UUID
    seq: int


def require_unfed(
    name: str, follower: Connection, facts: ServerFacts, source: uuid.UUID, wanted: Sequence[PublishedTable]
) -> None:
    """Raise FollowerRefusedError if another source's log is applied to one of these tables.

    The table would then be equal to neither source's table.
    """
    if not facts.is_installed:
        return
    values = {
        "schemas": [each.schema for each in wanted],
        "names": [each.name for each in wanted],
        "source": source,
    }
    found = queries.rows(follower, _Fed, statement("followers.admission", "fed_tables"), values)
    if found:
        first = found[0]
        raise FollowerRefusedError(
            f"{connecting.label(name)}: another source writes to {list_names([each.table for each in found])} there as "
            f'the follower "{first.follower}", at seq {first.seq}; leave out what it feeds with --tables, or name '
            "another database; or, if that follower no longer exists, delete its position there: "
            f"{forget_statement(first.source, first.follower)}"
        )


def _require_existing(
    what: str, pairs: Sequence[tuple[PublishedTable, TableAtFollower]], options: FollowerOptions
) -> None:
    missing = [has for _, has in pairs if has.kind is None]
    if missing and options.copy == "none":
        raise FollowerRefusedError(
            f"{what}: it has no {list_names(missing)}; with --copy none its tables must be equal to the source's: "
            "leave them out with --tables, or let it be copied"
        )
    if missing and options.copy == "log":
        raise FollowerRefusedError(
            f"{what}: it has no {list_names(missing)}; with --copy log its tables must be there, since the log does "
            "not say how to make them: make them there, leave them out with --tables, or use --copy source"
        )
    if missing and options.schema == "exists":
        raise FollowerRefusedError(
            f"{what}: it has no {list_names(missing)}; make them there, or use --schema create, or leave them out "
            "with --tables"
        )
    other = [has for _, has in pairs if has.kind not in (None, "r", "p")]
    if other:
        raise FollowerRefusedError(
            f"{what}: {list_names(other)} there is a view or another object that is no table; rename it there, or "
            "leave it out with --tables"
        )


def _require_columns(what: str, there: Sequence[tuple[PublishedTable, TableAtFollower]]) -> None:
    for each, has in there:
        if lacking := [column for column in each.columns if column not in has.columns]:
            raise FollowerRefusedError(
                f"{what}: {each} there has no column {list_names(lacking)}; add what is missing, or "
                "leave the table out with --tables"
            )
        columns = ", ".join(each.key)
        is_unique = any(set(key) == set(each.key) for key in has.keys)
        if each.deferrable and is_unique:
            raise FollowerRefusedError(
                f"{what}: {each} there has a unique index on its key ({columns}) that is not deferrable, but at the "
                "source the key is, so that rows can exchange their keys in a transaction; make the index deferrable "
                "there, or leave the table out with --tables"
            )
        if each.key and not each.deferrable and not is_unique:
            raise FollowerRefusedError(
                f"{what}: {each} there has no unique index on its key ({columns}), by which rows are found; "
                f"make one that is neither partial nor deferrable, or leave the table out with --tables"
            )


def require_empty(name: str, follower: Connection, tables: Sequence[TableAtFollower]) -> None:
    """Raise FollowerRefusedError if one of these tables has rows. The user must be able to read the tables."""
    what, existing = connecting.label(name), [each for each in tables if each.kind is not None]
    try:
        with reading_session.transaction(follower, session_settings.SOURCE, lock_timeout=_LOCK_TIMEOUT):
            filled = list(_tables_with_rows(follower, existing))
    except psycopg.errors.LockNotAvailable:
        raise FollowerRefusedError(
            f"{what}: another session locks one of its tables, so the server cannot check if the table has rows; "
            "try again when that session has ended"
        ) from None
    if filled:
        raise FollowerRefusedError(
            f"{what}: {list_names(filled)} there {'has' if len(filled) == 1 else 'have'} rows; use --truncate to empty "
            "them before the copy, or --copy none if they already equal the source's"
        )


def _tables_with_rows(follower: Connection, existing: Sequence[TableAtFollower]) -> Iterable[TableAtFollower]:
    """Yield the tables that have rows. A partitioned table has the rows of its partitions."""
    for first in range(0, len(existing), _AT_ONCE):
        part = existing[first : first + _AT_ONCE]
        each = (
            sql.SQL("select {}, exists (select from {} {})").format(
                number, sql.SQL("only" if has.kind == "r" else ""), has.identifier
            )
            for number, has in enumerate(part)
        )
        rows: list[tuple[int, bool]] = follower.execute(sql.SQL(" union all ").join(each)).fetchall()
        yield from (part[number] for number, filled in sorted(rows) if filled)


def list_names(tables: Sequence[object]) -> str:
    """Return the first names in one line, and the number of the others."""
    return ", ".join(str(each) for each in tables[:_SHOWN]) + _more(tables)


def _more(listed: Sequence[object]) -> str:
    return f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
