"""What a follower's tables are called, and which form of the source's they have: `pipeline_follower.forms`.

A row is written in the transaction that changes the table, so the two cannot part.
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
"""The tables of a follower that schema changes have reached."""
_FORGET_FORMS = """\
delete from pipeline_follower.forms
where source_database_id = %(source)s and follower = %(follower)s and table_oid = any(%(oids)s)
"""
"""Tables that are followed no longer."""


@dataclass(frozen=True)
class StoredForm:
    """Of a table, by its oid at the source. `source_epoch`, `lsn`, `idx`: from where on the source's has that form."""

    table_oid: int
    table_schema: str
    table_name: str
    source_epoch: int
    lsn: int
    idx: int

    @property
    def place(self) -> HistoryPlace:
        """Where the form begins; the first place where it is that of the beginning."""
        return HistoryPlace(self.source_epoch, self.lsn, self.idx)


def find(follower: Connection, here: FollowerPosition) -> dict[int, StoredForm]:
    """Those of tables that were changed, by oid; all others are as they were registered."""
    found = queries.rows(follower, StoredForm, _FIND_FORMS, vars(here))
    return {each.table_oid: each for each in found}


def begin(log: Connection, follower: Connection, here: FollowerPosition, tables: Iterable[NamedTable]) -> None:
    """Tables have the newest form that fits them: what came since the follower was added they do not have yet.

    Of one that had no event before that, none may fit.
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
    """Tables have the form that the source's have at the position."""
    place = HistoryPlace(here.source_epoch, here.commit_lsn or 0, table_versions.LAST)
    for table in tables:
        store(follower, here, table.table_oid, (table.table_schema, table.table_name), place)


def _fits(version: TableFormVersion, columns: Mapping[str, str]) -> bool:
    return all(column["name"] in columns for column in version.columns)


def _types(follower: Connection, version: TableFormVersion) -> dict[str, str | None]:
    """What the follower calls the types of its columns."""
    values = {
        "names": [column["type_name"] for column in version.columns],
        "modifiers": [column["type_modifier"] for column in version.columns],
    }
    found = follower.execute(statement(_ROOM, "type_names"), values).fetchall()
    return {column["name"]: name for column, (name,) in zip(version.columns, found, strict=True)}


def store(follower: Connection, here: FollowerPosition, oid: int, name: tuple[str, str], place: HistoryPlace) -> None:
    """A table has this name, and the form from this place on; a place before the stored one is not taken."""
    values = {"oid": oid, "schema": name[0], "name": name[1], "epoch": place.epoch, "lsn": place.lsn, "idx": place.idx}
    follower.execute(statement(_ROOM, "store_form"), {**vars(here), **values})


def forget(follower: Connection, here: FollowerPosition, oids: Iterable[int]) -> None:
    """Of tables that are followed no longer."""
    follower.execute(_FORGET_FORMS, {**vars(here), "oids": list(oids)})
