"""Reads from the relation history the names and columns that a source's table has had since a position."""

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
class TableFormVersion:
    """A table or partition from a place on, as a row of `pipeline.relations`."""

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
        """The place from which on the version holds."""
        return HistoryPlace(self.epoch, self.from_lsn, self.from_idx)

    @property
    def numbered(self) -> bool:
        """True if columns are known by their numbers, so that a renamed column is recognized."""
        return self.relation_oid == self.table_oid and all(column["attnum"] is not None for column in self.columns)

    def is_like(self, other: TableFormVersion) -> bool:
        """Return True if both have the same table name, columns, key and kind of old rows."""
        numbered = self.is_numbered_like(other)
        return self._form(numbered=numbered) == other._form(numbered=numbered)

    def is_numbered_like(self, other: TableFormVersion) -> bool:
        """Return True if the numbers of their columns tell which columns are the same."""
        return self.numbered and other.numbered and self.relation_oid == other.relation_oid

    def _form(self, *, numbered: bool) -> object:
        columns = {
            (column["attnum"] if numbered else None, column["name"], column["type_oid"], column["type_modifier"])
            for column in self.columns
        }
        key = {column["name"] for column in self.columns if column["name"] in self.key_columns}
        return (self.table_schema, self.table_name), columns, key, self.replica_identity == FULL


@dataclass(frozen=True)
class NamedColumn:
    """A column of the source in the form of its table. `base_type_oid`: as in the history.

    `names`: its names in events, each with the place from which on it holds; the first holds from the beginning. None:
    the column did not exist yet. `key_place`: its index in the key, in the order of `record_pk`; None: not in the key.
    """

    name: str
    names: tuple[tuple[HistoryPlace, str | None], ...]
    base_type_oid: int
    key_place: int | None

    @property
    def document(self) -> bool:
        """True if the column's type is json or jsonb: in an event's record, its value is JSON and no string."""
        return self.base_type_oid in (JSON, JSONB)


@dataclass(frozen=True)
class TableHistory:
    """A table in the form that it has at a position, or in a later form that its follower has already.

    - `changes_at`: the place of the next form, which the follower's table must get first; None: there is none yet.
    - `known`: False if the table was copied in a form that the history lacks.
    - `begun`: False if the table has had no event by then, so the history lacks its form.
    - `partitions`: names that partitions had, by oid.
    - `later`: places of versions after the position and the follower's form, with the oid of the table or partition.
    - `named_later`: the name in the first change after a copy, unless that change has another form.
    """

    oid: int
    columns: tuple[NamedColumn, ...]
    full: bool
    changes_at: HistoryPlace | None
    known: bool
    begun: bool
    partitions: dict[int, tuple[str, str]]
    later: tuple[tuple[HistoryPlace, int], ...]
    named_later: tuple[HistoryPlace, tuple[str, str]] | None


CopiedForm = list[list[Any]]
"""Name, type, modifier and number of each column that was copied, and True if it was in the key.

A copy by an older server has only the first three.
"""
COLUMN_PARTS = 5
"""The number of parts of each column of a copied form."""


@dataclass(frozen=True)
class FollowerForm:
    """The form of a follower's table: the form at this place, or at the position if that is later.

    `copied`: the form of its copy at this place. The history has a form only from the first change on, which may come
    after the copy. `is_gone`: the source had dropped the table by then, so the copy has no form.
    """

    place: HistoryPlace | None = None
    copied: CopiedForm | None = None
    is_gone: bool = False

    def within(self, versions: Sequence[TableFormVersion]) -> tuple[HistoryPlace | None, bool]:
        """Return the place in this history, and True if the history has the form that was copied."""
        if self.place is None or self.copied is None:
            return self.place, not self.is_gone
        known = False
        for version in versions:
            same = _is_of(version, self.copied)
            if version.place <= self.place:
                known = same
            elif same and not known:
                return version.place, True
        return self.place, known

    def later(self, versions: Sequence[TableFormVersion]) -> TableFormVersion | None:
        """Return the version with the form of the copy, if that version came after the copy.

        Its name may be newer than the name that was copied.
        """
        place, known = self.within(versions)
        return next((each for each in versions if known and each.place == place != self.place), None)

    def copied_as(self, versions: Sequence[TableFormVersion]) -> TableFormVersion | None:
        """Return the version with the form of the copy when the copy was made, perhaps under another name."""
        place, known = self.within(versions)
        if self.place is None or self.copied is None or not known or place != self.place:
            return None
        return next((each for each in reversed(versions) if each.place <= self.place), None)


AS_OF_POSITION = FollowerForm()


def _is_of(version: TableFormVersion, form: CopiedForm) -> bool:
    """Return True if the version has the same columns and key, comparing numbers if both have them.

    Partitions have other numbers, and perhaps another key.
    """
    parts = 3
    if version.relation_oid == version.table_oid and all(len(each) == COLUMN_PARTS for each in form):
        if {each[0] for each in form if each[-1]} != set(version.key_columns):
            return False
        parts = 4 if version.numbered else 3
    kept = ("name", "type_oid", "type_modifier", "attnum")[:parts]
    return sorted([each[part] for part in kept] for each in version.columns) == sorted(each[:parts] for each in form)


