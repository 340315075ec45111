"""The tables that a follower follows: what events say of them, by the relation history, and what the follower has."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import sql
from psycopg.rows import dict_row

from pipeline.errors import FollowerError, SchemaChangeError
from pipeline.followers.applying import table_versions
from pipeline.followers.applying.copied import SnapshotCopy
from pipeline.followers.applying.position import FollowerPosition
from pipeline.followers.applying.table_versions import (
    AS_OF_POSITION,
    FollowerForm,
    HistoryPlace,
    NamedColumn,
    TableHistory,
)
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_ROOM = "followers.applying"
_MARKS, _MOST_COLUMNS = 4, 1600
Name = tuple[str, str]
"""The schema and the name of a table."""
Description = dict[str, Any]
"""What the catalog says of a table, by the columns of `describe_tables`."""


@dataclass(frozen=True)
class TableToFollow:
    """A table to follow: its name at the follower.

    `filled_upto`: up to this seq the log may lack rows, and events say what a row is, not that it was there: inserts
    and whole updates are upserts, what is missing is no difference. So it is where a follower began from the log, up
    to the table's `complete_seq`. `formed`: the follower has the form that the table has from a place on, though its
    position is before that: whoever changes it says so here. `copied`: it was, so events that the copy contains are
    left out. `joins_at`: from this place on it needs a partition that joined at the source.
    """

    schema: str
    name: str
    filled_upto: int = 0
    formed: FollowerForm = AS_OF_POSITION
    copied: SnapshotCopy | None = None
    joins_at: HistoryPlace | None = None


@dataclass(frozen=True)
class FollowedColumn:
    """A column that events have and the follower takes. `type_name`: as SQL writes it there; `carried_as`: until it is
    in its row.

    `as_text`: json or jsonb at one of the sides, so that its text is carried. `equals`: of a column of the key, the
    operator of the index. `large`: may be stored out of line, and is not written again where it is equal. `written`:
    False where the follower generates it, so that a row is only found by it.
    """

    source: NamedColumn
    name: str
    type_name: str
    carried_as: str
    as_text: bool
    large: bool
    written: bool
    equals: str | None


@dataclass(frozen=True)
class FollowedTable:
    """One of them. `own`: columns that only the follower has. `in_order`: its events are applied one by one.

    `unknown`: the log does not know the form that it was copied with, so nothing of the log can be written to it yet.
    `uniques`: columns that are unique beside the key, each with the operator of the index. `mark`: begins names that no
    column of it has. `partitions`: the follower's tables for partitions of the source, by oid, None for one that it
    does not have.
    """

    oid: int
    wanted: TableToFollow
    columns: tuple[FollowedColumn, ...]
    own: tuple[str, ...]
    partitioned: bool
    in_order: bool
    full: bool
    mark: str
    changes_at: HistoryPlace | None
    unknown: bool
    uniques: tuple[tuple[tuple[str, str], ...], ...]
    partitions: Mapping[int, sql.Identifier | None]

    def __str__(self) -> str:
        return f"{self.wanted.schema}.{self.wanted.name}"

    @property
    def identifier(self) -> sql.Identifier:
        """The follower's table."""
        return sql.Identifier(self.wanted.schema, self.wanted.name)

    @property
    def target(self) -> sql.Composable:
        """Its rows alone: children that inherit from it are tables of their own."""
        return self.identifier if self.partitioned else sql.SQL("only {}").format(self.identifier)

    @property
    def key(self) -> tuple[FollowedColumn, ...]:
        """What tells its rows apart, in the order of `record_pk`, which a partition's columns need not be in.

        Empty where nothing does.
        """
        found = (column for column in self.columns if column.equals is not None)
        return tuple(sorted(found, key=lambda column: column.source.key_place or 0))

    @property
    def is_wide(self) -> bool:
        """True if an element, with its marks and what finds its row, has more columns than Postgres takes in a list."""
        old = len(self.key)
        if not self.key and self.in_order:
            old = sum(2 if column.as_text else 1 for column in self.columns)
        return _MARKS + old + sum(column.written for column in self.columns) > _MOST_COLUMNS


