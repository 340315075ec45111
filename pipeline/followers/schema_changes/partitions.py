"""Partitions that the source has made, attached or detached: the follower's tables are divided likewise.

A follower may be divided otherwise, or not at all. So where it has room for the rows, a partition that cannot be made
is none that it needs.
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
"""What the follower says where another partition has these rows, or its table is divided by something else."""


@dataclass(frozen=True)
class SourcePartition:
    """One that is attached at the source. `bound`: as SQL writes it; `divided_by`, too, None of one with rows."""

    oid: int
    schema: str
    name: str
    parent_schema: str
    parent_name: str
    bound: str
    divided_by: str | None

    @property
    def called(self) -> Name:
        """Schema and name."""
        return self.schema, self.name

    @property
    def parent(self) -> Name:
        """That of the table it is a partition of."""
        return self.parent_schema, self.parent_name


def at_source(config: Config, root: int) -> list[SourcePartition]:
    """Those of a table, by its oid, parents first. Raises DatabaseUnavailableError."""
    with connecting.connect_catalog(config) as source:
        return read(source, root)


def read(source: Connection, root: int) -> list[SourcePartition]:
    """The same over a session that is there."""
    with reading_session.transaction(source, session_settings.SOURCE):  # names are printed as they are found
        return queries.rows(source, SourcePartition, statement(_ROOM, "partitions"), {"root": root})


class FormerPartitions:
    """Partitions that a table of the source has had, by its oid. Asked for once they are needed."""

    def __init__(self, log: Connection, registration: RegisteredFollower, root: int) -> None:
        self._log, self._values = log, {"source": registration.source_id, "root": root}

    def oid(self, name: Name, *, left: bool) -> int | None:
        """Return the oid of the one that was called so; of one that has left, or was there at the last look."""
        found = self._log.execute(statement(_ROOM, "former_partitions"), self._values).fetchall()
        return next((oid for called, oid, has_left in found if called == ".".join(name) and has_left >= left), None)


class TablePartitions:
    """Of one table of a follower, which is called so there and at the source. `called`: all tables that it follows.

    `former`: those that the source has had, which may be in the way of others.
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
        """Whether one of them is none here, and that is partitioned."""
        divided = self._follower.execute(statement(_ROOM, "partition_root"), _named(self._root)).fetchone() is not None
        here = self.names() if divided and theirs else set[Name]()
        return divided and any(each.called not in here for each in theirs)

    def follow(self, theirs: Sequence[SourcePartition], new: Partition | None = None, *, is_kept: bool = False) -> bool:
        """Make or attach this one, and those that it is part of, or without it all that are lacking.

        Whether there was one. In the transaction that is open. `is_kept`: a table that was detached has the rows of it.

        Raises SchemaChangeError where the follower does not let us, or is not to follow, or where the source does not
        have it any more and the follower has it as a table of its own.
        """
        wanted = list(theirs) if new is None else _line(theirs, new.oid)
        if new is not None and not wanted:
            self._require_dispensable(new)
        made = False
        for each in wanted:
            if each.called not in self.names():  # one that is attached brings its own
                if not is_kept:
                    self._set_aside(each.called)
                made = self._made(each, theirs) or made
        return made

    def detach(self, name: Name) -> None:
        """Let a table that is a partition here be one of its own. In the transaction that is open."""
        parent = self._parent(name)
        if parent is not None:
            query = sql.SQL("alter table {} detach partition {}")
            detached = query.format(sql.Identifier(*parent), sql.Identifier(*name))
            self._run(TableAlteration(f"the source detached {_shown(name)} from {_shown(self._root)}", detached))

    def detach_gone(self, name: Name, theirs: Sequence[SourcePartition]) -> None:
        """Detach a partition that the source has no longer, with those above it that it does not have either."""
        there = {self._root, *(each.called for each in theirs)}
        while (parent := self._parent(name)) is not None and parent not in there:
            name = parent
        self.detach(name)

    def _parent(self, name: Name) -> Name | None:
        return self._follower.execute(statement(_ROOM, "parent"), _named(name)).fetchone()

    def _made(self, each: SourcePartition, theirs: Sequence[SourcePartition]) -> bool:
        if each.parent not in {self._root, *self.names()}:
            return False  # it is divided otherwise
        attached = self._is_table(each.called)
        while True:
            try:
                with self._follower.transaction():
                    for alteration in [self._attachment(each)] if attached else self._creation(each):
                        self._run(alteration)
            except SchemaChangeError as error:
                if (gone := self._in_the_way(error, theirs)) is not None:
                    self.detach_gone(gone, theirs)
                elif attached or not isinstance(error.__cause__, _NO_ROOM):
                    raise
                else:
                    return False
            else:
                return True

    def _set_aside(self, name: Name) -> None:
        """Rename a table that was a partition: rows that it has kept are none of the one that has its name now."""
        if self._former is None or name in self._called or not self._is_table(name):
            return
        if (oid := self._former.oid(name, left=True)) is not None:
            query = sql.SQL("alter table {} rename to {}")
            renamed = query.format(sql.Identifier(*name), sql.Identifier(displaced_name(name[1], oid)))
            self._run(TableAlteration(f"the source has another partition {_shown(name)}", renamed))

    def _in_the_way(self, error: SchemaChangeError, theirs: Sequence[SourcePartition]) -> Name | None:
        """Return a partition that overlaps another one, and that the source has no longer. The error names it."""
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
        what = f"the source attached {_shown(each.called)} to {_shown(each.parent)}"
        return TableAlteration(what, attached + _printed(each.bound))

    def _creation(self, each: SourcePartition) -> Iterator[TableAlteration]:
        what = f"the source made {_shown(each.called)}, a partition of {_shown(each.parent)}"
        there = "select pg_catalog.to_regnamespace(pg_catalog.quote_ident(%s)) is not null"
        if not queries.value(self._follower, there, [each.schema]):
            yield TableAlteration(what, sql.SQL("create schema {}").format(sql.Identifier(each.schema)))
        names = sql.Identifier(*each.called), sql.Identifier(*each.parent)
        made = sql.SQL("create table {} partition of {} ").format(*names) + _printed(each.bound)
        yield TableAlteration(
            what, made if each.divided_by is None else made + _printed(f" partition by {each.divided_by}")
        )

    def _require_dispensable(self, new: Partition) -> None:
        """What the source does not have any more is missed by rows that find no place, or as a table of its own."""
        if new.called in self._called:
            attach = f"alter table {shortest(*self._root)} attach partition {shortest(*new.called)} for values …"
            raise SchemaChangeError(
                f"table {_shown(self._root)} of the follower stops: the source attached {_shown(new.called)} to it, and"
                " does not say any more for which values",
                f"`{attach}` there",
            )

    def names(self) -> set[Name]:
        """Return those that the follower has."""
        return names(self._follower, self._root)

    def _is_table(self, name: Name) -> bool:
        return queries.value(self._follower, statement(_ROOM, "find_relation"), _named(name)) is not None

    def _run(self, alteration: TableAlteration) -> None:
        if self._registration.ddl == "stop":
            text = alteration.as_text(self._follower)
            said = f"table {_shown(self._root)} of the follower stops: {alteration.what}, and --ddl is stop"
            raise SchemaChangeError(said, f"`{text}` there")
        run(self._follower, self._registration.name, self._root, [alteration])


