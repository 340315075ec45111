"""Reads the tables that a follower follows: their form in the relation history, and the follower's own tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import sql
from psycopg.rows import dict_row

from pipeline.errors import FollowerError, SchemaChangeError
from pipeline.followers.applying import table_versions
from pipeline.followers.applying.position import FollowerPosition
from pipeline.followers.applying.snapshot_copy import SnapshotCopy
from pipeline.followers.applying.table_versions import (
    AS_OF_POSITION,
    FollowerForm,
    HistoryPlace,
    NamedColumn,
    TableHistory,
)
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_FOLDER = "followers.applying"
_MARKS, _MOST_COLUMNS = 4, 1600
Name = tuple[str, str]
"""The schema and the name of a table."""
Description = dict[str, Any]
"""A table in the follower's catalog, with the columns of `describe_tables.sql`."""


@dataclass(frozen=True)
class TableToFollow:
    """A table to follow, with its name at the follower.

    - `filled_upto`: up to this seq the log may lack rows. Inserts and complete updates are written as upserts, and a
      missing row is no difference. For example, a follower that began from the log has the table's `complete_seq`.
    - `formed`: the form of the follower's table, which may be of a place after the position.
    - `copied`: the table's copy; events that the copy contains are left out.
    - `joins_at`: from this place on the table needs a partition that joined at the source.
    """

    schema: str
    name: str
    filled_upto: int = 0
    formed: FollowerForm = AS_OF_POSITION
    copied: SnapshotCopy | None = None
    joins_at: HistoryPlace | None = None


@dataclass(frozen=True)
class FollowedColumn:
    """A column that events have and that the follower's table has.

    - `type_name`: its type at the follower in SQL; `carried_as`: the type of a value until it is in its row.
    - `as_text`: the type is json or jsonb at one of the sides, so the value is carried as text.
    - `equals`: the operator of the key's index, for a column of the key.
    - `large`: the value may be stored out of line, and an equal value is not written again.
    - `written`: False if the follower generates the value, so the column only finds rows.
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
    """A table that the follower follows.

    - `own`: columns that only the follower has.
    - `in_order`: its events are applied one by one.
    - `unknown`: the log does not know the form that the table was copied with, so no event can be written yet.
    - `uniques`: columns that are unique besides the key, each with the operator of the index.
    - `mark`: a prefix that no column of the table has.
    - `partitions`: the follower's tables for partitions of the source, by oid; None: the follower has none.
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
        """The follower's table, as SQL names it."""
        return sql.Identifier(self.wanted.schema, self.wanted.name)

    @property
    def target(self) -> sql.Composable:
        """The table without tables that inherit from it, which are followed separately."""
        return self.identifier if self.partitioned else sql.SQL("only {}").format(self.identifier)

    @property
    def key(self) -> tuple[FollowedColumn, ...]:
        """The columns that tell its rows apart, in the order of `record_pk`, which may differ in a partition.

        Empty if no columns do.
        """
        found = (column for column in self.columns if column.equals is not None)
        return tuple(sorted(found, key=lambda column: column.source.key_place or 0))

    @property
    def is_wide(self) -> bool:
        """True if an element, with its marks and its old row, has more columns than Postgres allows in a list."""
        old = len(self.key)
        if not self.key and self.in_order:
            old = sum(2 if column.as_text else 1 for column in self.columns)
        return _MARKS + old + sum(column.written for column in self.columns) > _MOST_COLUMNS


@dataclass(frozen=True)
class Partition:
    """A partition that the source created, attached or detached at this place, before its first event there.

    `oid`, `called`: its oid and name at the source. `attached`: False if it is a separate table from there on.
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
    """Return the next partition that the follower must attach or detach; None if there is none.

    Only a partitioned table, or a partition of a followed table, has one. `there`: the table's description, if known.
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
    """The followed tables that have had events by a position. Later changes of form are in `changes_at`."""

    def __init__(self, tables: Mapping[int, FollowedTable], version: int) -> None:
        self._tables = tables
        self.version = version
        """The version of the relation history; if a newer one exists, call `read` again."""
        self._roots = {leaf: table for table in tables.values() for leaf in table.partitions}

    @classmethod
    def read(
        cls, log: Connection, follower: Connection, wanted: Mapping[int, TableToFollow], position: FollowerPosition
    ) -> FollowedTables:
        """Read the tables with these oids at the source. Raises FollowerError if the follower cannot take a table."""
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
        """Return the table with this oid, or the table of the partition with this oid."""
        return self._tables.get(oid) or self._roots[oid]

    @property
    def partitions(self) -> list[int]:
        """The oids of all partitions."""
        return list(self._roots)


def _followed(
    follower: Connection,
    name: str,
    of: Mapping[int, TableToFollow],
    history: TableHistory,
    described: Mapping[Name, Description],
) -> FollowedTable:
    """Combine a table's history with its description at the follower. `name`: the follower's name."""
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
        # The next event has another form than the table: a form that the log does not have yet, or an earlier one.
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
    """Return the first place in the log at which the follower's table must change its form, partitions or name."""
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
    # A deferrable key is unique only at a commit; if the log has complete old rows, rows are found by all values.
    if key and operators is None and not history.full:
        _require_possible(name, wanted, key, there)
        raise FollowerError(
            f"table {wanted.schema}.{wanted.name} of the follower has no unique index on its key"
            f" ({', '.join(sorted(key))}) that is not deferrable: create one"
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
    """Raise SchemaChangeError if the follower's table can have no index on this key, which its partitions have."""
    if set(there["divided_by"]) <= set(key):
        return
    table = f"{wanted.schema}.{wanted.name}"
    raise SchemaChangeError(
        f"table {table} of the follower has no unique index on its key ({', '.join(sorted(key))}), and can have none,"
        " because it is partitioned by other columns",
        f"make it there as a table without partitions that has such an index, and run `pipeline followers resync {name}"
        f" {table}`, or leave it out with --tables",
    )


def describe(follower: Connection, names: Collection[Name]) -> dict[Name, Description]:
    """Return the descriptions of these tables in the follower's catalog, without tables that do not exist.

    One query reads all tables, because planning it takes longer than describing ten tables.
    """
    values = {"schemas": [schema for schema, _ in names], "names": [name for _, name in names]}
    with follower.cursor(row_factory=dict_row) as cursor:
        found = cursor.execute(statement(_FOLDER, "describe_tables"), values).fetchall()
    return {(each["schema"], each["name"]): each for each in found}


def _partition_names(follower: Connection, wanted: TableToFollow) -> set[tuple[str, str]]:
    """Return the names of a table's partitions at the follower."""
    values = {"table": sql.Identifier(wanted.schema, wanted.name).as_string(follower)}
    return set(follower.execute(statement(_FOLDER, "name_partitions"), values).fetchall())