@dataclass(frozen=True)
class Partition:
    """One that the source has made, attached or detached, of which the first event comes after this place.

    `oid`, `called`: at the source. `attached`: False where it is a table of its own from there on.
    """

    place: HistoryPlace
    oid: int
    called: tuple[str, str]
    attached: bool


def next_partition(
    follower: Connection,
    wanted: Mapping[int, TableToFollow],
    history: TableHistory,
    there: Mapping[str, Any] | None = None,
) -> Partition | None:
    """The next one that the follower does not have so, where its table is partitioned, or a partition of one of them.

    `there`: what describes the table, where that is known.
    """
    table = wanted[history.oid]
    name = table.schema, table.name
    there = there or describe(follower, [name]).get(name)
    if there is None or not history.later:
        return None
    roots = [[each.schema, each.name] for each in wanted.values()] if there["root"] else []
    names = _partition_names(follower, table) if there["partitioned"] else set[tuple[str, str]]()
    for place, oid in history.later:
        if there["root"] in roots:
            return Partition(place, history.oid, (table.schema, table.name), attached=False)
        if oid != history.oid and there["partitioned"] and history.partitions[oid] not in names:
            return Partition(place, oid, history.partitions[oid], attached=True)
    return None


class FollowedTables:
    """Those that have had events by a position. Later changes of form are in `changes_at`."""

    def __init__(self, tables: Mapping[int, FollowedTable], version: int) -> None:
        self._tables = tables
        self.version = version
        """Of the relation history: once there is a newer one, `read` again."""
        self._roots = {leaf: table for table in tables.values() for leaf in table.partitions}

    @classmethod
    def read(
        cls, log: Connection, follower: Connection, wanted: Mapping[int, TableToFollow], position: FollowerPosition
    ) -> FollowedTables:
        """The tables with these oids at the source. Raises FollowerError where the follower cannot take their rows."""
        version = table_versions.newest_version(log, position.source)
        histories = table_versions.read_histories(log, {oid: each.formed for oid, each in wanted.items()}, position)
        there = describe(follower, [(wanted[oid].schema, wanted[oid].name) for oid in histories])
        return cls(
            {oid: _followed(follower, position.follower, wanted, found, there) for oid, found in histories.items()},
            version,
        )

    def __iter__(self) -> Iterator[FollowedTable]:
        return iter(self._tables.values())

    def __getitem__(self, oid: int) -> FollowedTable:
        """The table, also by the oid of a partition."""
        return self._tables.get(oid) or self._roots[oid]

    @property
    def partitions(self) -> list[int]:
        """Oids of all partitions."""
        return list(self._roots)


def _followed(
    follower: Connection,
    name: str,
    of: Mapping[int, TableToFollow],
    history: TableHistory,
    described: Mapping[Name, Description],
) -> FollowedTable:
    """`name`: the follower's."""
    wanted = of[history.oid]
    there = described.get((wanted.schema, wanted.name))
    if there is None:
        raise FollowerError(f"the follower has no table {wanted.schema}.{wanted.name}: make it there, or leave it out")
    columns: tuple[FollowedColumn, ...] = ()
    changes_at, unknown = history.changes_at, False
    try:
        columns = _columns(name, wanted, history, there)
    except FollowerError:
        lacks = {column.name for column in history.columns} - {column["name"] for column in there["columns"]}
        if history.known and (history.begun or not lacks):
            raise
        # What comes first, or after the copy, has another form: one that the log has not yet, or again one of before.
        changes_at, unknown = wanted.formed.place or history.later[0][0], True
    partitions = _partition_names(follower, wanted) if history.partitions else set[tuple[str, str]]()
    changes_at = _first_change(changes_at, next_partition(follower, of, history, there), wanted, history)
    followed = {column.name for column in columns}
    names = [column["name"] for column in there["columns"]]
    return FollowedTable(
        history.oid,
        wanted,
        columns,
        tuple(each["name"] for each in there["columns"] if each["name"] not in followed and not each["generated"]),
        there["partitioned"],
        there["fires"] or (history.full and all(column.equals is None for column in columns)),
        history.full,
        _unused_mark([*names, *(column.source.name for column in columns)]),
        changes_at,
        unknown,
        _uniques(columns, there),
        {oid: sql.Identifier(*name) if name in partitions else None for oid, name in history.partitions.items()},
    )