def newest_version(log: Connection, source: uuid.UUID) -> int:
    """Return a number that grows with the history: while it is unchanged, no version that was read is outdated."""
    return int(queries.value(log, statement(_FOLDER, "newest_version"), {"source": source}))


def newest_version_sql(source: uuid.UUID) -> sql.Composable:
    """Return the same number as an SQL expression."""
    return sql.SQL(statement(_FOLDER, "newest_version").replace("%(source)s", "{source}")).format(source=source)


def read_histories(
    log: Connection, formed: Mapping[int, FollowerForm], position: FollowerPosition
) -> dict[int, TableHistory]:
    """Return the histories of tables by oid, at the position or in the follower's form, if they have had an event."""
    found = all_versions(log, position.source, formed)
    return {oid: _history(oid, versions, position, formed[oid]) for oid, versions in found.items()}


def next_change(
    log: Connection, position: FollowerPosition, oid: int, formed: FollowerForm
) -> tuple[TableFormVersion, TableFormVersion] | None:
    """Return a table's version at the position, or in the follower's form, and the next one; None if none follows."""
    versions = all_versions(log, position.source, [oid]).get(oid)
    if not versions:
        return None
    at = _reached(versions, position, formed.within(versions)[0])
    return next(((versions[at], each) for each in versions[at + 1 :] if not each.is_like(versions[at])), None)


def is_known(log: Connection, position: FollowerPosition, oid: int, formed: FollowerForm) -> bool:
    """Return True if the history has the form of the follower's table, or of its copy."""
    versions = all_versions(log, position.source, [oid]).get(oid, [])
    place, known = formed.within(versions)
    return known and _is_begun(versions, position, place)


def version_at(log: Connection, source: uuid.UUID, table: NamedTable, place: HistoryPlace) -> TableFormVersion | None:
    """Return the version of a table at a place.

    If the log did not have the table by then, return the version of the table that had its name, or None.
    """
    versions = all_versions(log, source, [table.table_oid]).get(table.table_oid, [])
    if reached := [version for version in versions if version.place <= place]:
        return reached[-1]
    values = {"source": source, "schema": table.table_schema, "name": table.table_name, **vars(place)}
    return queries.one(log, TableFormVersion, statement(_FOLDER, "version_by_name"), values)


def all_versions(log: Connection, source: uuid.UUID, oids: Iterable[int]) -> dict[int, list[TableFormVersion]]:
    """Return the versions by the table's oid, in the order of their changes; a table without an event has none.

    If one place has several versions, only the last has events: a message followed what a check of the catalog found.
    """
    found: dict[int, dict[tuple[int, HistoryPlace], TableFormVersion]] = {}
    values = {"source": source, "oids": list(oids)}
    for version in queries.rows(log, TableFormVersion, statement(_FOLDER, "table_versions"), values):
        known, key = found.setdefault(version.table_oid, {}), (version.relation_oid, version.place)
        known.pop(key, None)
        known[key] = version
    return {oid: list(known.values()) for oid, known in found.items()}


def _reached(
    versions: Sequence[TableFormVersion], position: FollowerPosition, formed: HistoryPlace | None = None
) -> int:
    """Return the index of the version in the follower's form, or else at the position; 0 if none is reached.

    A position may be past the place of a version that has no event yet: a check of the catalog found the version, or a
    range of rows reaches the log after later commits.
    """
    reached = formed or _upto(position, None)
    return max(0, sum(version.place <= reached for version in versions) - 1)


def _is_begun(versions: Sequence[TableFormVersion], position: FollowerPosition, formed: HistoryPlace | None) -> bool:
    """Return True if the first version is reached; no event tells the form before that."""
    return bool(versions) and versions[0].place <= _upto(position, formed)


def _upto(position: FollowerPosition, formed: HistoryPlace | None) -> HistoryPlace:
    return max(HistoryPlace(position.source_epoch, position.commit_lsn or 0, LAST), formed or BEGINNING)


def _history(
    oid: int, versions: Sequence[TableFormVersion], position: FollowerPosition, formed: FollowerForm
) -> TableHistory:
    place, known = formed.within(versions)
    named = formed.later(versions) or formed.copied_as(versions)
    first, at = _reached(versions, position), _reached(versions, position, place)
    reached = _upto(position, formed.place)
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
        tuple((each.place, each.relation_oid) for each in versions if each.place > reached),
        None if named is None else (max(named.place, place or BEGINNING), (named.table_schema, named.table_name)),
    )


def _column(now: TableFormVersion, column: dict[str, Any], earlier: Sequence[TableFormVersion]) -> NamedColumn:
    """Combine the names of a column. `earlier`: forms of events to apply that the table no longer has."""
    names: list[tuple[HistoryPlace, str | None]] = []
    for version in earlier:
        known_by = "attnum" if version.is_numbered_like(now) else "name"
        called = next((each["name"] for each in version.columns if each[known_by] == column[known_by]), None)
        if not names or called != names[-1][1]:
            names.append((version.place, called))
    if not names or names[-1][1] != column["name"]:
        names.append((now.place, column["name"]))
    key_place = now.key_columns.index(column["name"]) if column["name"] in now.key_columns else None
    return NamedColumn(column["name"], tuple(names), column["base_type_oid"], key_place)
