"""Creates, attaches and detaches partitions of a follower's tables as at the source.

A follower's table may have other partitions, or none. If it has a partition for the rows, it does not need a partition
that cannot be created.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql

from pipeline.config.settings import Config
from pipeline.errors import SchemaChangeError
from pipeline.followers import connecting
from pipeline.followers.applying import position, table_versions, truncates
from pipeline.followers.applying.followed_tables import Partition
from pipeline.followers.applying.table_versions import HistoryPlace
from pipeline.followers.copying.taken_names import displaced_name
from pipeline.followers.registry import NamedTable, RegisteredFollower
from pipeline.followers.schema_changes.alterations import TableAlteration, run
from pipeline.followers.schema_changes.table_names import Name
from pipeline.postgres import queries, reading_session, session_settings
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.printable import shortest

logger = logging.getLogger(__name__)
_ROOM = "followers.schema_changes"
_NO_ROOM = (
    psycopg.errors.InvalidObjectDefinition,
    psycopg.errors.InvalidTableDefinition,
    psycopg.errors.CheckViolation,
    psycopg.errors.DatatypeMismatch,
)
"""Errors of the follower if another partition has these rows, or the table is partitioned by another key."""


@dataclass(frozen=True)
class SourcePartition:
    """A partition that is attached at the source. `bound`: its bounds as SQL.

    `partition_key`: the key by which it is partitioned itself, as SQL; None for a partition that holds rows.
    """

    oid: int
    schema: str
    name: str
    parent_schema: str
    parent_name: str
    bound: str
    partition_key: str | None

    @property
    def called(self) -> Name:
        """Schema and name."""
        return self.schema, self.name

    @property
    def parent(self) -> Name:
        """Schema and name of the table that it is a partition of."""
        return self.parent_schema, self.parent_name


def at_source(config: Config, root: int) -> list[SourcePartition]:
    """Return the current partitions of a table, by its oid at the source, parents first. Raises
    DatabaseUnavailableError.
    """
    with connecting.connect_catalog(config) as source:
        return read(source, root)


def read(source: Connection, root: int) -> list[SourcePartition]:
    """Return the current partitions of a table over an open session of the source, parents first."""
    with reading_session.transaction(source, session_settings.SOURCE):  # its search_path decides how names are printed
        return queries.rows(source, SourcePartition, statement(_ROOM, "partitions"), {"root": root})


class FormerPartitions:
    """Partitions that a table of the source has had, by its oid. They are read when they are needed."""

    def __init__(self, log: Connection, registration: RegisteredFollower, root: int) -> None:
        self._log, self._values = log, {"source": registration.source_id, "root": root}

    def oid(self, name: Name, *, left: bool) -> int | None:
        """Return the oid of the partition of this name.

        `left`: only a partition that has left; otherwise also one that the last check of the catalog found.
        """
        found = self._log.execute(statement(_ROOM, "former_partitions"), self._values).fetchall()
        return next((oid for called, oid, has_left in found if called == ".".join(name) and has_left >= left), None)


class TablePartitions:
    """The partitions of one table of a follower. `root`: the table's name. `called`: all tables that are followed.

    `former`: partitions that the source's table has had; their bounds or names may conflict with those of others.
    """

    def __init__(
        self,
        follower: Connection,
        registration: RegisteredFollower,
        root: Name,
        called: Collection[Name],
        former: FormerPartitions | None = None,
    ) -> None:
        self._follower, self._registration, self._root, self._called, self._former = (
            follower,
            registration,
            root,
            called,
            former,
        )

    def lacks(self, theirs: Sequence[SourcePartition]) -> bool:
        """Return True if the follower's table is partitioned and lacks one of these partitions."""
        found = self._follower.execute(statement(_ROOM, "partition_root"), _name_values(self._root)).fetchone()
        if found is None:
            return False
        here = self.names() if theirs else set[Name]()
        return any(each.called not in here for each in theirs)

    def follow(self, theirs: Sequence[SourcePartition], new: Partition | None = None, *, is_kept: bool = False) -> bool:
        """Create or attach a partition, and the partitions above it, in the open transaction.

        `theirs`: the source's partitions. `new`: the partition; None: all that are missing. `is_kept`: a separate table
        of the follower still has the rows of the partition. Returns True if a partition was created or attached.

        Raises SchemaChangeError if the follower refuses a statement, or the settings forbid it; also if the source no
        longer has the partition and the follower has it as a separate table.
        """
        wanted = list(theirs) if new is None else _with_parents(theirs, new.oid)
        if new is not None and not wanted:
            self._require_dispensable(new)
        made = False
        for each in wanted:
            if each.called not in self.names():  # an attached partition brings its own partitions
                if not is_kept:
                    self._set_aside(each.called)
                made = self._create_or_attach(each, theirs) or made
        return made

    def detach(self, name: Name) -> None:
        """Make a partition of the follower a separate table, in the open transaction."""
        parent = self._parent(name)
        if parent is not None:
            query = sql.SQL("alter table {} detach partition {}")
            detached = query.format(sql.Identifier(*parent), sql.Identifier(*name))
            self._run(TableAlteration(f"the source detached {_dotted(name)} from {_dotted(self._root)}", detached))

    def detach_gone(self, name: Name, theirs: Sequence[SourcePartition]) -> None:
        """Detach a partition that the source no longer has, or the topmost parent of it that is gone there as well."""
        there = {self._root, *(each.called for each in theirs)}
        while (parent := self._parent(name)) is not None and parent not in there:
            name = parent
        self.detach(name)

    def _parent(self, name: Name) -> Name | None:
        return self._follower.execute(statement(_ROOM, "parent"), _name_values(name)).fetchone()

    def _create_or_attach(self, each: SourcePartition, theirs: Sequence[SourcePartition]) -> bool:
        if each.parent not in {self._root, *self.names()}:
            return False  # the follower's table has other partitions
        attached = self._is_table(each.called)
        while True:
            try:
                with self._follower.transaction():
                    for alteration in [self._attachment(each)] if attached else self._creation(each):
                        self._run(alteration)
            except SchemaChangeError as error:
                if (gone := self._find_overlapping(error, theirs)) is not None:
                    self.detach_gone(gone, theirs)
                elif attached or not isinstance(error.__cause__, _NO_ROOM):
                    raise
                else:
                    return False
            else:
                return True

    def _set_aside(self, name: Name) -> None:
        """Rename a former partition of this name, because its rows do not belong to the new partition."""
        if self._former is None or name in self._called or not self._is_table(name):
            return
        if (oid := self._former.oid(name, left=True)) is not None:
            query = sql.SQL("alter table {} rename to {}")
            renamed = query.format(sql.Identifier(*name), sql.Identifier(displaced_name(name[1], oid)))
            self._run(TableAlteration(f"the source has another partition {_dotted(name)}", renamed))

    def _find_overlapping(self, error: SchemaChangeError, theirs: Sequence[SourcePartition]) -> Name | None:
        """Return a partition that overlaps a new one, and that the source no longer has. The error names it."""
        if self._former is None or not isinstance(error.__cause__, psycopg.errors.InvalidObjectDefinition):
            return None
        oids, there = {each.oid for each in theirs}, {each.called for each in theirs}
        for name in self.names() - there:
            if re.search(rf"(?<!\w){re.escape(name[1])}(?!\w)", str(error.__cause__)):
                oid = self._former.oid(name, left=False)
                return name if oid is not None and oid not in oids else None
        return None

    def _attachment(self, each: SourcePartition) -> TableAlteration:
        attached = sql.SQL("alter table {} attach partition {} ").format(
            sql.Identifier(*each.parent), sql.Identifier(*each.called)
        )
        what = f"the source attached {_dotted(each.called)} to {_dotted(each.parent)}"
        return TableAlteration(what, attached + _as_sql(each.bound))

    def _creation(self, each: SourcePartition) -> Iterator[TableAlteration]:
        what = f"the source made {_dotted(each.called)}, a partition of {_dotted(each.parent)}"
        there = "select pg_catalog.to_regnamespace(pg_catalog.quote_ident(%s)) is not null"
        if not queries.value(self._follower, there, [each.schema]):
            yield TableAlteration(what, sql.SQL("create schema {}").format(sql.Identifier(each.schema)))
        names = sql.Identifier(*each.called), sql.Identifier(*each.parent)
        made = sql.SQL("create table {} partition of {} ").format(*names) + _as_sql(each.bound)
        yield TableAlteration(
            what, made if each.partition_key is None else made + _as_sql(f" partition by {each.partition_key}")
        )

    def _require_dispensable(self, new: Partition) -> None:
        """Raise SchemaChangeError if the source no longer has a partition that is a separate table of the follower.

        Otherwise the follower can continue without the partition until a row needs one.
        """
        if new.name in self._called:
            attach = f"alter table {shortest(*self._root)} attach partition {shortest(*new.name)} for values …"
            raise SchemaChangeError(
                f"table {_dotted(self._root)} of the follower stops: the source attached {_dotted(new.name)} to it,"
                " and no longer knows for which values",
                f"`{attach}` there",
            )

    def names(self) -> set[Name]:
        """Return the partitions of the follower's table."""
        return names(self._follower, self._root)

    def _is_table(self, name: Name) -> bool:
        return queries.value(self._follower, statement(_ROOM, "find_relation"), _name_values(name)) is not None

    def _run(self, alteration: TableAlteration) -> None:
        if self._registration.ddl == "stop":
            text = alteration.as_text(self._follower)
            message = f"table {_dotted(self._root)} of the follower stops: {alteration.what}, and --ddl is stop"
            raise SchemaChangeError(message, f"`{text}` there")
        run(self._follower, self._registration.name, self._root, [alteration])


