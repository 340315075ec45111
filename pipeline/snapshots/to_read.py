"""Estimate how much of the tables must be read, and find the rights that the reading role lacks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from pipeline.config.settings import Config
from pipeline.log.staging.ranges import PlannedRange
from pipeline.postgres import queries, reading_session
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.printable import identifier, sql
from pipeline.snapshots import plan
from pipeline.snapshots.plan import RelationSize

_READABLE_PLACES = """\
select c.oid::pg_catalog.int8 from pg_catalog.pg_class c
where c.oid = any (%s::pg_catalog.oid[]) and pg_catalog.has_column_privilege(c.oid, 'ctid', 'select')
"""
"""Relations of which this user may read the column ctid: the places of rows."""


@dataclass(frozen=True)
class RelationToRead(RelationSize):
    """A relation that holds rows of a table, and the rights of the current `user`, whose name is quoted for SQL.

    `identified`: it has a key by which its rows are read in ranges. `by_place`: the user may read the places of rows,
    which such ranges need. `hidden`: a policy would hide rows from the user. `columns`: those that the user may not
    read, if the others of the relation need not be read.
    """

    identified: bool
    user: str
    schema: str
    may_use_schema: bool
    readable: bool
    by_place: bool
    hidden: bool
    columns: tuple[str, ...] = ()

    @property
    def lacking(self) -> str | None:
        """The reason why the user cannot read the relation; None if the user can."""
        if not self.may_use_schema:
            return f"user {self.user} may not use the schema of {self.name}"
        if not self.readable:
            columns = f"{', '.join(self.columns)} of " if self.columns else ""
            return f"user {self.user} may not read {columns}{self.name}"
        return f"row security hides rows of {self.name} from user {self.user}" if self.hidden else None

    @property
    def grants(self) -> tuple[str, ...]:
        """Statements by which an administrator lets the user read it."""
        return (
            *((f"grant usage on schema {self.schema} to {self.user}",) if not self.may_use_schema else ()),
            *((f"grant select{listed(self.columns)} on {self.name} to {self.user}",) if not self.readable else ()),
            *((f"alter role {self.user} with bypassrls",) if self.hidden else ()),
        )

    @property
    def refused(self) -> str | None:
        """The reason why the relation cannot be read, and the remedy; None if it can be read."""
        return f"{self.lacking}; run: {'; '.join(map(sql, self.grants))}" if self.lacking else None


def relations(
    source: Connection, tables: Iterable[int], publications: Sequence[str], *, sized: bool
) -> list[RelationToRead]:
    """Return the relations that hold rows of these tables (oids): the tables themselves, or their leaf partitions.

    `sized`: with sizes, which waits for locks on the relations. `publications`: those that publish the tables, or will.
    """
    values = {"oids": list(tables), "sized": sized}
    found = queries.rows(source, RelationToRead, statement("snapshots", "relations_to_read"), values)
    lacking = {each.oid for each in found if not each.readable}
    columns = unreadable_columns(source, lacking, publications, source.info.user) if lacking else {}
    return [
        each
        if each.oid not in columns
        else replace(each, readable=columns[each.oid] is None, columns=columns[each.oid] or ())
        for each in found
    ]


def unreadable_columns(
    source: Connection, relations: Collection[int], publications: Sequence[str], role: str
) -> dict[int, tuple[str, ...] | None]:
    """Return by relation the columns that the role needs and may not read; None if it may read all that it needs.

    A relation has no columns here, or is missing in the answer, if the role needs the whole relation.
    """
    values = {"oids": list(relations), "publications": list(publications), "role": role}
    rows = source.execute(statement("snapshots", "unreadable_columns"), values).fetchall()
    return {oid: None if columns is None else tuple(columns) if listed else () for oid, columns, listed in rows}


def listed(columns: Sequence[str]) -> str:
    """Return the columns of a grant as SQL; empty for a whole relation."""
    return f" ({', '.join(map(identifier, columns))})" if columns else ""


def ranges(config: Config, source: Connection, extents: Iterable[RelationSize], *, by_key: bool) -> list[PlannedRange]:
    """Plan the ranges of relations: blocks, if rows have a key and the reading role may read ctid; else one each."""
    places = set[int]()
    extents = list(extents)
    if by_key and extents:
        with reading_session.catalog_session(config, source, name="pipeline snapshot") as reading:
            readable = _READABLE_PLACES
            places = {oid for (oid,) in reading.execute(readable, ([each.oid for each in extents],)).fetchall()}
    return [
        planned for extent in extents for planned in (plan.by_blocks if extent.oid in places else plan.whole)(extent)
    ]
