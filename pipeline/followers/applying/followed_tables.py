"""Reads the tables that a follower follows: their versions in the relation history, and the follower's tables."""

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
    HistoryPlace,
    NamedColumn,
    ReachedVersion,
    TableHistory,
)
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_FOLDER = "followers.applying"
_MARKS, _MOST_COLUMNS = 4, 1600
Name = tuple[str, str]
"""The schema and the name of a table."""
Description = dict[str, Any]
"""A row of `describe_tables.sql`: a table in the follower's catalog."""


@dataclass(frozen=True)
class TableToFollow:
    """A table to follow, with its name at the follower.

    - `filled_upto`: up to this seq the log may lack rows. Inserts and complete updates are written as upserts, and a
      missing row is no difference. For example, a follower that began from the log has the table's `complete_seq`.
    - `reached`: the version of the follower's table, which may be of a place after the position.
    - `copy`: the table's copy; events that the copy contains are left out.
    - `joins_at`: from this place on the table needs a partition that joined at the source.
    """

    schema: str
    name: str
    filled_upto: int = 0
    reached: ReachedVersion = AS_OF_POSITION
    copy: SnapshotCopy | None = None
    joins_at: HistoryPlace | None = None


@dataclass(frozen=True)
class FollowedColumn:
    """A column that events have and that the follower's table has.

    - `type_name`: its type at the follower in SQL; `carried_as`: the type in which SQL handles a value before it is in
      its row.
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
    - `is_unknown`: the history lacks the version that was copied, so no event can be written yet.
    - `uniques`: the columns of each unique index besides the key's, each column with the operator of the index.
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
    is_unknown: bool
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
        return tuple(sorted(found, key=lambda column: column.source.key_index or 0))

    @property
    def is_wide(self) -> bool:
        """True if an element, with its marks and its old row, has more columns than Postgres allows in a list."""
        old = len(self.key)
        if not self.key and self.in_order:
            old = sum(2 if column.as_text else 1 for column in self.columns)
        return _MARKS + old + sum(column.written for column in self.columns) > _MOST_COLUMNS


@dataclass(frozen=True)
class Partition:
    """A partition that the source created, attached or detached before this place, where its next event is.

    `oid`, `name`: its oid and name at the source. `attached`: False if it is a separate table from there on.
    """

    place: HistoryPlace
    oid: int
    name: Name
    attached: bool


def next_partition(
    follower: Connection,
    wanted: Mapping[int, TableToFollow],
    history: TableHistory,
    described: Description | None = None,
) -> Partition | None:
    """Return the next partition that the follower must attach or detach; None if there is none.

    The result can only be a partition of this table, or the table itself, if it is a partition of a followed table.
    `described`: the table at the follower, if already read.
    """
    table = wanted[history.oid]
    name = table.schema, table.name
    described = described or describe(follower, [name]).get(name)
    if described is None or not history.later:
        return None
    roots = [[each.schema, each.name] for each in wanted.values()] if described["root"] else []
    names = _partition_names(follower, table) if described["partitioned"] else set[Name]()
    for place, oid in history.later:
        if described["root"] in roots:
            return Partition(place, history.oid, (table.schema, table.name), attached=False)
        if oid != history.oid and described["partitioned"] and history.partitions[oid] not in names:
            return Partition(place, oid, history.partitions[oid], attached=True)
    return None


class FollowedTables:
    """The followed tables that have had events. Each has the version that the follower's table has reached."""

    def __init__(self, tables: Mapping[int, FollowedTable], history_number: int) -> None:
        self._tables = tables
        self.history_number = history_number
        """The number of the relation history; if it has grown, call `read` again."""
        self._roots = {leaf: table for table in tables.values() for leaf in table.partitions}

    @classmethod
    def read(
        cls, log: Connection, follower: Connection, wanted: Mapping[int, TableToFollow], position: FollowerPosition
    ) -> FollowedTables:
        """Read the tables with these oids at the source. Raises FollowerError if the follower cannot take a table."""
        number = table_versions.history_number(log, position.source)
        histories = table_versions.read_histories(log, {oid: each.reached for oid, each in wanted.items()}, position)
        described = describe(follower, [(wanted[oid].schema, wanted[oid].name) for oid in histories])
        return cls(
            {oid: _followed(follower, position.follower, wanted, found, described) for oid, found in histories.items()},
            number,
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
    table = described.get((wanted.schema, wanted.name))
    if table is None:
        raise FollowerError(f"the follower has no table {wanted.schema}.{wanted.name}: make it there, or leave it out")
    columns: tuple[FollowedColumn, ...] = ()
    changes_at, is_unknown = history.changes_at, False
    try:
        columns = _columns(name, wanted, history, table)
    except FollowerError:
        lacks = {column.name for column in history.columns} - {column["name"] for column in table["columns"]}
        if history.known and (history.begun or not lacks):
            raise
        # The next event does not fit the table: the history lacks the table's version, or the event is of an older one.
        changes_at, is_unknown = wanted.reached.place or history.later[0][0], True
    partitions = _partition_names(follower, wanted) if history.partitions else set[Name]()
    changes_at = _first_change(changes_at, next_partition(follower, of, history, table), wanted, history)
    followed = {column.name for column in columns}
    names = [column["name"] for column in table["columns"]]
    return FollowedTable(
        history.oid,
        wanted,
        columns,
        tuple(each["name"] for each in table["columns"] if each["name"] not in followed and not each["generated"]),
        table["partitioned"],
        table["fires"] or (history.full and all(column.equals is None for column in columns)),
        history.full,
        _unused_mark([*names, *(column.source.name for column in columns)]),
        changes_at,
        is_unknown,
        _uniques(columns, table),
        {oid: sql.Identifier(*name) if name in partitions else None for oid, name in history.partitions.items()},
    )


def _unused_mark(names: Collection[str]) -> str:
    """Return a prefix that none of these column names has."""
    mark = "~"
    while any(name.startswith(mark) for name in names):
        mark += "~"
    return mark


def _first_change(
    changes_at: HistoryPlace | None, partition: Partition | None, wanted: TableToFollow, history: TableHistory
) -> HistoryPlace | None:
    """Return the first place at which the follower's table must get another version, partition or name."""
    named = history.later_name
    is_named = named is not None and named[1] == (wanted.schema, wanted.name)
    places = [changes_at, partition and partition.place, named and not is_named and named[0], wanted.joins_at]
    return min((place for place in places if place), default=None)


def _columns(
    name: str, wanted: TableToFollow, history: TableHistory, described: Description
) -> tuple[FollowedColumn, ...]:
    by_name = {column["name"]: column for column in described["columns"]}
    if missing := [column.name for column in history.columns if column.name not in by_name]:
        raise FollowerError(
            f"table {wanted.schema}.{wanted.name} of the follower has no column {', '.join(missing)}: add it there"
        )
    key = {column.name for column in history.columns if column.key_index is not None}
    operators = next((found for found in described["keys"] if found is not None and found.keys() == key), None)
    # A deferrable key is unique only at a commit; if the log has complete old rows, rows are found by all values.
    if key and operators is None and not history.full:
        _require_possible(name, wanted, key, described)
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
            (operators or {}).get(column.name) if column.key_index is not None else None,
        )
        for column in history.columns
        if not (at := by_name[column.name])["generated"] or column.key_index is not None
    )


def _uniques(columns: Sequence[FollowedColumn], described: Description) -> tuple[tuple[tuple[str, str], ...], ...]:
    key = {column.name for column in columns if column.equals is not None}
    written = {column.name for column in columns if column.written}
    found = [each for each in described["keys"] if each and each.keys() != key and each.keys() <= written]
    return tuple(tuple(sorted(each.items())) for each in found)


def _require_possible(name: str, wanted: TableToFollow, key: Collection[str], described: Description) -> None:
    """Raise SchemaChangeError if the follower's table can have no unique index on this key.

    A unique index of a partitioned table must contain the columns of the partition key.
    """
    if set(described["partition_columns"]) <= set(key):
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


def _partition_names(follower: Connection, wanted: TableToFollow) -> set[Name]:
    """Return the names of a table's partitions at the follower."""
    values = {"table": sql.Identifier(wanted.schema, wanted.name).as_string(follower)}
    return set(follower.execute(statement(_FOLDER, "name_partitions"), values).fetchall())