def names(follower: Connection, root: Name) -> set[Name]:
    """Return the partitions of a follower's table, at any level."""
    table = sql.Identifier(*root).as_string(follower)
    return set(follower.execute(statement("followers.applying", "name_partitions"), {"table": table}).fetchall())


def detach_before_copy(
    log: Connection, follower: Connection, registration: RegisteredFollower, table: NamedTable, called: Collection[Name]
) -> bool:
    """Detach a table before its copy if it is a partition at the follower, and no longer one at the source.

    Returns False if another session uses the table, or until the follower has applied the table's first event as a
    separate table: before that, events of the partition may follow. `called`: all tables that are followed.
    """
    name = table.table_schema, table.table_name
    root = follower.execute(statement(_ROOM, "root_of_partition"), _name_values(name)).fetchone()
    if root is None or root not in called:
        return True
    versions = table_versions.all_versions(log, registration.source_id, [table.table_oid]).get(table.table_oid)
    try:
        with follower.transaction():
            here = position.require_existing(follower, registration.source_id, registration.name, held=True)
            if not versions or HistoryPlace(here.source_epoch, here.commit_lsn or 0, 2**31 - 1) < versions[-1].place:
                return False
            position.change_tables(follower, here)
            with queries.lock_timeout(follower, truncates.LOCK_TIMEOUT):
                TablePartitions(follower, registration, root, called).detach(name)
    except SchemaChangeError as error:
        if isinstance(error.__cause__, psycopg.errors.LockNotAvailable):
            return False  # waiting for a reader of the table would block the position
        raise
    return True


def no_partition_error(name: Name) -> SchemaChangeError:
    """Return the error for a row that has no known partition."""
    return SchemaChangeError(
        f"table {_dotted(name)} of the follower stops: it has no partition for a row, and the source no longer has one",
        f"`create table … partition of {shortest(*name)} for values …` there",
    )


def _with_parents(theirs: Sequence[SourcePartition], oid: int) -> list[SourcePartition]:
    """Return a partition and those above it, the topmost first."""
    by_name = {each.called: each for each in theirs}
    each = next((each for each in theirs if each.oid == oid), None)
    found: list[SourcePartition] = []
    while each is not None:
        found.insert(0, each)
        each = by_name.get(each.parent)
    return found


def _as_sql(text: str) -> sql.SQL:
    """Return text as SQL that the source's catalog printed."""
    return sql.SQL(text)


def _dotted(name: Name) -> str:
    return ".".join(name)


def _name_values(name: Name) -> dict[str, str]:
    return {"schema": name[0], "name": name[1]}
