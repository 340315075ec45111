"""Reads from the relation history the versions that a source's table has had: its names, columns and keys.

A version is valid from one place in the source's history to the place of the next version. The follower's table has one
of these versions, too: the one that it has *reached*.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from pipeline.followers.applying.position import FollowerPosition
from pipeline.followers.registry import NamedTable
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.wal.encoding import JSON, JSONB

FULL = "f"
"""The replica identity by which all values of an old row are in the log."""
_FOLDER = "followers.applying"


@dataclass(frozen=True, order=True)
class HistoryPlace:
    """A place in the history of one source: an epoch, an LSN and an index in the transaction."""

    epoch: int
    lsn: int
    idx: int


BEGINNING = HistoryPlace(0, 0, 0)
"""The place before any change."""
LAST = 2**31 - 1
"""The index after every index of a transaction."""


@dataclass(frozen=True)
class TableVersion:
    """A version of a table or partition, as a row of `pipeline.relations`."""

    id: int
    epoch: int
    from_lsn: int
    from_idx: int
    relation_oid: int
    relation_schema: str
    relation_name: str
    table_oid: int
    table_schema: str
    table_name: str
    replica_identity: str
    columns: list[dict[str, Any]]
    key_columns: list[str]

    @property
    def place(self) -> HistoryPlace:
        """The place from which on the version is valid."""
        return HistoryPlace(self.epoch, self.from_lsn, self.from_idx)

    @property
    def numbered(self) -> bool:
        """True if columns are known by their numbers, so that a renamed column is recognized."""
        return self.relation_oid == self.table_oid and all(column["attnum"] is not None for column in self.columns)

    def is_like(self, other: TableVersion) -> bool:
        """Return True if both have the same table name, columns and key, and equally complete old rows."""
        numbered = self.is_numbered_like(other)
        return self._content(numbered=numbered) == other._content(numbered=numbered)

    def is_numbered_like(self, other: TableVersion) -> bool:
        """Return True if the numbers of their columns tell which columns are the same."""
        return self.numbered and other.numbered and self.relation_oid == other.relation_oid

    def _content(self, *, numbered: bool) -> object:
        columns = {
            (column["attnum"] if numbered else None, column["name"], column["type_oid"], column["type_modifier"])
            for column in self.columns
        }
        key = {column["name"] for column in self.columns if column["name"] in self.key_columns}
        return (self.table_schema, self.table_name), columns, key, self.replica_identity == FULL


@dataclass(frozen=True)
class NamedColumn:
    """A column of a source's table. `base_type_oid`: as in the history.

    `names`: its names in events, each with the place from which on it is valid; the first is valid from the beginning.
    A name is None while the column did not exist. `key_index`: its index in the key, in the order of `record_pk`; None:
    not in the key.
    """

    name: str
    names: tuple[tuple[HistoryPlace, str | None], ...]
    base_type_oid: int
    key_index: int | None

    @property
    def document(self) -> bool:
        """True if the column's type is json or jsonb: in an event's record, its value is JSON and no string."""
        return self.base_type_oid in (JSON, JSONB)


@dataclass(frozen=True)
class TableHistory:
    """The version that a follower's table has reached, and what comes after it.

    - `columns`, `full`: of the reached version.
    - `changes_at`: the place of the next version that differs; the follower's table must be altered before an event
      from there is applied. None: no version follows yet.
    - `known`: False if the history lacks the version that was copied.
    - `begun`: False if the log has no event of the table up to there, so the history lacks the version.
    - `partitions`: names that partitions had, by oid.
    - `later`: places of versions after the position and the reached version, with the oid of the table or partition.
    - `later_name`: the name in the first version after a copy, unless that version differs in more than its name.
    """

    oid: int
    columns: tuple[NamedColumn, ...]
    full: bool
    changes_at: HistoryPlace | None
    known: bool
    begun: bool
    partitions: dict[int, tuple[str, str]]
    later: tuple[tuple[HistoryPlace, int], ...]
    later_name: tuple[HistoryPlace, tuple[str, str]] | None


CopiedColumns = list[list[Any]]
"""Name, type, modifier and number of each column that was copied, and True if it was in the key.

