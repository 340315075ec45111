"""What a source's table was called and had as columns, as the relation history tells it, from a position on."""

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
_ROOM = "followers.applying"


@dataclass(frozen=True, order=True)
class HistoryPlace:
    """A place in the history of one source."""

    epoch: int
    lsn: int
    idx: int


BEGINNING = HistoryPlace(0, 0, 0)
"""Before any change."""
LAST = 2**31 - 1
"""A place that is after every place of a commit."""


@dataclass(frozen=True)
class TableFormVersion:
    """A table, or a partition of it, from a place on; `columns` and `key_columns` as `pipeline.relations` has them."""

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
        """From where on it holds."""
        return HistoryPlace(self.epoch, self.from_lsn, self.from_idx)

    @property
    def numbered(self) -> bool:
        """Whether columns can be known by their numbers, so that a rename is one."""
        return self.relation_oid == self.table_oid and all(column["attnum"] is not None for column in self.columns)

    def is_like(self, other: TableFormVersion) -> bool:
        """Whether a table of one is one of the other as well: by name, columns, key, and what is told of old rows."""
        numbered = self.is_numbered_like(other)
        return self._form(numbered=numbered) == other._form(numbered=numbered)

    def is_numbered_like(self, other: TableFormVersion) -> bool:
        """Whether the numbers of their columns say which are the same."""
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
    """A column of the source, as the table's form has it. `base_type_oid`: as in the history.

    `names`: what events call it, each with the place from which on, the first from the beginning; None: they had none
    such yet. Where a form holds from the position on, there is but one. `key_place`: where it is in the key, in the
    order of `record_pk`; None: it is not in it.
    """

    name: str
    names: tuple[tuple[HistoryPlace, str | None], ...]
    base_type_oid: int
    key_place: int | None

    @property
    def document(self) -> bool:
        """Whether a value is embedded in the record."""
        return self.base_type_oid in (JSON, JSONB)


@dataclass(frozen=True)
class TableHistory:
    """A table in the form that it has at a position, or that its follower has been given for later.

    `changes_at`: from where on it has another one, which its follower has to be given first; None: it has not yet.
    `known`: False where it was copied in a form that the history does not have. `begun`: False where it has had no
    event by then, so that the history does not have the form that it had.
    `partitions`: names that partitions had, by oid. `later`: places from which on versions hold that come after the
    position and the form that was given, with the oid of the table or of its partition. `named_later`: the name that
    the first change after a copy tells, unless that change has another form.
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
"""Name, type, modifier and number of each column that was copied, and whether it was in the key.

