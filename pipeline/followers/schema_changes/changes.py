"""Applies DDL of the source to a follower, at the place at which a table's next version begins."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from functools import partial

import psycopg
from psycopg import sql

from pipeline.config import patterns
from pipeline.config.settings import Config
from pipeline.errors import FollowedTablesChangedError, NotFollowableError, SchemaChangeError, StatementRefusedError
from pipeline.followers import connecting, registry
from pipeline.followers.applying import followed_tables, position, table_versions
from pipeline.followers.applying.followed_tables import TableToFollow
from pipeline.followers.applying.position import FollowerPosition
from pipeline.followers.applying.table_versions import HistoryPlace, TableVersion
from pipeline.followers.copying import checks, copies, refused_rows, unfound_names
from pipeline.followers.registry import NamedTable, RegisteredFollower, TableNote
from pipeline.followers.routed_tables import is_routed
from pipeline.followers.schema_changes import (
    composites,
    difference,
    partitions,
    reached_versions,
    rewritten_tables,
    source_tables,
    type_changes,
)
from pipeline.followers.schema_changes.alterations import AlterationBuilder, TableAlteration, run
from pipeline.followers.schema_changes.detected_partitions import PartitionChanges
from pipeline.followers.schema_changes.difference import DefinitionDifference
from pipeline.followers.schema_changes.inheritance import InheritanceChanges
from pipeline.followers.schema_changes.partitions import FormerPartitions, TablePartitions
from pipeline.followers.schema_changes.renames import TableRenames
from pipeline.followers.schema_changes.source_tables import CurrentSourceTable
from pipeline.followers.schema_changes.table_names import Name, NameChanges
from pipeline.log.table import EventsTable
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.printable import shortest

logger = logging.getLogger(__name__)


_ROOM = "followers.schema_changes"
_NO_CAST = (
    psycopg.DataError,
    psycopg.errors.CannotCoerce,
    psycopg.errors.DatatypeMismatch,
    psycopg.errors.CheckViolation,
)
"""Errors of the follower if an existing value cannot be converted to another type."""


class SchemaChanges:
    """Follows schema changes of one follower, while the log is applied to the tables in `wanted`.

    `follower` is the applier's connection.
    """

    def __init__(
        self,
        config: Config,
        log: Connection,
        state: Connection,
        follower: Connection,
        registration: RegisteredFollower,
        wanted: Mapping[int, TableToFollow],
        renames: TableRenames,
        partition_changes: PartitionChanges,
    ) -> None:
        self._config, self._log, self._state, self._follower, self._registration = (
            config,
            log,
            state,
            follower,
            registration,
        )
        self._wanted, self._renames = wanted, renames
        self.partition_changes = partition_changes
        """Changes of partitions that the server found in the source's catalog."""
        self.inheritance = InheritanceChanges(log, follower, registration, self._called)
        """Changes of inheritance that the server found in the source's catalog."""
        self._events = EventsTable.parse(config.events_table)

    def request_copies(self) -> None:
        """Request copies of tables that are new or were rewritten, before any later event is applied.

        Raises FollowedTablesChangedError if there are such tables, and SchemaChangeError if the settings forbid to
        follow.
        """
        here = self._here()
        new = request_copies_of_new_tables(
            self._config, self._log, self._state, self._follower, self._registration, self._renames
        )
        called = self._called
        types = partial(
            type_changes.follow_renamed_attributes, self._config, self._follower, self._registration, called
        )
        if (
            rewritten_tables.request_new_copies(self._log, self._follower, self._registration, here, called, types)
            or new
        ):
            raise FollowedTablesChangedError(f"other tables of follower {here.follower} follow the log now")
        type_changes.remember_attributes(self._config, self._follower, self._registration, called)

    def notes(self) -> dict[int, TableNote]:
        """Return notes on tables that differ from the source's tables, by oid."""
        violated = checks.notes(self._follower, self._here())
        return {**violated, **self.inheritance.notes(), **self.partition_changes.notes()}

    def resolve_refusal(self, error: StatementRefusedError) -> bool:
        """Make the schema change that lets the follower accept a refused statement; returns True if there was one.

        Raises SchemaChangeError with the statement to run at the follower, if that is known.
        """
        cause, called = error.__cause__, self._called
        if type_changes.follow(self._config, self._log, self._follower, self._registration, cause, called):
            return True
        if type_changes.is_of_composite(cause):
            return self._copy_tables_of_composites()
        if type_changes.is_of_enum(cause) and error.tables:
            # The source has renamed this label since, or has replaced the type: a copy has the current labels.
            held = {oid: [rewritten_tables.OF_ENUMS] for oid in error.tables}
            return rewritten_tables.request_copies(self._follower, self._registration, self._here(), called, held)
        if isinstance(cause, psycopg.errors.CheckViolation) and not cause.diag.constraint_name:
            return self._add_partition_for(cause.diag.schema_name or "", cause.diag.table_name or "")
        if isinstance(cause, psycopg.errors.NotNullViolation) and cause.diag.column_name:
            diag = cause.diag
            name = diag.schema_name or "", diag.table_name or ""
            return self._allow_nulls(name, diag.column_name or "", error)
        if (remedy := _remedy(self._config, self._follower, error)) is not None:
            raise SchemaChangeError(str(error), remedy) from error
        return False

    def _copy_tables_of_composites(self) -> bool:
        """Request copies of the tables that have values of composite types; returns True if there are any."""
        called, oids = self._called, {".".join(name): oid for oid, name in self._called.items()}
        types = composites.read(self._follower, oids)
        held = {oids[table]: [rewritten_tables.OF_COMPOSITES] for each in types for table, _ in each.columns}
        return rewritten_tables.request_copies(self._follower, self._registration, self._here(), called, held)

    def _allow_nulls(self, name: Name, column: str, error: StatementRefusedError) -> bool:
        """Let a column accept nulls if the source's column does now. Raises SchemaChangeError if that is impossible."""
        oid = next((oid for oid, called in self._called.items() if called == name), 0)
        versions = table_versions.all_versions(self._log, self._here().source, [oid]).get(oid, [])
        listed = [each for version in versions if version.numbered for each in version.columns]
        number = next((each["attnum"] for each in listed if each["name"] == column), None)
        if source_tables.takes_null(self._config, oid, column, number):
            query = sql.SQL("alter table {} alter column {} drop not null")
            altered = query.format(sql.Identifier(*name), sql.Identifier(column))
            self._run(
                name, [TableAlteration(f"column {column} of {'.'.join(name)} takes nulls at the source", altered)]
            )
            return True
        raise SchemaChangeError(
            f"table {'.'.join(name)} of the follower stops: its column {column} takes no null, and the source gives it"
            " no value",
            f"`alter table {shortest(*name)} alter column {shortest(column)} drop not null` there, or give it a"
            " default",
        ) from error

    def follow(self, changed: NotFollowableError) -> None:
        """Alter a table to the version that the next transaction needs, in a separate transaction.

        If it is unclear how to alter it, request a copy of the table instead. Raises SchemaChangeError if the follower
        refuses a statement, or the settings forbid to follow; ApplierOvertakenError; and DatabaseUnavailableError if
        the source is needed and does not answer.
        """
        oid, here, wanted, called = changed.oid, self._here(), self._wanted, self._called
        if changed.why == "unknown":
            if not table_versions.is_in_history(self._log, here, oid, wanted[oid].reached):
                copies.request(self._follower, here, [oid])
            return
        if self._follow_partition(here, oid) or self._rename_only(self._here(), oid, changed.seq):
            return
        here = self._here()
        found = table_versions.next_change(self._log, here, oid, wanted[oid].reached)
        if found is None:
            return
        before, after = found
        change = difference.between(before, after, numbered=before.is_numbered_like(after))
        try:
            gone = self._change(here, changed, after, change)
        except SchemaChangeError as error:
            if not isinstance(error.__cause__, _NO_CAST):
                raise
            # The source has rewritten all rows, but the follower cannot convert the values that it has to the new type.
            retyped = {oid: [column.name for column in change.retyped]}
            rewritten_tables.request_copies(self._follower, self._registration, self._here(), called, retyped)
        else:
            self._renames.forget(self._state, gone)

    def _change(
        self, here: FollowerPosition, changed: NotFollowableError, after: TableVersion, change: DefinitionDifference
    ) -> Collection[int]:
        """Give a table its new name, columns and key; returns the tables that are no longer followed."""
        oid = changed.oid
        with self._follower.transaction():
            here = position.change_tables(self._follower, here)
            # A copy may have given the table another name than this version has.
            moves = self._rename(here, {oid: change.name} if change.name != self._called[oid] else {})
            if oid in moves.gone:
                pass
            elif change.unclear or (change.key is not None and self._has_older_events(here, changed)):
                copies.request(self._follower, here, [oid])
            else:
                name = moves.names.get(oid, self._called[oid])
                self._alter(after, change, name)
                reached_versions.store(self._follower, here, oid, name, after.place)
        return moves.gone

    def _rename_only(self, here: FollowerPosition, oid: int, seq: int) -> bool:
        """Rename a table if the version at this seq differs from its copy only by name; returns True if it did."""
        versions = table_versions.all_versions(self._log, here.source, [oid]).get(oid, [])
        reached = self._wanted[oid].reached
        later = reached.version_after_copy(versions)
        place = later.place if later else _place(self._log, self._events, seq)
        later = later or _version_at(place, reached.version_at_copy(versions), versions)
        if later is None or place is None or self._called[oid] == (later.table_schema, later.table_name):
            return False
        with self._follower.transaction():
            here = position.change_tables(self._follower, here)
            moves = self._rename(here, {oid: (later.table_schema, later.table_name)})
            # Store the version even if the table did not get the name, which another table has now.
            reached_versions.store(self._follower, here, oid, moves.names.get(oid, self._called[oid]), place)
        self._renames.forget(self._state, moves.gone)
        return True

    def _rename(self, here: FollowerPosition, targets: Mapping[int, Name]) -> NameChanges:
        """Give tables these names, and give new names to tables that have them now."""
        moves = self._renames.plan(self._follower, targets)
        self._renames.carry_out(self._follower, here, moves)
        return moves

    def _follow_partition(self, here: FollowerPosition, oid: int) -> bool:
        """Attach or detach the next partition; returns True if the next version differs in nothing else."""
        reached, joins_at = self._wanted[oid].reached, self._wanted[oid].joins_at
        history = table_versions.read_histories(self._log, {oid: reached}, here)[oid]
        new = followed_tables.next_partition(self._follower, self._wanted, history)
        change = table_versions.next_change(self._log, here, oid, reached)
        named = history.later_name
        places = [new and new.place, change and change[1].place, named and named[0]]
        if joins_at is not None and all(joins_at <= place for place in places if place):
            self.partition_changes.follow(oid, joins_at)
            return True
        if new is None or (change is not None and change[1].place < new.place):
            return False
        alone = change is None or change[1].place > new.place
        theirs = partitions.at_source(self._config, oid) if new.attached else []
        with self._follower.transaction():
            here = position.change_tables(self._follower, here)
            table = self._partitions(oid)
            if new.attached:
                table.follow(theirs, new)
            else:
                table.detach(self._called[oid])
            if alone:
                reached_versions.store(self._follower, here, oid, self._called[oid], new.place)
        return alone

    def _add_partition_for(self, schema: str, name: str) -> bool:
        """Create partitions that a table lacks. Raises SchemaChangeError if the source has none for the refused row."""
        values = {"schema": schema, "name": name}
        root = self._follower.execute(statement("followers.schema_changes", "partition_root"), values).fetchone()
        oid = next((oid for oid, called in self._called.items() if called == root), None)
        if root is None or oid is None:
            return False
        theirs = partitions.at_source(self._config, oid)
        with self._follower.transaction():
            position.change_tables(self._follower, self._here())
            if not self._partitions(oid).follow(theirs):
                raise partitions.no_partition_error((schema, name))
        return True

    def _partitions(self, oid: int) -> TablePartitions:
        former = FormerPartitions(self._log, self._registration, oid)
        return TablePartitions(self._follower, self._registration, self._called[oid], self._called.values(), former)

    def _alter(self, after: TableVersion, change: DefinitionDifference, called: Name) -> None:
        """Change the columns and the key of a table."""
        there: CurrentSourceTable | None = None
        if change.dropped or change.renamed or change.retyped:
            self.inheritance.stop_inheriting(after.table_oid)
        if change.dropped or change.key is not None:
            there = source_tables.read(self._config, [after.table_oid]).get(after.table_oid)
        live = there.numbers if there and after.numbered else []
        altered = AlterationBuilder(self._follower, called)
        self._run(called, altered.of_columns(change, live))
        deferrable = there is not None and there.deferrable_key
        self._run(called, list(altered.of_key(change, there.keys_of(after) if there else None, deferrable=deferrable)))

    def _run(self, called: Name, alterations: Sequence[TableAlteration]) -> None:
        if alterations and self._registration.ddl == "stop":
            first = alterations[0]
            raise SchemaChangeError(
                f"table {'.'.join(called)} of the follower stops: {first.what}, and --ddl is stop",
                f"`{first.as_text(self._follower)}` there",
            )
        run(self._follower, self._registration.name, called, alterations)

    def _has_older_events(self, here: FollowerPosition, changed: NotFollowableError) -> bool:
        """Return True if the same transaction has earlier events of the table, which identify rows by the old key."""
        values = {"source": here.source, "after": here.seq, "before": changed.seq, "oid": changed.oid}
        query = sql.SQL(statement("followers.schema_changes", "events_between")).format(events=self._events.identifier)
        return bool(queries.value(self._log, query, values))

    @property
    def _called(self) -> dict[int, Name]:
        """The names of all tables of the follower, including those that wait for a new copy."""
        return self._renames.called(self._follower)

    def _here(self) -> FollowerPosition:
        return position.require_existing(self._follower, self._registration.source_id, self._registration.name)