A copy by an older server has only the first three.
"""
COLUMN_PARTS = 5
"""The number of parts of each of these columns."""


@dataclass(frozen=True)
class ReachedVersion:
    """The version that a follower's table has reached: the one at this place, or at the position if that is later.

    `copied_columns`: what its copy at this place contains. They tell the version, which the history has only from the
    first event on; that may come after the copy. `is_gone`: the source had dropped the table by then, so the copy has
    no columns.
    """

    place: HistoryPlace | None = None
    copied_columns: CopiedColumns | None = None
    is_gone: bool = False

    def find_place(self, versions: Sequence[TableVersion]) -> tuple[HistoryPlace | None, bool]:
        """Return the place of the reached version, and True if it is among these versions."""
        if self.place is None or self.copied_columns is None:
            return self.place, not self.is_gone
        known = False
        for version in versions:
            same = _has_columns(version, self.copied_columns)
            if version.place <= self.place:
                known = same
            elif same and not known:
                return version.place, True
        return self.place, known

    def version_after_copy(self, versions: Sequence[TableVersion]) -> TableVersion | None:
        """Return the version with the copied columns, if its first event came after the copy.

        Its name may be newer than the name that was copied.
        """
        place, known = self.find_place(versions)
        return next((each for each in versions if known and each.place == place != self.place), None)

    def version_at_copy(self, versions: Sequence[TableVersion]) -> TableVersion | None:
        """Return the version with the copied columns, if it was valid when the table was copied."""
        place, known = self.find_place(versions)
        if self.place is None or self.copied_columns is None or not known or place != self.place:
            return None
        return next((each for each in reversed(versions) if each.place <= self.place), None)


AS_OF_POSITION = ReachedVersion()


def _has_columns(version: TableVersion, copied: CopiedColumns) -> bool:
    """Return True if the version has the copied columns and key, comparing numbers if both have them.

    Partitions have other numbers, and perhaps another key.
    """
    parts = 3
    if version.relation_oid == version.table_oid and all(len(each) == COLUMN_PARTS for each in copied):
        if {each[0] for each in copied if each[-1]} != set(version.key_columns):
            return False
        parts = 4 if version.numbered else 3
    kept = ("name", "type_oid", "type_modifier", "attnum")[:parts]
    return sorted([each[part] for part in kept] for each in version.columns) == sorted(each[:parts] for each in copied)


def history_number(log: Connection, source: uuid.UUID) -> int:
    """Return a number that grows with the history: while it is unchanged, the history has no new version."""
    return int(queries.value(log, statement(_FOLDER, "history_number"), {"source": source}))


def history_number_sql(source: uuid.UUID) -> sql.Composable:
    """Return the same number as an SQL expression."""
    return sql.SQL(statement(_FOLDER, "history_number").replace("%(source)s", "{source}")).format(source=source)


def read_histories(
    log: Connection, reached: Mapping[int, ReachedVersion], position: FollowerPosition
) -> dict[int, TableHistory]:
    """Return the histories of tables that have had an event. `reached`: their versions at the follower, by oid."""
    found = all_versions(log, position.source, reached)
    return {oid: _history(oid, versions, position, reached[oid]) for oid, versions in found.items()}


def next_change(
    log: Connection, position: FollowerPosition, oid: int, reached: ReachedVersion
) -> tuple[TableVersion, TableVersion] | None:
    """Return the reached version of a table, and the next one that differs; None if none follows."""
    versions = all_versions(log, position.source, [oid]).get(oid)
    if not versions:
        return None
    at = _reached_index(versions, position, reached.find_place(versions)[0])
    return next(((versions[at], each) for each in versions[at + 1 :] if not each.is_like(versions[at])), None)


def is_in_history(log: Connection, position: FollowerPosition, oid: int, reached: ReachedVersion) -> bool:
    """Return True if the history has the reached version of a table."""
    versions = all_versions(log, position.source, [oid]).get(oid, [])
    place, known = reached.find_place(versions)
    return known and _is_begun(versions, position, place)


def version_at(log: Connection, source: uuid.UUID, table: NamedTable, place: HistoryPlace) -> TableVersion | None:
    """Return the version of a table at a place.

    If the log did not have the table by then, return the version of the table that had its name, or None.
    """
    versions = all_versions(log, source, [table.table_oid]).get(table.table_oid, [])
    if past := [version for version in versions if version.place <= place]:
        return past[-1]
    values = {"source": source, "schema": table.table_schema, "name": table.table_name, **vars(place)}
    return queries.one(log, TableVersion, statement(_FOLDER, "version_by_name"), values)


def all_versions(log: Connection, source: uuid.UUID, oids: Iterable[int]) -> dict[int, list[TableVersion]]:
    """Return the versions by the table's oid, in the order of their places; a table without an event has none.

    If one place has several versions, only the last has events: a message followed what a check of the catalog found.
    """
    found: dict[int, dict[tuple[int, HistoryPlace], TableVersion]] = {}
    values = {"source": source, "oids": list(oids)}
    for version in queries.rows(log, TableVersion, statement(_FOLDER, "table_versions"), values):
        known, key = found.setdefault(version.table_oid, {}), (version.relation_oid, version.place)
        known.pop(key, None)
        known[key] = version
    return {oid: list(known.values()) for oid, known in found.items()}


def _reached_index(
    versions: Sequence[TableVersion], position: FollowerPosition, place: HistoryPlace | None = None
) -> int:
    """Return the index of the version at this place, or else at the position; 0 if all versions are later.

    A position may be past the place of a version that has no event yet: a check of the catalog found the version, or a
    range of rows reaches the log after later commits.
    """
    reached = place or _reached_place(position, None)
    return max(0, sum(version.place <= reached for version in versions) - 1)


def _is_begun(versions: Sequence[TableVersion], position: FollowerPosition, place: HistoryPlace | None) -> bool:
    """Return True if the first version is reached; no event tells the version before that."""
    return bool(versions) and versions[0].place <= _reached_place(position, place)


def _reached_place(position: FollowerPosition, place: HistoryPlace | None) -> HistoryPlace:
    return max(HistoryPlace(position.source_epoch, position.commit_lsn or 0, LAST), place or BEGINNING)


def _history(
    oid: int, versions: Sequence[TableVersion], position: FollowerPosition, reached: ReachedVersion
) -> TableHistory:
    place, known = reached.find_place(versions)
    named = reached.version_after_copy(versions) or reached.version_at_copy(versions)
    first, at = _reached_index(versions, position), _reached_index(versions, position, place)
    upto = _reached_place(position, reached.place)
    now = versions[at]
    changed = next((version.place for version in versions[at + 1 :] if not version.is_like(now)), None)
    return TableHistory(
        oid,
        tuple(_column(now, column, versions[first:at]) for column in now.columns),
        now.replica_identity == FULL,
        changed,
        known,
        _is_begun(versions, position, place),
        {
            each.relation_oid: (each.relation_schema, each.relation_name)
            for each in versions
            if each.relation_oid != oid
        },
        tuple((each.place, each.relation_oid) for each in versions if each.place > upto),
        None if named is None else (max(named.place, place or BEGINNING), (named.table_schema, named.table_name)),
    )


def _column(now: TableVersion, column: dict[str, Any], earlier: Sequence[TableVersion]) -> NamedColumn:
    """Combine the names of a column. `earlier`: versions of events that must be applied, before the reached one."""
    names: list[tuple[HistoryPlace, str | None]] = []
    for version in earlier:
        known_by = "attnum" if version.is_numbered_like(now) else "name"
        called = next((each["name"] for each in version.columns if each[known_by] == column[known_by]), None)
        if not names or called != names[-1][1]:
            names.append((version.place, called))
    if not names or names[-1][1] != column["name"]:
        names.append((now.place, column["name"]))
    key_index = now.key_columns.index(column["name"]) if column["name"] in now.key_columns else None
    return NamedColumn(column["name"], tuple(names), column["base_type_oid"], key_index)
