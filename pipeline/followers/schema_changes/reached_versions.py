"""Stores which version each table of a follower has reached, and its name there, in `pipeline_follower.forms`.

A row is written in the transaction that alters the table, so both always agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pipeline.followers.applying import followed_tables, table_versions
from pipeline.followers.applying.position import FollowerPosition
from pipeline.followers.applying.table_versions import HistoryPlace, TableVersion
from pipeline.followers.registry import NamedTable
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_ROOM = "followers.schema_changes"
_FIND_VERSIONS = """\
select f.table_oid, f.table_schema, f.table_name, f.source_epoch, f.lsn, f.idx
from pipeline_follower.forms f
where f.source_database_id = %(source)s and f.follower = %(follower)s
"""
"""List the tables of a follower whose versions are stored."""
_FORGET_VERSIONS = """\
delete from pipeline_follower.forms
where source_database_id = %(source)s and follower = %(follower)s and table_oid = any(%(oids)s)
"""
"""Delete the stored versions of tables that are no longer followed."""


@dataclass(frozen=True)
class StoredVersion:
    """A row of `pipeline_follower.forms`: a table by its oid at the source, its name at the follower, and its version.

    `source_epoch`, `lsn`, `idx`: the place from which on the version is valid.
    """

    table_oid: int
    table_schema: str
    table_name: str
    source_epoch: int
    lsn: int
    idx: int

    @property
    def place(self) -> HistoryPlace:
        """The place from which on the version is valid."""
        return HistoryPlace(self.source_epoch, self.lsn, self.idx)


def find(follower: Connection, here: FollowerPosition) -> dict[int, StoredVersion]:
    """Return the stored versions by the table's oid. A table without one has the version at the follower's position."""
    found = queries.rows(follower, StoredVersion, _FIND_VERSIONS, vars(here))
    return {each.table_oid: each for each in found}


def begin(log: Connection, follower: Connection, here: FollowerPosition, tables: Iterable[NamedTable]) -> None:
    """Store for each table the newest version whose columns the follower's table has, if possible with the same types.

    The table may lack changes made since the follower was added. Nothing is stored for a table that has had no event.
    """
    listed = {table.table_oid: table for table in tables}
    described = followed_tables.describe(
        follower, [(table.table_schema, table.table_name) for table in listed.values()]
    )
    for oid, versions in table_versions.all_versions(log, here.source, listed).items():
        name = listed[oid].table_schema, listed[oid].table_name
        table = described.get(name)
        columns = {column["name"]: column["type_name"] for column in table["columns"]} if table else {}
        fit = [each for each in versions if (each.table_schema, each.table_name) == name and _fits(each, columns)]
        same = [each for each in fit if _types(follower, each).items() <= columns.items()]
        if same or fit:
            store(follower, here, oid, name, (same or fit)[-1].place)


def begin_at_position(follower: Connection, here: FollowerPosition, tables: Iterable[NamedTable]) -> None:
    """Store that these tables have the versions that the source's tables have at this position."""
    place = HistoryPlace(here.source_epoch, here.commit_lsn or 0, table_versions.LAST)
    for table in tables:
        store(follower, here, table.table_oid, (table.table_schema, table.table_name), place)


def _fits(version: TableVersion, columns: Mapping[str, str]) -> bool:
    return all(column["name"] in columns for column in version.columns)


def _types(follower: Connection, version: TableVersion) -> dict[str, str | None]:
    """Return the follower's names of the types of a version's columns."""
    values = {
        "names": [column["type_name"] for column in version.columns],
        "modifiers": [column["type_modifier"] for column in version.columns],
    }
    found = follower.execute(statement(_ROOM, "type_names"), values).fetchall()
    return {column["name"]: name for column, (name,) in zip(version.columns, found, strict=True)}


def store(follower: Connection, here: FollowerPosition, oid: int, name: tuple[str, str], place: HistoryPlace) -> None:
    """Store a table's name, and that it has the version of this place; a later version that is stored stays."""
    values = {"oid": oid, "schema": name[0], "name": name[1], "epoch": place.epoch, "lsn": place.lsn, "idx": place.idx}
    follower.execute(statement(_ROOM, "store_version"), {**vars(here), **values})


def forget(follower: Connection, here: FollowerPosition, oids: Iterable[int]) -> None:
    """Delete the stored versions of tables that are no longer followed."""
    follower.execute(_FORGET_VERSIONS, {**vars(here), "oids": list(oids)})