def _place(log: Connection, events: EventsTable, seq: int) -> HistoryPlace | None:
    """Return the place of the event with this seq."""
    query = sql.SQL(statement(_ROOM, "place_of_event")).format(events=events.identifier)
    return queries.one(log, HistoryPlace, query, {"seq": seq})


def _version_at(
    place: HistoryPlace | None, at_copy: TableVersion | None, versions: Sequence[TableVersion]
) -> TableVersion | None:
    """Return the version of a table at this place, if it equals the version at the copy."""
    past = [each for each in versions if place is not None and each.place <= place]
    return past[-1] if past and at_copy is not None and past[-1].is_like(at_copy) else None


def _remedy(config: Config, follower: Connection, error: StatementRefusedError) -> str | None:
    """Return what to run at the follower; None if unknown."""
    if (known := unfound_names.from_error(error) or refused_rows.from_error(error)) is None:
        return None
    with connecting.connect_catalog(config) as source:
        return known.remedy(follower, source)


def request_copies_of_new_tables(
    config: Config,
    log: Connection,
    state: Connection,
    follower: Connection,
    registration: RegisteredFollower,
    renames: TableRenames,
) -> bool:
    """Request copies of tables that the follower must have and lacks; returns True if there are any.

    A table that was dropped since is ignored, and a table that was renamed since gets its current name. A table that
    was dropped and created again replaces the previous one. Raises SchemaChangeError if the settings forbid it.
    """
    here = position.require_existing(follower, registration.source_id, registration.name)
    known = renames.called(follower)
    values = {**vars(here), "known": list(known), "partitions_stay": registration.ddl == "stop"}
    listed = queries.rows(log, NamedTable, statement(_ROOM, "tables_after"), values)
    new = [table.table_oid for table in listed if _is_wanted(config, registration, table)]
    targets = {oid: each.called for oid, each in source_tables.read(config, new).items()} if new else {}
    if not targets:
        return False
    _require_wanted(registration, ".".join(next(iter(targets.values()))))
    taken = renames.request_copies(state, follower, targets, known)
    registry.add_tables(state, registration.id, [NamedTable(oid, *name) for oid, name in taken.items()])
    for schema, name in taken.values():
        logger.info("%s: table %s.%s is new", registration.name, schema, name, extra={"action": "follower.new_table"})
    return True


def _require_wanted(registration: RegisteredFollower, name: str) -> None:
    if registration.ddl == "stop":
        raise SchemaChangeError(
            f"the follower stops: table {name} is new at the source, and --ddl is stop",
            f"remove it, and add it again with its table {name}: `pipeline followers remove {registration.name}`",
        )


def _is_wanted(config: Config, registration: RegisteredFollower, table: NamedTable) -> bool:
    name = f"{table.table_schema}.{table.table_name}"
    return patterns.matches(tuple(registration.tables), name) and not is_routed(
        config, table.table_schema, table.table_name
    )
