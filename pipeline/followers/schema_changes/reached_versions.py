"""Stores the form of each table of a follower, in `pipeline_follower.forms`.

The form is the table's name at the follower, and the version of the source's columns that it has. A row is written in
the transaction that changes the table, so both always agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pipeline.followers.applying import followed_tables, table_versions
from pipeline.followers.applying.position import FollowerPosition
from pipeline.followers.applying.table_versions import HistoryPlace, TableFormVersion
from pipeline.followers.registry import NamedTable
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_ROOM = "followers.schema_changes"
_FIND_FORMS = """\
select f.table_oid, f.table_schema, f.table_name, f.source_epoch, f.lsn, f.idx
from pipeline_follower.forms f
where f.source_database_id = %(source)s and f.follower = %(follower)s
"""
"""List the tables of a follower whose form is stored."""
_FORGET_FORMS = """\
delete from pipeline_follower.forms
where source_database_id = %(source)s and follower = %(follower)s and table_oid = any(%(oids)s)
"""
"""Delete the forms of tables that are no longer followed."""


@dataclass(frozen=True)
class StoredForm:
    """The stored form of a table, by its oid at the source, with the table's name at the follower.

    `source_epoch`, `lsn`, `idx`: the place from which on the source's table has the form.
    """

    table_oid: int
    table_schema: str
    table_name: str
    source_epoch: int
    lsn: int
    idx: int

    @property
    def place(self) -> HistoryPlace:
        """The place in the source's history from which on the source's table has this form."""
        return HistoryPlace(self.source_epoch, self.lsn, self.idx)


def find(follower: Connection, here: FollowerPosition) -> dict[int, StoredForm]:
    """Return the stored forms by the table's oid. Every other table has the form with which it was registered."""
    found = queries.rows(follower, StoredForm, _FIND_FORMS, vars(here))
    return {each.table_oid: each for each in found}


def begin(log: Connection, follower: Connection, here: FollowerPosition, tables: Iterable[NamedTable]) -> None:
    """Store for each table the newest version of the source's columns that the table at the follower fits.

    The table may lack changes made since the follower was added. A table that had no event before fits no version.
    """
    listed = {table.table_oid: table for table in tables}
    described = followed_tables.describe(
        follower, [(table.table_schema, table.table_name) for table in listed.values()]
    )
    for oid, versions in table_versions.all_versions(log, here.source, listed).items():
        name = listed[oid].table_schema, listed[oid].table_name
        there = described.get(name)
        columns = {column["name"]: column["type_name"] for column in there["columns"]} if there else {}
        fit = [each for each in versions if (each.table_schema, each.table_name) == name and _fits(each, columns)]
        same = [each for each in fit if _types(follower, each).items() <= columns.items()]
        if same or fit:
            store(follower, here, oid, name, (same or fit)[-1].place)


def begin_at_position(follower: Connection, here: FollowerPosition, tables: Iterable[NamedTable]) -> None:
    """Store that these tables have the same form as the source's tables at this position."""
    place = HistoryPlace(here.source_epoch, here.commit_lsn or 0, table_versions.LAST)
    for table in tables:
        store(follower, here, table.table_oid, (table.table_schema, table.table_name), place)


def _fits(version: TableFormVersion, columns: Mapping[str, str]) -> bool:
    return all(column["name"] in columns for column in version.columns)


def _types(follower: Connection, version: TableFormVersion) -> dict[str, str | None]:
    """Return the follower's names of the types of a version's columns."""
    values = {
        "names": [column["type_name"] for column in version.columns],
        "modifiers": [column["type_modifier"] for column in version.columns],
    }
    found = follower.execute(statement(_ROOM, "type_names"), values).fetchall()
    return {column["name"]: name for column, (name,) in zip(version.columns, found, strict=True)}


def store(follower: Connection, here: FollowerPosition, oid: int, name: tuple[str, str], place: HistoryPlace) -> None:
    """Store a table's name, and that it has the form which the source's table has from this place on.

    A place before the stored one changes nothing.
    """
    values = {"oid": oid, "schema": name[0], "name": name[1], "epoch": place.epoch, "lsn": place.lsn, "idx": place.idx}
    follower.execute(statement(_ROOM, "store_form"), {**vars(here), **values})


def forget(follower: Connection, here: FollowerPosition, oids: Iterable[int]) -> None:
    """Delete the forms of tables that are no longer followed."""
    follower.execute(_FORGET_FORMS, {**vars(here), "oids": list(oids)})
