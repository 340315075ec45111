"""Describe a relation in the snapshot in which it is read, and how its rows are encoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

from pipeline import printable
from pipeline.capture.schema_history import introspection
from pipeline.capture.schema_history.introspection import TableDescription
from pipeline.capture.schema_history.staged_relation import StagedRelation
from pipeline.capture.schema_history.versions import HistoryVersion
from pipeline.capture.source import publication_ledger, published_relations, sources
from pipeline.capture.source.published_relations import PublishedRelation
from pipeline.capture.source.sources import ReplicationSource
from pipeline.errors import PipelineError
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.snapshots import to_read

_RELATION_NAME = """\
select quote_ident(n.nspname) || '.' || quote_ident(c.relname)
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace where c.oid = %(oid)s
"""
"""The name of a relation now, quoted; no row if the relation was dropped."""


class TableUnreadableError(PipelineError):
    """The table cannot be read, for a reason that does not go away by itself."""


class PlannedTableChangedError(PipelineError):
    """The table is no longer what was planned: it is in another file, has another root, or was dropped."""


@dataclass(frozen=True)
class LockedRelation:
    """A locked relation in the snapshot in which it is read. `shape` changes if its description changes."""

    snapshot: str
    file: int
    table_oid: int
    same_name: bool
    readable: bool
    shape: str


@dataclass(frozen=True)
class RelationShape:
    """How rows of a relation are read and written, as long as `shape` of its LockedRelation stays the same.

    `published`: the condition for published rows; None: all rows are published.
    """

    shape: str
    description: TableDescription
    published: sql.Composable | None
    relation: StagedRelation

    @property
    def version(self) -> HistoryVersion:
        """The table's version."""
        return self.description.version

    @property
    def by_key(self) -> bool:
        """True if a row's key identifies the row in the log."""
        return has_key(self.version)


def has_key(version: HistoryVersion) -> bool:
    """True if the version has a key that is unique in the whole table."""
    return bool(version.key_columns) and version.unique_in_root is not False


def without_key(name: str, backfill: int) -> str:
    """Return the message for a table that lost the key by which it is read, with the remedy."""
    return (
        f"{name} has lost its key: add one, or end this with `pipeline backfill cancel {backfill}`, and read the "
        "table in one transaction with `pipeline backfill start`"
    )


def _unreadable(user: str, name: str, columns: Sequence[str]) -> TableUnreadableError:
    grant = printable.sql(f"grant select{to_read.listed(columns)} on {name} to {printable.identifier(user)}")
    what = f"{', '.join(columns)} of {name}" if columns else name
    return TableUnreadableError(f'user "{user}" may not read {what}; run: {grant}, then start it again')


class RelationInspector:
    """Reads relations over the reading connection to the source, and keeps each shape until the catalog changes."""

    def __init__(self, source: Connection, pipeline: Connection, stored: ReplicationSource) -> None:
        self._source, self._pipeline, self._stored = source, pipeline, stored
        self._known: dict[int, RelationShape] = {}

    @property
    def _publications(self) -> list[str]:
        return list(publication_ledger.known_publications(self._stored))

    def name(self, oid: int) -> str:
        """Return the relation's name, quoted. Raises PlannedTableChangedError when it is gone."""
        name: str | None = queries.value(self._source, _RELATION_NAME, {"oid": oid})
        if name is None:
            raise PlannedTableChangedError("the table was dropped")
        return name

    def leaves(self, table_oid: int) -> list[tuple[int, str]]:
        """Return oid and name of each relation that holds rows of the table: the table itself, or its partitions."""
        return self._source.execute(statement("snapshots", "leaves"), {"oid": table_oid}).fetchall()

    def facts(self, oid: int, table_oid: int, name: str, file: int | None = None) -> LockedRelation:
        """Read the state of a locked relation.

        Raises PlannedTableChangedError if it is not what was planned, or TableUnreadableError.
        """
        values = {"oid": oid, "name": name, "publications": self._publications}
        facts = queries.one(self._source, LockedRelation, statement("snapshots", "range_facts"), values)
        if facts is None or not facts.same_name:
            raise PlannedTableChangedError("the table was renamed or dropped")
        if facts.table_oid != table_oid:
            raise PlannedTableChangedError(f"{name} was attached to another table, or detached")
        if file is not None and facts.file != file:
            raise PlannedTableChangedError(f"{name} was rewritten")
        if not facts.readable:
            user = self._source.info.user
            columns = to_read.unreadable_columns(self._source, [oid], self._publications, user).get(oid) or ()
            raise _unreadable(user, name, columns)
        return facts

    def refused(self, oid: int, table_oid: int) -> str | None:
        """Return the reason why the user may not read the relation, and the remedy; None if the user may."""
        found = to_read.relations(self._source, [table_oid], self._publications, sized=False)
        return next(
            (f"{each.refused}; then start it again" for each in found if each.oid == oid and each.refused), None
        )

    def shape(self, oid: int, facts: LockedRelation) -> RelationShape:
        """Return how rows of the relation are read. Raises PlannedTableChangedError or TableUnreadableError."""
        known = self._known.get(oid)
        if known is None or known.shape != facts.shape:
            known = self._known[oid] = self._describe(oid, facts)
        return known

    def _describe(self, oid: int, facts: LockedRelation) -> RelationShape:
        found = self._published(oid)
        if found is None:  # a newer publication may have it
            self._stored = sources.find(self._pipeline, self._stored.id) or self._stored
            found = self._published(oid)
        if found is None:
            raise TableUnreadableError("the table is no longer published")
        user = self._source.info.user
        columns = to_read.unreadable_columns(self._source, [oid], self._publications, user).get(oid, ())
        if columns:
            raise _unreadable(user, found.name, columns)
        described = introspection.describe_current(
            self._source,
            oid,
            self._stored.slot,
            self._publications,
            list(self._stored.publications.values()),
            found.columns or [],
            joined=True,
        )
        if described is None:
            raise PlannedTableChangedError("the table was dropped")
        published = None if found.condition is None else queries.trusted(found.condition)
        return RelationShape(facts.shape, described, published, StagedRelation(0, described.version))

    def _published(self, oid: int) -> PublishedRelation | None:
        return next(iter(published_relations.read(self._source, oid, self._publications)), None)