def names(follower: Connection, root: Name) -> set[Name]:
    """Return the partitions that a table of the follower has, at any level."""
    table = sql.Identifier(*root).as_string(follower)
    return set(follower.execute(statement("followers.applying", "name_partitions"), {"table": table}).fetchall())


def detach_before_copy(
    log: Connection, follower: Connection, registration: RegisteredFollower, table: NamedTable, called: Collection[Name]
) -> bool:
    """Detach a table that is to be copied, where it is a partition here and is none at the source any more.

    False while the follower is not where its own events begin, as until then it may be a partition, or another session
    uses it. `called`: all tables that it follows.
    """
    name = table.table_schema, table.table_name
    root = follower.execute(statement(_ROOM, "root_of_partition"), _named(name)).fetchone()
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
            return False  # who reads it would hold up the position
        raise
    return True


def refused(name: Name) -> SchemaChangeError:
    """The error for a row for which no partition is known."""
    return SchemaChangeError(
        f"table {_shown(name)} of the follower stops: it has no partition for a row, and the source has none any more",
        f"`create table … partition of {shortest(*name)} for values …` there",
    )


def _line(theirs: Sequence[SourcePartition], oid: int) -> list[SourcePartition]:
    """A partition and those that it is part of, the topmost first."""
    by_name = {each.called: each for each in theirs}
    each = next((each for each in theirs if each.oid == oid), None)
    found: list[SourcePartition] = []
    while each is not None:
        found.insert(0, each)
        each = by_name.get(each.parent)
    return found


def _printed(text: str) -> sql.SQL:
    """As the source's catalog prints it."""
    return sql.SQL(text)


def _shown(name: Name) -> str:
    return ".".join(name)


def _named(name: Name) -> dict[str, str]:
    return {"schema": name[0], "name": name[1]}