Those of an older server have no numbers, and do not tell the key.
"""
COLUMN_PARTS = 5
"""So many parts has each column of one."""


@dataclass(frozen=True)
class FollowerForm:
    """Which form a follower's table has: that of this place, or of the position where that is later.

    `copied`: the one that it was copied with there. The history has a form only from its first change on, which may
    come later: then it is that one. `is_gone`: the source had dropped the table by then, so the copy gave it no form.
    """

    place: HistoryPlace | None = None
    copied: CopiedForm | None = None
    is_gone: bool = False

    def within(self, versions: Sequence[TableFormVersion]) -> tuple[HistoryPlace | None, bool]:
        """The place in this history, and whether it has the form that was copied."""
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
        """The version by which the history knows the form of a copy, if that came after the copy.

        Its name may be a later one than the name that was copied.
        """
        place, known = self.within(versions)
        return next((each for each in versions if known and each.place == place != self.place), None)

    def copied_as(self, versions: Sequence[TableFormVersion]) -> TableFormVersion | None:
        """The version by which the history knew the form of a copy when that was made, perhaps under another name."""
        place, known = self.within(versions)
        if self.place is None or self.copied is None or not known or place != self.place:
            return None
        return next((each for each in reversed(versions) if each.place <= self.place), None)


AS_OF_POSITION = FollowerForm()


def _is_of(version: TableFormVersion, form: CopiedForm) -> bool:
    """Whether the columns are the same, by their numbers where both have them, and the key.

    Partitions have numbers, and perhaps a key, of their own.
    """
    parts = 3
    if version.relation_oid == version.table_oid and all(len(each) == COLUMN_PARTS for each in form):
        if {each[0] for each in form if each[-1]} != set(version.key_columns):
            return False
        parts = 4 if version.numbered else 3
    kept = ("name", "type_oid", "type_modifier", "attnum")[:parts]
    return sorted([each[part] for part in kept] for each in version.columns) == sorted(each[:parts] for each in form)


def newest_version(log: Connection, source: uuid.UUID) -> int:
    """Grows with the history: while it is the same, nothing that was read here is outdated, and no table is new."""
    return int(queries.value(log, statement(_ROOM, "newest_version"), {"source": source}))


def newest_version_sql(source: uuid.UUID) -> sql.Composable:
    """The same as an expression."""
    return sql.SQL(statement(_ROOM, "newest_version").replace("%(source)s", "{source}")).format(source=source)


def read_histories(
    log: Connection, formed: Mapping[int, FollowerForm], position: FollowerPosition
) -> dict[int, TableHistory]:
    """Tables by oid, as they are at the position, or have been formed to be; one without any event yet is not there."""
    found = all_versions(log, position.source, formed)
    return {oid: _history(oid, versions, position, formed[oid]) for oid, versions in found.items()}


def next_change(
    log: Connection, position: FollowerPosition, oid: int, formed: FollowerForm
) -> tuple[TableFormVersion, TableFormVersion] | None:
    """The form that a table has at the position, or was given, and the one that it has next; None without another."""
    versions = all_versions(log, position.source, [oid]).get(oid)
    if not versions:
        return None
    at = _reached(versions, position, formed.within(versions)[0])
    return next(((versions[at], each) for each in versions[at + 1 :] if not each.is_like(versions[at])), None)


def is_known(log: Connection, position: FollowerPosition, oid: int, formed: FollowerForm) -> bool:
    """Whether the history has the form that a table has, or was copied with."""
    versions = all_versions(log, position.source, [oid]).get(oid, [])
    place, known = formed.within(versions)
    return known and _is_begun(versions, position, place)


def version_at(log: Connection, source: uuid.UUID, table: NamedTable, place: HistoryPlace) -> TableFormVersion | None:
    """The form that a table has at a place.

    Of one that was not in the log by then, that of the table which was called so; None where there was none either.
    """
    versions = all_versions(log, source, [table.table_oid]).get(table.table_oid, [])
    if reached := [version for version in versions if version.place <= place]:
        return reached[-1]
    values = {"source": source, "schema": table.table_schema, "name": table.table_name, **vars(place)}
    return queries.one(log, TableFormVersion, statement(_ROOM, "version_by_name"), values)


def all_versions(log: Connection, source: uuid.UUID, oids: Iterable[int]) -> dict[int, list[TableFormVersion]]:
    """By the table's oid, in the order of the changes that they hold for; one without any event yet is not there.

    Of several versions of one place only the last has events: a message has followed what a look at the catalog found.
    """
    found: dict[int, dict[tuple[int, HistoryPlace], TableFormVersion]] = {}
    values = {"source": source, "oids": list(oids)}
    for version in queries.rows(log, TableFormVersion, statement(_ROOM, "table_versions"), values):
        known, key = found.setdefault(version.table_oid, {}), (version.relation_oid, version.place)
        known.pop(key, None)
        known[key] = version
    return {oid: list(known.values()) for oid, known in found.items()}


def _reached(
    versions: Sequence[TableFormVersion], position: FollowerPosition, formed: HistoryPlace | None = None
) -> int:
    """Which of them the table was formed to have, or else has at the position; the first where it has none yet.

    A position may be past the place of a version of which no event has come yet: what a look at the catalog has found,
    or a range of rows that comes into the log later than what was committed after it.
    """
    reached = formed or _upto(position, None)
    return max(0, sum(version.place <= reached for version in versions) - 1)


def _is_begun(versions: Sequence[TableFormVersion], position: FollowerPosition, formed: HistoryPlace | None) -> bool:
    """Whether the first of them is reached: what the table was before that, no event says."""
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
    """`earlier`: forms of events that are still to be applied, though the table is not in them any more."""
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
