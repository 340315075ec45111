"""What a source's table was called and had as columns, as the relation history tells it, from a position on."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from pipeline.followers.applying.position import Position
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.wal.encoding import JSON, JSONB

FULL = "f"
"""The replica identity by which all values of an old row are in the log."""
_ROOM = "followers.applying"


@dataclass(frozen=True, order=True)
class Place:
    """A place in the history of one source."""

    epoch: int
    lsn: int
    idx: int


_FIRST, _LAST = Place(0, 0, 0), 2**31 - 1


@dataclass(frozen=True)
class TableVersion:
    """A table, or a partition of it, from a place on; `columns` and `key_columns` as `pipeline.relations` has them."""

    id: int
    epoch: int
    from_lsn: int
    from_idx: int
    relation_oid: int
    relation_schema: str
    relation_name: str
    table_oid: int
    replica_identity: str
    columns: list[dict[str, Any]]
    key_columns: list[str]

    @property
    def place(self) -> Place:
        """From where on it holds."""
        return Place(self.epoch, self.from_lsn, self.from_idx)

    @property
    def numbered(self) -> bool:
        """Whether columns can be known by their numbers, so that a rename is one."""
        return self.relation_oid == self.table_oid and all(column["attnum"] is not None for column in self.columns)

    def has_form_of(self, other: TableVersion) -> bool:
        """Whether a table of one of them can take the rows of the other: only names of columns may differ."""
        numbered = self.numbered and other.numbered and self.relation_oid == other.relation_oid
        return self._form(numbered=numbered) == other._form(numbered=numbered)

    def _form(self, *, numbered: bool) -> object:
        known_by = "attnum" if numbered else "name"
        columns = {(column[known_by], column["type_oid"], column["type_modifier"]) for column in self.columns}
        key = {column[known_by] for column in self.columns if column["name"] in self.key_columns}
        return columns, key, not key and self.replica_identity == FULL


@dataclass(frozen=True)
class NamedColumn:
    """A column of the source. `names`: what events call it, each with the place from which on; the first always did.

    `name`: the first of these. `document`: json or jsonb, or a domain over them. `base_type_oid`: as in the history.
    """

    names: tuple[tuple[Place, str], ...]
    base_type_oid: int
    key: bool

    @property
    def name(self) -> str:
        """What it was called at the position."""
        return self.names[0][1]

    @property
    def document(self) -> bool:
        """Whether a value is embedded in the record."""
        return self.base_type_oid in (JSON, JSONB)


@dataclass(frozen=True)
class History:
    """A table at a position, and how its columns are called later.

    `changes_at`: from where on it has another form, which its follower has to be given first; None: it has not yet.
    `partitions`: names that partitions had, by oid.
    """

    oid: int
    columns: tuple[NamedColumn, ...]
    full: bool
    changes_at: Place | None
    partitions: dict[int, tuple[str, str]]


def newest(log: Connection, source: uuid.UUID) -> int:
    """The id of the newest version: while it is the same, nothing that was read here is outdated."""
    return int(queries.value(log, statement(_ROOM, "newest_version"), {"source": source}))


def newest_of(source: uuid.UUID) -> sql.Composable:
    """The same as an expression."""
    return sql.SQL(statement(_ROOM, "newest_version").replace("%(source)s", "{source}")).format(source=source)


def read(log: Connection, formed: Mapping[int, Place | None], position: Position) -> dict[int, History]:
    """Tables by oid, as they are at the position, or have been formed to be; one without any event yet is not there."""
    values = {"source": position.source, "oids": list(formed)}
    found: dict[int, list[TableVersion]] = {}
    for version in queries.rows(log, TableVersion, statement(_ROOM, "table_versions"), values):
        found.setdefault(version.table_oid, []).append(version)
    return {oid: _history(oid, versions, position, formed[oid]) for oid, versions in found.items()}


def places_of_forms(
    log: Connection, source: uuid.UUID, forms: Mapping[int, tuple[Place, list[list[int]] | None]]
) -> dict[int, Place]:
    """From where on a table has the form that it had at this place, by oid.

    The history has a form only from its first change on, which may come later: then from there.
    """
    values = {"source": source, "oids": list(forms)}
    found = {oid: place for oid, (place, _) in forms.items()}
    has_form = dict[int, bool]()
    for version in queries.rows(log, TableVersion, statement(_ROOM, "table_versions"), values):
        place, form = forms[version.table_oid]
        if form is None or not version.numbered:
            continue
        same = form == sorted([each["attnum"], each["type_oid"], each["type_modifier"]] for each in version.columns)
        if version.place <= place:
            has_form[version.table_oid] = same
        elif same and not has_form.get(version.table_oid):
            has_form[version.table_oid] = True
            found[version.table_oid] = version.place
    return found


def _history(oid: int, versions: Sequence[TableVersion], position: Position, formed: Place | None) -> History:
    reached = max(Place(position.source_epoch, position.commit_lsn or 0, _LAST), formed or _FIRST)
    before = [version for version in versions if version.place <= reached]
    now = before[-1] if before else versions[0]
    later = versions[versions.index(now) + 1 :]
    changed = next((version.place for version in later if not version.has_form_of(now)), None)
    same = [version for version in later if changed is None or version.place < changed]
    return History(
        oid,
        tuple(_column(now, column, same) for column in now.columns),
        now.replica_identity == FULL,
        changed,
        {
            each.relation_oid: (each.relation_schema, each.relation_name)
            for each in versions
            if each.relation_oid != oid
        },
    )


def _column(now: TableVersion, column: dict[str, Any], later: Sequence[TableVersion]) -> NamedColumn:
    names = [(now.place, column["name"])]
    for version in later:
        if not (version.numbered and now.numbered):
            continue
        called = next(each["name"] for each in version.columns if each["attnum"] == column["attnum"])
        if called != names[-1][1]:
            names.append((version.place, called))
    return NamedColumn(tuple(names), column["base_type_oid"], column["name"] in now.key_columns)
