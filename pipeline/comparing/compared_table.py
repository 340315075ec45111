"""Describe a table for a comparison: its columns, its relations at the source, and which of its events count."""

from __future__ import annotations

from dataclasses import dataclass, replace

from psycopg import sql

from pipeline.capture.schema_history import continuity, introspection, versions
from pipeline.capture.schema_history.versions import HistoryVersion, PublishedColumn
from pipeline.capture.source import captured_now, publication_ledger, published_relations
from pipeline.capture.source.published_relations import PublishedRelation
from pipeline.capture.source.sources import ReplicationSource
from pipeline.comparing import row_text
from pipeline.comparing.partition_bounds import Part
from pipeline.errors import NotComparableError
from pipeline.postgres import key_comparison, queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.key_comparison import KeyComparison


@dataclass(frozen=True)
class ComparableTable:
    """A table that can be compared with the log.

    `columns`: the published ones, with the names under which the log has their values; `key`: some of them.
    `void_upto`: events up to this epoch and LSN do not count, since they identify the rows by another key. `key_names`:
    the names that the key's columns had, each with the commit_lsn and commit_idx from which on they had them. `within`:
    only rows of these partitions are compared; None: all rows.
    """

    oid: int
    name: str
    epoch: int
    columns: tuple[PublishedColumn, ...]
    key: tuple[PublishedColumn, ...]
    relations: tuple[PublishedRelation, ...]
    void_upto: tuple[int, int] | None = None
    key_names: tuple[tuple[int, int, tuple[str, ...]], ...] = ()
    within: tuple[Part, ...] | None = None

    @property
    def counts(self) -> sql.Composable:
        """SQL that is true if the event `e` identifies its row by the current key."""
        if self.void_upto is None:
            return sql.SQL("true")
        return sql.SQL("not coalesce((e.source_epoch, e.commit_lsn) <= ({}, {}::bigint), false)").format(
            *self.void_upto
        )

    @property
    def rows(self) -> sql.Composable:
        """The query for the published rows."""
        columns = sql.SQL(", ").join(sql.SQL("t.{}").format(sql.Identifier(each.name)) for each in self.columns)
        return sql.SQL("\nunion all\n").join(
            sql.SQL("select {} from only {} as t{}").format(
                columns,
                queries.trusted(relation.name),
                sql.SQL("")
                if relation.condition is None
                else sql.SQL(" where ({})").format(queries.trusted(relation.condition)),
            )
            for relation in self.relations
        )


def read(source: Connection, pipeline: Connection, stored: ReplicationSource, oid: int) -> ComparableTable:
    """The table as it is at the source now.

    Raises NotComparableError if its rows have no key, or if it does not exist.
    """
    publications = list(publication_ledger.known_publications(stored))
    relations = tuple(published_relations.read(source, oid, publications))
    columns = next((relation.columns for relation in relations if relation.columns), None)
    made = list(stored.publications.values())
    found = introspection.describe_current(source, oid, stored.slot, publications, made, columns or [], joined=True)
    if found is None or not relations:
        raise NotComparableError("the table no longer exists, or is not published")
    version = found.version
    if not version.key_columns or version.unique_in_root is False:
        raise NotComparableError("the table has no key that identifies its rows")
    last = _last(pipeline, stored, oid)
    named = tuple(replace(column, names=_names(column, last, oid)) for column in version.columns)
    by_name = {column.name: column for column in named}
    oids = [oid, *(relation.oid for relation in relations)]
    called = versions.key_names(pipeline, stored.id, stored.epoch, oids)
    return ComparableTable(
        oid,
        f"{version.table_schema}.{version.table_name}",
        stored.epoch,
        named,
        tuple(by_name[name] for name in version.key_columns),
        relations,
        captured_now.read_void_place(pipeline, stored, oid),
        tuple((lsn, idx, tuple(names)) for lsn, idx, names in called if len(names) == len(version.key_columns)),
    )


def comparison(source: Connection, table: ComparableTable) -> KeyComparison:
    """How the table's keys are compared at the source. Raises NotComparableError if that may run code of an owner."""
    return key_comparison.read_comparison(source, table.relations[0].oid, [column.name for column in table.key])


def _last(pipeline: Connection, stored: ReplicationSource, oid: int) -> HistoryVersion | None:
    """Return the last version of the table, or of one of its partitions, that the stream had."""
    found = [
        known for known in versions.latest(pipeline, stored.id, stored.epoch).values() if known.version.table_oid == oid
    ]
    return max(found, key=lambda known: known.id).version if found else None


def _names(column: PublishedColumn, last: HistoryVersion | None, oid: int) -> tuple[versions.ColumnName, ...]:
    """Return the names under which the log has the column's values.

    A column is found by its number (attnum). If the last version is a partition's, which may have other numbers, it is
    found by its name.
    No name is returned for a column that the log never had with its type, or that it cannot tell from a dropped one.
    """
    if last is None:
        return ()
    never = versions.ColumnName(column.name, row_text.NEVER, 0)
    numbered = last.relation_oid == oid and column.attnum is not None
    for before in last.columns:
        if before.attnum == column.attnum if numbered else before.name == column.name:
            return before.names if continuity.prints_alike(before, column) else (*before.names, never)
    return (never,) if numbered else ()