def _unused_mark(names: Collection[str]) -> str:
    """Return a prefix that none of these column names has."""
    mark = "~"
    while any(name.startswith(mark) for name in names):
        mark += "~"
    return mark


def _first_change(
    changes_at: HistoryPlace | None, divided: Partition | None, wanted: TableToFollow, history: TableHistory
) -> HistoryPlace | None:
    """The first place at which the follower's table has to become another: in form, in partitions or in name."""
    named = history.named_later
    is_named = named is not None and named[1] == (wanted.schema, wanted.name)
    places = [changes_at, divided and divided.place, named and not is_named and named[0], wanted.joins_at]
    return min((place for place in places if place), default=None)


def _columns(
    name: str, wanted: TableToFollow, history: TableHistory, there: Mapping[str, Any]
) -> tuple[FollowedColumn, ...]:
    by_name = {column["name"]: column for column in there["columns"]}
    if missing := [column.name for column in history.columns if column.name not in by_name]:
        raise FollowerError(
            f"table {wanted.schema}.{wanted.name} of the follower has no column {', '.join(missing)}: add it there"
        )
    key = {column.name for column in history.columns if column.key_place is not None}
    operators = next((found for found in there["keys"] if found is not None and found.keys() == key), None)
    # A deferrable key is one only at a commit; where the log has old rows as a whole, they are found by that.
    if key and operators is None and not history.full:
        _require_possible(name, wanted, key, there)
        raise FollowerError(
            f"table {wanted.schema}.{wanted.name} of the follower has no unique index on its key"
            f" ({', '.join(sorted(key))}) that holds at once: make one"
        )
    return tuple(
        FollowedColumn(
            column,
            column.name,
            at["type_name"],
            "text" if column.document or at["document"] else at["carried_as"],
            column.document or at["document"],
            at["large"],
            not at["generated"],
            (operators or {}).get(column.name) if column.key_place is not None else None,
        )
        for column in history.columns
        if not (at := by_name[column.name])["generated"] or column.key_place is not None
    )


def _uniques(columns: Sequence[FollowedColumn], there: Mapping[str, Any]) -> tuple[tuple[tuple[str, str], ...], ...]:
    key = {column.name for column in columns if column.equals is not None}
    written = {column.name for column in columns if column.written}
    found = [each for each in there["keys"] if each and each.keys() != key and each.keys() <= written]
    return tuple(tuple(sorted(each.items())) for each in found)


def _require_possible(name: str, wanted: TableToFollow, key: Collection[str], there: Mapping[str, Any]) -> None:
    """A partition may have a key that its root can have none on."""
    if set(there["divided_by"]) <= set(key):
        return
    table = f"{wanted.schema}.{wanted.name}"
    raise SchemaChangeError(
        f"table {table} of the follower has no unique index on its key ({', '.join(sorted(key))}), and can have none,"
        " as it is partitioned by something else",
        f"make it there as a table without partitions that has such an index, and run `pipeline followers resync {name}"
        f" {table}`, or leave it out with --tables",
    )


def describe(follower: Connection, names: Collection[Name]) -> dict[Name, Description]:
    """Return what the follower's catalog says of these tables, without those that do not exist.

    One query reads all: to plan it takes Postgres longer than to describe ten tables.
    """
    values = {"schemas": [schema for schema, _ in names], "names": [name for _, name in names]}
    with follower.cursor(row_factory=dict_row) as cursor:
        found = cursor.execute(statement(_ROOM, "describe_tables"), values).fetchall()
    return {(each["schema"], each["name"]): each for each in found}


def _partition_names(follower: Connection, wanted: TableToFollow) -> set[tuple[str, str]]:
    """Of the follower's partitions."""
    values = {"table": sql.Identifier(wanted.schema, wanted.name).as_string(follower)}
    return set(follower.execute(statement(_ROOM, "name_partitions"), values).fetchall())
