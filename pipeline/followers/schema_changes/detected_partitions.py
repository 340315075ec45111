"""Attaches and detaches partitions that joined or left a table, as the server found in the source's catalog.

No event tells of them. A follower's table is altered once the log is applied up to the place of that check. Before
that, an event may still write a row to a partition that has left.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql

from pipeline.config.settings import Config
from pipeline.errors import SchemaChangeError, TableLockedError
from pipeline.followers.applying import position, truncates
from pipeline.followers.applying.followed_tables import Partition
from pipeline.followers.applying.position import FollowerPosition
from pipeline.followers.applying.table_versions import HistoryPlace
from pipeline.followers.copying import copies, log_progress
from pipeline.followers.copying.taken_names import displaced_name
from pipeline.followers.registry import RegisteredFollower, TableNote
from pipeline.followers.schema_changes import partitions
from pipeline.followers.schema_changes.partitions import FormerPartitions, SourcePartition, TablePartitions
from pipeline.followers.schema_changes.table_names import Name
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.printable import shortest

AGAIN_SECONDS = 1.0
"""The pause before the next attempt to change a table that another session used."""
_ROOM = "followers.schema_changes"
_NAMED = 3
"""The most tables that a note names."""
_FIND_FOLLOWED_CHANGES = """\
select table_oid, looked_upto, kept from pipeline_follower.partitions
where source_database_id = %(source)s and follower = %(follower)s
"""
"""Read up to which change each table has followed, and for which changes rows of a partition stay in it."""


@dataclass(frozen=True)
class PartitionChange:
    """A change of a partition that a check of the catalog found: `what` is attached, returned, detached or dropped.

    `names`: the names that the partition had, as `schema.name`. `is_reused`: another partition of the table has its
    name now.
    """

    id: int
    root_oid: int
    leaf_oid: int
    what: str
    epoch: int
    seen_lsn: int
    names: list[str]
    is_reused: bool

    @property
    def place(self) -> HistoryPlace:
        """The place of the check; what it found had happened before."""
        return HistoryPlace(self.epoch, self.seen_lsn, 0)

    @property
    def has_joined(self) -> bool:
        """True if the change made it a partition; False if it is no longer one."""
        return self.what in ("attached", "returned")

    def among(self, names: Collection[Name]) -> Name | None:
        """Return the follower's name of the partition, if it is one of these names."""
        return next((name for called in self.names for name in names if ".".join(name) == called), None)


