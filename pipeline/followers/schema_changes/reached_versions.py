"""What a follower's tables are called, and which form of the source's they have: `pipeline_follower.forms`.

A row is written in the transaction that changes the table, so the two cannot part.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pipeline.followers.applying import table_versions
from pipeline.followers.applying.position import Position
from pipeline.followers.applying.table_versions import Place
from pipeline.followers.registry import TableName
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_ROOM = "followers.schema_changes"


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
    def place(self) -> Place:
        """Where the form begins; the first place where it is that of the beginning."""
        return Place(self.source_epoch, self.lsn, self.idx)


def find(follower: Connection, of: Position) -> dict[int, StoredForm]:
    """Those of tables that were changed, by oid; all others are as they were registered."""
    found = queries.rows(follower, StoredForm, statement(_ROOM, "find_forms"), vars(of))
    return {each.table_oid: each for each in found}


def begin(log: Connection, follower: Connection, of: Position, tables: Iterable[TableName]) -> None:
    """Tables have the form that is the newest by now."""
    listed = list(tables)
    newest = table_versions.newest_places(log, of.source, [table.table_oid for table in listed])
    for table in listed:
        if table.table_oid in newest:
            store(follower, of, table.table_oid, (table.table_schema, table.table_name), newest[table.table_oid])


def store(follower: Connection, of: Position, oid: int, name: tuple[str, str], place: Place) -> None:
    """A table has this name, and the form from this place on; a place before the stored one is not taken."""
    values = {"oid": oid, "schema": name[0], "name": name[1], "epoch": place.epoch, "lsn": place.lsn, "idx": place.idx}
    follower.execute(statement(_ROOM, "store_form"), {**vars(of), **values})


def forget(follower: Connection, of: Position, oids: Iterable[int]) -> None:
    """Of tables that are followed no longer."""
    follower.execute(statement(_ROOM, "forget_forms"), {**vars(of), "oids": list(oids)})