class PartitionChanges:
    """Changes of partitions of one follower's tables. `called`: the names of its tables, by oid."""

    def __init__(
        self,
        config: Config,
        log: Connection,
        follower: Connection,
        registration: RegisteredFollower,
        called: Mapping[int, Name],
    ) -> None:
        self._config, self._log, self._follower = config, log, follower
        self._registration, self._called = registration, called
        values = {
            "source": registration.source_id,
            "roots": list(called),
            "made_at": registration.made_at,
            "made_seq": registration.made_seq,
            "copy": registration.copy_mode,
        }
        self._all = queries.rows(log, PartitionChange, statement(_ROOM, "partition_changes"), values)
        self._pending = pending(follower, registration, self._all)
        self._waits, self._not_before = dict[int, TableNote](), 0.0

    def joins_at(self, oid: int) -> HistoryPlace | None:
        """Return the place from which on a table needs the next partition that joined; None if there is none."""
        if self._registration.ddl == "stop":
            return None
        return next((each.place for each in self._pending.get(oid, ()) if each.has_joined), None)

    def follow_due(self, here: FollowerPosition, oids: Collection[int]) -> bool:
        """Follow changes of one of these tables, as far as the log is applied; returns True if there was a change.

        If another session uses the table, the change is tried again later, and `notes` reports this. Raises the errors
        of `follow`.
        """
        if self._registration.ddl == "stop" or time.monotonic() < self._not_before:
            return False
        for oid in self._pending.keys() & set(oids):
            due = [each.place for each in self._pending[oid] if log_progress.reaches(self._log, here, each.place)]
            if due:
                try:
                    self.follow(oid, max(due))
                except TableLockedError as error:
                    self._not_before = time.monotonic() + AGAIN_SECONDS
                    self._waits[oid] = TableNote(str(error))
                    return False
                return True
        return False

    def follow(self, oid: int, upto: HistoryPlace) -> None:
        """Follow the changes of a table up to this place, in a transaction.

        Raises SchemaChangeError if the follower refuses a statement, TableLockedError if another session uses the
        table, ApplierOvertakenError, and DatabaseUnavailableError if the source does not answer.
        """
        due = [each for each in self._pending[oid] if each.place <= upto]
        root = self._called[oid]
        table = TablePartitions(
            self._follower,
            self._registration,
            root,
            self._called.values(),
            FormerPartitions(self._log, self._registration, oid),
        )
        concerned = [each for each in due if (each.among(table.names()) is None) == each.has_joined]
        theirs = partitions.at_source(self._config, oid) if concerned else []
        here = position.require_existing(self._follower, self._registration.source_id, self._registration.name)
        try:
            with self._follower.transaction():
                here = position.change_tables(self._follower, here)
                with queries.lock_timeout(self._follower, truncates.LOCK_TIMEOUT):
                    for each in due:
                        here = self._follow_one(here, table, theirs, each)
                kept = [each.id for each in due if each not in concerned and not each.has_joined and self._keeps(each)]
                stored = {**vars(here), "oid": oid, "upto": due[-1].id, "kept": kept}
                self._follower.execute(statement(_ROOM, "store_followed_changes"), stored)
        except SchemaChangeError as error:
            if isinstance(error.__cause__, psycopg.errors.LockNotAvailable):
                raise truncates.locked_error(
                    self._follower, [sql.Identifier(*root)], "a change of partitions"
                ) from error
            raise

    def _follow_one(
        self, here: FollowerPosition, table: TablePartitions, theirs: Sequence[SourcePartition], each: PartitionChange
    ) -> FollowerPosition:
        there = each.among(table.names())
        if each.has_joined:
            is_theirs = any(each.leaf_oid == their.oid for their in theirs)
            if there is None and is_theirs and self._join(table, theirs, each):
                return copies.request(self._follower, here, [each.root_oid])
        elif there is not None and not each.is_reused:
            table.detach_gone(there, theirs)
        elif there is not None:
            # The follower cannot tell rows of the former partition from rows of the one that has its name now.
            copy = copies.find(self._follower, here).get(each.root_oid)
            if copy is None or copy.place < each.place:
                self._require_copies(each, there)
                return copies.request(self._follower, here, [each.root_oid])
        return here

    def _join(self, table: TablePartitions, theirs: Sequence[SourcePartition], each: PartitionChange) -> bool:
        """Create or attach a partition; returns True if the table must be copied to get the partition's rows.

        The log has the rows of a partition that was attached. For a partition that returned, it has only what changed
        since the partition left; the follower has the other rows only if a detached table kept them.
        """
        is_kept = each.what == "returned" and bool(self._separate_tables([each]))
        is_made = table.follow(theirs, Partition(each.place, each.leaf_oid, ("", ""), attached=True), is_kept=is_kept)
        return is_made and each.what == "returned" and not is_kept

    def _keeps(self, each: PartitionChange) -> bool:
        """Return True if the rows of a partition that left stay in the table, because no separate table has them."""
        return not self._separate_tables([each])

    def _separate_tables(self, of: Sequence[PartitionChange]) -> list[Name]:
        """Return the names of these partitions that are separate tables of the follower now."""
        names = [name for each in of for name in (*each.names, _displaced_name(each))]
        return self._follower.execute(statement(_ROOM, "separate_tables"), {"names": names}).fetchall()

    def _require_copies(self, each: PartitionChange, there: Name) -> None:
        if self._registration.on_rewrite == "stop":
            root = ".".join(self._called[each.root_oid])
            raise SchemaChangeError(
                f"table {root} of the follower stops: its partition {'.'.join(there)} was {each.what} at the source,"
                " another one has that name since, and --on-rewrite is stop",
                f"`pipeline followers resync {self._registration.name} {root}`",
            )

    def notes(self) -> dict[int, TableNote]:
        """Return notes on tables, by oid: partitions that stay in them, and separate tables that were partitions."""
        found = dict[int, TableNote]()
        for oid in {each.root_oid for each in self._all if not each.has_joined}:
            notes = [note for note in (self._note_on_kept(oid), self._note_on_dropped(oid)) if note is not None]
            if notes:
                found[oid] = TableNote(
                    "; ".join(each.reason for each in notes), "; ".join(each.remedy for each in notes)
                )
        return found | self._waits

    def _note_on_kept(self, oid: int) -> TableNote | None:
        """Return a note on partitions that the source detached, if the settings forbid to detach them."""
        if self._registration.ddl != "stop":
            return None
        names = gone_at_source(self._follower, self._called[oid], self._pending.get(oid, ()))
        if not names:
            return None
        root = shortest(*self._called[oid])
        statements = [f"`alter table {root} detach partition {shortest(*name)}` there" for name in names[:_NAMED]]
        what = "is no longer a partition at the source" if len(names) == 1 else "are no longer partitions at the source"
        return TableNote(f"{_list_names(names)} {what}, and --ddl is stop", ", ".join(statements))

    def _note_on_dropped(self, oid: int) -> TableNote | None:
        dropped = [each for each in self._all if each.root_oid == oid and each.what == "dropped"]
        gone = {each.leaf_oid for each in dropped}
        others = {name for other, name in self._called.items() if other not in gone}
        there = [name for name in self._separate_tables(dropped) if name not in others]
        if not there:
            return None
        is_one = "is a separate table here" if len(there) == 1 else "are separate tables here"
        were = (
            "was a partition that the source dropped" if len(there) == 1 else "were partitions that the source dropped"
        )
        drop = f"`drop table {', '.join(shortest(*name) for name in there[:_NAMED])}` there"
        return TableNote(f"{_list_names(there)} {is_one}, and {were}", f"{drop}, if no user needs it")


@dataclass(frozen=True)
class PartitioningState:
    """How far a follower's table has followed changes of partitions: up to the number of a change.

    `kept`: the changes by which a partition left whose rows stay in the table.
    """

    upto: int = 0
    kept: tuple[int, ...] = ()


def partitioning_states(follower: Connection, registration: RegisteredFollower) -> dict[int, PartitioningState]:
    """Return the partitioning states of a follower's tables, by oid, without tables that had no change."""
    values = {"source": registration.source_id, "follower": registration.name}
    rows = follower.execute(_FIND_FOLLOWED_CHANGES, values).fetchall()
    return {oid: PartitioningState(upto, tuple(kept)) for oid, upto, kept in rows}


def pending(
    follower: Connection, registration: RegisteredFollower, listed: Sequence[PartitionChange]
) -> dict[int, list[PartitionChange]]:
    """Return the changes that a follower's tables have not followed yet, by the table's oid, in order."""
    if not listed:
        return {}
    known = partitioning_states(follower, registration)
    result = dict[int, list[PartitionChange]]()
    for each in listed:
        if each.id > known.get(each.root_oid, PartitioningState()).upto:
            result.setdefault(each.root_oid, []).append(each)
    return result


def gone_at_source(follower: Connection, root: Name, changes: Sequence[PartitionChange]) -> list[Name]:
    """Return the partitions of a follower's table that the source no longer has."""
    newest = {each.leaf_oid: each for each in changes}
    gone = [each for each in newest.values() if not each.has_joined and not each.is_reused]
    names = partitions.names(follower, root) if gone else set[Name]()
    return [name for each in gone if (name := each.among(names)) is not None]


def _displaced_name(each: PartitionChange) -> str:
    schema, _, name = each.names[0].partition(".")
    return f"{schema}.{displaced_name(name, each.leaf_oid)}"


def _list_names(names: Sequence[Name]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(".".join(name) for name in names[:_NAMED]) + more
